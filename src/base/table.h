/* Tables for people: aligned columns, a coloured head, fitted to the terminal.
 *
 * Columns that do not fit are left out, those of the lowest priority first; on a pipe nothing is left out. */
#ifndef TM_BASE_TABLE_H
#define TM_BASE_TABLE_H

#include "base/arena.h"
#include "base/term.h"

#include <stddef.h>

enum { TM_TABLE_COLUMNS_MAX = 24 };

enum tm_align { TM_LEFT, TM_RIGHT };

struct tm_column {
    const char *title;
    enum tm_align align;
    int priority; /* 0: never left out; 1 is left out after 2, and so on */
};

struct tm_table_cell {
    const char *text;
    enum tm_color color;
};

struct tm_table {
    const struct tm_column *columns; /* borrowed */
    size_t column_count;
    struct tm_table_cell *cells; /* row after row, owned */
    size_t cell_count;
    size_t cell_capacity;
    struct tm_arena arena; /* texts of the cells */
    int failed;            /* sticky, as in tm_text */
};

void tm_table_init(struct tm_table *table, const struct tm_column *columns, size_t column_count);
void tm_table_deinit(struct tm_table *table);

/* Cells fill rows from left to right; a row is complete after column_count cells. */
void tm_table_add(struct tm_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tm_table_add_colored(struct tm_table *table, enum tm_color color, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends the table to `out`. Returns -TM_ENOMEM if a cell was lost. */
int tm_table_print(const struct tm_table *table, const struct tm_term *term, struct tm_text *out, struct tm_error *e);

#endif

#include "base/table.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { CELLS_MAX = 1 << 24, TABLE_BYTES_MAX = 1 << 28, GAP = 2 };

void tm_table_init(struct tm_table *table, const struct tm_column *columns, size_t column_count)
{
    assert(column_count > 0 && column_count <= TM_TABLE_COLUMNS_MAX);
    *table = (struct tm_table){.columns = columns, .column_count = column_count};
    tm_arena_init(&table->arena, TABLE_BYTES_MAX);
}

void tm_table_deinit(struct tm_table *table)
{
    tm_free(table->cells);
    table->cells = NULL;
    tm_arena_deinit(&table->arena);
}

static void add_cell(struct tm_table *table, enum tm_color color, const char *format, va_list args)
{
    if (table->failed != 0) return;
    char text[512];
    (void)vsnprintf(text, sizeof text, format, args);
    void *cells = table->cells;
    table->failed = tm_grow(&cells, &table->cell_capacity, table->cell_count + 1, sizeof *table->cells, CELLS_MAX);
    table->cells = cells;
    struct tm_text safe; /* cells may hold what a file says */
    tm_text_init(&safe, sizeof text * 2);
    tm_term_put_safe(&safe, text, strlen(text));
    if (table->failed == 0) table->failed = safe.failed;
    char *copy = table->failed == 0 ? tm_arena_strdup(&table->arena, tm_text_string(&safe)) : NULL;
    tm_text_deinit(&safe);
    if (copy == NULL) {
        if (table->failed == 0) table->failed = -(int)TM_ENOMEM;
        return;
    }
    table->cells[table->cell_count++] = (struct tm_table_cell){copy, color};
}

void tm_table_add(struct tm_table *table, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_cell(table, TM_PLAIN, format, args);
    va_end(args);
}

void tm_table_add_colored(struct tm_table *table, enum tm_color color, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_cell(table, color, format, args);
    va_end(args);
}

static void measure(const struct tm_table *table, size_t widths[TM_TABLE_COLUMNS_MAX])
{
    assert(table->column_count > 0);
    for (size_t c = 0; c < table->column_count; c++)
        widths[c] = tm_term_columns(table->columns[c].title);
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t width = tm_term_columns(table->cells[i].text);
        size_t c = i % table->column_count;
        if (width > widths[c]) widths[c] = width;
    }
}

/* Leaves out columns until the rest fits. */
static void fit(const struct tm_table *table, int width_max, const size_t *widths, bool shown[TM_TABLE_COLUMNS_MAX])
{
    for (size_t c = 0; c < table->column_count; c++)
        shown[c] = true;
    if (width_max == 0) return;
    for (;;) {
        size_t total = 0;
        int worst_priority = 0;
        size_t worst = 0;
        for (size_t c = 0; c < table->column_count; c++) {
            if (!shown[c]) continue;
            total += widths[c] + (total > 0 ? GAP : 0);
            if (table->columns[c].priority >= worst_priority && table->columns[c].priority > 0) {
                worst_priority = table->columns[c].priority;
                worst = c;
            }
        }
        if (total <= (size_t)width_max || worst_priority == 0) return;
        shown[worst] = false;
    }
}

/* What still does not fit is cut: the widest column of text gives way, down to 8. */
static void shrink(const struct tm_table *table, int width_max, const bool *shown, size_t *widths)
{
    enum { TEXT_WIDTH_MIN = 8 };
    for (;;) {
        size_t total = 0;
        size_t widest = table->column_count;
        for (size_t c = 0; c < table->column_count; c++) {
            if (!shown[c]) continue;
            total += widths[c] + (total > 0 ? GAP : 0);
            bool text = table->columns[c].align == TM_LEFT && widths[c] > TEXT_WIDTH_MIN;
            if (text && (widest == table->column_count || widths[c] > widths[widest])) widest = c;
        }
        if (width_max == 0 || total <= (size_t)width_max || widest == table->column_count) return;
        widths[widest]--;
    }
}

static void print_cell(const struct tm_term *term, struct tm_text *out, struct tm_table_cell cell, enum tm_align align,
                       size_t width, bool last)
{
    struct tm_text cut;
    tm_text_init(&cut, 2048);
    tm_term__put_cut(term, &cut, cell.text, width);
    size_t blank = width - tm_term_columns(tm_text_string(&cut));
    if (align == TM_RIGHT) tm_text_fill(out, ' ', blank);
    tm_term_put(term, out, cell.color, tm_text_string(&cut));
    if (cut.failed != 0) out->failed = cut.failed;
    tm_text_deinit(&cut);
    if (align == TM_LEFT && !last) tm_text_fill(out, ' ', blank);
}

static void print_row(const struct tm_table *table, const struct tm_term *term, struct tm_text *out,
                      const struct tm_table_cell *row, const size_t *widths, const bool *shown)
{
    size_t last = 0;
    for (size_t c = 0; c < table->column_count; c++) {
        if (shown[c]) last = c;
    }
    bool first = true;
    for (size_t c = 0; c < table->column_count; c++) {
        if (!shown[c]) continue;
        if (!first) tm_text_fill(out, ' ', GAP);
        first = false;
        struct tm_table_cell cell = row != NULL ? row[c] : (struct tm_table_cell){table->columns[c].title, TM_BOLD};
        print_cell(term, out, cell, table->columns[c].align, widths[c], c == last);
    }
    tm_text_putc(out, '\n');
}

int tm_table_print(const struct tm_table *table, const struct tm_term *term, struct tm_text *out, struct tm_error *e)
{
    if (table->failed != 0) return tm_error_nomem(e);
    size_t widths[TM_TABLE_COLUMNS_MAX] = {0};
    bool shown[TM_TABLE_COLUMNS_MAX] = {0};
    measure(table, widths);
    fit(table, term->width, widths, shown);
    shrink(table, term->width, shown, widths);
    print_row(table, term, out, NULL, widths, shown);
    for (size_t i = 0; i + table->column_count <= table->cell_count; i += table->column_count)
        print_row(table, term, out, table->cells + i, widths, shown);
    return tm_text_status(out, e);
}

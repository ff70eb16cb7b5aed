/* Typed fields: a table says which keys a map may have and what each must be; reading, checking, defaults, messages
 * and the manual all come from it.
 *
 *     static const struct tm_field fields[] = {
 *         {.key = "deadline", .type = TM_FIELD_DURATION, .offset = offsetof(struct job, deadline_ms), .doc = "..."},
 *         {.key = NULL}};
 *
 * A wrong value gives: job.yaml:3:11: deadline: expected duration, got "soon"; write for example 6h */
#ifndef TM_BASE_FIELDS_H
#define TM_BASE_FIELDS_H

#include "base/arena.h"
#include "base/doc.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

enum tm_field_type {
    TM_FIELD_STRING,   /* const char * (in the arena) */
    TM_FIELD_BOOL,     /* bool */
    TM_FIELD_INTEGER,  /* int64_t within [min, max] */
    TM_FIELD_NUMBER,   /* double within [min, max] */
    TM_FIELD_DURATION, /* int64_t ms */
    TM_FIELD_MONEY,    /* int64_t millionths of a dollar */
    TM_FIELD_BYTES,    /* int64_t */
    TM_FIELD_RATE,     /* int64_t bit/s */
    TM_FIELD_CHOICE,   /* int: index into `choices` */
    TM_FIELD_STRINGS,  /* struct tm_strings: a list, or one string alone */
    TM_FIELD_MAP,      /* a struct of its own, described by `fields` */
    TM_FIELD_MAPS,     /* struct tm_maps: a list of such structs, each of `size` bytes, 1 to TM_FIELD_MAPS_MAX */
};

enum { TM_FIELD_MAPS_MAX = 1000 };

struct tm_strings {
    const char **items;
    size_t count;
};

struct tm_maps {
    void *items; /* in the arena */
    size_t count;
};

struct tm_field {
    const char *key; /* NULL ends the table */
    enum tm_field_type type;
    size_t offset; /* of the member in the struct that is filled */
    bool required;
    double
        min; /* numbers; min == max == 0: no bounds. Of durations, money, bytes and rates: the least, in their unit */
    double max;
    const char *const *choices;    /* TM_FIELD_CHOICE: NULL-terminated */
    const struct tm_field *fields; /* TM_FIELD_MAP, TM_FIELD_MAPS */
    size_t size;                   /* TM_FIELD_MAPS: of one struct */
    const void *initial;           /* TM_FIELD_MAPS: the defaults of one; NULL: all bytes 0 */
    const char *example;           /* shown in messages; NULL: made up from the type */
    const char *doc;               /* one line for the manual */
};

/* Fills the struct at `target` (which holds the defaults) from a map. Unknown keys are errors, with a suggestion.
 * Strings live in the arena. On error `target` may be filled in part: use a copy. */
int tm_fields_read(const char *file, const struct tm_node *map, const struct tm_field *fields, struct tm_arena *arena,
                   void *target, struct tm_error *e);

/* One value given as text, for example from the command line; `place` names it in messages ("--deadline"). */
int tm_field_read_text(const char *place, const char *text, const struct tm_field *field, struct tm_arena *arena,
                       void *target, struct tm_error *e);

/* "duration", "true or false", "one of auto, always, never": for messages and manuals. */
void tm_field_expected(const struct tm_field *field, struct tm_text *out);

#endif

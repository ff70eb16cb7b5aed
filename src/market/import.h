/* Importing other people's catalogues into the user's own: SkyPilot's CSV, the AWS Spot Advisor's JSON, price
 * histories. Rows are checked one by one: a bad one is listed with line and reason, the rest is kept. The user's
 * catalogue is replaced whole at the end, once it has been read back, or not at all; a price history is written, whole
 * too, just before it. Of a catalogue of the user's that is damaged, what can be read stays; the damaged file is kept
 * as `catalog.tmcat.damaged`. */
#ifndef TM_MARKET_IMPORT_H
#define TM_MARKET_IMPORT_H

#include "base/arena.h"
#include "base/env.h"
#include "market/catalog.h"

enum { TM_IMPORT_ISSUES_MAX = 200, TM_IMPORT_BYTES_MAX = 256 << 20 };

/* "auto", "skypilot", "advisor", "prices"; NULL-terminated. */
extern const char *const tm_import_formats[];
enum tm_import_format { TM_IMPORT_AUTO, TM_IMPORT_SKYPILOT, TM_IMPORT_ADVISOR, TM_IMPORT_PRICES };

struct tm_import_options {
    enum tm_import_format format;
    const char *cloud; /* SkyPilot's files do not name it; NULL: found by content; letters, digits, '-', '_', '.' */
    const char *as_of; /* date of the figures, YYYY-MM-DD; NULL: a date in the file name, else today */
    bool strict;       /* any bad row fails the import */
    const struct tm_catalog *known; /* where GPUs and instance types are looked up; NULL: the shipped catalogue */
};

struct tm_import_issue {
    const char *file; /* in the report's arena */
    int line;
    bool rejected; /* the row was left out; else it was kept with a correction or a gap */
    const char *text;
};

struct tm_import_report {
    struct tm_arena arena;
    size_t files;
    size_t rows;     /* data rows read */
    size_t kept;     /* rows that went into the catalogue */
    size_t rejected; /* rows left out as bad */
    size_t warned;   /* rows kept with a warning */
    size_t offers;   /* offers in the user's catalogue afterwards */
    size_t bands;
    size_t prices; /* price changes in the user's history afterwards; 0 where no price file was imported */
    struct tm_import_issue issues[TM_IMPORT_ISSUES_MAX];
    size_t issue_count; /* of those kept; rejected + warned may be more */
};

void tm_import_report_init(struct tm_import_report *report);
void tm_import_report_deinit(struct tm_import_report *report);

/* Imports all files or none. The report (large: give it its own allocation) is filled also on failure. */
int tm_import_files(struct tm_env *env, const struct tm_import_options *options, const char *const *paths,
                    size_t path_count, struct tm_import_report *report, struct tm_error *e);

#endif

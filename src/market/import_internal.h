/* Shared by the import_*.c files only. */
#ifndef TM_MARKET_IMPORT_INTERNAL_H
#define TM_MARKET_IMPORT_INTERNAL_H

#include "base/csv.h"
#include "market/import.h"
#include "market/price_history.h"

struct tm_import {
    struct tm_env *env;
    const struct tm_import_options *options;
    struct tm_import_report *report;
    struct tm_catalog *user;          /* what will be written */
    const struct tm_catalog *shipped; /* to look up GPUs and instance types */
    struct tm_price_history *history;
    bool history_changed;
    bool damaged;     /* the user's file: it is kept beside the new one */
    const char *file; /* in hand */
    const char *text;
    size_t length;
    int source;        /* of the file in hand, in `user` */
    int64_t newest_ms; /* newest time in the file in hand; 0: not known */
};

/* Notes an issue with the row at `line`. */
void tm_import__issue(struct tm_import *import, int line, bool rejected, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Calls `take` for every row still to come; rows that are no CSV are noted. */
int tm_import__each_row(struct tm_import *import, struct tm_csv *csv,
                        int (*take)(struct tm_import *, const struct tm_csv *, void *, struct tm_error *),
                        void *context, struct tm_error *e);

/* Registers the file in hand as a source ("import:NAME"). */
int tm_import__source(struct tm_import *import, const char *what, struct tm_error *e);

int tm_import__skypilot(struct tm_import *import, struct tm_error *e);
int tm_import__network(struct tm_import *import, struct tm_error *e); /* network.csv: bandwidth by instance type */
int tm_import__gpus(struct tm_import *import, struct tm_error *e);    /* gpus.csv: figures by GPU */
int tm_import__advisor(struct tm_import *import, struct tm_error *e);
int tm_import__prices(struct tm_import *import, struct tm_error *e);

#endif

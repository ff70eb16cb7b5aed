/* Whom to tell when something happens to a run: the key notify of a job file (tidemill-job(5)) and of config.yaml. */
#ifndef TM_WORKLOAD_JOB_NOTIFY_H
#define TM_WORKLOAD_JOB_NOTIFY_H

#include "base/fields.h"
#include "base/text.h"

enum tm_notify_format { TM_NOTIFY_JSON, TM_NOTIFY_SLACK, TM_NOTIFY_DISCORD };

/* One receiver: one of webhook, email and command is said. */
struct tm_notify_target {
    const char *webhook; /* http:// or https://; NULL: none, as the others */
    int format;          /* enum tm_notify_format: of what is posted there */
    const char *email;
    const char *command;  /* for the shell */
    struct tm_strings on; /* names of alerts; none: all */
    int64_t patience_ms;  /* without a step or without instances, before stalled and capacity are told; 0: not said */
};

/* The names of alerts, NULL-terminated, in the order of enum tm_alert (run/alert.h). */
extern const char *const tm_notify_alert_names[];
/* The table of one of them. */
extern const struct tm_field tm_notify_fields[];

/* -TM_EINPUT names file and what is wrong: a receiver that says nothing or too much, an unknown alert. */
int tm_notify_check(const struct tm_maps *targets, const char *file, struct tm_error *e);

/* A job file with the webhooks of `targets` behind those receivers that it names itself: for a coordinator on a machine
 * that has no config.yaml. Mail and commands are this machine's, and stay behind. */
int tm_notify_add_webhooks(const char *document, const struct tm_maps *targets, struct tm_text *out,
                           struct tm_error *e);

#endif

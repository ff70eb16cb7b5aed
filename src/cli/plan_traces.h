/* The traces that `plan` is given: --trace FILE, which speaks of what its header says, or --trace [REGION/]TYPE=FILE,
 * any number of them. */
#ifndef TM_CLI_PLAN_TRACES_H
#define TM_CLI_PLAN_TRACES_H

#include "cli/command.h"
#include "plan/recorded_traces.h"

struct tm_given_traces {
    struct tm_trace traces[TM_PLAN_TRACES_MAX]; /* the first known.count of them */
    struct tm_plan_traces known;                /* what each speaks of */
};

/* Nothing: to be freed after any use. */
void tm_given_traces_init(struct tm_given_traces *given);
void tm_given_traces_deinit(struct tm_given_traces *given);

/* Reads one as the user gave it; `for_all`: it speaks of every type, as the trace of a job file does, which a run
 * replays whatever it is run on. -TM_EUSAGE: a type or region that the catalogue has not got, too many. */
int tm_given_traces_add(struct tm_cli *cli, const struct tm_catalog *catalog, const char *text, bool for_all,
                        struct tm_given_traces *given, struct tm_error *e);

/* Does some trace speak of every type, everywhere? */
bool tm_given_traces_cover_all(const struct tm_given_traces *given);

/* What they speak of, as half of a sentence: "trace lasp for p3.2xlarge, other types by what is known of their risk".
 */
void tm_given_traces_words(const struct tm_given_traces *given, struct tm_text *out);

#endif

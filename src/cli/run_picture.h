/* A run's status as text: what `tidemill status` prints, and the live view redraws.
 *
 *     gpt-tiny  training  generation 12  41s real time, 41m in the cloud
 *     step 142 of 300  47% ███████████████░░░░░░░░░░░░░░░░  9.8 steps/s  15.1k tokens/s  16s left
 *     ...
 *     2 pipelines of 2 stages, 1 spare            layers     0-2    3-5
 *                                                 pipeline 0 [1]    [4]
 *                                                 pipeline 1 [3]    [5! 28s]
 *
 * Nothing is told by colour alone: "!" marks an instance with a notice and the time it has left, "x" one that is
 * lost. */
#ifndef TM_CLI_RUN_PICTURE_H
#define TM_CLI_RUN_PICTURE_H

#include "base/term.h"
#include "run/run_status.h"

struct tm_picture_options {
    size_t rows;      /* at most so many lines: fewer events, then fewer pipelines are shown; 0: any number */
    size_t events;    /* at most so many of the last events */
    const char *note; /* to be said first: the coordinator does not answer; "" or NULL: nothing */
};

/* Lines are cut to the terminal's width, if it has one. */
void tm_run_picture(const struct tm_run_status *status, const struct tm_term *term,
                    const struct tm_picture_options *options, struct tm_text *out);

/* One line on how far it is, for outputs that are no terminal: "step 142 of 300, loss 2.1434, 9.8 steps/s, ...". */
void tm_run_progress_line(const struct tm_run_status *status, struct tm_text *out);
/* "  62.3s" since the run began. */
void tm_run_put_when(const struct tm_run_status *status, int64_t utc_ms, struct tm_text *out);

#endif

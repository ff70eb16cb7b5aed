/* What workers write, while they run: their output files (logs/worker-N.log of the state folder) are followed, and new
 * lines come as text, each behind the number of its instance:
 *
 *     [2] epoch 1, loss 3.21
 *
 * Nothing in them can command a terminal. What comes faster than it can be read is left out, and the file named. */
#ifndef TM_JOB_RUN_OUTPUT_H
#define TM_JOB_RUN_OUTPUT_H

#include "base/env.h"

struct tm_run_output;

/* What is in the files now is not shown. Both are borrowed. NULL: out of memory. */
struct tm_run_output *tm_run_output_create(struct tm_env *env, const char *dir);
void tm_run_output_destroy(struct tm_run_output *output); /* NULL is allowed */

/* Appends what is new; `last`: lines without their end, too. What cannot be read is not shown. */
void tm_run_output_take(struct tm_run_output *output, bool last, struct tm_text *out);

#endif

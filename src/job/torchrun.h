/* What torchrun is told, as a job of ours: nodes are instances, processes on a node are its workers, the script is the
 * job's command. */
#ifndef TM_JOB_TORCHRUN_H
#define TM_JOB_TORCHRUN_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* All is borrowed; 0 and NULL: not said. */
struct tm_torchrun {
    const char *name; /* of the job; letters that a name may not have are taken for - */
    int64_t nodes_min;
    int64_t nodes_max;
    int64_t workers;      /* on a node */
    int64_t max_restarts; /* -1: not said */
    int64_t steps;
    int64_t batch;
    int64_t micro_batch;
    int64_t seed; /* -1: not said */
    const char *determinism;
    const char *folder; /* where the script is called in, absolute */
    const char *python; /* NULL: the words are the command as it is */
    bool module;        /* of the first word: it is a module's name */
    const char *const *words;
    size_t word_count;
};

/* "2" or "1:4". -TM_EUSAGE: neither. */
int tm_torchrun_nodes(const char *text, int64_t *out_min, int64_t *out_max, struct tm_error *e);
/* The name that a job may have: of an id, or of a script's path without folder and ending. */
void tm_torchrun_name(const char *from, char out[64]);
/* The job's file. -TM_EUSAGE: something is missing. */
int tm_torchrun_job(const struct tm_torchrun *given, struct tm_text *out, struct tm_error *e);

#endif

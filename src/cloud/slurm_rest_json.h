/* What slurmrestd is asked and answers, as JSON: versions 0.0.38 to 0.0.43 of its OpenAPI. From 0.0.39 on states are
 * lists of words, numbers may be {"set", "infinite", "number"}, and variables a list. Whatever does not look as it
 * should is left out, as of the commands' lines (slurm_text.h). */
#ifndef TM_CLOUD_SLURM_REST_JSON_H
#define TM_CLOUD_SLURM_REST_JSON_H

#include "base/text.h"
#include "cloud/slurm_text.h"

enum { TM_SLURM_REST_WORDS_MAX = 256, TM_SLURM_REST_OLD = 38 /* the last version whose numbers are plain */ };

/* A job to submit; all is borrowed. */
struct tm_slurm__rest_job {
    int version; /* 38: of v0.0.38 */
    const char *name;
    const char *comment;
    const char *partition;
    const char *script;
    const char *folder;    /* that it begins in */
    int64_t time_limit_ms; /* 0: the partition's own */
    const char *words;     /* further options of sbatch; NULL: none */
    const char *variables; /* "NAME=VALUE", each ended by a NUL */
    size_t variables_length;
};
void tm_slurm_rest__write_job(const struct tm_slurm__rest_job *job, struct tm_text *out);

/* Are options of sbatch among those that have a place in a request? -TM_EINPUT names the one that has not. */
int tm_slurm_rest__check_words(const char *words, struct tm_error *e);

/* Takes one answer into `answer`, beside what it has. `now_s` is the time, for time limits. `words` gets what was
 * wrong, and `answer` points to it. Only memory that is not there is an error. */
int tm_slurm_rest__read(struct tm_slurm__answer *answer, enum tm_slurm__command_kind kind, int http_status,
                        const char *text, size_t length, int64_t now_s, char words[TM_SLURM_REST_WORDS_MAX],
                        struct tm_error *e);
/* False: there is no such partition in the answer. */
bool tm_slurm_rest__read_partition(const char *text, size_t length, const char *name, struct tm_slurm__partition *out);

#endif

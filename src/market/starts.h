/* How long one waits for an instance: from asking for it to its arrival, in a scheduler's queue or while a VM boots, as
 * the user's own runs have seen it (file starts.csv of the data folder).
 *
 * A place is a cloud and what it calls the pool: slurm, "spot"; or the instance type and the zone: aws,
 * "p3.2xlarge/us-east-1b". The mean of its waits is kept, the newest counting most: queues and images are what they
 * were lately. */
#ifndef TM_MARKET_STARTS_H
#define TM_MARKET_STARTS_H

#include "base/env.h"

enum { TM_STARTS_MAX = 256, TM_START_NAME_MAX = 128 };

struct tm_start {
    char cloud[TM_START_NAME_MAX];
    char place[TM_START_NAME_MAX];
    double seen; /* waits that it is the mean of; the weight of earlier ones has a limit */
    double seconds;
    bool at_least; /* none came: it takes longer than that */
};

/* Takes in the waits of one run, `seen` of `seconds` on average each; a full list forgets its first place. What was
 * waited for in vain counts where less is known. */
int tm_starts_learn(struct tm_env *env, const struct tm_start *waits, size_t count, struct tm_error *e);
/* The mean wait at a place, in seconds; NaN: nothing is known of it. */
int tm_starts_ask(struct tm_env *env, const char *cloud, const char *place, double *out_s, struct tm_error *e);

/* The same of an instance type in a zone; of a zone that was never seen, in all zones whose names begin with `zone` (a
 * region), and else anywhere in the cloud. `zone`: "" for anywhere. */
int tm_starts_ask_type(struct tm_env *env, const char *cloud, const char *type, const char *zone, double *out_s,
                       struct tm_error *e);
/* The place of a type in a zone. */
void tm_starts_place(const char *type, const char *zone, char out[TM_START_NAME_MAX]);

/* The text of a file to a list, and back. -TM_EINPUT names the line. */
int tm_starts__parse(const char *file, const char *text, size_t length, struct tm_start list[TM_STARTS_MAX],
                     size_t *out_count, struct tm_error *e);

#endif

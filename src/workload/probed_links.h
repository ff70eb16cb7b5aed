/* Probed links: what the granted instances' network really gives, measured between pairs of them.
 *
 * Between grants links differ, so that what a catalogue says is a guess until somebody has looked. A ring goes at the
 * pace of the slowest link in it, and a ring can be laid around a few bad ones: the rate is that of the slowest tenth.
 */
#ifndef TM_WORKLOAD_PROBED_LINKS_H
#define TM_WORKLOAD_PROBED_LINKS_H

#include "workload/predict.h"

enum { TM_PROBED_LINKS_MAX = 1 << 20 };

struct tm_probed_links {
    size_t count;
    double rate_bit_s;
    double latency_ms; /* median; NaN: not measured */
    double spread;     /* one standard deviation of the log of the rates */
};

/* CSV with a header that has `mbit`, and may have `latency_ms`; one row a link. Where it also has `together_mbit`
 * (while everybody sends) or `both_mbit` (while the other way does), as tidemill probe writes, the first of these that
 * a row has counts: a ring uses all links both ways at once. */
int tm_probed_links_load(struct tm_env *env, const char *path, struct tm_probed_links *out, struct tm_error *e);
int tm_probed_links__parse(const char *file, const char *text, size_t length, struct tm_probed_links *out,
                           struct tm_error *e);

/* Puts what was probed into the fleet's groups and the model of communication. */
void tm_probed_links_use(const struct tm_probed_links *links, struct tm_fleet_group *groups, size_t group_count,
                         struct tm_comm_model *comm);

#endif

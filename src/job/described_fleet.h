/* A fleet as people write it, "8x p3.2xlarge, 2x g5.xlarge", with what the catalogue knows of it: what predictions are
 * asked for. */
#ifndef TM_JOB_DESCRIBED_FLEET_H
#define TM_JOB_DESCRIBED_FLEET_H

#include "job/knowledge.h"

struct tm_described_fleet {
    struct tm_fleet_group groups[TM_FLEET_GROUPS_MAX];
    size_t group_count;
    char names[TM_FLEET_GROUPS_MAX][64];
    double on_demand_usd_h; /* of all, where they are cheapest; NaN: some price is not known */
    double spot_usd_h;
};

/* Of clouds that `allows` allows (NULL: of any). `out` must stay where it is: groups point to its names. -TM_EUSAGE,
 * -TM_ELIMIT: what is wrong with the text, and an example. */
int tm_described_fleet_parse(const struct tm_catalog *catalog, const char *text,
                             bool (*allows)(const void *context, const char *cloud), const void *context,
                             struct tm_described_fleet *out, struct tm_error *e);
/* How many characters the first part of such a text has. Parts end at a comma or a plus, but a plus may be in the name
 * of a type of the catalogue: "1x n1-standard-8+1xT4 + 2x g4dn.xlarge". */
size_t tm_described_fleet_part(const struct tm_catalog *catalog, const char *text);
/* What a precision means on this fleet; mixed: the best of bf16 and fp16 that all of it has, else fp32. */
enum tm_precision tm_described_fleet_precision(const struct tm_described_fleet *fleet, int asked);
/* A global batch where nobody says one: 8 samples a GPU, enough to keep it busy. */
int64_t tm_described_fleet_batch(const struct tm_described_fleet *fleet);
/* What is known of step times, for a prediction on this fleet: measured steps where its GPU is the one that was
 * measured. Borrows. */
void tm_described_fleet_knowledge(const struct tm_described_fleet *fleet, const struct tm_knowledge *knowledge,
                                  struct tm_predict_request *out);
/* For a model that does not fit: the smallest instance type that holds it alone, in the layout that is asked for or
 * else in any, by the memory of its GPUs and then by its price, and how many of the asked type would: "1x g4dn.metal,
 * or 8x g4dn.xlarge". "": none. */
void tm_described_fleet_smallest(const struct tm_catalog *catalog, const struct tm_predict_request *request,
                                 bool (*allows)(const void *context, const char *cloud), const void *context, char *out,
                                 size_t size);
/* What a million samples cost. */
double tm_usd_per_million(double usd_h, double samples_per_s);

#endif

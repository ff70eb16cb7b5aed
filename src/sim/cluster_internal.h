/* What the files of cluster what-ifs share. */
#ifndef TM_SIM_CLUSTER_INTERNAL_H
#define TM_SIM_CLUSTER_INTERNAL_H

#include "sim/cluster_whatif.h"

struct tm_cluster_region {
    enum tm_cluster_gpu gpu;
    const char *region;
    double lost_1h, lost_3h, lost_24h;
};
/* Copies up to `count` of the regions that CM-DARE measured; returns how many, or with NULL how many there are. */
size_t tm_cluster__regions(struct tm_cluster_region *out, size_t count);

const struct tm_cluster_gpu_facts *tm_cluster__facts(const struct tm_cluster *cluster, int gpu);
/* How much more often than on average a GPU of the study is lost at a local hour of the day; 1: not known. */
double tm_cluster__hour_factor(int gpu, int hour);
/* Age at which a cumulated hazard is reached by a worker that starts at a local hour of the day (-1: any); the cloud's
 * limit at the latest. */
double tm_cluster__age_at(const struct tm_cluster_life *life, int hour, double cumulated);

#endif

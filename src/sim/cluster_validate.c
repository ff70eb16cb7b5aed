/* The study's parts, held out in turn: what is fitted to its tables is fitted to the others, and predicts them. */
#include "sim/cluster_internal.h"

#include <math.h>
#include <string.h>

/* Table 5.1, 64,000 steps of ResNet-32 with one server: hours of clusters of several workers, without revocations as
 * far as is known. Speeds of single workers are measured, not fitted. */
static const struct {
    const char *workers;
    int size;
    double hours;
} published[] = {
    {"2x K80:od", 2, 1.992},
    {"4x K80:od", 4, 0.995},
    {"8x K80:od", 8, 0.508},
    {"4x P100:od", 4, 0.470},
    {"4x V100:od", 4, 0.433},
    {"2x K80:od, P100:od, V100:od", 4, 0.556},
    {"K80:od, 2x P100:od, V100:od", 4, 0.497},
    {"K80:od, P100:od, 2x V100:od", 4, 0.489},
};
enum { CELLS = sizeof published / sizeof *published };
_Static_assert((int)CELLS <= (int)TM_CLUSTER_TRIALS_MAX, "room for all");
static const double steps = 64000;

static double hours_of(const struct tm_cluster_model *model, const char *workers)
{
    struct tm_cluster cluster;
    struct tm_error e;
    if (tm_cluster_parse(workers, &cluster, &e) != 0) return NAN;
    return steps / tm_cluster_speed(model, &cluster, NULL) / 3600;
}

/* Exchange, ceiling and sharpness by least squares of the logarithms, on a grid, without the clusters of a size. */
static void fit(int without, struct tm_cluster_model *model)
{
    struct tm_cluster_model best = *model;
    double least = INFINITY;
    for (int exchange = 0; exchange <= 20; exchange++)
        for (int ceiling = 30; ceiling <= 80; ceiling++)
            for (int sharp = 3; sharp <= 12; sharp++) {
                model->exchange_s = 0.0005 * exchange;
                model->ceiling[0] = ceiling;
                model->sharpness = sharp;
                double sum = 0;
                for (int c = 0; c < CELLS; c++) {
                    double error = log(hours_of(model, published[c].workers) / published[c].hours);
                    if (published[c].size != without) sum += error * error;
                }
                if (sum >= least) continue;
                least = sum;
                best = *model;
            }
    *model = best;
}

size_t tm_cluster_hold_out_sizes(struct tm_cluster_trial out[TM_CLUSTER_TRIALS_MAX])
{
    const struct tm_cluster_model *shipped = NULL;
    struct tm_error e;
    if (tm_cluster_model_find("resnet32", &shipped, &e) != 0) return 0;
    static const int sizes[] = {2, 4, 8};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct tm_cluster_model model = *shipped;
        fit(sizes[s], &model);
        for (int c = 0; c < CELLS; c++)
            if (published[c].size == sizes[s])
                out[c] = (struct tm_cluster_trial){.what = published[c].workers,
                                                   .measured = published[c].hours,
                                                   .fitted = hours_of(shipped, published[c].workers),
                                                   .predicted = hours_of(&model, published[c].workers)};
    }
    return CELLS;
}

/* The logarithm of what a region's share means as a hazard; a share of nothing as half a VM of 30. */
static double log_hazard(double share)
{
    return log(-log(1 - fmax(share, 0.5 / 30)));
}

size_t tm_cluster_hold_out_regions(bool first_hour, struct tm_cluster_trial out[TM_CLUSTER_TRIALS_MAX])
{
    size_t count = tm_cluster__regions(NULL, 0);
    double squares = 0;
    double middles[TM_CLUSTER_TRIALS_MAX];
    struct tm_cluster_region all[TM_CLUSTER_TRIALS_MAX];
    count = tm_cluster__regions(all, count < TM_CLUSTER_TRIALS_MAX ? count : TM_CLUSTER_TRIALS_MAX);
    for (size_t i = 0; i < count; i++) {
        double sum = 0, others = 0;
        for (size_t k = 0; k < count; k++) {
            if (k == i || all[k].gpu != all[i].gpu) continue;
            sum += log_hazard(first_hour ? all[k].lost_1h : all[k].lost_24h);
            others++;
        }
        middles[i] = sum / others;
        double error = log_hazard(first_hour ? all[i].lost_1h : all[i].lost_24h) - middles[i];
        squares += error * error;
    }
    for (size_t i = 0; i < count; i++) {
        double share = first_hour ? all[i].lost_1h : all[i].lost_24h;
        double error = log_hazard(share) - middles[i];
        double spread = 1.2816 * sqrt((squares - error * error) / (double)(count - 1)); /* of the other regions */
        out[i] = (struct tm_cluster_trial){.what = all[i].region,
                                           .gpu = tm_cluster__gpus[all[i].gpu].name,
                                           .measured = share,
                                           .fitted = NAN,
                                           .predicted = 1 - exp(-exp(middles[i])),
                                           .low = 1 - exp(-exp(middles[i] - spread)),
                                           .high = 1 - exp(-exp(middles[i] + spread))};
    }
    return count;
}

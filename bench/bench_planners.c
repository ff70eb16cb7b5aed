/* Our planner against the published ones over a grid of jobs, judged by replaying traces: geometric-mean ratios of cost
 * and time to each rival, deadlines met, and the cases in which ours loses.
 *
 * A case is a model, a catalogue, a price per hour, a deadline and a trace. Every planner gets the same price per hour;
 * ours and Srift look for the cheapest fleet that meets the deadline, the others (DeepVM's) for the fastest that the
 * price allows. Loss rates are what the trace says. All answers are replayed from the same eight starts.
 *
 * Use: bench_planners [-v]     -v: one line a case */
#include "base/alloc.h"
#include "base/env.h"
#include "plan/fleet_judge.h"
#include "plan/rivals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { RIVALS = 5, STARTS = 8 };
static const char *const rival_names[RIVALS] = {"srift", "deepvm", "deepvm-noscale", "cost-first", "perf-first"};

static const struct {
    const char *name;
    double samples;
} models[] = {{"resnet50", 2e8}, {"vit_b_16", 1e8}, {"bert-large", 2e7}, {"gpt2-355m", 5e6}};
static const char *const traces[] = {"hadp", "hasp", "ladp", "lasp"};
static const char *const clouds[] = {"aws", "gcp", "azure", ""};
static const double deadlines_h[] = {10, 20, 40};
static const double hourly_usd[] = {6, 20};

struct tally {
    int compared;
    double log_cost;
    double log_time;
    int misses;
    int wins, losses; /* both met the deadline: cheaper, dearer by more than 1% */
    int only_ours;    /* met the deadline, the other did not */
    int only_theirs;
    int none; /* the rival found nothing */
};

struct bench {
    struct tm_catalog catalog;
    struct tm_supply supply;
    struct tm_plan_request request;
    struct tm_plan_result result;
    struct tm_plan_result other;
    struct tally tallies[RIVALS];
    int cases;
    int misses;
    int nothing;
    bool verbose;
};

static bool is_allowed(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer,
                       bool anchor)
{
    const char *cloud = context;
    (void)offer;
    (void)anchor;
    if (strncasecmp(instance->gpu, "Trainium", 8) == 0) return false; /* other software */
    return cloud[0] == '\0' || strcmp(instance->cloud, cloud) == 0;
}

static void compare(struct bench *bench, const char *label, size_t rival, const struct tm_plan_answer *ours,
                    const struct tm_plan_answer *theirs)
{
    struct tally *tally = &bench->tallies[rival];
    const struct tm_expectation *a = &ours->expectation;
    const struct tm_expectation *b = &theirs->expectation;
    bool met = a->p_deadline >= bench->request.min_probability;
    bool they_met = b->p_deadline >= bench->request.min_probability;
    tally->misses += !they_met;
    tally->only_ours += met && !they_met;
    tally->only_theirs += !met && they_met;
    if (!a->finishes || !b->finishes) return;
    double ratio = a->cost_usd.mean / b->cost_usd.mean;
    tally->compared++;
    tally->log_cost += log(ratio);
    tally->log_time += log(a->time_s.mean / b->time_s.mean);
    tally->wins += met && they_met && ratio < 0.99;
    if (!met || !they_met || ratio <= 1.01) return;
    tally->losses++;
    if (bench->verbose)
        printf("  loses to %s in %s: $%.2f for $%.2f (%d x %s against %d x %s)\n", rival_names[rival], label,
               a->cost_usd.mean, b->cost_usd.mean,
               tm_plan_spot_instances(&ours->fleet) + tm_plan_on_demand_instances(&ours->fleet),
               ours->fleet.parts[0].instance->name,
               tm_plan_spot_instances(&theirs->fleet) + tm_plan_on_demand_instances(&theirs->fleet),
               theirs->fleet.parts[0].instance->name);
}

static int judge(struct bench *bench, const struct tm_fleet_judge *replay, struct tm_plan_answer *answer)
{
    int rc = tm_plan_judge(&bench->supply, &bench->request, answer, NULL);
    return rc == 0 ? tm_fleet_judge_answer(replay, &bench->request, answer, NULL) : rc;
}

static void run_case(struct bench *bench, const char *label, const struct tm_fleet_judge *replay)
{
    if (tm_plan_search_in(&bench->supply, &bench->request, &bench->result, &bench->other, NULL) != 0) return;
    if (bench->result.count == 0) { /* no fleet meets the deadline for the price: nothing to compare */
        bench->nothing++;
        return;
    }
    struct tm_plan_answer *ours = &bench->result.answers[0];
    if (judge(bench, replay, ours) != 0) return;
    bench->cases++;
    bench->misses += ours->expectation.p_deadline < bench->request.min_probability;
    for (size_t r = 0; r < RIVALS; r++) {
        struct tm_plan_answer theirs = {.anchors = 0};
        bool found = r > 0 || bench->other.count > 0;
        if (r == 0 && found) theirs = bench->other.answers[0];
        if (r > 0)
            (void)tm_plan_rival(&bench->supply, &bench->request, (enum tm_deepvm_planner)(r - 1), &theirs, &found,
                                NULL);
        if (!found || judge(bench, replay, &theirs) != 0) {
            bench->tallies[r].none++;
            continue;
        }
        compare(bench, label, r, ours, &theirs);
    }
}

/* All limits and traces of one model on one catalogue. */
static void run_supply(struct bench *bench, const char *model, const char *cloud)
{
    for (size_t t = 0; t < sizeof traces / sizeof *traces; t++) {
        struct tm_trace trace;
        tm_trace_init(&trace);
        if (tm_trace_load(tm_env_real(), traces[t], NULL, &trace, NULL) != 0) continue;
        struct tm_expect_trace losses = tm_expect_trace(&trace);
        struct tm_fleet_judge replay = {
            .env = tm_env_real(), .catalog = &bench->catalog, .trace = &trace, .policy = "checkpoint", .runs = STARTS};
        bench->request.supply.loss_per_s = losses.loss_per_s;
        bench->request.job.burst_share = losses.burst_share;
        bench->request.job.burst_size = losses.burst_size;
        bench->request.job.replace_s = losses.replace_s;
        bench->request.job.outage_s = losses.replace_s;
        for (size_t p = 0; p < bench->supply.pool_count; p++)
            bench->supply.pools[p].loss_per_s = losses.loss_per_s;
        for (size_t d = 0; d < sizeof deadlines_h / sizeof *deadlines_h; d++) {
            for (size_t h = 0; h < sizeof hourly_usd / sizeof *hourly_usd; h++) {
                char label[128];
                bench->request.job.deadline_s = deadlines_h[d] * 3600;
                bench->request.max_usd_h = hourly_usd[h];
                (void)snprintf(label, sizeof label, "%s, %s, %s, %g h, $%g/h", model, cloud[0] != '\0' ? cloud : "all",
                               traces[t], deadlines_h[d], hourly_usd[h]);
                run_case(bench, label, &replay);
            }
        }
        tm_trace_deinit(&trace);
    }
}

static void run_model(struct bench *bench, size_t m, const struct tm_compute_model *compute,
                      const struct tm_comm_model *comm)
{
    struct tm_model model;
    tm_model_init(&model);
    if (tm_model_load(tm_env_real(), models[m].name, &model, NULL) != 0) return;
    double state_bytes = tm_model_totals(&model).params * 4 * (1 + model.optimizer_states);
    for (size_t c = 0; c < sizeof clouds / sizeof *clouds; c++) {
        bench->request = (struct tm_plan_request){.supply = {.model = &model,
                                                             .compute = compute,
                                                             .comm = comm,
                                                             .precision = TM_PRECISION_MIXED,
                                                             .batch = 256,
                                                             .loss_per_s = 1e-5,
                                                             .allowed = is_allowed,
                                                             .allowed_context = clouds[c]},
                                                  .job = {.samples = models[m].samples,
                                                          .deadline_s = 86400,
                                                          .checkpoint_s = state_bytes / 1e9,
                                                          .restart_s = 60,
                                                          .rejoin_s = 60,
                                                          .startup_s = 180,
                                                          .outage_s = 600},
                                                  .state_bytes = state_bytes,
                                                  .budget_usd = INFINITY,
                                                  .max_usd_h = INFINITY,
                                                  .max_instances = 32,
                                                  .min_probability = 0.95,
                                                  .top = 1,
                                                  .programs_max = 4};
        tm_supply_init(&bench->supply);
        if (tm_plan_make_supply(&bench->catalog, &bench->request, &bench->supply, NULL) == 0)
            run_supply(bench, models[m].name, clouds[c]);
        tm_supply_deinit(&bench->supply);
    }
    tm_model_deinit(&model);
}

int main(int argc, char **argv)
{
    struct bench *bench = tm_calloc(1, sizeof *bench);
    struct tm_compute_model compute = tm_compute_prior();
    struct tm_comm_model comm = tm_comm_gpus();
    if (bench == NULL) return 1;
    compute.conv_spread = compute.product_spread = compute.floor_spread =
        0.05; /* as for a model that was profiled: the replay has no spread of its own */
    bench->verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    tm_catalog_init(&bench->catalog);
    if (tm_catalog_load_shipped(&bench->catalog, NULL) != 0) return 1;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        run_model(bench, m, &compute, &comm);
    printf("plans replayed: %d cases (%d more have no fleet for price and deadline); tidemill misses %d deadlines\n",
           bench->cases, bench->nothing, bench->misses);
    for (size_t r = 0; r < RIVALS; r++) {
        const struct tally *t = &bench->tallies[r];
        printf("  against %-14s cost %.3f, time %.3f of theirs (geometric mean of %d); they miss %d deadlines (%d that "
               "ours "
               "meets; %d the other way), find nothing %d times; both in time: cheaper %d, dearer %d\n",
               rival_names[r], exp(t->log_cost / fmax(1, t->compared)), exp(t->log_time / fmax(1, t->compared)),
               t->compared, t->misses, t->only_ours, t->only_theirs, t->none, t->wins, t->losses);
    }
    tm_catalog_deinit(&bench->catalog);
    tm_free(bench);
    return 0;
}

#include "plan/fleet_judge_internal.h"

#include "layout/speed.h"

#include <math.h>
#include <string.h>

enum { SPANS_MIN = 4 }; /* depths that are looked at, even if the best one is flat */

struct speeds {
    struct tm_speed_context type; /* the only one */
    /* of several types: as much of the whole as is there */
    bool mixed;
    int instances;
    int pipelines;
    int stages;
    double samples_per_s;
    bool own_way; /* sharded or tensor parallel: all instances train as one, however many there are */
};

/* So many instances, in the ways that may be tried; what they do among themselves is theirs. */
static int speed_of_own_way(const struct speeds *speeds, int instances, int stages, double *samples_per_s,
                            double *step_s, struct tm_error *e)
{
    struct tm_predict_request request = speeds->type.request;
    struct tm_fleet_group group = speeds->type.group;
    struct tm_prediction prediction;
    if (stages != 1) return 0;
    group.instances = instances;
    request.groups = &group;
    int rc = tm_predict(&request, &prediction, e);
    if (rc == -(int)TM_ENONE) return 0; /* does not fit on so few */
    if (rc != 0) return rc;
    *samples_per_s = prediction.samples_per_s;
    *step_s = prediction.step_s.mean;
    return 0;
}

static int speed_of_layout(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                           struct tm_error *e)
{
    struct speeds *speeds = context;
    *samples_per_s = *step_s = 0;
    if (speeds->own_way) return speed_of_own_way(speeds, pipelines, stages, samples_per_s, step_s, e);
    if (!speeds->mixed) return tm_layout_speed_predicted(&speeds->type, pipelines, stages, samples_per_s, step_s, e);
    if (stages != speeds->stages || pipelines > speeds->pipelines) return 0;
    *samples_per_s = speeds->samples_per_s * pipelines / speeds->pipelines;
    *step_s = speeds->type.request.batch / *samples_per_s;
    return 0;
}

/* ---- the fleet ---- */

static int trainers(const struct tm_plan_fleet *fleet)
{
    return tm_plan_spot_instances(fleet) + tm_plan_on_demand_instances(fleet);
}

/* The types of a fleet and how many of each. */
static int types_of(const struct tm_catalog *catalog, const struct tm_supply_request *request,
                    const struct tm_plan_fleet *fleet, struct tm_plan_type types[TM_FLEET_GROUPS_MAX],
                    int instances[TM_FLEET_GROUPS_MAX], size_t *out_count, struct tm_error *e)
{
    size_t count = 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        size_t at = 0;
        while (at < count && types[at].instance != part->instance)
            at++;
        if (at == TM_FLEET_GROUPS_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d instance types in a fleet", TM_FLEET_GROUPS_MAX);
        if (at == count) {
            if (!tm_supply__type(catalog, request, part->instance, &types[at]))
                return tm_error_set(
                    e, TM_EINPUT, "no step can be predicted on %s: the catalogue has no figures of its GPU or network",
                    part->instance->name);
            instances[count++] = 0;
        }
        instances[at] += part->spot + part->on_demand;
    }
    *out_count = count;
    return count > 0 ? 0 : tm_error_set(e, TM_EINPUT, "a fleet without instances that train");
}

/* ---- the micro-batch: a run has one size of it for life ---- */

static int largest_divisor(int batch, int most)
{
    while (batch % most != 0)
        most--;
    return most;
}

/* Samples a second of so many instances; 0: they cannot train it. */
static int throughput(const struct tm_predict_request *predict, int instances, int micro_batch, double *out,
                      struct tm_error *e)
{
    struct tm_prediction prediction;
    struct tm_predict_request request = *predict;
    struct tm_fleet_group group = predict->groups[0];
    *out = 0;
    if (instances < 1) return 0;
    group.instances = instances;
    request.groups = &group;
    request.micro_batch = micro_batch;
    int rc = tm_predict(&request, &prediction, e);
    if (rc == 0) *out = prediction.samples_per_s;
    return rc == -(int)TM_ENONE ? 0 : rc;
}

/* Where the job says none: one that divides the batch, the best for the whole fleet; of instances of one type that may
 * be preempted, the best for all of them and for one less, since whole micro-batches are shared. */
static int settle_micro_batch(const struct tm_plan_fleet *fleet, struct tm_predict_request *predict,
                              struct tm_prediction *out, struct tm_error *e)
{
    int instances = predict->groups[0].instances;
    double best = 0;
    if (predict->micro_batch > 0) return 0;
    predict->micro_batch = largest_divisor(predict->batch, out->micro_batch);
    bool shrinks = predict->group_count == 1 && instances > 1 && tm_plan_spot_instances(fleet) > 0;
    for (int micro = predict->micro_batch; shrinks && micro > 0;
         micro = micro > 1 ? largest_divisor(predict->batch, micro / 2) : 0) {
        double whole = 0, one_less = 0;
        int rc = throughput(predict, instances, micro, &whole, e);
        if (rc == 0) rc = throughput(predict, instances - 1, micro, &one_less, e);
        if (rc != 0) return rc;
        if (whole + one_less > best) {
            best = whole + one_less;
            predict->micro_batch = micro;
        }
    }
    return tm_predict(predict, out, e);
}

static int predict_fleet(const struct tm_catalog *catalog, const struct tm_plan_request *request,
                         const struct tm_plan_fleet *fleet, struct speeds *speeds, struct tm_prediction *out,
                         struct tm_error *e)
{
    struct tm_plan_type types[TM_FLEET_GROUPS_MAX];
    const struct tm_plan_type *pointers[TM_FLEET_GROUPS_MAX];
    struct tm_fleet_group groups[TM_FLEET_GROUPS_MAX];
    int instances[TM_FLEET_GROUPS_MAX];
    size_t count = 0;
    int rc = types_of(catalog, &request->supply, fleet, types, instances, &count, e);
    if (rc != 0) return rc;
    for (size_t i = 0; i < count; i++)
        pointers[i] = &types[i];
    struct tm_predict_request predict = tm_supply_predict_request(&request->supply, pointers, instances, count, groups);
    rc = tm_predict(&predict, out, e);
    /* An engine of the user's own chooses the micro-batch anew for each number of instances. */
    speeds->own_way = rc == 0 && (out->zero > 0 || out->tensor > 1);
    if (rc == 0 && !speeds->own_way) {
        predict.ways = 0;
        rc = settle_micro_batch(fleet, &predict, out, e);
    }
    speeds->mixed = count > 1;
    speeds->type = (struct tm_speed_context){.request = predict, .group = groups[0]};
    return rc;
}

int64_t tm_fleet_judge__life_ms(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                                const struct tm_plan_fleet *fleet, size_t part)
{
    if (judge->no_losses) return 0;
    if (judge->lives_ms != NULL && judge->lives_ms[part] > 0) return judge->lives_ms[part];
    double rate = tm_supply__loss_rate(&request->supply, fleet->parts[part].offer);
    return rate > 0 ? llround(1000 / rate) : 0;
}

static void fill_cost(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                      const struct tm_plan_fleet *fleet, struct tm_cost *out)
{
    struct tm_expect_job job = tm_plan__job_on(&request->job, tm_plan_trace_of_fleet(request, fleet));
    struct tm_expect_losses losses = {0};
    double link_bit_s = fleet->parts[0].instance->network_gbps * 1e9;
    for (size_t i = 0; i < fleet->part_count; i++) {
        int64_t life_ms = tm_fleet_judge__life_ms(judge, request, fleet, i);
        if (life_ms > 0)
            tm_expect__add_pool(&job, trainers(fleet), fleet->parts[i].spot, 1000.0 / (double)life_ms, &losses);
    }
    double events = losses.single + losses.burst;
    if (judge->cost != NULL) {
        *out = *judge->cost;
        return;
    }
    memset(out, 0, sizeof *out);
    out->kind = TM_COST_MEASURED;
    out->start_s = round(job.startup_s);
    out->copy_interval_s = events > 0 ? fmax(1, round(sqrt(2 * job.checkpoint_s / events))) : 86400;
    out->measured = (struct tm_measured_cost){.reform_ms = round(job.restart_s * 1000),
                                              .link_bit_s = link_bit_s,
                                              .link_latency_ms = 0.1,
                                              .store_bit_s = link_bit_s,
                                              .begin_s = round(job.startup_s),
                                              .speed = 1};
    if (judge->asked != NULL) out->measured.join_s = (double)judge->asked->spot_start_ms / 1000;
}

/* What the job says of its pipelines' depth. */
static void set_stages(const struct tm_job_fleet *asked, struct tm_layout_rules *rules)
{
    if (asked->stages_min > 0) rules->stages_min = (int)asked->stages_min;
    if (asked->stages_max > 0) rules->stages_max = (int)asked->stages_max;
    if (rules->stages_max < rules->stages_min) rules->stages_max = rules->stages_min;
}

int tm_fleet_layouts_init(const struct tm_fleet_judge *judge, const struct tm_plan_request *request,
                          const struct tm_plan_fleet *fleet, struct tm_fleet_layouts *out, struct tm_error *e)
{
    struct speeds speeds = {.instances = trainers(fleet)};
    int layers = (int)request->supply.model->layer_count;
    memset(out, 0, sizeof *out);
    int rc = predict_fleet(judge->catalog, request, fleet, &speeds, &out->prediction, e);
    if (rc != 0) return rc;
    int gpus = speeds.type.group.gpus_per_node > 0 ? speeds.type.group.gpus_per_node : 1;
    int span = (out->prediction.stages + gpus - 1) / gpus;
    bool spans = out->prediction.stages > gpus && !speeds.own_way;
    speeds.pipelines = spans ? out->prediction.pipelines : speeds.instances;
    speeds.stages = speeds.instances / speeds.pipelines;
    speeds.samples_per_s = out->prediction.samples_per_s;
    fill_cost(judge, request, fleet, &out->cost);
    struct tm_layout_rules rules = {.stages_min = speeds.mixed ? speeds.stages : 1, .pipelines_min = 1};
    int deepest = speeds.mixed ? speeds.stages : 2 * span > SPANS_MIN ? 2 * span : SPANS_MIN;
    if (speeds.own_way) deepest = 1;
    rules.stages_max = deepest < speeds.instances ? deepest : speeds.instances;
    if (rules.stages_max > layers) rules.stages_max = layers;
    if (judge->asked != NULL && !speeds.mixed && !speeds.own_way) set_stages(judge->asked, &rules);
    if (rules.stages_max > TM_LAYOUT_STAGES_MAX || speeds.instances > TM_LAYOUT_INSTANCES_MAX)
        return tm_error_set(e, TM_ELIMIT, "a pipeline over %d instances cannot be simulated; at most %d",
                            rules.stages_max, TM_LAYOUT_STAGES_MAX);
    out->cost.rules = rules;
    rc = tm_layouts_init(&out->layouts, request->supply.model, &rules, speeds.instances, speed_of_layout, &speeds, e);
    if (rc == 0 && out->layouts.list[out->layouts.best[speeds.instances]].samples_per_s <= 0)
        rc = tm_error_set(e, TM_ENONE, "no layout on %d instances can train it", speeds.instances);
    if (rc == 0) rc = tm_migrations_create(&out->layouts, &out->cost, &out->migrations, e);
    if (rc != 0) tm_fleet_layouts_deinit(out);
    return rc;
}

void tm_fleet_layouts_deinit(struct tm_fleet_layouts *layouts)
{
    tm_migrations_destroy(layouts->migrations);
    tm_layouts_deinit(&layouts->layouts);
    memset(layouts, 0, sizeof *layouts);
}

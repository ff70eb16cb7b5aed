#include "cli/plan_report.h"

#include "base/calendar.h"
#include "base/jsonout.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/way_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *duration(double seconds, char text[TM_UNITS_TEXT_MAX])
{
    return tm_unit_print(TM_UNIT_DURATION, (int64_t)(seconds * 1000), text);
}

/* ---- fleets in words ---- */

/* "2 x a.large + 3 x b.large" */
static void put_instances(const struct tm_plan_fleet *fleet, struct tm_text *out)
{
    const struct tm_instance_type *before = NULL;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_instance_type *instance = fleet->parts[i].instance;
        if (instance == before) continue;
        int instances = 0;
        for (size_t k = i; k < fleet->part_count; k++)
            instances += fleet->parts[k].instance == instance ? fleet->parts[k].spot + fleet->parts[k].on_demand : 0;
        tm_text_printf(out, "%s%d x %s", before != NULL ? " + " : "", instances, instance->name);
        before = instance;
    }
}

/* The number format that the fleet trains in. */
static int format_of(const struct tm_plan_report *report, const struct tm_plan_answer *answer)
{
    const struct tm_instance_type *instance = answer->fleet.parts[0].instance;
    for (size_t i = 0; i < report->supply->type_count; i++)
        if (report->supply->types[i].instance == instance) return (int)report->supply->types[i].precision;
    return report->request->supply.precision;
}

static const char *precision_of(const struct tm_plan_report *report, const struct tm_plan_answer *answer)
{
    return tm_precision_names[format_of(report, answer)];
}

/* Of a fleet: are some of its spot prices assumed? */
static bool has_assumed_price(const struct tm_plan_fleet *fleet)
{
    for (size_t i = 0; i < fleet->part_count; i++)
        if (fleet->parts[i].spot > 0 && fleet->parts[i].offer->spot_assumed) return true;
    return false;
}

static void put_gpus(const struct tm_plan_fleet *fleet, struct tm_text *out)
{
    const struct tm_instance_type *before = NULL;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_instance_type *instance = fleet->parts[i].instance;
        if (instance == before) continue;
        tm_text_printf(out, "%s%s:%g", before != NULL ? " + " : "", instance->gpu, instance->gpus);
        before = instance;
    }
}

/* "AWS (use1-az4)", "AWS (us-east-1, 3 zones)" */
static void put_infra(const struct tm_plan_fleet *fleet, struct tm_text *out)
{
    const struct tm_offer *first = fleet->parts[0].offer;
    size_t zones = 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        bool known = false;
        for (size_t k = 0; k < i; k++)
            known = known || fleet->parts[k].offer->zone == fleet->parts[i].offer->zone;
        zones += !known;
    }
    tm_text_printf(out, "%s (", tm_cloud_label(fleet->parts[0].instance->cloud));
    if (zones > 1)
        tm_text_printf(out, "%s, %zu zones)", first->region, zones);
    else
        tm_text_printf(out, "%s)", first->zone[0] != '\0' ? first->zone : first->region);
}

static void put_anchors(const struct tm_plan_answer *answer, struct tm_text *out)
{
    const struct tm_plan_fleet *fleet = &answer->fleet;
    int trainers = answer->anchors - fleet->anchor_instances;
    if (answer->anchors == 0) tm_text_puts(out, "-");
    if (trainers > 0) tm_text_printf(out, "%d of them", trainers);
    if (fleet->anchor_instances > 0)
        tm_text_printf(out, "%s%d x %s", trainers > 0 ? " + " : "", fleet->anchor_instances,
                       fleet->anchor.instance->name);
}

/* Nearly equal fleets are shown once: cost and time within 3% on the same kind of GPU. */
static bool is_near(const struct tm_plan_answer *a, const struct tm_plan_answer *b)
{
    return strcmp(a->fleet.parts[0].instance->gpu, b->fleet.parts[0].instance->gpu) == 0 &&
           fabs(a->expectation.cost_usd.mean / b->expectation.cost_usd.mean - 1) < 0.03 &&
           fabs(a->expectation.time_s.mean / b->expectation.time_s.mean - 1) < 0.03;
}

static bool has_several_types(const struct tm_plan_fleet *fleet)
{
    for (size_t i = 1; i < fleet->part_count; i++) {
        if (fleet->parts[i].instance != fleet->parts[0].instance) return true;
    }
    return false;
}

/* It misses the deadline or the budget for sure, to two digits. */
static bool is_hopeless(const struct tm_plan_report *report, const struct tm_plan_answer *answer)
{
    return answer->expectation.p_deadline < 0.005 ||
           tm_plan_p_budget(&answer->expectation, report->request->budget_usd) < 0.005;
}

/* Is it worth a row? Not if it is nearly the same as one above it, nor if it is a mix that one above it beats in both
 * money and time. */
static bool is_shown(const struct tm_plan_report *report, size_t index)
{
    const struct tm_plan_result *result = report->result;
    const struct tm_plan_answer *answer = &result->answers[index];
    if (index > 0 && is_hopeless(report, answer)) return false;
    for (size_t i = 0; i < index; i++) {
        const struct tm_plan_answer *above = &result->answers[i];
        bool beaten = above->expectation.cost_usd.mean <= answer->expectation.cost_usd.mean &&
                      above->expectation.time_s.mean <= answer->expectation.time_s.mean * 1.03;
        if (is_near(above, answer) || (beaten && has_several_types(&answer->fleet))) return false;
    }
    return true;
}

/* ---- JSON ---- */

static void put_estimate(struct tm_jsonout *json, const char *key, const struct tm_estimate *estimate)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "mean", estimate->mean);
    tm_jsonout_number(json, "p10", estimate->p10);
    tm_jsonout_number(json, "p90", estimate->p90);
    tm_jsonout_end(json);
}

static void put_pools_json(struct tm_jsonout *json, const struct tm_plan_answer *answer)
{
    const struct tm_plan_fleet *fleet = &answer->fleet;
    tm_jsonout_list(json, "pools");
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "instance", part->instance->name);
        tm_jsonout_string(json, "zone", part->offer->zone[0] != '\0' ? part->offer->zone : NULL);
        tm_jsonout_integer(json, "spot", part->spot);
        tm_jsonout_integer(json, "on_demand", part->on_demand);
        tm_jsonout_number(json, "spot_usd_h", part->offer->spot_usd_h);
        tm_jsonout_number(json, "on_demand_usd_h", part->offer->on_demand_usd_h);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_object(json, "anchors");
    tm_jsonout_integer(json, "nodes", answer->anchors);
    tm_jsonout_string(json, "instance", fleet->anchor_instances > 0 ? fleet->anchor.instance->name : NULL);
    tm_jsonout_integer(json, "instances", fleet->anchor_instances);
    tm_jsonout_end(json);
}

static void put_answer_json(struct tm_jsonout *json, const char *key, const char *planner,
                            const struct tm_plan_report *report, const struct tm_plan_answer *answer, bool chosen)
{
    const struct tm_expectation *expectation = &answer->expectation;
    const struct tm_plan_part *first = &answer->fleet.parts[0];
    tm_jsonout_object(json, key);
    tm_jsonout_string(json, "planner", planner);
    tm_jsonout_string(json, "cloud", first->instance->cloud);
    tm_jsonout_string(json, "region", first->offer->region);
    tm_jsonout_string(json, "zone",
                      answer->fleet.part_count == 1 && first->offer->zone[0] != '\0' ? first->offer->zone : NULL);
    tm_jsonout_string(json, "instance", first->instance->name);
    tm_jsonout_integer(json, "spot_nodes", tm_plan_spot_instances(&answer->fleet));
    tm_jsonout_integer(json, "on_demand_nodes", tm_plan_on_demand_instances(&answer->fleet));
    put_pools_json(json, answer);
    tm_jsonout_object(json, "layout");
    tm_jsonout_integer(json, "pipelines", answer->prediction.pipelines);
    tm_jsonout_integer(json, "stages", answer->prediction.stages);
    tm_jsonout_end(json);
    tm_way_put_json(json, &answer->prediction);
    tm_jsonout_number(json, "samples_per_s", answer->prediction.samples_per_s);
    put_estimate(json, "time_s", &expectation->time_s);
    put_estimate(json, "cost_usd", &expectation->cost_usd);
    tm_jsonout_number(json, "price_usd_h", expectation->usd_h);
    tm_jsonout_number(json, "losses", expectation->losses);
    const struct tm_plan_trace *trace = tm_plan_trace_of_fleet(report->request, &answer->fleet);
    if (trace != NULL) tm_jsonout_string(json, "trace", trace->name);
    tm_jsonout_number(json, "checkpoint_interval_s", expectation->checkpoint_interval_s);
    tm_jsonout_number(json, "p_deadline", isfinite(report->request->job.deadline_s) ? expectation->p_deadline : NAN);
    double budget_usd = report->request->budget_usd;
    tm_jsonout_number(json, "p_budget", isfinite(budget_usd) ? tm_plan_p_budget(expectation, budget_usd) : NAN);
    tm_jsonout_string(json, "precision", precision_of(report, answer));
    tm_jsonout_integer(json, "micro_batch", answer->prediction.micro_batch);
    tm_jsonout_bool(json, "recompute", answer->prediction.recompute);
    tm_jsonout_bool(json, "spot_price_assumed", has_assumed_price(&answer->fleet));
    if (answer->egress_usd > 0) tm_jsonout_number(json, "egress_usd", answer->egress_usd);
    tm_jsonout_bool(json, "chosen", chosen);
    tm_jsonout_end(json);
}

static void put_advice_json(struct tm_jsonout *json, const struct tm_plan_report *report)
{
    const struct tm_plan_advice *advice = report->advice;
    if (advice == NULL) return;
    tm_jsonout_list(json, "binds");
    for (size_t i = 0; i < advice->bind_count; i++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "constraint", advice->binds[i]);
        tm_jsonout_number(json, "value_without", advice->without[i]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    if (advice->more_time.found)
        put_answer_json(json, "one_more_hour", report->planner, report, &advice->more_time.answer, false);
    if (advice->more_money.found)
        put_answer_json(json, "ten_percent_more", report->planner, report, &advice->more_money.answer, false);
}

static void put_relax_json(struct tm_jsonout *json, const struct tm_plan_relaxation *relax)
{
    if (relax == NULL) return;
    tm_jsonout_object(json, "relaxations");
    tm_jsonout_number(json, "deadline_s", relax->deadline_s);
    tm_jsonout_number(json, "budget_usd", relax->budget_usd);
    tm_jsonout_number(json, "max_usd_h", relax->usd_h);
    if (relax->instances > 0) tm_jsonout_integer(json, "max_nodes", relax->instances);
    if (relax->probability > 0) tm_jsonout_number(json, "probability", relax->probability);
    if (isfinite(relax->both_s)) {
        tm_jsonout_object(json, "together");
        tm_jsonout_number(json, "deadline_s", relax->both_s);
        tm_jsonout_number(json, "budget_usd", relax->both_usd);
        tm_jsonout_end(json);
    }
    tm_jsonout_bool(json, "without_quotas", relax->quotas);
    tm_jsonout_bool(json, "market_mixed", relax->market);
    tm_jsonout_end(json);
}

void tm_plan_report_json(struct tm_cli *cli, const struct tm_plan_report *report)
{
    const struct tm_plan_result *result = report->result;
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "planner", report->planner);
    tm_jsonout_string(&json, "objective", report->objective);
    tm_jsonout_string(&json, "judge", report->judge);
    if (report->asked_ms != 0) {
        char at[TM_CALENDAR_TEXT_MAX];
        tm_jsonout_string(&json, "prices_asked", tm_calendar_print(report->asked_ms / 1000 * 1000, at));
    }
    tm_jsonout_integer(&json, "samples", (int64_t)report->request->job.samples);
    tm_jsonout_integer(&json, "batch", report->request->supply.batch);
    tm_jsonout_string(&json, "batch_from", report->batch_from);
    tm_jsonout_string(&json, "input", report->request->supply.model->input);
    tm_jsonout_integer(&json, "fleets_weighed", (int64_t)result->fleets);
    tm_jsonout_integer(&json, "integer_programs", (int64_t)result->programs);
    tm_jsonout_number(&json, "bound", result->bound);
    tm_jsonout_number(&json, "gap", result->gap);
    if (report->running != NULL) {
        put_answer_json(&json, "running", "running", report, &report->running->running, report->running->holds);
        tm_jsonout_bool(&json, "holds", report->running->holds);
        tm_jsonout_number(&json, "observed_factor", report->running->factor);
    }
    tm_jsonout_list(&json, "answers");
    for (size_t i = 0; i < result->count; i++) {
        if (is_shown(report, i)) put_answer_json(&json, NULL, report->planner, report, &result->answers[i], i == 0);
    }
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "others");
    if (report->other != NULL && report->other->count > 0)
        put_answer_json(&json, NULL, report->other_planner, report, &report->other->answers[0], false);
    tm_jsonout_end(&json);
    put_advice_json(&json, report);
    if (report->larger->batch > 0) {
        tm_jsonout_object(&json, "larger_batch");
        tm_jsonout_integer(&json, "batch", report->larger->batch);
        put_answer_json(&json, "answer", report->planner, report, &report->larger->answer, false);
        tm_jsonout_end(&json);
    }
    put_relax_json(&json, report->relax);
    if (report->why_none != NULL && report->why_none[0] != '\0') tm_jsonout_string(&json, "why", report->why_none);
    tm_jsonout_end(&json);
}

/* ---- the table ---- */

static void add_text(struct tm_table *table, struct tm_text *text)
{
    tm_table_add(table, "%s", tm_text_string(text));
    tm_text_clear(text);
}

static void add_answer(struct tm_cli *cli, struct tm_table *table, const struct tm_plan_report *report,
                       const struct tm_plan_answer *answer, const char *planner, bool chosen)
{
    const struct tm_expectation *expectation = &answer->expectation;
    char eta[TM_UNITS_TEXT_MAX];
    struct tm_text text;
    tm_text_init(&text, 4096);
    tm_table_add(table, "%s", planner);
    put_infra(&answer->fleet, &text);
    add_text(table, &text);
    put_instances(&answer->fleet, &text);
    add_text(table, &text);
    put_gpus(&answer->fleet, &text);
    add_text(table, &text);
    tm_table_add(table, "%d/%d", tm_plan_spot_instances(&answer->fleet), tm_plan_on_demand_instances(&answer->fleet));
    put_anchors(answer, &text);
    add_text(table, &text);
    tm_way_put_short(&text, &answer->prediction);
    add_text(table, &text);
    tm_text_deinit(&text);
    tm_table_add(table, "%.4g/s", answer->prediction.samples_per_s);
    tm_table_add(table, "%s", expectation->finishes ? duration(expectation->time_s.mean, eta) : "never");
    tm_table_add(table, "%.2f%s", expectation->usd_h, has_assumed_price(&answer->fleet) ? "?" : "");
    if (expectation->finishes)
        tm_table_add(table, "%.2f (%.2f-%.2f)", expectation->cost_usd.mean, expectation->cost_usd.p10,
                     expectation->cost_usd.p90);
    else
        tm_table_add(table, "-");
    if (isfinite(report->request->job.deadline_s)) tm_table_add(table, "%.2f", expectation->p_deadline);
    if (isfinite(report->request->budget_usd))
        tm_table_add(table, "%.2f", tm_plan_p_budget(expectation, report->request->budget_usd));
    tm_table_add_colored(table, TM_GREEN, "%s", chosen ? (cli->term.utf8 ? "\xE2\x9C\x93" : "*") : "");
}

static void put_fleet_words(struct tm_text *out, const struct tm_plan_answer *answer)
{
    char time[TM_UNITS_TEXT_MAX];
    put_instances(&answer->fleet, out);
    tm_text_printf(out, " (%d spot, %d on-demand): %s for $%.2f", tm_plan_spot_instances(&answer->fleet),
                   tm_plan_on_demand_instances(&answer->fleet), duration(answer->expectation.time_s.mean, time),
                   answer->expectation.cost_usd.mean);
}

static void put_bindings(struct tm_text *out, const struct tm_plan_report *report)
{
    const struct tm_plan_advice *advice = report->advice;
    bool money = report->request->objective == TM_PLAN_CHEAPEST;
    char time[TM_UNITS_TEXT_MAX];
    if (advice->bind_count == 0)
        tm_text_puts(out, "No constraint is binding: the answer would be the same without any of them.\n");
    for (size_t i = 0; i < advice->bind_count; i++) {
        tm_text_printf(out, "%s is binding", advice->binds[i]);
        if (!isnan(advice->without[i]) && money)
            tm_text_printf(out, ": without it $%.2f", advice->without[i]);
        else if (!isnan(advice->without[i]))
            tm_text_printf(out, ": without it %s", duration(advice->without[i], time));
        tm_text_puts(out, ".\n");
    }
}

static bool is_same_fleet(const struct tm_plan_answer *a, const struct tm_plan_answer *b)
{
    return fabs(a->expectation.cost_usd.mean - b->expectation.cost_usd.mean) < 1e-6 &&
           fabs(a->expectation.time_s.mean - b->expectation.time_s.mean) < 1e-3;
}

static bool rents_the_same(const struct tm_plan_fleet *a, const struct tm_plan_fleet *b)
{
    bool same = a->part_count == b->part_count && a->anchor_instances == b->anchor_instances &&
                a->anchor.instance == b->anchor.instance;
    for (size_t i = 0; same && i < a->part_count; i++)
        same = a->parts[i].offer == b->parts[i].offer && a->parts[i].spot == b->parts[i].spot &&
               a->parts[i].on_demand == b->parts[i].on_demand;
    return same;
}

static const double WORTH_SAYING = 0.995; /* of a cost: what saves less is the same */

static void put_what_ifs(struct tm_text *out, const struct tm_plan_report *report)
{
    const struct tm_plan_advice *advice = report->advice;
    const struct tm_plan_answer *best = &report->result->answers[0];
    char time[TM_UNITS_TEXT_MAX];
    const struct tm_plan_what_if *later = &advice->more_time;
    const struct tm_plan_what_if *richer = &advice->more_money;
    if (later->found) {
        tm_text_printf(out, "One more hour (%s in total) would buy ", duration(later->limit, time));
        bool cheaper = !is_same_fleet(&later->answer, best) &&
                       later->answer.expectation.cost_usd.mean < best->expectation.cost_usd.mean * WORTH_SAYING;
        if (cheaper && rents_the_same(&later->answer.fleet, &best->fleet)) /* less help from on-demand instances */
            tm_text_printf(out, "the same fleet for $%.2f", later->answer.expectation.cost_usd.mean);
        else if (cheaper)
            put_fleet_words(out, &later->answer);
        else
            tm_text_puts(out, "nothing cheaper");
        tm_text_puts(out, ".\n");
    }
    tm_text_printf(out, "10%% more money ($%.2f in total) would buy ", richer->limit);
    if (richer->found && richer->answer.expectation.time_s.mean < advice->fastest_s * (1 - 1e-6))
        put_fleet_words(out, &richer->answer);
    else
        tm_text_puts(out, "nothing faster");
    tm_text_puts(out, ".\n");
}

static void put_unmeasured(struct tm_text *out, const struct tm_plan_report *report,
                           const struct tm_instance_type *instance)
{
    const struct tm_supply_request *supply = &report->request->supply;
    struct tm_network network = tm_network_of(supply->model->layers, supply->model->layer_count);
    enum tm_precision precision = (enum tm_precision)format_of(report, &report->result->answers[0]);
    if (strcmp(tm_plan_maker(instance), "nvidia") != 0)
        tm_text_printf(out, "Nobody has measured a %s for us: its throughput is that of a GPU with the same peaks.\n",
                       instance->gpu);
    else if (!tm_compute_is_measured(supply->compute, &network, instance->gpu, precision))
        tm_text_printf(out,
                       "Of such a network no step on %s GPUs is known: its throughput is that of a common GPU of its "
                       "figures, in a wider interval.\n",
                       instance->gpu);
}

/* What was taken to be so, because nobody said or nobody knows. */
static void put_assumptions(struct tm_cli *cli, const struct tm_plan_report *report)
{
    struct tm_text *out = &cli->out;
    const struct tm_plan_result *result = report->result;
    const struct tm_plan_answer *best = &result->answers[0];
    const struct tm_instance_type *instance = best->fleet.parts[0].instance;
    const struct tm_model *model = report->request->supply.model;
    bool assumed_price = false;
    for (size_t i = 0; i < result->count; i++)
        assumed_price = assumed_price || has_assumed_price(&result->answers[i].fleet);
    tm_text_printf(out, "Batch %d (%s), micro-batches of %d, %s, %s%s%s recomputation.\n",
                   report->request->supply.batch, report->batch_from, best->prediction.micro_batch,
                   precision_of(report, best), model->input != NULL ? model->input : "",
                   model->input != NULL && model->input[0] ? ", " : "",
                   best->prediction.recompute ? "with" : "without");
    if (report->larger->batch > 0) {
        tm_text_printf(out, "With --batch %d, if the model still converges: ", report->larger->batch);
        put_fleet_words(out, &report->larger->answer);
        tm_text_puts(out, ".\n");
    }
    tm_text_puts(out, "Parallel: ");
    tm_way_put_words(out, &best->prediction);
    if (tm_way_needs_own_engine(&best->prediction))
        tm_text_printf(out, "; that needs an engine of your own, such as %s (--parallel data: what a run does itself)",
                       best->prediction.tensor > 1 ? "Megatron-LM" : "PyTorch's FSDP or DeepSpeed");
    tm_text_puts(out, ".\n");
    if (report->supply->seen.no_precision > 0)
        tm_text_printf(out, "%zu of the allowed instance types %s left out: no %s mode.\n",
                       report->supply->seen.no_precision, report->supply->seen.no_precision == 1 ? "is" : "are",
                       tm_precision_names[report->request->supply.precision]);
    if (report->asked_ms != 0) {
        char at[TM_CALENDAR_TEXT_MAX];
        tm_text_printf(out, "Spot prices as of %s.\n", tm_calendar_print(report->asked_ms / 1000 * 1000, at));
    }
    if (report->zones_by_region)
        tm_text_puts(out,
                     "Zone names of AWS mean other zones in other accounts: every zone of the region was taken.\n");
    if (instance->network_assumed)
        tm_text_printf(out, "The network of %s is not known: %g Gbit/s was taken, which any cloud gives.\n",
                       instance->name, instance->network_gbps);
    if (tm_offer_is_retired(report->supply->catalog, best->fleet.parts[0].offer))
        tm_text_printf(out, "%s has left the market (prices of %s).\n", instance->name,
                       report->supply->catalog->sources[best->fleet.parts[0].offer->source].as_of);
    if (assumed_price)
        tm_text_puts(out, "?: many spot prices of that cloud are the same share of the on-demand price, and nothing is "
                          "known of interruptions; counted halfway to what spot usually costs.\n");
    put_unmeasured(out, report, instance);
}

/* The second row of the table; NULL: there is none. */
static const struct tm_plan_answer *next_shown(const struct tm_plan_report *report)
{
    for (size_t i = 1; i < report->result->count; i++)
        if (is_shown(report, i)) return &report->result->answers[i];
    return NULL;
}

static void put_words(struct tm_cli *cli, const struct tm_plan_report *report)
{
    const struct tm_plan_result *result = report->result;
    const struct tm_plan_answer *best = &result->answers[0];
    struct tm_text *out = &cli->out;
    char interval[TM_UNITS_TEXT_MAX];
    bool money = report->request->objective == TM_PLAN_CHEAPEST;
    if (report->published)
        tm_text_printf(out, "\n%s chooses within $%.2f an hour and knows of no preemptions, deadline or budget",
                       report->planner, report->request->max_usd_h);
    else
        tm_text_printf(out, "\n%zu fleets compared; the %s that satisfies all constraints is marked", result->fleets,
                       money ? "cheapest" : "fastest");
    const struct tm_plan_answer *next = next_shown(report);
    if (next != NULL && money)
        tm_text_printf(out, ": it costs %.0f%% less than the next kind of fleet",
                       100 * (1 - best->expectation.cost_usd.mean / next->expectation.cost_usd.mean));
    else if (next != NULL)
        tm_text_printf(out, ": it takes %.0f%% less time than the next kind of fleet",
                       100 * (1 - best->expectation.time_s.mean / next->expectation.time_s.mean));
    tm_text_puts(out, ".");
    if (best->expectation.losses > 0 && isfinite(best->expectation.losses) &&
        isfinite(best->expectation.checkpoint_interval_s))
        tm_text_printf(out, " Expected preemptions: %.1f; the best checkpoint interval is %s.",
                       best->expectation.losses, duration(best->expectation.checkpoint_interval_s, interval));
    tm_text_printf(out, " Its step time is limited by %s.\n", best->prediction.limit);
    if (!isnan(result->bound)) {
        char bound[TM_UNITS_TEXT_MAX];
        (void)snprintf(bound, sizeof bound, "$%.2f", result->bound);
        if (!money) (void)duration(result->bound, bound);
        if (report->simulated)
            tm_text_printf(
                out, "By the closed form, which narrows the search, no mix of up to three types is below %s.\n", bound);
        else
            tm_text_printf(out,
                           "%zu integer programs prove that no mix of up to three types is below %s (gap %.1f%%), "
                           "assuming that an instance has the same throughput in a mix as among its own type.\n",
                           result->programs, bound, 100 * result->gap);
    }
    if (report->advice != NULL) {
        put_bindings(out, report);
        put_what_ifs(out, report);
    }
    put_assumptions(cli, report);
    tm_text_printf(out, "Judged by %s.\n", report->judge);
}

static void put_running(struct tm_cli *cli, const struct tm_plan_report *report)
{
    const struct tm_replan *running = report->running;
    tm_text_printf(&cli->out, "\nIts steps take %.2f times as long as predicted. ", running->factor);
    tm_text_puts(&cli->out, running->holds
                                ? "The running fleet still satisfies all constraints: keep it.\n"
                                : "The running fleet no longer satisfies all constraints: change to the marked one.\n");
}

int tm_plan_report_table(struct tm_cli *cli, const struct tm_plan_report *report, struct tm_error *e)
{
    static const struct tm_column all[] = {
        {"PLANNER", TM_LEFT, 5},
        {"INFRA", TM_LEFT, 0},
        {"INSTANCE", TM_LEFT, 0},
        {"GPUS", TM_LEFT, 4},
        {"SPOT/OD", TM_RIGHT, 0},
        {"ANCHORS", TM_LEFT, 3},
        {"LAYOUT", TM_RIGHT, 3},
        {"THROUGHPUT", TM_RIGHT, 2},
        {"ETA", TM_RIGHT, 0},
        {"$/h", TM_RIGHT, 1},
        {"TOTAL ($, p10-p90)", TM_RIGHT, 0},
        {"P(deadline)", TM_RIGHT, 0},
        {"P(budget)", TM_RIGHT, 0},
        {"CHOSEN", TM_LEFT, 0},
    };
    struct tm_column columns[sizeof all / sizeof *all];
    size_t column_count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool asked = (strcmp(all[i].title, "P(deadline)") != 0 || isfinite(report->request->job.deadline_s)) &&
                     (strcmp(all[i].title, "P(budget)") != 0 || isfinite(report->request->budget_usd));
        if (asked) columns[column_count++] = all[i];
    }
    const struct tm_plan_result *result = report->result;
    struct tm_table table;
    tm_table_init(&table, columns, column_count);
    if (report->running != NULL)
        add_answer(cli, &table, report, &report->running->running, "running", report->running->holds);
    for (size_t i = 0; i < result->count; i++) {
        if (is_shown(report, i)) add_answer(cli, &table, report, &result->answers[i], report->planner, i == 0);
    }
    if (report->other != NULL && report->other->count > 0 && !is_hopeless(report, &report->other->answers[0]))
        add_answer(cli, &table, report, &report->other->answers[0], report->other_planner, false);
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    if (rc == 0 && !cli->quiet && report->running != NULL) put_running(cli, report);
    if (rc == 0 && !cli->quiet && result->count > 0) put_words(cli, report);
    return rc;
}

/* ---- nothing ---- */

/* Why there is nothing to choose from. */
static void put_empty_supply(const struct tm_plan_report *report, struct tm_text *out)
{
    const struct tm_supply_types *seen = &report->supply->seen;
    int market = (int)report->request->market;
    static const char *const prices[] = {"price", "spot price", "on-demand price"};
    const char *join = ": ";
    if (seen->allowed == 0) {
        bool known = report->why_none != NULL && report->why_none[0] != '\0';
        tm_text_printf(out, "; %s",
                       known ? report->why_none
                             : "no offer of an instance type with GPUs is allowed (--cloud, --region, --gpu and the "
                               "like)");
        if (report->for_skypilot) tm_text_puts(out, "; SkyPilot no longer offers p2, p3 and g3 of AWS");
        return;
    }
    tm_text_printf(out, "; none of the %zu allowed instance types with GPUs can be used", seen->allowed);
    if (seen->unpriced > 0) {
        tm_text_printf(out, "%s%zu have no %s%s", join, seen->unpriced, prices[market],
                       market == TM_PLAN_MIXED ? "" : " (try --market mixed)");
        join = ", ";
    }
    if (seen->gpu_unknown > 0) {
        tm_text_printf(out, "%sthe GPU of %zu is unknown", join, seen->gpu_unknown);
        join = ", ";
    }
    if (seen->no_precision > 0) {
        tm_text_printf(out, "%sthe GPU of %zu has no %s mode", join, seen->no_precision,
                       tm_precision_names[report->request->supply.precision]);
        join = ", ";
    }
    if (seen->unfit > 0)
        tm_text_printf(out, "%sthe model does not fit in the memory of %zu at batch %d", join, seen->unfit,
                       report->request->supply.batch);
}

/* A deadline as one word of a command line. */
static const char *limit_words(double seconds, char time[TM_UNITS_TEXT_MAX])
{
    (void)tm_unit_print_limit(fmax(60, seconds), time);
    char *space = strchr(time, ' ');
    if (space != NULL) memmove(space, space + 1, strlen(space));
    return time;
}

static bool is_limited(const struct tm_plan_request *request)
{
    return isfinite(request->job.deadline_s) || isfinite(request->budget_usd) || isfinite(request->max_usd_h) ||
           request->quota_count > 0 || request->market != TM_PLAN_MIXED;
}

static void put_reason(const struct tm_plan_report *report, struct tm_text *out)
{
    char time[TM_UNITS_TEXT_MAX];
    if (report->supply->pool_count == 0)
        put_empty_supply(report, out);
    else if (report->published)
        tm_text_printf(out,
                       "; %s takes types that hold the model on one instance and are sold on spot and on demand in one "
                       "region: there is none",
                       report->planner);
    else if (report->result->fleets == 0)
        tm_text_puts(out, "; the model does not fit on any of them");
    else if (isfinite(report->relax->both_s))
        tm_text_printf(out,
                       "; relaxing one constraint is not enough: with --deadline %s and --budget %.2f there is one",
                       limit_words(report->relax->both_s, time), ceil(report->relax->both_usd * 100) / 100);
    else if (!is_limited(report->request))
        tm_text_printf(out,
                       "; no fleet of up to %d instances is expected to finish the job: raise --max-nodes, or try a "
                       "larger --batch",
                       report->request->max_instances);
    else
        tm_text_puts(out, "; relaxing one constraint is not enough: relax two of them");
}

int tm_plan_report_nothing(const struct tm_plan_report *report, struct tm_error *e)
{
    const struct tm_plan_relaxation *relax = report->relax;
    struct tm_text words;
    char time[TM_UNITS_TEXT_MAX];
    tm_text_init(&words, 1024);
    if (isfinite(relax->deadline_s))
        tm_text_printf(&words, "; with --deadline %s there is one", limit_words(relax->deadline_s, time));
    if (isfinite(relax->budget_usd))
        tm_text_printf(&words, "; with --budget %.2f there is one", ceil(relax->budget_usd * 100) / 100);
    if (isfinite(relax->usd_h))
        tm_text_printf(&words, "; with --max-hourly %.2f there is one", ceil(relax->usd_h * 100) / 100);
    if (relax->instances > 0) tm_text_printf(&words, "; with --max-nodes %d there is one", relax->instances);
    if (relax->quotas) tm_text_puts(&words, "; without --quota there is one");
    if (relax->market) tm_text_puts(&words, "; with --market mixed there is one");
    if (relax->probability > 0)
        tm_text_printf(&words, "; with --probability %.2f there is one", floor(100 * relax->probability + 1e-9) / 100);
    if (words.length == 0) put_reason(report, &words);
    if (report->smallest != NULL) {
        tm_text_puts(&words, "; the smallest that holds it: ");
        put_instances(&report->smallest->fleet, &words);
        tm_text_puts(&words, " (");
        put_gpus(&report->smallest->fleet, &words);
        tm_text_printf(&words, ") of %s", tm_cloud_label(report->smallest->fleet.parts[0].instance->cloud));
    }
    int rc = tm_error_set(e, TM_ENONE, "no fleet satisfies all constraints%s", tm_text_string(&words));
    tm_text_deinit(&words);
    return rc;
}

#include "policy/facts_record.h"

#include "base/figures.h"

#include <limits.h>
#include <string.h>

#define ANY  1e300
#define MANY (1 << 24)

#define FIGURE(of, label, member, kind, low, high)                                                                     \
    {                                                                                                                  \
        .name = (label), .type = (kind), .offset = offsetof(struct of, member), .min = (low), .max = (high),           \
        .special = (kind) == TM_FIGURE_DOUBLE                                                                          \
    }
#define FACT_INT(member)    FIGURE(tm_facts, #member, member, TM_FIGURE_INT, 0, MANY)
#define FACT_BOOL(member)   FIGURE(tm_facts, #member, member, TM_FIGURE_BOOL, 0, 1)
#define FACT_DOUBLE(member) FIGURE(tm_facts, #member, member, TM_FIGURE_DOUBLE, -ANY, ANY)
#define POOLS(member, kind, low, high)                                                                                 \
    {                                                                                                                  \
        .name = "pools." #member, .type = (kind), .offset = offsetof(struct tm_facts, pools[0].member),                \
        .count = TM_POOLS_MAX, .stride = sizeof(struct tm_pool), .min = (low), .max = (high),                          \
        .special = (kind) == TM_FIGURE_DOUBLE                                                                          \
    }

static const struct tm_figure facts_figures[] = {
    FACT_DOUBLE(now_s),
    FACT_DOUBLE(speed),
    FACT_BOOL(first),
    FACT_BOOL(event),
    FACT_INT(before),
    FACT_INT(lost),
    FACT_INT(after),
    FACT_BOOL(noticed),
    FACT_INT(standing.layout),
    FACT_DOUBLE(standing.migrating_ms),
    POOLS(market, TM_FIGURE_INT, 0, TM_POOL_ON_DEMAND),
    POOLS(role, TM_FIGURE_INT, 0, TM_POOL_KEEPS_COPIES),
    POOLS(zone, TM_FIGURE_INT, INT_MIN, MANY),
    POOLS(price_usd_h, TM_FIGURE_DOUBLE, -ANY, ANY),
    POOLS(here, TM_FIGURE_INT, 0, MANY),
    POOLS(ordered, TM_FIGURE_INT, 0, MANY),
    POOLS(leaving, TM_FIGURE_INT, 0, MANY),
    POOLS(offered, TM_FIGURE_INT, -1, MANY),
    POOLS(limit, TM_FIGURE_INT, 0, MANY),
    POOLS(start_s, TM_FIGURE_DOUBLE, -ANY, ANY),
    POOLS(group, TM_FIGURE_INT, 0, TM_POOLS_MAX - 1),
    POOLS(region, TM_FIGURE_INT, 0, TM_POOLS_MAX - 1),
    POOLS(lost, TM_FIGURE_INT, 0, MANY),
    POOLS(refused, TM_FIGURE_INT, 0, MANY),
    POOLS(speed, TM_FIGURE_DOUBLE, -ANY, ANY),
    FACT_BOOL(choices),
    FIGURE(tm_facts, "group", group, TM_FIGURE_INT, -1, TM_POOLS_MAX - 1),
    FACT_INT(spares),
    FACT_DOUBLE(move_usd),
    FACT_DOUBLE(far.sample_s),
    FACT_DOUBLE(far.sample_usd),
    FIGURE(tm_facts, "pool_count", pool_count, TM_FIGURE_INT, 0, TM_POOLS_MAX),
    FIGURE(tm_facts, "keeper_count", keeper_count, TM_FIGURE_INT, 0, TM_POOLS_MAX),
    FACT_DOUBLE(progress.samples_left),
    FACT_DOUBLE(progress.samples_per_step),
    FACT_DOUBLE(progress.efficiency),
    FACT_DOUBLE(progress.step_s),
    FACT_DOUBLE(progress.uneven),
    FACT_DOUBLE(copies.since_s),
    FACT_BOOL(copies.uncopied),
    FACT_BOOL(copies.last),
    FACT_BOOL(copies.only_one_replica),
    FACT_DOUBLE(copies.copy_s),
    FACT_DOUBLE(copies.every_s),
    FACT_DOUBLE(copies.every_alone_s),
    FACT_DOUBLE(losses.lost_per_s),
    FACT_DOUBLE(losses.unannounced),
    FACT_DOUBLE(losses.together),
    FACT_INT(limits.workers_min),
    FACT_INT(limits.workers_max),
    FACT_INT(limits.workers_each),
    FIGURE(tm_facts, "limits.rent", limits.rent, TM_FIGURE_INT, 0, TM_RENT_CHEAPEST),
    FACT_INT(limits.anchors),
    FACT_BOOL(limits.anchors_train),
    FACT_BOOL(limits.has_deadline),
    FACT_DOUBLE(limits.seconds_left),
    FACT_DOUBLE(limits.budget_usd),
    FACT_DOUBLE(limits.bill_usd),
    {.name = NULL}};

#define DECISION_INT(member, high) FIGURE(tm_decision, #member, member, TM_FIGURE_INT, 0, high)
#define DECISION_BOOL(member)      FIGURE(tm_decision, #member, member, TM_FIGURE_BOOL, 0, 1)
#define WANT                                                                                                           \
    {                                                                                                                  \
        .name = "want", .type = TM_FIGURE_INT, .offset = offsetof(struct tm_decision, want), .count = TM_POOLS_MAX,    \
        .max = MANY                                                                                                    \
    }
#define GROUP                   FIGURE(tm_decision, "group", group, TM_FIGURE_INT, -1, TM_POOLS_MAX - 1)
#define DECISION_DOUBLE(member) FIGURE(tm_decision, #member, member, TM_FIGURE_DOUBLE, -ANY, ANY)

static const struct tm_figure acts_figures[] = {DECISION_INT(layout, TM_LAYOUTS_MAX),
                                                DECISION_INT(change, TM_CHANGE_TIMED),
                                                DECISION_BOOL(rents),
                                                DECISION_INT(want_spot, MANY),
                                                DECISION_INT(want_on_demand, MANY),
                                                DECISION_BOOL(copy),
                                                DECISION_BOOL(share),
                                                DECISION_BOOL(stop),
                                                WANT,
                                                GROUP,
                                                {.name = NULL}};

static const struct tm_figure decision_figures[] = {DECISION_INT(layout, TM_LAYOUTS_MAX),
                                                    DECISION_INT(change, TM_CHANGE_TIMED),
                                                    DECISION_DOUBLE(pace),
                                                    DECISION_DOUBLE(pause_ms),
                                                    DECISION_BOOL(rents),
                                                    DECISION_INT(want_spot, MANY),
                                                    DECISION_INT(want_on_demand, MANY),
                                                    DECISION_BOOL(copy),
                                                    DECISION_BOOL(share),
                                                    DECISION_BOOL(share),
                                                    DECISION_DOUBLE(copy_every_s),
                                                    DECISION_BOOL(stop),
                                                    DECISION_DOUBLE(until_s),
                                                    DECISION_INT(why, TM_WHY_SHARES),
                                                    WANT,
                                                    GROUP,
                                                    {.name = NULL}};

struct hint {
    int losing;
    double in_s;
    bool hint; /* always: an empty text is none */
};
static const struct tm_figure hint_figures[] = {FIGURE(hint, "hint", hint, TM_FIGURE_BOOL, 0, 1),
                                                FIGURE(hint, "losing", losing, TM_FIGURE_INT, INT_MIN, MANY),
                                                FIGURE(hint, "in_s", in_s, TM_FIGURE_DOUBLE, -ANY, ANY),
                                                {.name = NULL}};

static const struct tm_figure options_figures[] = {
    FIGURE(tm_policy_options, "interval_s", interval_s, TM_FIGURE_DOUBLE, 1e-3, 1e9),
    FIGURE(tm_policy_options, "horizon", horizon, TM_FIGURE_INT, 1, TM_FORECAST_STEPS_MAX),
    FIGURE(tm_policy_options, "breadth", breadth, TM_FIGURE_INT, 0, TM_BREADTH_LIKELY),
    FIGURE(tm_policy_options, "live", live, TM_FIGURE_BOOL, 0, 1),
    {.name = NULL}};

/* ---- facts ---- */

void tm_facts_record(const struct tm_facts *facts, struct tm_text *out)
{
    tm_figures_print(facts_figures, facts, out);
}

static bool possible(const struct tm_facts *facts, const struct tm_layouts *layouts)
{
    int most = layouts->instances_max;
    return (size_t)facts->standing.layout < layouts->count && facts->before <= most && facts->after <= most &&
           facts->lost <= facts->before && layouts->list[facts->standing.layout].instances <= facts->before &&
           facts->pool_count + facts->keeper_count <= TM_POOLS_MAX && facts->speed > 0;
}

int tm_facts_recall(const char *text, size_t length, const struct tm_layouts *layouts, struct tm_facts *out,
                    struct tm_error *e)
{
    struct tm_facts facts;
    memset(&facts, 0, sizeof facts);
    int rc = tm_figures_parse(facts_figures, text, length, &facts, e);
    if (rc == 0 && !possible(&facts, layouts))
        rc = tm_error_set(e, TM_EINPUT, "a fleet that these layouts are not made for");
    if (rc != 0) return tm_error_wrap(e, rc, "facts");
    *out = facts;
    return 0;
}

/* ---- decisions ---- */

void tm_decision_record(const struct tm_decision *decision, struct tm_text *out)
{
    tm_figures_print(decision_figures, decision, out);
}

int tm_decision_recall(const char *text, size_t length, const struct tm_layouts *layouts, struct tm_decision *out,
                       struct tm_error *e)
{
    struct tm_decision decision;
    memset(&decision, 0, sizeof decision);
    int rc = tm_figures_parse(decision_figures, text, length, &decision, e);
    if (rc == 0 && (size_t)decision.layout >= layouts->count)
        rc = tm_error_set(e, TM_EINPUT, "layout %d, of %zu", decision.layout, layouts->count);
    if (rc != 0) return tm_error_wrap(e, rc, "decision");
    *out = decision;
    return 0;
}

const char *tm_decision_difference(const struct tm_decision *a, const struct tm_decision *b, bool acts)
{
    const struct tm_figure *which = NULL;
    return tm_figures_same(acts ? acts_figures : decision_figures, a, b, &which) ? NULL : which->name;
}

/* ---- hints ---- */

void tm_hint_record(int losing, double in_s, struct tm_text *out)
{
    struct hint hint = {.losing = losing, .in_s = in_s, .hint = true};
    tm_figures_print(hint_figures, &hint, out);
}

int tm_hint_recall(const char *text, size_t length, int *out_losing, double *out_in_s, struct tm_error *e)
{
    struct hint hint = {.losing = 0};
    int rc = tm_figures_parse(hint_figures, text, length, &hint, e);
    if (rc != 0) return tm_error_wrap(e, rc, "hint");
    *out_losing = hint.losing;
    *out_in_s = hint.in_s;
    return 0;
}

/* ---- options ---- */

void tm_policy_options_record(const struct tm_policy_options *options, struct tm_text *out)
{
    tm_figures_print(options_figures, options, out);
}

int tm_policy_options_recall(const char *text, size_t length, struct tm_policy_options *out, struct tm_error *e)
{
    struct tm_policy_options options;
    memset(&options, 0, sizeof options);
    int rc = tm_figures_parse(options_figures, text, length, &options, e);
    if (rc == 0 && !(options.interval_s > 0 && options.horizon > 0))
        rc = tm_error_set(e, TM_EINPUT, "no interval, or no horizon");
    if (rc != 0) return tm_error_wrap(e, rc, "policy");
    *out = options;
    return 0;
}

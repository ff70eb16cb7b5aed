/* What others do without looking ahead. */
#include "policy/policy_internal.h"

int tm_policy__ideal(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    (void)e;
    out->layout = policy->layouts->best[view->after];
    out->change = TM_CHANGE_FREE;
    return 0;
}

/* In a run whoever is left has the layers: state moves, and nobody loads a checkpoint. */
int tm_policy__reactive(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                        struct tm_error *e)
{
    (void)e;
    if (!view->event) return 0;
    out->layout = policy->layouts->best[view->after];
    out->change = policy->options.live ? TM_CHANGE_MIGRATE : TM_CHANGE_ROLLBACK;
    return 0;
}

int tm_policy__fixed(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out, struct tm_error *e)
{
    (void)e;
    if (view->event) out->layout = policy->layouts->best[view->after];
    return 0;
}

/* Varuna's way: the manager restarts everybody in the fastest layout from the last checkpoint. Writing one holds
 * training up for the transfer of the largest stage, once in copy_interval_s. */
int tm_policy__checkpoint(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                          struct tm_error *e)
{
    (void)e;
    if (view->event) {
        out->layout = policy->layouts->best[view->after];
        out->change = TM_CHANGE_ROLLBACK;
    }
    double every_ms = policy->cost->copy_interval_s * 1000;
    double write_ms = tm_migrations_largest_ms(policy->migrations, policy->layouts->list[out->layout].stages);
    if (every_ms > 0) out->pace = every_ms / (every_ms + write_ms);
    return 0;
}

/* ---- redundant ---- */

/* Bamboo's figures: a fixed depth; 20 s to put a spare in a lost place, 30 s to form all pipelines anew, 45 s more when
 * two neighbours went at once, so that nobody holds their layers. */
enum { LOCAL_MS = 20000, GLOBAL_MS = 30000, CREATE_MS = 45000 };

/* The depth it trains with: the first of these that the model has been measured with. */
static int fixed_depth(const struct tm_layouts *layouts)
{
    static const int depths[] = {12, 8, 6, 4, 2, 1};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        for (int pipelines = layouts->instances_max / depths[i]; pipelines > 0; pipelines--)
            if (layouts->list[tm_layouts_find(layouts, pipelines, depths[i])].samples_per_s > 0) return depths[i];
    return layouts->stages_min;
}

static int widest(const struct tm_layouts *layouts, int depth, int instances)
{
    for (int pipelines = instances / depth; pipelines > 0; pipelines--) {
        int layout = tm_layouts_find(layouts, pipelines, depth);
        if (layouts->list[layout].samples_per_s > 0) return layout;
    }
    return TM_LAYOUT_PAUSE;
}

int tm_policy__redundant(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                         struct tm_error *e)
{
    (void)e;
    out->change = TM_CHANGE_TIMED;
    if (!view->event) return 0;
    int now = view->standing.layout;
    out->layout = widest(policy->layouts, fixed_depth(policy->layouts), view->after);
    double neighbours = view->before > 1 ? (double)view->lost * (view->lost - 1) / (view->before - 1) : 0;
    double fatal = neighbours < 1 ? neighbours : 1; /* probability that two neighbours are among those lost */
    if (out->layout != now)
        out->pause_ms = GLOBAL_MS + fatal * CREATE_MS;
    else if (view->lost > 0)
        out->pause_ms = LOCAL_MS + fatal * (GLOBAL_MS + CREATE_MS - LOCAL_MS);
    return 0;
}

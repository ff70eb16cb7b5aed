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

/* Bamboo's figures: 20 s to put a spare in a lost place, 30 s to form all pipelines anew, 45 s more when two neighbours
 * went at once, so that nobody holds their layers. Depths are those of its released simulator: 12 for GPT-2 and BERT, 6
 * for convolutional networks. */
enum { LOCAL_MS = 20000, GLOBAL_MS = 30000, CREATE_MS = 45000, BLOCKS_DEPTH = 12, CONVOLUTIONS_DEPTH = 6 };

static bool has_depth(const struct tm_layouts *layouts, int depth)
{
    for (int pipelines = layouts->instances_max / depth; pipelines > 0; pipelines--)
        if (layouts->list[tm_layouts_find(layouts, pipelines, depth)].samples_per_s > 0) return true;
    return false;
}

/* The depth it trains with: its own, or the nearest that there is. Every instance holds the state of its own stage and
 * of the next, so it takes at least twice as many as the model needs. 0: there is none, and the model cannot be
 * trained. */
static int fixed_depth(const struct tm_layouts *layouts)
{
    int least = 1;
    while (least <= layouts->stages_max && !has_depth(layouts, least))
        least++;
    int first = layouts->convolutions ? CONVOLUTIONS_DEPTH : BLOCKS_DEPTH;
    int lowest = least > 1 ? 2 * least : 1;
    if (first < lowest) first = lowest;
    for (int depth = first; depth >= lowest; depth--)
        if (depth <= layouts->stages_max && has_depth(layouts, depth)) return depth;
    for (int depth = first + 1; depth <= layouts->stages_max; depth++)
        if (has_depth(layouts, depth)) return depth;
    return 0;
}

static int widest(const struct tm_layouts *layouts, int depth, int instances)
{
    for (int pipelines = depth > 0 ? instances / depth : 0; pipelines > 0; pipelines--) {
        int layout = tm_layouts_find(layouts, pipelines, depth);
        if (layouts->list[layout].samples_per_s > 0) return layout;
    }
    return TM_LAYOUT_PAUSE;
}

/* Everybody also does the forward passes of the next stage: a third of a turn for every micro-batch, of which the
 * bubbles of the pipeline, a turn for every other stage, hide what they can; half, where the number of micro-batches is
 * not known. */
static double pace_of(const struct tm_layouts *layouts, const struct tm_layout *layout)
{
    if (layout->stages < 2) return 1; /* no neighbour */
    double micro_batches = layouts->micro_batches / layout->pipelines, bubbles = layout->stages - 1;
    if (!(micro_batches > 0)) return 1 / (1 + 1.0 / 6);
    double extra = micro_batches / 3 - bubbles;
    return extra > 0 ? 1 / (1 + extra / (micro_batches + bubbles)) : 1;
}

int tm_policy__redundant(struct tm_policy *policy, const struct tm_view *view, struct tm_decision *out,
                         struct tm_error *e)
{
    (void)e;
    out->change = TM_CHANGE_TIMED;
    out->pace = pace_of(policy->layouts, &policy->layouts->list[view->standing.layout]);
    if (!view->event) return 0;
    int now = view->standing.layout;
    out->layout = widest(policy->layouts, fixed_depth(policy->layouts), view->after);
    out->pace = pace_of(policy->layouts, &policy->layouts->list[out->layout]);
    double neighbours = view->before > 1 ? (double)view->lost * (view->lost - 1) / (view->before - 1) : 0;
    double fatal = neighbours < 1 ? neighbours : 1; /* probability that two neighbours are among those lost */
    if (out->layout != now)
        out->pause_ms = GLOBAL_MS + fatal * CREATE_MS;
    else if (view->lost > 0)
        out->pause_ms = LOCAL_MS + fatal * (GLOBAL_MS + CREATE_MS - LOCAL_MS);
    return 0;
}

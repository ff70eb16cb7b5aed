#include "run/decide_policy.h"

#include "base/alloc.h"
#include "base/log.h"

#include <string.h>

enum { HORIZON = 12 };

/* All that a decision depends on: asked the same again, as at every tick, the answer is at hand. */
struct question {
    int shape;
    int before;
    int lost;
    int after;
};

struct tm_policy_decider {
    struct tm_policy_rule rule;
    struct tm_policy *policy;
    struct question asked;
    bool answered;
    int answer;
};

int tm_policy_decider_create(const struct tm_policy_rule *rule, struct tm_policy_decider **out, struct tm_error *e)
{
    if (rule->info->knows != TM_KNOWS_PAST && rule->info->knows != TM_KNOWS_EVENT)
        return tm_error_set(e, TM_EUSAGE, "policy \"%s\" knows the future: it can be simulated, not run",
                            rule->info->name);
    struct tm_policy_decider *decider = tm_calloc(1, sizeof *decider);
    if (decider == NULL) return tm_error_nomem(e);
    decider->rule = *rule;
    int rc = tm_policy_create(rule->info, rule->shapes, rule->migrations, rule->cost, &decider->policy, e);
    if (rc != 0) {
        tm_free(decider);
        return rc;
    }
    *out = decider;
    return 0;
}

void tm_policy_decider_destroy(struct tm_policy_decider *decider)
{
    if (decider == NULL) return;
    tm_policy_destroy(decider->policy);
    tm_free(decider);
}

/* The fleet before and after this moment. Arrivals and losses since the generation started are this moment's event. */
static struct question ask_of(const struct tm_policy_decider *decider, const struct tm_run_view *view)
{
    const struct tm_shapes *shapes = decider->rule.shapes;
    struct question question = {.before = (int)view->last_workers, .after = (int)view->worker_count};
    question.lost = (int)(view->last_workers - view->last_here);
    if (question.after > shapes->nodes_max) question.after = shapes->nodes_max;
    if (question.before > shapes->nodes_max) question.before = shapes->nodes_max;
    if (question.lost > question.before) question.lost = question.before;
    question.shape = tm_shapes_find(shapes, (int)view->last_pipelines, (int)view->last_stages);
    if (shapes->list[question.shape].nodes > question.before) question.shape = TM_SHAPE_PAUSE;
    return question;
}

static int decide_shape(struct tm_policy_decider *decider, const struct question *question)
{
    double interval_s = decider->rule.interval_s;
    struct tm_ahead ahead[HORIZON];
    bool told = decider->rule.info->knows == TM_KNOWS_EVENT;
    int after = told ? question->after : question->before;
    ahead[0] = (struct tm_ahead){interval_s, question->before, told ? question->lost : 0, after};
    for (int i = 1; i < HORIZON; i++)
        ahead[i] = (struct tm_ahead){interval_s, after, 0, after};
    struct tm_view view = {.standing = {question->shape, 0},
                           .first = question->before == 0,
                           .event = told && (question->lost > 0 || question->after != question->before),
                           .before = question->before,
                           .lost = told ? question->lost : 0,
                           .after = after,
                           .noticed = true,
                           .interval_s = interval_s,
                           .ahead = ahead,
                           .ahead_count = HORIZON};
    struct tm_decision decision = {.shape = TM_SHAPE_PAUSE};
    struct tm_error e;
    if (tm_policy_decide(decider->policy, &view, &decision, &e) != 0) {
        tm_log(TM_LOG_WARN, "the policy has no answer, the fastest layout is used: %s", e.text);
        decision.shape = decider->rule.shapes->best[question->after];
    }
    return tm_policy_realise(decider->rule.shapes, decision.shape, question->after);
}

static bool copy_due(const struct tm_policy_rule *rule, const struct tm_run_view *view)
{
    int64_t every_ms = view->only_one_replica ? rule->copy_every_alone_ms : rule->copy_every_ms;
    if (every_ms <= 0 || view->applied <= view->copied_step) return false;
    return view->since_copy_ms < 0 || view->since_copy_ms >= every_ms || view->applied == view->steps;
}

static void decide(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    struct tm_policy_decider *decider = context;
    const struct tm_shapes *shapes = decider->rule.shapes;
    struct question question = ask_of(decider, view);
    *out = (struct tm_run_decision){.copy = copy_due(&decider->rule, view)};
    if (decider->rule.workers_max > 0) out->want_spot = (uint32_t)decider->rule.workers_max;
    if (question.after < decider->rule.workers_min || question.after == 0) return;
    if (!decider->answered || memcmp(&question, &decider->asked, sizeof question) != 0) {
        decider->answer = decide_shape(decider, &question);
        decider->asked = question;
        decider->answered = true;
    }
    const struct tm_shape *shape = &shapes->list[decider->answer];
    const struct tm_cut *cut = &shapes->cuts[shape->stages];
    bool fits = shape->pipelines > 0 && shape->stages <= TM_STAGES_MAX && shape->stages <= (int)view->layers &&
                shapes->layer_count == (int)view->layers;
    if (!fits) return;
    out->pipelines = (uint32_t)shape->pipelines;
    if (out->pipelines > view->micro_batches) out->pipelines = view->micro_batches;
    out->stages = (uint32_t)shape->stages;
    out->predicted_step_ms = (uint32_t)(shape->step_s * 1000);
    for (int s = 0; s <= shape->stages; s++)
        out->stage_first[s] = (uint32_t)cut->first[s];
}

struct tm_decider tm_policy_decider_get(struct tm_policy_decider *decider)
{
    return (struct tm_decider){.context = decider, .decide = decide};
}

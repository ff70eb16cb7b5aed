#include "run/alert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const double budget_share = 0.8;
static const double settled_share = 0.05; /* of the steps: before that, throughput says little of the rest ... */
static const double late_share = 0.25;    /* ... unless so much of the time is gone */

struct looking {
    struct tm_alerts *alerts;
    void (*raise)(void *context, enum tm_alert alert, const char *text);
    void *context;
};

static void set(const struct looking *l, enum tm_alert alert, bool is, const char *text)
{
    bool news = is && !l->alerts->raised[alert];
    l->alerts->raised[alert] = is;
    if (news) l->raise(l->context, alert, text);
}

static void look_at_end(const struct looking *l, const struct tm_run_status *s)
{
    char text[TM_ALERT_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s is finished: %" PRIu64 " steps, $%.2f", s->job.name, s->committed,
                   s->bill_usd);
    set(l, TM_ALERT_FINISHED, s->state == TM_JOB_FINISHED, text);
    (void)snprintf(text, sizeof text, "%s failed at step %" PRIu64 ": %s", s->job.name, s->committed, s->reason);
    set(l, TM_ALERT_FAILED, s->state == TM_JOB_FAILED || (s->state == TM_JOB_STOPPED && s->gave_up), text);
    (void)snprintf(text, sizeof text, "%s is stopped at step %" PRIu64 " of %" PRIu64, s->job.name, s->committed,
                   s->job.steps);
    set(l, TM_ALERT_STOPPED, s->state == TM_JOB_STOPPED && !s->gave_up, text);
}

static void look_at_budget(const struct looking *l, const struct tm_run_status *s)
{
    char text[TM_ALERT_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s has spent $%.2f of its budget of $%.2f, at step %" PRIu64 " of %" PRIu64,
                   s->job.name, s->bill_usd, s->budget_usd, s->committed, s->job.steps);
    set(l, TM_ALERT_BUDGET, s->budget_usd > 0 && s->bill_usd >= budget_share * s->budget_usd, text);
}

static void look_at_deadline(const struct looking *l, const struct tm_alert_limits *limits,
                             const struct tm_run_status *s)
{
    char text[TM_ALERT_TEXT_MAX];
    double speed = s->job.speed > 0 ? s->job.speed : 1;
    double share = s->job.steps > 0 ? (double)s->committed / (double)s->job.steps : 0;
    double end_s = share > 0 ? s->wall_s * speed / share : 0;
    double asked = limits->probability > 0 ? limits->probability : 0.5;
    tm_outlook__keep(&l->alerts->outlook, s->wall_s, (double)s->committed);
    double probability = tm_outlook__probability(&l->alerts->outlook, (double)s->job.steps - (double)s->committed,
                                                 s->deadline_s / speed - s->wall_s);
    bool settled = share >= settled_share || s->wall_s * speed >= late_share * s->deadline_s;
    bool none = s->committed == 0;
    bool slow = settled && (none || (isnan(probability) ? end_s > s->deadline_s : probability < asked));
    if (slow && none)
        (void)snprintf(text, sizeof text,
                       "%s is in danger of missing its deadline of %.1f h: no step is committed after %.1f h",
                       s->job.name, s->deadline_s / 3600, s->wall_s * speed / 3600);
    else if (slow && !isnan(probability))
        (void)snprintf(text, sizeof text,
                       "%s is in danger of missing its deadline of %.1f h: the probability of meeting it is %.0f%%, "
                       "below %.0f%%",
                       s->job.name, s->deadline_s / 3600, 100 * probability, 100 * asked);
    else
        (void)snprintf(text, sizeof text,
                       "%s will miss its deadline: at its throughput so far it takes %.1f h, and has %.1f h",
                       s->job.name, end_s / 3600, s->deadline_s / 3600);
    set(l, TM_ALERT_DEADLINE, s->deadline_s > 0 && (slow || s->wall_s * speed > s->deadline_s), text);
}

static void look_at_pace(const struct looking *l, const struct tm_alert_limits *limits, const struct tm_run_status *s,
                         int64_t now_ms)
{
    char text[TM_ALERT_TEXT_MAX];
    struct tm_alerts *a = l->alerts;
    bool waits = s->state == TM_JOB_WAITING || s->state == TM_JOB_STARTING;
    if (s->committed != a->committed || a->moved_ms == 0 || waits) a->moved_ms = now_ms;
    a->committed = s->committed;
    if (!waits)
        a->waits_ms = 0;
    else if (a->waits_ms == 0)
        a->waits_ms = now_ms;
    (void)snprintf(text, sizeof text, "%s has committed no step for %.0f s, at step %" PRIu64, s->job.name,
                   (double)(now_ms - a->moved_ms) / 1000, s->committed);
    set(l, TM_ALERT_STALLED, s->state == TM_JOB_TRAINING && (double)(now_ms - a->moved_ms) / 1000 >= limits->patience_s,
        text);
    (void)snprintf(text, sizeof text,
                   "%s has waited for instances for %.0f s: %" PRIu32 " are here, %" PRIu32 " wanted", s->job.name,
                   (double)(now_ms - a->waits_ms) / 1000, s->here, s->want_spot + s->want_on_demand);
    set(l, TM_ALERT_CAPACITY, waits && (double)(now_ms - a->waits_ms) / 1000 >= limits->patience_s, text);
}

void tm_alerts__look(struct tm_alerts *alerts, const struct tm_alert_limits *limits, const struct tm_run_status *status,
                     int64_t now_ms, void (*raise)(void *context, enum tm_alert alert, const char *text), void *context)
{
    struct looking l = {.alerts = alerts, .raise = raise, .context = context};
    bool over = status->state == TM_JOB_FINISHED || status->state == TM_JOB_FAILED || status->state == TM_JOB_STOPPED;
    look_at_end(&l, status);
    if (status->state != TM_JOB_FINISHED) look_at_budget(&l, status); /* it may be why it is stopped */
    if (over) return;
    look_at_deadline(&l, limits, status);
    look_at_pace(&l, limits, status, now_ms);
}

#include "run/fleet_watch.h"

enum { INTERVALS_BACK_MAX = 2000 };

void tm_fleet_watch__init(struct tm_fleet_watch *watch, const struct tm_fleet_learner *learner, int64_t interval_ms)
{
    *watch = (struct tm_fleet_watch){.learner = *learner, .interval_ms = interval_ms};
}

static bool is_lost(const Tmw__Instance *instance)
{
    return instance->spot && instance->end_ms != 0 && !instance->released;
}

struct change {
    int count, arrived, lost;
};

/* Spot instances at a time, and what changed in the interval before it. */
static struct change at_time(const struct tm_run_cloud *cloud, int64_t time_ms, int64_t since_ms)
{
    struct change change = {0};
    for (size_t i = 0; i < cloud->instance_count; i++) {
        const Tmw__Instance *instance = &cloud->instances[i];
        if (!instance->spot || instance->start_ms > time_ms) continue;
        bool here = instance->end_ms == 0 || instance->end_ms > time_ms;
        change.count += here;
        change.arrived += instance->start_ms > since_ms;
        change.lost += !here && instance->end_ms > since_ms && is_lost(instance);
    }
    return change;
}

static int observe(struct tm_fleet_watch *watch, const struct tm_run_cloud *cloud, struct tm_error *e)
{
    bool first = watch->observations == 0;
    /* At first the fleet only gathers: from that a forecast would learn of arrivals that never come again. */
    int64_t gathered_ms = first ? watch->interval_ms / 2 : 0;
    struct change change = at_time(cloud, watch->next_ms + gathered_ms, watch->next_ms - watch->interval_ms);
    int rc = watch->learner.observe(watch->learner.context, change.count, first ? 0 : change.arrived,
                                    first ? 0 : change.lost, e);
    if (rc != 0) return rc;
    watch->count = change.count;
    watch->observations++;
    watch->next_ms += watch->interval_ms;
    return 0;
}

static void begin(struct tm_fleet_watch *watch, const struct tm_run_cloud *cloud)
{
    int64_t first_ms = INT64_MAX;
    for (size_t i = 0; i < cloud->instance_count; i++)
        if (cloud->instances[i].spot && cloud->instances[i].start_ms < first_ms)
            first_ms = cloud->instances[i].start_ms;
    if (first_ms == INT64_MAX || cloud->now_ms < first_ms + watch->interval_ms / 2) return;
    int64_t back_ms = watch->interval_ms * INTERVALS_BACK_MAX;
    watch->next_ms = cloud->now_ms - first_ms > back_ms ? cloud->now_ms - back_ms : first_ms;
    watch->begun = true;
}

static void hear_notices(struct tm_fleet_watch *watch, const struct tm_run_cloud *cloud)
{
    for (size_t i = 0; i < cloud->instance_count; i++) {
        const Tmw__Instance *instance = &cloud->instances[i];
        bool heard = !instance->spot || !instance->announced || instance->end_ms != 0;
        for (size_t k = 0; k < watch->hint_count && k < TM_FLEET_HINTS_MAX; k++)
            heard = heard || watch->hinted[k] == instance->id;
        if (heard) continue;
        watch->hinted[watch->hint_count++ % TM_FLEET_HINTS_MAX] = instance->id;
        watch->learner.hint(watch->learner.context, 1, (double)instance->notice_left_ms * cloud->speed / 1000);
    }
}

int tm_fleet_watch__update(struct tm_fleet_watch *watch, const struct tm_run_cloud *cloud, struct tm_error *e)
{
    if (!cloud->known) return 0;
    if (!watch->begun) begin(watch, cloud);
    while (watch->begun && watch->next_ms <= cloud->now_ms) {
        int rc = observe(watch, cloud, e);
        if (rc != 0) return rc;
    }
    if (watch->observations > 0) hear_notices(watch, cloud);
    return 0;
}

/* ---- how often ---- */

static bool another_near(const struct tm_run_cloud *cloud, size_t one, int64_t interval_ms)
{
    for (size_t i = 0; i < cloud->instance_count; i++) {
        int64_t apart_ms = cloud->instances[i].end_ms - cloud->instances[one].end_ms;
        if (i != one && is_lost(&cloud->instances[i]) && apart_ms > -interval_ms && apart_ms < interval_ms) return true;
    }
    return false;
}

struct tm_facts_losses tm_fleet_losses__of(const struct tm_run_cloud *cloud, int64_t interval_ms)
{
    double losses = 0, unannounced = 0, together = 0, seconds = 0;
    for (size_t i = 0; i < cloud->instance_count; i++) {
        const Tmw__Instance *instance = &cloud->instances[i];
        int64_t end_ms = instance->end_ms != 0 ? instance->end_ms : cloud->now_ms;
        if (!instance->spot || end_ms < instance->start_ms) continue;
        seconds += (double)(end_ms - instance->start_ms) / 1000;
        if (!is_lost(instance)) continue;
        losses++;
        unannounced += !instance->announced;
        together += another_near(cloud, i, interval_ms);
    }
    return tm_facts_losses_of(losses, unannounced, together, seconds);
}

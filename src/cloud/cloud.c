#include "cloud/cloud.h"

#include <math.h>
#include <stdio.h>

const char *tm_instance_kind__name(enum tm_instance_kind kind)
{
    return kind == TM_INSTANCE_SPOT ? "spot" : "on-demand";
}

const char *tm_instance_state_name(enum tm_instance_state state)
{
    static const char *const names[] = {"starting", "running", "noticed", "lost", "released"};
    return names[state];
}

const char *tm_cloud_event_kind_name(enum tm_cloud_event_kind kind)
{
    static const char *const names[] = {"arrived", "hint", "notice", "lost", "released", "refused"};
    return names[kind];
}

bool tm_instance_is_here(const struct tm_cloud_instance *instance)
{
    return instance->state == TM_INSTANCE_RUNNING || instance->state == TM_INSTANCE_NOTICED;
}

const struct tm_cloud_instance *tm_cloud_find(struct tm_cloud *cloud, uint64_t id)
{
    size_t count = 0;
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    return count > 0 && id >= all[0].id && id - all[0].id < count ? &all[id - all[0].id] : NULL;
}

void tm_cloud_pools__plain(struct tm_cloud_pool out[2])
{
    for (int i = 0; i < 2; i++) {
        out[i] = (struct tm_cloud_pool){.kind = i == TM_CLOUD_SPOT ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND,
                                        .price_usd_h = NAN};
        (void)snprintf(out[i].name, sizeof out[i].name, "%s", tm_instance_kind__name(out[i].kind));
    }
}

int64_t tm_cloud_wait_ms(struct tm_cloud *cloud, int pool, int most)
{
    size_t count = 0;
    int came = 0, waiting = 0;
    int64_t sum_ms = 0, longer_ms = 0, now_ms = cloud->now_ms(cloud);
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    for (size_t i = count; i-- > 0 && came < most;) {
        if (all[i].pool != pool || all[i].arrived_ms < 0 || all[i].recalled) continue;
        sum_ms += all[i].arrived_ms - all[i].asked_ms;
        came++;
    }
    for (size_t i = count; i-- > 0 && waiting < most;) {
        if (all[i].pool != pool || all[i].state != TM_INSTANCE_STARTING || all[i].recalled) continue;
        if (came > 0 && (now_ms - all[i].asked_ms) * came <= sum_ms) continue;
        longer_ms += now_ms - all[i].asked_ms;
        waiting++;
    }
    return came + waiting == 0 ? -1 : (sum_ms + longer_ms) / (came + waiting);
}

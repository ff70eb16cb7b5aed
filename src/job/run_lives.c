#include "job/run_lives.h"

#include "base/log.h"
#include "market/catalog.h"
#include "market/risk.h"
#include "market/starts.h"
#include "run/state_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FILE_BYTES_MAX = 16 << 20 };
#define HEADER "instance,gpu,zone,lifetime_s,end\n"

static bool was_preempted(const struct tm_cloud_pool *pool, const struct tm_cloud_instance *instance)
{
    return instance->state == TM_INSTANCE_LOST && (instance->noticed_ms >= 0 || pool->notice_ms == 0);
}

static const char *type_of(const struct tm_run_lives *lives, const struct tm_cloud_pool *pool,
                           const struct tm_cloud_instance *instance)
{
    if (instance->type[0] != '\0') return instance->type;
    if (pool->type[0] != '\0') return pool->type;
    return lives->type != NULL ? lives->type : "";
}

static const struct tm_instance_type *find_type(const struct tm_catalog *catalog, const struct tm_run_lives *lives,
                                                const char *name)
{
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *type = &catalog->instances[i];
        if (strcasecmp(type->name, name) == 0 && (lives->emulated || strcasecmp(type->cloud, lives->cloud) == 0))
            return type;
    }
    return NULL;
}

/* One life, as a row of a pool. */
static void count_life(double age_h, bool preempted, struct tm_risk_pool *out)
{
    for (int b = 0; b < TM_AGE_BINS && age_h > tm_age_bin_h[b]; b++) {
        out->age_hours[b] += fmin(age_h, tm_age_bin_h[b + 1]) - tm_age_bin_h[b];
        if (preempted && (age_h <= tm_age_bin_h[b + 1] || b == TM_AGE_BINS - 1)) out->age_lost[b] += 1;
    }
    out->instances = 1;
}

struct keeping {
    struct tm_env *env;
    const struct tm_run_lives *lives;
    const struct tm_catalog *catalog;
    struct tm_text text;
};

static int keep_one(struct keeping *keeping, const struct tm_cloud_pool *pool, const struct tm_cloud_instance *instance,
                    int64_t now_ms, struct tm_error *e)
{
    int64_t end_ms = instance->gone_ms >= 0 ? instance->gone_ms : now_ms;
    /* An emulated cloud's own zones are nowhere. */
    bool placed = instance->zone[0] != '\0' && !keeping->lives->emulated;
    const char *zone = placed ? instance->zone : pool->zone;
    const char *name = type_of(keeping->lives, pool, instance);
    const struct tm_instance_type *type = find_type(keeping->catalog, keeping->lives, name);
    bool preempted = was_preempted(pool, instance);
    if (instance->kind != TM_INSTANCE_SPOT || instance->arrived_ms < 0 || end_ms <= instance->arrived_ms) return 0;
    double seconds = (double)(end_ms - instance->arrived_ms) / 1000;
    tm_text_printf(&keeping->text, "%s,%s,%s,%.0f,%s\n", name, type != NULL ? type->gpu : "", zone, ceil(seconds),
                   preempted                             ? "preempted"
                   : instance->state == TM_INSTANCE_LOST ? "failed"
                                                         : "stopped");
    if (keeping->lives->emulated || name[0] == '\0') return 0;
    char region[64] = "";
    if (zone[0] != '\0') tm_risk_region(zone, region);
    struct tm_risk_pool learned = {.cloud = keeping->lives->cloud,
                                   .instance = name,
                                   .gpu = type != NULL ? type->gpu : "",
                                   .gpus = type != NULL ? type->gpus : 0,
                                   .region = region,
                                   .zone = zone,
                                   .campaign = TM_RISK_OWN};
    count_life(seconds / 3600, preempted, &learned);
    return tm_risk_learn(keeping->env, &learned, 1, e);
}

int tm_run_lives__keep(struct tm_env *env, struct tm_cloud *cloud, const struct tm_run_lives *lives, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct keeping keeping = {.env = env, .lives = lives, .catalog = &catalog};
    char path[TM_STATE_PATH_MAX];
    size_t count = 0;
    int pool_count = 0;
    tm_catalog_init(&catalog);
    tm_text_init(&keeping.text, FILE_BYTES_MAX);
    tm_state_path(lives->dir, TM_STATE_LIFETIMES, path);
    int rc = tm_catalog_load(env, &catalog, e);
    if (rc == 0) rc = env->file_read(env, path, &keeping.text, e); /* of an earlier program of this run */
    if (rc == -(int)TM_ENOTFOUND) {
        tm_text_clear(&keeping.text);
        tm_text_puts(&keeping.text, HEADER);
        rc = 0;
    }
    size_t before = keeping.text.length;
    const struct tm_cloud_pool *pools = cloud->pools(cloud, &pool_count);
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    int64_t now_ms = cloud->now_ms(cloud);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (all[i].pool >= 0 && all[i].pool < pool_count)
            rc = keep_one(&keeping, &pools[all[i].pool], &all[i], now_ms, e);
    if (rc == 0) rc = tm_text_status(&keeping.text, e);
    if (rc == 0 && keeping.text.length > before)
        rc = tm_state_write(env, lives->dir, TM_STATE_LIFETIMES, tm_text_string(&keeping.text), e);
    tm_text_deinit(&keeping.text);
    tm_catalog_deinit(&catalog);
    return rc;
}

/* Where an instance was waited for: a partition, or its type in its zone. False: nobody can say. */
static bool place_of(const struct tm_cloud_pool *pool, const struct tm_cloud_instance *instance,
                     char out[TM_START_NAME_MAX])
{
    const char *zone = instance->zone;
    const char *type = instance->type[0] != '\0' ? instance->type : pool->type;
    bool queue = type[0] == '\0' || strcmp(type, zone) == 0;
    if (queue)
        (void)snprintf(out, TM_START_NAME_MAX, "%s", zone);
    else
        tm_starts_place(type, zone, out);
    return zone[0] != '\0';
}

/* Waits of one run: by place, those that came, and of those that did not, the ones that waited for longer already. */
struct waits {
    const char *cloud;
    struct tm_start list[TM_CLOUD_POOLS_MAX];
    double came[TM_CLOUD_POOLS_MAX];   /* of what was seen */
    double came_s[TM_CLOUD_POOLS_MAX]; /* on average */
    size_t count;
};

static struct tm_start *at_place(struct waits *waits, const char *place)
{
    size_t w = 0;
    while (w < waits->count && strcmp(waits->list[w].place, place) != 0)
        w++;
    if (w == TM_CLOUD_POOLS_MAX) return NULL;
    if (w == waits->count) {
        waits->list[waits->count++] = (struct tm_start){.at_least = true};
        waits->came[w] = waits->came_s[w] = 0;
        (void)snprintf(waits->list[w].cloud, sizeof waits->list[w].cloud, "%s", waits->cloud);
        (void)snprintf(waits->list[w].place, sizeof waits->list[w].place, "%s", place);
    }
    return &waits->list[w];
}

/* One that came, or that waited until now or until nobody wanted it any more: then it is known only that it takes
 * longer, which counts where those that came were quicker, or where none came. */
static void take_wait(struct waits *waits, const char *place, bool came, double seconds)
{
    struct tm_start *wait = at_place(waits, place);
    if (wait == NULL || seconds < 0) return;
    size_t w = (size_t)(wait - waits->list);
    if (!came && waits->came[w] == 0) {
        wait->seconds = fmax(wait->seconds, seconds);
        wait->seen = 1;
        return;
    }
    if (!came && seconds <= waits->came_s[w]) return;
    wait->seconds = (wait->seconds * wait->seen + seconds) / (wait->seen + 1);
    wait->seen++;
    if (!came) return;
    wait->at_least = false;
    waits->came[w]++;
    waits->came_s[w] = wait->seconds;
}

static void tell_waits(const struct waits *waits)
{
    for (size_t i = 0; i < waits->count; i++) {
        const struct tm_start *wait = &waits->list[i];
        double longer = wait->seen - waits->came[i];
        tm_log(TM_LOG_INFO, "%s %s: %.0f %s waited for, %.1f s on average%s; the next run counts with that",
               wait->cloud, wait->place, wait->seen, wait->seen > 1 ? "instances were" : "instance was", wait->seconds,
               longer <= 0          ? ""
               : waits->came[i] > 0 ? ", and some did not come so far"
                                    : " so far, and none came");
    }
}

int tm_run_lives__keep_waits(struct tm_env *env, struct tm_cloud *cloud, const char *name, struct tm_error *e)
{
    struct waits waits = {.cloud = name};
    size_t count = 0;
    int pool_count = 0;
    const struct tm_cloud_pool *pools = cloud->pools(cloud, &pool_count);
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    if (!cloud->learns_start) return 0;
    int64_t now_ms = cloud->now_ms(cloud);
    for (int came = 1; came >= 0; came--)
        for (size_t i = 0; i < count; i++) {
            const struct tm_cloud_instance *one = &all[i];
            char place[TM_START_NAME_MAX];
            if ((one->arrived_ms >= 0) != came || one->recalled || one->ungranted) continue;
            if (one->pool < 0 || one->pool >= pool_count || !place_of(&pools[one->pool], one, place)) continue;
            int64_t until_ms = came ? one->arrived_ms : one->gone_ms >= 0 ? one->gone_ms : now_ms;
            take_wait(&waits, place, came, (double)(until_ms - one->asked_ms) / 1000);
        }
    int rc = waits.count > 0 ? tm_starts_learn(env, waits.list, waits.count, e) : 0;
    if (rc == 0) tell_waits(&waits);
    return rc;
}

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

static void tell_waits(const struct tm_start *waits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tm_log(TM_LOG_INFO, "%s %s: %.0f %s came after %.1f s on average; the next run counts with that",
               waits[i].cloud, waits[i].place, waits[i].seen, waits[i].seen > 1 ? "instances" : "instance",
               waits[i].seconds);
}

int tm_run_lives__keep_waits(struct tm_env *env, struct tm_cloud *cloud, const char *name, struct tm_error *e)
{
    struct tm_start waits[TM_CLOUD_POOLS_MAX];
    size_t count = 0, learned = 0;
    int pool_count = 0;
    const struct tm_cloud_pool *pools = cloud->pools(cloud, &pool_count);
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    for (size_t i = 0; cloud->learns_start && i < count; i++) {
        char place[TM_START_NAME_MAX];
        size_t w = 0;
        if (all[i].arrived_ms < 0 || all[i].recalled || all[i].pool < 0 || all[i].pool >= pool_count) continue;
        if (!place_of(&pools[all[i].pool], &all[i], place)) continue;
        while (w < learned && strcmp(waits[w].place, place) != 0)
            w++;
        if (w == TM_CLOUD_POOLS_MAX) continue;
        if (w == learned) {
            waits[learned++] = (struct tm_start){.seen = 0};
            (void)snprintf(waits[w].cloud, sizeof waits[w].cloud, "%s", name);
            (void)snprintf(waits[w].place, sizeof waits[w].place, "%s", place);
        }
        double seconds = (double)(all[i].arrived_ms - all[i].asked_ms) / 1000;
        waits[w].seconds = (waits[w].seconds * waits[w].seen + seconds) / (waits[w].seen + 1);
        waits[w].seen++;
    }
    int rc = learned > 0 ? tm_starts_learn(env, waits, learned, e) : 0;
    if (rc == 0) tell_waits(waits, learned);
    return rc;
}

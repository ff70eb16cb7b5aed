#include "base/units.h"
#include "base/yaml_print.h"
#include "market/trace_draw.h"
#include "plan/emit_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DOCUMENT_BYTES_MAX = 64 << 20 };

/* A document that is changed. */
struct document {
    struct tm_arena arena;
    struct tm_node *root;
};

static int put(struct document *d, struct tm_node *map, const char *key, const char *text, struct tm_error *e)
{
    return text == NULL ? 0 : tm_node_put_text(&d->arena, map, key, text, false, e);
}

static int put_integer(struct document *d, struct tm_node *map, const char *key, int64_t value, struct tm_error *e)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return put(d, map, key, text, e);
}

static int put_number(struct document *d, struct tm_node *map, const char *key, double value, struct tm_error *e)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.15g", value);
    return put(d, map, key, text, e);
}

/* The shortest that reads back as the same. */
static int put_ms(struct document *d, struct tm_node *map, const char *key, int64_t ms, struct tm_error *e)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    char text[40];
    size_t i = 0;
    while (ms % units[i].ms != 0)
        i++;
    (void)snprintf(text, sizeof text, "%lld%s", (long long)(ms / units[i].ms), units[i].unit);
    return put(d, map, key, text, e);
}

/* A map of the document; made where there is none. */
static int map_of(struct document *d, struct tm_node *parent, const char *key, struct tm_node **out, struct tm_error *e)
{
    *out = tm_node_find(parent, key);
    if (*out != NULL && (*out)->kind == TM_NODE_MAP) return 0;
    *out = tm_node_make(&d->arena, TM_NODE_MAP);
    return tm_node_put(&d->arena, parent, key, *out, e);
}

/* ---- what options say ---- */

static int put_list(struct document *d, struct tm_node *map, const char *key, const char *text, struct tm_error *e)
{
    struct tm_node *list = tm_node_make(&d->arena, TM_NODE_LIST);
    int rc = tm_node_put(&d->arena, map, key, list, e);
    while (rc == 0 && *text != '\0') {
        size_t length = strcspn(text, ",");
        const char *item = tm_arena_strndup(&d->arena, text, length);
        if (item == NULL) return tm_error_nomem(e);
        if (length > 0) rc = tm_node_put_text(&d->arena, list, NULL, item, false, e);
        text += length + (text[length] == ',');
    }
    return rc;
}

static int put_keys(struct document *d, const struct tm_emit *emit, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < emit->key_count; i++) {
        const struct tm_emit_key *key = &emit->keys[i];
        struct tm_node *map = d->root;
        if (key->text == NULL) {
            if (key->map != NULL) map = tm_node_find(d->root, key->map);
            if (map != NULL) (void)tm_node_take(map, key->key);
            continue;
        }
        if (key->map != NULL) rc = map_of(d, d->root, key->map, &map, e);
        if (rc == 0) rc = key->list ? put_list(d, map, key->key, key->text, e) : put(d, map, key->key, key->text, e);
    }
    return rc;
}

/* What a run counts in is steps and micro-batches: whoever gave samples and no batch gets those of the plan. */
static int put_work(struct document *d, const struct tm_emit *emit, struct tm_error *e)
{
    const struct tm_job *job = emit->job;
    int64_t batch = emit->request->supply.batch;
    int64_t steps = (int64_t)ceil(emit->request->job.samples / (double)batch);
    int64_t said = job != NULL && tm_node_find(d->root, "steps") != NULL ? job->steps : 0;
    int64_t micro_batch = job != NULL ? job->micro_batch : 0;
    int rc = job == NULL || job->batch != batch ? put_integer(d, d->root, "batch", batch, e) : 0;
    if (rc == 0 && said != steps) rc = put_integer(d, d->root, "steps", steps, e);
    if (rc == 0 && (micro_batch < 1 || batch % micro_batch != 0)) {
        micro_batch = emit->answer->prediction.micro_batch > 0 ? emit->answer->prediction.micro_batch : 1;
        while (micro_batch > 1 && (micro_batch > batch || batch % micro_batch != 0))
            micro_batch--;
        rc = put_integer(d, d->root, "micro_batch", micro_batch, e);
    }
    return rc;
}

/* ---- files that the job names ---- */

static int put_absolute(struct document *d, const struct tm_emit *emit, struct tm_node *map, const char *key,
                        struct tm_error *e)
{
    const struct tm_node *node = tm_node_find(map, key);
    if (node == NULL || node->kind != TM_NODE_SCALAR || node->text[0] == '/') return 0;
    const char *path = tm_arena_printf(&d->arena, "%s/%s", emit->folder, node->text);
    if (path == NULL) return tm_error_nomem(e);
    return emit->env->file_exists(emit->env, path) ? put(d, map, key, path, e) : 0;
}

static int put_paths(struct document *d, const struct tm_emit *emit, struct tm_error *e)
{
    static const char *const keys[] = {"model", "profile", "data", "workdir"};
    struct tm_node *fleet = tm_node_find(d->root, "fleet");
    int rc = 0;
    if (emit->folder == NULL) return 0;
    for (size_t i = 0; rc == 0 && i < sizeof keys / sizeof *keys; i++)
        rc = put_absolute(d, emit, d->root, keys[i], e);
    if (rc == 0 && fleet != NULL && fleet->kind == TM_NODE_MAP) rc = put_absolute(d, emit, fleet, "trace", e);
    bool runs = tm_node_find(d->root, "run") != NULL && tm_node_find(d->root, "workdir") == NULL;
    return rc == 0 && runs ? put(d, d->root, "workdir", emit->folder, e) : rc;
}

/* ---- the fleet ---- */

struct pool {
    const struct tm_instance_type *instance;
    const struct tm_offer *offer;
    enum tm_pool_market market;
    enum tm_pool_role role;
    int count;
    int64_t mean_life_ms; /* 0: not said */
    bool choice;          /* so many at most: the policy rents what it wants of them */
};

static int put_pool(struct document *d, struct tm_node *list, const struct pool *pool, struct tm_error *e)
{
    struct tm_node *map = tm_node_make(&d->arena, TM_NODE_MAP);
    double usd_h = pool->market == TM_POOL_SPOT ? pool->offer->spot_usd_h : pool->offer->on_demand_usd_h;
    int rc = tm_node_put(&d->arena, list, NULL, map, e);
    if (rc == 0) rc = put(d, map, "instance", pool->instance->name, e);
    if (rc == 0) rc = put(d, map, "cloud", pool->instance->cloud, e);
    if (rc == 0) rc = put(d, map, "region", pool->offer->region, e);
    if (rc == 0 && pool->offer->zone[0] != '\0') rc = put(d, map, "zone", pool->offer->zone, e);
    if (rc == 0) rc = put(d, map, "market", tm_pool_market_names[pool->market], e);
    if (rc == 0) rc = put_integer(d, map, pool->choice ? "limit" : "count", pool->count, e);
    if (rc == 0) rc = put(d, map, "role", tm_pool_role_names[pool->role], e);
    if (rc == 0) rc = put_number(d, map, "price", (double)llround(usd_h * 1e6) / 1e6, e);
    if (rc == 0 && pool->mean_life_ms > 0) rc = put_ms(d, map, "mean_life", pool->mean_life_ms, e);
    return rc;
}

/* Several types that train, all spot: they train together, each with its share. A run takes them as choices. */
static bool trains_mixed(const struct tm_emit *emit)
{
    const struct tm_plan_fleet *chosen = &emit->answer->fleet;
    bool mixed = false;
    for (size_t i = 0; i < chosen->part_count; i++) {
        if (chosen->parts[i].on_demand > 0) return false;
        mixed = mixed || chosen->parts[i].instance != chosen->parts[0].instance;
    }
    return mixed && emit->trace == NULL;
}

static int put_pools(struct document *d, const struct tm_emit *emit, struct tm_node *fleet, struct tm_error *e)
{
    const struct tm_plan_fleet *chosen = &emit->answer->fleet;
    struct tm_node *list = tm_node_make(&d->arena, TM_NODE_LIST);
    bool mixed = trains_mixed(emit);
    (void)tm_node_take(fleet, "across_types");
    (void)tm_node_take(fleet, "rent");
    int rc = mixed ? put(d, fleet, "across_types", "true", e) : 0;
    if (rc == 0 && mixed) rc = put(d, fleet, "rent", "all", e); /* as planned, not only what is worth its money */
    if (rc == 0) rc = tm_node_put(&d->arena, fleet, "pools", list, e);
    for (size_t i = 0; rc == 0 && i < chosen->part_count; i++) {
        const struct tm_plan_part *part = &chosen->parts[i];
        struct pool pool = {part->instance, part->offer, TM_POOL_SPOT, TM_POOL_TRAINS, part->spot, 0, mixed};
        if (emit->trace == NULL)
            pool.mean_life_ms = llround(1000 / tm_supply__loss_rate(&emit->request->supply, part->offer));
        if (part->spot > 0) rc = put_pool(d, list, &pool, e);
        pool = (struct pool){part->instance, part->offer, TM_POOL_ON_DEMAND, TM_POOL_TRAINS, part->on_demand, 0, false};
        if (rc == 0 && part->on_demand > 0) rc = put_pool(d, list, &pool, e);
    }
    struct pool anchors = {chosen->anchor.instance,
                           chosen->anchor.offer,
                           TM_POOL_ON_DEMAND,
                           TM_POOL_KEEPS_COPIES,
                           chosen->anchor_instances,
                           0,
                           mixed};
    if (rc == 0 && chosen->anchor_instances > 0) rc = put_pool(d, list, &anchors, e);
    return rc;
}

static int put_losses(struct document *d, const struct tm_emit *emit, struct tm_node *fleet, struct tm_error *e)
{
    const struct tm_expect_job *job = &emit->request->job;
    double loss_per_s = emit->request->supply.loss_per_s;
    struct tm_node *losses = tm_node_make(&d->arena, TM_NODE_MAP);
    int rc = tm_node_put(&d->arena, fleet, "losses", losses, e);
    if (rc == 0 && loss_per_s > 0) rc = put_ms(d, losses, "mean_life", llround(1000 / loss_per_s), e);
    if (rc == 0) rc = put_number(d, losses, "bursts", job->burst_share, e);
    if (rc == 0 && job->burst_size > 0) rc = put_number(d, losses, "burst_size", job->burst_size, e);
    if (rc == 0) rc = put_ms(d, losses, "outage", llround(job->outage_s * 1000), e);
    if (rc == 0) rc = put_ms(d, losses, "replace", llround(job->replace_s * 1000), e);
    return rc;
}

static bool says_none(const struct tm_node *anchors)
{
    if (anchors != NULL && anchors->kind == TM_NODE_LIST && anchors->count == 1) anchors = anchors->first;
    return anchors != NULL && anchors->kind == TM_NODE_SCALAR && strcmp(anchors->text, "none") == 0;
}

/* Where the job says nothing of the fleet, it is what was planned; what was said of it before goes. */
static int put_fleet(struct document *d, const struct tm_emit *emit, struct tm_error *e)
{
    static const char *const older[] = {"pools",      "losses",          "limit",     "instance",
                                        "spot_price", "on_demand_price", "on_demand", "on_demand_trains"};
    struct tm_node *fleet = NULL;
    int rc = map_of(d, d->root, "fleet", &fleet, e);
    if (rc != 0) return rc;
    if (!says_none(tm_node_find(d->root, "anchors"))) (void)tm_node_take(d->root, "anchors");
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        (void)tm_node_take(fleet, older[i]);
    rc = put_pools(d, emit, fleet, e);
    if (rc != 0) return rc;
    if (emit->trace != NULL) return put(d, fleet, "trace", emit->trace, e);
    (void)tm_node_take(fleet, "trace");
    return put_losses(d, emit, fleet, e);
}

int tm_emit_job(const struct tm_emit *emit, struct tm_text *out, struct tm_error *e)
{
    struct document d = {0};
    const char *text = emit->job != NULL ? emit->job->document : NULL;
    tm_arena_init(&d.arena, DOCUMENT_BYTES_MAX);
    int rc = 0;
    if (text != NULL)
        rc = tm_doc_parse_yaml(emit->file, text, strlen(text), &d.arena, &d.root, e);
    else if ((d.root = tm_node_make(&d.arena, TM_NODE_MAP)) == NULL)
        rc = tm_error_nomem(e);
    if (rc == 0 && text == NULL) rc = put(&d, d.root, "name", "tidemill", e);
    if (rc == 0) rc = put_keys(&d, emit, e);
    if (rc == 0) rc = put_work(&d, emit, e);
    if (rc == 0) rc = put_fleet(&d, emit, e);
    if (rc == 0) rc = put_paths(&d, emit, e);
    if (rc == 0) {
        tm_emit__heading(emit, out);
        tm_yaml_print(d.root, out);
    }
    tm_arena_deinit(&d.arena);
    return rc;
}

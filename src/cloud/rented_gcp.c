#include "base/alloc.h"
#include "base/calendar.h"
#include "cloud/gcp_text.h"
#include "cloud/rented.h"
#include "web/gcp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 60000, WAIT_MS = 150000, TRIES = 6, PAGES_MAX = 1000, ITEMS_MAX = 1 << 20, WAITS_MAX = 5 };

struct search {
    struct tm_gcp *gcp;
    struct tm_web *web;
    const char *project;
};

static int open_search(struct tm_env *env, struct search *s, struct tm_error *e)
{
    *s = (struct search){.gcp = NULL};
    int rc = tm_gcp_create(env, &s->gcp, e);
    if (rc == 0) rc = tm_gcp_project(s->gcp, &s->project, e);
    if (rc == 0) rc = tm_web_create(env, &s->web, e);
    return rc;
}

static void close_search(struct search *s)
{
    tm_web_destroy(s->web);
    tm_gcp_destroy(s->gcp);
}

/* Asks, and reads the answer; 0: the caller owns *out. */
static int ask(struct search *s, struct tm_gcp_request *request, json_t **out, int *out_status, struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why;
    int rc = tm_gcp_ask(s->web, request, &answer, e);
    *out_status = rc == 0 ? answer.status : 0;
    if (rc != 0) return tm_error_wrap(e, rc, "project %s", s->project);
    if (answer.status >= 300) {
        rc = tm_gcp_refusal(&answer, &why, e);
        if (rc == 0)
            rc = tm_error_set(e, TM_EINPUT, "project %s: Google answers %d %s: %.300s", s->project, answer.status,
                              why.code, why.message);
    } else {
        rc = tm_json_load("Google's answer", tm_text_string(&answer.body), answer.body.length, out, e);
    }
    tm_web_answer_deinit(&answer);
    return rc;
}

static struct tm_gcp_request make_request(struct search *s, const char *method, const char *path)
{
    return (struct tm_gcp_request){.gcp = s->gcp,
                                   .service = TM_GCP_COMPUTE,
                                   .method = method,
                                   .path = path,
                                   .deadline_ms = ASK_MS,
                                   .tries_max = TRIES};
}

/* ---- finding ---- */

/* The catalogue's name of a machine type with accelerators, and its price. */
static void find_price(const struct tm_catalog *catalog, const json_t *item, const char *zone, struct tm_rented *r)
{
    const json_t *gpu = json_array_get(json_object_get(item, "guestAccelerators"), 0);
    const char *kind = json_string_value(json_object_get(gpu, "acceleratorType"));
    const char *slash = kind != NULL ? strrchr(kind, '/') : NULL;
    const char *accelerator = slash != NULL ? slash + 1 : kind != NULL ? kind : "";
    int count = (int)json_integer_value(json_object_get(gpu, "acceleratorCount"));
    char machine_type[sizeof r->type];
    memcpy(machine_type, r->type, sizeof machine_type);
    r->price_usd_h = NAN;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        struct tm_gcp__machine machine;
        if (strcmp(type->cloud, "gcp") != 0) continue;
        tm_gcp__machine(type->name, &machine);
        if (strcmp(machine.type, machine_type) != 0 || machine.count != count ||
            strcmp(machine.accelerator, accelerator) != 0)
            continue;
        (void)snprintf(r->type, sizeof r->type, "%.47s", type->name);
        if (strcmp(offer->region, r->region) != 0) continue;
        if (offer->zone[0] != '\0' && strcmp(offer->zone, zone) != 0) continue;
        double price = r->spot ? offer->spot_usd_h : offer->on_demand_usd_h;
        if (isnan(r->price_usd_h) && price > 0) r->price_usd_h = price;
    }
}

static int add_instance(const json_t *item, const struct tm_catalog *catalog, struct tm_rented_list *list,
                        struct tm_error *e)
{
    struct tm_vm__row row;
    const char *model = json_string_value(json_object_get(json_object_get(item, "scheduling"), "provisioningModel"));
    const char *job = json_string_value(json_object_get(json_object_get(item, "labels"), TM_GCP_LABEL_JOB));
    struct tm_rented r = {.spot = model != NULL && strcmp(model, "SPOT") == 0};
    char region[64];
    if (!tm_gcp__read_vm(item, &row) || job == NULL) return 0;
    tm_gcp__region(row.zone, region);
    (void)snprintf(r.id, sizeof r.id, "%s", row.id);
    (void)snprintf(r.region, sizeof r.region, "%.39s", region);
    (void)snprintf(r.type, sizeof r.type, "%.47s", row.type);
    (void)snprintf(r.job, sizeof r.job, "%.127s", job);
    (void)snprintf(r.state, sizeof r.state, "%.23s", row.reason);
    r.since_ms = row.launched_ms;
    find_price(catalog, item, row.zone, &r);
    int rc = tm_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof r, ITEMS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    list->items[list->count++] = r;
    return 0;
}

static int take_page(const json_t *root, const struct tm_catalog *catalog, struct tm_rented_list *list,
                     struct tm_error *e)
{
    json_t *zones = json_object_get(root, "items");
    const char *zone = NULL;
    json_t *part = NULL;
    int rc = 0;
    json_object_foreach(zones, zone, part)
    {
        const json_t *items = json_object_get(part, "instances");
        for (size_t i = 0; rc == 0 && i < json_array_size(items); i++)
            rc = add_instance(json_array_get(items, i), catalog, list, e);
    }
    return rc;
}

int tm_rented_find_gcp(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e)
{
    struct search s;
    char path[200];
    char page[1024] = "";
    int status = 0;
    int rc = open_search(env, &s, e);
    if (rc == 0) (void)snprintf(path, sizeof path, "/projects/%s/aggregated/instances", s.project);
    for (int i = 0; rc == 0 && i < PAGES_MAX; i++) {
        json_t *root = NULL;
        struct tm_gcp_request request = make_request(&s, "GET", path);
        request.query[request.query_count++] = (struct tm_web_pair){"filter", "labels." TM_GCP_LABEL_JOB ":*"};
        request.query[request.query_count++] = (struct tm_web_pair){"maxResults", "500"};
        if (page[0] != '\0') request.query[request.query_count++] = (struct tm_web_pair){"pageToken", page};
        rc = ask(&s, &request, &root, &status, e);
        if (rc == 0) rc = take_page(root, catalog, out, e);
        const char *more = rc == 0 ? json_string_value(json_object_get(root, "nextPageToken")) : NULL;
        (void)snprintf(page, sizeof page, "%s", more != NULL && strlen(more) < sizeof page ? more : "");
        json_decref(root);
        if (page[0] == '\0') break;
    }
    close_search(&s);
    if (rc != 0) tm_rented_list_deinit(out);
    return rc;
}

/* ---- ending ---- */

/* Until Google says that the operation is done. */
static int await_operation(struct search *s, const char *zone, json_t **root, struct tm_error *e)
{
    struct tm_gcp__operation op;
    char path[400];
    int status = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && i < WAITS_MAX; i++) {
        if (!tm_gcp__read_operation(*root, &op)) return tm_error_set(e, TM_EIO, "Google's answer is no operation");
        if (op.done) break;
        (void)snprintf(path, sizeof path, "/projects/%s/zones/%s/operations/%s/wait", s->project, zone, op.name);
        struct tm_gcp_request request = make_request(s, "POST", path);
        request.body = "";
        request.deadline_ms = WAIT_MS;
        json_decref(*root);
        *root = NULL;
        rc = ask(s, &request, root, &status, e);
    }
    if (rc == 0 && op.done && op.code[0] != '\0') rc = tm_error_set(e, TM_EPEER, "%s: %s", op.code, op.message);
    return rc;
}

static int end_one(struct search *s, const struct tm_rented *r, size_t *ended, struct tm_error *e)
{
    char zone[64];
    char name[64];
    char path[300];
    json_t *root = NULL;
    int status = 0;
    if (!tm_gcp__split(r->id, zone, name)) return 0;
    (void)snprintf(path, sizeof path, "/projects/%s/zones/%s/instances/%s", s->project, zone, name);
    struct tm_gcp_request request = make_request(s, "DELETE", path);
    int rc = ask(s, &request, &root, &status, e);
    if (rc != 0 && status == 404) return 0;
    if (rc == 0) rc = await_operation(s, zone, &root, e);
    if (rc == 0) ++*ended;
    json_decref(root);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "ending %s", r->id);
}

int tm_rented_end_gcp(struct tm_env *env, const struct tm_rented_list *list, size_t *out_ended, struct tm_error *e)
{
    struct search s;
    size_t ended = 0;
    int failed = 0;
    int rc = list->count > 0 ? open_search(env, &s, e) : 0;
    for (size_t i = 0; rc == 0 && i < list->count; i++) { /* one that cannot be ended is no reason to leave another */
        int one = end_one(&s, &list->items[i], &ended, failed == 0 ? e : NULL);
        if (failed == 0) failed = one;
    }
    if (list->count > 0) close_search(&s);
    *out_ended = ended;
    return rc != 0 ? rc : failed;
}

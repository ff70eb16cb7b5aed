#include "base/alloc.h"
#include "base/log.h"
#include "cloud/gcp_text.h"
#include "cloud/rented.h"
#include "web/gcp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ASK_MS = 60000,
    WAIT_MS = 150000,
    TRIES = 6,
    PAGES_MAX = 1000,
    ITEMS_MAX = 1 << 20,
    WAITS_MAX = 5,
    AT_ONCE = 32
};

enum kind { VM, DISK };

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

/* Reads an answer, and takes its memory; 0: the caller owns *out. */
static int read_answer(const struct search *s, struct tm_web_answer *answer, struct tm_gcp_refusal *why, json_t **out,
                       struct tm_error *e)
{
    int rc = 0;
    *why = (struct tm_gcp_refusal){.code = ""};
    if (answer->status >= 300) {
        rc = tm_gcp_refusal(answer, why, e);
        if (rc == 0)
            rc = tm_error_set(e, TM_EINPUT, "project %s: Google answers %d %s: %.300s", s->project, answer->status,
                              why->code, why->message);
    } else {
        rc = tm_json_load("Google's answer", tm_text_string(&answer->body), answer->body.length, out, e);
    }
    tm_web_answer_deinit(answer);
    return rc;
}

/* Asks, and reads the answer; 0: the caller owns *out. */
static int ask(struct search *s, struct tm_gcp_request *request, json_t **out, int *out_status, struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why;
    int rc = tm_gcp_ask(s->web, request, &answer, e);
    *out_status = rc == 0 ? answer.status : 0;
    if (rc != 0) return tm_error_wrap(e, rc, "project %s", s->project);
    return read_answer(s, &answer, &why, out, e);
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

static int add(const struct tm_rented *r, struct tm_rented_list *list, struct tm_error *e)
{
    int rc = tm_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *r, ITEMS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    list->items[list->count++] = *r;
    return 0;
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
    return add(&r, list, e);
}

/* One that no VM uses. A VM that is being made has it soon, and has its name (drop_of_vms). */
static int add_disk(const json_t *item, struct tm_rented_list *list, struct tm_error *e)
{
    struct tm_rented r = {.kind = DISK, .price_usd_h = NAN, .state = "disk"};
    struct tm_gcp__disk disk;
    char region[64];
    if (!tm_gcp__read_disk(item, &disk) || disk.used) return 0;
    tm_gcp__region(disk.zone, region);
    (void)snprintf(r.id, sizeof r.id, "%s", disk.id);
    (void)snprintf(r.region, sizeof r.region, "%.39s", region);
    (void)snprintf(r.type, sizeof r.type, "%.24s %.10s GB", disk.type, disk.size_gb);
    (void)snprintf(r.job, sizeof r.job, "%.127s", disk.job);
    r.since_ms = disk.created_ms;
    return add(&r, list, e);
}

/* Disks are asked for before VMs: one that belongs to a VM which is on its way finds it there. */
static void drop_of_vms(struct tm_rented_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool owned = false;
        for (size_t k = 0; list->items[i].kind == DISK && !owned && k < list->count; k++)
            owned = list->items[k].kind == VM && strcmp(list->items[k].id, list->items[i].id) == 0;
        if (!owned) list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

static int take_page(const json_t *root, enum kind kind, const struct tm_catalog *catalog, struct tm_rented_list *list,
                     struct tm_error *e)
{
    json_t *zones = json_object_get(root, "items");
    const char *zone = NULL;
    json_t *part = NULL;
    int rc = 0;
    json_object_foreach(zones, zone, part)
    {
        const json_t *items = json_object_get(part, kind == VM ? "instances" : "disks");
        for (size_t i = 0; rc == 0 && i < json_array_size(items); i++)
            rc = kind == VM ? add_instance(json_array_get(items, i), catalog, list, e)
                            : add_disk(json_array_get(items, i), list, e);
    }
    return rc;
}

/* Places that did not answer Google itself. */
static void count_unreached(const json_t *root, struct tm_rented_list *list)
{
    const json_t *places = json_object_get(root, "unreachables");
    for (size_t i = 0; i < json_array_size(places); i++) {
        const char *place = json_string_value(json_array_get(places, i));
        const char *slash = place != NULL ? strrchr(place, '/') : NULL;
        list->unasked++;
        tm_log(TM_LOG_ERROR,
               "Google Cloud: %s could not be asked, and something may still cost there; try again in some minutes",
               slash != NULL   ? slash + 1
               : place != NULL ? place
                               : "a place");
    }
}

/* All pages; *out_pages: how many came. */
static int find_kind(struct search *s, enum kind kind, const struct tm_catalog *catalog, struct tm_rented_list *list,
                     int *out_pages, struct tm_error *e)
{
    char path[200];
    char page[1024] = "";
    int status = 0;
    int rc = 0;
    (void)snprintf(path, sizeof path, "/projects/%s/aggregated/%s", s->project, kind == VM ? "instances" : "disks");
    for (*out_pages = 0; rc == 0 && *out_pages < PAGES_MAX; ++*out_pages) {
        json_t *root = NULL;
        struct tm_gcp_request request = make_request(s, "GET", path);
        request.query[request.query_count++] = (struct tm_web_pair){"filter", "labels." TM_GCP_LABEL_JOB ":*"};
        request.query[request.query_count++] = (struct tm_web_pair){"maxResults", "500"};
        if (page[0] != '\0') request.query[request.query_count++] = (struct tm_web_pair){"pageToken", page};
        rc = ask(s, &request, &root, &status, e);
        if (rc == 0) rc = take_page(root, kind, catalog, list, e);
        if (rc == 0 && kind == VM) count_unreached(root, list);
        const char *more = rc == 0 ? json_string_value(json_object_get(root, "nextPageToken")) : NULL;
        (void)snprintf(page, sizeof page, "%s", more != NULL && strlen(more) < sizeof page ? more : "");
        json_decref(root);
        if (page[0] == '\0') break;
    }
    return rc;
}

/* What is not known is told, and what is known is there all the same. */
static int count_unasked(int rc, const char *what, const struct tm_error *why, struct tm_rented_list *list)
{
    if (rc == 0 || rc == -(int)TM_ENOMEM) return rc;
    tm_log(TM_LOG_ERROR, "Google Cloud: %s could not be asked for, and something may still cost: %s; try again%s", what,
           why->text,
           strstr(why->text, " 403 ") != NULL ? ", or allow it (tidemill cloud check gcp --emit policy)" : "");
    list->unasked++;
    return 0;
}

int tm_rented_find_gcp(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e)
{
    struct search s;
    struct tm_rented_list list = {.items = NULL};
    struct tm_error own = {.text = ""};
    struct tm_error of_disks = {.text = ""};
    int pages = 0;
    int disks = 0;
    int rc = open_search(env, &s, &own);
    if (rc == 0) disks = find_kind(&s, DISK, catalog, &list, &pages, &of_disks);
    if (rc == 0) rc = find_kind(&s, VM, catalog, &list, &pages, &own);
    close_search(&s);
    if (rc != 0 && pages > 0) rc = count_unasked(rc, "more VMs", &own, &list);
    if (rc == 0) rc = count_unasked(disks, "disks", &of_disks, &list);
    drop_of_vms(&list);
    if (rc == 0)
        *out = list;
    else
        tm_rented_list_deinit(&list);
    if (rc != 0 && e != NULL) *e = own;
    return rc;
}

/* ---- ending ---- */

/* One on its way: deleted, then its operation waited for. */
struct ending {
    struct tm_web_call *begun;
    struct tm_gcp_request request;
    struct tm_rented *r;
    char zone[64];
    char path[400];
    int waits;
};

static int begin_delete(struct search *s, struct ending *p, struct tm_rented *r, struct tm_error *e)
{
    char name[64];
    p->r = r;
    p->waits = 0;
    if (!tm_gcp__split(r->id, p->zone, name)) return 0;
    (void)snprintf(p->path, sizeof p->path, "/projects/%s/zones/%s/%s/%s", s->project, p->zone,
                   r->kind == VM ? "instances" : "disks", name);
    p->request = make_request(s, "DELETE", p->path);
    return tm_gcp_begin(s->web, &p->request, &p->begun, e);
}

static int begin_wait(struct search *s, struct ending *p, const char *operation, struct tm_error *e)
{
    if (p->waits++ == WAITS_MAX)
        return tm_error_set(e, TM_ETIMEOUT, "Google takes long over it; run this again in some minutes");
    (void)snprintf(p->path, sizeof p->path, "/projects/%s/zones/%s/operations/%s/wait", s->project, p->zone, operation);
    p->request = make_request(s, "POST", p->path);
    p->request.body = "";
    p->request.deadline_ms = WAIT_MS;
    return tm_gcp_begin(s->web, &p->request, &p->begun, e);
}

/* What Google says of it: done, to be waited for, or not to be had. */
static void take_end(struct search *s, struct ending *p)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why = {.code = ""};
    struct tm_gcp__operation op = {.name = ""};
    struct tm_error own = {.text = ""};
    json_t *root = NULL;
    int rc = tm_web_end(p->begun, &answer, &own);
    p->begun = NULL;
    bool gone = rc == 0 && answer.status == 404 && p->waits == 0;
    if (rc == 0) rc = read_answer(s, &answer, &why, &root, &own);
    if (rc == 0 && !tm_gcp__read_operation(root, &op)) rc = tm_error_set(&own, TM_EIO, "that is no operation");
    json_decref(root);
    if (rc == 0 && !op.done) rc = begin_wait(s, p, op.name, &own);
    if (rc == 0 && op.done && op.code[0] != '\0') {
        (void)snprintf(why.code, sizeof why.code, "%.*s", (int)sizeof why.code - 1, op.code);
        rc = tm_error_set(&own, TM_EPEER, "%s: %s", op.code, op.message);
    }
    if (gone)
        p->r->fate = TM_RENTED_GONE;
    else if (rc == 0 && op.done)
        p->r->fate = TM_RENTED_ENDED;
    if (rc == 0 || gone) return;
    const char *advice = tm_gcp__advice(why.code);
    tm_log(TM_LOG_ERROR, "Google Cloud: %s is not ended: %s%s%s", p->r->id, own.text, advice[0] != '\0' ? "; " : "",
           advice);
}

int tm_rented_end_gcp(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e)
{
    struct search s;
    struct ending *endings = tm_calloc(AT_ONCE, sizeof *endings);
    size_t next = 0;
    size_t busy = 0;
    int rc = open_search(env, &s, e);
    if (rc == 0 && endings == NULL) rc = tm_error_nomem(e);
    while (rc == 0 && (busy > 0 || next < list->count)) { /* side by side: deleting takes a minute */
        for (size_t i = 0; rc == 0 && i < AT_ONCE && next < list->count; i++) {
            if (endings[i].begun != NULL) continue;
            rc = begin_delete(&s, &endings[i], &list->items[next++], e);
            busy += endings[i].begun != NULL;
        }
        if (rc == 0 && busy > 0) rc = tm_web_step_wait(s.web, e);
        for (size_t i = 0; rc == 0 && i < AT_ONCE; i++) {
            if (endings[i].begun == NULL || !tm_web_is_done(endings[i].begun)) continue;
            take_end(&s, &endings[i]);
            busy -= endings[i].begun == NULL;
        }
    }
    close_search(&s); /* with whatever is under way */
    tm_free(endings);
    return rc;
}

/* ---- beside instances ---- */

enum { RULE_BYTES = 40 };

/* Does a VM of the rule's run still live? Its tag is the name of the run's first rule. */
static bool is_used(const json_t *vms, const char *rule)
{
    static const char stem[] = "tidemill-";
    size_t length = sizeof stem - 1 + strcspn(rule + sizeof stem - 1, "-");
    json_t *zones = json_object_get(vms, "items");
    const char *zone = NULL;
    json_t *part = NULL;
    json_object_foreach(zones, zone, part)
    {
        const json_t *items = json_object_get(part, "instances");
        for (size_t i = 0; i < json_array_size(items); i++) {
            const json_t *tags = json_object_get(json_object_get(json_array_get(items, i), "tags"), "items");
            for (size_t k = 0; k < json_array_size(tags); k++) {
                const char *tag = json_string_value(json_array_get(tags, k));
                if (tag != NULL && strlen(tag) == length && strncmp(tag, rule, length) == 0) return true;
            }
        }
    }
    return false;
}

static bool is_ours(const json_t *rule, const char *job)
{
    const char *name = json_string_value(json_object_get(rule, "name"));
    const char *about = json_string_value(json_object_get(rule, "description"));
    size_t length = strlen(TM_GCP_RULE_ABOUT);
    bool ours = name != NULL && about != NULL && strncmp(name, "tidemill-", 9) == 0 && strlen(name) < RULE_BYTES &&
                strncmp(about, TM_GCP_RULE_ABOUT, length) == 0;
    return ours && (job == NULL || strcmp(about + length, job) == 0);
}

static int remove_rule(struct search *s, const char *name, struct tm_error *e)
{
    char path[300];
    json_t *root = NULL;
    int status = 0;
    (void)snprintf(path, sizeof path, "/projects/%s/global/firewalls/%s", s->project, name);
    struct tm_gcp_request request = make_request(s, "DELETE", path);
    int rc = ask(s, &request, &root, &status, e);
    json_decref(root);
    return rc != 0 && status == 404 ? 0 : rc;
}

static int list_json(struct search *s, const char *what, const char *filter, json_t **out, struct tm_error *e)
{
    char path[200];
    int status = 0;
    (void)snprintf(path, sizeof path, "/projects/%s/%s", s->project, what);
    struct tm_gcp_request request = make_request(s, "GET", path);
    request.query[request.query_count++] = (struct tm_web_pair){"filter", filter};
    request.query[request.query_count++] = (struct tm_web_pair){"maxResults", "500"};
    return ask(s, &request, out, &status, e);
}

int tm_rented_clear_gcp(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out,
                        struct tm_error *e)
{
    struct search s;
    json_t *rules = NULL;
    json_t *vms = NULL;
    struct tm_rented_beside sum = {.removed = 0};
    (void)wait; /* instances are gone when their operations are done */
    int rc = open_search(env, &s, e);
    if (rc == 0) rc = list_json(&s, "global/firewalls", "name:tidemill-*", &rules, e);
    if (rc == 0) rc = list_json(&s, "aggregated/instances", "labels." TM_GCP_LABEL_JOB ":*", &vms, e);
    const json_t *items = json_object_get(rules, "items");
    for (size_t i = 0; rc == 0 && i < json_array_size(items); i++) {
        const json_t *rule = json_array_get(items, i);
        const char *name = json_string_value(json_object_get(rule, "name"));
        struct tm_error own = {.text = ""};
        if (!is_ours(rule, job)) continue;
        bool used = is_used(vms, name);
        int one = used ? 0 : remove_rule(&s, name, &own);
        sum.left += used || one != 0;
        sum.removed += !used && one == 0;
        if (one != 0) tm_log(TM_LOG_ERROR, "Google Cloud: firewall rule %s is not removed: %s", name, own.text);
    }
    json_decref(rules);
    json_decref(vms);
    close_search(&s);
    *out = sum;
    return rc;
}

/* What Tidemill rented in a subscription of Azure: VMs that are tagged, and what VMs left behind (interfaces, disks,
 * addresses), which has the same tag. */
#include "base/alloc.h"
#include "base/calendar.h"
#include "base/doc.h"
#include "base/log.h"
#include "cloud/rented.h"
#include "web/azure_arm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ITEMS_MAX = 1 << 20,
    PAGES_MAX = 10000,
    ASK_MS = 60000,
    TRIES = 5,
    GONE_MS = 180000,
    LOOK_MS = 1000,
    CLEAR_TRIES = 30
};

#define FIX "`tidemill cloud check azure` says what is missing"

/* VMs first: what they still have goes with them. */
static const struct {
    const char *type;
    const char *api;
    const char *owner; /* property that says whose it is, where it is somebody's */
    const char *state; /* in words, of one that is nobody's; NULL: as Azure says */
} kinds[] = {{"Microsoft.Compute/virtualMachines", "2024-07-01", NULL, NULL},
             {"Microsoft.Network/networkInterfaces", "2024-05-01", "virtualMachine", "left interface"},
             {"Microsoft.Compute/disks", "2024-03-02", "managedBy", "left disk"},
             {"Microsoft.Network/publicIPAddresses", "2024-05-01", "ipConfiguration", "left address"}};

enum { KINDS = sizeof kinds / sizeof *kinds, INTERFACE = 1, ADDRESS = 3 };

struct search {
    struct tm_arm *arm;
    struct tm_web *web;
    const struct tm_catalog *catalog;
    struct tm_rented_list *out;
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text);
}

static double price_of(const struct tm_catalog *catalog, const struct tm_rented *r)
{
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        if (strcmp(type->cloud, "azure") != 0 || strcmp(type->name, r->type) != 0) continue;
        double price = r->spot ? offer->spot_usd_h : offer->on_demand_usd_h;
        if (strcmp(offer->region, r->region) == 0 && price > 0) return price;
    }
    return NAN;
}

/* An address goes with the interface of a VM; with one that a VM left it stays, and costs. */
static bool is_of_left_interface(const struct search *s, const json_t *properties)
{
    const char *owner = text_of(json_object_get(properties, "ipConfiguration"), "id");
    for (size_t i = 0; i < s->out->count; i++) {
        char name[sizeof s->out->items->id + 4];
        (void)snprintf(name, sizeof name, "/%s/", s->out->items[i].id);
        if (s->out->items[i].kind == INTERFACE && strstr(owner, name) != NULL) return true;
    }
    return false;
}

/* Somebody has it, and it goes with that. */
static bool is_held(const struct search *s, size_t kind, const json_t *item)
{
    const char *owner = kinds[kind].owner;
    const json_t *properties = json_object_get(item, "properties");
    if (owner == NULL) return false;
    if (kind == ADDRESS && is_of_left_interface(s, properties)) return false;
    return json_object_get(properties, owner) != NULL || json_object_get(item, owner) != NULL ||
           strcmp(text_of(properties, "diskState"), "Attached") == 0;
}

/* context: the kind. */
static int add(struct search *s, const json_t *item, void *context, struct tm_error *e)
{
    size_t kind = *(const size_t *)context;
    struct tm_rented_list *list = s->out;
    const json_t *tags = json_object_get(item, "tags");
    const json_t *properties = json_object_get(item, "properties");
    const char *made = text_of(properties, "timeCreated");
    const char *id = text_of(item, "id");
    const char *group = strstr(id, "/resourceGroups/");
    struct tm_rented r = {.price_usd_h = NAN};
    if (!json_is_string(json_object_get(tags, TM_RENTED_TAG)) || group == NULL) return 0;
    if (is_held(s, kind, item)) return 0; /* its VM is in the list */
    copy(r.id, sizeof r.id, text_of(item, "name"));
    copy(r.group, sizeof r.group, group + strlen("/resourceGroups/"));
    r.group[strcspn(r.group, "/")] = '\0';
    copy(r.region, sizeof r.region, text_of(item, "location"));
    copy(r.job, sizeof r.job, text_of(tags, TM_RENTED_TAG));
    copy(r.type, sizeof r.type, text_of(json_object_get(properties, "hardwareProfile"), "vmSize"));
    copy(r.state, sizeof r.state,
         kinds[kind].state != NULL ? kinds[kind].state : text_of(properties, "provisioningState"));
    r.spot = strcmp(text_of(properties, "priority"), "Spot") == 0;
    r.kind = (int)kind;
    if (!tm_calendar_parse(made, strlen(made), &r.since_ms)) r.since_ms = 0;
    if (kind == 0) r.price_usd_h = price_of(s->catalog, &r);
    int rc = tm_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof r, ITEMS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    list->items[list->count++] = r;
    return 0;
}

/* One answer, as JSON; the caller's. */
static int ask(struct search *s, struct tm_arm_request *r, json_t **out, int *out_status, struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_arm_refusal why = {.code = ""};
    r->deadline_ms = ASK_MS;
    r->tries_max = TRIES;
    *out = NULL;
    int rc = tm_arm_ask(s->web, r, &answer, e);
    if (rc != 0) return tm_error_wrap(e, rc, "asking Azure");
    *out_status = answer.status;
    const char *text = tm_text_string(&answer.body);
    if (answer.status >= 300 && answer.status != 404) {
        rc = tm_arm_refusal(text, answer.body.length, &why, e);
        if (rc == 0) rc = tm_error_set(e, TM_EINPUT, "Azure answers %d %s: %s", answer.status, why.code, why.message);
    } else if (answer.status < 300 && answer.body.length > 0) {
        rc = tm_json_load("Azure's answer", text, answer.body.length, out, e);
    }
    tm_web_answer_deinit(&answer);
    return rc;
}

/* What is done with each item of a list. */
typedef int (*take_fn)(struct search *s, const json_t *item, void *context, struct tm_error *e);

/* All items of a type, page by page. */
static int each_item(struct search *s, const char *type, const char *api, take_fn take, void *context,
                     struct tm_error *e)
{
    struct tm_arm_request r = {.arm = s->arm, .method = "GET"};
    int rc = 0;
    bool more = true;
    tm_arm_path(&r, "/providers/%s?api-version=%s", type, api);
    for (int page = 0; rc == 0 && more; page++) {
        json_t *root = NULL;
        int status = 0;
        rc = ask(s, &r, &root, &status, e);
        const json_t *items = json_object_get(root, "value");
        if (rc == 0 && !json_is_array(items)) rc = tm_error_set(e, TM_EPEER, "Azure's answer holds no list");
        for (size_t i = 0; rc == 0 && i < json_array_size(items); i++)
            rc = take(s, json_array_get(items, i), context, e);
        const char *next = text_of(root, "nextLink");
        more = next[0] != '\0';
        if (rc == 0 && more && (page == PAGES_MAX || !tm_arm_follow(&r, next)))
            rc = tm_error_set(e, TM_EPEER, "Azure's list goes on elsewhere, and is not followed: %.200s", next);
        json_decref(root);
    }
    return rc;
}

static int find_kind(struct search *s, size_t kind, struct tm_error *e)
{
    return each_item(s, kinds[kind].type, kinds[kind].api, add, &kind, e);
}

static int open_search(struct tm_env *env, struct search *s, struct tm_error *e)
{
    *s = (struct search){.arm = NULL};
    int rc = tm_arm_create(env, &s->arm, e);
    return rc == 0 ? tm_web_create(env, &s->web, e) : rc;
}

static void close_search(struct search *s)
{
    tm_web_destroy(s->web);
    tm_arm_destroy(s->arm);
}

int tm_rented_find_azure(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                         struct tm_error *e)
{
    struct search s;
    struct tm_rented_list list = {.items = NULL};
    struct tm_error whys[KINDS];
    int rcs[KINDS] = {0};
    int rc = open_search(env, &s, e);
    s.catalog = catalog;
    s.out = &list;
    for (size_t i = 0; rc == 0 && i < KINDS; i++) { /* what may not be asked for is no reason to leave the rest */
        rcs[i] = find_kind(&s, i, &whys[i]);
        list.unasked += rcs[i] != 0;
        if (rcs[i] == -(int)TM_ENOMEM) rc = tm_error_nomem(e);
    }
    if (rc == 0 && list.unasked == KINDS) {
        rc = rcs[0];
        if (e != NULL) *e = whys[0];
    }
    for (size_t i = 0; rc == 0 && i < KINDS; i++)
        if (rcs[i] != 0)
            tm_log(TM_LOG_ERROR, "Azure: %s could not be asked for, and some may still cost: %s; %s", kinds[i].type,
                   whys[i].text, FIX);
    close_search(&s);
    if (rc == 0)
        *out = list;
    else
        tm_rented_list_deinit(&list);
    return rc;
}

/* ---- ending ---- */

static void path_of(struct search *s, const struct tm_rented *r, const char *more, struct tm_arm_request *out)
{
    out->arm = s->arm;
    tm_arm_path(out, "/resourceGroups/%s/providers/%s/%s?api-version=%s%s", r->group, kinds[r->kind].type, r->id,
                kinds[r->kind].api, more);
}

static int end_one(struct search *s, const struct tm_rented *r, struct tm_error *e)
{
    struct tm_arm_request request = {.method = "DELETE"};
    json_t *root = NULL;
    int status = 0;
    path_of(s, r, r->kind == 0 ? "&forceDeletion=true" : "", &request);
    int rc = ask(s, &request, &root, &status, e);
    json_decref(root);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", r->id);
}

/* Deleting takes a minute, in which a VM still stands in lists. */
static int await_gone(struct tm_env *env, struct search *s, const struct tm_rented *r, int64_t until_ns)
{
    for (;;) {
        struct tm_arm_request request = {.method = "GET"};
        json_t *root = NULL;
        int status = 0;
        path_of(s, r, "", &request);
        int rc = ask(s, &request, &root, &status, NULL);
        json_decref(root);
        if (rc == 0 && status == 404) return 0;
        if (env->monotonic_ns(env) > until_ns) return -(int)TM_ETIMEOUT;
        env->sleep_ms(env, LOOK_MS);
    }
}

/* All that are addresses, or none of those. */
static void end_some(struct tm_env *env, struct search *s, struct tm_rented_list *list, bool addresses)
{
    for (size_t i = 0; i < list->count; i++) { /* one that cannot be ended is no reason to leave another */
        struct tm_rented *r = &list->items[i];
        struct tm_error own = {.text = ""};
        if ((r->kind == ADDRESS) != addresses) continue;
        if (end_one(s, r, &own) == 0)
            r->fate = TM_RENTED_ENDED;
        else
            tm_log(TM_LOG_ERROR, "Azure: %s is not ended: %s; %s", r->id, own.text, FIX);
    }
    int64_t until_ns = env->monotonic_ns(env) + GONE_MS * 1000000LL;
    for (size_t i = 0; i < list->count; i++) {
        struct tm_rented *r = &list->items[i];
        if ((r->kind == ADDRESS) != addresses || r->fate != TM_RENTED_ENDED) continue;
        if (await_gone(env, s, r, until_ns) != 0) r->fate = TM_RENTED_THERE;
    }
}

int tm_rented_end_azure(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e)
{
    struct search s;
    int rc = open_search(env, &s, e);
    for (int addresses = 0; rc == 0 && addresses < 2; addresses++) /* which go when nobody has them */
        end_some(env, &s, list, addresses != 0);
    close_search(&s);
    return rc;
}

/* ---- beside instances ---- */

#define API_NETWORK "2024-05-01"

/* The group that lets in, then the one of those who are let in: what a rule names cannot go before it. */
static const char *const groups[] = {"Microsoft.Network/networkSecurityGroups",
                                     "Microsoft.Network/applicationSecurityGroups"};

static bool is_group(const json_t *item, const char *job)
{
    const char *of = json_string_value(json_object_get(json_object_get(item, "tags"), TM_RENTED_TAG));
    bool ours = of != NULL && strncmp(text_of(item, "name"), "tidemill-", 9) == 0 && text_of(item, "id")[0] != '\0';
    return ours && (job == NULL || strcmp(of, job) == 0);
}

struct found_groups {
    const char *job; /* NULL: of any */
    json_t *ids;
};

static int add_group(struct search *s, const json_t *item, void *context, struct tm_error *e)
{
    struct found_groups *found = context;
    (void)s;
    if (!is_group(item, found->job)) return 0;
    return json_array_append(found->ids, json_object_get(item, "id")) == 0 ? 0 : tm_error_nomem(e);
}

/* One that somebody still has is refused. */
static int clear_one(struct tm_env *env, struct search *s, const char *id, bool wait, struct tm_rented_beside *sum)
{
    const char *path = strstr(id, "/resourceGroups/");
    struct tm_error why = {.text = ""};
    if (path == NULL || strlen(path) > 400 || strpbrk(path, "?#") != NULL) return 0; /* not an id */
    for (int tries = wait ? CLEAR_TRIES : 1; tries > 0; tries--) {
        struct tm_arm_request r = {.arm = s->arm, .method = "DELETE"};
        json_t *root = NULL;
        int status = 0;
        tm_arm_path(&r, "%s?api-version=" API_NETWORK, path);
        int rc = ask(s, &r, &root, &status, &why);
        json_decref(root);
        if (rc == -(int)TM_ENOMEM) return rc;
        sum->removed += rc == 0;
        if (rc == 0) return 0;
        if (tries > 1) env->sleep_ms(env, LOOK_MS);
    }
    sum->left++;
    if (wait) tm_log(TM_LOG_ERROR, "Azure: %s is not removed: %s", strrchr(path, '/') + 1, why.text);
    return 0;
}

int tm_rented_clear_azure(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out,
                          struct tm_error *e)
{
    struct search s;
    struct tm_rented_beside sum = {.removed = 0};
    json_t *ids = json_array();
    struct found_groups found = {job, ids};
    int rc = open_search(env, &s, e);
    if (rc == 0 && ids == NULL) rc = tm_error_nomem(e);
    for (size_t i = 0; rc == 0 && i < sizeof groups / sizeof *groups; i++)
        rc = each_item(&s, groups[i], API_NETWORK, add_group, &found, e);
    for (size_t i = 0; rc == 0 && i < json_array_size(ids); i++)
        if (clear_one(env, &s, json_string_value(json_array_get(ids, i)), wait, &sum) != 0) rc = tm_error_nomem(e);
    json_decref(ids);
    close_search(&s);
    if (rc == 0) *out = sum;
    return rc;
}

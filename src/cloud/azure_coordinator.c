/* A coordinator's VM on Azure: its name is the token, so that a call that is made again finds what is there. */
#include "base/log.h"
#include "cloud/away_vm_internal.h"
#include "cloud/azure_internal.h"
#include "cloud/rented.h"

#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 1 << 20, MADE_MS = 10 * 60000, LOOK_MS = 2000, PAGES_MAX = 10000 };

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

/* ---- finding ---- */

struct search {
    struct tm_arm *arm;
    struct tm_web *web;
    const struct tm_away_search *of;
    bool clear; /* those that have stopped are deleted: they run nothing, and cost */
};

static bool is_it(const struct search *s, const json_t *item)
{
    const json_t *tags = json_object_get(item, "tags");
    bool by_place = s->of->place != NULL;
    const char *wanted = by_place ? s->of->place : s->of->job;
    const char *has = text_of(tags, by_place ? TM_VM_TAG_COORDINATOR : TM_RENTED_TAG);
    if (text_of(tags, TM_VM_TAG_COORDINATOR)[0] == '\0') return false;
    return wanted != NULL && strcmp(has, wanted) == 0;
}

/* Below the subscription; NULL: it is none. */
static const char *path_of(const json_t *item)
{
    const char *path = strstr(text_of(item, "id"), "/resourceGroups/");
    bool good = path != NULL && strlen(path) < TM_AZURE_PATH_MAX && strpbrk(path, "?#") == NULL;
    return good ? path : NULL;
}

/* One that only shut down is billed on, but runs nothing. */
static int ask_power(struct search *s, const json_t *item, bool *out_runs, struct tm_error *e)
{
    struct tm_arm_request r = {.arm = s->arm, .method = "GET"};
    struct tm_azure__said said;
    char name[TM_VM_ID_MAX];
    bool stopped = false;
    *out_runs = false;
    tm_arm_path(&r, "%s?api-version=" TM_AZURE_API_VM "&$expand=instanceView", path_of(item));
    int rc = tm_azure__ask_json(s->web, &r, "VM", &said, e);
    if (rc == 0) *out_runs = !tm_azure__read_power(said.root, name, &stopped) || !stopped;
    json_decref(said.root);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

/* And what goes with it. */
static void remove_stopped(const struct search *s, const json_t *item)
{
    struct tm_arm_request r = {.arm = s->arm, .method = "DELETE"};
    struct tm_azure__said said;
    struct tm_error e = {.text = ""};
    tm_arm_path(&r, "%s?api-version=" TM_AZURE_API_VM "&forceDeletion=true", path_of(item));
    if (tm_azure__ask_json(s->web, &r, "VM", &said, &e) != 0)
        tm_log(TM_LOG_WARN, "%s has stopped, and is not deleted: %s; `tidemill cloud clean azure` does it",
               text_of(item, "name"), e.text);
    json_decref(said.root);
}

static int read_page(struct search *s, const json_t *items, struct tm_away_found *out, bool *out_found,
                     struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && !*out_found && i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        struct tm_vm__row row;
        char run[32];
        if (!is_it(s, item) || !tm_azure__read_vm(item, &row, run) || path_of(item) == NULL) continue;
        if (row.phase == TM_VM_RUNS) rc = ask_power(s, item, out_found, e);
        if (rc == 0 && !*out_found && s->clear) remove_stopped(s, item);
        (void)snprintf(out->id, sizeof out->id, "%s", row.id);
        (void)snprintf(out->place, sizeof out->place, "%.255s",
                       text_of(json_object_get(item, "tags"), TM_VM_TAG_COORDINATOR));
    }
    return rc;
}

static int look(struct search *s, struct tm_away_found *out, struct tm_error *e)
{
    struct tm_arm_request r = {.arm = s->arm, .method = "GET"};
    bool found = false;
    bool more = true;
    int rc = 0;
    tm_arm_path(&r, "/providers/Microsoft.Compute/virtualMachines?api-version=" TM_AZURE_API_VM);
    for (int page = 0; rc == 0 && more && !found && page < PAGES_MAX; page++) {
        struct tm_azure__said said;
        const json_t *items = NULL;
        const char *next = "";
        rc = tm_azure__ask_json(s->web, &r, "VMs", &said, e);
        if (rc == 0) rc = tm_azure__read_page(said.root, &items, &next, e);
        if (rc == 0) rc = read_page(s, items, out, &found, e);
        more = next[0] != '\0' && tm_arm_follow(&r, next);
        json_decref(said.root);
    }
    if (rc != 0 || found) return rc;
    return tm_error_set(e, TM_ENOTFOUND, "no VM of %s", s->of->place != NULL ? s->of->place : s->of->job);
}

int tm_azure_coordinator_find(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out,
                              struct tm_error *e)
{
    struct search s = {.of = search};
    int rc = tm_arm_create(env, &s.arm, e);
    if (rc == 0) rc = tm_web_create(env, &s.web, e);
    if (rc == 0) rc = look(&s, out, e);
    tm_web_destroy(s.web);
    tm_arm_destroy(s.arm);
    return rc;
}

/* ---- renting ---- */

/* Its address, or its interface: until it is there. */
static int make_part(struct tm_azure__cloud *c, enum tm_azure__stage part, const char *token, struct tm_error *e)
{
    char path[TM_AZURE_PATH_MAX];
    struct tm_text body;
    tm_text_init(&body, BODY_MAX);
    tm_azure__part_path(c, part, token, path);
    int rc = tm_azure__print_part(c, 0, part, &body, e);
    if (rc == 0) rc = tm_azure__make_resource(c, path, tm_text_string(&body), "coordinator", e);
    tm_text_deinit(&body);
    return rc;
}

static int find_address(struct tm_azure__cloud *c, const char *token, struct tm_error *e)
{
    struct tm_arm_request r = {.method = "GET"};
    struct tm_azure__said said;
    tm_azure__path_of(c, TM_AZURE_ADDRESS, token, &r);
    int rc = tm_azure__ask_json(c->base.web, &r, "address", &said, e);
    (void)snprintf(c->public_address, sizeof c->public_address, "%.63s",
                   text_of(json_object_get(said.root, "properties"), "ipAddress"));
    json_decref(said.root);
    return rc;
}

/* Azure may accept a VM and fail later: what it leaves then is deleted. */
static int await_made(struct tm_azure__cloud *c, const char *token, const char *operation, struct tm_error *e)
{
    struct tm_env *env = c->base.env;
    struct tm_arm_request r = {.arm = c->arm, .method = "GET"};
    struct tm_azure__said said;
    enum tm_azure__progress progress = TM_AZURE_UNDER_WAY;
    int64_t end_ns = env->monotonic_ns(env) + MADE_MS * 1000000LL;
    char why[400] = "";
    int rc = 0;
    if (operation[0] == '\0' || !tm_arm_follow(&r, operation)) return 0; /* it is there */
    while (rc == 0 && progress == TM_AZURE_UNDER_WAY) {
        env->sleep_ms(env, LOOK_MS);
        rc = tm_azure__ask_json(c->base.web, &r, "the coordinator's VM", &said, e);
        if (rc == -(int)TM_ENOTFOUND) return 0; /* it is forgotten */
        progress = tm_azure__read_operation(said.status, said.root);
        const json_t *error = json_object_get(said.root, "error");
        (void)snprintf(why, sizeof why, "%.100s: %.290s", text_of(error, "code"), text_of(error, "message"));
        json_decref(said.root);
        if (rc == 0 && progress == TM_AZURE_UNDER_WAY && env->monotonic_ns(env) > end_ns)
            rc = tm_error_set(e, TM_ETIMEOUT, "Azure has not made it so far; see tidemill cloud list");
    }
    if (rc != 0 || progress == TM_AZURE_DONE) return rc;
    tm_azure__path_of(c, TM_AZURE_VM, token, &r);
    r.method = "DELETE";
    (void)tm_azure__ask_arm(c, &r, "VM", NULL, NULL); /* and what goes with it */
    return tm_error_set(e, TM_EINPUT, "Azure could not make it: %s", why);
}

static int make_vm(struct tm_azure__cloud *c, const char *token, struct tm_error *e)
{
    struct tm_arm_request r = {.method = "PUT"};
    struct tm_azure__said said = {.root = NULL};
    struct tm_text body;
    tm_text_init(&body, BODY_MAX);
    int rc = tm_azure__print_vm(c, 0, &body, e);
    if (rc == 0) {
        tm_azure__path_of(c, TM_AZURE_VM, token, &r);
        r.body = tm_text_string(&body);
        rc = tm_azure__ask_json(c->base.web, &r, "VM", &said, e);
    }
    json_decref(said.root);
    tm_text_deinit(&body);
    return rc == 0 ? await_made(c, token, said.operation, e) : rc;
}

/* What stopped of an earlier one goes; one that lives is the one. */
static int clear_stopped(struct tm_azure__cloud *c, const char *place, struct tm_error *e)
{
    const struct tm_away_search of = {.place = place};
    struct tm_away_found found = {.id = ""};
    struct search s = {.arm = c->arm, .web = c->base.web, .of = &of, .clear = true};
    int rc = look(&s, &found, e);
    if (rc == 0) return tm_error_set(e, TM_EEXISTS, "it was rented before");
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

int tm_azure_coordinator_rent(struct tm_env *env, const struct tm_azure_options *cloud, const struct tm_away_vm *o,
                              char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    struct tm_azure_options options = *cloud;
    struct tm_cloud_pool pool;
    struct tm_azure__cloud *c = NULL;
    options.public_ip = options.public_ip || o->reached_from != NULL;
    int rc = tm_away__options(o, &pool, &options.vm, e);
    if (rc == 0) rc = tm_azure__create(env, &options, &c, e);
    if (rc != 0) return rc;
    rc = tm_away__enter(&c->base, o, e);
    if (rc == 0) rc = clear_stopped(c, o->place, e);
    if (rc == 0 && o->reached_from != NULL && options.security_group == NULL)
        rc = tm_azure__make_door(c, o->reached_from, e);
    if (rc == 0 && options.public_ip) rc = make_part(c, TM_AZURE_ADDRESS, o->token, e);
    if (rc == 0 && options.public_ip) rc = find_address(c, o->token, e);
    if (rc == 0) rc = make_part(c, TM_AZURE_NIC, o->token, e);
    if (rc == 0) rc = make_vm(c, o->token, e);
    if (rc == 0) (void)snprintf(out_id, TM_VM_ID_MAX, "%s", o->token);
    tm_azure__destroy(c);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "renting a %s for the coordinator", o->type);
}

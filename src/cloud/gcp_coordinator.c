/* A coordinator's VM on Google Cloud: its name is the token, and zones are asked in an order that follows from it, so
 * that a call that is made again asks the same ones, with the same requestIds. */
#include "base/log.h"
#include "cloud/away_vm_internal.h"
#include "cloud/gcp_internal.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAGES_MAX = 1000, ASK_MS = 60000, TRIES = 6, WAITS_MAX = 10 };

/* One answer: what it says, the caller's, or (-TM_EINPUT) the code of its refusal. */
static int ask(struct tm_web *web, struct tm_gcp_request *request, json_t **out, char code[128], struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why;
    code[0] = '\0';
    *out = NULL;
    int rc = tm_gcp_ask(web, request, &answer, e);
    if (rc != 0) return rc;
    if (answer.status < 300) {
        rc = tm_json_load("Google's answer", tm_text_string(&answer.body), answer.body.length, out, e);
    } else {
        rc = tm_gcp_refusal(&answer, &why, e);
        if (rc == 0) {
            (void)snprintf(code, 128, "%s", why.code);
            rc = tm_error_set(e, TM_EINPUT, "Google answers %d %s: %.300s", answer.status, why.code, why.message);
        }
    }
    tm_web_answer_deinit(&answer);
    return rc;
}

/* ---- finding ---- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

struct search {
    struct tm_gcp *gcp;
    struct tm_web *web;
    const char *project;
    char filter[160];
    bool clear; /* those that have stopped are deleted: they run no more, and their disks cost */
};

static bool lives(const json_t *item)
{
    static const char *const alive[] = {"PROVISIONING", "STAGING", "RUNNING", "REPAIRING"};
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++)
        if (strcmp(text_of(item, "status"), alive[i]) == 0) return true;
    return false;
}

static void remove_stopped(const struct search *s, const char *id)
{
    struct tm_error e = {.text = ""};
    char zone[64], name[64], code[128];
    char path[300];
    json_t *root = NULL;
    if (!tm_gcp__split(id, zone, name)) return;
    (void)snprintf(path, sizeof path, "/projects/%.100s/zones/%s/instances/%s", s->project, zone, name);
    struct tm_gcp_request request = {.gcp = s->gcp,
                                     .service = TM_GCP_COMPUTE,
                                     .method = "DELETE",
                                     .path = path,
                                     .deadline_ms = ASK_MS,
                                     .tries_max = TRIES};
    if (ask(s->web, &request, &root, code, &e) != 0)
        tm_log(TM_LOG_WARN, "%s has stopped, and is not deleted: %s; `tidemill cloud clean gcp` does it", id, e.text);
    json_decref(root);
}

/* One that lives: its id, and the place in its metadata. */
static bool read_one(const struct search *s, const json_t *item, struct tm_away_found *out)
{
    const json_t *items = json_object_get(json_object_get(item, "metadata"), "items");
    struct tm_vm__row row;
    if (text_of(json_object_get(item, "labels"), TM_GCP_LABEL_COORDINATOR)[0] == '\0' || !tm_gcp__read_vm(item, &row))
        return false;
    if (!lives(item)) {
        if (s->clear) remove_stopped(s, row.id);
        return false;
    }
    (void)snprintf(out->id, sizeof out->id, "%s", row.id);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *one = json_array_get(items, i);
        if (strcmp(text_of(one, "key"), TM_GCP_LABEL_COORDINATOR) == 0)
            (void)snprintf(out->place, sizeof out->place, "%.255s", text_of(one, "value"));
    }
    return true;
}

static bool read_page(const struct search *s, const json_t *root, struct tm_away_found *out)
{
    json_t *zones = json_object_get(root, "items");
    const char *zone = NULL;
    json_t *part = NULL;
    json_object_foreach(zones, zone, part)
    {
        const json_t *items = json_object_get(part, "instances");
        for (size_t i = 0; i < json_array_size(items); i++)
            if (read_one(s, json_array_get(items, i), out)) return true;
    }
    return false;
}

/* -TM_ENOTFOUND: no page names one. */
static int look(const struct search *s, struct tm_away_found *out, struct tm_error *e)
{
    char path[200];
    char page[TM_GCP_PAGE_MAX] = "";
    char code[128];
    (void)snprintf(path, sizeof path, "/projects/%.100s/aggregated/instances", s->project);
    for (int i = 0; i < PAGES_MAX && (i == 0 || page[0] != '\0'); i++) {
        json_t *root = NULL;
        struct tm_gcp_request request = {.gcp = s->gcp,
                                         .service = TM_GCP_COMPUTE,
                                         .method = "GET",
                                         .path = path,
                                         .deadline_ms = ASK_MS,
                                         .tries_max = TRIES};
        request.query[request.query_count++] = (struct tm_web_pair){"filter", s->filter};
        request.query[request.query_count++] = (struct tm_web_pair){"maxResults", "500"};
        if (i > 0) request.query[request.query_count++] = (struct tm_web_pair){"pageToken", page};
        int rc = ask(s->web, &request, &root, code, e);
        bool found = rc == 0 && read_page(s, root, out);
        (void)snprintf(page, sizeof page, "%.1000s", text_of(root, "nextPageToken"));
        json_decref(root);
        if (rc != 0 || found) return rc;
    }
    return tm_error_set(e, TM_ENOTFOUND, "no VM with %s", s->filter);
}

static void make_filter(const struct tm_away_search *search, struct search *s)
{
    char label[TM_GCP_LABEL_MAX];
    if (search->place != NULL) {
        (void)snprintf(s->filter, sizeof s->filter, "labels." TM_GCP_LABEL_COORDINATOR "=%016" PRIx64,
                       tm_away__group(search->place));
    } else {
        tm_gcp__label(search->job, label);
        (void)snprintf(s->filter, sizeof s->filter, "labels." TM_GCP_LABEL_JOB "=%s", label);
    }
}

int tm_gcp_coordinator_find(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out,
                            struct tm_error *e)
{
    struct search s = {.gcp = NULL};
    make_filter(search, &s);
    int rc = tm_gcp_create(env, &s.gcp, e);
    if (rc == 0) rc = tm_gcp_project(s.gcp, &s.project, e);
    if (rc == 0) rc = tm_web_create(env, &s.web, e);
    if (rc == 0) rc = look(&s, out, e);
    tm_web_destroy(s.web);
    tm_gcp_destroy(s.gcp);
    return rc;
}

/* ---- renting ---- */

/* An insert, to the end of its operation. `code`: of its refusal. */
static int insert(struct tm_gcp__cloud *c, char code[128], struct tm_error *e)
{
    struct tm_gcp__operation op = {.done = false};
    int rc = 0;
    for (int i = 0; rc == 0 && !op.done && i <= WAITS_MAX; i++) {
        json_t *root = NULL;
        if (i > 0) tm_gcp__make_wait(c, 0, op.name);
        rc = ask(c->shared.web, &c->slots[0].request, &root, code, e);
        if (rc == 0 && !tm_gcp__read_operation(root, &op))
            rc = tm_error_set(e, TM_EPEER, "Google's answer is no operation");
        json_decref(root);
    }
    if (rc == 0 && !op.done) rc = tm_error_set(e, TM_ETIMEOUT, "Google says nothing of its operation %s", op.name);
    if (rc != 0 || op.code[0] == '\0') return rc;
    (void)snprintf(code, 128, "%s", op.code);
    return tm_error_set(e, TM_EINPUT, "Google answers %s: %.300s", op.code, op.message);
}

/* In one zone of the region after the other. */
static int insert_somewhere(struct tm_gcp__cloud *c, char code[128], struct tm_error *e)
{
    int rc = tm_gcp__make_insert(c, 0, e);
    bool more = rc == 0;
    while (more) {
        rc = insert(c, code, e);
        more = rc != 0 && tm_gcp__remedy_of(code) == TM_VM_ELSEWHERE;
        int made = more ? tm_gcp__make_elsewhere(c, 0, &more, NULL) : 0;
        if (made != 0) return tm_error_wrap(e, made, "another zone");
    }
    return rc;
}

/* What stopped of an earlier one goes; one that lives is the one. */
static int clear_stopped(struct tm_gcp__cloud *c, const char *place, struct tm_error *e)
{
    const struct tm_away_search search = {.place = place};
    struct tm_away_found found = {.id = ""};
    struct search s = {.gcp = c->gcp, .web = c->shared.web, .project = c->project, .clear = true};
    make_filter(&search, &s);
    int rc = look(&s, &found, e);
    if (rc == 0) return tm_error_set(e, TM_EEXISTS, "it was rented before");
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

static int rent(struct tm_gcp__cloud *c, const struct tm_away_vm *o, char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    char code[128] = "";
    struct tm_error why = {.text = ""};
    int rc = tm_away__enter(&c->shared, o, e);
    if (rc == 0) rc = clear_stopped(c, o->place, e);
    if (rc == 0 && o->reached_from != NULL) rc = tm_gcp__make_door(c, e);
    if (rc != 0) return rc;
    c->zone_next = c->zone_count > 0 ? (size_t)(tm_hash_of(o->token, strlen(o->token)).low % c->zone_count) : 0;
    rc = insert_somewhere(c, code, &why);
    if (rc == 0) {
        (void)snprintf(out_id, TM_VM_ID_MAX, "%.27s/%.36s", c->slots[0].zone, o->token);
        return 0;
    }
    const char *advice = tm_gcp__advice(code);
    if (tm_gcp__remedy_of(code) == TM_VM_LOOK) return tm_error_set(e, TM_EEXISTS, "it was rented before");
    if (advice[0] != '\0')
        return tm_error_set(e, TM_EINPUT, "renting a %s for the coordinator: %s; %s", o->type, why.text, advice);
    if (e != NULL) *e = why;
    return tm_error_wrap(e, rc, "renting a %s for the coordinator", o->type);
}

int tm_gcp_coordinator_rent(struct tm_env *env, const struct tm_gcp_options *cloud, const struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    struct tm_gcp_options options = *cloud;
    struct tm_cloud_pool pool;
    struct tm_gcp__cloud *c = NULL;
    int rc = tm_away__options(o, &pool, &options.common, e);
    if (rc == 0) rc = tm_gcp__create(env, &options, &c, e);
    if (rc != 0) return rc;
    rc = rent(c, o, out_id, e);
    tm_text_deinit(&c->slots[0].body);
    tm_text_deinit(&c->slots[0].script);
    tm_gcp__destroy(c);
    return rc;
}

/* The firewall rules of a run: VMs with its tag reach each other, in whatever network they are, and nobody else reaches
 * them but by a rule that the user made: ours stands before those that Google puts into a network, and behind others.
 * They are named after the run, so that they are found again, and say the job's name. */
#include "base/jsonout.h"
#include "base/log.h"
#include "cloud/away_vm.h"
#include "cloud/gcp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 4, BODY_MAX = 4096, BEFORE_GOOGLES = 65000 };

/* What lets members in is made first, and goes last. */
static const char *const endings[] = {"", TM_GCP_RULE_REST, TM_GCP_RULE_API};

enum { ALLOW, DENY, API, RULES };

void tm_gcp__rule_name(uint64_t run, char out[40])
{
    (void)snprintf(out, 40, "tidemill-%016" PRIx64, run);
}

static void put_list(const char *key, const char *text, struct tm_jsonout *json)
{
    tm_jsonout_list(json, key);
    tm_jsonout_string(json, NULL, text);
    tm_jsonout_end(json);
}

/* What it is about. */
static void put_traffic(int kind, struct tm_jsonout *json)
{
    char port[16];
    (void)snprintf(port, sizeof port, "%d", TM_COORDINATOR_API_PORT);
    tm_jsonout_list(json, kind == DENY ? "denied" : "allowed");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "IPProtocol", kind == API ? "tcp" : "all");
    if (kind == API) put_list("ports", port, json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static int print_rule(const struct tm_gcp__cloud *c, int kind, const char *name, struct tm_text *out,
                      struct tm_error *e)
{
    char network[200];
    char about[200];
    char run[40];
    struct tm_jsonout json;
    (void)snprintf(network, sizeof network, "projects/%s/global/networks/%.100s", c->project,
                   c->options.network != NULL ? c->options.network : "default");
    (void)snprintf(about, sizeof about, TM_GCP_RULE_ABOUT "%.100s", c->options.common.job);
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "name", name);
    tm_jsonout_string(&json, "description", about);
    tm_jsonout_string(&json, "network", network);
    tm_jsonout_string(&json, "direction", "INGRESS");
    if (kind == DENY) tm_jsonout_integer(&json, "priority", BEFORE_GOOGLES);
    put_traffic(kind, &json);
    tm_gcp__rule_name(c->shared.options.group, run);
    if (kind == ALLOW)
        put_list("sourceTags", run, &json);
    else
        put_list("sourceRanges", kind == DENY ? "0.0.0.0/0" : c->shared.coordinator->reached_from, &json);
    put_list("targetTags", kind == API ? name : run, &json);
    tm_jsonout_end(&json);
    return tm_text_status(out, e);
}

/* 0: done, or it was (`good`: the status that says so), which `out_was` tells; NULL: nobody wants to know. */
static int ask(struct tm_gcp__cloud *c, const char *method, const char *path, const char *body, int good, bool *out_was,
               struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why;
    struct tm_gcp_request request = {.gcp = c->gcp,
                                     .service = TM_GCP_COMPUTE,
                                     .method = method,
                                     .path = path,
                                     .body = body,
                                     .length = body != NULL ? strlen(body) : 0,
                                     .deadline_ms = ASK_MS,
                                     .tries_max = TRIES};
    int rc = tm_gcp_ask(c->shared.web, &request, &answer, e);
    if (rc != 0) return rc;
    if (answer.status >= 300 && answer.status != good) {
        rc = tm_gcp_refusal(&answer, &why, e);
        if (rc == 0)
            rc = tm_error_set(e, TM_EINPUT, "Google answers %d %s: %.200s", answer.status, why.code, why.message);
    }
    if (out_was != NULL) *out_was = answer.status == good;
    tm_web_answer_deinit(&answer);
    return rc;
}

static int make_one(struct tm_gcp__cloud *c, int kind, bool *out_was, struct tm_error *e)
{
    struct tm_text body;
    char run[40];
    char name[48];
    char path[200];
    tm_gcp__rule_name(c->shared.options.group, run);
    (void)snprintf(name, sizeof name, "%s%s", run, endings[kind]);
    (void)snprintf(path, sizeof path, "/projects/%s/global/firewalls", c->project);
    tm_text_init(&body, BODY_MAX);
    int rc = print_rule(c, kind, name, &body, e);
    if (rc == 0) rc = ask(c, "POST", path, tm_text_string(&body), 409, out_was, e);
    tm_text_deinit(&body);
    return rc;
}

int tm_gcp__make_rules(struct tm_gcp__cloud *c, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    bool all_new = true;
    int rc = 0;
    for (int kind = ALLOW; rc == 0 && kind <= DENY; kind++) {
        bool was = false;
        rc = make_one(c, kind, &was, &own);
        if (rc == 0) c->ruled = true;
        all_new = all_new && !was;
    }
    if (rc == 0) return 0;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (c->options.network != NULL) { /* its firewall is the user's affair */
        tm_log(TM_LOG_WARN,
               "the firewall rules of the job could not be made: %s; the firewall of network %s must let the job's VMs "
               "reach each other, and keep others out",
               own.text, c->options.network);
        return 0;
    }
    if (all_new) tm_gcp__remove_rules(c); /* a half wall; of a run that is resumed the one that its VMs have stays */
    return tm_error_set(e, TM_EINPUT,
                        "the firewall rules that keep others out of the job's VMs could not be made: %.250s; allow "
                        "what `tidemill cloud check gcp --emit policy` prints, or name a network of your own whose "
                        "firewall does it: fleet: {gcp: {network: NAME}}",
                        own.text);
}

int tm_gcp__make_door(struct tm_gcp__cloud *c, struct tm_error *e)
{
    int rc = make_one(c, API, NULL, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "fleet.gcp.reached_from: opening port %d", TM_COORDINATOR_API_PORT);
}

void tm_gcp__remove_rules(struct tm_gcp__cloud *c)
{
    struct tm_error e = {.text = ""};
    char run[40];
    char path[200];
    if (!c->ruled) return;
    tm_gcp__rule_name(c->shared.options.group, run);
    for (int kind = RULES - 1; kind >= ALLOW; kind--) {
        (void)snprintf(path, sizeof path, "/projects/%.90s/global/firewalls/%s%s", c->project, run, endings[kind]);
        if (ask(c, "DELETE", path, NULL, 404, NULL, &e) != 0)
            tm_log(TM_LOG_WARN,
                   "a firewall rule of the job could not be removed: %s; `tidemill cloud clean gcp` does it later "
                   "(it costs nothing)",
                   e.text);
    }
}

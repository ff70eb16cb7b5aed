/* The firewall rule of a run: VMs with its tag reach each other, in whatever network they are. It is named after the
 * run, so that it is found again, and says the job's name. */
#include "base/jsonout.h"
#include "base/log.h"
#include "cloud/gcp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 4, BODY_MAX = 4096 };

void tm_gcp__rule_name(uint64_t run, char out[40])
{
    (void)snprintf(out, 40, "tidemill-%016" PRIx64, run);
}

static int print_rule(const struct tm_gcp__cloud *c, const char *name, struct tm_text *out, struct tm_error *e)
{
    static const char *const tags[] = {"sourceTags", "targetTags"};
    char network[200];
    char about[200];
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
    tm_jsonout_list(&json, "allowed");
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "IPProtocol", "all");
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    for (size_t i = 0; i < 2; i++) {
        tm_jsonout_list(&json, tags[i]);
        tm_jsonout_string(&json, NULL, name);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    return tm_text_status(out, e);
}

/* 0: done, or it was (`good`: the status that says so). */
static int ask(struct tm_gcp__cloud *c, const char *method, const char *path, const char *body, int good,
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
    tm_web_answer_deinit(&answer);
    return rc;
}

int tm_gcp__make_rule(struct tm_gcp__cloud *c, struct tm_error *e)
{
    struct tm_text body;
    struct tm_error own = {.text = ""};
    char name[40];
    char path[200];
    tm_gcp__rule_name(c->options.common.run, name);
    (void)snprintf(path, sizeof path, "/projects/%s/global/firewalls", c->project);
    tm_text_init(&body, BODY_MAX);
    int rc = print_rule(c, name, &body, e);
    if (rc == 0) rc = ask(c, "POST", path, tm_text_string(&body), 409, &own);
    tm_text_deinit(&body);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    c->ruled = rc == 0;
    if (rc != 0) /* in the network default VMs reach each other without it */
        tm_log(TM_LOG_WARN, "the firewall rule of the job could not be made: %s; VMs must reach each other without it",
               own.text);
    return 0;
}

void tm_gcp__remove_rule(struct tm_gcp__cloud *c)
{
    struct tm_error e = {.text = ""};
    char name[40];
    char path[200];
    if (!c->ruled) return;
    tm_gcp__rule_name(c->options.common.run, name);
    (void)snprintf(path, sizeof path, "/projects/%s/global/firewalls/%s", c->project, name);
    if (ask(c, "DELETE", path, NULL, 404, &e) != 0)
        tm_log(TM_LOG_WARN,
               "the firewall rule of the job could not be removed: %s; `tidemill cloud clean gcp` does it later "
               "(it costs nothing)",
               e.text);
}

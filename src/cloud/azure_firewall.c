/* The firewall of a run: a network security group that lets in what is in the run's application security group, and
 * nothing else, not even what shares the network. Both are named after the run, so that they are found again. */
#include "base/jsonout.h"
#include "base/log.h"
#include "cloud/away_vm.h"
#include "cloud/azure_internal.h"
#include "cloud/rented.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 8192, REST_MS = 30000, REST_EVERY_MS = 1000 };

static const char *const kinds[] = {"networkSecurityGroups", "applicationSecurityGroups"};

/* The rules first: what they name cannot go before them. */
enum { RULES, MEMBERS, KINDS };

static void make_path(const struct tm_azure__cloud *c, int kind, char out[300])
{
    (void)snprintf(out, 300, "/resourceGroups/%.100s/providers/Microsoft.Network/%s/tidemill-%016" PRIx64,
                   tm_azure__group_of(c), kinds[kind], c->base.options.group);
}

static void put_id(const struct tm_azure__cloud *c, int kind, const char *key, struct tm_jsonout *json)
{
    char path[300];
    char id[500];
    make_path(c, kind, path);
    (void)snprintf(id, sizeof id, "/subscriptions/%.90s%s", tm_arm_subscription(c->arm), path);
    if (key != NULL) tm_jsonout_object(json, key);
    tm_jsonout_string(json, "id", id);
    if (key != NULL) tm_jsonout_end(json);
}

static void put_members(const struct tm_azure__cloud *c, const char *key, struct tm_jsonout *json)
{
    tm_jsonout_list(json, key);
    tm_jsonout_object(json, NULL);
    put_id(c, MEMBERS, NULL, json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

void tm_azure__put_rules(const struct tm_azure__cloud *c, struct tm_jsonout *json)
{
    if (c->options.security_group == NULL) put_id(c, RULES, "networkSecurityGroup", json);
}

void tm_azure__put_member(const struct tm_azure__cloud *c, struct tm_jsonout *json)
{
    if (c->options.security_group == NULL) put_members(c, "applicationSecurityGroups", json);
}

/* Azure's own last rules let in whatever is in the network: ours stand before them. */
static void put_rule(const struct tm_azure__cloud *c, bool allow, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", allow ? "members" : "nobody-else");
    tm_jsonout_object(json, "properties");
    tm_jsonout_string(json, "direction", "Inbound");
    tm_jsonout_string(json, "access", allow ? "Allow" : "Deny");
    tm_jsonout_integer(json, "priority", allow ? 100 : 4096);
    tm_jsonout_string(json, "protocol", "*");
    tm_jsonout_string(json, "sourcePortRange", "*");
    tm_jsonout_string(json, "destinationPortRange", "*");
    if (allow) {
        put_members(c, "sourceApplicationSecurityGroups", json);
        put_members(c, "destinationApplicationSecurityGroups", json);
    } else {
        tm_jsonout_string(json, "sourceAddressPrefix", "*");
        tm_jsonout_string(json, "destinationAddressPrefix", "*");
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static int make_one(struct tm_azure__cloud *c, int kind, struct tm_error *e)
{
    char path[300];
    char run[24];
    struct tm_text body;
    struct tm_jsonout json;
    make_path(c, kind, path);
    (void)snprintf(run, sizeof run, "%016" PRIx64, c->base.options.group);
    tm_text_init(&body, BODY_MAX);
    tm_jsonout_init_line(&json, &body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "location", c->options.location);
    tm_jsonout_object(&json, "tags");
    tm_jsonout_string(&json, TM_RENTED_TAG, c->options.vm.job);
    tm_jsonout_string(&json, TM_VM_TAG_OWNER, c->options.vm.owner);
    tm_jsonout_string(&json, TM_VM_TAG_RUN, run);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "properties");
    if (kind == RULES) {
        tm_jsonout_list(&json, "securityRules");
        put_rule(c, true, &json);
        put_rule(c, false, &json);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    int rc = tm_text_status(&body, e);
    if (rc == 0) rc = tm_azure__make_resource(c, path, tm_text_string(&body), "security group of the job", e);
    tm_text_deinit(&body);
    return rc;
}

int tm_azure__make_firewall(struct tm_azure__cloud *c, struct tm_error *e)
{
    if (c->options.security_group != NULL) return 0;
    int rc = make_one(c, MEMBERS, e);
    if (rc == 0) rc = make_one(c, RULES, e);
    return rc == 0 ? 0
                   : tm_error_wrap(e, rc,
                                   "making a security group (fleet: {azure: {security_group: ID}} names one of yours)");
}

/* A rule of its own, so that a group that is there already gets it, too. */
int tm_azure__make_door(struct tm_azure__cloud *c, const char *from, struct tm_error *e)
{
    struct tm_arm_request r = {.arm = c->arm, .method = "PUT"};
    char path[300];
    char port[16];
    struct tm_text body;
    struct tm_jsonout json;
    make_path(c, RULES, path);
    (void)snprintf(port, sizeof port, "%d", TM_COORDINATOR_API_PORT);
    tm_arm_path(&r, "%s/securityRules/api?api-version=" TM_AZURE_API_NETWORK, path);
    tm_text_init(&body, BODY_MAX);
    tm_jsonout_init_line(&json, &body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_object(&json, "properties");
    tm_jsonout_string(&json, "direction", "Inbound");
    tm_jsonout_string(&json, "access", "Allow");
    tm_jsonout_integer(&json, "priority", 200);
    tm_jsonout_string(&json, "protocol", "Tcp");
    tm_jsonout_string(&json, "sourceAddressPrefix", from);
    tm_jsonout_string(&json, "sourcePortRange", "*");
    tm_jsonout_string(&json, "destinationAddressPrefix", "*");
    tm_jsonout_string(&json, "destinationPortRange", port);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    int rc = tm_text_status(&body, e);
    r.body = tm_text_string(&body);
    if (rc == 0) rc = tm_azure__ask_arm(c, &r, "security rule", NULL, e);
    tm_text_deinit(&body);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "fleet.azure.reached_from: opening port %s", port);
}

/* -TM_ENOTFOUND: it is gone. */
static int remove_one(struct tm_azure__cloud *c, int kind, struct tm_error *e)
{
    struct tm_arm_request r = {.arm = c->arm, .method = "DELETE"};
    char path[300];
    make_path(c, kind, path);
    tm_arm_path(&r, "%s?api-version=" TM_AZURE_API_NETWORK, path);
    int rc = tm_azure__ask_arm(c, &r, kinds[kind], NULL, e);
    r.method = "GET"; /* it may be going for some seconds */
    return rc == 0 ? tm_azure__ask_arm(c, &r, kinds[kind], NULL, e) : rc;
}

void tm_azure__remove_firewall(void *self)
{
    struct tm_azure__cloud *c = self;
    struct tm_env *env = c->base.env;
    struct tm_error e = {.text = "Azure has not removed it yet"};
    int64_t end_ns = env->monotonic_ns(env) + REST_MS * 1000000LL;
    bool not_ours = c->options.security_group != NULL || c->base.options.group != c->base.options.run;
    int kind = not_ours ? KINDS : RULES; /* the VM that this runs on may be behind it */
    while (kind < KINDS) {
        if (remove_one(c, kind, &e) == -(int)TM_ENOTFOUND) {
            kind++;
        } else {
            if (env->monotonic_ns(env) >= end_ns) break;
            env->sleep_ms(env, REST_EVERY_MS);
        }
    }
    if (kind < KINDS)
        tm_log(TM_LOG_WARN,
               "the security group of the job could not be removed: %s; `tidemill cloud clean azure` does it later "
               "(it costs nothing)",
               e.text);
}

#include "web/azure_arm.h"

#include "base/alloc.h"
#include "base/doc.h"
#include "web/azure_identity.h"
#include "web/tape.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char public_cloud[] = "https://management.azure.com";

struct tm_arm {
    struct tm_env *env;
    char endpoint[256];
    char subscription[64];
    struct tm_azure_identity identity;
};

/* ---- settings ---- */

static const char *variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The subscription that `az account set` chose. */
static void find_login(struct tm_arm *arm)
{
    char path[1024];
    struct tm_text text;
    json_t *root = NULL;
    const char *folder = variable(arm->env, "AZURE_CONFIG_DIR");
    const char *home = variable(arm->env, "HOME");
    if (folder == NULL && home == NULL) return;
    (void)snprintf(path, sizeof path, "%.900s%s/azureProfile.json", folder != NULL ? folder : home,
                   folder != NULL ? "" : "/.azure");
    tm_text_init(&text, 1 << 20);
    if (arm->env->file_read(arm->env, path, &text, NULL) == 0) {
        size_t mark = text.length >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* az writes one */
        (void)tm_json_load(path, tm_text_string(&text) + mark, text.length - mark, &root, NULL);
    }
    const json_t *all = json_object_get(root, "subscriptions");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *id = json_string_value(json_object_get(one, "id"));
        if (id != NULL && strlen(id) < sizeof arm->subscription && json_is_true(json_object_get(one, "isDefault")))
            (void)snprintf(arm->subscription, sizeof arm->subscription, "%s", id);
    }
    json_decref(root);
    tm_text_deinit(&text);
}

static bool is_word(const char *text)
{
    return text[0] != '\0' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(text);
}

static int take_settings(struct tm_arm *arm, struct tm_error *e)
{
    const char *endpoint = variable(arm->env, "AZURE_RESOURCE_MANAGER_ENDPOINT");
    const char *subscription = variable(arm->env, "AZURE_SUBSCRIPTION_ID");
    if (endpoint == NULL) endpoint = public_cloud;
    size_t length = strlen(endpoint);
    while (length > 0 && endpoint[length - 1] == '/')
        length--;
    bool known = strncmp(endpoint, "https://", 8) == 0 || strncmp(endpoint, "http://", 7) == 0;
    if (!known || length >= sizeof arm->endpoint || strpbrk(endpoint, "\r\n ?#") != NULL)
        return tm_error_set(e, TM_EINPUT, "AZURE_RESOURCE_MANAGER_ENDPOINT: an endpoint is written as https://HOST");
    (void)snprintf(arm->endpoint, sizeof arm->endpoint, "%.*s", (int)length, endpoint);
    if (subscription != NULL && strlen(subscription) < sizeof arm->subscription)
        (void)snprintf(arm->subscription, sizeof arm->subscription, "%s", subscription);
    else if (subscription == NULL)
        find_login(arm);
    char of_tape[TM_TAPE_NOTE_MAX];
    tm_tape__noted(TM_TAPE_SUBSCRIPTION, of_tape);
    if (of_tape[0] != '\0' && strlen(of_tape) < sizeof arm->subscription)
        memcpy(arm->subscription, of_tape, strlen(of_tape) + 1);
    if (!is_word(arm->subscription))
        return tm_error_set(e, TM_EINPUT, "which subscription of Azure? set AZURE_SUBSCRIPTION_ID, or az login");
    return 0;
}

int tm_arm_create(struct tm_env *env, struct tm_arm **out, struct tm_error *e)
{
    struct tm_arm *arm = tm_calloc(1, sizeof *arm);
    if (arm == NULL) return tm_error_nomem(e);
    arm->env = env;
    int rc = take_settings(arm, e);
    if (rc != 0) {
        tm_free(arm);
        return rc;
    }
    tm_tape__note(TM_TAPE_SUBSCRIPTION, arm->subscription);
    tm_azure_identity__init(&arm->identity, env,
                            strncmp(arm->endpoint, "https://", 8) == 0 ? arm->endpoint : public_cloud);
    *out = arm;
    return 0;
}

void tm_arm_destroy(struct tm_arm *arm)
{
    if (arm == NULL) return;
    tm_azure_identity__deinit(&arm->identity);
    tm_free(arm);
}

const char *tm_arm_subscription(const struct tm_arm *arm)
{
    return arm->subscription;
}

const char *tm_arm_endpoint(const struct tm_arm *arm)
{
    return arm->endpoint;
}

const char *tm_arm_audience(const struct tm_arm *arm)
{
    return arm->identity.resource;
}

/* ---- requests ---- */

void tm_arm_path(struct tm_arm_request *request, const char *format, ...)
{
    va_list args;
    int length = snprintf(request->url, sizeof request->url, "%s/subscriptions/%s", request->arm->endpoint,
                          request->arm->subscription);
    va_start(args, format);
    (void)vsnprintf(request->url + length, sizeof request->url - (size_t)length, format, args);
    va_end(args);
}

bool tm_arm_follow(struct tm_arm_request *request, const char *url)
{
    size_t length = strlen(request->arm->endpoint);
    bool own = strncmp(url, request->arm->endpoint, length) == 0 && url[length] == '/';
    if (!own || strlen(url) >= sizeof request->url || strpbrk(url, "\r\n ") != NULL) return false;
    (void)snprintf(request->url, sizeof request->url, "%s", url);
    return true;
}

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    struct tm_arm_request *r = context;
    tm_text_puts(url, r->url);
    if (r->body != NULL) tm_text_puts(headers, "Content-Type: application/json\n");
    return tm_azure_identity__add(&r->arm->identity, headers, e);
}

/* Something else is being done to the same resource, or to what it is in: wait. Without memory nothing is known. */
static bool is_occupied(const struct tm_web_answer *answer)
{
    struct tm_arm_refusal why;
    if (answer->status != 409 || answer->body.length == 0) return false;
    if (tm_arm_refusal(answer->body.data, answer->body.length, &why, NULL) != 0) return false;
    return strcmp(why.code, "AnotherOperationInProgress") == 0 || strcmp(why.code, "RetryableError") == 0;
}

/* A token may have ended before its time. */
static bool again(void *context, const struct tm_web_answer *answer)
{
    struct tm_arm_request *r = context;
    if (is_occupied(answer)) return true;
    if (answer->status != 401 || r->renewed) return false;
    r->renewed = true;
    tm_azure_identity__forget(&r->arm->identity);
    return true;
}

int tm_arm_begin(struct tm_web *web, struct tm_arm_request *r, struct tm_web_call **out, struct tm_error *e)
{
    assert(r->arm != NULL && r->url[0] != '\0');
    r->renewed = false;
    struct tm_web_request request = {.method = r->method,
                                     .body = r->body,
                                     .length = r->body != NULL ? strlen(r->body) : 0,
                                     .deadline_ms = r->deadline_ms,
                                     .tries_max = r->tries_max,
                                     .prepare = prepare,
                                     .again = again,
                                     .context = r};
    return tm_web_begin(web, &request, out, e);
}

int tm_arm_ask(struct tm_web *web, struct tm_arm_request *r, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web_call *call = NULL;
    int rc = tm_arm_begin(web, r, &call, e);
    return rc == 0 ? tm_web__finish(web, call, out, e) : rc;
}

/* ---- refusals ---- */

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text != NULL ? text : "");
    for (char *at = out; *at != '\0'; at++)
        if (*at == '\n' || *at == '\r') *at = ' ';
}

int tm_arm_refusal(const char *text, size_t length, struct tm_arm_refusal *out, struct tm_error *e)
{
    json_t *root = NULL;
    *out = (struct tm_arm_refusal){.code = ""};
    int rc = length == 0 ? -(int)TM_EINPUT : tm_json_load("answer", text, length, &root, NULL);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return 0;
    const json_t *error = json_object_get(root, "error");
    if (!json_is_object(error)) error = root;
    const json_t *detail = json_array_get(json_object_get(error, "details"), 0);
    copy(out->code, sizeof out->code, json_string_value(json_object_get(error, "code")));
    copy(out->message, sizeof out->message, json_string_value(json_object_get(error, "message")));
    bool vague = strcmp(out->code, "DeploymentFailed") == 0 || strcmp(out->code, "ResourceDeploymentFailure") == 0 ||
                 strcmp(out->code, "MultipleErrorsOccurred") == 0;
    if (vague && json_is_string(json_object_get(detail, "code"))) {
        copy(out->code, sizeof out->code, json_string_value(json_object_get(detail, "code")));
        copy(out->message, sizeof out->message, json_string_value(json_object_get(detail, "message")));
    }
    json_decref(root);
    return 0;
}

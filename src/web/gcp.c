#include "web/gcp.h"

#include "base/alloc.h"
#include "base/doc.h"
#include "base/log.h"
#include "web/gcp_account.h"
#include "web/gcp_signer.h"
#include "web/plain.h"
#include "web/renewal.h"
#include "web/tape.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    TOKEN_MS = 10000,
    TRIES = 3,
    FILE_MAX = 1 << 16,
    PATH_BYTES = 1024,
    NAME_BYTES = 41,
    ORIGIN_MAX = 512,
    SIGN_MS = 30000
};

static const int64_t renew_before_ms = 5 * 60000;

struct tokens {
    char token[TM_GCP_TOKEN_MAX]; /* "": none so far */
    char own[TM_GCP_TOKEN_MAX];   /* "": the same; else of who asks in a service account's name */
    int64_t ends_ms;
};

struct tm_gcp {
    struct tm_env *env;
    _Atomic int64_t ahead_ms; /* Google's clock is so much ahead of ours */
    struct tm_gcp__account account;
    char identity[700];
    char project[128];                       /* "": asked for when it is needed */
    char bases[TM_GCP_SERVICES][ORIGIN_MAX]; /* without a slash at the end */
    char objects[ORIGIN_MAX];                /* where signed URLs point to */
    struct tm_renewal renewal;               /* with its lock: the rest, and the project */
    struct tokens tokens;
    char machine[TM_GCP_EMAIL_MAX]; /* the account of this VM; "": not asked for so far */
    struct tm_gcp__signer signer;
};

static const char *variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- where services are ---- */

static const struct {
    const char *name; /* behind CLOUDSDK_API_ENDPOINT_OVERRIDES_ */
    const char *origin;
    const char *path;
} services[TM_GCP_SERVICES] = {
    [TM_GCP_COMPUTE] = {"COMPUTE", "https://compute.googleapis.com", "/compute/v1"},
    [TM_GCP_STORAGE] = {"STORAGE", "https://storage.googleapis.com", "/storage/v1"},
    [TM_GCP_UPLOAD] = {"STORAGE", "https://storage.googleapis.com", "/upload/storage/v1"},
    [TM_GCP_IAM] = {"IAMCREDENTIALS", "https://iamcredentials.googleapis.com", "/v1"},
    [TM_GCP_RESOURCES] = {"CLOUDRESOURCEMANAGER", "https://cloudresourcemanager.googleapis.com", "/v1"},
    [TM_GCP_BILLING] = {"CLOUDBILLING", "https://cloudbilling.googleapis.com", "/v1"}};

/* "https://HOST:PORT", of an address that may have a path behind it. */
static int take_origin(const char *name, const char *text, char out[ORIGIN_MAX], struct tm_error *e)
{
    bool plain = strstr(text, "://") == NULL; /* STORAGE_EMULATOR_HOST may be a host alone */
    const char *host = plain ? text : strstr(text, "://") + 3;
    size_t length = (size_t)(host - text) + strcspn(host, "/?#");
    bool known = plain || strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0;
    if (!known || host[0] == '\0' || host[0] == '/' || length + 8 >= ORIGIN_MAX || strpbrk(text, "\r\n @") != NULL)
        return tm_error_set(e, TM_EINPUT, "%s: an endpoint is written as https://HOST", name);
    (void)snprintf(out, ORIGIN_MAX, "%s%.*s", plain ? "http://" : "", (int)length, text);
    return 0;
}

static int take_endpoints(struct tm_gcp *gcp, struct tm_error *e)
{
    const char *emulator = variable(gcp->env, "STORAGE_EMULATOR_HOST");
    int rc = 0;
    for (int i = 0; rc == 0 && i < TM_GCP_SERVICES; i++) {
        char origin[ORIGIN_MAX];
        char name[80];
        (void)snprintf(name, sizeof name, "CLOUDSDK_API_ENDPOINT_OVERRIDES_%s", services[i].name);
        const char *given = variable(gcp->env, name);
        bool storage = i == TM_GCP_STORAGE || i == TM_GCP_UPLOAD;
        (void)snprintf(origin, sizeof origin, "%s", services[i].origin);
        if (storage && emulator != NULL)
            rc = take_origin("STORAGE_EMULATOR_HOST", emulator, origin, e);
        else if (given != NULL)
            rc = take_origin(name, given, origin, e);
        (void)snprintf(gcp->bases[i], ORIGIN_MAX, "%.480s%s", origin, services[i].path);
        if (storage) (void)snprintf(gcp->objects, ORIGIN_MAX, "%s", origin);
    }
    return rc;
}

const char *tm_gcp_base(const struct tm_gcp *gcp, enum tm_gcp_service service)
{
    return gcp->bases[service];
}

/* ---- who we are ---- */

static int read_credentials(struct tm_gcp *gcp, const char *path, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, FILE_MAX);
    int rc = gcp->env->file_read(gcp->env, path, &text, e);
    if (rc == 0) rc = tm_gcp__read_account(path, tm_text_string(&text), text.length, &gcp->account, e);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    return rc;
}

/* gcloud's folder. */
static bool find_folder(struct tm_env *env, char out[PATH_BYTES])
{
    const char *given = variable(env, "CLOUDSDK_CONFIG");
    const char *home = variable(env, "HOME");
    if (given == NULL && home == NULL) return false;
    int length =
        given != NULL ? snprintf(out, PATH_BYTES, "%s", given) : snprintf(out, PATH_BYTES, "%s/.config/gcloud", home);
    return length > 0 && length < PATH_BYTES - 64;
}

/* That of the variable, else the one that `gcloud config configurations activate` has written down; else "default". */
static void find_configuration(struct tm_env *env, const char *folder, char out[NAME_BYTES])
{
    char path[PATH_BYTES + 64];
    struct tm_text text;
    const char *said = variable(env, "CLOUDSDK_ACTIVE_CONFIG_NAME");
    tm_text_init(&text, FILE_MAX);
    (void)snprintf(path, sizeof path, "%.*s/active_config", PATH_BYTES - 64, folder);
    if (said == NULL && env->file_read(env, path, &text, NULL) == 0) said = tm_text_string(&text);
    size_t length = said != NULL ? strcspn(said, " \t\r\n") : 0;
    bool good = length > 0 && length < NAME_BYTES && memchr(said, '/', length) == NULL;
    (void)snprintf(out, NAME_BYTES, "%.*s", good ? (int)length : (int)strlen("default"), good ? said : "default");
    tm_text_deinit(&text);
}

static void read_configuration(struct tm_gcp *gcp)
{
    char path[PATH_BYTES + 64];
    char folder[PATH_BYTES];
    char name[NAME_BYTES];
    struct tm_text text;
    if (!find_folder(gcp->env, folder)) return;
    find_configuration(gcp->env, folder, name);
    (void)snprintf(path, sizeof path, "%.*s/configurations/config_%.40s", PATH_BYTES - 64, folder, name);
    tm_text_init(&text, FILE_MAX);
    if (gcp->env->file_read(gcp->env, path, &text, NULL) == 0)
        (void)tm_gcp__read_configuration(tm_text_string(&text), gcp->project);
    tm_text_deinit(&text);
}

static void print_identity(struct tm_gcp *gcp, const char *path)
{
    const struct tm_gcp__account *account = &gcp->account;
    if (account->as.url[0] != '\0')
        (void)snprintf(gcp->identity, sizeof gcp->identity, "service account %s, by %.300s", account->as.email, path);
    else if (account->kind == TM_GCP_KEY)
        (void)snprintf(gcp->identity, sizeof gcp->identity, "service account %s", account->email);
    else if (account->kind == TM_GCP_USER)
        (void)snprintf(gcp->identity, sizeof gcp->identity, "the user of %.300s", path);
    else if (account->kind == TM_GCP_FEDERATED)
        (void)snprintf(gcp->identity, sizeof gcp->identity, "the federated identity of %.300s", path);
    else
        (void)snprintf(gcp->identity, sizeof gcp->identity, "the service account of this VM");
}

static int find_account(struct tm_gcp *gcp, struct tm_error *e)
{
    char path[PATH_BYTES + 64] = "";
    char folder[PATH_BYTES];
    const char *given = variable(gcp->env, "GOOGLE_APPLICATION_CREDENTIALS");
    int rc = 0;
    if (given != NULL) {
        (void)snprintf(path, sizeof path, "%.*s", PATH_BYTES, given);
        rc = read_credentials(gcp, given, e);
        if (rc != 0 && rc != -(int)TM_ENOMEM) {
            (void)tm_error_wrap(e, rc, "GOOGLE_APPLICATION_CREDENTIALS");
            if (e != NULL) e->code = TM_EINPUT;
            rc = -(int)TM_EINPUT;
        }
    } else if (find_folder(gcp->env, folder)) {
        (void)snprintf(path, sizeof path, "%s/application_default_credentials.json", folder);
        rc = read_credentials(gcp, path, e);
        if (rc == -(int)TM_ENOTFOUND) rc = 0; /* the metadata server's, then */
    }
    print_identity(gcp, path);
    return rc;
}

const char *tm_gcp_identity(const struct tm_gcp *gcp)
{
    return gcp->identity;
}

/* ---- questions before there is a token ---- */

static int ask_machine(struct tm_gcp *gcp, const char *path, struct tm_web_answer *out, struct tm_error *e)
{
    char url[512];
    const char *host = variable(gcp->env, "GCE_METADATA_HOST");
    (void)snprintf(url, sizeof url, "http://%.200s/computeMetadata/v1/%s", host != NULL ? host : "169.254.169.254",
                   path);
    int rc = tm_web_plain__ask(gcp->env, "GET", url, "Metadata-Flavor: Google\n", NULL, TOKEN_MS, out, e);
    if (rc == -(int)TM_ENOMEM) return rc;
    if (rc != 0)
        return tm_error_set(
            e, TM_EINPUT,
            "no Google Cloud credentials: set GOOGLE_APPLICATION_CREDENTIALS to a service account's key, or "
            "run `gcloud auth application-default login`");
    if (out->status == 200) return 0;
    rc = tm_error_set(e, TM_EINPUT, "the metadata server answers %d to %s: give this VM a service account", out->status,
                      path);
    tm_web_answer_deinit(out);
    return rc;
}

int tm_gcp_project(struct tm_gcp *gcp, const char **out, struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = 0;
    (void)pthread_mutex_lock(&gcp->renewal.lock);
    if (gcp->project[0] == '\0' && gcp->account.kind == TM_GCP_MACHINE) {
        rc = ask_machine(gcp, "project/project-id", &answer, e);
        if (rc == 0) {
            const char *text = tm_text_string(&answer.body);
            (void)snprintf(gcp->project, sizeof gcp->project, "%.*s", (int)strcspn(text, "\r\n/ "), text);
            tm_web_answer_deinit(&answer);
        }
    }
    if (rc == 0 && gcp->project[0] == '\0')
        rc = tm_error_set(e, TM_EINPUT, "no Google Cloud project: set GOOGLE_CLOUD_PROJECT");
    (void)pthread_mutex_unlock(&gcp->renewal.lock);
    if (rc == 0) tm_tape__note(TM_TAPE_PROJECT, gcp->project);
    *out = gcp->project;
    return rc;
}

/* ---- tokens ---- */

#define FORM_TYPE "Content-Type: application/x-www-form-urlencoded\n"

/* Who asks for a federated token, where the provider's word is not enough. */
static void print_client(const struct tm_gcp__account *account, char out[1024])
{
    char plain[600];
    unsigned char coded[804];
    int length = snprintf(plain, sizeof plain, "%s:%s", account->client_id, account->client_secret);
    bool named = account->kind == TM_GCP_FEDERATED && account->client_id[0] != '\0' && length < 600;
    if (named) (void)EVP_EncodeBlock(coded, (const unsigned char *)plain, length);
    (void)snprintf(out, 1024, FORM_TYPE "%s%s%s", named ? "Authorization: Basic " : "", named ? (char *)coded : "",
                   named ? "\n" : "");
    OPENSSL_cleanse(plain, sizeof plain);
    OPENSSL_cleanse(coded, sizeof coded);
}

static int exchange_once(struct tm_gcp *gcp, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_text form;
    char subject[TM_GCP_SUBJECT_MAX] = "";
    char header[1024];
    tm_text_init(&form, (size_t)4 * TM_GCP_SUBJECT_MAX);
    int rc = gcp->account.kind == TM_GCP_FEDERATED
                 ? tm_gcp__fetch_subject(gcp->env, &gcp->account.federation, subject, e)
                 : 0;
    if (rc == 0)
        rc = tm_gcp__token_form(&gcp->account, subject, gcp->env->now_ms(gcp->env) + atomic_load(&gcp->ahead_ms), &form,
                                e);
    print_client(&gcp->account, header);
    if (rc == 0)
        rc = tm_web_plain__ask(gcp->env, "POST", gcp->account.token_uri, header, tm_text_string(&form), TOKEN_MS, out,
                               e);
    if (form.data != NULL) OPENSSL_cleanse(form.data, form.length);
    OPENSSL_cleanse(subject, sizeof subject);
    OPENSSL_cleanse(header, sizeof header);
    tm_text_deinit(&form);
    return rc;
}

/* What the token service says of why: "invalid_grant: the audience does not match". */
static void print_reason(const struct tm_web_answer *answer, char out[300])
{
    json_t *root = NULL;
    struct tm_error own;
    (void)tm_json_load("answer", tm_text_string(&answer->body), answer->body.length, &root, &own);
    const char *code = json_string_value(json_object_get(root, "error"));
    const char *words = json_string_value(json_object_get(root, "error_description"));
    (void)snprintf(out, 300, "%.60s%s%.200s", code != NULL ? code : "", words != NULL ? ": " : "",
                   words != NULL ? words : "");
    json_decref(root);
}

static int exchange(struct tm_gcp *gcp, struct tm_web_answer *out, struct tm_error *e)
{
    char reason[300] = "";
    int rc = exchange_once(gcp, out, e);
    bool dated = gcp->account.kind == TM_GCP_KEY; /* what is signed holds the time */
    if (rc == 0 && out->status == 400 && dated && tm_web__set_clock(gcp->env, out, &gcp->ahead_ms)) {
        tm_web_answer_deinit(out);
        rc = exchange_once(gcp, out, e);
    }
    if (rc != 0 || out->status == 200) return rc;
    if (gcp->account.kind == TM_GCP_FEDERATED) print_reason(out, reason);
    rc = tm_error_set(
        e, TM_EINPUT, "Google gives %s no token: refused with %d %s; %s", gcp->identity, out->status, reason,
        gcp->account.kind == TM_GCP_KEY         ? "is the key still there, and the clock of this machine right?"
        : gcp->account.kind == TM_GCP_FEDERATED ? "the pool's provider and its conditions must let this token in"
                                                : "log in again with `gcloud auth application-default login`");
    tm_web_answer_deinit(out);
    return rc;
}

/* Our own; where we ask in another's name, what that is asked for with. */
static int ask_own(struct tm_gcp *gcp, char token[TM_GCP_TOKEN_MAX], int64_t *out_ends_ms, struct tm_error *e)
{
    struct tm_web_answer answer;
    int64_t left_s = 0;
    int rc = gcp->account.kind == TM_GCP_MACHINE
                 ? ask_machine(gcp, "instance/service-accounts/default/token", &answer, e)
                 : exchange(gcp, &answer, e);
    if (rc != 0) return rc;
    rc = tm_gcp__read_token(tm_text_string(&answer.body), answer.body.length, token, &left_s, e);
    if (rc == 0) *out_ends_ms = gcp->env->now_ms(gcp->env) + left_s * 1000;
    if (answer.body.data != NULL) OPENSSL_cleanse(answer.body.data, answer.body.length);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* The service account's, of whoever may have it. */
static int ask_impersonated(struct tm_gcp *gcp, const char *own, char token[TM_GCP_TOKEN_MAX], int64_t *out_ends_ms,
                            struct tm_error *e)
{
    const struct tm_gcp__impersonation *as = &gcp->account.as;
    char header[TM_GCP_TOKEN_MAX + 100];
    struct tm_gcp_refusal why;
    struct tm_web_answer answer;
    struct tm_text body;
    tm_text_init(&body, 4096);
    (void)snprintf(header, sizeof header, "Content-Type: application/json\nAuthorization: Bearer %s\n", own);
    int rc = tm_gcp__impersonation_body(as, &body, e);
    if (rc == 0) rc = tm_web_plain__ask(gcp->env, "POST", as->url, header, tm_text_string(&body), TOKEN_MS, &answer, e);
    OPENSSL_cleanse(header, sizeof header);
    tm_text_deinit(&body);
    if (rc != 0) return rc;
    if (answer.status == 200) {
        rc = tm_gcp__read_impersonated(tm_text_string(&answer.body), answer.body.length, token, out_ends_ms, e);
        if (rc == 0) *out_ends_ms -= atomic_load(&gcp->ahead_ms); /* by our clock */
    } else {
        (void)tm_gcp_refusal(&answer, &why, NULL);
        rc = tm_error_set(
            e, TM_EINPUT,
            "Google gives no token of %s: %d %.300s; allow iam.serviceAccounts.getAccessToken (role Service "
            "Account Token Creator, or Workload Identity User) on it",
            as->email, answer.status, why.message);
    }
    if (answer.body.data != NULL) OPENSSL_cleanse(answer.body.data, answer.body.length);
    tm_web_answer_deinit(&answer);
    return rc;
}

static int ask_token(struct tm_gcp *gcp, struct tokens *out, struct tm_error *e)
{
    int64_t ends_ms = 0;
    *out = (struct tokens){.ends_ms = INT64_MAX};
    if (tm_tape__is_replayed()) { /* nobody is asked, so nobody checks it */
        (void)snprintf(out->token, TM_GCP_TOKEN_MAX, "replayed");
        return 0;
    }
    if (gcp->account.as.url[0] == '\0') return ask_own(gcp, out->token, &out->ends_ms, e);
    int rc = ask_own(gcp, out->own, &ends_ms, e);
    if (rc == 0) rc = ask_impersonated(gcp, out->own, out->token, &out->ends_ms, e);
    if (rc == 0 && ends_ms < out->ends_ms) out->ends_ms = ends_ms; /* both are used */
    return rc;
}

/* With the lock. */
static void keep_token(struct tm_gcp *gcp, const struct tokens *fresh)
{
    bool same = strcmp(gcp->tokens.token, fresh->token) == 0;
    gcp->tokens = *fresh;
    if (!same) tm_renewal__got(&gcp->renewal);
}

static bool is_good(const struct tm_gcp *gcp)
{
    return gcp->tokens.token[0] != '\0' && tm_renewal__is_good(&gcp->renewal, gcp->tokens.ends_ms);
}

/* By a thread. */
static int ask_beside(void *context, struct tm_error *e)
{
    struct tm_gcp *gcp = context;
    struct tokens fresh;
    int rc = ask_token(gcp, &fresh, e);
    (void)pthread_mutex_lock(&gcp->renewal.lock);
    if (rc == 0) keep_token(gcp, &fresh);
    bool good = is_good(gcp);
    (void)pthread_mutex_unlock(&gcp->renewal.lock);
    OPENSSL_cleanse(&fresh, sizeof fresh);
    if (rc != 0 && good) tm_log(TM_LOG_WARN, "%s; the old token is still good", e->text);
    return rc;
}

/* A token that lasts for a while yet, as a header. -TM_EBUSY: it is being asked for. `own`: not that of the service
 * account in whose name all else is asked. */
static int add_token(struct tm_gcp *gcp, bool own, struct tm_text *headers, struct tm_error *e)
{
    int rc = 0;
    (void)pthread_mutex_lock(&gcp->renewal.lock);
    if (is_good(gcp))
        tm_renewal__refresh(&gcp->renewal, gcp->tokens.ends_ms, renew_before_ms);
    else
        rc = tm_renewal__look(&gcp->renewal, e);
    own = own && gcp->tokens.own[0] != '\0';
    if (rc == 0) tm_text_printf(headers, "authorization: Bearer %s\n", own ? gcp->tokens.own : gcp->tokens.token);
    (void)pthread_mutex_unlock(&gcp->renewal.lock);
    return rc;
}

/* ---- requests ---- */

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    const struct tm_gcp_request *r = context;
    char mark = '?';
    tm_text_printf(url, "%s%s", r->gcp->bases[r->service], r->path);
    for (size_t i = 0; i < r->query_count; i++, mark = '&') {
        tm_text_printf(url, "%c%s=", mark, r->query[i].name);
        tm_percent_encode(r->query[i].value, false, url);
    }
    if (r->body != NULL) tm_text_printf(headers, "Content-Type: %s\n", r->type != NULL ? r->type : "application/json");
    for (size_t i = 0; i < r->header_count; i++)
        tm_text_printf(headers, "%s: %s\n", r->headers[i].name, r->headers[i].value);
    bool person = r->gcp->account.kind == TM_GCP_USER &&
                  r->gcp->account.as.url[0] == '\0'; /* belongs to no project: say on whose account it is asked */
    if (r->service == TM_GCP_BILLING && person && r->gcp->project[0] != '\0')
        tm_text_printf(headers, "x-goog-user-project: %s\n", r->gcp->project);
    return add_token(r->gcp, r->by_own, headers, e);
}

/* A token may have ended before its time; and who asks too often hears 403, too. */
static bool again(void *context, const struct tm_web_answer *answer)
{
    struct tm_gcp_request *r = context;
    struct tm_gcp_refusal why;
    if (answer->status == 401 && !r->renewed) {
        r->renewed = true;
        (void)pthread_mutex_lock(&r->gcp->renewal.lock);
        r->gcp->tokens.token[0] = '\0';
        tm_renewal__doubt(&r->gcp->renewal);
        (void)pthread_mutex_unlock(&r->gcp->renewal.lock);
        return true;
    }
    if (answer->status != 403 || tm_gcp_refusal(answer, &why, NULL) != 0) return false;
    return strcmp(why.code, "rateLimitExceeded") == 0 || strcmp(why.code, "userRateLimitExceeded") == 0;
}

int tm_gcp_begin(struct tm_web *web, struct tm_gcp_request *r, struct tm_web_call **out, struct tm_error *e)
{
    assert(r->gcp != NULL && r->path[0] == '/' && r->query_count <= 8 && r->header_count <= 4);
    struct tm_web_request request = {.method = r->method,
                                     .body = r->body,
                                     .length = r->length,
                                     .into = r->into,
                                     .room = r->room,
                                     .deadline_ms = r->deadline_ms,
                                     .silence_ms = r->silence_ms,
                                     .tries_max = r->tries_max,
                                     .direct = strncmp(r->gcp->bases[r->service], "http://", 7) == 0,
                                     .prepare = prepare,
                                     .again = again,
                                     .context = r};
    return tm_web_begin(web, &request, out, e);
}

int tm_gcp_ask(struct tm_web *web, struct tm_gcp_request *r, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web_call *call = NULL;
    int rc = tm_gcp_begin(web, r, &call, e);
    return rc == 0 ? tm_web__finish(web, call, out, e) : rc;
}

int tm_gcp_refusal(const struct tm_web_answer *answer, struct tm_gcp_refusal *out, struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_error own;
    *out = (struct tm_gcp_refusal){.code = ""};
    if (answer->body.length == 0) return 0;
    int rc = tm_json_load("answer", tm_text_string(&answer->body), answer->body.length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    const json_t *error = rc == 0 ? json_object_get(root, "error") : NULL;
    const json_t *first = json_array_get(json_object_get(error, "errors"), 0);
    const char *code = json_string_value(json_object_get(first, "reason"));
    const char *message = json_string_value(json_object_get(error, "message"));
    if (code == NULL) code = json_string_value(json_object_get(error, "status"));
    if (code != NULL) (void)snprintf(out->code, sizeof out->code, "%s", code);
    if (message != NULL) (void)snprintf(out->message, sizeof out->message, "%s", message);
    json_decref(root);
    return 0;
}

/* ---- URLs ---- */

static void put_hex(struct tm_text *out, const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        tm_text_printf(out, "%02x", bytes[i]);
}

/* Waits for the answer, unless everything ends. */
static int ask_signer(struct tm_gcp *gcp, struct tm_gcp_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    struct tm_web_call *call = NULL;
    int rc = tm_web_create(gcp->env, &web, e);
    if (rc == 0) rc = tm_gcp_begin(web, request, &call, e);
    while (rc == 0 && !tm_web_is_done(call) && !atomic_load(&gcp->signer.ended))
        rc = tm_web_step_wait(web, e);
    if (rc == 0) rc = tm_web_end(call, out, e);
    tm_web_destroy(web);
    return rc;
}

/* In the name of a service account, by a call. */
static int sign_there(struct tm_gcp *gcp, const char *signer, const struct tm_text *text,
                      unsigned char out[TM_GCP_SIGNATURE_MAX + 3], size_t *out_length, struct tm_error *e)
{
    struct tm_web_answer answer = {.status = 0};
    struct tm_gcp_refusal why = {.code = ""};
    char path[400];
    unsigned char coded[4096];
    char body[4200];
    json_t *root = NULL;
    if (text->length > sizeof coded / 4 * 3 - 4) return tm_error_set(e, TM_ELIMIT, "too long to be signed");
    (void)EVP_EncodeBlock(coded, (const unsigned char *)text->data, (int)text->length);
    (void)snprintf(path, sizeof path, "/projects/-/serviceAccounts/%.250s:signBlob", signer);
    int length = snprintf(body, sizeof body, "{\"payload\": \"%s\"}", (const char *)coded);
    struct tm_gcp_request request = {.gcp = gcp,
                                     .service = TM_GCP_IAM,
                                     .method = "POST",
                                     .path = path,
                                     .body = body,
                                     .length = (size_t)length,
                                     .by_own = true,
                                     .deadline_ms = SIGN_MS,
                                     .tries_max = TRIES};
    int rc = ask_signer(gcp, &request, &answer, e);
    if (rc == 0 && answer.status != 200) {
        (void)tm_gcp_refusal(&answer, &why, NULL);
        rc = tm_error_set(
            e, TM_EINPUT,
            "Google does not sign in the name of %s: %d %s; allow iam.serviceAccounts.signBlob (role Service "
            "Account Token Creator), or use a service account's key",
            signer, answer.status, why.message);
    }
    if (rc == 0) rc = tm_json_load("Google's signature", tm_text_string(&answer.body), answer.body.length, &root, e);
    const char *found = rc == 0 ? json_string_value(json_object_get(root, "signedBlob")) : NULL;
    size_t size = found != NULL ? strlen(found) : 0;
    int bytes = size > 4 && size % 4 == 0 && size / 4 * 3 <= TM_GCP_SIGNATURE_MAX
                    ? EVP_DecodeBlock(out, (const unsigned char *)found, (int)size)
                    : -1;
    if (rc == 0 && bytes <= 0) rc = tm_error_set(e, TM_EIO, "Google's answer holds no signature");
    if (rc == 0) *out_length = (size_t)bytes - (found[size - 1] == '=') - (found[size - 2] == '=');
    json_decref(root);
    if (answer.status != 0) tm_web_answer_deinit(&answer);
    return rc;
}

/* Who this VM is: it stays the same. */
static int find_machine(struct tm_gcp *gcp, char out[TM_GCP_EMAIL_MAX], struct tm_error *e)
{
    struct tm_web_answer answer;
    (void)pthread_mutex_lock(&gcp->renewal.lock);
    memcpy(out, gcp->machine, TM_GCP_EMAIL_MAX);
    (void)pthread_mutex_unlock(&gcp->renewal.lock);
    if (out[0] != '\0') return 0;
    int rc = ask_machine(gcp, "instance/service-accounts/default/email", &answer, e);
    if (rc != 0) return rc;
    const char *text = tm_text_string(&answer.body);
    (void)snprintf(out, TM_GCP_EMAIL_MAX, "%.*s", (int)strcspn(text, "\r\n"), text);
    tm_web_answer_deinit(&answer);
    (void)pthread_mutex_lock(&gcp->renewal.lock);
    memcpy(gcp->machine, out, TM_GCP_EMAIL_MAX);
    (void)pthread_mutex_unlock(&gcp->renewal.lock);
    return 0;
}

/* By a key that we have. */
static bool signs_itself(const struct tm_gcp *gcp)
{
    return gcp->account.kind == TM_GCP_KEY && gcp->account.as.url[0] == '\0';
}

static int find_signer(struct tm_gcp *gcp, const char *given, char out[TM_GCP_EMAIL_MAX], struct tm_error *e)
{
    if (given == NULL && gcp->account.as.url[0] != '\0') given = gcp->account.as.email;
    if (signs_itself(gcp) || given != NULL) {
        (void)snprintf(out, TM_GCP_EMAIL_MAX, "%s", signs_itself(gcp) ? gcp->account.email : given);
        return 0;
    }
    if (gcp->account.kind != TM_GCP_MACHINE)
        return tm_error_set(
            e, TM_EINPUT,
            "VMs find the program by signed URLs, and a login cannot sign: name a service account, "
            "fleet: {gcp: {service_account: NAME@PROJECT.iam.gserviceaccount.com}}, in whose name you may "
            "(role Service Account Token Creator)");
    return find_machine(gcp, out, e);
}

/* Version 4: the path and query of the URL but for its signature, and what is signed. */
static int put_url(struct tm_gcp *gcp, const struct tm_gcp_object *object, const char *signer, int64_t seconds,
                   struct tm_text *target, struct tm_text *to_sign, struct tm_error *e)
{
    struct tm_text canonical;
    struct tm tm;
    char date[20];
    char hash[TM_SHA256_HEX];
    time_t now = (time_t)((gcp->env->now_ms(gcp->env) + atomic_load(&gcp->ahead_ms)) / 1000);
    (void)gmtime_r(&now, &tm);
    (void)strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &tm);
    tm_text_printf(target, "/%s/", object->bucket);
    tm_percent_encode(object->name, true, target);
    size_t path = target->length;
    tm_text_puts(target, "?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=");
    tm_percent_encode(signer, false, target);
    tm_text_printf(target,
                   "%%2F%.8s%%2Fauto%%2Fstorage%%2Fgoog4_request&X-Goog-Date=%s&X-Goog-Expires=%" PRId64
                   "&X-Goog-SignedHeaders=host",
                   date, date, seconds);
    int rc = tm_text_status(target, e);
    if (rc != 0) return rc;
    tm_text_init(&canonical, 16384);
    tm_text_printf(&canonical, "%s\n%.*s\n%s\nhost:%s\n\nhost\nUNSIGNED-PAYLOAD", object->method, (int)path,
                   target->data, target->data + path + 1, strstr(gcp->objects, "://") + 3);
    rc = tm_text_status(&canonical, e);
    if (rc == 0) tm_sha256_hex(canonical.data, canonical.length, hash);
    if (rc == 0) tm_text_printf(to_sign, "GOOG4-RSA-SHA256\n%s\n%.8s/auto/storage/goog4_request\n%s", date, date, hash);
    tm_text_deinit(&canonical);
    return rc == 0 ? tm_text_status(to_sign, e) : rc;
}

int tm_gcp_ask_url(struct tm_gcp *gcp, const struct tm_gcp_object *object, const char *given, int64_t seconds,
                   struct tm_text *out, struct tm_error *e)
{
    struct tm_text target;
    struct tm_text to_sign;
    unsigned char signature[TM_GCP_SIGNATURE_MAX + 3];
    size_t size = 0;
    char signer[TM_GCP_EMAIL_MAX];
    tm_text_init(&target, 8192);
    tm_text_init(&to_sign, 1024);
    int rc = find_signer(gcp, given, signer, e);
    if (rc == 0) rc = put_url(gcp, object, signer, seconds, &target, &to_sign, e);
    if (rc == 0)
        rc = signs_itself(gcp) ? tm_gcp__sign(&gcp->account, to_sign.data, to_sign.length, signature, &size, e)
                               : sign_there(gcp, signer, &to_sign, signature, &size, e);
    if (rc == 0) {
        tm_text_printf(out, "%s%s&X-Goog-Signature=", gcp->objects, tm_text_string(&target));
        put_hex(out, signature, size);
        rc = tm_text_status(out, e);
    }
    tm_text_deinit(&target);
    tm_text_deinit(&to_sign);
    return rc;
}

/* By the signer's thread. */
static int sign_beside(void *context, const struct tm_gcp__wish *wish, struct tm_text *out, struct tm_error *e)
{
    const struct tm_gcp_object object = {wish->method, wish->bucket, wish->name};
    return tm_gcp_ask_url(context, &object, wish->signer[0] != '\0' ? wish->signer : NULL, wish->seconds, out, e);
}

int tm_gcp_url(struct tm_gcp *gcp, const struct tm_gcp_object *object, const char *given, int64_t seconds,
               struct tm_text *out, struct tm_error *e)
{
    struct tm_gcp__wish wish = {.seconds = seconds};
    bool named = given != NULL || gcp->account.as.url[0] != '\0';
    bool asks = gcp->account.kind == TM_GCP_MACHINE || (!signs_itself(gcp) && named);
    if (!asks) return tm_gcp_ask_url(gcp, object, given, seconds, out, e);
    if (given == NULL) given = "";
    if (strlen(object->method) >= sizeof wish.method || strlen(object->bucket) >= sizeof wish.bucket ||
        strlen(object->name) >= sizeof wish.name || strlen(given) >= sizeof wish.signer)
        return tm_error_set(e, TM_ELIMIT, "too long to be signed");
    (void)snprintf(wish.method, sizeof wish.method, "%s", object->method);
    (void)snprintf(wish.bucket, sizeof wish.bucket, "%s", object->bucket);
    (void)snprintf(wish.name, sizeof wish.name, "%s", object->name);
    (void)snprintf(wish.signer, sizeof wish.signer, "%s", given);
    return tm_gcp__signer_look(&gcp->signer, &wish, out, e);
}

/* ---- the project ---- */

int tm_gcp_create(struct tm_env *env, struct tm_gcp **out, struct tm_error *e)
{
    assert(env != NULL);
    struct tm_gcp *gcp = tm_calloc(1, sizeof *gcp);
    if (gcp == NULL) return tm_error_nomem(e);
    gcp->env = env;
    tm_renewal__init(&gcp->renewal, env, ask_beside, gcp);
    tm_gcp__signer_init(&gcp->signer, env, sign_beside, gcp);
    int rc = take_endpoints(gcp, e);
    if (rc == 0) rc = find_account(gcp, e);
    if (rc != 0) {
        tm_gcp_destroy(gcp);
        return rc;
    }
    const char *named = variable(env, "GOOGLE_CLOUD_PROJECT");
    if (named == NULL) named = variable(env, "CLOUDSDK_CORE_PROJECT");
    if (named == NULL && gcp->account.project[0] != '\0') named = gcp->account.project;
    if (named != NULL)
        (void)snprintf(gcp->project, sizeof gcp->project, "%.*s", (int)strcspn(named, "\r\n/ "), named);
    else
        read_configuration(gcp);
    char of_tape[TM_TAPE_NOTE_MAX];
    tm_tape__noted(TM_TAPE_PROJECT, of_tape);
    if (of_tape[0] != '\0') (void)snprintf(gcp->project, sizeof gcp->project, "%s", of_tape);
    *out = gcp;
    return 0;
}

void tm_gcp_destroy(struct tm_gcp *gcp)
{
    if (gcp == NULL) return;
    tm_gcp__signer_deinit(&gcp->signer); /* its thread has tokens */
    tm_renewal__deinit(&gcp->renewal);   /* its thread has the account */
    tm_gcp__account_deinit(&gcp->account);
    OPENSSL_cleanse(gcp, sizeof *gcp);
    tm_free(gcp);
}

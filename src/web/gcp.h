/* Google Cloud as one project: where its services are, as whom we ask, and requests that carry a token. Settings are
 * those of Google's own tools. Credentials are the application default credentials, the first that there are:
 *
 *   GOOGLE_APPLICATION_CREDENTIALS          a file
 *   application_default_credentials.json    in CLOUDSDK_CONFIG, or ~/.config/gcloud: what `gcloud auth
 *                                           application-default login` writes
 *   the metadata server                     of the VM that this runs on (GCE_METADATA_HOST)
 *
 * A file holds a service account's key, a login, a login in a service account's name (impersonation), or what the token
 * of another identity provider, in a file or at a URL, is exchanged by (workload identity federation), in a service
 * account's name or not.
 *
 * The project is GOOGLE_CLOUD_PROJECT, CLOUDSDK_CORE_PROJECT, the file's, gcloud's own setting, or the VM's. Services
 * are elsewhere by CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE (_STORAGE, _IAMCREDENTIALS, _CLOUDRESOURCEMANAGER,
 * _CLOUDBILLING) and, for objects, STORAGE_EMULATOR_HOST.
 *
 * Keys and tokens are never printed, logged or stored; a token is asked for anew before it ends, or when it is refused.
 */
#ifndef TM_WEB_GCP_H
#define TM_WEB_GCP_H

#include "web/aws_sign.h"
#include "web/web.h"

struct tm_gcp;

/* Reads settings and files; asks only the metadata server, for a project that nothing else names. -TM_EINPUT: there are
 * no credentials, or no good ones. Any thread may use the result. */
int tm_gcp_create(struct tm_env *env, struct tm_gcp **out, struct tm_error *e);
void tm_gcp_destroy(struct tm_gcp *gcp);
/* -TM_EINPUT: nothing names one. Borrowed. */
int tm_gcp_project(struct tm_gcp *gcp, const char **out, struct tm_error *e);
/* For people: "service account NAME", "service account NAME, by FILE", "the user of FILE", "the service account of this
 * VM". Borrowed. */
const char *tm_gcp_identity(const struct tm_gcp *gcp);

enum tm_gcp_service {
    TM_GCP_COMPUTE,   /* paths are below /compute/v1 */
    TM_GCP_STORAGE,   /* below /storage/v1 */
    TM_GCP_UPLOAD,    /* below /upload/storage/v1 */
    TM_GCP_IAM,       /* below /v1 of iamcredentials */
    TM_GCP_RESOURCES, /* below /v1 of cloudresourcemanager */
    TM_GCP_BILLING,   /* below /v1 of cloudbilling */
    TM_GCP_SERVICES
};

/* Where it is, without a slash at the end. Borrowed. */
const char *tm_gcp_base(const struct tm_gcp *gcp, enum tm_gcp_service service);

/* One request; the caller's, and as it is until the call has ended. */
struct tm_gcp_request {
    struct tm_gcp *gcp;
    enum tm_gcp_service service;
    const char *method;
    const char *path; /* "/...", as it is sent: with what is special in it encoded */
    struct tm_web_pair query[8];
    size_t query_count;
    struct tm_web_pair headers[4];
    size_t header_count;
    const void *body;
    size_t length;
    const char *type; /* of the body; NULL: JSON */
    void *into;       /* as of tm_web_request */
    size_t room;
    int64_t deadline_ms;
    int64_t silence_ms;
    int tries_max;
    bool by_own;  /* not in the name of the service account that all else is asked in the name of */
    bool renewed; /* its own */
};

/* Begins it. What follows is as of tm_web_begin. */
int tm_gcp_begin(struct tm_web *web, struct tm_gcp_request *request, struct tm_web_call **out, struct tm_error *e);
/* From begin to end, waiting. */
int tm_gcp_ask(struct tm_web *web, struct tm_gcp_request *request, struct tm_web_answer *out, struct tm_error *e);

/* Appends the URL by which anybody may get or put this object, for so long (at most 7 days). A service account's key
 * signs it; without one, Google does in the name of `signer` (a service account; NULL: the VM's own), which takes a
 * call. -TM_EBUSY: it is under way; look again later, with the same words. */
struct tm_gcp_object {
    const char *method;
    const char *bucket;
    const char *name;
};
int tm_gcp_url(struct tm_gcp *gcp, const struct tm_gcp_object *object, const char *signer, int64_t seconds,
               struct tm_text *out, struct tm_error *e);
/* The same, waiting. */
int tm_gcp_ask_url(struct tm_gcp *gcp, const struct tm_gcp_object *object, const char *signer, int64_t seconds,
                   struct tm_text *out, struct tm_error *e);

/* What an answer that is no success says: Google's reason ("" where it gives none) and message. -TM_ENOMEM. */
struct tm_gcp_refusal {
    char code[128];
    char message[512];
};
int tm_gcp_refusal(const struct tm_web_answer *answer, struct tm_gcp_refusal *out, struct tm_error *e);

#endif

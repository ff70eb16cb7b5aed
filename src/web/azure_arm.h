/* Azure's Resource Manager as one subscription: where it is, as whom we ask (azure_identity.h), and its refusals read.
 * AZURE_SUBSCRIPTION_ID says which (else the login of az does), AZURE_RESOURCE_MANAGER_ENDPOINT where, if not in the
 * public cloud. */
#ifndef TM_WEB_AZURE_ARM_H
#define TM_WEB_AZURE_ARM_H

#include "web/web.h"

struct tm_arm;

/* Reads settings, asks nobody. -TM_EINPUT: they are missing, or no good. */
int tm_arm_create(struct tm_env *env, struct tm_arm **out, struct tm_error *e);
void tm_arm_destroy(struct tm_arm *arm);
const char *tm_arm_subscription(const struct tm_arm *arm); /* borrowed */
const char *tm_arm_endpoint(const struct tm_arm *arm);     /* borrowed: "https://management.azure.com" */
/* Borrowed: whom its tokens are for, which is where it is, but for one without TLS: then the public cloud. */
const char *tm_arm_audience(const struct tm_arm *arm);

enum { TM_ARM_URL_MAX = 8192 };

/* One request; the caller's, and as it is until the call has ended. */
struct tm_arm_request {
    struct tm_arm *arm;
    const char *method;
    char url[TM_ARM_URL_MAX]; /* tm_arm_path, or tm_arm_follow */
    const char *body;         /* JSON; NULL: none */
    int64_t deadline_ms;
    int tries_max;
    bool renewed; /* its own */
};

/* The URL of "/subscriptions/S" and this path, which is encoded already ("/providers/...?api-version=..."). */
void tm_arm_path(struct tm_arm_request *request, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A URL that the service gave: of a next page, or of an operation. False: it is not the service's own, and is not
 * asked, because it would see our token. */
bool tm_arm_follow(struct tm_arm_request *request, const char *url);

int tm_arm_begin(struct tm_web *web, struct tm_arm_request *request, struct tm_web_call **out, struct tm_error *e);
/* From begin to end, waiting. */
int tm_arm_ask(struct tm_web *web, struct tm_arm_request *request, struct tm_web_answer *out, struct tm_error *e);

/* What an answer or an operation that is no success says: "" where it does not. Of nested errors the innermost code
 * that the table of remedies can use is that of the first detail, where the outer one says nothing (DeploymentFailed).
 */
struct tm_arm_refusal {
    char code[128];
    char message[512];
};
/* -TM_ENOMEM. What is not JSON is a refusal without a code. */
int tm_arm_refusal(const char *text, size_t length, struct tm_arm_refusal *out, struct tm_error *e);

#endif

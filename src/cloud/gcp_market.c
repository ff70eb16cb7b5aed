#include "cloud/gcp_market.h"

#include "base/alloc.h"
#include "base/log.h"
#include "cloud/gcp_sku.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 60000, TRIES = 4, PAGES_MAX = 200, BODY_MAX = 4096 };
#define COMPUTE_ENGINE "/services/6F81-5844-456A/skus" /* Compute Engine's number in the catalogue */
#define PAGE_SIZE      "2000"

struct asking {
    struct tm_gcp *gcp;
    struct tm_web *web;
    const char *project;
    const struct tm_market_ask *ask;
    const struct tm_instance_type **types; /* of the wants */
    struct tm_gcp__price *prices;          /* of the wants */
};

/* The answer as JSON; the caller's. */
static int ask_json(const struct asking *a, struct tm_gcp_request *request, json_t **out, struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why;
    request->gcp = a->gcp;
    request->deadline_ms = ASK_MS;
    request->tries_max = TRIES;
    int rc = tm_gcp_ask(a->web, request, &answer, e);
    if (rc != 0) return rc;
    if (answer.status != 200) {
        rc = tm_gcp_refusal(&answer, &why, e);
        if (rc == 0)
            rc = tm_error_set(e, TM_EINPUT, "Google answers %d %s: %.300s", answer.status, why.code, why.message);
    } else {
        rc = tm_json_load("Google's answer", tm_text_string(&answer.body), answer.body.length, out, e);
    }
    tm_web_answer_deinit(&answer);
    return rc;
}

/* ---- prices ---- */

static void take_page(const struct asking *a, const json_t *root)
{
    const json_t *skus = json_object_get(root, "skus");
    for (size_t i = 0; i < json_array_size(skus); i++) {
        struct tm_gcp__sku sku;
        if (!tm_gcp__read_sku(json_array_get(skus, i), &sku)) continue;
        for (size_t k = 0; k < a->ask->want_count; k++)
            if (a->types[k] != NULL) tm_gcp__price_take(&a->prices[k], a->types[k], a->ask->wants[k].region, &sku);
    }
}

struct tm_gcp_request tm_gcp_market__page(struct tm_gcp *gcp, const char *next)
{
    struct tm_gcp_request request = {.gcp = gcp,
                                     .service = TM_GCP_BILLING,
                                     .method = "GET",
                                     .path = COMPUTE_ENGINE,
                                     .query = {{"pageSize", PAGE_SIZE}, {"currencyCode", "USD"}},
                                     .query_count = 2,
                                     .deadline_ms = ASK_MS,
                                     .tries_max = TRIES};
    if (next[0] != '\0') request.query[request.query_count++] = (struct tm_web_pair){"pageToken", next};
    return request;
}

/* The list has tens of thousands of rows, and cannot be asked for less: page by page. */
static int ask_prices(const struct asking *a, struct tm_error *e)
{
    char next[1024] = "";
    int rc = 0;
    int page = 0;
    for (; rc == 0 && page < PAGES_MAX && (page == 0 || next[0] != '\0'); page++) {
        json_t *root = NULL;
        struct tm_gcp_request request = tm_gcp_market__page(a->gcp, next);
        rc = ask_json(a, &request, &root, e);
        if (rc == 0) take_page(a, root);
        const char *more = rc == 0 ? json_string_value(json_object_get(root, "nextPageToken")) : NULL;
        if (more != NULL && strlen(more) >= sizeof next)
            rc = tm_error_set(e, TM_ELIMIT, "Google's price list: a page's token has %zu letters", strlen(more));
        (void)snprintf(next, sizeof next, "%s", rc == 0 && more != NULL ? more : "");
        json_decref(root);
    }
    if (rc == 0 && next[0] != '\0')
        rc = tm_error_set(e, TM_ELIMIT, "Google's price list has more than %d pages", PAGES_MAX);
    return rc == 0 ? 0
                   : tm_error_wrap(e, rc,
                                   "Google's price list (the Cloud Billing API must be on: gcloud services enable "
                                   "cloudbilling.googleapis.com)");
}

/* ---- advice ---- */

/* How likely so many are had there, of 10. */
static int ask_advice(const struct asking *a, const struct tm_market_want *want, double *out, struct tm_error *e)
{
    char path[300];
    struct tm_text body;
    json_t *root = NULL;
    (void)snprintf(path, sizeof path, "/projects/%.120s/regions/%.60s/advice/capacity", a->project, want->region);
    tm_text_init(&body, BODY_MAX);
    int rc = tm_gcp__print_advice(want->type, want->zone, a->ask->instances, &body, e);
    struct tm_gcp_request request = {.service = TM_GCP_COMPUTE,
                                     .method = "POST",
                                     .path = path,
                                     .body = tm_text_string(&body),
                                     .length = body.length};
    if (rc == 0) rc = ask_json(a, &request, &root, e);
    if (rc == 0) *out = 10 * tm_gcp__read_advice(root);
    json_decref(root);
    tm_text_deinit(&body);
    return rc;
}

static int add_quotes(const struct asking *a, struct tm_market_quotes *out, struct tm_error *e)
{
    bool advised = a->ask->instances > 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->ask->want_count; i++) {
        const struct tm_market_want *want = &a->ask->wants[i];
        struct tm_error own = {.text = ""};
        struct tm_market_quote quote = {.score = NAN};
        if (a->types[i] == NULL) continue;
        quote.usd_h = tm_gcp__price_sum(&a->prices[i], a->types[i]);
        if (isnan(quote.usd_h)) continue;
        (void)snprintf(quote.type, sizeof quote.type, "%s", want->type);
        (void)snprintf(quote.region, sizeof quote.region, "%s", want->region);
        (void)snprintf(quote.zone, sizeof quote.zone, "%s", want->zone);
        int one = advised && want->zone[0] != '\0' ? ask_advice(a, want, &quote.score, &own) : 0;
        if (one == -(int)TM_ENOMEM) return tm_error_nomem(e);
        if (one != 0) tm_log(TM_LOG_WARN, "Google gives no capacity advice: %s", own.text);
        advised = advised && one == 0;
        rc = tm_market_quotes__add(out, &quote, e);
    }
    return rc;
}

int tm_gcp_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                       struct tm_error *e)
{
    struct asking a = {.ask = ask};
    a.types = tm_calloc(ask->want_count + 1, sizeof *a.types);
    a.prices = tm_calloc(ask->want_count + 1, sizeof *a.prices);
    int rc = a.types == NULL || a.prices == NULL ? tm_error_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < ask->want_count; i++) {
        a.types[i] = tm_catalog_instance(ask->catalog, "gcp", ask->wants[i].type);
        tm_gcp__price_init(&a.prices[i]);
    }
    if (rc == 0) rc = tm_gcp_create(env, &a.gcp, e);
    if (rc == 0) rc = tm_gcp_project(a.gcp, &a.project, e);
    if (rc == 0) rc = tm_web_create(env, &a.web, e);
    if (rc == 0) rc = ask_prices(&a, e);
    if (rc == 0) rc = add_quotes(&a, out, e);
    tm_web_destroy(a.web);
    tm_gcp_destroy(a.gcp);
    tm_free(a.types);
    tm_free(a.prices);
    return rc;
}

int tm_gcp_market_prices(struct tm_env *env, const struct tm_market_want *wants, size_t count, double *out_usd_h,
                         struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_market_quotes quotes = {.items = NULL};
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, e);
    const struct tm_market_ask ask = {.cloud = "gcp", .wants = wants, .want_count = count, .catalog = &catalog};
    if (rc == 0) rc = tm_gcp_market__ask(env, &ask, &quotes, e);
    for (size_t k = 0; k < count; k++)
        out_usd_h[k] = NAN;
    for (size_t i = 0; rc == 0 && i < quotes.count; i++)
        for (size_t k = 0; k < count; k++)
            if (strcmp(quotes.items[i].type, wants[k].type) == 0 &&
                strcmp(quotes.items[i].region, wants[k].region) == 0)
                out_usd_h[k] = quotes.items[i].usd_h;
    tm_market_quotes__deinit(&quotes);
    tm_catalog_deinit(&catalog);
    return rc;
}

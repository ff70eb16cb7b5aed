#include "cloud/azure_market.h"

#include "base/alloc.h"
#include "base/log.h"
#include "cloud/azure_text.h"
#include "web/aws_sign.h"
#include "web/web.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 4, PAGES_MAX = 100, URL_MAX = 2048 };
#define PUBLIC_CLOUD "https://management.azure.com"

const char *tm_azure_market__origin(struct tm_env *env, const char *resource_manager)
{
    const char *said = env->variable(env, "AZURE_RETAIL_PRICES_ENDPOINT");
    if (said != NULL && said[0] != '\0') return said;
    size_t length = strlen(resource_manager);
    while (length > 0 && resource_manager[length - 1] == '/')
        length--;
    bool known = length == strlen(PUBLIC_CLOUD) && strncmp(resource_manager, PUBLIC_CLOUD, length) == 0;
    return length == 0 || known ? "https://prices.azure.com" : NULL;
}

int tm_azure_market__url(const char *origin, const char *size, const char *location, size_t skip, struct tm_text *out,
                         struct tm_error *e)
{
    char filter[300];
    char where[100] = "";
    if (location[0] != '\0') (void)snprintf(where, sizeof where, "armRegionName eq '%.60s' and ", location);
    (void)snprintf(filter, sizeof filter, "%sarmSkuName eq '%.60s' and priceType eq 'Consumption'", where, size);
    tm_text_printf(out, "%.200s/api/retail/prices?$filter=", origin);
    tm_percent_encode(filter, false, out);
    if (skip > 0) tm_text_printf(out, "&$skip=%zu", skip);
    return tm_text_status(out, e);
}

/* ---- asking ---- */

struct asking {
    struct tm_web *web;
    const char *origin;
    const char *size;
    const char *location; /* "": everywhere */
    size_t skip;
};

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    const struct asking *a = context;
    (void)headers;
    return tm_azure_market__url(a->origin, a->size, a->location, a->skip, url, e);
}

/* A page, the caller's. */
static int ask_page(struct asking *a, json_t **out, struct tm_error *e)
{
    struct tm_web_answer answer;
    const struct tm_web_request request = {.method = "GET",
                                           .deadline_ms = ASK_MS,
                                           .tries_max = TRIES,
                                           .direct = strncmp(a->origin, "http://", 7) == 0,
                                           .prepare = prepare,
                                           .context = a};
    int rc = tm_web_ask(a->web, &request, &answer, e);
    if (rc != 0) return rc;
    if (answer.status != 200)
        rc = tm_error_set(e, TM_EIO, "Azure's retail prices answer %d", answer.status);
    else
        rc = tm_json_load("Azure's retail prices", tm_text_string(&answer.body), answer.body.length, out, e);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* The lowest that a page says of each place that is wanted: rows of one size and place may be on two pages. */
static void take_page(const struct asking *a, const struct tm_market_ask *ask, const json_t *root, double *lowest)
{
    for (size_t i = 0; i < ask->want_count; i++) {
        if (strcmp(ask->wants[i].type, a->size) != 0) continue;
        lowest[i] = fmin(lowest[i], tm_azure__read_spot_price(root, a->size, ask->wants[i].region));
    }
}

/* Pages are asked for by $skip: the link to the next has been wrong before (empty), and nobody else's link is
 * followed. */
static int ask_size(struct asking *a, const struct tm_market_ask *ask, double *lowest, struct tm_error *e)
{
    a->skip = 0;
    for (int page = 0; page < PAGES_MAX; page++) {
        json_t *root = NULL;
        int rc = ask_page(a, &root, e);
        if (rc != 0) return rc;
        size_t rows = json_array_size(json_object_get(root, "Items"));
        const char *next = json_string_value(json_object_get(root, "NextPageLink"));
        bool more = rows > 0 && (rows % 100 == 0 || (next != NULL && next[0] != '\0'));
        take_page(a, ask, root, lowest);
        json_decref(root);
        a->skip += rows;
        if (!more) return 0;
    }
    return tm_error_set(e, TM_ELIMIT, "Azure's retail prices of %s have more than %d pages", a->size, PAGES_MAX);
}

/* The only place that this size is wanted at; "": there are several. */
static const char *only_place(const struct tm_market_ask *ask, size_t first)
{
    const struct tm_market_want *want = &ask->wants[first];
    for (size_t i = first + 1; i < ask->want_count; i++)
        if (strcmp(ask->wants[i].type, want->type) == 0 && strcmp(ask->wants[i].region, want->region) != 0) return "";
    return want->region;
}

static bool was_asked(const struct tm_market_ask *ask, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(ask->wants[i].type, ask->wants[at].type) == 0) return true;
    return false;
}

static int ask_sizes(struct asking *a, const struct tm_market_ask *ask, double *lowest, struct tm_error *e)
{
    struct tm_error own = {.text = "no offer of Azure is wanted"};
    int failed = -(int)TM_EINPUT;
    size_t answered = 0;
    for (size_t i = 0; i < ask->want_count; i++)
        lowest[i] = NAN;
    for (size_t i = 0; i < ask->want_count; i++) {
        if (was_asked(ask, i)) continue;
        a->size = ask->wants[i].type;
        a->location = only_place(ask, i);
        int one = ask_size(a, ask, lowest, &own);
        answered += one == 0;
        if (one != 0) failed = one;
        if (one == -(int)TM_ENOMEM || (one != 0 && ask->whole))
            return tm_error_set(e, (enum tm_code) - one, "%s", own.text);
        if (one != 0) tm_log(TM_LOG_WARN, "%s: %s; the catalogue's price is used", a->size, own.text);
        if (one != 0 && answered == 0) break; /* nobody is there: do not wait for each */
    }
    return answered > 0 ? 0 : tm_error_set(e, (enum tm_code) - failed, "%s", own.text);
}

int tm_azure_market__ask(struct tm_env *env, const struct tm_market_ask *ask, struct tm_market_quotes *out,
                         struct tm_error *e)
{
    const char *manager = env->variable(env, "AZURE_RESOURCE_MANAGER_ENDPOINT");
    struct asking a = {.origin = tm_azure_market__origin(env, manager != NULL ? manager : "")};
    if (a.origin == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "no retail prices of the Azure cloud at %.200s are known: set "
                            "AZURE_RETAIL_PRICES_ENDPOINT, if it has some",
                            manager);
    double *lowest = tm_calloc(ask->want_count + 1, sizeof *lowest);
    int rc = lowest == NULL ? tm_error_nomem(e) : tm_web_create(env, &a.web, e);
    if (rc == 0) rc = ask_sizes(&a, ask, lowest, e);
    for (size_t i = 0; rc == 0 && i < ask->want_count; i++) {
        struct tm_market_quote quote = {.usd_h = lowest[i], .score = NAN};
        if (isnan(lowest[i])) continue;
        (void)snprintf(quote.type, sizeof quote.type, "%s", ask->wants[i].type);
        (void)snprintf(quote.region, sizeof quote.region, "%s", ask->wants[i].region);
        (void)snprintf(quote.zone, sizeof quote.zone, "%s", ask->wants[i].zone);
        rc = tm_market_quotes__add(out, &quote, e);
    }
    tm_web_destroy(a.web);
    tm_free(lowest);
    return rc;
}

int tm_azure_market_price(struct tm_env *env, const char *location, const char *type, double *out_usd_h,
                          struct tm_error *e)
{
    struct tm_market_quotes quotes = {.items = NULL};
    const struct tm_market_want want = {.type = type, .region = location, .zone = ""};
    const struct tm_market_ask ask = {.cloud = "azure", .wants = &want, .want_count = 1, .whole = true};
    int rc = tm_azure_market__ask(env, &ask, &quotes, e);
    if (rc == 0) *out_usd_h = quotes.count > 0 ? quotes.items[0].usd_h : NAN;
    tm_market_quotes__deinit(&quotes);
    return rc;
}

#include "api/dashboard_internal.h"

#include "base/secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Kept in the folder of all runs, so that a link is good for the next dashboard, too. */
static const char token_file[] = "dashboard-tokens";

static bool is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (strchr("0123456789abcdef", text[i]) == NULL || text[i] == '\0') return false;
    return length == TM_DASHBOARD_TOKEN_MAX - 1;
}

static void draw_token(struct tm_env *env, char out[TM_DASHBOARD_TOKEN_MAX])
{
    for (size_t i = 0; i < 4; i++)
        (void)snprintf(out + 16 * i, 17, "%016" PRIx64, env->random_u64(env));
}

int tm_dashboard__load_tokens(struct tm_dashboard *d, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    const size_t length = TM_DASHBOARD_TOKEN_MAX - 1;
    (void)snprintf(path, sizeof path, "%s/%s", d->options.root, token_file);
    tm_text_init(&text, 1024);
    int rc = d->env->file_exists(d->env, path) ? d->env->file_read(d->env, path, &text, e) : 0;
    const char *at = tm_text_string(&text);
    bool good = rc == 0 && text.length >= 2 * length + 1 && is_token(at, length) && at[length] == ' ' &&
                is_token(at + length + 1, length);
    if (good) {
        memcpy(d->steer_token, at, length);
        memcpy(d->watch_token, at + length + 1, length);
    } else if (rc == 0) {
        draw_token(d->env, d->steer_token);
        draw_token(d->env, d->watch_token);
        tm_text_clear(&text);
        tm_text_printf(&text, "%s %s\n", d->steer_token, d->watch_token);
        rc = tm_text_status(&text, e);
        if (rc == 0) rc = d->env->file_write_private(d->env, path, text.data, text.length, e);
    }
    tm_text_deinit(&text);
    return rc;
}

enum tm_api_scope tm_dashboard__token_scope(const struct tm_dashboard *d, struct tm_slice token)
{
    if (token.length == 0) return TM_API_FOR_ALL;
    bool steers = tm_secret_equal(token.at, token.length, d->steer_token, strlen(d->steer_token));
    bool watches = tm_secret_equal(token.at, token.length, d->watch_token, strlen(d->watch_token));
    return steers ? TM_API_STEER : watches ? TM_API_WATCH : TM_API_FOR_ALL;
}

/* "a=b; NAME=VALUE; c=d" */
static struct tm_slice find_cookie(struct tm_slice header, const char *name)
{
    size_t length = strlen(name);
    const char *end = header.at + header.length;
    for (const char *at = header.at; at != NULL && at < end;) {
        while (at < end && (*at == ' ' || *at == ';'))
            at++;
        const char *stop = memchr(at, ';', (size_t)(end - at));
        if (stop == NULL) stop = end;
        if ((size_t)(stop - at) > length && memcmp(at, name, length) == 0 && at[length] == '=')
            return (struct tm_slice){.at = at + length + 1, .length = (size_t)(stop - at) - length - 1};
        at = stop;
    }
    return (struct tm_slice){0};
}

bool tm_dashboard__gave_token(const struct tm_dashboard *d, const struct tm_http_head *head)
{
    struct tm_slice cookies = tm_http_header(head, "cookie");
    return tm_api__bearer(head).at != NULL || (cookies.at != NULL && find_cookie(cookies, d->cookie).at != NULL);
}

enum tm_api_scope tm_dashboard__scope(const struct tm_dashboard *d, const struct tm_http_head *head,
                                      bool *out_by_cookie)
{
    struct tm_slice bearer = tm_api__bearer(head);
    *out_by_cookie = bearer.at == NULL;
    if (bearer.at != NULL) return tm_dashboard__token_scope(d, bearer);
    struct tm_slice cookies = tm_http_header(head, "cookie");
    return cookies.at == NULL ? TM_API_FOR_ALL : tm_dashboard__token_scope(d, find_cookie(cookies, d->cookie));
}

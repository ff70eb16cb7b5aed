#include "workload/job_notify.h"

#include "base/suggest.h"
#include "base/yaml_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DOCUMENT_BYTES_MAX = 64 << 20 };

static const char *const formats[] = {"json", "slack", "discord", NULL};

const char *const tm_notify_alert_names[] = {"finished", "failed",   "stopped", "stalled", "budget",
                                             "deadline", "capacity", "leaked",  NULL};

const struct tm_field tm_notify_fields[] = {
    {.key = "webhook",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_notify_target, webhook),
     .example = "https://hooks.slack.com/services/...",
     .doc = "an address that the alert is posted to, by curl"},
    {.key = "format",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_notify_target, format),
     .choices = formats,
     .doc = "what is posted: plain JSON, or what Slack or Discord understand"},
    {.key = "email",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_notify_target, email),
     .example = "me@example.org",
     .doc = "an address that it is mailed to, by sendmail"},
    {.key = "command",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_notify_target, command),
     .example = "notify-send \"$TIDEMILL_TEXT\"",
     .doc = "a command for the shell, with TIDEMILL_ALERT, TIDEMILL_JOB and TIDEMILL_TEXT set"},
    {.key = "on",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_notify_target, on),
     .example = "[failed, stalled]",
     .doc = "which alerts: finished, failed, stopped, stalled, budget, deadline, capacity, leaked; all of them if not "
            "said"},
    {.key = "patience",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_notify_target, patience_ms),
     .example = "30m",
     .doc = "how long no step (stalled) or no instance (capacity) is borne before it is told; 10m if not said"},
    {.key = NULL},
};

static int check_names(const struct tm_strings *on, const char *file, struct tm_error *e)
{
    for (size_t i = 0; i < on->count; i++) {
        struct tm_suggest suggest = {.word = on->items[i]};
        bool known = false;
        for (size_t n = 0; tm_notify_alert_names[n] != NULL; n++) {
            tm_suggest_offer(&suggest, tm_notify_alert_names[n]);
            known = known || strcmp(tm_notify_alert_names[n], on->items[i]) == 0;
        }
        if (known) continue;
        return tm_error_set(e, TM_EINPUT, "%s: notify: on: unknown alert \"%.40s\"%s%s%s", file, on->items[i],
                            suggest.best == NULL ? "" : "; did you mean ", suggest.best == NULL ? "" : suggest.best,
                            suggest.best == NULL ? "; there are finished, failed, stopped, stalled, budget, deadline, "
                                                   "capacity and leaked"
                                                 : "?");
    }
    return 0;
}

static bool is_address(const char *text)
{
    return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

int tm_notify_check(const struct tm_maps *targets, const char *file, struct tm_error *e)
{
    const struct tm_notify_target *list = targets->items;
    for (size_t i = 0; i < targets->count; i++) {
        const struct tm_notify_target *target = &list[i];
        int said = (target->webhook != NULL) + (target->email != NULL) + (target->command != NULL);
        if (said != 1)
            return tm_error_set(e, TM_EINPUT,
                                "%s: notify: each receiver has one of webhook, email and command; number %zu has %d",
                                file, i + 1, said);
        if (target->webhook != NULL && (!is_address(target->webhook) || strpbrk(target->webhook, " \"\\\n") != NULL))
            return tm_error_set(e, TM_EINPUT, "%s: notify: webhook: number %zu is no http:// or https:// address", file,
                                i + 1);
        if (target->email != NULL && (strchr(target->email, '@') == NULL || strpbrk(target->email, " \n,") != NULL))
            return tm_error_set(e, TM_EINPUT, "%s: notify: email: \"%.60s\" is no address", file, target->email);
        int rc = check_names(&target->on, file, e);
        if (rc != 0) return rc;
    }
    return 0;
}

static int add_webhook(struct tm_arena *arena, struct tm_node *list, const struct tm_notify_target *target,
                       struct tm_error *e)
{
    char patience[32];
    struct tm_node *map = tm_node_make(arena, TM_NODE_MAP);
    struct tm_node *on = tm_node_make(arena, TM_NODE_LIST);
    if (map == NULL || on == NULL) return tm_error_nomem(e);
    (void)snprintf(patience, sizeof patience, "%" PRId64 "ms", target->patience_ms);
    int rc = tm_node_put(arena, list, NULL, map, e);
    if (rc == 0) rc = tm_node_put_text(arena, map, "webhook", target->webhook, true, e);
    if (rc == 0) rc = tm_node_put_text(arena, map, "format", formats[target->format], false, e);
    if (rc == 0 && target->on.count > 0) rc = tm_node_put(arena, map, "on", on, e);
    for (size_t i = 0; rc == 0 && i < target->on.count; i++)
        rc = tm_node_put_text(arena, on, NULL, target->on.items[i], false, e);
    if (rc == 0 && target->patience_ms > 0) rc = tm_node_put_text(arena, map, "patience", patience, false, e);
    return rc;
}

int tm_notify_add_webhooks(const char *document, const struct tm_maps *targets, struct tm_text *out, struct tm_error *e)
{
    const struct tm_notify_target *all = targets->items;
    struct tm_arena arena;
    struct tm_node *root = NULL;
    tm_arena_init(&arena, DOCUMENT_BYTES_MAX);
    int rc = tm_doc_parse_yaml("job.yaml", document, strlen(document), &arena, &root, e);
    struct tm_node *list = rc == 0 ? tm_node_find(root, "notify") : NULL;
    if (rc == 0 && list == NULL) {
        list = tm_node_make(&arena, TM_NODE_LIST);
        rc = list == NULL ? tm_error_nomem(e) : tm_node_put(&arena, root, "notify", list, e);
    }
    for (size_t i = 0; rc == 0 && i < targets->count; i++) {
        if (all[i].webhook != NULL) rc = add_webhook(&arena, list, &all[i], e);
    }
    if (rc == 0) {
        tm_yaml_print(root, out);
        rc = tm_text_status(out, e);
    }
    tm_arena_deinit(&arena);
    return rc;
}

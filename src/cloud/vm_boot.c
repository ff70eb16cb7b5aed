/* What every VM of a run is given as it is made: what it does when it boots, and its tags. */
#include "base/calendar.h"
#include "cloud/rented.h"
#include "cloud/vm_user_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { URL_S = 7 * 24 * 3600 - 60, PROGRAM_URL_S = 6 * 3600, URL_MAX = 16384 };

/* After one that is being signed the next is asked for, too: they come together. */
static int put_url(const struct tm_vm__boot *boot, size_t at, const char *what, const char *method, int64_t seconds,
                   struct tm_text *out, int before, struct tm_error *e)
{
    if (before != 0 && before != -(int)TM_EBUSY) return before;
    int rc = boot->url(boot->self, at, what, method, seconds, out, e);
    return rc != 0 ? rc : before;
}

int tm_vm_cloud__print_boot(struct tm_vm_cloud *c, size_t at, const struct tm_vm__boot *boot, struct tm_text *out,
                            struct tm_error *e)
{
    const struct tm_vm_options *o = &c->options;
    const struct tm_cloud_instance *instance = &c->vms.instances[at];
    struct tm_text program, wheel, ticket_url, log_url;
    char word[TM_VM_TICKET_MAX] = "";
    char name[128];
    const char *slash = o->wheel != NULL ? strrchr(o->wheel, '/') : NULL;
    tm_text_init(&program, URL_MAX);
    tm_text_init(&wheel, URL_MAX);
    tm_text_init(&ticket_url, URL_MAX);
    tm_text_init(&log_url, URL_MAX);
    (void)snprintf(name, sizeof name, "program-%.100s", boot->sha256);
    int rc = put_url(boot, SIZE_MAX, name, "GET", PROGRAM_URL_S, &program, 0, e);
    (void)snprintf(name, sizeof name, "wheel-%.100s", c->wheel_sha256);
    if (o->wheel != NULL) rc = put_url(boot, SIZE_MAX, name, "GET", PROGRAM_URL_S, &wheel, rc, e);
    rc = put_url(boot, at, "ticket", "GET", URL_S, &ticket_url, rc, e);
    rc = put_url(boot, at, "log", "PUT", URL_S, &log_url, rc, e);
    if (rc == 0) rc = o->ticket(o->context, instance->id, instance->kind == TM_INSTANCE_ON_DEMAND, word, e);
    const struct tm_vm__user_data data = {.guest = boot->guest,
                                          .words = boot->words,
                                          .job = o->job,
                                          .program = tm_text_string(&program),
                                          .sha256 = boot->sha256,
                                          .wheel = o->wheel != NULL ? tm_text_string(&wheel) : NULL,
                                          .wheel_name = slash != NULL ? slash + 1 : o->wheel,
                                          .wheel_sha256 = c->wheel_sha256,
                                          .ticket = word,
                                          .ticket_url = tm_text_string(&ticket_url),
                                          .log_url = tm_text_string(&log_url),
                                          .variables = o->variables != NULL ? o->variables : "",
                                          .setup = o->setup,
                                          .silence_s = tm_vm_cloud__silence_ms(c) / 1000,
                                          .life_s = tm_vm_cloud__life_ms(c) / 1000};
    if (rc == 0) rc = tm_vm__print_user_data(&data, out, e);
    tm_text_deinit(&program);
    tm_text_deinit(&wheel);
    tm_text_deinit(&ticket_url);
    tm_text_deinit(&log_url);
    return rc;
}

static void set_tag(struct tm_vm__tag *tag, const char *name, const char *value)
{
    tag->name = name;
    (void)snprintf(tag->value, sizeof tag->value, "%.*s", (int)sizeof tag->value - 1, value);
}

void tm_vm_cloud__tags(const struct tm_vm_cloud *c, size_t at, struct tm_vm__tag out[TM_VM_TAGS])
{
    const struct tm_vm_options *o = &c->options;
    char text[TM_CALENDAR_TEXT_MAX];
    int64_t until_ms = c->env->now_ms(c->env) + tm_vm_cloud__life_ms(c);
    set_tag(&out[0], TM_RENTED_TAG, o->job);
    set_tag(&out[1], TM_VM_TAG_OWNER, o->owner);
    set_tag(&out[2], TM_VM_TAG_UNTIL, tm_calendar_print(until_ms / 1000 * 1000, text));
    set_tag(&out[3], TM_VM_TAG_RUN, "");
    (void)snprintf(out[3].value, sizeof out[3].value, "%016" PRIx64, o->run);
    set_tag(&out[4], "Name", o->job);
    if (at == SIZE_MAX) return;
    set_tag(&out[5], TM_VM_TAG_POOL, "");
    (void)snprintf(out[5].value, sizeof out[5].value, "%d", c->vms.instances[at].pool);
    set_tag(&out[6], TM_VM_TAG_TOKEN, c->vms.vms[at].token);
}

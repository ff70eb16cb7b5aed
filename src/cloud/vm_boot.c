/* What every VM of a run is given as it is made: what it does when it boots, and its tags. */
#include "base/calendar.h"
#include "cloud/away_vm_internal.h"
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

/* What both kinds of VM fetch and put. */
struct urls {
    struct tm_text program;
    struct tm_text wheel;
    struct tm_text ticket;
    struct tm_text log;
};

static void init_urls(struct urls *u)
{
    struct tm_text *const all[] = {&u->program, &u->wheel, &u->ticket, &u->log};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tm_text_init(all[i], URL_MAX);
}

static void deinit_urls(struct urls *u)
{
    struct tm_text *const all[] = {&u->program, &u->wheel, &u->ticket, &u->log};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tm_text_deinit(all[i]);
}

static int put_program_urls(const struct tm_vm_cloud *c, const struct tm_vm__boot *boot, struct urls *u,
                            struct tm_error *e)
{
    char name[128];
    (void)snprintf(name, sizeof name, "program-%.100s", boot->sha256);
    int rc = put_url(boot, SIZE_MAX, name, "GET", PROGRAM_URL_S, &u->program, 0, e);
    (void)snprintf(name, sizeof name, "wheel-%.100s", c->wheel_sha256);
    return c->options.wheel != NULL ? put_url(boot, SIZE_MAX, name, "GET", PROGRAM_URL_S, &u->wheel, rc, e) : rc;
}

/* Of the file of the Python package; NULL: there is none. */
static const char *wheel_name(const struct tm_vm_options *o)
{
    const char *slash = o->wheel != NULL ? strrchr(o->wheel, '/') : NULL;
    return slash != NULL ? slash + 1 : o->wheel;
}

static int print_coordinator(const struct tm_vm_cloud *c, const struct tm_vm__boot *boot, struct tm_text *out,
                             struct tm_error *e)
{
    const struct tm_vm_options *o = &c->options;
    struct urls u;
    init_urls(&u);
    int rc = put_program_urls(c, boot, &u, e);
    rc = put_url(boot, SIZE_MAX, "coordinator.log", "PUT", URL_S, &u.log, rc, e);
    const struct tm_away__data data = {.of = c->coordinator,
                                       .boot = boot,
                                       .program = tm_text_string(&u.program),
                                       .wheel = o->wheel != NULL ? tm_text_string(&u.wheel) : NULL,
                                       .wheel_name = wheel_name(o),
                                       .wheel_sha256 = c->wheel_sha256,
                                       .log_url = tm_text_string(&u.log),
                                       .group = o->group,
                                       .life_s = tm_vm_cloud__life_ms(c) / 1000};
    if (rc == 0) rc = tm_away__print_data(c->env, &data, out, e);
    deinit_urls(&u);
    return rc;
}

int tm_vm_cloud__print_boot(struct tm_vm_cloud *c, size_t at, const struct tm_vm__boot *boot, struct tm_text *out,
                            struct tm_error *e)
{
    const struct tm_vm_options *o = &c->options;
    const struct tm_cloud_instance *instance = &c->vms.instances[at];
    struct urls u;
    char word[TM_VM_TICKET_MAX] = "";
    if (c->coordinator != NULL) return print_coordinator(c, boot, out, e);
    init_urls(&u);
    int rc = put_program_urls(c, boot, &u, e);
    rc = put_url(boot, at, "ticket", "GET", URL_S, &u.ticket, rc, e);
    rc = put_url(boot, at, "log", "PUT", URL_S, &u.log, rc, e);
    if (rc == 0) rc = o->ticket(o->context, instance->id, instance->kind == TM_INSTANCE_ON_DEMAND, word, e);
    c->vms.vms[at].bound = false;
    const struct tm_vm__user_data data = {.guest = boot->guest,
                                          .words = boot->words,
                                          .job = o->job,
                                          .program = tm_text_string(&u.program),
                                          .sha256 = boot->sha256,
                                          .wheel = o->wheel != NULL ? tm_text_string(&u.wheel) : NULL,
                                          .wheel_name = wheel_name(o),
                                          .wheel_sha256 = c->wheel_sha256,
                                          .ticket = word,
                                          .ticket_url = tm_text_string(&u.ticket),
                                          .log_url = tm_text_string(&u.log),
                                          .variables = o->variables != NULL ? o->variables : "",
                                          .setup = o->setup,
                                          .silence_s = tm_vm_cloud__silence_ms(c) / 1000,
                                          .life_s = tm_vm_cloud__life_ms(c) / 1000};
    if (rc == 0) rc = tm_vm__print_user_data(&data, out, e);
    deinit_urls(&u);
    return rc;
}

static void set_tag(struct tm_vm__tag *tag, const char *name, const char *value)
{
    tag->name = name;
    (void)snprintf(tag->value, sizeof tag->value, "%.*s", (int)sizeof tag->value - 1, value);
}

size_t tm_vm_cloud__tags(const struct tm_vm_cloud *c, size_t at, struct tm_vm__tag out[TM_VM_TAGS])
{
    const struct tm_vm_options *o = &c->options;
    char text[TM_CALENDAR_TEXT_MAX];
    char number[24];
    int64_t until_ms = c->env->now_ms(c->env) + tm_vm_cloud__life_ms(c);
    set_tag(&out[0], TM_RENTED_TAG, o->job);
    set_tag(&out[1], TM_VM_TAG_OWNER, o->owner);
    set_tag(&out[2], TM_VM_TAG_UNTIL, tm_calendar_print(until_ms / 1000 * 1000, text));
    set_tag(&out[3], "Name", o->job);
    if (at != SIZE_MAX && c->coordinator != NULL) {
        set_tag(&out[4], TM_VM_TAG_COORDINATOR, c->coordinator->place);
        return 5;
    }
    (void)snprintf(number, sizeof number, "%016" PRIx64, at == SIZE_MAX ? o->group : o->run);
    set_tag(&out[4], TM_VM_TAG_RUN, number);
    if (at == SIZE_MAX) return 5;
    (void)snprintf(number, sizeof number, "%d", c->vms.instances[at].pool);
    set_tag(&out[5], TM_VM_TAG_POOL, number);
    set_tag(&out[6], TM_VM_TAG_TOKEN, c->vms.vms[at].token);
    return TM_VM_TAGS;
}

#include "cloud/hosts_cloud.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "cloud/hosts_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    RETRY_MS = 1000,
    RETRY_MAX_MS = 60000,
    LOOK_MS = 100,
    START_LIMIT_MS = 120000, /* from the agent's start to its joining */
    COMMAND_LIMIT_MS = 300000,
    RETURN_LIMIT_MS = 15000,
    REFUSED_MS = 3000, /* sooner than this a host has refused us (sshd's MaxStartups), and is not away */
    RETURNS_MAX = 5,   /* to one agent, of connections that do not last */
    LASTED_MS = 60000, /* an instance that was there so long makes its host a good one again */
    END_LIMIT_MS = 20000,
    TAKEN_STATUS = 143, /* hosts_command.c: the agent had SIGTERM */
    HISTORY_MAX = 1 << 16,
    HOST_WORD_BYTES = TM_HOST_NAME_MAX + 8
};

static struct tm_hosts__cloud *of(struct tm_cloud *cloud)
{
    return cloud->self;
}

static int64_t now_ms(struct tm_cloud *cloud)
{
    struct tm_hosts__cloud *c = of(cloud);
    return c->env->monotonic_ns(c->env) / 1000000 - c->begin_ms;
}

static struct tm_cloud_instance *instance_of(struct tm_hosts__cloud *c, uint64_t id)
{
    for (size_t i = c->instance_count; i-- > 0;)
        if (c->instances[i].id == id) return &c->instances[i];
    return NULL;
}

/* ---- what happens ---- */

static int tell(struct tm_hosts__cloud *c, struct tm_cloud_event event, struct tm_error *e)
{
    if (c->event_first == c->event_count) c->event_first = c->event_count = 0;
    int rc = tm_grow((void **)&c->events, &c->event_capacity, c->event_count + 1, sizeof *c->events, HISTORY_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for events of hosts");
    event.time_ms = now_ms(&c->cloud);
    event.pool = TM_CLOUD_SPOT;
    c->events[c->event_count++] = event;
    return 0;
}

static void settle(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot)
{
    struct tm_cloud_instance *instance = instance_of(c, slot->id);
    if (instance == NULL || !tm_instance_is_here(instance)) return;
    int64_t now = now_ms(&c->cloud);
    double seconds = (double)(now - slot->billed_ms) / 1000;
    instance->bill_usd += seconds / 3600 * c->options.price_usd_h;
    c->bill.usd[TM_CLOUD_SPOT] += seconds / 3600 * c->options.price_usd_h;
    c->bill.seconds[TM_CLOUD_SPOT] += seconds;
    slot->billed_ms = now;
}

/* The instance of a slot is over; whoever is told hears it now, whatever is still to be done on the host. */
static int end_instance(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, enum tm_instance_state state,
                        int status, struct tm_error *e)
{
    struct tm_cloud_instance *instance = instance_of(c, slot->id);
    if (instance == NULL) return 0;
    settle(c, slot);
    bool was_here = tm_instance_is_here(instance);
    instance->state = state;
    instance->gone_ms = now_ms(&c->cloud);
    slot->id = 0;
    if (!was_here) return 0; /* it never arrived: nobody was told of it */
    struct tm_cloud_event event = {.kind = state == TM_INSTANCE_LOST ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
                                   .instance = instance->id,
                                   .announced = instance->noticed_ms >= 0,
                                   .status = status};
    return tell(c, event, e);
}

/* As the list has it: one machine may be there by several ports. */
static const char *name_of(const struct tm_hosts__slot *slot, char out[HOST_WORD_BYTES])
{
    (void)snprintf(out, HOST_WORD_BYTES, "%s%s%s", slot->host->name, slot->host->port[0] != '\0' ? ":" : "",
                   slot->host->port);
    return out;
}

static void wait_longer(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, const char *why)
{
    char name[HOST_WORD_BYTES];
    int64_t wait = RETRY_MS;
    for (int i = 0; i < slot->failures && wait < RETRY_MAX_MS; i++)
        wait *= 2;
    if (wait > RETRY_MAX_MS) wait = RETRY_MAX_MS;
    slot->failures++;
    slot->retry_ms = now_ms(&c->cloud) + wait;
    slot->doing = TM_HOSTS_NOTHING;
    tm_log(TM_LOG_WARN, "host %s: %s; trying again in %" PRId64 " s", name_of(slot, name), why, wait / 1000);
}

/* The last line that ssh or the host said, for people; never what we sent. */
static const char *last_words(const struct tm_hosts__slot *slot, char out[200])
{
    const char *text = slot->said.length > 0 ? tm_text_string((struct tm_text *)&slot->said) : "";
    const char *last = "no answer";
    size_t length = strlen(last);
    for (const char *at = text; *at != '\0';) {
        size_t line = strcspn(at, "\r\n"); /* ssh ends its own lines with both */
        if (line > 0 && strncmp(at, "TM-", 3) != 0) {
            last = at;
            length = line;
        }
        at += line + (at[line] != '\0');
    }
    (void)snprintf(out, 200, "%.*s", (int)(length < 190 ? length : 190), last);
    return out;
}

/* ---- a slot's way ---- */

static int begin(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, enum tm_hosts__doing doing, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    slot->doing = doing;
    slot->since_ms = now_ms(&c->cloud);
    int rc = tm_hosts__run(c, slot, &own);
    if (rc == 0) return 0;
    wait_longer(c, slot, own.text);
    return end_instance(c, slot, TM_INSTANCE_LOST, -1, e);
}

static int grant(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, bool found, struct tm_error *e)
{
    int rc = tm_grow((void **)&c->instances, &c->instance_capacity, c->instance_count + 1, sizeof *c->instances,
                     HISTORY_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d instances in one run", HISTORY_MAX);
    uint64_t first = c->options.id_first > 0 ? c->options.id_first : 1;
    struct tm_cloud_instance *instance = &c->instances[c->instance_count];
    *instance = (struct tm_cloud_instance){.id = first + c->instance_count,
                                           .kind = TM_INSTANCE_SPOT,
                                           .state = TM_INSTANCE_STARTING,
                                           .type = "host",
                                           .price_usd_h = c->options.price_usd_h,
                                           .asked_ms = now_ms(&c->cloud),
                                           .arrived_ms = -1,
                                           .noticed_ms = -1,
                                           .gone_ms = -1,
                                           .recalled = found};
    (void)snprintf(instance->zone, sizeof instance->zone, "%.60s", slot->host->name);
    c->instance_count++;
    slot->id = instance->id;
    slot->returns = 0;
    slot->keeps = found;
    return begin(c, slot, found ? TM_HOSTS_STARTING : TM_HOSTS_ASKING, e);
}

static int arrive(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_error *e)
{
    struct tm_cloud_instance *instance = instance_of(c, slot->id);
    slot->doing = TM_HOSTS_WATCHING;
    slot->billed_ms = now_ms(&c->cloud);
    instance->state = TM_INSTANCE_RUNNING;
    instance->arrived_ms = slot->billed_ms;
    return tell(c, (struct tm_cloud_event){.kind = TM_CLOUD_ARRIVED, .instance = instance->id}, e);
}

static int used(const struct tm_hosts__cloud *c)
{
    int count = 0;
    for (size_t i = 0; i < c->slot_count; i++)
        count += c->slots[i].id != 0;
    return count;
}

/* Is there room for one more? As long as nobody has said how many are wanted, one that runs may stay. */
static bool has_room(const struct tm_hosts__cloud *c, bool found)
{
    int limit = c->options.limit > 0 ? c->options.limit : (int)c->slot_count;
    return used(c) < limit && (used(c) < c->want[TM_CLOUD_SPOT] || (found && !c->said));
}

/* Where we are, as the host sees it, and (NULL: none) the program's hash that follows; false: it cannot be read. */
static bool read_here(struct tm_hosts__slot *slot, const char *answer, const char **out_hash)
{
    const char *blank = strchr(answer, ' ');
    size_t length = blank != NULL ? (size_t)(blank - answer) : 0;
    if (length == 0 || length >= sizeof slot->here) return false;
    memcpy(slot->here, answer, length);
    slot->here[length] = '\0';
    *out_hash = blank + 1;
    return true;
}

/* Looked whether an agent of before runs. Who did not answer is not asked again for its other slots. */
static int take_look(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_error *e)
{
    char answer[512];
    char why[200];
    char name[HOST_WORD_BYTES];
    const char *hash = NULL;
    bool good = tm_hosts__said(slot, "TM-HERE", answer, sizeof answer) && read_here(slot, answer, &hash);
    slot->unknown = false;
    for (size_t i = 0; !good && i < c->slot_count; i++)
        if (c->slots[i].host == slot->host) c->slots[i].unknown = false;
    if (!good) {
        wait_longer(c, slot, last_words(slot, why));
        return 0;
    }
    slot->doing = TM_HOSTS_NOTHING;
    if (!tm_hosts__said(slot, "TM-RUNS", answer, sizeof answer) || !has_room(c, true)) return 0;
    tm_log(TM_LOG_INFO, "host %s: its agent runs since before: it is kept", name_of(slot, name));
    return grant(c, slot, true, e);
}

/* Answered: what the host has. */
static int take_answer(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, const char *answer, struct tm_error *e)
{
    const char *hash = NULL;
    if (!read_here(slot, answer, &hash)) {
        wait_longer(c, slot, "an answer that cannot be read");
        return end_instance(c, slot, TM_INSTANCE_LOST, -1, e);
    }
    return begin(c, slot, strcmp(hash, c->sha256) == 0 ? TM_HOSTS_STARTING : TM_HOSTS_BRINGING, e);
}

/* The connection has ended without a word of the agent, which does not end with it: the host is asked once more. */
static bool may_return(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot)
{
    int64_t lasted_ms = now_ms(&c->cloud) - slot->since_ms;
    bool watched = slot->doing == TM_HOSTS_WATCHING,
         refused = slot->doing == TM_HOSTS_RETURNING && lasted_ms < REFUSED_MS;
    if (!(watched || refused) || slot->id == 0) return false;
    if (watched && lasted_ms >= LASTED_MS) slot->returns = 0;
    return slot->returns++ < RETURNS_MAX;
}

/* ssh has ended: what it said tells how it went. */
static int after_command(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_error *e)
{
    char answer[512];
    char why[200];
    int64_t status = 137;
    bool good = false;
    switch (slot->doing) {
    case TM_HOSTS_LOOKING:
        return take_look(c, slot, e);
    case TM_HOSTS_ASKING:
        if (tm_hosts__said(slot, "TM-HERE", answer, sizeof answer)) return take_answer(c, slot, answer, e);
        break;
    case TM_HOSTS_BRINGING:
        if (tm_hosts__said(slot, "TM-BROUGHT", answer, sizeof answer)) return begin(c, slot, TM_HOSTS_STARTING, e);
        break;
    case TM_HOSTS_ENDING:
        good = tm_hosts__said(slot, "TM-CLEAN", answer, sizeof answer);
        slot->unclean = !good;
        slot->doing = TM_HOSTS_NOTHING;
        if (!good) wait_longer(c, slot, last_words(slot, why));
        return 0;
    default:
        slot->unclean = true;
        if (tm_hosts__said(slot, "TM-ENDED", answer, sizeof answer)) {
            (void)tm_number_i64(answer, strlen(answer), &status);
            struct tm_cloud_instance *instance = instance_of(c, slot->id);
            bool taken = status == TAKEN_STATUS; /* by SIGTERM, of which the run had a notice from the agent */
            if (taken && instance != NULL) instance->noticed_ms = now_ms(&c->cloud);
            bool lasted =
                instance != NULL && instance->arrived_ms >= 0 && now_ms(&c->cloud) - instance->arrived_ms >= LASTED_MS;
            if (lasted) slot->failures = 0;
            if (status == 0 && c->want[TM_CLOUD_SPOT] > 0) c->want[TM_CLOUD_SPOT]--; /* it was asked to go */
            slot->doing = TM_HOSTS_NOTHING;
            if (status != 0) wait_longer(c, slot, taken ? "its owner ended the agent" : last_words(slot, why));
            return end_instance(c, slot, status == 0 ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST, (int)status, e);
        }
        if (may_return(c, slot)) return begin(c, slot, TM_HOSTS_RETURNING, e);
        break;
    }
    wait_longer(c, slot, last_words(slot, why));
    return end_instance(c, slot, TM_INSTANCE_LOST, -1, e);
}

static bool is_late(struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot)
{
    int64_t limit = slot->doing == TM_HOSTS_STARTING    ? START_LIMIT_MS
                    : slot->doing == TM_HOSTS_RETURNING ? RETURN_LIMIT_MS
                    : slot->doing == TM_HOSTS_LOOKING   ? RETURN_LIMIT_MS
                                                        : COMMAND_LIMIT_MS;
    return slot->pid > 0 && slot->doing != TM_HOSTS_WATCHING && now_ms(&c->cloud) - slot->since_ms > limit;
}

static int step_slot(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_error *e)
{
    char started[64];
    int status = 0;
    if (slot->pid == 0) return 0;
    tm_hosts__hear(c, slot);
    if (is_late(c, slot)) {
        tm_hosts__stop(c, slot);
        return after_command(c, slot, e);
    }
    if (slot->doing == TM_HOSTS_STARTING && slot->id != 0 &&
        tm_hosts__said(slot, "TM-STARTED", started, sizeof started) &&
        (c->options.has_joined == NULL || c->options.has_joined(c->options.context, slot->id))) {
        int rc = arrive(c, slot, e);
        if (rc != 0) return rc;
    }
    if (slot->doing == TM_HOSTS_RETURNING && tm_hosts__said(slot, "TM-BACK", started, sizeof started)) {
        slot->doing = TM_HOSTS_WATCHING;
        slot->since_ms = now_ms(&c->cloud);
    }
    return tm_hosts__has_ended(c, slot, &status) ? after_command(c, slot, e) : 0;
}

/* Only one short command at a time on a host: the first makes the connection that the others use. */
static bool is_host_busy(const struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot)
{
    for (size_t i = 0; i < c->slot_count; i++) {
        const struct tm_hosts__slot *other = &c->slots[i];
        if (other->host == slot->host && other->pid > 0 && other->doing != TM_HOSTS_WATCHING) return true;
    }
    return false;
}

static bool is_looking(const struct tm_hosts__cloud *c)
{
    for (size_t i = 0; i < c->slot_count; i++)
        if (c->slots[i].unknown) return true;
    return false;
}

/* Before anything is begun: whose agents run already? Of those, what nobody wants is ended, once it is known what is
 * wanted. */
static int advance(struct tm_hosts__cloud *c, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->slot_count; i++)
        rc = step_slot(c, &c->slots[i], e);
    for (size_t i = 0; rc == 0 && i < c->slot_count; i++) {
        struct tm_hosts__slot *slot = &c->slots[i];
        if (slot->doing != TM_HOSTS_NOTHING || slot->retry_ms > now_ms(&c->cloud) || is_host_busy(c, slot)) continue;
        if (slot->unknown)
            rc = begin(c, slot, TM_HOSTS_LOOKING, e);
        else if (is_looking(c))
            continue;
        else if (has_room(c, false))
            rc = grant(c, slot, false, e);
        else if (slot->unclean)
            rc = begin(c, slot, TM_HOSTS_ENDING, e);
    }
    return rc;
}

/* ---- the cloud's functions ---- */

static const struct tm_cloud_pool *hosts_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = 2;
    return of(cloud)->pools;
}

static int hosts_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    if (pool < 0 || pool > 1 || count < 0) return tm_error_set(e, TM_EUSAGE, "hosts have no pool %d", pool);
    of(cloud)->want[pool] = count;
    if (pool == TM_CLOUD_SPOT) of(cloud)->said = true;
    return 0;
}

static int hosts_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    struct tm_hosts__cloud *c = of(cloud);
    for (size_t i = 0; i < c->slot_count; i++) {
        struct tm_hosts__slot *slot = &c->slots[i];
        if (slot->id != id || id == 0) continue;
        int rc = end_instance(c, slot, TM_INSTANCE_RELEASED, -1, e);
        if (c->want[TM_CLOUD_SPOT] > 0) c->want[TM_CLOUD_SPOT]--;
        tm_hosts__stop(c, slot);
        slot->unclean = true;
        slot->retry_ms = 0;
        return rc == 0 ? begin(c, slot, TM_HOSTS_ENDING, e) : rc;
    }
    return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64 " now", id);
}

static const struct tm_cloud_instance *hosts_instances(struct tm_cloud *cloud, size_t *out_count)
{
    struct tm_hosts__cloud *c = of(cloud);
    for (size_t i = 0; i < c->slot_count; i++)
        settle(c, &c->slots[i]);
    *out_count = c->instance_count;
    return c->instances;
}

static size_t hosts_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct tm_hosts__cloud *c = of(cloud);
    size_t count = 0;
    int64_t wait = INT64_MAX;
    for (size_t i = 0; i < c->slot_count; i++) {
        const struct tm_hosts__slot *slot = &c->slots[i];
        if (slot->handle >= 0 && count < max) handles[count++] = slot->handle;
        if (slot->output >= 0 && count < max) handles[count++] = slot->output;
        if (slot->doing != TM_HOSTS_WATCHING &&
            (slot->doing != TM_HOSTS_NOTHING || slot->unclean || used(c) < c->want[TM_CLOUD_SPOT]))
            wait = LOOK_MS;
    }
    *out_wait_ms = c->event_first < c->event_count ? 0 : wait;
    return count;
}

static int hosts_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct tm_hosts__cloud *c = of(cloud);
    int64_t until = now_ms(cloud) + timeout_ms;
    for (;;) {
        int rc = advance(c, e);
        if (rc != 0) return rc;
        if (c->event_first < c->event_count) {
            *out = c->events[c->event_first++];
            return 0;
        }
        int64_t left = until - now_ms(cloud);
        if (left <= 0) return tm_error_set(e, TM_ETIMEOUT, "nothing happened");
        int handles[2 * TM_HOSTS_INSTANCES_MAX];
        struct tm_watch watches[2 * TM_HOSTS_INSTANCES_MAX];
        int64_t wait = INT64_MAX;
        size_t count = hosts_watch(cloud, handles, 2 * TM_HOSTS_INSTANCES_MAX, &wait);
        for (size_t i = 0; i < count; i++)
            watches[i] = (struct tm_watch){.handle = handles[i]};
        (void)c->env->net_watch(c->env, watches, count, wait < left ? wait : left, NULL);
    }
}

static double hosts_price(struct tm_cloud *cloud, int pool)
{
    return pool == TM_CLOUD_SPOT ? of(cloud)->options.price_usd_h : NAN;
}

static struct tm_cloud_bill hosts_bill(struct tm_cloud *cloud)
{
    size_t count = 0;
    (void)hosts_instances(cloud, &count); /* settles */
    return of(cloud)->bill;
}

static bool is_quiet(const struct tm_hosts__cloud *c)
{
    for (size_t i = 0; i < c->slot_count; i++)
        if (c->slots[i].pid > 0 || (c->slots[i].unclean && c->slots[i].failures == 0)) return false;
    return true;
}

static void free_all(struct tm_hosts__cloud *c)
{
    for (size_t i = 0; i < c->slot_count; i++) {
        tm_hosts__stop(c, &c->slots[i]);
        tm_text_deinit(&c->slots[i].said);
    }
    if (c->sockets[0] != '\0') tm_hosts__close_sockets(c);
    for (size_t i = 0; i < c->slot_count; i++) {
        char path[TM_HOSTS_PATH_BYTES]; /* it has a ticket in it */
        tm_hosts__script_path(c, i, path);
        (void)c->env->file_remove(c->env, path, NULL);
    }
    tm_free(c->slots);
    tm_free(c->instances);
    tm_free(c->events);
    tm_free(c);
}

static int hosts_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct tm_hosts__cloud *c = of(cloud);
    struct tm_cloud_event event;
    int64_t until = now_ms(cloud) + END_LIMIT_MS;
    int rc = 0;
    c->want[TM_CLOUD_SPOT] = 0;
    c->said = true; /* nothing is kept */
    for (size_t i = 0; i < c->slot_count; i++) {
        if (c->slots[i].unclean && c->slots[i].id == 0) c->slots[i].failures = 0; /* once more, now */
        if (c->slots[i].unclean && c->slots[i].id == 0) c->slots[i].retry_ms = 0;
        if (c->slots[i].id == 0) continue;
        int released = hosts_release(cloud, c->slots[i].id, rc == 0 ? e : NULL);
        if (rc == 0) rc = released;
        c->slots[i].failures = 0;
    }
    char name[HOST_WORD_BYTES];
    while (!is_quiet(c) && now_ms(cloud) < until) {
        int next = hosts_next(cloud, LOOK_MS, &event, NULL);
        if (next != 0 && next != -(int)TM_ETIMEOUT) break;
    }
    for (size_t i = 0; i < c->slot_count; i++)
        if (c->slots[i].unclean)
            tm_log(TM_LOG_WARN, "host %s cannot be reached: an agent that still runs there gives up within 5 minutes",
                   name_of(&c->slots[i], name));
    free_all(c);
    return rc;
}

/* ---- its beginning ---- */

static int make_slots(struct tm_hosts__cloud *c, struct tm_error *e)
{
    const struct tm_hosts_options *options = &c->options;
    for (size_t i = 0; i < options->host_count; i++)
        c->slot_count += (size_t)options->hosts[i].slots;
    if (c->slot_count > TM_HOSTS_INSTANCES_MAX) {
        size_t count = c->slot_count;
        c->slot_count = 0;
        return tm_error_set(e, TM_ELIMIT, "%zu slots on all hosts, but at most %d are used", count,
                            TM_HOSTS_INSTANCES_MAX);
    }
    c->slots = tm_calloc(c->slot_count + 1, sizeof *c->slots);
    if (c->slots == NULL) {
        c->slot_count = 0;
        return tm_error_nomem(e);
    }
    /* The first slots of all hosts first: losing a host is then losing little. */
    size_t at = 0;
    for (int number = 0; number < TM_HOST_SLOTS_MAX; number++)
        for (size_t i = 0; i < options->host_count; i++) {
            if (number >= options->hosts[i].slots) continue;
            char path[TM_HOSTS_PATH_BYTES]; /* a program that was killed has not removed it */
            tm_hosts__script_path(c, at, path);
            bool left = options->resumed || c->env->file_exists(c->env, path);
            c->slots[at] = (struct tm_hosts__slot){.host = &options->hosts[i],
                                                   .number = number,
                                                   .handle = -1,
                                                   .output = -1,
                                                   .unclean = left,
                                                   .unknown = left};
            tm_text_init(&c->slots[at].said, 1 << 16);
            at++;
        }
    return 0;
}

int tm_hosts_cloud_create(struct tm_env *env, const struct tm_hosts_options *options, struct tm_cloud **out,
                          struct tm_error *e)
{
    struct tm_hosts__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    c->cloud = (struct tm_cloud){.self = c,
                                 .pools = hosts_pools,
                                 .want = hosts_want,
                                 .release = hosts_release,
                                 .instances = hosts_instances,
                                 .next = hosts_next,
                                 .watch = hosts_watch,
                                 .price_usd_h = hosts_price,
                                 .now_ms = now_ms,
                                 .bill = hosts_bill,
                                 .destroy = hosts_destroy};
    c->env = env;
    c->options = *options;
    c->begin_ms = env->monotonic_ns(env) / 1000000;
    tm_cloud_pools__plain(c->pools);
    c->pools[TM_CLOUD_SPOT].price_usd_h = options->price_usd_h;
    (void)snprintf(c->pools[TM_CLOUD_SPOT].type, sizeof c->pools[0].type, "host");
    int rc = make_slots(c, e);
    if (rc == 0) rc = tm_hosts__hash_program(env, options->program, c->sha256, e);
    if (rc == 0) rc = tm_hosts__make_sockets(c, e);
    if (rc != 0) {
        free_all(c);
        return rc;
    }
    *out = &c->cloud;
    return 0;
}

#include "run/chaos_driver.h"

#include "base/alloc.h"
#include "base/log.h"
#include "cloud/local_cloud.h"
#include "run/state_folder.h"
#include "wire/message.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 96, SAID_MAX = 32, AGAIN_MS = 50 };

/* A fault that lasts. */
struct lasting {
    enum tm_fault_kind kind;
    uint64_t instance;
    int pid;
    int64_t start; /* of the process */
    int64_t end_ms;
};

struct tm_chaos_driver {
    struct tm_env *env;
    struct tm_chaos_options options;
    struct tm_cloud *cloud;
    const char *dir;
    int64_t begun_ms; /* -1: not yet */
    uint64_t next;
    uint64_t count;
    struct lasting lasting[TM_CHAOS_LASTING_MAX];
    size_t lasting_count;
    char said[SAID_MAX][WORDS_MAX];
    size_t said_first, said_count;
    bool told_no_links;
};

static int64_t now_ms(const struct tm_chaos_driver *d)
{
    return d->env->monotonic_ns(d->env) / 1000000;
}

/* ---- faults ---- */

static const struct tm_cloud_instance *pick_instance(const struct tm_chaos_driver *d, const struct tm_fault *fault)
{
    size_t count = 0;
    uint64_t here = 0;
    const struct tm_cloud_instance *all = d->cloud->instances(d->cloud, &count);
    for (size_t i = 0; i < count; i++)
        here += tm_instance_is_here(&all[i]) && all[i].pid > 0;
    if (here == 0) return NULL;
    uint64_t target = tm_fault_target(fault, here);
    for (size_t i = 0; i < count; i++)
        if (tm_instance_is_here(&all[i]) && all[i].pid > 0 && target-- == 0) return &all[i];
    return NULL;
}

static void say(struct tm_chaos_driver *d, enum tm_fault_kind kind, uint64_t instance, bool begins)
{
    if (d->said_count == SAID_MAX) {
        d->said_first = (d->said_first + 1) % SAID_MAX;
        d->said_count--;
    }
    char *words = d->said[(d->said_first + d->said_count++) % SAID_MAX];
    const char *name = tm_fault_kind_name(kind);
    if (instance == 0)
        (void)snprintf(words, WORDS_MAX, "%s", name);
    else
        (void)snprintf(words, WORDS_MAX, "%s of instance %" PRIu64 "%s", name, instance, begins ? "" : " is over");
    tm_log(TM_LOG_INFO, "chaos: %s", words);
}

static bool set_lasting(struct tm_chaos_driver *d, const struct lasting *l, bool begins)
{
    struct tm_env *env = d->env;
    int64_t started = -1;
    if (l->kind == TM_FAULT_CUT_LINK) return tm_local_cloud_cut(d->cloud, l->instance, begins, NULL) == 0;
    if (env->process_started(env, l->pid, &started, NULL) != 0 || started != l->start) return false;
    if (l->kind == TM_FAULT_FULL_DISK) return env->process_limit_files(env, l->pid, begins ? 0 : -1, NULL) == 0;
    return env->process_signal(env, l->pid, begins ? SIGSTOP : SIGCONT, NULL) == 0;
}

static void mend(struct tm_chaos_driver *d, bool all)
{
    for (size_t i = 0; i < d->lasting_count;) {
        struct lasting l = d->lasting[i];
        if (!all && now_ms(d) < l.end_ms) {
            i++;
            continue;
        }
        if (set_lasting(d, &l, false)) say(d, l.kind, l.instance, false);
        d->lasting[i] = d->lasting[--d->lasting_count];
    }
}

/* Of an instance. True: it was carried out. */
static bool hit(struct tm_chaos_driver *d, const struct tm_fault *fault, const struct tm_cloud_instance *instance)
{
    struct tm_env *env = d->env;
    bool of_agent = fault->kind == TM_FAULT_KILL_AGENT || fault->kind == TM_FAULT_STOP_AGENT;
    int pid = of_agent ? instance->pid : 0;
    uint32_t each = d->options.workers > 1 ? d->options.workers : 1;
    uint64_t worker = tm_worker_of_instance(instance->id, (uint32_t)(d->count % each), each);
    if (!of_agent && fault->kind != TM_FAULT_CUT_LINK && tm_state_worker(env, d->dir, worker, &pid, NULL) != 0)
        return false;
    if (fault->lasts_ms == 0) return env->process_signal(env, pid, SIGKILL, NULL) == 0;
    struct lasting l = {
        .kind = fault->kind, .instance = instance->id, .pid = pid, .end_ms = now_ms(d) + fault->lasts_ms};
    if (d->lasting_count == TM_CHAOS_LASTING_MAX) return false;
    if (pid != 0 && env->process_started(env, pid, &l.start, NULL) != 0) return false;
    if (!set_lasting(d, &l, true)) return false;
    d->lasting[d->lasting_count++] = l;
    return true;
}

/* False: there is nobody to hit yet, so that it should be tried again. */
static bool carry_out(struct tm_chaos_driver *d, const struct tm_fault *fault, int coordinator)
{
    if (fault->kind == TM_FAULT_CUT_LINK && !d->options.netns) {
        if (!d->told_no_links)
            tm_log(TM_LOG_WARN, "chaos: links are only cut with --netns, which gives each instance its own");
        d->told_no_links = true;
        return true;
    }
    if (fault->kind == TM_FAULT_KILL_COORDINATOR) {
        if (coordinator <= 1 || d->env->process_signal(d->env, coordinator, SIGKILL, NULL) != 0) return false;
        say(d, fault->kind, 0, true);
        d->count++;
        return true;
    }
    const struct tm_cloud_instance *instance = pick_instance(d, fault);
    if (instance == NULL || !hit(d, fault, instance)) return false;
    say(d, fault->kind, instance->id, true);
    d->count++;
    return true;
}

/* ---- life ---- */

void tm_chaos_driver__step(struct tm_chaos_driver *d, int coordinator)
{
    if (d->begun_ms < 0) d->begun_ms = now_ms(d);
    mend(d, false);
    while (d->options.faults_max == 0 || d->count < d->options.faults_max) {
        struct tm_fault fault = tm_chaos_fault(&d->options.chaos, d->next);
        if (d->begun_ms + fault.time_ms > now_ms(d) || !carry_out(d, &fault, coordinator)) return;
        d->next++;
    }
}

int64_t tm_chaos_driver__wait_ms(const struct tm_chaos_driver *d)
{
    int64_t wait_ms = INT64_MAX;
    if (d->begun_ms < 0) return 0;
    if (d->options.faults_max == 0 || d->count < d->options.faults_max) {
        wait_ms = d->begun_ms + tm_chaos_fault(&d->options.chaos, d->next).time_ms - now_ms(d);
        if (wait_ms <= 0) wait_ms = AGAIN_MS; /* there was nobody to hit */
    }
    for (size_t i = 0; i < d->lasting_count; i++) {
        int64_t left_ms = d->lasting[i].end_ms - now_ms(d);
        if (left_ms < wait_ms) wait_ms = left_ms > 0 ? left_ms : 0;
    }
    return wait_ms;
}

uint64_t tm_chaos_driver__count(const struct tm_chaos_driver *d)
{
    return d->count;
}

bool tm_chaos_driver__said(struct tm_chaos_driver *d, char *out, size_t size)
{
    if (d->said_count == 0) return false;
    (void)snprintf(out, size, "%s", d->said[d->said_first]);
    d->said_first = (d->said_first + 1) % SAID_MAX;
    d->said_count--;
    return true;
}

int tm_chaos_driver__create(struct tm_env *env, const struct tm_chaos_options *options, struct tm_cloud *cloud,
                            const char *dir, struct tm_chaos_driver **out, struct tm_error *e)
{
    struct tm_chaos_driver *d = tm_calloc(1, sizeof *d);
    if (d == NULL) return tm_error_nomem(e);
    d->env = env;
    d->options = *options;
    d->cloud = cloud;
    d->dir = dir;
    d->begun_ms = -1;
    d->next = tm_chaos_first_from(&options->chaos, 0);
    *out = d;
    return 0;
}

void tm_chaos_driver__destroy(struct tm_chaos_driver *d)
{
    if (d == NULL) return;
    mend(d, true);
    tm_free(d);
}

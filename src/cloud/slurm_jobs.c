#include "cloud/slurm_jobs.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    POLL_MIN_MS = 1000,
    NODES_EVERY_MS = 60000,
    RETRY_MS = 1000,
    RETRY_DOUBLINGS = 8,
    CANCEL_AGAIN_MS = 10000,
    COMPLETING_MAX_MS = 30000,
    STEADY_MS = 60000,
    YIELD_MAX_MS = 30000,
    WHOLE_MS = 600000,
    EVENTS_MAX = 1 << 16
};

/* ---- events ---- */

static int tell(struct tm_slurm__jobs *s, struct tm_cloud_event event, struct tm_error *e)
{
    void *list = s->events;
    if (s->event_first == s->event_count) s->event_first = s->event_count = 0;
    int rc = tm_grow(&list, &s->event_capacity, s->event_count + 1, sizeof *s->events, EVENTS_MAX);
    s->events = list;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "too many pending events of Slurm");
    s->events[s->event_count++] = event;
    tm_debug(TM_DEBUG_CLOUD, "slurm: instance %" PRIu64 ": %s", event.instance, tm_cloud_event_kind_name(event.kind));
    return 0;
}

bool tm_slurm_jobs__event(struct tm_slurm__jobs *s, struct tm_cloud_event *out)
{
    if (s->event_first == s->event_count) return false;
    *out = s->events[s->event_first++];
    return true;
}

/* Something has changed: look again soon. */
static void look_soon(struct tm_slurm__jobs *s, int64_t now_ms)
{
    s->poll_ms = POLL_MIN_MS < s->poll_max_ms ? POLL_MIN_MS : s->poll_max_ms;
    if (s->query_ms > now_ms + s->poll_ms) s->query_ms = now_ms + s->poll_ms;
}

/* ---- the bill ---- */

static void settle(const struct tm_slurm__jobs *s, size_t at, int64_t now_ms)
{
    struct tm_cloud_instance *instance = &s->instances[at];
    if (tm_instance_is_here(instance))
        instance->bill_usd = (double)(now_ms - instance->arrived_ms) / 3600e3 * instance->price_usd_h;
}

struct tm_cloud_bill tm_slurm_jobs__bill(struct tm_slurm__jobs *s, int64_t now_ms)
{
    struct tm_cloud_bill sum = s->bill;
    for (size_t i = 0; i < s->instance_count; i++) {
        const struct tm_cloud_instance *instance = &s->instances[i];
        if (!tm_instance_is_here(instance)) continue;
        settle(s, i, now_ms);
        sum.usd[instance->pool] += instance->bill_usd;
        sum.seconds[instance->pool] += (double)(now_ms - instance->arrived_ms) / 1000;
    }
    return sum;
}

/* ---- what happens to one ---- */

static void back_off(struct tm_slurm__pool *pool, int64_t now_ms)
{
    int doublings = pool->failures < RETRY_DOUBLINGS ? pool->failures : RETRY_DOUBLINGS;
    pool->failures++;
    pool->retry_ms = now_ms + ((int64_t)RETRY_MS << doublings);
}

/* After a preemption the next waits as long as a notice: else it takes the nodes that whoever preempts is about to get,
 * and is preempted in turn. */
static void yield_to_others(struct tm_slurm__pool *pool, int64_t now_ms)
{
    int64_t wait_ms = pool->notice_ms < YIELD_MAX_MS ? pool->notice_ms : YIELD_MAX_MS;
    if (pool->retry_ms < now_ms + wait_ms) pool->retry_ms = now_ms + wait_ms;
}

static int end(struct tm_slurm__jobs *s, size_t at, enum tm_instance_state state, int status, int64_t now_ms,
               struct tm_error *e)
{
    struct tm_cloud_instance *instance = &s->instances[at];
    if (tm_instance_is_here(instance)) {
        settle(s, at, now_ms);
        s->bill.usd[instance->pool] += instance->bill_usd;
        s->bill.seconds[instance->pool] += (double)(now_ms - instance->arrived_ms) / 1000;
    }
    s->jobs[at].step = TM_SLURM_GONE;
    instance->state = state;
    instance->gone_ms = now_ms;
    look_soon(s, now_ms);
    bool lost = state == TM_INSTANCE_LOST;
    return tell(s,
                (struct tm_cloud_event){.kind = lost ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
                                        .instance = instance->id,
                                        .pool = instance->pool,
                                        .time_ms = now_ms,
                                        .announced = instance->noticed_ms >= 0,
                                        .status = status},
                e);
}

static int arrive(struct tm_slurm__jobs *s, size_t at, const struct tm_slurm__row *row, int64_t now_ms,
                  struct tm_error *e)
{
    struct tm_cloud_instance *instance = &s->instances[at];
    s->jobs[at].step = TM_SLURM_HERE;
    (void)snprintf(s->jobs[at].node, sizeof s->jobs[at].node, "%s", row->node);
    (void)snprintf(instance->host, sizeof instance->host, "%s", row->node);
    instance->state = TM_INSTANCE_RUNNING;
    instance->arrived_ms = now_ms;
    look_soon(s, now_ms);
    if (s->nodes_ms > now_ms + NODES_EVERY_MS) s->nodes_ms = now_ms + NODES_EVERY_MS;
    return tell(s,
                (struct tm_cloud_event){
                    .kind = TM_CLOUD_ARRIVED, .instance = instance->id, .pool = instance->pool, .time_ms = now_ms},
                e);
}

static int give_notice(struct tm_slurm__jobs *s, size_t at, int64_t left_ms, int64_t now_ms, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &s->instances[at];
    instance->state = TM_INSTANCE_NOTICED;
    instance->noticed_ms = now_ms;
    look_soon(s, now_ms);
    return tell(s,
                (struct tm_cloud_event){.kind = TM_CLOUD_NOTICE,
                                        .instance = instance->id,
                                        .pool = instance->pool,
                                        .time_ms = now_ms,
                                        .left_ms = left_ms > 0 ? left_ms : 0},
                e);
}

/* Its job has ended by itself, or somebody ended it. */
static int finish(struct tm_slurm__jobs *s, size_t at, const struct tm_slurm__row *row, int64_t now_ms,
                  struct tm_error *e)
{
    struct tm_slurm__job *job = &s->jobs[at];
    struct tm_slurm__pool *pool = &s->pools[job->pool];
    bool was_here = job->step == TM_SLURM_HERE;
    job->over = true;
    if (job->step == TM_SLURM_GONE) return 0;
    bool known = row != NULL;
    bool timed_out = known && strcmp(row->state, "TIMEOUT") == 0;
    bool in_order = known && strcmp(row->state, "COMPLETED") == 0 && row->status == 0 && !row->preempted;
    bool by_slurm = known && (row->preempted || timed_out);
    tm_debug(TM_DEBUG_CLOUD, "slurm: job %" PRId64 " of instance %" PRIu64 ": %s", job->number, s->instances[at].id,
             known ? row->state : "not known any more");
    if ((row != NULL && row->preempted) && s->instances[at].noticed_ms < 0 && was_here)
        s->instances[at].noticed_ms = now_ms; /* its processes had SIGTERM, if we did not hear of it */
    if (in_order) {
        if (pool->want > 0) pool->want--;
        return end(s, at, TM_INSTANCE_RELEASED, 0, now_ms, e);
    }
    bool steady = was_here && now_ms - s->instances[at].arrived_ms >= STEADY_MS;
    if (by_slurm || steady)
        pool->failures = 0;
    else
        back_off(pool, now_ms);
    if (known && row->preempted && s->instances[at].state != TM_INSTANCE_NOTICED) yield_to_others(pool, now_ms);
    bool by_itself = known && (strcmp(row->state, "FAILED") == 0 || strcmp(row->state, "COMPLETED") == 0);
    return end(s, at, TM_INSTANCE_LOST, by_itself ? row->status : -1, now_ms, e);
}

/* ---- what squeue says ---- */

static void say_why(struct tm_slurm__jobs *s, size_t at, const struct tm_slurm__row *row)
{
    struct tm_slurm__job *job = &s->jobs[at];
    if (job->stuck_told || !tm_slurm__is_stuck(row->reason)) return;
    job->stuck_told = true;
    if (strncmp(row->reason, "JobHeld", 7) == 0)
        tm_log(TM_LOG_WARN, "Slurm holds job %" PRId64 " (%s): scontrol release %" PRId64 " lets it start", row->job,
               row->reason, row->job);
    else if (!s->pools[job->pool].told)
        tm_log(TM_LOG_WARN, "partition %s: Slurm lets job %" PRId64 " wait: %s", s->pools[job->pool].partition,
               row->job, row->reason);
    s->pools[job->pool].told = true;
}

static int take_running(struct tm_slurm__jobs *s, size_t at, const struct tm_slurm__row *row, int64_t now_ms,
                        struct tm_error *e)
{
    struct tm_slurm__job *job = &s->jobs[at];
    struct tm_slurm__pool *pool = &s->pools[job->pool];
    int rc = job->step == TM_SLURM_QUEUED ? arrive(s, at, row, now_ms, e) : 0;
    pool->told = false;
    if (s->instances[at].arrived_ms + STEADY_MS <= now_ms) pool->failures = 0;
    job->limit_ms = row->left_ms >= 0 ? now_ms + row->left_ms : INT64_MAX;
    if (rc != 0 || !row->preempted || s->instances[at].state != TM_INSTANCE_RUNNING) return rc;
    yield_to_others(pool, now_ms);
    return give_notice(s, at, pool->notice_ms, now_ms, e);
}

/* It ran, and was over before we looked: its agent may have joined, so it was there. */
static bool had_node(const struct tm_slurm__job *job, const struct tm_slurm__row *row)
{
    bool over = row->phase == TM_SLURM_ENDED || row->phase == TM_SLURM_COMPLETING;
    return job->step == TM_SLURM_QUEUED && over && row->node[0] != '\0' && strcmp(row->state, "BOOT_FAIL") != 0;
}

static int take_row(struct tm_slurm__jobs *s, size_t at, const struct tm_slurm__row *row, int64_t now_ms,
                    struct tm_error *e)
{
    struct tm_slurm__job *job = &s->jobs[at];
    job->seen = true;
    job->unsure = false;
    job->number = row->job;
    job->over = row->phase == TM_SLURM_ENDED;
    if (job->step == TM_SLURM_ASKED) job->step = TM_SLURM_QUEUED;
    int rc = had_node(job, row) ? arrive(s, at, row, now_ms, e) : 0;
    if (rc != 0 || row->phase == TM_SLURM_ENDED) return rc == 0 ? finish(s, at, row, now_ms, e) : rc;
    if (job->step == TM_SLURM_GONE) {
        job->cancel = true;
        return 0;
    }
    if (row->phase != TM_SLURM_COMPLETING) job->completing_ms = 0;
    if (row->phase == TM_SLURM_COMPLETING) { /* how it ended is not said before the node is free */
        if (job->completing_ms == 0) job->completing_ms = now_ms;
        look_soon(s, now_ms);
        return now_ms - job->completing_ms > COMPLETING_MAX_MS ? finish(s, at, NULL, now_ms, e) : 0;
    }
    if (row->phase == TM_SLURM_RUNNING) return take_running(s, at, row, now_ms, e);
    if (job->step == TM_SLURM_HERE) { /* somebody had it requeued: it would be another instance under the same name */
        job->cancel = true;
        return end(s, at, TM_INSTANCE_LOST, -1, now_ms, e);
    }
    (void)snprintf(job->reason, sizeof job->reason, "%s", row->reason);
    say_why(s, at, row);
    return 0;
}

static size_t find_instance(const struct tm_slurm__jobs *s, uint64_t id)
{
    size_t i = 0;
    while (i < s->instance_count && s->instances[i].id != id)
        i++;
    return i;
}

/* By the job's number, where that is known: one that was taken over has the tag of another instance. */
static size_t find_row(const struct tm_slurm__jobs *s, const struct tm_slurm__row *row)
{
    size_t i = 0;
    while (i < s->instance_count && s->jobs[i].number != row->job)
        i++;
    if (i < s->instance_count || row->tag.run != s->tag.run) return i;
    i = find_instance(s, row->tag.instance);
    bool another = i < s->instance_count && s->jobs[i].number != 0;
    return another ? s->instance_count : i; /* an sbatch that worked twice: one is enough */
}

/* Of a pool: asked for, queued or here, but for those that are about to go. */
static int active(const struct tm_slurm__jobs *s, size_t pool)
{
    int count = 0;
    for (size_t i = 0; i < s->instance_count; i++)
        count +=
            s->jobs[i].pool == pool && s->jobs[i].step != TM_SLURM_GONE && s->instances[i].state != TM_INSTANCE_NOTICED;
    return count;
}

static int add(struct tm_slurm__jobs *s, uint64_t id, size_t pool, int64_t now_ms, size_t *out_at, struct tm_error *e)
{
    void *instances = s->instances;
    void *jobs = s->jobs;
    size_t at = s->instance_count;
    int rc = tm_grow(&instances, &s->instance_capacity, at + 1, sizeof *s->instances, TM_SLURM_INSTANCES_MAX);
    s->instances = instances;
    if (rc == 0) rc = tm_grow(&jobs, &s->job_capacity, at + 1, sizeof *s->jobs, TM_SLURM_INSTANCES_MAX);
    s->jobs = jobs;
    if (rc != 0)
        return rc == -(int)TM_ENOMEM
                   ? tm_error_nomem(e)
                   : tm_error_set(e, TM_ELIMIT, "this run has had more than %d jobs of Slurm", TM_SLURM_INSTANCES_MAX);
    s->jobs[at] = (struct tm_slurm__job){.pool = pool, .limit_ms = INT64_MAX};
    s->instances[at] = (struct tm_cloud_instance){.id = id,
                                                  .pool = s->pools[pool].shown,
                                                  .kind = s->pools[pool].kind,
                                                  .price_usd_h = s->pools[pool].price_usd_h,
                                                  .asked_ms = now_ms,
                                                  .arrived_ms = -1,
                                                  .noticed_ms = -1,
                                                  .gone_ms = -1};
    (void)snprintf(s->instances[at].zone, sizeof s->instances[at].zone, "%s", s->pools[pool].partition);
    (void)snprintf(s->instances[at].type, sizeof s->instances[at].type, "%s", s->pools[pool].partition);
    s->instance_count++;
    *out_at = at;
    return 0;
}

static bool is_of_pool(const struct tm_slurm__jobs *s, const struct tm_slurm__row *row, size_t *out_pool)
{
    size_t pool = 0;
    while (pool < s->pool_count && strcmp(s->pools[pool].partition, row->partition) != 0)
        pool++;
    *out_pool = pool;
    return pool < s->pool_count;
}

static void cancel_stray(struct tm_slurm__jobs *s, const struct tm_slurm__row *row)
{
    for (size_t i = 0; i < s->stray_count; i++)
        if (s->strays[i] == row->job) return;
    if (s->stray_count < TM_SLURM_CANCEL_MAX) s->strays[s->stray_count++] = row->job;
}

/* One that runs since before this program began may stay; which of them do is seen when all that wait are known. */
static bool may_stay(const struct tm_slurm__jobs *s, const struct tm_slurm__row *row)
{
    return s->adopting && s->hears != NULL && row->tag.run == s->tag.run && row->phase == TM_SLURM_RUNNING &&
           !row->preempted;
}

/* A job of this folder that no instance has: of an earlier run, or one that was given up. One of this run that has not
 * started yet has waited long enough to be worth keeping, if it is in the right order: numbers never go back. */
static int take_unknown(struct tm_slurm__jobs *s, const struct tm_slurm__row *row, int64_t now_ms, struct tm_error *e)
{
    size_t at = 0;
    size_t pool = 0;
    if (row->phase == TM_SLURM_ENDED || may_stay(s, row)) return 0;
    bool known = is_of_pool(s, row, &pool);
    bool ours = row->tag.run == s->tag.run && s->adopting && row->phase == TM_SLURM_PENDING && known;
    bool in_order = s->instance_count == 0 || s->instances[s->instance_count - 1].id < row->tag.instance;
    if (ours && in_order && row->tag.instance <= s->tag.instance) {
        int rc = add(s, row->tag.instance, pool, now_ms, &at, e);
        if (rc == 0) tm_log(TM_LOG_INFO, "job %" PRId64 " waits in Slurm's queue since before: it is kept", row->job);
        return rc == 0 ? take_row(s, at, row, now_ms, e) : rc;
    }
    cancel_stray(s, row);
    return 0;
}

/* Its node has been waited for, too. It is the next instance: what the earlier program called it has ended in the
 * books, and an agent of it would not be let in. */
static int take_standing(struct tm_slurm__jobs *s, const struct tm_slurm__row *row, int64_t now_ms, struct tm_error *e)
{
    size_t at = 0;
    size_t pool = 0;
    if (!is_of_pool(s, row, &pool) || active(s, pool) >= s->pools[pool].limit || !s->hears(s->context, row->job)) {
        cancel_stray(s, row);
        return 0;
    }
    int rc = add(s, s->tag.instance + 1, pool, now_ms, &at, e);
    if (rc != 0) return rc;
    s->tag.instance++;
    s->jobs[at].renamed = s->instances[at].recalled = true;
    tm_log(TM_LOG_INFO, "job %" PRId64 " runs in Slurm since before: it is kept, as instance %" PRIu64, row->job,
           s->instances[at].id);
    return take_row(s, at, row, now_ms, e);
}

static int take_all_standing(struct tm_slurm__jobs *s, int64_t now_ms, const struct tm_slurm__answer *answer,
                             struct tm_error *e)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < answer->row_count; at++) {
        const struct tm_slurm__row *row = &answer->rows[at];
        if (strcmp(row->tag.folder, s->tag.folder) == 0 && may_stay(s, row)) rc = take_standing(s, row, now_ms, e);
    }
    return rc;
}

/* What is not in the answer. An sbatch that was not answered did not work; a job that was there has been forgotten. */
static int take_missing(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->instance_count; i++) {
        struct tm_slurm__job *job = &s->jobs[i];
        if (job->seen || job->over) continue;
        if (job->number == 0 && !job->unsure) continue; /* being asked for */
        job->unsure = false;
        rc = finish(s, i, NULL, now_ms, e);
    }
    return rc;
}

/* What Slurm says of the first job of a pool that waits; one that will not start by itself comes before others. */
static const char *why_waiting(const struct tm_slurm__jobs *s, int shown)
{
    const char *why = "";
    for (size_t i = 0; i < s->instance_count; i++) {
        const char *reason = s->jobs[i].reason;
        if (s->instances[i].pool != shown || s->jobs[i].step != TM_SLURM_QUEUED) continue;
        if (reason[0] == '\0' || strcmp(reason, "None") == 0) continue;
        if (tm_slurm__is_stuck(reason)) return reason;
        if (why[0] == '\0') why = reason;
    }
    return why;
}

/* How many wait in the queue, and why: the reason is told again when it becomes one that somebody must do something
 * about, or ceases to be. */
static int tell_waiting(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_error *e)
{
    int waiting[TM_SLURM_POOLS_MAX] = {0};
    int rc = 0;
    for (size_t i = 0; i < s->instance_count; i++)
        waiting[s->instances[i].pool] += s->jobs[i].step == TM_SLURM_QUEUED;
    for (int i = 0; rc == 0 && i < TM_SLURM_POOLS_MAX; i++) {
        const char *why = why_waiting(s, i);
        bool stuck = tm_slurm__is_stuck(why);
        if (waiting[i] == s->waiting[i] && stuck == s->stuck[i]) continue;
        s->waiting[i] = waiting[i];
        s->stuck[i] = stuck;
        struct tm_cloud_event event = {.kind = TM_CLOUD_REFUSED, .pool = i, .count = waiting[i], .time_ms = now_ms};
        (void)snprintf(event.why, sizeof event.why, "%s", why);
        rc = tell(s, event, e);
    }
    return rc;
}

static int take_queue(struct tm_slurm__jobs *s, int64_t now_ms, const struct tm_slurm__answer *answer,
                      struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < s->instance_count; i++)
        s->jobs[i].seen = false;
    for (size_t at = 0; rc == 0 && at < answer->row_count; at++) {
        const struct tm_slurm__row *row = &answer->rows[at];
        if (strcmp(row->tag.folder, s->tag.folder) != 0) continue;
        size_t i = find_row(s, row);
        rc = i < s->instance_count ? take_row(s, i, row, now_ms, e) : take_unknown(s, row, now_ms, e);
    }
    if (rc == 0) rc = take_all_standing(s, now_ms, answer, e);
    if (rc == 0) rc = take_missing(s, now_ms, e);
    if (rc == 0) rc = tell_waiting(s, now_ms, e);
    s->adopting = false;
    return rc;
}

/* ---- answers ---- */

static void take_submitted(struct tm_slurm__jobs *s, size_t at, int64_t now_ms, const struct tm_slurm__answer *answer)
{
    struct tm_slurm__job *job = &s->jobs[at];
    struct tm_slurm__pool *pool = &s->pools[job->pool];
    char words[TM_SLURM_SAID_MAX];
    job->number = answer->status == 0 ? answer->job : 0;
    look_soon(s, now_ms);
    if (job->number != 0) {
        if (job->step == TM_SLURM_ASKED) job->step = TM_SLURM_QUEUED;
        return;
    }
    job->unsure = true; /* until the queue has been asked */
    s->query_ms = now_ms;
    if (answer->status < 0) s->whole_ms = now_ms + WHOLE_MS;
    if (pool->told) return;
    pool->told = true;
    if (answer->status < 0) {
        tm_log(TM_LOG_WARN, "partition %s: Slurm does not answer; its queue will say whether there is a job",
               pool->partition);
        return;
    }
    tm_slurm__in_one_line(answer->words, answer->length, words);
    tm_log(TM_LOG_WARN, "partition %s: Slurm gave no job, retrying: %s", pool->partition, words);
}

static int take_leaving(struct tm_slurm__jobs *s, int64_t now_ms, const char *node, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->instance_count; i++) {
        struct tm_slurm__job *job = &s->jobs[i];
        if (job->step != TM_SLURM_HERE || job->hinted || strcmp(job->node, node) != 0) continue;
        job->hinted = true;
        struct tm_cloud_event event = {
            .kind = TM_CLOUD_HINT, .instance = s->instances[i].id, .pool = s->instances[i].pool, .time_ms = now_ms};
        (void)snprintf(event.why, sizeof event.why, "node %.80s is drained: it takes no more jobs after this one",
                       node);
        tm_log(TM_LOG_INFO, "instance %" PRIu64 ": %s", event.instance, event.why);
        rc = tell(s, event, e);
    }
    return rc;
}

int tm_slurm_jobs__answer(struct tm_slurm__jobs *s, int64_t now_ms, const struct tm_slurm__command *command,
                          const struct tm_slurm__answer *answer, struct tm_error *e)
{
    int rc = 0;
    switch (command->kind) {
    case TM_SLURM_SUBMIT:
        take_submitted(s, command->at, now_ms, answer);
        return 0;
    case TM_SLURM_QUERY:
        s->query_ms = now_ms + s->poll_ms;
        s->poll_ms = s->poll_ms * 2 < s->poll_max_ms ? s->poll_ms * 2 : s->poll_max_ms;
        return answer->status == 0 ? take_queue(s, now_ms, answer, e) : 0; /* no answer says nothing */
    case TM_SLURM_NODES:
        for (size_t i = 0; rc == 0 && answer->status == 0 && i < answer->leaving_count; i++)
            rc = take_leaving(s, now_ms, answer->leaving[i], e);
        return rc;
    case TM_SLURM_CANCEL:
        look_soon(s, now_ms);
        return 0;
    }
    return 0;
}

/* ---- commands ---- */

static bool fill_cancels(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_slurm__command *out)
{
    *out = (struct tm_slurm__command){.kind = TM_SLURM_CANCEL};
    for (size_t i = 0; i < s->instance_count && out->cancel_count < TM_SLURM_CANCEL_MAX; i++) {
        struct tm_slurm__job *job = &s->jobs[i];
        if (!job->cancel || job->over || job->number == 0 || job->cancel_ms > now_ms) continue;
        job->cancel_ms = now_ms + CANCEL_AGAIN_MS;
        out->cancel[out->cancel_count++] = job->number;
    }
    while (s->stray_count > 0 && out->cancel_count < TM_SLURM_CANCEL_MAX)
        out->cancel[out->cancel_count++] = s->strays[--s->stray_count];
    return out->cancel_count > 0;
}

static bool may_ask(const struct tm_slurm__jobs *s, size_t pool, int64_t now_ms)
{
    const struct tm_slurm__pool *p = &s->pools[pool];
    int most = p->want < p->limit ? p->want : p->limit;
    return most > 0 && p->retry_ms <= now_ms && active(s, pool) < most;
}

/* Is there, or may there be, a job whose number is not known? */
static bool wants_all(const struct tm_slurm__jobs *s, int64_t now_ms)
{
    bool all = s->adopting || now_ms < s->whole_ms;
    for (size_t i = 0; !all && i < s->instance_count; i++)
        all = s->jobs[i].unsure;
    return all;
}

int tm_slurm_jobs__next(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_slurm__command *out, bool *out_due,
                        struct tm_error *e)
{
    *out_due = true;
    if (fill_cancels(s, now_ms, out)) return 0;
    *out = (struct tm_slurm__command){.kind = TM_SLURM_QUERY, .whole = wants_all(s, now_ms)};
    if (s->adopting) return 0; /* before anything is asked for: who is there already? */
    for (size_t i = 0; i < s->pool_count; i++) {
        if (!may_ask(s, i, now_ms)) continue;
        out->kind = TM_SLURM_SUBMIT;
        int rc = add(s, s->tag.instance + 1, i, now_ms, &out->at, e);
        if (rc == 0) s->tag.instance++;
        return rc;
    }
    bool any = tm_slurm_jobs__left(s) > 0;
    if (any && s->query_ms <= now_ms) return 0;
    for (size_t i = 0; i < s->instance_count && s->nodes_ms <= now_ms; i++) {
        if (s->jobs[i].step != TM_SLURM_HERE) continue;
        s->nodes_ms = now_ms + NODES_EVERY_MS;
        if (s->nodes_ms > now_ms + 2 * s->poll_max_ms) s->nodes_ms = now_ms + 2 * s->poll_max_ms;
        out->kind = TM_SLURM_NODES;
        return 0;
    }
    *out_due = false;
    return 0;
}

size_t tm_slurm_jobs__left(const struct tm_slurm__jobs *s)
{
    size_t count = s->stray_count;
    for (size_t i = 0; i < s->instance_count; i++)
        count += !s->jobs[i].over;
    return count;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t tm_slurm_jobs__due_ms(const struct tm_slurm__jobs *s)
{
    int64_t due_ms = s->event_first < s->event_count || s->stray_count > 0 || s->adopting ? 0 : INT64_MAX;
    bool here = false;
    for (size_t i = 0; i < s->instance_count; i++) {
        const struct tm_slurm__job *job = &s->jobs[i];
        if (!job->over) due_ms = earlier(due_ms, s->query_ms);
        if (job->cancel && !job->over && job->number != 0) due_ms = earlier(due_ms, job->cancel_ms);
        here = here || job->step == TM_SLURM_HERE;
        if (job->step == TM_SLURM_HERE && s->instances[i].state == TM_INSTANCE_RUNNING && job->limit_ms < INT64_MAX)
            due_ms = earlier(due_ms, job->limit_ms - s->pools[job->pool].notice_ms);
    }
    if (here) due_ms = earlier(due_ms, s->nodes_ms);
    for (size_t i = 0; i < s->pool_count; i++)
        if (may_ask(s, i, INT64_MAX)) due_ms = earlier(due_ms, s->pools[i].retry_ms);
    return due_ms;
}

int tm_slurm_jobs__tick(struct tm_slurm__jobs *s, int64_t now_ms, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->instance_count; i++) {
        struct tm_slurm__job *job = &s->jobs[i];
        if (job->step != TM_SLURM_HERE || s->instances[i].state != TM_INSTANCE_RUNNING || job->limit_ms == INT64_MAX)
            continue;
        if (job->limit_ms - now_ms > s->pools[job->pool].notice_ms) continue;
        rc = give_notice(s, i, job->limit_ms - now_ms, now_ms, e);
    }
    return rc;
}

/* ---- orders ---- */

/* Those that wait and are not wanted any more go first; those that run go by release. */
static void drop_waiting(struct tm_slurm__jobs *s, size_t pool, int64_t now_ms)
{
    int more = active(s, pool) - s->pools[pool].want;
    for (size_t i = s->instance_count; more > 0 && i-- > 0;) {
        struct tm_slurm__job *job = &s->jobs[i];
        if (job->pool != pool || (job->step != TM_SLURM_QUEUED && job->step != TM_SLURM_ASKED)) continue;
        job->cancel = true;
        job->step = TM_SLURM_GONE;
        s->instances[i].state = TM_INSTANCE_RELEASED;
        s->instances[i].gone_ms = now_ms;
        more--;
    }
}

void tm_slurm_jobs__want(struct tm_slurm__jobs *s, size_t pool, int count, int64_t now_ms)
{
    if (s->pools[pool].want == count) return;
    tm_debug(TM_DEBUG_CLOUD, "slurm: %d wanted in %s, was %d", count, s->pools[pool].partition, s->pools[pool].want);
    s->pools[pool].want = count;
    look_soon(s, now_ms);
    drop_waiting(s, pool, now_ms);
}

int tm_slurm_jobs__release(struct tm_slurm__jobs *s, uint64_t id, int64_t now_ms, struct tm_error *e)
{
    size_t at = find_instance(s, id);
    if (id == 0 || at == s->instance_count || s->jobs[at].step == TM_SLURM_GONE)
        return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64, id);
    struct tm_slurm__pool *pool = &s->pools[s->jobs[at].pool];
    s->jobs[at].cancel = true;
    if (s->instances[at].state == TM_INSTANCE_NOTICED) return end(s, at, TM_INSTANCE_LOST, -1, now_ms, e);
    if (pool->want > 0) pool->want--;
    return end(s, at, TM_INSTANCE_RELEASED, -1, now_ms, e);
}

void tm_slurm_jobs__end_all(struct tm_slurm__jobs *s, int64_t now_ms)
{
    for (size_t i = 0; i < s->pool_count; i++)
        s->pools[i].want = 0;
    for (size_t i = 0; i < s->instance_count; i++) {
        s->jobs[i].cancel = true;
        if (s->jobs[i].step != TM_SLURM_GONE) (void)end(s, i, TM_INSTANCE_RELEASED, -1, now_ms, NULL);
    }
    s->query_ms = now_ms;
    s->poll_ms = 200;
}

void tm_slurm_jobs__init(struct tm_slurm__jobs *s)
{
    *s = (struct tm_slurm__jobs){.poll_max_ms = 30000, .poll_ms = POLL_MIN_MS, .nodes_ms = 0, .adopting = true};
}

void tm_slurm_jobs__deinit(struct tm_slurm__jobs *s)
{
    tm_free(s->instances);
    tm_free(s->jobs);
    tm_free(s->events);
}

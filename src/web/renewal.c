#include "web/renewal.h"

static const int64_t between_ns = 60000000000LL;
static const int64_t counts_ns = 1000000000LL; /* for those who waited for the same answer */
static const int64_t spare_ms = 10000;         /* a request takes its time, too */

void tm_renewal__init(struct tm_renewal *r, struct tm_env *env, int (*ask)(void *context, struct tm_error *e),
                      void *context)
{
    *r = (struct tm_renewal){.env = env, .ask = ask, .context = context};
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
}

void tm_renewal__deinit(struct tm_renewal *r)
{
    if (r->joinable) (void)pthread_join(r->thread, NULL);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
}

bool tm_renewal__is_good(const struct tm_renewal *r, int64_t ends_ms)
{
    return ends_ms == INT64_MAX || ends_ms - r->env->now_ms(r->env) > spare_ms;
}

static void *run(void *argument)
{
    struct tm_renewal *r = argument;
    struct tm_error why = {.text = ""};
    int rc = r->ask(r->context, &why);
    (void)pthread_mutex_lock(&r->lock);
    r->running = false;
    r->answered = true;
    r->answered_ns = r->env->monotonic_ns(r->env);
    r->rc = rc;
    r->why = why;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void start(struct tm_renewal *r)
{
    if (r->joinable) (void)pthread_join(r->thread, NULL); /* it has ended */
    r->tried_ns = r->env->monotonic_ns(r->env);
    r->joinable = r->running = pthread_create(&r->thread, NULL, run, r) == 0;
}

void tm_renewal__refresh(struct tm_renewal *r, int64_t ends_ms, int64_t before_ms)
{
    int64_t now_ns = r->env->monotonic_ns(r->env);
    if (ends_ms == INT64_MAX || r->running || now_ns - r->tried_ns < between_ns) return;
    int64_t half_ms = (ends_ms - r->got_ms) / 2;
    if (ends_ms - r->env->now_ms(r->env) > (half_ms < before_ms ? half_ms : before_ms)) return;
    start(r);
}

int tm_renewal__look(struct tm_renewal *r, struct tm_error *e)
{
    if (!r->running && r->answered && r->env->monotonic_ns(r->env) - r->answered_ns < counts_ns) {
        if (r->rc != 0 && e != NULL) *e = r->why;
        return r->rc;
    }
    if (!r->running) start(r);
    if (!r->running) return tm_error_nomem(e);
    return tm_error_set(e, TM_EBUSY, "credentials are being asked for");
}

int tm_renewal__await(struct tm_renewal *r, struct tm_error *e)
{
    int rc = 0;
    while ((rc = tm_renewal__look(r, e)) == -(int)TM_EBUSY)
        while (r->running)
            (void)pthread_cond_wait(&r->changed, &r->lock); /* the others have the lock meanwhile */
    return rc;
}

void tm_renewal__doubt(struct tm_renewal *r)
{
    r->answered = false;
}

void tm_renewal__got(struct tm_renewal *r)
{
    r->got_ms = r->env->now_ms(r->env);
    r->tried_ns = r->env->monotonic_ns(r->env);
}

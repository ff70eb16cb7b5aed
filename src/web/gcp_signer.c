#include "web/gcp_signer.h"

#include "base/alloc.h"

#include <openssl/crypto.h>
#include <string.h>

enum { SIGNED_MAX = 64, URL_MAX = 16384 };

static const int64_t kept_ns = 300000000000LL; /* of 6 hours at least, by their date */
static const int64_t counts_ns = 1000000000LL; /* a refusal, for those who waited for the same answer */

enum state { NONE, WANTED, ASKED, DONE };

struct tm_gcp__signed {
    enum state state;
    struct tm_gcp__wish wish;
    uint64_t turn; /* WANTED: who came first */
    int64_t done_ns;
    struct tm_text url;
    int rc;
    struct tm_error why;
};

void tm_gcp__signer_init(struct tm_gcp__signer *s, struct tm_env *env,
                         int (*sign)(void *context, const struct tm_gcp__wish *wish, struct tm_text *out,
                                     struct tm_error *e),
                         void *context)
{
    *s = (struct tm_gcp__signer){.env = env, .sign = sign, .context = context};
    (void)pthread_mutex_init(&s->lock, NULL);
}

/* Whoever has the URL may use it. */
static void clear_url(struct tm_gcp__signed *one)
{
    if (one->url.data != NULL) OPENSSL_cleanse(one->url.data, one->url.length);
    tm_text_deinit(&one->url);
    one->url = (struct tm_text){.data = NULL};
}

void tm_gcp__signer_deinit(struct tm_gcp__signer *s)
{
    atomic_store(&s->ended, true);
    if (s->joinable) (void)pthread_join(s->thread, NULL);
    for (size_t i = 0; s->list != NULL && i < SIGNED_MAX; i++)
        clear_url(&s->list[i]);
    tm_free(s->list);
    (void)pthread_mutex_destroy(&s->lock);
}

/* ---- the thread ---- */

static struct tm_gcp__signed *next_wanted(struct tm_gcp__signer *s)
{
    struct tm_gcp__signed *first = NULL;
    for (size_t i = 0; i < SIGNED_MAX; i++) {
        struct tm_gcp__signed *one = &s->list[i];
        if (one->state == WANTED && (first == NULL || one->turn < first->turn)) first = one;
    }
    return first;
}

static void *run(void *argument)
{
    struct tm_gcp__signer *s = argument;
    struct tm_gcp__signed *one = NULL;
    (void)pthread_mutex_lock(&s->lock);
    while (!atomic_load(&s->ended) && (one = next_wanted(s)) != NULL) {
        const struct tm_gcp__wish wish = one->wish;
        struct tm_text url;
        struct tm_error why = {.text = ""};
        one->state = ASKED; /* so nobody else touches it */
        (void)pthread_mutex_unlock(&s->lock);
        tm_text_init(&url, URL_MAX);
        int rc = s->sign(s->context, &wish, &url, &why);
        (void)pthread_mutex_lock(&s->lock);
        one->state = DONE;
        one->done_ns = s->env->monotonic_ns(s->env);
        one->url = url;
        one->rc = rc;
        one->why = why;
    }
    s->running = false;
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static bool start(struct tm_gcp__signer *s)
{
    if (s->running) return true;
    if (s->joinable) (void)pthread_join(s->thread, NULL); /* it has ended */
    s->joinable = s->running = pthread_create(&s->thread, NULL, run, s) == 0;
    return s->running;
}

/* ---- whoever needs them ---- */

static bool is_same(const struct tm_gcp__wish *a, const struct tm_gcp__wish *b)
{
    return a->seconds == b->seconds && strcmp(a->method, b->method) == 0 && strcmp(a->bucket, b->bucket) == 0 &&
           strcmp(a->name, b->name) == 0 && strcmp(a->signer, b->signer) == 0;
}

static struct tm_gcp__signed *find(struct tm_gcp__signer *s, const struct tm_gcp__wish *wish)
{
    for (size_t i = 0; i < SIGNED_MAX; i++)
        if (s->list[i].state != NONE && is_same(&s->list[i].wish, wish)) return &s->list[i];
    return NULL;
}

/* A place that is free, or of the oldest answer; NULL: all are being asked for. */
static struct tm_gcp__signed *find_place(struct tm_gcp__signer *s)
{
    struct tm_gcp__signed *oldest = NULL;
    for (size_t i = 0; i < SIGNED_MAX; i++) {
        struct tm_gcp__signed *one = &s->list[i];
        if (one->state == NONE) return one;
        if (one->state == DONE && (oldest == NULL || one->done_ns < oldest->done_ns)) oldest = one;
    }
    return oldest;
}

static bool is_fresh(const struct tm_gcp__signer *s, const struct tm_gcp__signed *one)
{
    int64_t age_ns = s->env->monotonic_ns(s->env) - one->done_ns;
    return one->state == DONE && age_ns < (one->rc == 0 ? kept_ns : counts_ns);
}

static void want(struct tm_gcp__signer *s, struct tm_gcp__signed *one, const struct tm_gcp__wish *wish)
{
    clear_url(one);
    one->wish = *wish;
    one->turn = s->turns++;
    one->state = WANTED;
}

/* With the lock. */
static int look(struct tm_gcp__signer *s, const struct tm_gcp__wish *wish, struct tm_text *out, struct tm_error *e)
{
    if (s->list == NULL && (s->list = tm_calloc(SIGNED_MAX, sizeof *s->list)) == NULL) return tm_error_nomem(e);
    struct tm_gcp__signed *one = find(s, wish);
    if (one != NULL && is_fresh(s, one)) {
        if (one->rc != 0 && e != NULL) *e = one->why;
        if (one->rc != 0) return one->rc;
        tm_text_puts(out, tm_text_string(&one->url));
        return tm_text_status(out, e);
    }
    if (one == NULL) one = find_place(s);
    if (one != NULL && (one->state == NONE || one->state == DONE)) want(s, one, wish);
    if (!start(s)) return tm_error_nomem(e);
    return tm_error_set(e, TM_EBUSY, "gs://%s: a URL is being signed", wish->bucket);
}

int tm_gcp__signer_look(struct tm_gcp__signer *s, const struct tm_gcp__wish *wish, struct tm_text *out,
                        struct tm_error *e)
{
    (void)pthread_mutex_lock(&s->lock);
    int rc = look(s, wish, out, e);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

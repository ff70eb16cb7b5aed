#include "job/stay.h"

#include "base/alloc.h"
#include "base/log.h"
#include "wire/office_link.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { EVERY_MS = 1000 };

struct tm_stay {
    struct tm_env *env;
    const char *office;
    struct tm_tls *tls;
    uint64_t instance;
    struct tm_office_link *link; /* of the thread alone */
    int wake[2];
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows */
    bool noticed;
    int64_t left_ms;
    bool leaves;
    int status;
    bool goes; /* it may */
    char again[TM_TICKET_MAX];
};

static void take_answer(struct tm_stay *s, const Tmw__OfficeMessage *answer)
{
    (void)pthread_mutex_lock(&s->lock);
    if (answer->body_case == TMW__OFFICE_MESSAGE__BODY_DONE && answer->done->number != 0) s->goes = true;
    if (answer->body_case == TMW__OFFICE_MESSAGE__BODY_TICKETS && answer->tickets->n_tickets > 0 && !s->leaves) {
        (void)snprintf(s->again, sizeof s->again, "%s", answer->tickets->tickets[0]);
        s->goes = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
}

/* One word, and its answer; where the connection is gone, on the next one. */
static void say(struct tm_stay *s, bool *out_left)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__Stay body = TMW__STAY__INIT;
    Tmw__OfficeMessage *answer = NULL;
    struct tm_arena arena;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STAY;
    message.stay = &body;
    (void)pthread_mutex_lock(&s->lock);
    body.instance = s->instance;
    body.noticed = s->noticed;
    body.notice_left_ms = (uint64_t)s->left_ms;
    body.leaves = s->leaves;
    body.status = (uint32_t)s->status;
    (void)pthread_mutex_unlock(&s->lock);
    *out_left = body.leaves;
    tm_arena_init(&arena, 8 << 20);
    int rc = s->link != NULL ? 0 : tm_office_link_open(s->env, s->office, s->tls, &s->link, NULL);
    if (rc == 0) rc = tm_office_link_send(s->link, &message, NULL);
    if (rc == 0) rc = tm_office_link_receive(s->link, &arena, &answer, NULL);
    if (rc == 0) {
        take_answer(s, answer);
    } else {
        tm_office_link_close(s->link);
        s->link = NULL;
    }
    tm_arena_deinit(&arena);
}

static void *run(void *context)
{
    struct tm_stay *s = context;
    bool left = false;
    for (;;) {
        say(s, &left);
        if (left) break;
        char byte = 0;
        size_t got = 0;
        bool ready = false;
        (void)s->env->net_wait(s->env, &s->wake[0], 1, EVERY_MS, &ready, NULL);
        if (ready) (void)s->env->net_receive(s->env, s->wake[0], &byte, 1, &got, NULL);
    }
    tm_office_link_close(s->link);
    return NULL;
}

static void free_all(struct tm_stay *s)
{
    for (int i = 0; i < 2; i++)
        if (s->wake[i] >= 0) s->env->net_close(s->env, s->wake[i]);
    tm_tls_destroy(s->tls);
    (void)pthread_mutex_destroy(&s->lock);
    tm_free(s);
}

int tm_stay__begin(struct tm_env *env, const char *office, const char *tls_folder, uint64_t instance,
                   struct tm_stay **out, struct tm_error *e)
{
    struct tm_stay *s = tm_calloc(1, sizeof *s);
    if (s == NULL) return tm_error_nomem(e);
    s->env = env;
    s->office = office;
    s->instance = instance;
    s->wake[0] = s->wake[1] = -1;
    (void)pthread_mutex_init(&s->lock, NULL);
    int rc = tm_tls_load(env, tls_folder, &s->tls, e);
    if (rc == 0) rc = env->net_pair(env, s->wake, e);
    if (rc == 0 && pthread_create(&s->thread, NULL, run, s) != 0) rc = tm_error_nomem(e);
    if (rc == 0)
        *out = s;
    else
        free_all(s);
    return rc;
}

static void wake(struct tm_stay *s)
{
    size_t sent = 0;
    (void)s->env->net_send(s->env, s->wake[1], "", 1, &sent, NULL);
}

bool tm_stay__goes_on(void *stay, bool noticed, int64_t notice_left_ms)
{
    struct tm_stay *s = stay;
    (void)pthread_mutex_lock(&s->lock);
    bool news = noticed != s->noticed;
    s->noticed = noticed;
    s->left_ms = notice_left_ms > 0 ? notice_left_ms : 0;
    bool goes = s->goes;
    (void)pthread_mutex_unlock(&s->lock);
    if (news) wake(s);
    return !goes;
}

void tm_stay__end(struct tm_stay *s, int status, char again[TM_TICKET_MAX])
{
    again[0] = '\0';
    if (s == NULL) return;
    (void)pthread_mutex_lock(&s->lock);
    s->leaves = true;
    s->status = status;
    (void)pthread_mutex_unlock(&s->lock);
    wake(s);
    (void)pthread_join(s->thread, NULL);
    memcpy(again, s->again, TM_TICKET_MAX);
    free_all(s);
}

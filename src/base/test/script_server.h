/* A server of our own that answers each connection with the next line of a script. */
#ifndef TM_BASE_TEST_SCRIPT_SERVER_H
#define TM_BASE_TEST_SCRIPT_SERVER_H

#include "base/env.h"
#include "base/test/harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRIPT_MAX = 16 };

/* What each connection gets; NULL: nothing, and it is kept open until the end. */
struct server {
    struct tm_env *env;
    const char *const *script;
    size_t count;
    int listener;
    char address[TM_ADDRESS_MAX];
    char seen[SCRIPT_MAX][4096]; /* requests */
    atomic_size_t served;
    atomic_bool stop;
    pthread_t thread;
};

static void read_request(struct server *s, int handle, char *out, size_t room)
{
    size_t used = 0;
    for (;;) {
        size_t got = 0;
        bool ready = false;
        int rc = s->env->net_receive(s->env, handle, out + used, room - 1 - used, &got, NULL);
        if (rc == 0 && got == 0) return;
        if (rc == 0) used += got;
        out[used] = '\0';
        const char *end = strstr(out, "\r\n\r\n");
        const char *length = strcasestr(out, "\r\ncontent-length: ");
        size_t body = length == NULL ? 0 : (size_t)strtoul(length + 18, NULL, 10);
        if (end != NULL && used >= (size_t)(end + 4 - out) + body) return;
        if (rc == -(int)TM_EBUSY && s->env->net_wait(s->env, &handle, 1, 5000, &ready, NULL) != 0) return;
        if (rc != 0 && rc != -(int)TM_EBUSY) return;
    }
}

static void *serve(void *argument)
{
    struct server *s = argument;
    int kept[SCRIPT_MAX];
    size_t kept_count = 0;
    while (!atomic_load(&s->stop)) {
        bool ready = false;
        int handle = -1;
        if (s->env->net_wait(s->env, &s->listener, 1, 20, &ready, NULL) != 0) continue;
        if (s->env->net_accept(s->env, s->listener, &handle, NULL) != 0) continue;
        size_t at = atomic_load(&s->served);
        const char *answer = at < s->count ? s->script[at] : "";
        read_request(s, handle, s->seen[at % SCRIPT_MAX], sizeof s->seen[0]);
        atomic_fetch_add(&s->served, 1);
        size_t sent = 0;
        if (answer != NULL) (void)s->env->net_send(s->env, handle, answer, strlen(answer), &sent, NULL);
        if (answer == NULL)
            kept[kept_count++] = handle;
        else
            s->env->net_close(s->env, handle);
    }
    for (size_t i = 0; i < kept_count; i++)
        s->env->net_close(s->env, kept[i]);
    return NULL;
}

static void start(struct server *s, const char *const *script, size_t count)
{
    memset(s, 0, sizeof *s);
    s->env = tm_env_real();
    s->script = script;
    s->count = count;
    assert_int_equal(s->env->net_listen(s->env, "127.0.0.1:0", &s->listener, s->address, NULL), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s)
{
    atomic_store(&s->stop, true);
    (void)pthread_join(s->thread, NULL);
    s->env->net_close(s->env, s->listener);
}

#endif

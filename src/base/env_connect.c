/* Connections that are being made. Whoever asks for one gets a handle at once; here it becomes one.
 *
 * The handle is the reading end of a pipe until there is a connection. One thread looks after all that are under way:
 * it begins with the first address of a name, takes the next when one fails or is silent for a moment, and ends the
 * attempt at its limit. Names are looked up by a few other threads, because getaddrinfo waits. When the outcome is
 * known, the pipe's other end is closed: that makes the handle ready, and the owner's next send or receive finds the
 * connection in its place (dup3), or the reason why there is none. All threads end when nothing is under way. */
#include "base/env_internal.h"

#include "base/address.h"
#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ATTEMPTS_MAX = 1024, ADDRESSES_MAX = 8, LOOKUPS_MAX = 4, NEXT_AFTER_MS = 250, WHY_MAX = 512 };

enum attempt_state { NAME_ASKED, CONNECTING, CONNECTED, FAILED };

struct attempt {
    struct attempt *next;
    uint64_t ticket; /* names it where a pointer would not last */
    enum attempt_state state;
    bool looked_up;             /* NAME_ASKED: a thread is on it */
    bool abandoned;             /* its handle is closed: it goes */
    bool stopped;               /* by net_shutdown: it fails */
    int handle;                 /* what its owner has: a pipe's reading end */
    int signal;                 /* the writing end; -1 once the outcome is known */
    int64_t limit_ms;           /* the time at which it fails */
    int64_t next_ms;            /* the time at which another address is tried beside those that are */
    int sockets[ADDRESSES_MAX]; /* by address: under way; -1: not yet, or failed */
    struct sockaddr_storage addresses[ADDRESSES_MAX];
    socklen_t lengths[ADDRESSES_MAX];
    size_t address_count;
    size_t begun;  /* addresses that were tried */
    int connected; /* CONNECTED: the connection */
    int last_errno;
    char address[TM_ADDRESS_MAX];
    char why[WHY_MAX]; /* FAILED */
};

static struct {
    pthread_mutex_t lock;
    struct attempt *first;
    atomic_size_t count;
    uint64_t tickets;
    int lookups; /* threads */
    bool tended; /* there is a thread that looks after them */
    int wake;    /* it watches this */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = -1};

static int look_up_for_real(const char *host, const char *port, struct addrinfo **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    return getaddrinfo(host, port, &hints, out);
}

struct tm_env__connecting tm_env__connecting = {.look_up = look_up_for_real, .limit_ms = TM_CONNECT_LIMIT_MS};

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- outcomes; all below hold the lock ---- */

static void wake_tender(void)
{
    const uint64_t one = 1;
    if (all.wake >= 0) (void)!write(all.wake, &one, sizeof one);
}

static void close_sockets(struct attempt *a)
{
    for (size_t i = 0; i < ADDRESSES_MAX; i++) {
        if (a->sockets[i] >= 0) (void)close(a->sockets[i]);
        a->sockets[i] = -1;
    }
}

static void tell(struct attempt *a, enum attempt_state state)
{
    close_sockets(a);
    a->state = state;
    (void)close(a->signal);
    a->signal = -1;
}

static void fail(struct attempt *a, const char *why)
{
    (void)snprintf(a->why, sizeof a->why, "connecting to %.107s: %.300s", a->address, why);
    tell(a, FAILED);
}

static void fail_by_limit(struct attempt *a)
{
    char why[128];
    (void)snprintf(why, sizeof why, "%s within %g s",
                   a->state == NAME_ASKED ? "the name could not be resolved" : "no answer",
                   (double)tm_env__connecting.limit_ms / 1000);
    fail(a, why);
}

static void fail_by_errno(struct attempt *a)
{
    char why[256];
    if (a->address_count > 1)
        (void)snprintf(why, sizeof why, "none of its %zu addresses could be reached; the last: %.128s",
                       a->address_count, strerror(a->last_errno));
    else
        (void)snprintf(why, sizeof why, "%.200s", strerror(a->last_errno));
    fail(a, why);
}

static void succeed(struct attempt *a, size_t which)
{
    a->connected = a->sockets[which];
    a->sockets[which] = -1;
    tell(a, CONNECTED);
}

/* Takes it off the list; all that it has open but its handle is closed. */
static void forget(struct attempt *a)
{
    struct attempt **at = &all.first;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    (void)atomic_fetch_sub(&all.count, 1);
    close_sockets(a);
    if (a->signal >= 0) (void)close(a->signal);
    if (a->connected >= 0) (void)close(a->connected);
    tm_free(a);
}

/* ---- connecting ---- */

/* A connection to one address is begun: 0, EINPROGRESS, or why not. */
static int begin(const struct sockaddr *address, socklen_t length, int *out_fd)
{
    int yes = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    int failed = connect(fd, address, length) == 0 ? 0 : errno;
    if (failed == EINTR) failed = EINPROGRESS;
    if (failed == 0 || failed == EINPROGRESS)
        *out_fd = fd;
    else
        (void)close(fd);
    return failed;
}

/* What has become of one: 0, EINPROGRESS, or why it failed. */
static int outcome_of(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int failed = 0;
    socklen_t length = sizeof failed;
    if (poll(&polled, 1, 0) <= 0) return EINPROGRESS;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length) == 0 ? failed : errno;
}

/* Those under way are asked; true: there is an outcome. */
static bool ask_sockets(struct attempt *a, size_t *out_open)
{
    *out_open = 0;
    for (size_t i = 0; i < a->begun; i++) {
        if (a->sockets[i] < 0) continue;
        int failed = outcome_of(a->sockets[i]);
        if (failed == 0) {
            succeed(a, i);
            return true;
        }
        if (failed == EINPROGRESS) {
            ++*out_open;
            continue;
        }
        a->last_errno = failed;
        (void)close(a->sockets[i]);
        a->sockets[i] = -1;
    }
    return false;
}

static void tend_connecting(struct attempt *a, int64_t at_ms)
{
    size_t open = 0;
    if (ask_sockets(a, &open)) return;
    while (a->begun < a->address_count && (open == 0 || at_ms >= a->next_ms)) {
        size_t i = a->begun++;
        int failed = begin((const struct sockaddr *)&a->addresses[i], a->lengths[i], &a->sockets[i]);
        a->next_ms = at_ms + NEXT_AFTER_MS;
        if (failed == 0) {
            succeed(a, i);
            return;
        }
        if (failed == EINPROGRESS)
            open++;
        else
            a->last_errno = failed;
    }
    if (open == 0) fail_by_errno(a);
}

static void tend(struct attempt *a, int64_t at_ms)
{
    if (a->state == CONNECTING) tend_connecting(a, at_ms);
    bool under_way = a->state == CONNECTING || a->state == NAME_ASKED;
    if (under_way && a->stopped)
        fail(a, "it was ended before it was made");
    else if (under_way && at_ms >= a->limit_ms)
        fail_by_limit(a);
}

/* Notes what to poll; how long; < 0: nothing is under way. */
static int64_t note(struct pollfd *polled, size_t *out_count, int64_t at_ms)
{
    int64_t until_ms = -1;
    *out_count = 0;
    polled[(*out_count)++] = (struct pollfd){.fd = all.wake, .events = POLLIN};
    for (struct attempt *a = all.first; a != NULL; a = a->next) {
        if (a->state != CONNECTING && a->state != NAME_ASKED) continue;
        int64_t own_ms = a->limit_ms;
        if (a->state == CONNECTING && a->begun < a->address_count && a->next_ms < own_ms) own_ms = a->next_ms;
        if (until_ms < 0 || own_ms < until_ms) until_ms = own_ms;
        for (size_t i = 0; i < a->begun; i++)
            if (a->sockets[i] >= 0) polled[(*out_count)++] = (struct pollfd){.fd = a->sockets[i], .events = POLLOUT};
    }
    if (until_ms < 0) return -1;
    return until_ms > at_ms ? until_ms - at_ms : 0;
}

/* The thread that looks after all. */
static void *tend_all(void *nothing)
{
    static struct pollfd polled[1 + ATTEMPTS_MAX * ADDRESSES_MAX]; /* there is one such thread */
    size_t count = 0;
    (void)pthread_mutex_lock(&all.lock);
    for (;;) {
        int64_t at_ms = now_ms();
        for (struct attempt *a = all.first, *next = NULL; a != NULL; a = next) {
            next = a->next;
            tend(a, at_ms);
            if (a->abandoned) forget(a);
        }
        int64_t wait_ms = note(polled, &count, at_ms);
        if (wait_ms < 0) break;
        (void)pthread_mutex_unlock(&all.lock);
        uint64_t woken = 0;
        (void)poll(polled, (nfds_t)count, (int)wait_ms);
        (void)!read(polled[0].fd, &woken, sizeof woken);
        (void)pthread_mutex_lock(&all.lock);
    }
    all.tended = false;
    (void)pthread_mutex_unlock(&all.lock);
    return nothing;
}

/* ---- names ---- */

static struct attempt *by_ticket(uint64_t ticket)
{
    for (struct attempt *a = all.first; a != NULL; a = a->next)
        if (a->ticket == ticket) return a;
    return NULL;
}

static void take_addresses(struct attempt *a, const struct addrinfo *found)
{
    for (; found != NULL && a->address_count < ADDRESSES_MAX; found = found->ai_next) {
        if (found->ai_addrlen > sizeof *a->addresses) continue;
        memcpy(&a->addresses[a->address_count], found->ai_addr, found->ai_addrlen);
        a->lengths[a->address_count++] = found->ai_addrlen;
    }
}

static void why_no_address(int failed, int errno_value, char out[256])
{
    const char *words = failed == EAI_SYSTEM ? strerror(errno_value)
                        : failed == 0        ? "it has no address"
                                             : gai_strerror(failed);
    (void)snprintf(out, 256, "the name cannot be resolved: %.200s", words);
}

static void take_lookup(struct attempt *a, int failed, int errno_value, const struct addrinfo *found)
{
    char why[256];
    if (failed == 0) take_addresses(a, found);
    a->state = CONNECTING;
    if (a->address_count > 0) return;
    why_no_address(failed, errno_value, why);
    fail(a, why);
}

/* A thread that looks names up, one after the other, while there are any. */
static void *look_up_all(void *nothing)
{
    (void)pthread_mutex_lock(&all.lock);
    for (;;) {
        struct attempt *a = all.first;
        while (a != NULL && (a->state != NAME_ASKED || a->looked_up || a->abandoned))
            a = a->next;
        if (a == NULL) break;
        char host[TM_ADDRESS_MAX];
        char port[TM_PORT_MAX];
        uint64_t ticket = a->ticket;
        struct addrinfo *found = NULL;
        a->looked_up = true;
        (void)tm_address_split(a->address, host, port, NULL);
        (void)pthread_mutex_unlock(&all.lock);
        int failed = tm_env__connecting.look_up(host, port, &found);
        int errno_value = errno;
        (void)pthread_mutex_lock(&all.lock);
        a = by_ticket(ticket);
        if (a != NULL && a->state == NAME_ASKED) take_lookup(a, failed, errno_value, found);
        if (found != NULL) freeaddrinfo(found);
        wake_tender();
    }
    all.lookups--;
    (void)pthread_mutex_unlock(&all.lock);
    return nothing;
}

/* ---- beginning ---- */

/* Signals are for the program's own threads. */
static bool start_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t every;
    sigset_t before;
    if (pthread_attr_init(&detached) != 0) return false;
    (void)sigfillset(&every);
    (void)pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    bool started = pthread_create(&thread, &detached, run, argument) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&detached);
    return started;
}

static bool have_threads(const struct attempt *a)
{
    if (all.wake < 0) all.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (all.wake < 0) return false;
    if (a->state == NAME_ASKED && all.lookups < LOOKUPS_MAX && start_thread(look_up_all, NULL)) all.lookups++;
    if (a->state == NAME_ASKED && all.lookups == 0) return false;
    if (!all.tended) all.tended = start_thread(tend_all, NULL);
    wake_tender();
    return all.tended;
}

static struct attempt *new_attempt(const char *address)
{
    struct attempt *a = tm_calloc(1, sizeof *a);
    int ends[2];
    if (a == NULL) return NULL;
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        tm_free(a);
        return NULL;
    }
    a->handle = ends[0];
    a->signal = ends[1];
    a->connected = -1;
    a->limit_ms = now_ms() + tm_env__connecting.limit_ms;
    a->next_ms = now_ms() + NEXT_AFTER_MS;
    for (size_t i = 0; i < ADDRESSES_MAX; i++)
        a->sockets[i] = -1;
    (void)snprintf(a->address, sizeof a->address, "%s", address);
    return a;
}

/* `socket` >= 0: the connection to its only address is under way already. It is taken. */
static int begin_attempt(const char *address, int socket, int *out_handle, struct tm_error *e)
{
    struct attempt *a = new_attempt(address);
    if (a == NULL) {
        if (socket >= 0) (void)close(socket);
        return tm_error_set(e, TM_ENOMEM, "connecting to %s: out of memory or of handles", address);
    }
    a->state = socket >= 0 ? CONNECTING : NAME_ASKED;
    a->sockets[0] = socket;
    a->address_count = a->begun = socket >= 0 ? 1 : 0;
    (void)pthread_mutex_lock(&all.lock);
    int rc = 0;
    if (atomic_load(&all.count) >= ATTEMPTS_MAX)
        rc =
            tm_error_set(e, TM_ELIMIT, "connecting to %s: %d connections are being made already; wait for some of them",
                         address, ATTEMPTS_MAX);
    struct attempt **end = &all.first; /* at the end: those who came first are looked up first */
    while (*end != NULL)
        end = &(*end)->next;
    *end = a;
    a->ticket = ++all.tickets;
    (void)atomic_fetch_add(&all.count, 1);
    if (rc == 0 && !have_threads(a)) rc = tm_error_set(e, TM_ENOMEM, "connecting to %s: out of threads", address);
    int handle = a->handle;
    if (rc != 0) {
        forget(a);
        (void)close(handle);
    }
    (void)pthread_mutex_unlock(&all.lock);
    if (rc == 0) *out_handle = handle;
    return rc;
}

int tm_env__net_connect(struct tm_env *env, const char *address, int *out_handle, struct tm_error *e)
{
    (void)env;
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (strncmp(address, "unix:", 5) == 0) return tm_env__unix_connect(address + 5, out_handle, e);
    int rc = tm_address_split(address, host, port, e);
    if (rc != 0) return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *literal = NULL;
    if (getaddrinfo(host, port, &hints, &literal) != 0) return begin_attempt(address, -1, out_handle, e);
    int fd = -1;
    int failed = begin(literal->ai_addr, literal->ai_addrlen, &fd);
    freeaddrinfo(literal);
    if (failed == EINPROGRESS) failed = outcome_of(fd); /* on the machine itself it is known by now */
    if (failed == EINPROGRESS) return begin_attempt(address, fd, out_handle, e);
    if (failed == 0) {
        *out_handle = fd;
        return 0;
    }
    if (fd >= 0) (void)close(fd);
    return tm_error_set(e, TM_EPEER, "connecting to %s: %s", address, strerror(failed));
}

/* ---- names to listen on ---- */

/* Shared by who waits and the thread that asks: the last of them frees it. */
struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done;
    bool left; /* nobody waits any more */
    int failed;
    int errno_value;
    struct addrinfo *found;
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
};

static void free_lookup(struct lookup *l)
{
    if (l->found != NULL) freeaddrinfo(l->found);
    (void)pthread_cond_destroy(&l->answered);
    (void)pthread_mutex_destroy(&l->lock);
    tm_free(l);
}

static void *look_up_one(void *given)
{
    struct lookup *l = given;
    struct addrinfo *found = NULL;
    int failed = tm_env__connecting.look_up(l->host, l->port, &found);
    int errno_value = errno;
    (void)pthread_mutex_lock(&l->lock);
    l->done = true;
    l->failed = failed;
    l->errno_value = errno_value;
    l->found = found;
    (void)pthread_cond_signal(&l->answered);
    bool left = l->left;
    (void)pthread_mutex_unlock(&l->lock);
    if (left) free_lookup(l);
    return NULL;
}

static struct lookup *new_lookup(const char *host, const char *port)
{
    pthread_condattr_t attributes;
    struct lookup *l = tm_calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    (void)snprintf(l->host, sizeof l->host, "%s", host);
    (void)snprintf(l->port, sizeof l->port, "%s", port);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&l->answered, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return l;
}

/* With the lock. */
static void await_answer(struct lookup *l)
{
    int64_t until_ms = now_ms() + tm_env__connecting.limit_ms;
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000};
    int waited = 0;
    while (!l->done && waited == 0)
        waited = pthread_cond_timedwait(&l->answered, &l->lock, &until);
}

int tm_env__look_up(const char *host, const char *port, struct addrinfo **out, struct tm_error *e)
{
    struct lookup *l = new_lookup(host, port);
    if (l == NULL) return tm_error_nomem(e);
    if (!start_thread(look_up_one, l)) {
        free_lookup(l);
        return tm_error_set(e, TM_ENOMEM, "out of threads");
    }
    (void)pthread_mutex_lock(&l->lock);
    await_answer(l);
    bool done = l->done;
    int rc = 0;
    if (!done) {
        l->left = true;
        rc = tm_error_set(e, TM_EPEER, "the name could not be resolved within %g s",
                          (double)tm_env__connecting.limit_ms / 1000);
    } else if (l->failed != 0 || l->found == NULL) {
        char why[256];
        why_no_address(l->failed, l->errno_value, why);
        rc = tm_error_set(e, TM_EPEER, "%s", why);
    } else {
        *out = l->found;
        l->found = NULL;
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (done) free_lookup(l);
    return rc;
}

/* ---- what the owner does with the handle ---- */

static struct attempt *by_handle(int handle)
{
    for (struct attempt *a = all.first; a != NULL; a = a->next)
        if (a->handle == handle && !a->abandoned) return a;
    return NULL;
}

int tm_env__connect_settle(int handle, struct tm_error *e)
{
    int rc = -(int)TM_ENOTFOUND;
    if (atomic_load(&all.count) == 0) return rc;
    (void)pthread_mutex_lock(&all.lock);
    struct attempt *a = by_handle(handle);
    if (a != NULL && a->state == FAILED) {
        rc = tm_error_set(e, TM_EPEER, "%s", a->why);
    } else if (a != NULL && a->state == CONNECTED) {
        rc = dup3(a->connected, handle, O_CLOEXEC) >= 0 ? 0 : tm_error_set(e, TM_EPEER, "%s", strerror(errno));
        if (rc == 0) forget(a);
    } else if (a != NULL) {
        rc = tm_error_set(e, TM_EBUSY, "the connection to %s is being made", a->address);
    }
    (void)pthread_mutex_unlock(&all.lock);
    return rc;
}

void tm_env__connect_stop(int handle)
{
    (void)pthread_mutex_lock(&all.lock);
    struct attempt *a = by_handle(handle);
    if (a != NULL) a->stopped = true;
    if (a != NULL && a->state == CONNECTED) (void)shutdown(a->connected, SHUT_RDWR); /* it is not yet in its place */
    wake_tender();
    (void)pthread_mutex_unlock(&all.lock);
}

void tm_env__connect_close(int handle)
{
    if (atomic_load(&all.count) == 0) return;
    (void)pthread_mutex_lock(&all.lock);
    struct attempt *a = by_handle(handle);
    if (a != NULL && (a->state == CONNECTED || a->state == FAILED)) {
        forget(a);
    } else if (a != NULL) { /* its sockets are in use: whoever looks after them takes them away */
        a->abandoned = true;
        wake_tender();
    }
    (void)pthread_mutex_unlock(&all.lock);
}

/* The real network: streams over TCP and within the machine. Connections that are being made: env_connect.c. */
#include "base/env_internal.h"

#include "base/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LISTEN_BACKLOG = 512, WAIT_HANDLES_MAX = 256, WATCHES_MAX = 4500 };

/* ---- within the machine ---- */

static int unix_address(const char *path, struct sockaddr_un *out, struct tm_error *e)
{
    size_t length = strlen(path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length == 0 || length >= sizeof out->sun_path)
        return tm_error_set(e, TM_EUSAGE, "address unix:%s: a path of 1 to %zu bytes is needed", path,
                            sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, length + 1);
    return 0;
}

static int unix_listen(const char *path, int *out_handle, char bound[TM_ADDRESS_MAX], struct tm_error *e)
{
    struct sockaddr_un address;
    int rc = unix_address(path, &address, e);
    if (rc != 0) return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        rc = tm_error_errno(e, errno, "listening on unix:%s", path);
        if (fd >= 0) (void)close(fd);
        return rc;
    }
    (void)snprintf(bound, TM_ADDRESS_MAX, "unix:%.100s", path);
    *out_handle = fd;
    return 0;
}

int tm_env__unix_connect(const char *path, int *out_handle, struct tm_error *e)
{
    struct sockaddr_un address;
    int rc = unix_address(path, &address, e);
    if (rc != 0) return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        rc = tm_error_set(e, TM_EPEER, "connecting to unix:%s: %s", path, strerror(errno));
        if (fd >= 0) (void)close(fd);
        return rc;
    }
    *out_handle = fd;
    return 0;
}

/* ---- listening ---- */

static void print_end(int fd, bool peer, char out[TM_ADDRESS_MAX])
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[NI_MAXHOST] = "?";
    char port[NI_MAXSERV] = "?";
    int rc = peer ? getpeername(fd, (struct sockaddr *)&address, &length)
                  : getsockname(fd, (struct sockaddr *)&address, &length);
    if (rc == 0)
        (void)getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    tm_address_join(host, port, out);
}

static void print_bound(int fd, char bound[TM_ADDRESS_MAX])
{
    print_end(fd, false, bound);
}

static int listen_on(const struct addrinfo *address, int *out_fd)
{
    int yes = 1;
    int no = 0;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    if (address->ai_family == AF_INET6) /* [::] is every address, of IPv4, too, whatever the machine's default is */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        int failed = errno;
        (void)close(fd);
        return failed;
    }
    *out_fd = fd;
    return 0;
}

int tm_env__net_listen(struct tm_env *env, const char *address, int *out_handle, char bound[TM_ADDRESS_MAX],
                       struct tm_error *e)
{
    (void)env;
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (strncmp(address, "unix:", 5) == 0) return unix_listen(address + 5, out_handle, bound, e);
    int rc = tm_address_split(address, host, port, e);
    if (rc != 0) return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *literal = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host; /* this name needs nobody to be asked */
    if (getaddrinfo(literal, port, &hints, &found) != 0) rc = tm_env__look_up(host, port, &found, e);
    if (rc != 0) return tm_error_wrap(e, rc, "listening on %s", address);
    int fd = -1;
    int failed = EADDRNOTAVAIL;
    for (const struct addrinfo *one = found; one != NULL && failed != 0; one = one->ai_next)
        failed = listen_on(one, &fd);
    freeaddrinfo(found);
    if (failed != 0) return tm_error_errno(e, failed, "listening on %s", address);
    print_bound(fd, bound);
    *out_handle = fd;
    return 0;
}

/* ---- bytes ---- */

static int would_block_or_lost(struct tm_error *e, const char *what)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return tm_error_set(e, TM_EBUSY, "%s would block", what);
    return tm_error_set(e, TM_EPEER, "%s: %s", what, strerror(errno));
}

int tm_env__net_accept(struct tm_env *env, int listener, int *out_handle, struct tm_error *e)
{
    (void)env;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return would_block_or_lost(e, "accept");
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *out_handle = fd;
    return 0;
}

/* What is no socket is a connection that is being made, or the output of a process. */
int tm_env__net_send(struct tm_env *env, int handle, const void *data, size_t length, size_t *out_sent,
                     struct tm_error *e)
{
    (void)env;
    ssize_t done = send(handle, data, length, MSG_NOSIGNAL);
    if (done < 0 && errno == ENOTSOCK) {
        int rc = tm_env__connect_settle(handle, e);
        if (rc == -(int)TM_ENOTFOUND) return tm_error_set(e, TM_EUSAGE, "nothing can be sent to this handle");
        if (rc != 0) return rc;
        done = send(handle, data, length, MSG_NOSIGNAL);
    }
    if (done < 0) return would_block_or_lost(e, "send");
    *out_sent = (size_t)done;
    return 0;
}

int tm_env__net_receive(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out_received,
                        struct tm_error *e)
{
    (void)env;
    ssize_t done = recv(handle, buffer, size, 0);
    if (done < 0 && errno == ENOTSOCK) {
        int rc = tm_env__connect_settle(handle, e);
        if (rc != 0 && rc != -(int)TM_ENOTFOUND) return rc;
        done = rc == 0 ? recv(handle, buffer, size, 0) : read(handle, buffer, size);
    }
    if (done < 0) return would_block_or_lost(e, "receive");
    *out_received = (size_t)done;
    return 0;
}

int tm_env__net_own_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    (void)env;
    int rc = tm_env__connect_settle(handle, e);
    if (rc != 0 && rc != -(int)TM_ENOTFOUND) return rc;
    print_bound(handle, out);
    return 0;
}

int tm_env__net_peer_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    (void)env;
    int rc = tm_env__connect_settle(handle, e);
    if (rc != 0 && rc != -(int)TM_ENOTFOUND) return rc;
    print_end(handle, true, out);
    return 0;
}

/* ---- waiting ---- */

static int64_t monotonic_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int tm_env__poll(struct pollfd *polled, size_t count, int64_t timeout_ms)
{
    int64_t end_ns = monotonic_ns() + timeout_ms * 1000000;
    for (;;) {
        int64_t left_ms = (end_ns - monotonic_ns() + 999999) / 1000000;
        if (left_ms < 0) left_ms = 0;
        int ready = poll(polled, (nfds_t)count, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
        if (ready >= 0 || errno != EINTR) return ready;
    }
}

int tm_env__net_wait(struct tm_env *env, const int *handles, size_t count, int64_t timeout_ms, bool *out_ready,
                     struct tm_error *e)
{
    (void)env;
    struct pollfd polled[WAIT_HANDLES_MAX];
    if (count > WAIT_HANDLES_MAX)
        return tm_error_set(e, TM_ELIMIT, "waiting for %zu connections, more than %d", count, WAIT_HANDLES_MAX);
    for (size_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = handles[i], .events = POLLIN};
    int ready = tm_env__poll(polled, count, timeout_ms);
    if (ready < 0) return tm_error_errno(e, errno, "waiting for connections");
    if (ready == 0) return tm_error_set(e, TM_ETIMEOUT, "nothing arrived within %lld ms", (long long)timeout_ms);
    for (size_t i = 0; i < count; i++)
        out_ready[i] = polled[i].revents != 0;
    return 0;
}

int tm_env__net_watch(struct tm_env *env, struct tm_watch *watches, size_t count, int64_t timeout_ms,
                      struct tm_error *e)
{
    (void)env;
    struct pollfd polled[WATCHES_MAX];
    if (count > WATCHES_MAX)
        return tm_error_set(e, TM_ELIMIT, "waiting for %zu connections, more than %d", count, WATCHES_MAX);
    for (size_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = watches[i].handle,
                                    .events = (short)((watches[i].want != TM_WATCH_SEND ? POLLIN : 0) |
                                                      (watches[i].want != TM_WATCH_RECEIVE ? POLLOUT : 0))};
    int ready = tm_env__poll(polled, count, timeout_ms);
    if (ready < 0) return tm_error_errno(e, errno, "waiting for connections");
    for (size_t i = 0; i < count; i++) {
        short got = ready > 0 ? polled[i].revents : 0;
        bool ended = (got & (POLLERR | POLLHUP | POLLNVAL)) != 0; /* whatever is tried says so */
        watches[i].can_receive = watches[i].want != TM_WATCH_SEND && (ended || (got & POLLIN) != 0);
        watches[i].can_send = watches[i].want != TM_WATCH_RECEIVE && (ended || (got & POLLOUT) != 0);
        watches[i].ready = got != 0;
    }
    if (ready == 0) return tm_error_set(e, TM_ETIMEOUT, "nothing arrived within %lld ms", (long long)timeout_ms);
    return 0;
}

int tm_env__net_wait_send(struct tm_env *env, int handle, int64_t timeout_ms, struct tm_error *e)
{
    (void)env;
    struct pollfd polled = {.fd = handle, .events = POLLOUT};
    int ready = tm_env__poll(&polled, 1, timeout_ms);
    if (ready < 0) return tm_error_errno(e, errno, "waiting to send");
    if (ready == 0) return tm_error_set(e, TM_ETIMEOUT, "nothing could be sent within %lld ms", (long long)timeout_ms);
    return 0;
}

/* ---- the rest ---- */

int tm_env__net_pair(struct tm_env *env, int out_handles[2], struct tm_error *e)
{
    (void)env;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, out_handles) == 0) return 0;
    return tm_error_errno(e, errno, "making a pair of handles");
}

void tm_env__net_shutdown(struct tm_env *env, int handle)
{
    (void)env;
    if (shutdown(handle, SHUT_RDWR) != 0 && errno == ENOTSOCK) tm_env__connect_stop(handle);
}

void tm_env__net_close(struct tm_env *env, int handle)
{
    (void)env;
    tm_env__connect_close(handle);
    (void)close(handle);
}

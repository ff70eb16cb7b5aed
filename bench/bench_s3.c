/* Copies to and from a server that speaks as much S3 as the store needs and gives each connection LIMIT bytes a second,
 * as object stores do: the store beside one stream, and beside plain parallel ranged requests (as s5cmd works: parts of
 * the same size, as many connections, no hashes, nothing but sockets). Medians of rounds taken in turn.
 *
 * Use: bench_s3 [ROUNDS [MIB [LIMIT_MB_S]]] */
#include "store/copy_store.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 << 10, PART = 8 << 20, STREAMS = 6, ROUNDS_MAX = 32 };

static double limit_b_s = 60e6;
static uint8_t *object; /* what is stored */
static size_t object_length;
static struct sockaddr_in server_address;

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_s3: %s\n", what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Sleeps until so many bytes may have gone since `began`. */
static void keep_limit(double began, size_t bytes)
{
    double wait = began + (double)bytes / limit_b_s - now_s();
    if (wait > 0) (void)nanosleep(&(struct timespec){(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)}, NULL);
}

/* ---- the server ---- */

static int send_all(int fd, const void *data, size_t length, bool limited)
{
    double began = now_s();
    for (size_t sent = 0; sent < length;) {
        size_t want = length - sent < PIECE ? length - sent : PIECE;
        ssize_t n = send(fd, (const char *)data + sent, want, MSG_NOSIGNAL);
        if (n <= 0) return -1;
        sent += (size_t)n;
        if (limited) keep_limit(began, sent);
    }
    return 0;
}

/* Reads a head, and what came behind it; 0: the connection ended. */
static size_t read_head(int fd, char *head, size_t room, size_t *rest)
{
    size_t used = 0;
    while (used + 1 < room) {
        ssize_t n = recv(fd, head + used, room - 1 - used, 0);
        if (n <= 0) return 0;
        used += (size_t)n;
        head[used] = '\0';
        const char *end = strstr(head, "\r\n\r\n");
        if (end == NULL) continue;
        *rest = used - (size_t)(end + 4 - head);
        return (size_t)(end + 4 - head);
    }
    return 0;
}

static int take_body(int fd, size_t length, size_t have, bool limited)
{
    static _Thread_local char buffer[PIECE];
    double began = now_s();
    for (size_t got = have; got < length;) {
        ssize_t n = recv(fd, buffer, length - got < PIECE ? length - got : PIECE, 0);
        if (n <= 0) return -1;
        got += (size_t)n;
        if (limited) keep_limit(began, got - have);
    }
    return 0;
}

static int answer(int fd, const char *head, size_t rest)
{
    char out[512];
    const char *length_at = strcasestr(head, "\r\ncontent-length:");
    const char *range = strcasestr(head, "\r\nrange: bytes=");
    size_t length = length_at == NULL ? 0 : strtoul(length_at + 17, NULL, 10);
    const char *body = "";
    if (take_body(fd, length, rest, length > PIECE) != 0) return -1;
    if (strncmp(head, "GET ", 4) == 0) {
        char *dash = NULL;
        size_t from = range == NULL ? 0 : strtoul(range + 15, &dash, 10);
        size_t to = range == NULL ? object_length - 1 : strtoul(dash + 1, NULL, 10);
        int n = snprintf(out, sizeof out,
                         "HTTP/1.1 206 x\r\nContent-Length: %zu\r\nContent-Range: bytes %zu-%zu/%zu\r\n\r\n",
                         to - from + 1, from, to, object_length);
        return send_all(fd, out, (size_t)n, false) != 0 ? -1 : send_all(fd, object + from, to - from + 1, true);
    }
    if (strstr(head, "uploads=") != NULL)
        body = "<R><UploadId>u</UploadId></R>";
    else if (strncmp(head, "POST", 4) == 0)
        body = "<CompleteMultipartUploadResult/>";
    int n =
        snprintf(out, sizeof out, "HTTP/1.1 200 x\r\nETag: \"e\"\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    return send_all(fd, out, (size_t)n, false);
}

static void *serve_one(void *argument)
{
    int fd = (int)(intptr_t)argument;
    char head[16384];
    size_t rest = 0;
    while (read_head(fd, head, sizeof head, &rest) > 0 && answer(fd, head, rest) == 0)
        continue;
    (void)close(fd);
    return NULL;
}

static void *serve(void *argument)
{
    int listener = (int)(intptr_t)argument;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd) == 0)
            (void)pthread_detach(thread);
    }
    return NULL;
}

static void start_server(void)
{
    pthread_t thread;
    socklen_t length = sizeof server_address;
    char url[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    server_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)&server_address, length) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&server_address, &length) != 0 ||
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) != 0)
        fail("the server does not start");
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(server_address.sin_port));
    (void)setenv("AWS_ENDPOINT_URL", url, 1);
    (void)setenv("AWS_REGION", "us-east-1", 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "a", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "b", 1);
}

/* ---- plain requests ---- */

struct plain {
    uint8_t *memory;
    size_t length;
    size_t part;
    bool up;
    atomic_size_t next;
};

static void one_request(int fd, const struct plain *p, size_t at, size_t length)
{
    char head[4096];
    size_t rest = 0;
    int n = p->up ? snprintf(head, sizeof head, "PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", length)
                  : snprintf(head, sizeof head, "GET /b/k HTTP/1.1\r\nHost: x\r\nRange: bytes=%zu-%zu\r\n\r\n", at,
                             at + length - 1);
    if (send_all(fd, head, (size_t)n, false) != 0 || (p->up && send_all(fd, p->memory + at, length, false) != 0))
        fail("a plain request");
    size_t head_length = read_head(fd, head, sizeof head, &rest);
    if (head_length == 0) fail("a plain answer");
    if (p->up) return;
    memcpy(p->memory + at, head + head_length, rest);
    for (size_t got = rest; got < length;) {
        ssize_t r = recv(fd, p->memory + at + got, length - got, 0);
        if (r <= 0) fail("a plain answer's body");
        got += (size_t)r;
    }
}

static void *plain_stream(void *argument)
{
    struct plain *p = argument;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server_address, sizeof server_address) != 0) fail("connecting");
    for (size_t at = 0; (at = atomic_fetch_add(&p->next, p->part)) < p->length;)
        one_request(fd, p, at, p->length - at < p->part ? p->length - at : p->part);
    (void)close(fd);
    return NULL;
}

static double plain_s(uint8_t *memory, size_t length, bool up, int streams)
{
    struct plain p = {.memory = memory, .length = length, .part = streams == 1 ? length : PART, .up = up};
    pthread_t threads[STREAMS];
    double began = now_s();
    for (int i = 0; i < streams; i++)
        if (pthread_create(&threads[i], NULL, plain_stream, &p) != 0) fail("a thread");
    for (int i = 0; i < streams; i++)
        (void)pthread_join(threads[i], NULL);
    return now_s() - began;
}

/* ---- all ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

static double store_s(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                      struct tm_block_pool *pool, bool up)
{
    struct tm_error e = {.text = ""};
    struct tm_copy_name got;
    struct tm_block *back = NULL;
    double began = now_s();
    int rc = up ? store->put(store, name, block, &e) : store->get(store, 1, 0, name->size, pool, &got, &back, &e);
    double took = now_s() - began;
    if (rc != 0) fail(e.text);
    tm_block_release(back);
    return took;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 5;
    size_t size = (argc > 2 ? strtoul(argv[2], NULL, 10) : 96) << 20;
    if (argc > 3) limit_b_s = strtod(argv[3], NULL) * 1e6;
    struct tm_copy_store *store = NULL;
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = tm_block_create(pool, size);
    static double times[2][3][ROUNDS_MAX];
    if (rounds < 1 || rounds > ROUNDS_MAX || block == NULL) fail("use: bench_s3 [ROUNDS [MIB [LIMIT_MB_S]]]");
    for (size_t i = 0; i < size; i++)
        block->data[i] = (uint8_t)(i * 2654435761U >> 13);
    struct tm_copy_name name = {
        .set = 1, .step = 1, .generation = 1, .size = size, .hash = tm_hash_of(block->data, size)};
    start_server();
    if (tm_copy_store_open(tm_env_real(), "s3://bench/x", 0, &store, NULL) != 0) fail("the store");
    (void)store_s(store, &name, block, pool, true); /* writes the head, too: what is stored is what gets come from */
    object = block->data - TM_BLOCK_HEAD;
    object_length = size + TM_BLOCK_HEAD;
    uint8_t *memory = malloc(object_length);
    if (memory == NULL) fail("memory");
    memcpy(memory, object, object_length);
    for (int r = 0; r < rounds; r++)
        for (int up = 0; up < 2; up++) {
            times[up][0][r] = plain_s(memory, object_length, up, 1);
            times[up][1][r] = plain_s(memory, object_length, up, STREAMS);
            times[up][2][r] = store_s(store, &name, block, pool, up);
        }
    for (int up = 0; up < 2; up++) {
        double one = median(times[up][0], rounds);
        double many = median(times[up][1], rounds);
        double ours = median(times[up][2], rounds);
        (void)printf(
            "s3 %s, %zu MiB, %.0f MB/s a connection: %.0f MB/s; %.2f times one stream (target 3), %.2f of plain "
            "parallel requests (target 0.8)\n",
            up ? "put" : "get", size >> 20, limit_b_s * 1e-6, (double)size / ours * 1e-6, one / ours, many / ours);
    }
    store->close(store);
    free(memory);
    tm_block_release(block);
    tm_block_pool_destroy(pool);
    return 0;
}

/* Network namespaces: a bridge for the cloud, and a namespace with a pair of interfaces for each instance, each end
 * shaped by a token bucket. By the tools ip and tc, as root. Networks are 10.A.B.0/24 with A and B from the run's name;
 * we are .1, places are .10 and up. */
#include "cloud/local_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TOOL_LIMIT_MS = 10000, WORDS_MAX = 24, FIRST_HOST = 10, BURST_BYTES = 65536, SAID_MAX = 1024 };

/* All that a tool says until it closes its output, for the error; what does not fit is left out. */
static void hear_tool(struct tm_env *env, int output, int64_t end_ms, struct tm_text *said)
{
    for (;;) {
        char piece[256];
        size_t got = 0;
        bool ready = false;
        int64_t left_ms = end_ms - env->monotonic_ns(env) / 1000000;
        int rc = env->net_receive(env, output, piece, sizeof piece, &got, NULL);
        if (rc == 0 && got == 0) return;
        if (rc == 0) tm_text_append(said, piece, got);
        if (rc == -(int)TM_EBUSY && left_ms > 0) rc = env->net_wait(env, &output, 1, left_ms, &ready, NULL);
        if (rc != 0) return;
    }
}

/* Runs one command line; its words are set apart by single blanks. */
static int run_tool(struct tm_env *env, struct tm_error *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int run_tool(struct tm_env *env, struct tm_error *e, const char *format, ...)
{
    char line[512];
    const char *words[WORDS_MAX + 1] = {0};
    size_t count = 0;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    struct tm_error named;
    (void)tm_error_set(&named, TM_EUSAGE, "%.200s", line);
    for (char *at = line; at != NULL && count < WORDS_MAX;) {
        words[count++] = at;
        at = strchr(at, ' ');
        if (at != NULL) *at++ = '\0';
    }
    int output = -1;
    struct tm_process_options options = {.argv = words, .group = true, .captured = &output};
    struct tm_text said;
    int pid = 0;
    int status = 0;
    int rc = env->process_start_with(env, &options, &pid, e);
    if (rc != 0) return tm_error_wrap(e, rc, "network namespaces need the tools ip and tc (package iproute2)");
    tm_text_init(&said, SAID_MAX);
    hear_tool(env, output, env->monotonic_ns(env) / 1000000 + TOOL_LIMIT_MS, &said);
    env->net_close(env, output);
    rc = env->process_wait(env, pid, TOOL_LIMIT_MS, &status, e);
    if (rc == -(int)TM_ETIMEOUT) {
        (void)env->process_signal_group(env, pid, SIGKILL, NULL);
        (void)env->process_wait(env, pid, TOOL_LIMIT_MS, &status, NULL);
    }
    if (rc == 0 && status != 0)
        rc = tm_error_set(e, TM_EUSAGE, "\"%s\" ended with status %d: %.*s; network namespaces need root", named.text,
                          status, (int)strcspn(tm_text_string(&said), "\n"), tm_text_string(&said));
    tm_text_deinit(&said);
    return rc;
}

static void subnet_of(const char *run, char *out, size_t size) /* "10.A.B" */
{
    unsigned a = 0;
    unsigned b = 0;
    for (size_t i = 0; run[i] != '\0'; i++) {
        a = a * 31 + (unsigned char)run[i];
        b = b * 37 + (unsigned char)run[i];
    }
    (void)snprintf(out, size, "10.%u.%u", 100 + a % 100, b % 256);
}

void tm_local__netns_name(const char *run, size_t place, char out[TM_LOCAL_NAME_MAX])
{
    (void)snprintf(out, TM_LOCAL_NAME_MAX, "tm%.8s-%zu", run, place);
}

void tm_local__netns_gateway(const char *run, char out[TM_LOCAL_NAME_MAX])
{
    char subnet[16];
    subnet_of(run, subnet, sizeof subnet);
    (void)snprintf(out, TM_LOCAL_NAME_MAX, "%s.1", subnet);
}

int tm_local__netns_open(struct tm_local__cloud *local, struct tm_error *e)
{
    struct tm_env *env = local->env;
    char gateway[TM_LOCAL_NAME_MAX];
    tm_local__netns_gateway(local->run, gateway);
    int rc = run_tool(env, e, "ip link add tm%.8s type bridge", local->run);
    if (rc == 0) local->netns_up = true;
    if (rc == 0) rc = run_tool(env, e, "ip addr add %s/24 dev tm%.8s", gateway, local->run);
    if (rc == 0) rc = run_tool(env, e, "ip link set tm%.8s up", local->run);
    return rc;
}

static int shape(struct tm_env *env, const char *before, const char *device, int64_t bits_per_s, struct tm_error *e)
{
    if (bits_per_s <= 0) return 0;
    int64_t burst = bits_per_s / 8 / 100; /* 10 ms of it, so that the timer's grain does not slow it down */
    if (burst < BURST_BYTES) burst = BURST_BYTES;
    return run_tool(env, e, "%stc qdisc add dev %s root tbf rate %" PRId64 "bit burst %" PRId64 " latency 50ms", before,
                    device, bits_per_s, burst);
}

int tm_local__netns_add(struct tm_local__cloud *local, struct tm_local__place *place, struct tm_error *e)
{
    struct tm_env *env = local->env;
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    size_t number = (size_t)(place - local->places);
    char name[TM_LOCAL_NAME_MAX];
    char subnet[16];
    char inside[80];
    char device[TM_LOCAL_NAME_MAX];
    subnet_of(local->run, subnet, sizeof subnet);
    tm_local__netns_name(local->run, number, name);
    (void)snprintf(device, sizeof device, "v%.8s-%zu", local->run, number);
    (void)snprintf(inside, sizeof inside, "ip netns exec %s ", name);
    (void)snprintf(instance->host, sizeof instance->host, "%s.%zu", subnet, FIRST_HOST + number);
    place->in_netns = true;
    int rc = run_tool(env, e, "ip netns add %s", name);
    if (rc == 0) rc = run_tool(env, e, "ip link add %s type veth peer name eth0 netns %s", device, name);
    if (rc == 0) rc = run_tool(env, e, "ip link set %s master tm%.8s up", device, local->run);
    if (rc == 0) rc = run_tool(env, e, "ip -n %s addr add %s/24 dev eth0", name, instance->host);
    if (rc == 0) rc = run_tool(env, e, "ip -n %s link set lo up", name);
    if (rc == 0) rc = run_tool(env, e, "ip -n %s link set eth0 up", name);
    if (rc == 0) rc = shape(env, "", device, local->options.link_bits_per_s, e);
    if (rc == 0) rc = shape(env, inside, "eth0", local->options.link_bits_per_s, e);
    return rc;
}

int tm_local__netns_cut(struct tm_local__cloud *local, struct tm_local__place *place, bool cut, struct tm_error *e)
{
    return run_tool(local->env, e, "ip link set v%.8s-%zu %s", local->run, (size_t)(place - local->places),
                    cut ? "down" : "up");
}

void tm_local__netns_remove(struct tm_local__cloud *local, struct tm_local__place *place)
{
    char name[TM_LOCAL_NAME_MAX];
    size_t number = (size_t)(place - local->places);
    tm_local__netns_name(local->run, number, name);
    /* The interfaces by name: with the namespace they would go, too, but only in a while. */
    (void)run_tool(local->env, NULL, "ip link del v%.8s-%zu", local->run, number);
    (void)run_tool(local->env, NULL, "ip netns del %s", name);
    place->in_netns = false;
}

int tm_local__netns_clean_up(struct tm_env *env, const char *run)
{
    char name[TM_LOCAL_NAME_MAX];
    char path[64];
    int count = 0;
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        tm_local__netns_name(run, i, name);
        (void)snprintf(path, sizeof path, "/run/netns/%s", name);
        if (!env->file_exists(env, path)) continue;
        (void)run_tool(env, NULL, "ip link del v%.8s-%zu", run, i);
        count += run_tool(env, NULL, "ip netns del %s", name) == 0;
    }
    (void)run_tool(env, NULL, "ip link del tm%.8s", run);
    return count;
}

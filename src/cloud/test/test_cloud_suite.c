/* The common suite of clouds, on the local cloud and on hosts. TIDEMILL_TEST_POINTS=all: a driver dies at every point.
 * The hosts' own scripts are run as they are, by a stand-in for ssh that gives each host a home of its own on this
 * machine; the real one is tests/hosts. */
#include "cloud/test/cloud_suite.h"

#include "base/test/tempdir.h"
#include "cloud/hosts_cloud.h"
#include "cloud/local_cloud.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { LISTED_MAX = 8 };

/* A file of /proc; how many bytes. */
static size_t read_proc(const char *pid, const char *name, char *out, size_t size)
{
    char path[300];
    (void)snprintf(path, sizeof path, "/proc/%.200s/%s", pid, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    size_t length = fread(out, 1, size, file);
    (void)fclose(file);
    return length;
}

/* How many instances' processes (all are `sleep 600` by another name or this one) have this among their variables, and
 * (NULL: nobody asks) the first few pids. */
static int list_marked(const char *mark, int pids[LISTED_MAX])
{
    static char variables[1 << 18];
    char words[4096];
    int count = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (const struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        size_t length = read_proc(entry->d_name, "environ", variables, sizeof variables);
        if (length == 0 || memmem(variables, length, mark, strlen(mark)) == NULL) continue;
        length = read_proc(entry->d_name, "cmdline", words, sizeof words);
        bool shell = length > 2 && memcmp(words, "sh", 3) == 0;
        if (length <= 4 || memcmp(words + length - 4, "600", 4) != 0 || shell) continue;
        if (pids != NULL && count < LISTED_MAX) pids[count] = atoi(entry->d_name); /* NOLINT(cert-err34-c) */
        count++;
    }
    (void)closedir(proc);
    return count;
}

static int count_marked(const char *mark)
{
    return list_marked(mark, NULL);
}

/* ---- local ---- */

struct local {
    struct tm_tempdir dir;
    double speed;
    int64_t notice_ms;
    struct tm_trace trace;
    char where[300];
};

static struct tm_cloud *open_local(void *context, bool again, uint64_t id_first)
{
    static const char *const command[] = {"sleep", "600", NULL};
    struct local *l = context;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    const char *variables[] = {l->where, NULL};
    (void)again;
    struct tm_local_options options = {.trace = &l->trace,
                                       .command = command,
                                       .variables = variables,
                                       .state_dir = l->dir.path,
                                       .speed = l->speed,
                                       .notice_ms = l->notice_ms,
                                       .limit = 3,
                                       .id_first = id_first,
                                       .spot_usd_h = 1,
                                       .on_demand_usd_h = 3};
    static const char *kept[2]; /* borrowed as long as the cloud is there */
    kept[0] = l->where;
    options.variables = kept;
    assert_row(tm_local_cloud_create(suite_env(), &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

static void lose_local(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    assert_int_equal(kill(instance->pid, SIGKILL), 0);
}

static int alive_local(void *context)
{
    return count_marked(((struct local *)context)->where);
}

static void begin_local(struct local *l, const char *trace)
{
    struct tm_error e = {.text = ""};
    tm_tempdir_make(&l->dir);
    tm_trace_init(&l->trace);
    assert_row(tm_trace_parse("test", trace, strlen(trace), NULL, &l->trace, &e) == 0, "%s", e.text);
    (void)snprintf(l->where, sizeof l->where, "SUITE_WHERE=%s", l->dir.path);
}

static void end_local(struct local *l)
{
    tm_trace_deinit(&l->trace);
    tm_tempdir_remove(&l->dir);
}

static void test_local(void **state)
{
    (void)state;
    struct local l = {.speed = 1};
    begin_local(&l, "tidemill-trace 1\nend: 600s\nnodes: 3\n\n0 +3\n");
    struct cloud_place place = {.context = &l,
                                .limit = 3,
                                .open = open_local,
                                .lose = lose_local,
                                .alive = alive_local,
                                .why_no_full = "by its trace, below",
                                .why_no_notice = "by its trace, below",
                                .why_no_same = "instances end with their driver"};
    cloud_suite(&place);
    end_local(&l);
}

static void leave_to_trace(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    (void)instance;
}

static void leave_full_to_trace(void *context, bool full)
{
    (void)context;
    (void)full;
}

/* There the trace has more only after a while. */
static void test_local_full(void **state)
{
    (void)state;
    struct local l = {.speed = 10};
    begin_local(&l, "tidemill-trace 1\nend: 600s\nnodes: 2\n\n0 +1\n60 +1\n");
    struct cloud_place place = {.context = &l, .open = open_local, .alive = alive_local, .full = leave_full_to_trace};
    suite_full(&place);
    end_local(&l);
}

/* There the trace announces, and nobody else can. */
static void test_local_notice(void **state)
{
    (void)state;
    struct local l = {.speed = 10, .notice_ms = 20000};
    begin_local(&l, "tidemill-trace 1\nend: 600s\nnodes: 1\n\n0 +1\n50 -1\n60 +1\n");
    struct cloud_place place = {.context = &l, .open = open_local, .alive = alive_local, .notice = leave_to_trace};
    suite_notice(&place);
    end_local(&l);
}

/* ---- hosts ---- */

struct hosts {
    struct tm_tempdir dir;
    struct tm_host list[2];
    char ssh[300];
    char state[300];
    char mark[300];
};

static int give_ticket(void *context, uint64_t id, const char *host, char out[TM_HOSTS_TICKET_MAX], struct tm_error *e)
{
    (void)context;
    (void)id;
    (void)e;
    assert_string_equal(host, "192.0.2.9");
    (void)snprintf(out, TM_HOSTS_TICKET_MAX, "word");
    return 0;
}

static struct tm_cloud *open_hosts(void *context, bool again, uint64_t id_first)
{
    struct hosts *h = context;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    struct tm_hosts_options options = {.hosts = h->list,
                                       .host_count = 2,
                                       .ssh = h->ssh,
                                       .program = "/bin/sleep",
                                       .arguments = "600",
                                       .state_dir = h->state,
                                       .name = "suite",
                                       .resumed = again,
                                       .id_first = id_first,
                                       .ticket = give_ticket};
    assert_row(tm_hosts_cloud_create(suite_env(), &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

/* As if the owner had ended it: everything of the slots of that host. */
static void lose_host(void *context, const struct tm_cloud_instance *instance)
{
    struct hosts *h = context;
    char command[700];
    (void)snprintf(command, sizeof command, "kill -s KILL -- -$(cat %s/home-%s/.cache/tidemill/run/*/pid)", h->dir.path,
                   instance->zone);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a test's own words */
}

/* No host answers to who asks for the first time; connections that there are stay. */
static void fill_hosts(void *context, bool full)
{
    struct hosts *h = context;
    struct tm_env *env = tm_env_real();
    char path[300];
    (void)snprintf(path, sizeof path, "%.200s/full", h->dir.path);
    assert_int_equal(full ? env->file_write(env, path, "", 0, NULL) : env->file_remove(env, path, NULL), 0);
}

static int alive_hosts(void *context)
{
    return count_marked(((struct hosts *)context)->mark);
}

/* How many names there are in a folder. */
static int read_names(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    return count;
}

/* SIGTERM to whatever runs in the slots of that host. */
static void take_host(void *context, const struct tm_cloud_instance *instance)
{
    struct hosts *h = context;
    char command[700];
    (void)snprintf(command, sizeof command, "kill -s TERM -- -$(cat %s/home-%s/.cache/tidemill/run/*/pid)", h->dir.path,
                   instance->zone);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a test's own words */
}

static int same_hosts(void *context)
{
    int pids[LISTED_MAX] = {0};
    int count = list_marked(((struct hosts *)context)->mark, pids);
    uint64_t number = (uint64_t)count;
    for (int i = 0; i < count && i < LISTED_MAX; i++) /* whatever order they are listed in */
        number += (uint64_t)pids[i] * (uint64_t)pids[i];
    return (int)(number % INT32_MAX);
}

static void test_hosts(void **state)
{
    (void)state;
    static const char script[] = "#!/bin/sh\n"
                                 "while [ $# -gt 0 ]; do case $1 in\n"
                                 "-o|-p) shift 2;; -T) shift;; -O) exit 0;; *) break;; esac; done\n"
                                 "[ ! -e %s/full ] || exit 255\n"
                                 "HOME=%s/home-$1 XDG_CACHE_HOME= SSH_CONNECTION='192.0.2.9 1 192.0.2.1 22'\n"
                                 "export HOME SSH_CONNECTION; unset XDG_CACHE_HOME; mkdir -p \"$HOME\"; shift\n"
                                 "exec sh -c \"$*\"\n";
    struct hosts h = {.list = {{.name = "one", .slots = 2}, {.name = "two", .slots = 1}}};
    struct tm_error e = {.text = ""};
    char text[1000];
    tm_tempdir_make(&h.dir);
    (void)snprintf(h.ssh, sizeof h.ssh, "%.200s/ssh", h.dir.path);
    (void)snprintf(h.state, sizeof h.state, "%.200s/state", h.dir.path);
    (void)snprintf(h.mark, sizeof h.mark, "TIDEMILL_SLOT=%.200s/", h.dir.path);
    int length = snprintf(text, sizeof text, script, h.dir.path, h.dir.path);
    assert_row(tm_env_real()->file_write_mode(tm_env_real(), h.ssh, 0700, text, (size_t)length, &e) == 0, "%s", e.text);
    assert_int_equal(tm_env_real()->folder_make(tm_env_real(), h.state, &e), 0);
    struct cloud_place place = {.context = &h,
                                .limit = 3,
                                .open = open_hosts,
                                .lose = lose_host,
                                .alive = alive_hosts,
                                .taken = take_host,
                                .full = fill_hosts,
                                .same = same_hosts};
    cloud_suite(&place);
    assert_int_equal(read_names(h.state), 0); /* no script with a ticket, no note of sockets */
    tm_tempdir_remove(&h.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local),
        cmocka_unit_test(test_local_full),
        cmocka_unit_test(test_local_notice),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

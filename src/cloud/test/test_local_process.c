/* The local cloud with real processes: nothing of it is left, whatever happens. */
#include "cloud/local_cloud.h"

#include "base/test/tempdir.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

enum { LONG_MS = 20000 };

/* An instance with a child in its group and one that left it; it says when all are there. */
static const char script[] = "sleep 600 & setsid sleep 600 & echo up > \"$WHERE/up-$TIDEMILL_INSTANCE_ID\"; wait";
static const char *const command[] = {"sh", "-c", script, NULL};

struct setup {
    struct tm_tempdir dir;
    struct tm_trace trace;
    struct tm_local_options options;
    char where[300];
    const char *variables[2];
};

static void set_up(struct setup *s)
{
    static const char text[] = "tidemill-trace 1\nend: 60s\nnodes: 3\n\n0 +3\n3 -1\n";
    struct tm_error e;
    *s = (struct setup){0};
    tm_tempdir_make(&s->dir);
    tm_trace_init(&s->trace);
    assert_int_equal(tm_trace_parse("test", text, strlen(text), NULL, &s->trace, &e), 0);
    (void)snprintf(s->where, sizeof s->where, "WHERE=%s", s->dir.path);
    s->variables[0] = s->where;
    s->options = (struct tm_local_options){.trace = &s->trace,
                                           .command = command,
                                           .variables = s->variables,
                                           .state_dir = s->dir.path,
                                           .speed = 1,
                                           .notice_ms = 1000,
                                           .limit = 4,
                                           .spot_usd_h = 1,
                                           .on_demand_usd_h = 3};
}

static void tear_down(struct setup *s)
{
    tm_trace_deinit(&s->trace);
    tm_tempdir_remove(&s->dir);
}

/* Serves the cloud until the instance has all its processes. */
static void await_up(struct setup *s, struct tm_cloud *cloud, uint64_t id)
{
    char name[32];
    struct tm_cloud_event event;
    struct tm_error e;
    (void)snprintf(name, sizeof name, "up-%d", (int)id);
    for (int i = 0; i < LONG_MS / 5 && access(tm_tempdir_path(&s->dir, name), F_OK) != 0; i++)
        (void)cloud->next(cloud, 5, &event, &e);
    assert_row(access(tm_tempdir_path(&s->dir, name), F_OK) == 0, "instance %d did not come up", (int)id);
}

static void mark_of(const struct setup *s, char mark[64]) /* from the record */
{
    struct tm_env *env = tm_env_real();
    struct tm_text text;
    struct tm_error e;
    tm_text_init(&text, 65536);
    assert_int_equal(env->file_read(env, tm_tempdir_path(&s->dir, "local-cloud.tmcloud"), &text, &e), 0);
    const char *run = strstr(tm_text_string(&text), "run ");
    assert_non_null(run);
    (void)snprintf(mark, 64, "TIDEMILL_CLOUD_MARK=%.16s", run + 4);
    tm_text_deinit(&text);
}

static void assert_nothing_left(struct setup *s, const char *mark)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e;
    int count = -1;
    assert_int_equal(env->process_end_marked(env, mark, &count, &e), 0);
    assert_int_equal(count, 0);
    assert_false(env->file_exists(env, tm_tempdir_path(&s->dir, "local-cloud.tmcloud")));
}

static void test_losses_and_the_end(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct setup s;
    struct tm_cloud *cloud = NULL;
    struct tm_cloud_event event = {0};
    struct tm_error e;
    char mark[64];
    set_up(&s);
    assert_row(tm_local_cloud_create(env, &s.options, &cloud, &e) == 0, "%s", e.text);
    assert_int_equal(cloud->want(cloud, TM_INSTANCE_SPOT, 2, &e), 0);
    assert_int_equal(cloud->want(cloud, TM_INSTANCE_ON_DEMAND, 1, &e), 0);
    for (int i = 0; i < 3; i++) {
        assert_row(cloud->next(cloud, LONG_MS, &event, &e) == 0, "%s", e.text);
        assert_int_equal(event.kind, TM_CLOUD_ARRIVED);
    }
    mark_of(&s, mark);
    /* One ends by our hand, without the cloud: it is found at once, with what it had started. */
    await_up(&s, cloud, 1);
    assert_int_equal(kill(tm_cloud_find(cloud, 1)->pid, SIGKILL), 0);
    do {
        assert_row(cloud->next(cloud, LONG_MS, &event, &e) == 0, "%s", e.text);
    } while (event.instance != 1);
    assert_int_equal(event.kind, TM_CLOUD_LOST);
    assert_int_equal(event.status, 128 + SIGKILL);
    assert_false(event.announced);
    char own[96];
    int count = -1;
    (void)snprintf(own, sizeof own, "TIDEMILL_INSTANCE_MARK=%.16s-1", mark + strlen("TIDEMILL_CLOUD_MARK="));
    assert_int_equal(env->process_end_marked(env, own, &count, &e), 0);
    assert_int_equal(count, 0);
    assert_row(cloud->destroy(cloud, &e) == 0, "%s", e.text);
    assert_nothing_left(&s, mark);
    tear_down(&s);
}

static void test_a_command_that_is_not_there(void **state)
{
    (void)state;
    static const char *const missing[] = {"/no/such/agent", NULL};
    struct setup s;
    struct tm_cloud *cloud = NULL;
    struct tm_cloud_event event;
    struct tm_error e;
    set_up(&s);
    s.options.command = missing;
    assert_int_equal(tm_local_cloud_create(tm_env_real(), &s.options, &cloud, &e), 0);
    assert_int_equal(cloud->want(cloud, TM_INSTANCE_SPOT, 1, &e), 0);
    assert_int_equal(cloud->next(cloud, LONG_MS, &event, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "/no/such/agent");
    assert_int_equal(cloud->destroy(cloud, &e), 0);
    tear_down(&s);
}

/* The program that has a cloud, until it is killed. Tells through the pipe when its instances are up. */
static void run_until_killed(struct setup *s, int pipe_fd)
{
    struct tm_cloud *cloud = NULL;
    struct tm_cloud_event event;
    struct tm_error e;
    if (tm_local_cloud_create(tm_env_real(), &s->options, &cloud, &e) != 0) _exit(1);
    (void)cloud->want(cloud, TM_INSTANCE_ON_DEMAND, 2, &e);
    await_up(s, cloud, 1);
    await_up(s, cloud, 2);
    if (write(pipe_fd, "!", 1) != 1) _exit(1);
    for (;;)
        (void)cloud->next(cloud, LONG_MS, &event, &e);
}

/* Starts that program, kills it, and gives the mark it used. */
static void leave_behind(struct setup *s, char mark[64])
{
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t program = fork();
    assert_true(program >= 0);
    if (program == 0) run_until_killed(s, ends[1]);
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
    mark_of(s, mark);
    assert_int_equal(kill(program, SIGKILL), 0);
    assert_int_equal(waitpid(program, NULL, 0), program);
}

static void test_the_next_start_cleans_up_after_kill_9(void **state)
{
    (void)state;
    struct setup s;
    struct tm_cloud *cloud = NULL;
    struct tm_error e;
    char mark[64];
    set_up(&s);
    leave_behind(&s, mark);
    assert_row(tm_local_cloud_create(tm_env_real(), &s.options, &cloud, &e) == 0, "%s", e.text);
    assert_in_range(tm_local_cloud_leftovers(cloud), 2, 6); /* two groups of two, two that left them */
    assert_int_equal(cloud->destroy(cloud, &e), 0);
    assert_nothing_left(&s, mark);
    tear_down(&s);
}

static bool has_netns(void)
{
    static const char *const try[] = {"ip", "link", "add", "tmprobe", "type", "bridge", NULL};
    static const char *const undo[] = {"ip", "link", "del", "tmprobe", NULL};
    struct tm_env *env = tm_env_real();
    struct tm_process_options options = {.argv = try, .output = "/dev/null"};
    int pid = 0;
    int status = 1;
    if (geteuid() != 0 || access("/usr/sbin/tc", X_OK) != 0) return false;
    if (env->process_start_with(env, &options, &pid, NULL) != 0) return false;
    if (env->process_wait(env, pid, LONG_MS, &status, NULL) != 0 || status != 0) return false;
    options.argv = undo;
    if (env->process_start_with(env, &options, &pid, NULL) == 0)
        (void)env->process_wait(env, pid, LONG_MS, &status, NULL);
    return true;
}

static void test_network_namespaces(void **state)
{
    (void)state;
    struct setup s;
    struct tm_cloud *cloud = NULL;
    struct tm_error e;
    char mark[64];
    char path[64];
    if (!has_netns()) {
        print_message("skipped: network namespaces need root and iproute2\n");
        skip();
    }
    set_up(&s);
    s.options.netns = true;
    s.options.link_bits_per_s = 100000000;
    leave_behind(&s, mark);
    (void)snprintf(path, sizeof path, "/run/netns/tm%.8s-0", mark + strlen("TIDEMILL_CLOUD_MARK="));
    assert_row(access(path, F_OK) == 0, "%s is not there", path);
    assert_row(tm_local_cloud_create(tm_env_real(), &s.options, &cloud, &e) == 0, "%s", e.text);
    assert_row(access(path, F_OK) != 0, "%s is still there", path);
    assert_int_equal(cloud->want(cloud, TM_INSTANCE_ON_DEMAND, 1, &e), 0);
    (void)unlink(tm_tempdir_path(&s.dir, "up-1"));
    await_up(&s, cloud, 1);
    assert_row(strncmp(tm_cloud_find(cloud, 1)->metadata, "10.", 3) == 0, "%s", tm_cloud_find(cloud, 1)->metadata);
    char second[64];
    mark_of(&s, second);
    assert_int_equal(cloud->destroy(cloud, &e), 0);
    assert_nothing_left(&s, mark);
    assert_nothing_left(&s, second);
    (void)snprintf(path, sizeof path, "/run/netns/tm%.8s-0", second + strlen("TIDEMILL_CLOUD_MARK="));
    assert_row(access(path, F_OK) != 0, "%s is still there", path);
    (void)snprintf(path, sizeof path, "/sys/class/net/tm%.8s", second + strlen("TIDEMILL_CLOUD_MARK="));
    assert_row(access(path, F_OK) != 0, "%s is still there", path);
    tear_down(&s);
}

TM_TEST_MAIN(TM_TEST(test_losses_and_the_end), TM_TEST(test_a_command_that_is_not_there),
             TM_TEST(test_the_next_start_cleans_up_after_kill_9), TM_TEST(test_network_namespaces))

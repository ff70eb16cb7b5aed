#include "base/env.h"

#include "base/alloc.h"
#include "base/test/tempdir.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { LONG_MS = 30000 }; /* bounds a wait that is over at once unless something is broken */

static int make_dir(void **state)
{
    struct tm_tempdir *dir = calloc(1, sizeof *dir);
    if (dir == NULL) return -1;
    tm_tempdir_make(dir);
    *state = dir;
    return 0;
}

static int remove_dir(void **state)
{
    tm_tempdir_remove(*state);
    free(*state);
    return 0;
}

static void test_clock_randomness_variables(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    assert_true(env == tm_env_real());
    assert_true(env->now_ms(env) > 1600000000000);
    int64_t before = env->monotonic_ns(env);
    env->sleep_ms(env, 0);
    assert_true(env->monotonic_ns(env) >= before);
    assert_true(env->random_u64(env) != env->random_u64(env));
    assert_int_equal(setenv("TM_TEST_VARIABLE", "x", 1), 0);
    assert_string_equal(env->variable(env, "TM_TEST_VARIABLE"), "x");
    assert_int_equal(unsetenv("TM_TEST_VARIABLE"), 0);
    assert_null(env->variable(env, "TM_TEST_VARIABLE"));
}

static void test_write_makes_folders_and_replaces(void **state)
{
    const struct tm_tempdir *dir = *state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    const char *path = tm_tempdir_path(dir, "a/b/c.txt");
    assert_row(env->file_write(env, path, "one", 3, &e) == 0, "%s", e.text);
    assert_row(env->file_write(env, path, "second", 6, &e) == 0, "%s", e.text);
    assert_true(env->file_exists(env, path));
    assert_int_equal(env->file_read(env, path, &out, &e), 0);
    assert_string_equal(tm_text_string(&out), "second");
    assert_int_equal(tm_tempdir_count(tm_tempdir_path(dir, "a/b")), 1); /* no half-written file is left */
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    mode_t mask = umask(0);
    (void)umask(mask);
    assert_int_equal(status.st_mode & 0777, 0666 & ~mask);
    assert_int_equal(env->file_remove(env, path, &e), 0);
    assert_int_equal(env->file_remove(env, path, &e), 0);
    assert_false(env->file_exists(env, path));
    tm_text_deinit(&out);
}

static void test_large_and_empty_files(void **state)
{
    struct tm_env *env = tm_env_real();
    const char *path = tm_tempdir_path(*state, "f");
    struct tm_text big;
    struct tm_text out;
    tm_text_init(&big, 1 << 20);
    tm_text_init(&out, 300001);
    tm_text_fill(&big, 'x', 300001);
    assert_int_equal(env->file_write(env, path, "", 0, NULL), 0);
    assert_int_equal(env->file_read(env, path, &out, NULL), 0);
    assert_int_equal(out.length, 0);
    assert_int_equal(env->file_write(env, path, big.data, big.length, NULL), 0);
    assert_int_equal(env->file_read(env, path, &out, NULL), 0);
    assert_int_equal(out.length, 300001);
    assert_memory_equal(out.data, big.data, big.length);
    struct tm_error e = {0};
    assert_int_equal(env->file_read(env, path, &out, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "f: file has 300001 bytes, more than the limit of 300001");
    tm_text_deinit(&big);
    tm_text_deinit(&out);
}

static void test_files_that_cannot_be_read(void **state)
{
    struct tm_env *env = tm_env_real();
    const struct tm_tempdir *dir = *state;
    assert_int_equal(env->file_write(env, tm_tempdir_path(dir, "f"), "x", 1, NULL), 0);
    static const struct {
        const char *name;
        enum tm_code code;
        const char *words;
    } rows[] = {
        {"missing", TM_ENOTFOUND, "missing: No such file or directory"},
        {"", TM_EINPUT, "is a folder, not a file"},
        {"f/x", TM_EIO, "f/x: Not a directory"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        struct tm_error e = {0};
        tm_text_init(&out, 100);
        int rc = env->file_read(env, tm_tempdir_path(dir, rows[i].name), &out, &e);
        assert_row(rc == -(int)rows[i].code, "\"%s\": got %d", rows[i].name, rc);
        assert_error_has(e, rows[i].words);
        tm_text_deinit(&out);
    }
}

/* The size of a pipe or device is not known before it is read. */
static void test_the_limit_holds_for_devices(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_text out;
    struct tm_error e = {0};
    tm_text_init(&out, 100000);
    assert_int_equal(env->file_read(env, "/dev/zero", &out, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "/dev/zero: text is longer than its limit of 100000 bytes");
    tm_text_deinit(&out);
}

static void test_files_that_cannot_be_written(void **state)
{
    struct tm_env *env = tm_env_real();
    const struct tm_tempdir *dir = *state;
    assert_int_equal(env->file_write(env, tm_tempdir_path(dir, "f"), "old", 3, NULL), 0);
    assert_int_equal(env->file_write(env, tm_tempdir_path(dir, "d/x"), "x", 1, NULL), 0);
    static const struct {
        const char *name;
        const char *words;
    } rows[] = {
        {"f/x", "Not a directory"},
        {"f/x/y", "making folder "},
        {"d", "renaming "},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        int rc = env->file_write(env, tm_tempdir_path(dir, rows[i].name), "new", 3, &e);
        assert_row(rc == -(int)TM_EIO, "\"%s\": got %d", rows[i].name, rc);
        assert_error_has(e, rows[i].words);
        assert_row(tm_tempdir_count(dir->path) == 2, "\"%s\": left something behind", rows[i].name);
    }
    char name[5000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(env->file_write(env, name, "x", 1, NULL), -(int)TM_ELIMIT);
    struct tm_error e = {0};
    assert_int_equal(env->file_remove(env, tm_tempdir_path(dir, "d"), &e), -(int)TM_EIO);
    assert_error_has(e, "removing ");
}

static int read_once(const char *path)
{
    struct tm_env *env = tm_env_real();
    struct tm_text out;
    tm_text_init(&out, 1000);
    int rc = env->file_read(env, path, &out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_read_without_memory(void **state)
{
    const char *path = tm_tempdir_path(*state, "f");
    struct tm_env *env = tm_env_real();
    assert_int_equal(env->file_write(env, path, "text", 4, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = read_once(path));
}

struct link {
    int listener;
    int near;
    int far;
};

static struct link make_link(struct tm_env *env)
{
    struct link link = {0};
    struct tm_error e = {0};
    char bound[TM_ADDRESS_MAX];
    bool ready = false;
    assert_row(env->net_listen(env, "127.0.0.1:0", &link.listener, bound, &e) == 0, "%s", e.text);
    assert_true(strncmp(bound, "127.0.0.1:", 10) == 0 && strcmp(bound, "127.0.0.1:0") != 0);
    assert_int_equal(env->net_accept(env, link.listener, &link.far, &e), -(int)TM_EBUSY);
    assert_row(env->net_connect(env, bound, &link.near, &e) == 0, "%s", e.text);
    assert_row(env->net_wait(env, &link.listener, 1, LONG_MS, &ready, &e) == 0, "%s", e.text);
    assert_true(ready);
    assert_row(env->net_accept(env, link.listener, &link.far, &e) == 0, "%s", e.text);
    return link;
}

static void close_link(struct tm_env *env, struct link link)
{
    env->net_close(env, link.listener);
    env->net_close(env, link.near);
    env->net_close(env, link.far);
}

static void test_bytes_over_the_network(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct link link = make_link(env);
    const int handles[] = {link.listener, link.near, link.far};
    bool ready[3] = {false, false, false};
    char buffer[100] = "";
    size_t done = 0;
    assert_int_equal(env->net_receive(env, link.far, buffer, sizeof buffer, &done, NULL), -(int)TM_EBUSY);
    assert_int_equal(env->net_wait(env, handles, 3, 0, ready, NULL), -(int)TM_ETIMEOUT);
    assert_int_equal(env->net_send(env, link.near, "hello", 5, &done, NULL), 0);
    assert_int_equal(done, 5);
    assert_int_equal(env->net_wait(env, handles, 3, LONG_MS, ready, NULL), 0);
    assert_true(!ready[0] && !ready[1] && ready[2]);
    assert_int_equal(env->net_receive(env, link.far, buffer, sizeof buffer, &done, NULL), 0);
    assert_int_equal(done, 5);
    assert_memory_equal(buffer, "hello", 5);
    close_link(env, link);
}

static void test_a_peer_that_closes_and_one_that_is_lost(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    for (int lost = 0; lost < 2; lost++) {
        struct link link = make_link(env);
        bool ready = false;
        char buffer[10];
        size_t done = 77;
        struct linger at_once = {.l_onoff = 1, .l_linger = 0}; /* close sends a reset */
        if (lost) assert_int_equal(setsockopt(link.near, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        env->net_close(env, link.near);
        assert_int_equal(env->net_wait(env, &link.far, 1, LONG_MS, &ready, NULL), 0);
        int rc = env->net_receive(env, link.far, buffer, sizeof buffer, &done, NULL);
        assert_row(rc == (lost ? -(int)TM_EPEER : 0), "lost %d: got %d", lost, rc);
        assert_row(lost || done == 0, "closed: got %zu bytes", done);
        if (lost) assert_int_equal(env->net_send(env, link.far, "x", 1, &done, NULL), -(int)TM_EPEER);
        env->net_close(env, link.listener);
        env->net_close(env, link.far);
    }
}

static void test_send_would_block(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct link link = make_link(env);
    static char block[1 << 20];
    size_t done = 0;
    int rc = 0;
    for (int i = 0; i < 1000 && rc == 0; i++)
        rc = env->net_send(env, link.near, block, sizeof block, &done, NULL);
    assert_int_equal(rc, -(int)TM_EBUSY);
    close_link(env, link);
}

static void test_addresses_that_do_not_work(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    char bound[TM_ADDRESS_MAX];
    char again[TM_ADDRESS_MAX];
    int handle = -1;
    assert_int_equal(env->net_connect(env, "nowhere", &handle, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "address \"nowhere\": expected HOST:PORT, for example 127.0.0.1:7070 or [::1]:7070");
    char big[400];
    (void)snprintf(big, sizeof big, "%300d:1", 1);
    assert_int_equal(env->net_connect(env, big, &handle, &e), -(int)TM_EUSAGE);
    assert_int_equal(env->net_connect(env, "127.0.0.1:notaport", &handle, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "the port must be a number from 0 to 65535");
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &handle, bound, &e), 0);
    int second = -1;
    assert_int_equal(env->net_listen(env, bound, &second, again, &e), -(int)TM_EIO);
    assert_error_has(e, "Address already in use");
    env->net_close(env, handle);
    assert_int_equal(env->net_connect(env, bound, &second, &e), -(int)TM_EPEER);
    assert_error_has(e, "Connection refused");
    assert_int_equal(second, -1);
}

static void test_connecting_without_waiting(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    char bound[TM_ADDRESS_MAX];
    char buffer[4];
    int listener = -1;
    int near = -1;
    int far = -1;
    size_t done = 0;
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, bound, NULL), 0);
    assert_int_equal(env->net_connect(env, bound, &near, NULL), 0);
    struct tm_watch watches[] = {{.handle = near, .want = TM_WATCH_BOTH}, {.handle = listener}};
    assert_int_equal(env->net_watch(env, &watches[1], 1, LONG_MS, NULL), 0);
    assert_true(watches[1].ready);
    assert_int_equal(env->net_accept(env, listener, &far, NULL), 0);
    assert_int_equal(env->net_watch(env, watches, 2, LONG_MS, NULL), 0);
    assert_true(watches[0].ready && !watches[1].ready);
    assert_int_equal(env->net_send(env, near, "hi", 2, &done, NULL), 0);
    watches[0] = (struct tm_watch){.handle = far};
    assert_int_equal(env->net_watch(env, watches, 1, LONG_MS, NULL), 0);
    assert_int_equal(env->net_receive(env, far, buffer, sizeof buffer, &done, NULL), 0);
    assert_int_equal(done, 2);
    assert_int_equal(env->net_watch(env, watches, 1, 0, NULL), -(int)TM_ETIMEOUT);
    assert_false(watches[0].ready);
    env->net_close(env, near);
    env->net_close(env, far);
    env->net_close(env, listener);
    /* Nobody is there: told at once, or when it is sent to. */
    if (env->net_connect(env, bound, &near, NULL) == 0) {
        watches[0] = (struct tm_watch){.handle = near, .want = TM_WATCH_BOTH};
        assert_int_equal(env->net_watch(env, watches, 1, LONG_MS, NULL), 0);
        assert_int_equal(env->net_send(env, near, "hi", 2, &done, NULL), -(int)TM_EPEER);
        env->net_close(env, near);
    }
}

static void test_a_pair_wakes(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    int pair[2];
    size_t done = 0;
    char buffer[4];
    assert_int_equal(env->net_pair(env, pair, NULL), 0);
    struct tm_watch watch = {.handle = pair[0]};
    assert_int_equal(env->net_watch(env, &watch, 1, 0, NULL), -(int)TM_ETIMEOUT);
    assert_int_equal(env->net_send(env, pair[1], "x", 1, &done, NULL), 0);
    assert_int_equal(env->net_watch(env, &watch, 1, LONG_MS, NULL), 0);
    assert_true(watch.ready);
    assert_int_equal(env->net_receive(env, pair[0], buffer, sizeof buffer, &done, NULL), 0);
    assert_int_equal(done, 1);
    env->net_close(env, pair[0]);
    env->net_close(env, pair[1]);
}

static void test_wait_for_too_many(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    int handles[257] = {0};
    bool ready[257];
    struct tm_error e = {0};
    assert_int_equal(env->net_wait(env, handles, 257, 0, ready, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "waiting for 257 connections, more than 256");
}

static void test_exit_statuses(void **state)
{
    (void)state;
    static const struct {
        const char *argv[4];
        int status;
    } rows[] = {
        {{"true", NULL}, 0},
        {{"false", NULL}, 1},
        {{"sh", "-c", "exit 7", NULL}, 7},
        {{"sh", "-c", "kill -TERM $$", NULL}, 128 + SIGTERM},
    };
    struct tm_env *env = tm_env_real();
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int pid = 0;
        int status = -1;
        struct tm_error e = {0};
        assert_row(env->process_start(env, rows[i].argv, &pid, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(env->process_wait(env, pid, LONG_MS, &status, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(status == rows[i].status, "row %zu: status %d", i, status);
        assert_row(env->process_wait(env, pid, 0, &status, &e) < 0, "row %zu: waited twice", i);
        assert_row(env->process_signal(env, pid, 0, &e) == -(int)TM_ENOTFOUND, "row %zu: still there", i);
    }
}

static void test_a_process_that_runs_until_it_is_killed(void **state)
{
    (void)state;
    static const char *const argv[] = {"sleep", "1000", NULL};
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    int pid = 0;
    int status = -1;
    assert_row(env->process_start(env, argv, &pid, &e) == 0, "%s", e.text);
    assert_int_equal(env->process_wait(env, pid, 0, &status, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(env->process_signal(env, pid, SIGKILL, &e), 0);
    assert_int_equal(env->process_wait(env, pid, LONG_MS, &status, &e), 0);
    assert_int_equal(status, 128 + SIGKILL);
}

static void test_a_program_that_is_not_there(void **state)
{
    (void)state;
    static const char *const argv[] = {"tidemill-no-such-program", NULL};
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    int pid = -1;
    assert_int_equal(env->process_start(env, argv, &pid, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "starting tidemill-no-such-program: No such file");
    assert_int_equal(pid, -1);
}

static void test_files_in_parts_and_mapped(void **state)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    struct tm_part parts[] = {{"ab", 2}, {"", 0}, {"c\0d", 3}};
    const char *path = tm_tempdir_path(*state, "folder/parts");
    const void *data = NULL;
    size_t length = 0;
    assert_row(env->file_write_parts(env, path, parts, TM_COUNT(parts), &e) == 0, "%s", e.text);
    assert_int_equal(env->file_map(env, path, &data, &length, &e), 0);
    assert_int_equal(length, 5);
    assert_memory_equal(data, "abc\0d", 5);
    assert_int_equal(env->file_write(env, path, "new", 3, &e), 0); /* another file by that name: the map stays */
    assert_memory_equal(data, "abc\0d", 5);
    env->file_unmap(env, data, length);
    assert_int_equal(env->file_write(env, path, "", 0, &e), 0);
    assert_int_equal(env->file_map(env, path, &data, &length, &e), 0);
    assert_int_equal(length, 0);
    env->file_unmap(env, data, length);
    assert_int_equal(env->file_map(env, tm_tempdir_path(*state, "none"), &data, &length, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(env->file_map(env, tm_tempdir_path(*state, ""), &data, &length, &e), -(int)TM_EINPUT);
    assert_error_has(e, "not a regular file");
    /* folders: only empty ones are removed */
    assert_int_equal(env->file_remove(env, tm_tempdir_path(*state, "folder"), &e), -(int)TM_EIO);
    assert_int_equal(env->file_remove(env, path, &e), 0);
    assert_int_equal(env->file_remove(env, tm_tempdir_path(*state, "folder"), &e), 0);
    assert_false(env->file_exists(env, tm_tempdir_path(*state, "folder")));
}

static void test_unix_sockets(void **state)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    char address[TM_ADDRESS_MAX];
    char bound[TM_ADDRESS_MAX];
    char buffer[4];
    int handles[3] = {-1, -1, -1};
    size_t count = 0;
    bool ready = false;
    (void)snprintf(address, sizeof address, "unix:%.90s", tm_tempdir_path(*state, "s"));
    assert_int_equal(env->net_connect(env, address, &handles[0], &e), -(int)TM_EPEER);
    assert_row(env->net_listen(env, address, &handles[0], bound, &e) == 0, "%s", e.text);
    assert_string_equal(bound, address);
    assert_int_equal(env->net_connect(env, bound, &handles[1], &e), 0);
    assert_int_equal(env->net_accept(env, handles[0], &handles[2], &e), 0);
    assert_int_equal(env->net_wait_send(env, handles[1], LONG_MS, &e), 0);
    assert_int_equal(env->net_send(env, handles[1], "hi", 2, &count, &e), 0);
    assert_int_equal(env->net_wait(env, &handles[2], 1, LONG_MS, &ready, &e), 0);
    assert_int_equal(env->net_receive(env, handles[2], buffer, sizeof buffer, &count, &e), 0);
    assert_int_equal(count, 2);
    static char block[1 << 16]; /* until nothing more fits: then there is nothing to wait for */
    while (env->net_send(env, handles[1], block, sizeof block, &count, &e) == 0)
        continue;
    assert_int_equal(env->net_wait_send(env, handles[1], 0, &e), -(int)TM_ETIMEOUT);
    env->net_shutdown(env, handles[1]);
    for (int i = 0; i < 3; i++)
        env->net_close(env, handles[i]);
    assert_int_equal(env->net_listen(env, "unix:", &handles[0], bound, &e), -(int)TM_EUSAGE);
}

#define DIR_TEST(function) cmocka_unit_test_setup_teardown(function, make_dir, remove_dir)

static void test_a_group_is_ended_as_a_whole(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e;
    static const char *const argv[] = {"sh", "-c", "sleep 600 & test \"$A\" = 1 && wait", NULL};
    static const char *const variables[] = {"A=1", "TIDEMILL_TEST_GROUP=yes", NULL};
    struct tm_process_options options = {.argv = argv, .variables = variables, .group = true, .output = "/dev/null"};
    int pid = 0;
    int handle = -1;
    int status = 0;
    int64_t start = 0;
    int64_t own = 0;
    bool ready = false;
    assert_row(env->process_start_with(env, &options, &pid, &e) == 0, "%s", e.text);
    assert_int_equal(env->process_handle(env, pid, &handle, &e), 0);
    assert_int_equal(env->process_started(env, pid, &start, &e), 0);
    assert_int_equal(env->process_started(env, env->process_self(env), &own, &e), 0);
    assert_true(start >= own);
    assert_int_equal(env->net_wait(env, &handle, 1, 0, &ready, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(env->process_signal_group(env, pid, SIGKILL, &e), 0);
    assert_int_equal(env->net_wait(env, &handle, 1, LONG_MS, &ready, &e), 0);
    assert_true(ready);
    assert_int_equal(env->process_wait(env, pid, LONG_MS, &status, &e), 0);
    assert_int_equal(status, 128 + SIGKILL);
    env->net_close(env, handle);
    assert_int_equal(env->process_started(env, pid, &start, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(env->process_signal_group(env, 0, SIGKILL, &e), -(int)TM_EUSAGE);
}

/* What was started ends with the program that SIGTERM ends: the pipe that all of them hold is closed. */
static void test_a_group_ends_together(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    static const char *const sleeper[] = {"sleep", "600", NULL};
    int ends[2];
    char byte = 0;
    int pid = 0;
    int status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)setpgid(0, 0);
        env->process_end_together(env);
        (void)close(ends[0]);
        bool told = env->process_start(env, sleeper, &pid, NULL) == 0 && write(ends[1], "x", 1) == 1;
        while (told)
            (void)pause();
        _exit(1);
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    (void)close(ends[0]);
}

/* A file that grows, a name that is a link's, a folder of one's own and a process that is started there. */
static void test_files_that_are_followed(void **state)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    char folder[400];
    char path[500];
    char bytes[8];
    size_t length = 0;
    int64_t size = 0;
    int pid = 0;
    int status = 0;
    (void)snprintf(folder, sizeof folder, "%s", tm_tempdir_path(*state, "made"));
    (void)snprintf(path, sizeof path, "%s/log", folder);
    static const char *const argv[] = {"sh", "-c", "printf abcdef > log; ln -s log link", NULL};
    struct tm_process_options options = {.argv = argv, .folder = folder};
    assert_int_equal(env->process_start_with(env, &options, &pid, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, folder);
    assert_int_equal(env->folder_make(env, folder, &e), 0);
    assert_int_equal(env->folder_make(env, folder, &e), 0);
    assert_row(env->process_start_with(env, &options, &pid, &e) == 0, "%s", e.text);
    assert_int_equal(env->process_wait(env, pid, LONG_MS, &status, &e), 0);
    assert_int_equal(env->file_read_at(env, path, 0, NULL, 0, &length, &size, &e), 0);
    assert_true(length == 0 && size == 6);
    assert_int_equal(env->file_read_at(env, path, 4, bytes, sizeof bytes, &length, &size, &e), 0);
    assert_true(length == 2 && size == 6 && memcmp(bytes, "ef", 2) == 0);
    assert_int_equal(env->file_read_at(env, path, 9, bytes, sizeof bytes, &length, &size, &e), 0);
    assert_int_equal(length, 0);
    assert_false(env->file_is_link(env, path));
    (void)snprintf(path, sizeof path, "%s/link", folder);
    assert_true(env->file_is_link(env, path));
    (void)snprintf(path, sizeof path, "%s/none/of/them", folder);
    assert_false(env->file_is_link(env, path));
    assert_int_equal(env->folder_make(env, path, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(env->file_read_at(env, path, 0, bytes, 1, &length, &size, &e), -(int)TM_ENOTFOUND);
    (void)snprintf(path, sizeof path, "%s/grown/log", folder);
    assert_int_equal(env->file_extend(env, path, 0, "abcdef", 6, &e), 0);
    assert_int_equal(env->file_extend(env, path, 4, "XY", 2, &e), 0);
    assert_int_equal(env->file_extend(env, path, 2, "-", 1, &e), 0);
    assert_int_equal(env->file_read_at(env, path, 0, bytes, sizeof bytes, &length, &size, &e), 0);
    assert_true(length == 3 && memcmp(bytes, "ab-", 3) == 0);
    int64_t before = env->processor_ns(env);
    assert_true(before > 0 && env->processor_ns(env) >= before);
}

static void test_output_is_captured(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    /* /dev/stderr is opened: a socket could not be */
    static const char *const argv[] = {"sh", "-c", "echo out; echo err > /dev/stderr; exit 3", NULL};
    int output = -1;
    struct tm_process_options options = {.argv = argv, .captured = &output};
    int pid = 0;
    int status = 0;
    struct tm_text said;
    tm_text_init(&said, 1000);
    assert_row(env->process_start_with(env, &options, &pid, &e) == 0, "%s", e.text);
    for (bool open = true; open;) {
        char piece[16];
        size_t got = 0;
        struct tm_watch watch = {.handle = output};
        assert_int_equal(env->net_watch(env, &watch, 1, LONG_MS, &e), 0);
        assert_true(watch.ready && watch.can_receive && !watch.can_send);
        int rc = env->net_receive(env, output, piece, sizeof piece, &got, &e);
        assert_row(rc == 0 || rc == -(int)TM_EBUSY, "%s", e.text);
        open = rc != 0 || got > 0;
        tm_text_append(&said, piece, got);
    }
    assert_string_equal(tm_text_string(&said), "out\nerr\n");
    assert_int_equal(env->net_send(env, output, "x", 1, &(size_t){0}, &e), -(int)TM_EUSAGE);
    assert_int_equal(env->process_wait(env, pid, LONG_MS, &status, &e), 0);
    assert_int_equal(status, 3);
    env->net_close(env, output);
    tm_text_deinit(&said);
    static const char *const missing[] = {"no-such-program-of-any-kind", NULL};
    options.argv = missing;
    output = -1;
    assert_int_equal(env->process_start_with(env, &options, &pid, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(output, -1);
}

static void test_interest_in_sending_alone(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct link link = make_link(env);
    size_t done = 0;
    assert_int_equal(env->net_send(env, link.near, "x", 1, &done, NULL), 0);
    struct tm_watch watch = {.handle = link.far};
    assert_int_equal(env->net_watch(env, &watch, 1, LONG_MS, NULL), 0);
    assert_true(watch.ready && watch.can_receive && !watch.can_send);
    watch.want = TM_WATCH_BOTH;
    assert_int_equal(env->net_watch(env, &watch, 1, LONG_MS, NULL), 0);
    assert_true(watch.can_receive && watch.can_send);
    watch.want = TM_WATCH_SEND; /* what has come does not end the wait */
    assert_int_equal(env->net_watch(env, &watch, 1, LONG_MS, NULL), 0);
    assert_true(!watch.can_receive && watch.can_send);
    static char block[1 << 20];
    while (env->net_send(env, link.far, block, sizeof block, &done, NULL) == 0)
        continue;
    assert_int_equal(env->net_watch(env, &watch, 1, 0, NULL), -(int)TM_ETIMEOUT);
    assert_false(watch.ready);
    close_link(env, link);
}

static void test_marked_processes_are_ended(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e;
    static const char *const argv[] = {"sleep", "600", NULL};
    char mark[64];
    char longer[72];
    (void)snprintf(mark, sizeof mark, "TIDEMILL_TEST_MARK=%d", (int)getpid());
    (void)snprintf(longer, sizeof longer, "%s0", mark);
    const char *variables[] = {mark, NULL};
    const char *others[] = {longer, NULL};
    struct tm_process_options options = {.argv = argv, .variables = variables};
    int pid = 0;
    int other = 0;
    int status = 0;
    int count = 0;
    assert_int_equal(env->process_start_with(env, &options, &pid, &e), 0);
    options.variables = others;
    assert_int_equal(env->process_start_with(env, &options, &other, &e), 0);
    assert_int_equal(env->process_end_marked(env, mark, &count, &e), 0);
    assert_int_equal(count, 1);
    assert_int_equal(env->process_wait(env, pid, LONG_MS, &status, &e), 0);
    assert_int_equal(env->process_wait(env, other, 0, &status, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(env->process_end_marked(env, longer, &count, &e), 0);
    assert_int_equal(count, 1);
    assert_int_equal(env->process_wait(env, other, LONG_MS, &status, &e), 0);
}

/* ---- large files, past the page cache or through it ---- */

enum { BLOCKS_BYTES = 9 << 20 }; /* more than one call writes */

struct pieces {
    const char *from;
    size_t length;
    size_t stop_at; /* 0: never */
};

static int on_piece(void *context, const void *data, size_t length, struct tm_error *e)
{
    struct pieces *pieces = context;
    assert_ptr_equal(data, pieces->from + pieces->length); /* in order, where they belong */
    pieces->length += length;
    if (pieces->stop_at != 0 && pieces->length >= pieces->stop_at) return tm_error_set(e, TM_EINPUT, "enough");
    return 0;
}

static void blocks_in(const char *folder)
{
    struct tm_env *env = tm_env_real();
    char path[512];
    struct tm_error e;
    bool direct = false;
    size_t length = 0;
    char *data = tm_alloc_pages(BLOCKS_BYTES);
    char *back = tm_alloc_pages(BLOCKS_BYTES + 4096);
    struct pieces pieces = {.from = back};
    (void)snprintf(path, sizeof path, "%s/new/file", folder);
    for (size_t i = 0; i < BLOCKS_BYTES; i++)
        data[i] = (char)(i >> 5);
    assert_int_equal(env->file_read_blocks(env, path, back, BLOCKS_BYTES, on_piece, &pieces, &length, &e),
                     -(int)TM_ENOTFOUND);
    assert_int_equal(env->file_write_blocks(env, path, data, 4096, &direct, &e), 0);
    assert_int_equal(env->file_write_blocks(env, path, data, BLOCKS_BYTES, &direct, &e), 0); /* replaces it */
    assert_int_equal(env->file_read_blocks(env, path, back, BLOCKS_BYTES, on_piece, &pieces, &length, &e), 0);
    assert_int_equal(length, BLOCKS_BYTES);
    assert_int_equal(pieces.length, BLOCKS_BYTES);
    assert_memory_equal(back, data, BLOCKS_BYTES);
    assert_int_equal(env->file_read_blocks(env, path, back, BLOCKS_BYTES - 4096, on_piece, &pieces, &length, &e),
                     -(int)TM_ELIMIT);
    pieces = (struct pieces){.from = back, .stop_at = 5000};
    assert_int_equal(env->file_read_blocks(env, path, back, BLOCKS_BYTES, on_piece, &pieces, &length, &e),
                     -(int)TM_EINPUT);
    assert_true(pieces.length < BLOCKS_BYTES);
    assert_int_equal(env->file_write(env, path, data, 5001, &e), 0); /* an odd end */
    pieces = (struct pieces){.from = back};
    assert_int_equal(env->file_read_blocks(env, path, back, BLOCKS_BYTES, on_piece, &pieces, &length, &e), 0);
    assert_int_equal(length, 5001);
    assert_int_equal(pieces.length, 5001);
    tm_free(data);
    tm_free(back);
}

static void test_files_in_blocks(void **state)
{
    const struct tm_tempdir *dir = *state;
    struct tm_env *env = tm_env_real();
    struct tm_error e;
    char path[512];
    bool direct = false;
    blocks_in(dir->path);
    char memory[] = "/dev/shm/tidemill-test-XXXXXX"; /* a file system that may refuse O_DIRECT */
    if (mkdtemp(memory) != NULL) {
        blocks_in(memory);
        (void)snprintf(path, sizeof path, "%s/new/file", memory);
        assert_int_equal(env->file_remove(env, path, &e), 0);
        (void)snprintf(path, sizeof path, "%s/new", memory);
        assert_int_equal(env->file_remove(env, path, &e), 0); /* nothing is left beside the file */
        assert_int_equal(env->file_remove(env, memory, &e), 0);
    }
    static _Alignas(4096) char page[4096];
    assert_true(env->file_write_blocks(env, "/proc/no/such", page, sizeof page, &direct, &e) != 0);
    assert_error_has(e, "/proc/no");
}

/* Of a pipe only what somebody writes is read; nobody is waited for who does not come. */
static void test_pipes(void **state)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    struct tm_text out;
    const void *data = NULL;
    size_t length = 0;
    int pid = 0;
    int status = -1;
    char path[512];
    (void)snprintf(path, sizeof path, "%s", tm_tempdir_path(*state, "pipe"));
    tm_text_init(&out, 1000);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(env->file_read(env, path, &out, &e), -(int)TM_EINPUT);
    assert_error_has(e, "a pipe that nothing writes to;");
    assert_int_equal(env->file_map(env, path, &data, &length, &e), -(int)TM_EINPUT);
    const char *const writes[] = {"sh", "-c", "printf one; sleep 0.2; printf two", NULL};
    struct tm_process_options options = {.argv = writes, .output = path};
    int holds = open(path, O_RDWR | O_CLOEXEC); /* so that the writer's open does not wait for us */
    assert_true(holds >= 0);
    assert_int_equal(env->process_start_with(env, &options, &pid, &e), 0);
    assert_int_equal(close(holds), 0);
    assert_row(env->file_read(env, path, &out, &e) == 0, "%s", e.text);
    assert_string_equal(tm_text_string(&out), "onetwo");
    assert_int_equal(env->process_wait(env, pid, 10000, &status, &e), 0);
    tm_text_deinit(&out);
}

static void test_private_files_and_locks(void **state)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    struct stat status;
    int first = -1;
    int second = -1;
    char path[512];
    (void)snprintf(path, sizeof path, "%s", tm_tempdir_path(*state, "own/secret"));
    assert_int_equal(env->file_write_private(env, path, "x", 1, &e), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    (void)snprintf(path, sizeof path, "%s", tm_tempdir_path(*state, "own"));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    /* a mode of one's choice, whatever the umask, which stays as it is */
    mode_t mask = umask(0077);
    (void)snprintf(path, sizeof path, "%s", tm_tempdir_path(*state, "own/shown"));
    assert_int_equal(env->file_write_mode(env, path, 0644, "x", 1, &e), 0);
    assert_int_equal(umask(mask), 0077);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0644);
    (void)snprintf(path, sizeof path, "%s", tm_tempdir_path(*state, "own/lock"));
    assert_row(env->file_lock(env, path, &first, &e) == 0, "%s", e.text);
    assert_int_equal(env->file_lock(env, path, &second, &e), -(int)TM_EBUSY);
    env->file_unlock(env, first);
    assert_int_equal(env->file_lock(env, path, &second, &e), 0);
    env->file_unlock(env, second);
}

TM_TEST_MAIN(DIR_TEST(test_pipes), DIR_TEST(test_private_files_and_locks), TM_TEST(test_clock_randomness_variables),
             DIR_TEST(test_write_makes_folders_and_replaces), DIR_TEST(test_large_and_empty_files),
             DIR_TEST(test_files_that_cannot_be_read), TM_TEST(test_the_limit_holds_for_devices),
             DIR_TEST(test_files_that_cannot_be_written), DIR_TEST(test_read_without_memory),
             TM_TEST(test_bytes_over_the_network), TM_TEST(test_a_peer_that_closes_and_one_that_is_lost),
             TM_TEST(test_send_would_block), TM_TEST(test_addresses_that_do_not_work),
             TM_TEST(test_connecting_without_waiting), TM_TEST(test_a_pair_wakes), TM_TEST(test_output_is_captured),
             TM_TEST(test_interest_in_sending_alone), TM_TEST(test_wait_for_too_many), TM_TEST(test_exit_statuses),
             TM_TEST(test_a_process_that_runs_until_it_is_killed), TM_TEST(test_a_program_that_is_not_there),
             DIR_TEST(test_files_in_parts_and_mapped), DIR_TEST(test_files_in_blocks), DIR_TEST(test_unix_sockets),
             TM_TEST(test_a_group_ends_together), DIR_TEST(test_files_that_are_followed),
             TM_TEST(test_a_group_is_ended_as_a_whole), TM_TEST(test_marked_processes_are_ended))

#include "base/env_virtual.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static int make_env(void **state)
{
    *state = tm_env_virtual_create(42);
    return *state == NULL;
}

static int drop_env(void **state)
{
    tm_env_virtual_destroy(*state);
    tm_env_virtual_destroy(NULL);
    return 0;
}

static void test_time_moves_when_told(void **state)
{
    struct tm_env *env = *state;
    int64_t start = env->now_ms(env);
    assert_int_equal(env->now_ms(env), start);
    tm_env_virtual_advance(env, 250);
    env->sleep_ms(env, 750);
    assert_int_equal(env->now_ms(env), start + 1000);
    assert_int_equal(env->monotonic_ns(env), (start + 1000) * 1000000);
}

static void test_randomness_comes_from_the_seed(void **state)
{
    struct tm_env *env = *state;
    struct tm_env *same = tm_env_virtual_create(42);
    struct tm_env *other = tm_env_virtual_create(43);
    for (int i = 0; i < 10; i++) {
        uint64_t value = env->random_u64(env);
        assert_row(value == same->random_u64(same), "draw %d: same seed differs", i);
        assert_row(value != other->random_u64(other), "draw %d: other seed agrees", i);
    }
    tm_env_virtual_destroy(same);
    tm_env_virtual_destroy(other);
}

static void test_variables(void **state)
{
    struct tm_env *env = *state;
    assert_null(env->variable(env, "A"));
    assert_int_equal(tm_env_virtual_set_variable(env, "A", "1"), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "B", "2"), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "C", ""), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "A", "one"), 0);
    assert_string_equal(env->variable(env, "A"), "one");
    assert_string_equal(env->variable(env, "C"), "");
    assert_int_equal(tm_env_virtual_set_variable(env, "A", NULL), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "missing", NULL), 0);
    assert_null(env->variable(env, "A"));
    assert_string_equal(env->variable(env, "B"), "2");
}

static void test_files(void **state)
{
    struct tm_env *env = *state;
    struct tm_text out;
    struct tm_error e = {0};
    tm_text_init(&out, 10);
    assert_int_equal(env->file_read(env, "/a", &out, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "/a: No such file");
    assert_false(env->file_exists(env, "/a"));
    assert_int_equal(env->file_write(env, "/a", "one", 3, &e), 0);
    assert_int_equal(env->file_write(env, "/b", "", 0, &e), 0);
    assert_int_equal(env->file_write(env, "/a", "two!", 4, &e), 0);
    assert_true(env->file_exists(env, "/b"));
    tm_text_puts(&out, "x");
    assert_int_equal(env->file_read(env, "/a", &out, &e), 0);
    assert_int_equal(env->file_read(env, "/b", &out, &e), 0);
    assert_string_equal(tm_text_string(&out), "xtwo!");
    char bytes[8];
    size_t length = 0;
    int64_t size = 0;
    assert_int_equal(env->file_read_at(env, "/a", 1, bytes, 2, &length, &size, &e), 0);
    assert_true(length == 2 && size == 4 && memcmp(bytes, "wo", 2) == 0);
    assert_int_equal(env->file_read_at(env, "/a", 5, bytes, 2, &length, &size, &e), 0);
    assert_true(length == 0 && size == 4);
    assert_int_equal(env->file_read_at(env, "/c", 0, bytes, 2, &length, &size, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(env->folder_make(env, "/d", &e), 0);
    assert_false(env->file_is_link(env, "/a"));
    assert_int_equal(env->file_write(env, "/a", "0123456789", 10, &e), 0);
    assert_int_equal(env->file_read(env, "/a", &out, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "/a: ");
    assert_error_has(e, "limit of 10 bytes");
    assert_int_equal(env->file_remove(env, "/a", &e), 0);
    assert_int_equal(env->file_remove(env, "/a", &e), 0);
    assert_false(env->file_exists(env, "/a"));
    tm_text_deinit(&out);
}

static void test_the_nth_write_fails(void **state)
{
    struct tm_env *env = *state;
    struct tm_error e = {0};
    struct tm_text out;
    tm_text_init(&out, 100);
    tm_env_virtual_fail_write_at(env, 2);
    assert_int_equal(env->file_write(env, "/a", "old", 3, &e), 0);
    assert_int_equal(env->file_write(env, "/a", "new", 3, &e), -(int)TM_EFULL);
    assert_error_has(e, "writing /a: No space left on device");
    assert_int_equal(env->file_read(env, "/a", &out, &e), 0);
    assert_string_equal(tm_text_string(&out), "old");
    assert_int_equal(env->file_write(env, "/a", "new", 3, &e), 0);
    tm_text_deinit(&out);
}

struct link {
    int listener;
    int near;
    int far;
    char address[TM_ADDRESS_MAX];
};

static struct link make_link(struct tm_env *env)
{
    struct link link;
    assert_int_equal(env->net_listen(env, "node:0", &link.listener, link.address, NULL), 0);
    assert_int_equal(env->net_accept(env, link.listener, &link.far, NULL), -(int)TM_EBUSY);
    assert_int_equal(env->net_connect(env, link.address, &link.near, NULL), 0);
    assert_int_equal(env->net_accept(env, link.listener, &link.far, NULL), 0);
    assert_int_equal(env->net_accept(env, link.listener, &(int){0}, NULL), -(int)TM_EBUSY);
    return link;
}

static void test_bytes_go_both_ways(void **state)
{
    struct tm_env *env = *state;
    struct link link = make_link(env);
    char buffer[10] = "";
    size_t done = 0;
    assert_int_equal(env->net_receive(env, link.far, buffer, sizeof buffer, &done, NULL), -(int)TM_EBUSY);
    assert_int_equal(env->net_send(env, link.near, "hello", 5, &done, NULL), 0);
    assert_int_equal(done, 5);
    assert_int_equal(env->net_receive(env, link.far, buffer, 2, &done, NULL), 0);
    assert_int_equal(done, 2);
    assert_int_equal(env->net_receive(env, link.far, buffer + 2, 8, &done, NULL), 0);
    assert_int_equal(done, 3);
    assert_string_equal(buffer, "hello");
    assert_int_equal(env->net_send(env, link.far, "x", 1, &done, NULL), 0);
    assert_int_equal(env->net_receive(env, link.near, buffer, 8, &done, NULL), 0);
    assert_int_equal(buffer[0], 'x');
}

static void test_a_full_queue_would_block(void **state)
{
    struct tm_env *env = *state;
    struct link link = make_link(env);
    static char block[50000];
    size_t sent = 0;
    size_t total = 0;
    int rc = 0;
    while ((rc = env->net_send(env, link.near, block, sizeof block, &sent, NULL)) == 0)
        total += sent;
    assert_int_equal(rc, -(int)TM_EBUSY);
    assert_int_equal(total, 65536);
    assert_int_equal(env->net_receive(env, link.far, block, 100, &sent, NULL), 0);
    assert_int_equal(env->net_send(env, link.near, block, sizeof block, &sent, NULL), 0);
    assert_int_equal(sent, 100);
}

static void test_close_lets_the_rest_through(void **state)
{
    struct tm_env *env = *state;
    struct link link = make_link(env);
    char buffer[10];
    size_t done = 0;
    assert_int_equal(env->net_send(env, link.near, "bye", 3, &done, NULL), 0);
    env->net_close(env, link.near);
    env->net_close(env, link.near);
    assert_int_equal(env->net_receive(env, link.far, buffer, sizeof buffer, &done, NULL), 0);
    assert_int_equal(done, 3);
    assert_int_equal(env->net_receive(env, link.far, buffer, sizeof buffer, &done, NULL), 0);
    assert_int_equal(done, 0);
    assert_int_equal(env->net_send(env, link.far, "x", 1, &done, NULL), -(int)TM_EPEER);
    assert_int_equal(env->net_receive(env, link.near, buffer, sizeof buffer, &done, NULL), -(int)TM_EPEER);
}

static void test_cut(void **state)
{
    struct tm_env *env = *state;
    struct link link = make_link(env);
    char buffer[10];
    size_t done = 0;
    assert_int_equal(env->net_send(env, link.near, "lost", 4, &done, NULL), 0);
    tm_env_virtual_cut(env, link.far);
    tm_env_virtual_cut(env, 999);
    const int ends[] = {link.near, link.far};
    bool ready[2] = {false, false};
    assert_int_equal(env->net_wait(env, ends, 2, 10, ready, NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_row(ready[i], "end %zu: not ready", i);
        assert_row(env->net_send(env, ends[i], "x", 1, &done, NULL) == -(int)TM_EPEER, "end %zu: sent", i);
        assert_row(env->net_receive(env, ends[i], buffer, 9, &done, NULL) == -(int)TM_EPEER, "end %zu: received", i);
    }
}

static void test_wait(void **state)
{
    struct tm_env *env = *state;
    struct link link = make_link(env);
    const int handles[] = {link.listener, link.near, link.far};
    bool ready[3];
    struct tm_error e = {0};
    size_t done = 0;
    int64_t start = env->now_ms(env);
    assert_int_equal(env->net_wait(env, handles, 3, 500, ready, &e), -(int)TM_ETIMEOUT);
    assert_error_has(e, "nothing arrived within 500 ms");
    assert_int_equal(env->now_ms(env), start + 500);
    assert_int_equal(env->net_send(env, link.near, "x", 1, &done, NULL), 0);
    assert_int_equal(env->net_wait(env, handles, 3, 500, ready, &e), 0);
    assert_true(!ready[0] && !ready[1] && ready[2]);
    int another = 0;
    assert_int_equal(env->net_connect(env, link.address, &another, NULL), 0);
    assert_int_equal(env->net_wait(env, handles, 3, 500, ready, &e), 0);
    assert_true(ready[0]);
    env->net_close(env, link.far);
    assert_int_equal(env->net_wait(env, &link.near, 1, 500, ready, &e), 0);
    assert_int_equal(env->now_ms(env), start + 500);
}

static void test_addresses(void **state)
{
    struct tm_env *env = *state;
    char a[TM_ADDRESS_MAX];
    char b[TM_ADDRESS_MAX];
    int handle = 0;
    struct tm_error e = {0};
    assert_int_equal(env->net_connect(env, "node:1", &handle, &e), -(int)TM_EPEER);
    assert_error_has(e, "connecting to node:1: connection refused");
    assert_int_equal(env->net_listen(env, "node:0", &handle, a, &e), 0);
    assert_int_equal(env->net_listen(env, "node:0", &handle, b, &e), 0);
    assert_string_not_equal(a, b);
    assert_int_equal(env->net_listen(env, b, &(int){0}, a, &e), -(int)TM_EIO);
    assert_error_has(e, "Address already in use");
    env->net_close(env, handle);
    assert_int_equal(env->net_connect(env, b, &handle, &e), -(int)TM_EPEER);
    assert_int_equal(env->net_listen(env, b, &handle, a, &e), 0);
}

static void test_connections_that_take_time(void **state)
{
    struct tm_env *env = *state;
    char address[TM_ADDRESS_MAX];
    char byte = 0;
    int listener = 0;
    int near = 0;
    int far = 0;
    size_t done = 0;
    struct tm_error e = {0};
    assert_int_equal(env->net_listen(env, "node:0", &listener, address, NULL), 0);
    tm_env_virtual_set_connect_ms(env, 70);
    assert_int_equal(env->net_connect(env, address, &near, NULL), 0);
    assert_int_equal(env->net_send(env, near, "x", 1, &done, &e), -(int)TM_EBUSY);
    assert_int_equal(env->net_receive(env, near, &byte, 1, &done, &e), -(int)TM_EBUSY);
    assert_int_equal(env->net_accept(env, listener, &far, &e), -(int)TM_EBUSY);
    int64_t start = env->now_ms(env);
    struct tm_watch watch = {.handle = near, .want = TM_WATCH_BOTH};
    assert_int_equal(env->net_watch(env, &watch, 1, 30, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(env->net_watch(env, &watch, 1, 500, &e), 0); /* no longer than it takes */
    assert_int_equal(env->now_ms(env), start + 70);
    assert_true(watch.can_send && !watch.can_receive);
    assert_int_equal(env->net_accept(env, listener, &far, &e), 0);
    assert_int_equal(env->net_send(env, near, "x", 1, &done, &e), 0);
    assert_int_equal(env->net_receive(env, far, &byte, 1, &done, &e), 0);
    /* nobody listens; nobody answers */
    assert_int_equal(env->net_connect(env, "other:1", &near, NULL), 0);
    assert_int_equal(env->net_wait_send(env, near, 500, &e), 0);
    assert_int_equal(env->net_send(env, near, "x", 1, &done, &e), -(int)TM_EPEER);
    assert_error_has(e, "connecting to other:1: connection refused");
    tm_env_virtual_never_answer(env, address);
    start = env->now_ms(env);
    assert_int_equal(env->net_connect(env, address, &near, NULL), 0);
    assert_int_equal(env->net_wait_send(env, near, 500, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(env->net_wait_send(env, near, 100000, &e), 0);
    assert_int_equal(env->now_ms(env), start + TM_CONNECT_LIMIT_MS);
    assert_int_equal(env->net_receive(env, near, &byte, 1, &done, &e), -(int)TM_EPEER);
    assert_error_has(e, "no answer in time");
    env->net_close(env, near);
}

static void test_output_and_modes(void **state)
{
    struct tm_env *env = *state;
    const char *const argv[] = {"program", NULL};
    char said[8] = "";
    int output = 0;
    int pid = 0;
    size_t done = 0;
    struct tm_process_options options = {.argv = argv, .captured = &output};
    assert_int_equal(env->process_start_with(env, &options, &pid, NULL), 0);
    struct tm_watch watch = {.handle = output};
    assert_int_equal(env->net_watch(env, &watch, 1, 10, NULL), -(int)TM_ETIMEOUT);
    assert_int_equal(tm_env_virtual__process_write(env, pid, "well", 4), 0);
    assert_int_equal(env->net_watch(env, &watch, 1, 10, NULL), 0);
    assert_int_equal(env->net_receive(env, output, said, sizeof said, &done, NULL), 0);
    assert_string_equal(said, "well");
    tm_env_virtual_exit(env, pid, 0);
    assert_int_equal(env->net_receive(env, output, said, sizeof said, &done, NULL), 0);
    assert_int_equal(done, 0);
    assert_int_equal(tm_env_virtual__process_write(env, pid, "well", 4), -(int)TM_ENOTFOUND);
    assert_int_equal(env->file_write_mode(env, "/key", 0640, "x", 1, NULL), 0);
    assert_int_equal(tm_env_virtual__file_mode(env, "/key"), 0640);
    assert_int_equal(env->file_write_private(env, "/key", "x", 1, NULL), 0);
    assert_int_equal(tm_env_virtual__file_mode(env, "/key"), 0600);
    assert_int_equal(tm_env_virtual__file_mode(env, "/none"), 0);
}

static void test_processes(void **state)
{
    struct tm_env *env = *state;
    static const char *const argv[] = {"worker", NULL};
    struct tm_error e = {0};
    int first = 0;
    int second = 0;
    int status = -1;
    assert_int_equal(env->process_start(env, argv, &first, &e), 0);
    assert_int_equal(env->process_start(env, argv, &second, &e), 0);
    assert_int_not_equal(first, second);
    int64_t start = env->now_ms(env);
    assert_int_equal(env->process_wait(env, first, 100, &status, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(env->now_ms(env), start + 100);
    assert_int_equal(tm_env_virtual_last_signal(env, first), 0);
    assert_int_equal(env->process_signal(env, first, 15, &e), 0);
    assert_int_equal(tm_env_virtual_last_signal(env, first), 15);
    assert_int_equal(tm_env_virtual_last_signal(env, second), 0);
    tm_env_virtual_exit(env, first, 128 + 15);
    assert_int_equal(env->process_wait(env, first, 100, &status, &e), 0);
    assert_int_equal(status, 143);
    assert_int_equal(env->process_wait(env, first, 100, &status, &e), -(int)TM_EIO);
    assert_int_equal(env->process_signal(env, first, 9, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(env->process_signal(env, 77, 9, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(tm_env_virtual_last_signal(env, 77), 0);
    tm_env_virtual_exit(env, 77, 0);
    assert_int_equal(env->now_ms(env), start + 100);
}

static void test_too_many_of_everything(void **state)
{
    struct tm_env *env = *state;
    static const char *const argv[] = {"worker", NULL};
    char bound[TM_ADDRESS_MAX];
    int handle = 0;
    for (int i = 0; i < 16384; i++) {
        assert_row(env->process_start(env, argv, &handle, NULL) == 0, "process %d", i);
        assert_row(env->net_listen(env, "node:0", &handle, bound, NULL) == 0, "listener %d", i);
    }
    struct tm_error e = {0};
    assert_int_equal(env->process_start(env, argv, &handle, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "no room for another process");
    assert_int_equal(env->net_listen(env, "node:0", &handle, bound, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "no room for another connection");
}

static int live_once(void)
{
    static const char *const argv[] = {"worker", NULL};
    struct tm_env *env = tm_env_virtual_create(1);
    if (env == NULL) return -(int)TM_ENOMEM;
    struct tm_text out;
    char bound[TM_ADDRESS_MAX];
    int listener = 0;
    int near = 0;
    int far = 0;
    int pid = 0;
    size_t done = 0;
    tm_text_init(&out, 100);
    int rc = tm_env_virtual_set_variable(env, "A", "x");
    if (rc == 0) rc = env->file_write(env, "/a", "x", 1, NULL);
    if (rc == 0) rc = env->file_read(env, "/a", &out, NULL);
    if (rc == 0) rc = env->net_listen(env, "node:0", &listener, bound, NULL);
    if (rc == 0) rc = env->net_connect(env, bound, &near, NULL);
    if (rc == 0) rc = env->net_accept(env, listener, &far, NULL);
    if (rc == 0) rc = env->net_send(env, near, "x", 1, &done, NULL);
    if (rc == 0) rc = env->process_start(env, argv, &pid, NULL);
    tm_text_deinit(&out);
    tm_env_virtual_destroy(env);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = live_once());
}

/* A write that finds no memory leaves the file as it was. */
static void test_a_failed_write_changes_nothing(void **state)
{
    struct tm_env *env = *state;
    struct tm_text out;
    tm_text_init(&out, 100);
    assert_int_equal(env->file_write(env, "/a", "old", 3, NULL), 0);
    tm_alloc_fail_at(1);
    int rc = env->file_write(env, "/a", "new", 3, NULL);
    tm_alloc_fail_at(0);
    assert_int_equal(rc, -(int)TM_ENOMEM);
    assert_int_equal(env->file_read(env, "/a", &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "old");
    tm_text_deinit(&out);
}

#define ENV_TEST(function) cmocka_unit_test_setup_teardown(function, make_env, drop_env)

TM_TEST_MAIN(ENV_TEST(test_time_moves_when_told), ENV_TEST(test_randomness_comes_from_the_seed),
             ENV_TEST(test_variables), ENV_TEST(test_files), ENV_TEST(test_the_nth_write_fails),
             ENV_TEST(test_bytes_go_both_ways), ENV_TEST(test_a_full_queue_would_block),
             ENV_TEST(test_close_lets_the_rest_through), ENV_TEST(test_cut), ENV_TEST(test_wait),
             ENV_TEST(test_addresses), ENV_TEST(test_connections_that_take_time), ENV_TEST(test_output_and_modes),
             ENV_TEST(test_processes), ENV_TEST(test_too_many_of_everything), TM_TEST(test_without_memory),
             ENV_TEST(test_a_failed_write_changes_nothing))

/* Lists of hosts, as people have them for mpirun. */
#include "base/test/harness.h"
#include "cloud/host_list.h"

#include <string.h>

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *name;
        const char *port;
        int slots;
        bool gpus;
    } rows[] = {
        {"gpu1", "gpu1", "", 1, false},
        {"  gpu1 slots=8  # the big one", "gpu1", "", 8, false},
        {"me@gpu2:2222 gpus=4", "me@gpu2", "2222", 4, true},
        {"10.0.0.7:22", "10.0.0.7", "22", 1, false},
        {"fe80::1%eth0", "fe80::1%eth0", "", 1, false},
        {"me@[2001:db8::1]:2200", "me@2001:db8::1", "2200", 1, false},
        {"[::1]", "::1", "", 1, false},
        {"gpu1\tslots=2\r", "gpu1", "", 2, false},
        {"gpu1 slots=4 max_slots=8", "gpu1", "", 4, false},
        {"gpu1 max-slots=8 slots=4", "gpu1", "", 4, false},
        {"gpu1 max_slots=100", "gpu1", "", 1, false},
        {"gpu1 gpus=4 max_slots=4", "gpu1", "", 4, true},
        {"gpu1:8", "gpu1", "", 8, false}, /* Hydra */
        {"me@gpu1:64 # cores", "me@gpu1", "", 64, false},
        {"[2001:db8::1]:4", "2001:db8::1", "", 4, false},
        {"gpu1:8 max_slots=8", "gpu1", "", 8, false},
        {"gpu1:8 slots=2", "gpu1", "8", 2, false}, /* then it is a port */
        {"gpu1:8 gpus=1", "gpu1", "8", 1, true},
        {"gpu1:222", "gpu1", "222", 1, false},
        {"gpu1:443", "gpu1", "443", 1, false},
        {"gpu1:1024", "gpu1", "1024", 1, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_host host = {.slots = 0};
        struct tm_error e = {.text = ""};
        bool empty = true;
        int rc = tm_host__parse("a:1", rows[i].line, strlen(rows[i].line), &host, &empty, &e);
        assert_row(rc == 0 && !empty, "%s: %s", rows[i].line, e.text);
        assert_row(strcmp(host.name, rows[i].name) == 0 && strcmp(host.port, rows[i].port) == 0 &&
                       host.slots == rows[i].slots && host.gpus == rows[i].gpus,
                   "%s: %s %s %d", rows[i].line, host.name, host.port, host.slots);
    }
}

static void test_wrong(void **state)
{
    (void)state;
    static const char *const lines[] = {"-oProxyCommand=x",
                                        "gpu1;reboot",
                                        "gpu1 slots=0",
                                        "gpu1 slots=65",
                                        "gpu1 8",
                                        "gpu1:0",
                                        "gpu1:70000",
                                        "gpu1 slots=1 x",
                                        "$(reboot)",
                                        "[::1",
                                        "@gpu1",
                                        "gpu1:",
                                        "[]:22",
                                        "gpu[1-4]",
                                        "gpu[1-4]:22",
                                        "me@gpu[01,03]",
                                        "[gpu1]",
                                        "gpu1 slots=4 max_slots=2",
                                        "gpu1 slots=1 slots=2",
                                        "gpu1 slots=1 gpus=1",
                                        "gpu1 max_slots=0"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct tm_host host;
        struct tm_error e = {.text = ""};
        bool empty = true;
        assert_row(tm_host__parse("a:1", lines[i], strlen(lines[i]), &host, &empty, &e) == -(int)TM_EINPUT, "%s",
                   lines[i]);
        assert_row(strstr(e.text, "a:1: expected") != NULL, "%s", e.text);
    }
}

/* More slots than there can be, or a port that nobody has for ssh: what it was taken for is said, and both remedies. */
static void test_hydra(void **state)
{
    (void)state;
    struct tm_host host;
    struct tm_error e = {.text = ""};
    bool empty = true;
    assert_int_equal(tm_host__parse("a:1", "n1:128", 6, &host, &empty, &e), -(int)TM_EINPUT);
    assert_error_has(e,
                     "a:1: n1:128: as Hydra writes it these are 128 slots, and at most 64 are used; write n1 slots=N, "
                     "or n1:128 slots=1 if it is the port of ssh");
    assert_int_equal(tm_host__parse("a:1", "n1:8 max_slots=4", 16, &host, &empty, &e), -(int)TM_EINPUT);
    assert_error_has(e, "n1 has 8 slots, more than max_slots=4");
}

static void test_list(void **state)
{
    (void)state;
    static struct tm_host hosts[TM_HOSTS_MAX];
    static const char good[] = "# mine\n\ngpu1 slots=2\nme@gpu1\n";
    static const char again[] = "gpu1\ngpu2\ngpu1 slots=3\ngpu1:2222\n"; /* and as $PBS_NODEFILE has them */
    static const char both[] = "gpu1 gpus=2\ngpu1\n";
    static const char many[] = "gpu1 slots=64\ngpu1\n";
    static const char none[] = "# nothing\n";
    struct tm_error e = {.text = ""};
    size_t count = 0;
    assert_int_equal(tm_hosts_parse("list", good, strlen(good), hosts, &count, &e), 0);
    assert_int_equal(count, 2);
    assert_int_equal(tm_hosts_parse("list", again, strlen(again), hosts, &count, &e), 0);
    assert_int_equal(count, 3); /* another port is another sshd */
    assert_true(hosts[0].slots == 4 && hosts[1].slots == 1 && hosts[2].slots == 1);
    assert_int_equal(tm_hosts_parse("list", both, strlen(both), hosts, &count, &e), -(int)TM_EINPUT);
    assert_error_has(e, "list:2: gpu1 is there with gpus and without");
    assert_int_equal(tm_hosts_parse("list", many, strlen(many), hosts, &count, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "list:2: gpu1 has more than 64 slots");
    assert_int_equal(tm_hosts_parse("list", none, strlen(none), hosts, &count, &e), -(int)TM_EINPUT);
    assert_error_has(e, "there is no host in it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_hydra),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

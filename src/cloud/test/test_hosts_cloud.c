/* Hosts that do not answer, on a virtual clock: when they are tried again. What a host itself does is tried in
 * test_cloud_suite.c and, with real sshd, in tests/hosts. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "cloud/hosts_internal.h"

#include <inttypes.h>

enum { SSH_FAILED = 255 };

static int give_ticket(void *context, uint64_t id, const char *host, char out[TM_HOSTS_TICKET_MAX], struct tm_error *e)
{
    (void)context;
    (void)id;
    (void)host;
    (void)out;
    return tm_error_set(e, TM_EUSAGE, "nobody gets so far");
}

static struct tm_cloud *open_one(struct tm_env *env, const struct tm_host *host, bool resumed)
{
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    struct tm_hosts_options options = {.hosts = host,
                                       .host_count = 1,
                                       .program = "/program",
                                       .arguments = "agent",
                                       .state_dir = "/state",
                                       .name = "test",
                                       .resumed = resumed,
                                       .ticket = give_ticket};
    assert_row(env->file_write(env, "/program", "x", 1, &e) == 0, "%s", e.text);
    assert_row(tm_hosts_cloud_create(env, &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

static void serve(struct tm_cloud *cloud)
{
    struct tm_cloud_event event;
    struct tm_error e = {.text = ""};
    int rc = cloud->next(cloud, 0, &event, &e);
    assert_row(rc == -(int)TM_ETIMEOUT, "%d: %s", rc, e.text); /* nobody arrives, so nobody is lost */
}

/* Each wait is twice the one before, up to a minute, and nothing is begun while it lasts. */
static void test_waits(void **state)
{
    (void)state;
    static const int64_t waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60};
    const struct tm_host host = {.name = "one", .slots = 1};
    struct tm_env *env = tm_env_virtual_create(3);
    struct tm_cloud *cloud = open_one(env, &host, false);
    const struct tm_hosts__slot *slot = ((const struct tm_hosts__cloud *)cloud->self)->slots;
    assert_int_equal(cloud->want(cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    serve(cloud);
    for (size_t i = 0; i < TM_COUNT(waits_s); i++) {
        assert_row(slot->pid > 0, "attempt %zu is made", i);
        tm_env_virtual_exit(env, slot->pid, SSH_FAILED);
        serve(cloud);
        tm_env_virtual_advance(env, waits_s[i] * 1000 - 1);
        serve(cloud);
        assert_row(slot->pid == 0, "wait %zu is %" PRId64 " s, not less", i, waits_s[i]);
        tm_env_virtual_advance(env, 1);
        serve(cloud);
        assert_row(slot->pid > 0, "wait %zu is %" PRId64 " s, not more", i, waits_s[i]);
    }
    tm_env_virtual_exit(env, slot->pid, SSH_FAILED);
    serve(cloud);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    tm_env_virtual_destroy(env);
}

/* After a crash it is looked into slots before anything is begun; of a host that does not answer, into one. */
static void test_looks(void **state)
{
    (void)state;
    const struct tm_host host = {.name = "one", .slots = 3};
    struct tm_env *env = tm_env_virtual_create(3);
    struct tm_cloud *cloud = open_one(env, &host, true);
    const struct tm_hosts__slot *slots = ((const struct tm_hosts__cloud *)cloud->self)->slots;
    size_t count = 0;
    serve(cloud); /* whatever is wanted */
    assert_int_equal(slots[0].doing, TM_HOSTS_LOOKING);
    assert_int_equal(cloud->want(cloud, TM_CLOUD_SPOT, 1, NULL), 0);
    serve(cloud);
    (void)cloud->instances(cloud, &count);
    assert_int_equal(count, 0);
    tm_env_virtual_exit(env, slots[0].pid, SSH_FAILED);
    serve(cloud);
    for (size_t i = 0; i < 3; i++)
        assert_false(slots[i].unknown);
    assert_int_equal(slots[1].doing, TM_HOSTS_ASKING); /* it is wanted, and may answer by now */
    tm_env_virtual_exit(env, slots[1].pid, SSH_FAILED);
    serve(cloud);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_waits), TM_TEST(test_looks))

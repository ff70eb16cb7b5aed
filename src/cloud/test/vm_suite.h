/* The common suite (cloud_suite.h) on clouds of VMs (vm_cloud.h), against a service for tests that speaks like the real
 * one. Its VMs do not boot: whoever is named by it counts as joined. */
#ifndef TM_CLOUD_TEST_VM_SUITE_H
#define TM_CLOUD_TEST_VM_SUITE_H

#include "base/debug.h"
#include "base/test/tempdir.h"
#include "cloud/test/suite_parts.h"
#include "cloud/vm_cloud.h"

#include <signal.h>
#include <stdlib.h>

struct vm_place {
    struct tm_tempdir dir;
    struct tm_cloud_pool pools[2];
    const char *bucket;
    char program[300];
    uint64_t run;
};

static int vm_suite_ticket(void *context, uint64_t id, bool on_demand, char out[TM_VM_TICKET_MAX], struct tm_error *e)
{
    (void)context;
    (void)e;
    assert_false(on_demand);
    (void)snprintf(out, TM_VM_TICKET_MAX, "tmt1_%" PRIu64, id);
    return 0;
}

static bool vm_suite_joined(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    return true;
}

static uint64_t vm_suite_number(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static struct tm_vm_options vm_suite_options(const struct vm_place *p, uint64_t id_first)
{
    return (struct tm_vm_options){.pools = p->pools,
                                  .pool_count = 2,
                                  .job = "Suite of clouds",
                                  .owner = "some body",
                                  .run = p->run,
                                  .bucket = p->bucket,
                                  .prefix = "clouds",
                                  .program = p->program,
                                  .setup = "echo it's me",
                                  .state_dir = p->dir.path,
                                  .log_dir = p->dir.path,
                                  .id_first = id_first,
                                  .life_ms = (int64_t)vm_suite_number("TIDEMILL_TEST_LIFE_S") * 1000,
                                  .poll_ms = 300,
                                  .ticket = vm_suite_ticket,
                                  .has_joined = vm_suite_joined};
}

/* The machine itself; for a drive (below) with a clock that is wrong, and the end of the program at a file that it
 * writes or removes: of so many, before that (N) or after (N+). */
static struct {
    struct tm_env env;
    struct tm_env *real;
    int64_t skew_ms;
    int files, kill_at;
    bool kill_after;
} vm_suite_world;

static int64_t vm_suite_now_ms(struct tm_env *env)
{
    (void)env;
    return vm_suite_world.real->now_ms(vm_suite_world.real) + vm_suite_world.skew_ms;
}

static void vm_suite_file(bool after)
{
    if (!after) vm_suite_world.files++;
    if (vm_suite_world.files == vm_suite_world.kill_at && vm_suite_world.kill_after == after) (void)raise(SIGKILL);
}

static int vm_suite_write(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e)
{
    vm_suite_file(false);
    int rc = vm_suite_world.real->file_write_private(env, path, data, length, e);
    vm_suite_file(true);
    return rc;
}

static int vm_suite_remove(struct tm_env *env, const char *path, struct tm_error *e)
{
    vm_suite_file(false);
    int rc = vm_suite_world.real->file_remove(env, path, e);
    vm_suite_file(true);
    return rc;
}

static struct tm_env *vm_suite_env(void)
{
    if (vm_suite_world.real != NULL) return &vm_suite_world.env;
    const char *kill_at = getenv("TIDEMILL_TEST_KILL");
    const char *skew_s = getenv("TIDEMILL_TEST_SKEW_S");
    vm_suite_world.real = tm_env_real();
    vm_suite_world.env = *vm_suite_world.real;
    vm_suite_world.env.now_ms = vm_suite_now_ms;
    vm_suite_world.env.file_write_private = vm_suite_write;
    vm_suite_world.env.file_remove = vm_suite_remove;
    if (skew_s != NULL) vm_suite_world.skew_ms = strtoll(skew_s, NULL, 10) * 1000;
    if (kill_at != NULL) vm_suite_world.kill_at = (int)strtol(kill_at, NULL, 10);
    vm_suite_world.kill_after = kill_at != NULL && strchr(kill_at, '+') != NULL;
    return &vm_suite_world.env;
}

/* A run as small as it goes, in a folder that stays (TIDEMILL_TEST_DRIVE): two instances come, the file `here` says so,
 * one is given back, and everything. tests/clouds/vm_points.py ends it at every point. Its status is 3 where the cloud
 * cannot be used, and it says why. */
static void vm_suite_drive(const struct cloud_place *how)
{
    const struct vm_place *p = how->context;
    assert_int_equal(tm_debug_open(tm_env_real(), NULL), 0);
    struct tm_cloud *cloud = how->open(how->context, false, 1);
    struct tm_cloud_event event;
    struct tm_error e = {.text = ""};
    char path[300];
    int rc = cloud->want(cloud, TM_CLOUD_SPOT, 2, &e);
    for (int i = 0; i < 3 * SUITE_STEPS && suite_here(cloud) < 2 && (rc == 0 || rc == -(int)TM_ETIMEOUT); i++)
        rc = cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, &e);
    int here = suite_here(cloud);
    (void)snprintf(path, sizeof path, "%.250s/here", p->dir.path);
    if (here == 2) (void)vm_suite_world.real->file_write(vm_suite_world.real, path, "2\n", 2, NULL);
    struct tm_env *real = vm_suite_world.real;
    int64_t stay_ns = real->monotonic_ns(real) + (int64_t)vm_suite_number("TIDEMILL_TEST_STAY_S") * 1000000000;
    while (here == 2 && real->monotonic_ns(real) < stay_ns && (rc == 0 || rc == -(int)TM_ETIMEOUT))
        rc = cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, &e);
    size_t count = 0;
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    for (size_t i = 0; here == 2 && i < count; i++) {
        if (!tm_instance_is_here(&all[i])) continue;
        assert_int_equal(cloud->release(cloud, all[i].id, &e), 0);
        (void)suite_await(cloud, TM_CLOUD_RELEASED);
        break;
    }
    struct tm_error last = {.text = ""};
    int ended = cloud->destroy(cloud, &last);
    (void)fprintf(stderr, "drive: %d here, files %d; %s; %s\n", here, vm_suite_world.files,
                  rc == -(int)TM_ETIMEOUT ? "" : e.text, last.text);
    if (here != 2 || ended != 0) exit(here != 2 && ended == 0 && rc != -(int)TM_ETIMEOUT ? 3 : 4);
}

static void vm_suite_open_failed(const struct tm_error *e)
{
    if (getenv("TIDEMILL_TEST_DRIVE") == NULL) return;
    (void)fprintf(stderr, "drive: not opened: %s\n", e->text);
    exit(3);
}

/* `variable` names the bucket; it is not set where there is no service to try this on. */
static void vm_suite(const char *variable, const char *type, const char *zone, struct cloud_place how)
{
    const char *drive = getenv("TIDEMILL_TEST_DRIVE");
    const char *other_zone = getenv("TIDEMILL_TEST_ZONE");
    struct vm_place p = {.bucket = getenv(variable), .run = (uint64_t)getpid() << 20};
    struct tm_error e = {.text = ""};
    char words[32];
    if (p.bucket == NULL) skip();
    if (drive != NULL) {
        (void)snprintf(p.dir.path, sizeof p.dir.path, "%s", drive);
        p.run = vm_suite_number("TIDEMILL_TEST_RUN");
    } else {
        tm_tempdir_make(&p.dir);
    }
    tm_cloud_pools__plain(p.pools);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(p.pools[i].type, sizeof p.pools[i].type, "%s", type);
        (void)snprintf(p.pools[i].zone, sizeof p.pools[i].zone, "%s", other_zone != NULL ? other_zone : zone);
        p.pools[i].limit = 3;
        p.pools[i].price_usd_h = 1;
    }
    (void)snprintf(p.program, sizeof p.program, "%.200s/program", p.dir.path);
    (void)snprintf(words, sizeof words, "#! %" PRIu64 "\n", p.run); /* not there yet: it is brought */
    assert_row(tm_env_real()->file_write(tm_env_real(), p.program, words, strlen(words), &e) == 0, "%s", e.text);
    how.context = &p;
    how.limit = 3;
    how.why_no_full = "asked again after minutes only: tests/clouds/vm_points.py";
    how.why_no_notice = "read by the agent on the VM: tests/aws, tests/gcp_full, tests/azure_full";
    how.why_no_points = "each call and file: tests/clouds/vm_points.py";
    if (drive != NULL) {
        vm_suite_drive(&how);
        return;
    }
    cloud_suite(&how);
    tm_tempdir_remove(&p.dir);
}

#endif

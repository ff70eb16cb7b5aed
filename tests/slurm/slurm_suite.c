/* The common suite of clouds on a real Slurm (tests/slurm/cluster.sh): SLURM_CONF names it. Use: slurm-suite FOLDER
 * [ADDRESS], in which `stand` is a script of /bin/sh that stands for an agent; ADDRESS is slurmrestd's. */
#include "cloud/test/suite_parts.h"
#include "cloud/test/suite_web.h"

#include "cloud/slurm_cloud.h"

#include <stdio.h>
#include <stdlib.h>

static const char *folder;
static const char *rest;
static char stand[300];
static uint64_t run; /* 0: each time another, which keeps nothing of the last one */
static const char *command[] = {stand, NULL};
static const struct tm_slurm_pool pools[] = {
    {.partition = "spot", .kind = TM_INSTANCE_SPOT, .limit = 3, .price_usd_h = 1, .notice_ms = -1}};

static struct tm_cloud *open_slurm(void *context, bool again, uint64_t id_first)
{
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    (void)context;
    (void)again;
    struct tm_slurm_options options = {.pools = pools,
                                       .pool_count = 1,
                                       .command = command,
                                       .folder = folder,
                                       .script_dir = folder,
                                       .log_dir = folder,
                                       .rest = rest,
                                       .run = run != 0 ? run : (uint64_t)tm_env_real()->monotonic_ns(tm_env_real()),
                                       .id_last = id_first - 1,
                                       .poll_ms = 500};
    assert_row(tm_slurm_cloud_create(suite_env(), &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

/* Its processes are killed, not its job: there is one. */
static void lose_job(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    (void)instance;
    assert_int_equal(suite_ask("kill -9 $(pgrep -f '^/bin/sh %s ') && echo 1", stand), 1);
}

/* Somebody with more rights wants every node, for a moment; what stands for agents holds on until the grace is over. */
static void preempt(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    (void)instance;
    assert_true(suite_ask("touch %s.stay && sbatch --parsable -p prod -N 6 --exclusive -o /dev/null -D / --wrap true",
                          stand) > 0);
}

/* Others have all nodes but the one that is taken. */
static void fill(void *context, bool full)
{
    static int others;
    (void)context;
    if (!full) {
        assert_int_equal(suite_ask("scancel %d && echo 1", others), 1);
        return;
    }
    others = suite_ask("sbatch --parsable -p prod -N 5 --exclusive -o /dev/null -D / --wrap 'sleep 600'");
    assert_true(others > 0);
    for (int i = 0; i < SUITE_STEPS && suite_ask("squeue -h -j %d -t R -o %%i", others) != others; i++)
        tm_env_real()->sleep_ms(tm_env_real(), SUITE_LONG_MS / SUITE_STEPS);
}

/* The jobs are the same, not only the nodes. */
static int same(void *context)
{
    (void)context;
    return suite_ask("squeue -h -p spot -t R -o %%i | awk '{ n += $1 * $1 } END { print n %% 1000000007 }'");
}

static int alive(void *context)
{
    (void)context;
    return suite_ask("pgrep -fc '^/bin/sh %s '", stand);
}

static void test_suite(void **state)
{
    (void)state;
    struct cloud_place place = {.limit = 3,
                                .open = open_slurm,
                                .lose = lose_job,
                                .alive = alive,
                                .notice = preempt,
                                .full = fill,
                                .why_no_same = "of one run, below"};
    cloud_suite(&place);
    assert_int_equal(suite_ask("rm %s.stay && echo 1", stand), 1);
}

static void test_same(void **state)
{
    (void)state;
    struct cloud_place place = {.limit = 3, .open = open_slurm, .alive = alive, .same = same};
    run = 7;
    suite_adopt(&place);
    run = 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_suite)};
    if (argc != 2 && argc != 3) return 2;
    folder = argv[1];
    rest = argc == 3 ? argv[2] : NULL;
    (void)snprintf(stand, sizeof stand, "%s/stand", folder);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

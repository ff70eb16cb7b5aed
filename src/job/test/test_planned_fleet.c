/* A fleet of pools, as the planner's judge takes it. */
#include "job/planned_fleet.h"

#include "base/test/tempdir.h"
#include "job/job_file.h"

#include <math.h>
#include <string.h>

#define JOB "name: a\nmodel: gpt2-124m\nsteps: 2000\nbatch: 64\n"

/* Judges the fleet of a job file; 0 and *known false: it has none. */
static int judge(const char *path, bool *known, struct tm_judged *out, struct tm_plan_fleet *fleet, struct tm_error *e)
{
    struct tm_run_settings settings;
    struct tm_fleet_layouts layouts;
    struct tm_planned_fleet *planned = tm_calloc(1, sizeof *planned);
    if (planned == NULL) return tm_error_nomem(e);
    tm_run_settings_init(&settings);
    int rc = tm_job_file_load(tm_env_real(), path, &settings, e);
    if (rc == 0) {
        rc = tm_planned_fleet__init(tm_env_real(), &settings, planned, known, e);
        if (rc == 0 && *known) {
            rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &layouts, e);
            if (rc == 0) {
                rc = tm_fleet_judge_policy(&planned->judge, &planned->request, &planned->fleet, &layouts,
                                           tm_policy_find("tidemill"), out, e);
                tm_fleet_layouts_deinit(&layouts);
            }
            *fleet = planned->fleet;
        }
        tm_planned_fleet__deinit(planned);
    }
    tm_run_settings_deinit(&settings);
    tm_free(planned);
    return rc;
}

static const char *put(const struct tm_tempdir *dir, const char *text)
{
    const char *path = tm_tempdir_path(dir, "job.yaml");
    assert_int_equal(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), NULL), 0);
    return path;
}

/* What `plan` writes for several types leaves nothing to choose; one word of the user's own, and it does. */
static void mixes_are_known(void **state)
{
#define MIX(pool, more)                                                                                                \
    JOB "fleet: {limit: 6, rent: all, across_types: true, pools: [{instance: g4dn.xlarge, region: us-east-1, limit: "  \
        "4" pool "}, {instance: g5.xlarge, region: " more ", limit: 2}]}\n"
    static const struct {
        const char *job;
        bool mix;
    } rows[] = {
        {MIX("", "us-east-1"), true},
        {MIX(", market: on-demand", "us-east-1"), false},
        {MIX("", "us-west-2"), false},
        {MIX("0", "us-east-1"), false}, /* 40: more than the job may have */
        {MIX(", throughput: 3", "us-east-1"), false},
        {JOB "fleet: {limit: 6, pools: [{instance: g4dn.xlarge, region: us-east-1, limit: 4}]}\n", false},
    };
#undef MIX
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tm_run_settings settings;
        struct tm_error e = {0};
        tm_run_settings_init(&settings);
        assert_row(tm_job_file_load(tm_env_real(), put(&dir, rows[i].job), &settings, &e) == 0, "%s: %s", rows[i].job,
                   e.text);
        assert_row(tm_job_fleet_is_mix(&settings.job.fleet) == rows[i].mix, "%s", rows[i].job);
        tm_run_settings_deinit(&settings);
    }
    tm_tempdir_remove(&dir);
}

/* More time and more money never make it worse; the same file gives the same figures. */
static void limits_are_kept(void **state)
{
    static const struct {
        const char *name, *job;
        bool known;
        int rc;
        const char *says;
    } rows[] = {
        {"no pools", JOB "fleet: {limit: 3}\n", false, 0, NULL},
        {"no model", "name: a\nrun: train\nsteps: 20\nbatch: 64\nfleet: {pools: [{instance: g4dn.xlarge, count: 2}]}\n",
         false, 0, NULL},
        {"unknown type", JOB "fleet: {pools: [{instance: g4dn.huge, count: 2}]}\n", false, -(int)TM_EINPUT,
         "no instance type g4dn.huge"},
        {"spot", JOB "fleet: {pools: [{instance: g4dn.xlarge, count: 4, price: 0.2}]}\n", true, 0, NULL},
    };
    struct tm_tempdir dir;
    (void)state;
    tm_tempdir_make(&dir);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_judged judged, again;
        struct tm_plan_fleet fleet;
        struct tm_error e = {0};
        bool known = false;
        const char *path = put(&dir, rows[i].job);
        int rc = judge(path, &known, &judged, &fleet, &e);
        assert_row(rc == rows[i].rc && known == rows[i].known, "%s: %d %s", rows[i].name, rc, e.text);
        if (rows[i].says != NULL) assert_error_has(e, rows[i].says);
        if (!known) continue;
        assert_row(judged.finishes && fleet.part_count == 1 && fleet.parts[0].spot == 4, "%s", rows[i].name);
        assert_int_equal(judge(path, &known, &again, &fleet, &e), 0);
        assert_memory_equal(&again, &judged, sizeof judged);
    }
    tm_tempdir_remove(&dir);
}

static void more_is_not_worse(void **state)
{
    static const char *const budgets[] = {"0.05", "0.3", "0.6", "1", "5"};
    struct tm_tempdir dir;
    double before = -1;
    (void)state;
    tm_tempdir_make(&dir);
    for (size_t i = 0; i < TM_COUNT(budgets); i++) {
        struct tm_judged judged;
        struct tm_plan_fleet fleet;
        struct tm_error e = {0};
        char job[400];
        bool known = false;
        (void)snprintf(job, sizeof job,
                       JOB "budget: %s\nfleet: {pools: [{instance: g4dn.xlarge, count: 4, price: 0.2}, {instance: "
                           "t3.medium, market: on-demand, role: keeps copies, count: 1, price: 0.04}]}\n",
                       budgets[i]);
        int rc = judge(put(&dir, job), &known, &judged, &fleet, &e);
        assert_row(rc == 0 && known && fleet.anchor_instances == 1, "$%s: %s", budgets[i], e.text);
        assert_row(judged.p_finish >= before, "$%s: %g after %g", budgets[i], judged.p_finish, before);
        before = judged.p_finish;
    }
    assert_true(before == 1);
    tm_tempdir_remove(&dir);
}

/* What the fleet's keys say changes what is expected: nothing is left out without a word. */
static void the_fleet_is_heard(void **state)
{
    static const char *const rows[] = {
        "", "spot_start: 20m", "notice: 0s", "stages_min: 4", "on_demand_start: 30m", "losses: {mean_life: 1h}"};
    struct tm_tempdir dir;
    double usual_s = 0;
    (void)state;
    tm_tempdir_make(&dir);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_judged judged;
        struct tm_plan_fleet fleet;
        struct tm_error e = {0};
        char job[400];
        bool known = false;
        (void)snprintf(job, sizeof job, JOB "fleet: {pools: [{instance: g4dn.xlarge, count: 4, price: 0.2%s}]%s%s}\n",
                       i < 5 ? ", mean_life: 2h" : "", i > 0 ? ", " : "", rows[i]);
        int rc = judge(put(&dir, job), &known, &judged, &fleet, &e);
        assert_row(rc == 0 && known, "%s: %s", rows[i], e.text);
        if (i == 0) usual_s = judged.time_s.mean;
        assert_row(i == 0 || judged.time_s.mean != usual_s, "%s: %g as usual", rows[i], usual_s);
    }
    tm_tempdir_remove(&dir);
}

static void without_memory(void **state)
{
    struct tm_tempdir dir;
    struct tm_judged judged;
    struct tm_plan_fleet fleet;
    bool known;
    (void)state;
    tm_tempdir_make(&dir);
    const char *path = put(&dir, JOB "fleet: {pools: [{instance: g4dn.xlarge, count: 2, price: 0.2}]}\n");
    for (long n = 1; n < 3000; n += 1 + n / 3) { /* the catalogue alone takes thousands */
        long live = tm_alloc_live();
        tm_alloc_fail_at(n);
        int rc = judge(path, &known, &judged, &fleet, NULL);
        bool failed = tm_alloc_failed();
        tm_alloc_fail_at(0);
        assert_row(!failed || rc == -(int)TM_ENOMEM || rc == 0, "allocation %ld: %d", n, rc);
        assert_int_equal(tm_alloc_live(), live);
    }
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(mixes_are_known), TM_TEST(limits_are_kept), TM_TEST(more_is_not_worse),
             TM_TEST(the_fleet_is_heard), TM_TEST(without_memory))

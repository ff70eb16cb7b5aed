/* How long instances are waited for: learned, asked for, and a file that somebody broke. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "market/starts.h"

#include <math.h>
#include <string.h>

static struct tm_env *open_env(void)
{
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    return env;
}

static double ask(struct tm_env *env, const char *cloud, const char *place)
{
    struct tm_error e = {.text = ""};
    double wait_s = -1;
    assert_row(tm_starts_ask(env, cloud, place, &wait_s, &e) == 0, "%s", e.text);
    return wait_s;
}

static void learn(struct tm_env *env, const char *place, double seen, double seconds)
{
    struct tm_error e = {.text = ""};
    struct tm_start wait = {.cloud = "slurm", .seen = seen, .seconds = seconds};
    (void)snprintf(wait.place, sizeof wait.place, "%s", place);
    assert_row(tm_starts_learn(env, &wait, 1, &e) == 0, "%s", e.text);
}

static void test_learned(void **state)
{
    (void)state;
    struct tm_env *env = open_env();
    assert_true(isnan(ask(env, "slurm", "spot")));
    learn(env, "spot", 1, 10);
    learn(env, "spot", 3, 50);
    assert_true(fabs(ask(env, "slurm", "spot") - 40) < 1e-9);
    assert_true(isnan(ask(env, "slurm", "prod")) && isnan(ask(env, "other", "spot")));
    learn(env, "spot", 1e6, 100); /* whatever there was: what is newer outweighs it */
    learn(env, "spot", 20, 200);
    assert_true(ask(env, "slurm", "spot") >= 150);
    learn(env, "with, comma", 1, 5); /* no such name can be kept: nothing else suffers */
    assert_true(ask(env, "slurm", "spot") >= 150);
    for (int i = 0; i < TM_STARTS_MAX + 3; i++) {
        char place[20];
        (void)snprintf(place, sizeof place, "p%d", i);
        learn(env, place, 1, i);
    }
    assert_true(isnan(ask(env, "slurm", "p2")) && ask(env, "slurm", "p3") == 3);
    tm_env_virtual_destroy(env);
}

/* What was waited for in vain: it raises what is known, and never lowers it. */
static void test_in_vain(void **state)
{
    (void)state;
    struct tm_env *env = open_env();
    struct tm_start wait = {.cloud = "slurm", .place = "spot", .seen = 1, .seconds = 30, .at_least = true};
    assert_int_equal(tm_starts_learn(env, &wait, 1, NULL), 0);
    assert_true(ask(env, "slurm", "spot") == 30);
    wait.seconds = 10;
    assert_int_equal(tm_starts_learn(env, &wait, 1, NULL), 0);
    assert_true(ask(env, "slurm", "spot") == 30);
    wait.seconds = 50;
    assert_int_equal(tm_starts_learn(env, &wait, 1, NULL), 0);
    assert_true(ask(env, "slurm", "spot") == 40);
    tm_env_virtual_destroy(env);
}

/* Of a type in a zone: what was seen there, else in the region, else anywhere; never of another cloud or type. */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *cloud, *type, *zone;
        double s;
    } rows[] = {{"slurm", "p3.2xlarge", "us-east-1b", 60}, {"slurm", "p3.2xlarge", "us-east-1a", 30},
                {"slurm", "p3.2xlarge", "us-east-1", 50},  {"slurm", "p3.2xlarge", "eu-west-1", 65},
                {"slurm", "p3.2xlarge", "", 65},           {"slurm", "p3.2xlarge", "use1-az4", 65},
                {"slurm", "p3.2", "us-east-1b", NAN},      {"aws", "p3.2xlarge", "us-east-1b", NAN}};
    struct tm_env *env = open_env();
    struct tm_error e = {.text = ""};
    learn(env, "p3.2xlarge/us-east-1a", 1, 30);
    learn(env, "p3.2xlarge/us-east-1b", 2, 60);
    learn(env, "p3.2xlarge/us-west-2a", 1, 110);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double s = -1;
        assert_int_equal(tm_starts_ask_type(env, rows[i].cloud, rows[i].type, rows[i].zone, &s, &e), 0);
        assert_row(isnan(rows[i].s) ? isnan(s) : fabs(s - rows[i].s) < 1e-9, "%s in %s: %g", rows[i].type, rows[i].zone,
                   s);
    }
    tm_env_virtual_destroy(env);
}

static void test_files(void **state)
{
    (void)state;
    static const struct {
        const char *row, *text, *says;
        size_t count;
    } rows[] = {
        {"empty", "", NULL, 0},
        {"header", "cloud,place,seen,seconds\n", NULL, 0},
        {"one", "cloud,place,seen,seconds\nslurm,spot,2,30\n", NULL, 1},
        {"no end of line", "slurm,spot,2,30", NULL, 1},
        {"too few", "slurm,spot,2\n", "f:1: expected", 0},
        {"too many", "cloud,place,seen,seconds\nslurm,spot,2,3,4\n", "f:2: expected", 0},
        {"not a number", "slurm,spot,x,3\n", "f:1: expected", 0},
        {"nothing seen", "slurm,spot,0,3\n", "f:1: expected", 0},
        {"less than nothing", "slurm,spot,1,-3\n", "f:1: expected", 0},
    };
    static struct tm_start list[TM_STARTS_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_error e = {.text = ""};
        size_t count = 0;
        int rc = tm_starts__parse("f", rows[i].text, strlen(rows[i].text), list, &count, &e);
        assert_row((rc == 0) == (rows[i].says == NULL), "%s: %s", rows[i].row, e.text);
        if (rows[i].says != NULL) assert_row(strstr(e.text, rows[i].says) != NULL, "%s: %s", rows[i].row, e.text);
        assert_row(count == rows[i].count, "%s", rows[i].row);
    }
}

static int learn_and_ask(struct tm_env *env)
{
    struct tm_error e;
    struct tm_start wait = {.cloud = "slurm", .place = "spot", .seen = 1, .seconds = 7};
    double wait_s = 0;
    int rc = tm_starts_learn(env, &wait, 1, &e);
    return rc == 0 ? tm_starts_ask(env, "slurm", "spot", &wait_s, &e) : rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_env *env = open_env();
    assert_int_equal(learn_and_ask(env), 0); /* the file is there from now on */
    TM_FAIL_EACH_ALLOC(rc = learn_and_ask(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_learned), TM_TEST(test_in_vain), TM_TEST(test_types), TM_TEST(test_files),
             TM_TEST(test_memory))

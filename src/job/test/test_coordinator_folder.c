/* The state folder of a job on machines of the user's own: what is there stays, and who changes it is told. */
#include "job/coordinator_folder.h"

#include "base/test/tempdir.h"

static const char job[] = "name: a\nrun: python train.py\nsteps: 10\nbatch: 8\n";

static int make(const struct tm_tempdir *dir, const char *copies, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char state[TM_STATE_PATH_MAX];
    char shared[TM_STATE_PATH_MAX];
    struct tm_arena arena;
    struct tm_coordinator_folder made = {.tls = false};
    (void)snprintf(path, sizeof path, "%s/job.yaml", dir->path);
    (void)snprintf(state, sizeof state, "%s/state", dir->path);
    (void)snprintf(shared, sizeof shared, "%s/%s", dir->path, copies);
    struct tm_coordinator_request request = {.path = path, .state = state, .copies = shared};
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_coordinator_folder_make(tm_env_real(), &request, &arena, &made, e);
    tm_arena_deinit(&arena);
    return rc;
}

static void put(const struct tm_tempdir *dir, const char *text)
{
    char path[TM_STATE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/job.yaml", dir->path);
    assert_int_equal(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), NULL), 0);
}

static void test_shared_copies(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_error e = {0};
    char shared[TM_STATE_PATH_MAX];
    tm_tempdir_make(&dir);
    put(&dir, job);
    assert_int_equal(make(&dir, "none/of/them", &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "--copies: ");
    assert_row(make(&dir, "first", &e) == 0, "%s", e.text);
    assert_row(make(&dir, "first", &e) == 0, "%s", e.text);
    assert_int_equal(make(&dir, "second", &e), -(int)TM_EUSAGE);
    assert_error_has(e, "/first; leave it out");
    (void)snprintf(shared, sizeof shared, "%s/first", dir.path);
    assert_int_equal(tm_env_real()->file_remove(tm_env_real(), shared, &e), 0);
    assert_int_equal(make(&dir, "second", &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "state/copies does not lead there any more");
    TM_FAIL_EACH_ALLOC(rc = make(&dir, "first", NULL));
    tm_tempdir_remove(&dir);
}

static void test_another_job(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_error e = {0};
    tm_tempdir_make(&dir);
    put(&dir, job);
    assert_row(make(&dir, "first", &e) == 0, "%s", e.text);
    put(&dir, "name: a\nrun: python train.py\nsteps: 11\nbatch: 8\n");
    assert_int_equal(make(&dir, "first", &e), -(int)TM_EINPUT);
    assert_error_has(e, "use another --state to start over");
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_shared_copies), TM_TEST(test_another_job))

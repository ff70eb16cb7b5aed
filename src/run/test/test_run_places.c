/* Where runs are that do not lie among the others. */
#include "run/run_places.h"

#include "base/test/tempdir.h"

struct seen {
    int count;
    char last[256];
};

static int take(void *context, const char *dir, struct tm_error *e)
{
    struct seen *seen = context;
    (void)e;
    seen->count++;
    (void)snprintf(seen->last, sizeof seen->last, "%s", dir);
    return 0;
}

static struct seen places(const char *root)
{
    struct seen seen = {0};
    assert_int_equal(tm_run_places_each(tm_env_real(), root, take, &seen, NULL), 0);
    return seen;
}

static void test_places(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_tempdir root, away;
    char path[512];
    tm_tempdir_make(&root);
    tm_tempdir_make(&away);
    assert_int_equal(places(root.path).count, 0);
    (void)snprintf(path, sizeof path, "%s/inside", root.path);
    tm_run_places_add(env, root.path, path); /* is found without */
    assert_int_equal(places(root.path).count, 0);
    for (int i = 0; i < 2; i++) /* once, however often */
        tm_run_places_add(env, root.path, away.path);
    struct seen seen = places(root.path);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last, away.path);
    struct tm_tempdir second;
    tm_tempdir_make(&second);
    (void)snprintf(path, sizeof path, "%s/", root.path); /* the root may end so */
    tm_run_places_add(env, path, second.path);
    assert_int_equal(places(root.path).count, 2);
    tm_tempdir_remove(&away); /* is struck out by the next that comes */
    assert_int_equal(places(root.path).count, 2);
    tm_run_places_add(env, root.path, second.path);
    seen = places(root.path);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last, second.path);
    /* What nobody here has written is passed over. */
    assert_int_equal(env->file_write(env, tm_tempdir_path(&root, ".elsewhere/nonsense"), "relative", 8, NULL), 0);
    assert_int_equal(env->file_write(env, tm_tempdir_path(&root, ".elsewhere/none"), "", 0, NULL), 0);
    assert_int_equal(env->file_write(env, tm_tempdir_path(&root, ".elsewhere/zero"), "/a\0b", 4, NULL), 0);
    assert_int_equal(places(root.path).count, 1);
    tm_tempdir_remove(&second);
    tm_tempdir_remove(&root);
}

TM_TEST_MAIN(TM_TEST(test_places))

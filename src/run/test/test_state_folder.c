/* The folder of a run: its token, and who runs it. */
#include "run/state_folder.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "base/test/tempdir.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void a_token_is_made_once(void **state)
{
    struct tm_env *env = tm_env_virtual_create(3);
    char first[TM_STATE_TOKEN_MAX];
    char again[TM_STATE_TOKEN_MAX];
    uint64_t job = 0;
    struct tm_error e;
    (void)state;
    assert_row(tm_state_token(env, "/s", first, &e) == 0, "%s", e.text);
    assert_int_equal(tm_state_token(env, "/s", again, &e), 0);
    assert_string_equal(first, again);
    assert_int_equal(tm_token_job(first, &job, &e), 0);
    assert_true(job != 0);
    tm_env_virtual_destroy(env);
}

static void what_is_no_token_is_refused(void **state)
{
    static const char *const rows[] = {"x",
                                       "0123456789abcdef",
                                       "0000000000000000-0123456789abcdef0123456789abcdef",
                                       "0123456789abcdeg-0123456789abcdef0123456789abcdef",
                                       "0123456789abcdef-0123456789abcdef0123456789abcde",
                                       "0123456789ABCDEF-0123456789abcdef0123456789abcdef",
                                       "0123456789abcdef-0123456789abcdef0123456789abcdef0"};
    struct tm_env *env = tm_env_virtual_create(3);
    char token[TM_STATE_TOKEN_MAX];
    struct tm_error e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tm_state_write(env, "/s", TM_STATE_TOKEN, rows[i], &e), 0);
        assert_row(tm_token_read(env, "/s/token", token, &e) == -(int)TM_EINPUT, "row %zu", i);
        assert_row(strstr(e.text, "/s/token: ") != NULL, "row %zu: %s", i, e.text);
    }
    assert_int_equal(tm_state_write(env, "/s", TM_STATE_TOKEN, "", &e), 0);
    assert_int_equal(tm_token_read(env, "/s/token", token, &e), -(int)TM_EINPUT);
    tm_env_virtual_destroy(env);
}

/* One program at a time; one that is gone is followed by the next, which ends what it left. */
static void one_owner_at_a_time(void **state)
{
    struct tm_env *env = tm_env_virtual_create(3);
    struct tm_state_owner owner;
    struct tm_state_owner found;
    struct tm_error e;
    int leftovers = -1;
    int pid = 0;
    (void)state;
    assert_int_equal(tm_state__owner(env, "/s", &found, &e), -(int)TM_ENOTFOUND);
    assert_row(tm_state_own(env, "/s", &owner, &leftovers, &e) == 0, "%s", e.text);
    assert_int_equal(leftovers, 0);
    assert_int_equal(tm_state__owner(env, "/s", &found, &e), 0);
    assert_string_equal(found.mark, owner.mark);
    assert_int_equal(tm_state_own(env, "/s", &found, &leftovers, &e), -(int)TM_EBUSY);
    tm_state_disown(env, "/s", &owner);
    assert_int_equal(tm_state__owner(env, "/s", &found, &e), -(int)TM_ENOTFOUND);
    /* Somebody who is gone, and a process that bears its mark. */
    const char *const argv[] = {"coordinator", NULL};
    const char *const variables[] = {"TIDEMILL_RUN_MARK=00000000000000aa", NULL};
    struct tm_process_options options = {.argv = argv, .variables = variables};
    assert_int_equal(env->process_start_with(env, &options, &pid, &e), 0);
    assert_int_equal(tm_state_write(env, "/s", TM_STATE_OWNER, "99999 1 TIDEMILL_RUN_MARK=00000000000000aa", &e), 0);
    assert_row(tm_state_own(env, "/s", &owner, &leftovers, &e) == 0, "%s", e.text);
    assert_int_equal(leftovers, 1);
    tm_state_disown(env, "/s", &owner);
    /* Nonsense is not guessed about. */
    assert_int_equal(tm_state_write(env, "/s", TM_STATE_OWNER, "1 x", &e), 0);
    assert_int_equal(tm_state_own(env, "/s", &owner, &leftovers, &e), -(int)TM_EINPUT);
    tm_env_virtual_destroy(env);
}

static void secrets_are_for_the_owner_alone(void **state)
{
    struct tm_env *env = tm_env_real();
    struct tm_error e;
    struct stat status;
    struct tm_tempdir dir;
    char path[TM_STATE_PATH_MAX];
    char token[TM_STATE_TOKEN_MAX];
    (void)state;
    tm_tempdir_make(&dir);
    assert_row(tm_state_token(env, dir.path, token, &e) == 0, "%s", e.text);
    tm_state_path(dir.path, TM_STATE_TOKEN, path);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    tm_tempdir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_made_once),
        cmocka_unit_test(what_is_no_token_is_refused),
        cmocka_unit_test(one_owner_at_a_time),
        cmocka_unit_test(secrets_are_for_the_owner_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

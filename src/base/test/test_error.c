#include "base/test/harness.h"

#include <errno.h>
#include <string.h>

static void test_set_gives_the_negative_code(void **state)
{
    (void)state;
    struct tm_error e;
    assert_int_equal(tm_error_set(&e, TM_EINPUT, "line %d: got \"%s\"", 3, "x"), -(int)TM_EINPUT);
    assert_int_equal(e.code, TM_EINPUT);
    assert_string_equal(e.text, "line 3: got \"x\"");
    assert_int_equal(tm_error_nomem(&e), -(int)TM_ENOMEM);
    assert_string_equal(e.text, "out of memory");
}

static void test_no_error_struct_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(tm_error_set(NULL, TM_EBUSY, "x"), -(int)TM_EBUSY);
    assert_int_equal(tm_error_wrap(NULL, -5, "x"), -5);
    assert_int_equal(tm_error_nomem(NULL), -(int)TM_ENOMEM);
    assert_int_equal(tm_error_errno(NULL, EACCES, "x"), -(int)TM_EIO);
}

static void test_wrap_puts_context_in_front(void **state)
{
    (void)state;
    struct tm_error e;
    int rc = tm_error_set(&e, TM_EINPUT, "line 3: expected a count");
    rc = tm_error_wrap(&e, rc, "reading trace %s", "a.csv");
    rc = tm_error_wrap(&e, rc, "simulate");
    assert_int_equal(rc, -(int)TM_EINPUT);
    assert_int_equal(e.code, TM_EINPUT);
    assert_string_equal(e.text, "simulate: reading trace a.csv: line 3: expected a count");
}

static void test_errno_becomes_a_code(void **state)
{
    (void)state;
    static const struct {
        int errno_value;
        enum tm_code code;
        const char *text;
    } rows[] = {
        {ENOENT, TM_ENOTFOUND, "opening x: No such file or directory"},
        {EACCES, TM_EIO, "opening x: Permission denied"},
        {ENOSPC, TM_EFULL, "opening x: No space left on device"},
        {ENOMEM, TM_ENOMEM, "opening x: Cannot allocate memory"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e;
        int rc = tm_error_errno(&e, rows[i].errno_value, "opening %s", "x");
        assert_row(rc == -(int)rows[i].code && e.code == rows[i].code, "%s: got %d", rows[i].text, rc);
        assert_row_string(rows[i].text, e.text, rows[i].text);
    }
}

static void assert_cut(const struct tm_error *e, const char *what)
{
    size_t length = strlen(e->text);
    assert_row(length == TM_ERROR_TEXT_MAX - 1, "%s: length %zu", what, length);
    assert_row(strcmp(e->text + length - 3, "...") == 0, "%s: no dots at the end", what);
}

static void test_long_words_end_in_dots(void **state)
{
    (void)state;
    char big[3 * TM_ERROR_TEXT_MAX];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    struct tm_error e;
    (void)tm_error_set(&e, TM_EINPUT, "%s", big);
    assert_cut(&e, "set");
    (void)tm_error_wrap(&e, -1, "outer");
    assert_cut(&e, "wrap of a long text");
    assert_error_has(e, "outer: xxx");
    (void)tm_error_set(&e, TM_EINPUT, "inner");
    (void)tm_error_wrap(&e, -1, "%s", big);
    assert_cut(&e, "long wrap");
    (void)tm_error_errno(&e, EACCES, "%s", big);
    assert_cut(&e, "errno");
    big[TM_ERROR_TEXT_MAX - 1] = '\0'; /* the longest that fits */
    (void)tm_error_set(&e, TM_EINPUT, "%s", big);
    assert_string_equal(e.text, big);
}

static void test_every_code_has_a_row(void **state)
{
    (void)state;
    for (int code = 0; code < TM_CODE_COUNT; code++) {
        const char *name = tm_code__name((enum tm_code)code);
        int status = tm_code_exit_status((enum tm_code)code);
        assert_row(strncmp(name, "TM_", 3) == 0, "code %d: name %s", code, name);
        assert_row(strlen(tm_code__remedy((enum tm_code)code)) > 0, "%s: no remedy", name);
        assert_row(code == TM_OK ? status == 0 : status >= 1 && status <= 3, "%s: status %d", name, status);
    }
    assert_string_equal(tm_code__name(TM_ENONE), "TM_ENONE");
    assert_int_equal(tm_code_exit_status(TM_ENONE), 3);
    assert_int_equal(tm_code_exit_status(TM_EINPUT), 2);
    assert_string_equal(tm_code__name(TM_CODE_COUNT), "TM_E?");
    assert_string_equal(tm_code__remedy(TM_CODE_COUNT), "report a bug");
    assert_int_equal(tm_code_exit_status(TM_CODE_COUNT), 1);
}

static void test_codes_are_grouped_by_loss(void **state)
{
    (void)state;
    assert_true(TM_EINPUT < TM_ENOTFOUND); /* request < object */
    assert_true(TM_EBUSY < TM_ETIMEOUT);   /* object < peer */
    assert_true(TM_ECANCELED < TM_EIO);    /* peer < process */
    assert_true(TM_EIO < TM_ENOMEM);
}

TM_TEST_MAIN(TM_TEST(test_set_gives_the_negative_code), TM_TEST(test_no_error_struct_is_allowed),
             TM_TEST(test_wrap_puts_context_in_front), TM_TEST(test_errno_becomes_a_code),
             TM_TEST(test_long_words_end_in_dots), TM_TEST(test_every_code_has_a_row),
             TM_TEST(test_codes_are_grouped_by_loss))

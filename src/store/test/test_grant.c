/* Requests by URLs that others have granted, where they do not work: with a bucket they are tried by test_join. */
#include "base/test/harness.h"
#include "store/grant.h"

#include <string.h>

static const char nobody[] = "http://127.0.0.1:1/a\nhttp://127.0.0.1:1/b\n"; /* nothing listens there */

static void test_what_does_not_fit(void **state)
{
    (void)state;
    static const struct {
        size_t part_bytes, length;
        const char *says;
    } rows[] = {{0, 10, "parts of no bytes"},
                {10, 10, "granted are 2 requests, and needed 1"},
                {4, 10, "granted are 2 requests, and needed 3"},
                {1, SIZE_MAX / 2, "granted are 2 requests"}};
    struct tm_webs webs;
    struct tm_grant grant;
    struct tm_text tags;
    struct tm_error e;
    tm_webs__init(&webs, tm_env_real());
    tm_grant_init(&grant);
    tm_text_init(&tags, 1000);
    tm_text_puts(&grant.urls, nobody);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        grant.part_bytes = rows[i].part_bytes;
        int rc = tm_grant__up(&grant, &webs, 1, nobody, rows[i].length, &tags, &e);
        assert_row(rc == -(int)TM_EIO && strstr(e.text, rows[i].says) != NULL, "row %zu: %d %s", i, rc, e.text);
    }
    assert_int_equal(tags.length, 0);
    tm_text_deinit(&tags);
    tm_grant_deinit(&grant);
    tm_webs__deinit(&webs);
}

static int move(char *memory)
{
    struct tm_webs webs;
    struct tm_grant grant;
    struct tm_text tags;
    tm_webs__init(&webs, tm_env_real());
    tm_grant_init(&grant);
    tm_text_init(&tags, 1000);
    tm_text_puts(&grant.urls, nobody);
    grant.part_bytes = 5;
    int rc = tm_text_status(&grant.urls, NULL);
    if (rc == 0) rc = tm_grant__up(&grant, &webs, 1, memory, 10, &tags, NULL);
    tm_text_clear(&grant.urls);
    tm_text_append(&grant.urls, nobody, strcspn(nobody, "\n"));
    if (rc == -(int)TM_EPEER) rc = tm_grant__down(&grant, &webs, 1, memory, 10, NULL);
    tm_text_deinit(&tags);
    tm_grant_deinit(&grant);
    tm_webs__deinit(&webs);
    return rc == -(int)TM_EPEER ? 0 : rc;
}

/* Nobody there is an error for now, and no memory is one, too. */
static void test_memory(void **state)
{
    (void)state;
    char memory[10] = "tidemill!";
    TM_FAIL_EACH_ALLOC({ rc = move(memory); });
}

TM_TEST_MAIN(TM_TEST(test_what_does_not_fit), TM_TEST(test_memory))

/* What a member would train, part by part. */
#include "base/test/harness.h"
#include "wire/fingerprint.h"

#include <string.h>

static void test_differs(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        const char *why; /* pieces of it, by '|'; NULL: it does not differ */
    } rows[] = {
        {"lr=0.003", NULL},
        {"lr=0.001", "another job file|lr is 0.001 on this worker|0.003 in the job"},
        {"data=bb (3 bytes)", "another data|bb (3 bytes)|aa (2 bytes)|same data"},
        {"program train.py=2", "another program|train.py|same program"},
        {"clip=1", NULL}, /* only one side knows it */
        {"lr", NULL},     /* no part */
        {"lr=", NULL},
        {"=1", NULL},
        {"", NULL},
    };
    struct tm_fingerprint job = {.count = 0};
    tm_fingerprint_add_lines(&job, "lr=0.003\n\nnonsense\ndata=aa (2 bytes)\nprogram train.py=1\nlr=5");
    assert_int_equal(job.count, 3); /* the first word counts */
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char why[TM_MESSAGE_STRING_MAX + 1] = "";
        char pieces[200];
        assert_row(tm_fingerprint_differs(&job, rows[i].part, "this worker", why) == (rows[i].why != NULL), "%s: %s",
                   rows[i].part, why);
        (void)snprintf(pieces, sizeof pieces, "%s", rows[i].why == NULL ? "" : rows[i].why);
        for (char *at = strtok(pieces, "|"); at != NULL; at = strtok(NULL, "|"))
            assert_row(strstr(why, at) != NULL, "\"%s\" is not in \"%s\"", at, why);
    }
}

/* Too many, too long: left out, and no message breaks its limit. */
static void test_limits(void **state)
{
    (void)state;
    struct tm_fingerprint fingerprint = {.count = 0};
    char part[TM_MESSAGE_STRING_MAX + 2];
    char why[TM_MESSAGE_STRING_MAX + 1];
    struct tm_text text;
    memset(part, 'x', sizeof part);
    part[1] = '=';
    part[sizeof part - 1] = '\0';
    assert_false(tm_fingerprint_add(&fingerprint, part)); /* one byte too many */
    part[sizeof part - 2] = '\0';
    assert_true(tm_fingerprint_add(&fingerprint, part));
    part[2] = 'y';
    assert_true(tm_fingerprint_differs(&fingerprint, part, "this machine", why));
    assert_true(strlen(why) <= TM_MESSAGE_STRING_MAX);
    for (int i = 0; i < 2 * TM_FINGERPRINT_PARTS_MAX; i++) {
        (void)snprintf(part, sizeof part, "n%d=1", i);
        (void)tm_fingerprint_add(&fingerprint, part);
    }
    assert_int_equal(fingerprint.count, TM_FINGERPRINT_PARTS_MAX);
    tm_text_init(&text, 4096); /* long and many-lined values become a head and a hash */
    memset(part, 'z', 200);
    part[200] = '\0';
    tm_fingerprint_line(&text, "run", part);
    tm_fingerprint_line(&text, "run", "two\nlines");
    size_t lines = 0;
    for (const char *at = tm_text_string(&text); (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, 2);
    struct tm_fingerprint one = {.count = 0};
    tm_fingerprint_add_lines(&one, tm_text_string(&text));
    assert_int_equal(one.count, 1);
    tm_text_deinit(&text);
}

TM_TEST_MAIN(TM_TEST(test_differs), TM_TEST(test_limits))

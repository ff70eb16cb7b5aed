/* SkyPilot's answers as rows: what the program prints beside them is passed over. */
#include "base/test/harness.h"
#include "cloud/sky_cloud.h"

#include <string.h>

static int read_answer(const char *text, struct tm_remote_row **rows, size_t *capacity, struct tm_remote_answer *out,
                       struct tm_error *e)
{
    return tm_sky_answer__read(text, strlen(text), rows, capacity, out, e);
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum tm_remote_outcome outcome;
        size_t rows;
        const char *words;
    } rows[] = {
        {"TM-ANSWER {\"outcome\": \"done\"}\n", TM_REMOTE_DONE, 0, ""},
        {"noise\n\nTM-ANSWER {\"outcome\": \"gone\"}", TM_REMOTE_GONE, 0, ""},
        {"TM-ANSWER {\"outcome\": \"gone\"}\nTM-ANSWER {\"outcome\": \"refused\", \"words\": \"no\\nGPU\"}\nmore\n",
         TM_REMOTE_REFUSED, 0, "no GPU"},
        {"TM-ANSWER {\"outcome\": \"missing\", \"words\": \"no sky\"}\n", TM_REMOTE_REFUSED, 0, "no sky"},
        {"TM-ANSWER {\"outcome\": \"no-answer\"}\n", TM_REMOTE_NO_ANSWER, 0, ""},
        {"TM-ANSWER {\"outcome\": \"done\", \"rows\": [{\"name\": \"a\", \"phase\": \"running\", \"price\": 0.5}, {}, "
         "7, {\"name\": \"b\", \"phase\": \"ended\", \"status\": 0}]}\n",
         TM_REMOTE_DONE, 2, ""},
    };
    struct tm_remote_row *list = NULL;
    size_t capacity = 0;
    struct tm_error e = {.text = ""};
    struct tm_remote_answer answer;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_row(read_answer(rows[i].text, &list, &capacity, &answer, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(answer.outcome == rows[i].outcome && answer.row_count == rows[i].rows &&
                       strcmp(answer.words, rows[i].words) == 0,
                   "row %zu: %d %zu %s", i, (int)answer.outcome, answer.row_count, answer.words);
    }
    assert_true(list[0].phase == TM_REMOTE_RUNNING && list[0].price_usd_h == 0.5 && list[0].status == -1);
    assert_true(list[1].phase == TM_REMOTE_ENDED && list[1].status == 0);
    assert_int_equal(read_answer("", &list, &capacity, &answer, &e), -(int)TM_EINPUT);
    assert_int_equal(read_answer(" TM-ANSWER {}\n", &list, &capacity, &answer, &e), -(int)TM_EINPUT);
    assert_true(read_answer("TM-ANSWER {\n", &list, &capacity, &answer, &e) < 0);
    tm_free(list);
}

static void test_memory(void **state)
{
    (void)state;
    static const char text[] = "TM-ANSWER {\"outcome\": \"done\", \"rows\": [{\"name\": \"a\"}, {\"name\": \"b\"}]}\n";
    struct tm_error e = {.text = ""};
    TM_FAIL_EACH_ALLOC({
        struct tm_remote_row *list = NULL;
        size_t capacity = 0;
        struct tm_remote_answer answer;
        rc = read_answer(text, &list, &capacity, &answer, &e);
        tm_free(list);
    });
}

TM_TEST_MAIN(TM_TEST(test_answers), TM_TEST(test_memory))

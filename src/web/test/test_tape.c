/* Tapes: what is written has no secrets, and what is played is what was answered. */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "web/tape.h"

#include <stdio.h>
#include <string.h>

static const char signed_by[] =
    "Authorization: AWS4-HMAC-SHA256 Credential=AKIDSECRET/20260101/eu-west-1/ec2/aws4_request, SignedHeaders=host, "
    "Signature=abcdef\nX-Amz-Security-Token: SESSION\n";

static const struct tm_tape__body nothing = {"", 0};

static struct tm_web_answer answer_of(int status, const char *body)
{
    struct tm_web_answer answer = {.status = status, .total = -1};
    tm_text_init(&answer.body, 1 << 20);
    tm_text_puts(&answer.body, body);
    return answer;
}

static void test_described(void **state)
{
    (void)state;
    static const struct {
        const char *method, *url, *headers, *body, *want;
    } rows[] = {
        {"POST", "https://h/", signed_by, "Action=RunInstances&UserData=S3CRET&ClientToken=tm-1&X.UserData=S3CRET",
         "POST eu-west-1/ec2 / RunInstances\n"
         "Action=RunInstances&UserData=(removed)&ClientToken=tm-1&X.UserData=(removed)"},
        {"PUT", "https://h/b/x.ticket?partNumber=1&X-Amz-Signature=S3CRET", signed_by, "tmt1_S3CRET",
         "PUT eu-west-1/ec2 /b/x.ticket\npartNumber=1&X-Amz-Signature=(removed)(11 bytes)"},
        {"GET", "http://169.254.169.254", "", NULL, "GET - /\n"},
        {"POST", "https://h/t", "x-amz-target: A.B\n", "{\"a\": \"b\", \"l\": [{\"refresh_token\": \"S3CRET\"}]}",
         "POST - /t A.B\n{\"a\":\"b\",\"l\":[{\"refresh_token\":\"(removed)\"}]}"},
    };
    struct tm_error e = {.text = ""};
    assert_null(tm_tape__describe("GET", "http://h/", "", NULL, 0)); /* there is no tape */
    assert_int_equal(tm_tape__read("x", "", 0, &e), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char *got = tm_tape__describe(rows[i].method, rows[i].url, rows[i].headers, rows[i].body,
                                      rows[i].body != NULL ? strlen(rows[i].body) : 0);
        assert_non_null(got);
        assert_string_equal(got, rows[i].want);
        tm_free(got);
    }
    tm_tape__end();
}

static void test_recorded(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_tempdir dir;
    struct tm_error e = {.text = ""};
    struct tm_text text;
    char path[300];
    char region[TM_TAPE_NOTE_MAX];
    tm_tempdir_make(&dir);
    (void)snprintf(path, sizeof path, "%.200s/tape", dir.path);
    assert_row(tm_tape_record(env, path, &e) == 0, "%s", e.text);
    tm_tape__note(TM_TAPE_REGION, "eu-west-1");
    static const char *const bodies[] = {"<a><SecretAccessKey>S3CRET</SecretAccessKey><b>1</b></a>", "<a>2</a>",
                                         "S3CRET of an object"};
    for (int i = 0; i < 3; i++) {
        struct tm_web_answer answer = answer_of(200 + i, bodies[i]);
        tm_tape__keep("POST eu-west-1/ec2 / A\nx=1", false, 0, "", &answer);
        tm_web_answer_deinit(&answer);
    }
    tm_tape__keep("POST eu-west-1/ec2 / B\n", false, -(int)TM_ETIMEOUT, "no answer in time", NULL);
    struct tm_web_answer given = answer_of(200, "{\"value\": \"S3CRET\"}"); /* by names that nobody knows */
    tm_tape__keep("GET - /token\n", true, 0, "", &given);
    tm_web_answer_deinit(&given);
    tm_text_init(&text, 1 << 20);
    assert_int_equal(env->file_read(env, path, &text, &e), 0);
    assert_null(strstr(tm_text_string(&text), "S3CRET"));
    tm_text_deinit(&text);

    assert_row(tm_tape_replay(env, path, &e) == 0, "%s", e.text);
    tm_tape__noted(TM_TAPE_REGION, region);
    assert_string_equal(region, "eu-west-1");
    struct tm_web_answer answer = answer_of(0, "");
    static const char *const want[] = {"<a><SecretAccessKey>(removed)</SecretAccessKey><b>1</b></a>", "<a>2</a>",
                                       "(not kept)", "(not kept)"};
    for (int i = 0; i < 4; i++) { /* the same kind of request in other words, and once more than was recorded */
        assert_int_equal(tm_tape__play("POST eu-west-1/ec2 / A\nx=2", &nothing, &answer, &e), 0);
        assert_string_equal(tm_text_string(&answer.body), want[i]);
    }
    assert_int_equal(answer.status, 202);
    assert_int_equal(tm_tape__play("POST eu-west-1/ec2 / B\n", &nothing, &answer, &e), -(int)TM_ETIMEOUT);
    assert_int_equal(tm_tape__play("POST eu-west-1/ec2 / C\n", &nothing, &answer, &e), -(int)TM_EINPUT);
    assert_true(strstr(e.text, "no answer to POST eu-west-1/ec2 / C") != NULL);
    tm_web_answer_deinit(&answer);
    tm_tape__end();
    tm_tempdir_remove(&dir);
}

/* Objects are what was put while playing, also where the recording had other names, and S3 at another host. */
static void test_objects(void **state)
{
    (void)state;
    static const char tape[] =
        "{\"tape\": 1, \"project\": \"p\", \"subscription\": \"s\"}\n"
        "{\"asked\": \"PUT eu-west-1/s3 /b/check\\n(8 bytes)\", \"status\": 200, \"answer\": \"\"}\n"
        "{\"asked\": \"GET eu-west-1/s3 /b/check\\n\", \"status\": 200, \"answer\": \"(not kept)\"}\n"
        "{\"asked\": \"PUT eu-west-1/s3 /b/check\\n(8 bytes)\", \"status\": 412, \"answer\": \"<no/>\"}\n";
    static const struct {
        const char *asked, *body;
        int status;
        const char *answer;
    } rows[] = {{"PUT eu-west-1/s3 /b/check\n(8 bytes)", "tidemill", 200, ""},
                {"GET eu-west-1/s3 /b/check\n", "", 200, "tidemill"},
                {"PUT eu-west-1/s3 /b/check\n(8 bytes)", "somebody", 412, "<no/>"},
                {"HEAD eu-west-1/s3 /b/program-1\n", "", 404, ""},
                {"PUT eu-west-1/s3 /b/program-1\n(1 bytes)", "x", 200, ""},
                {"HEAD eu-west-1/s3 /b/program-1\n", "", 200, ""},
                {"GET eu-west-1/s3 /b/program-1\n", "", 200, "x"},
                {"DELETE eu-west-1/s3 /b/program-1\n", "", 204, ""},
                {"GET eu-west-1/s3 /b/program-1\n", "", 404, ""},
                {"GET eu-west-1/s3 /b/check\n", "", 200, "tidemill"}};
    struct tm_error e = {.text = ""};
    char note[TM_TAPE_NOTE_MAX];
    assert_row(tm_tape__read("tape", tape, sizeof tape - 1, &e) == 0, "%s", e.text);
    tm_tape__noted(TM_TAPE_PROJECT, note);
    assert_string_equal(note, "p");
    tm_tape__noted(TM_TAPE_SUBSCRIPTION, note);
    assert_string_equal(note, "s");
    char *asked =
        tm_tape__describe("PUT", "https://b.s3.eu-west-1.amazonaws.com/check",
                          "Authorization: X Credential=K/20260101/eu-west-1/s3/aws4_request\n", "tidemill", 8);
    assert_string_equal(asked, rows[0].asked);
    tm_free(asked);
    struct tm_web_answer answer = answer_of(0, "");
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_tape__body body = {rows[i].body, strlen(rows[i].body)};
        assert_row(tm_tape__play(rows[i].asked, &body, &answer, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(answer.status == rows[i].status, "row %zu: %d", i, answer.status);
        assert_row(strcmp(tm_text_string(&answer.body), rows[i].answer) == 0, "row %zu", i);
    }
    assert_int_equal(tm_tape__play("GET eu-west-1/s3 /b/\nlist-type=2", &nothing, &answer, &e), -(int)TM_EINPUT);
    tm_web_answer_deinit(&answer);
    tm_tape__end();
}

/* A list that is asked for more often than it was recorded does not run ahead of what ended its instances. */
static void test_ended(void **state)
{
    (void)state;
    static const char tape[] =
        "{\"asked\": \"POST r/ec2 / DescribeInstances\\nA\", \"status\": 200, \"answer\": \"pending\"}\n"
        "{\"asked\": \"POST r/ec2 / DescribeInstances\\nA\", \"status\": 200, \"answer\": \"running\"}\n"
        "{\"asked\": \"POST r/ec2 / TerminateInstances\\nA\", \"status\": 200, \"answer\": \"ends\"}\n"
        "{\"asked\": \"POST r/ec2 / DescribeInstances\\nA\", \"status\": 200, \"answer\": \"ended\"}\n";
    static const struct {
        const char *asked, *answer;
    } rows[] = {{"POST r/ec2 / DescribeInstances\nA", "pending"}, {"POST r/ec2 / DescribeInstances\nA", "running"},
                {"POST r/ec2 / DescribeInstances\nA", "running"}, {"POST r/ec2 / DescribeInstances\nB", "running"},
                {"POST r/ec2 / TerminateInstances\nB", "ends"},   {"POST r/ec2 / DescribeInstances\nA", "ended"},
                {"POST r/ec2 / DescribeInstances\nA", "ended"}};
    struct tm_error e = {.text = ""};
    struct tm_web_answer answer = answer_of(0, "");
    assert_row(tm_tape__read("tape", tape, sizeof tape - 1, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_row(tm_tape__play(rows[i].asked, &nothing, &answer, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(strcmp(tm_text_string(&answer.body), rows[i].answer) == 0, "row %zu: %s", i,
                   tm_text_string(&answer.body));
    }
    tm_web_answer_deinit(&answer);
    tm_tape__end();
}

static void test_wrong(void **state)
{
    (void)state;
    static const char *const rows[] = {"{", "[]", "{\"x\": 1}", "{\"asked\": \"a\", \"code\": 1000}"};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {.text = ""};
        assert_row(tm_tape__read("tape", rows[i], strlen(rows[i]), &e) == -(int)TM_EINPUT, "%s", rows[i]);
        assert_row(strstr(e.text, "tape:1") != NULL, "%s: %s", rows[i], e.text);
    }
    tm_tape__end();
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"asked\": \"GET - /\\n\", \"status\": 200, \"answer\": \"<a/>\"}\n";
    TM_FAIL_EACH_ALLOC({
        rc = tm_tape__read("x", text, sizeof text - 1, NULL);
        tm_free(tm_tape__describe("GET", "http://h/", "", "{}", 2));
        tm_tape__end();
    });
}

TM_TEST_MAIN(TM_TEST(test_described), TM_TEST(test_recorded), TM_TEST(test_objects), TM_TEST(test_ended),
             TM_TEST(test_wrong), TM_TEST(test_no_memory))

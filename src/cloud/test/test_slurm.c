/* What Slurm prints, read; and jobs as instances, with the test as the scheduler. */
#include "cloud/slurm_cloud.h"
#include "cloud/slurm_internal.h"
#include "cloud/slurm_jobs.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- words ---- */

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {{"0:00", 0},
                {"59", 59000},
                {"1:05", 65000},
                {"2:00:00", 7200000},
                {"1-00:00:00", 86400000},
                {"365-00:00:00", 31536000000},
                {"UNLIMITED", -1},
                {"INVALID", -1},
                {"N/A", -1},
                {"", -1},
                {"1:60", -1},
                {"1-2:3", -1},
                {"1:2:3:4", -1},
                {"-1:00", -1},
                {"1::2", -1},
                {"99999999999:00", -1}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_slurm__duration_ms(rows[i].text, strlen(rows[i].text)) == rows[i].ms, "\"%s\"", rows[i].text);
    char out[TM_SLURM_WORD_MAX];
    tm_slurm__print_duration(4 * 3600000, out);
    assert_string_equal(out, "0-04:00:00");
    tm_slurm__print_duration(90061000, out); /* up to whole minutes */
    assert_string_equal(out, "1-01:02:00");
}

static void test_job_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t job;
    } rows[] = {{"12\n", 12},
                {"12;alpha\n", 12},
                {"sbatch: warning: something\n77\n", 77},
                {"sbatch: error: Batch job submission failed: Invalid account 5\n", 0},
                {"Submitted batch job 5\n", 0},
                {"0\n", 0},
                {"-4\n", 0},
                {"", 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_slurm__job_number(rows[i].text, strlen(rows[i].text)) == rows[i].job, "\"%s\"", rows[i].text);
}

static const char partitions[] =
    "PartitionName=prod AllowGroups=ALL State=UP TotalNodes=6 GraceTime=0 MaxTime=UNLIMITED\n"
    "PartitionName=spot AllowGroups=ALL GraceTime=30 Hidden=NO MaxTime=2-00:00:00 State=DOWN TotalNodes=4\n";

static void test_partitions(void **state)
{
    (void)state;
    struct tm_slurm__partition found;
    assert_true(tm_slurm__read_partition(partitions, sizeof partitions - 1, "spot", &found));
    assert_int_equal(found.grace_ms, 30000);
    assert_int_equal(found.time_max_ms, 2 * 86400000);
    assert_int_equal(found.nodes, 4);
    assert_false(found.up);
    assert_true(tm_slurm__read_partition(partitions, sizeof partitions - 1, "prod", &found));
    assert_int_equal(found.time_max_ms, -1);
    assert_int_equal(found.grace_ms, 0);
    assert_true(found.up);
    assert_false(tm_slurm__read_partition(partitions, sizeof partitions - 1, "spo", &found));
}

static void test_nodes(void **state)
{
    (void)state;
    static const char text[] = "n1|mixed\nn2|draining\nn3|idle*\nn4|drained\nx\nn5|down*\n";
    char names[64] = "";
    char node[TM_SLURM_WORD_MAX];
    for (size_t at = 0; tm_slurm__next_leaving(text, sizeof text - 1, &at, node);)
        strcat(names, node);
    assert_string_equal(names, "n2n4n5");
}

static void test_addresses(void **state)
{
    (void)state;
    static const char text[] = "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=n1 Version=22.05.8\n"
                               "NodeName=n10 NodeAddr=10.0.0.10 NodeHostName=n10\nNodeName=n2 Arch=x86_64\n";
    char out[TM_SLURM_WORD_MAX];
    assert_true(tm_slurm__read_address(text, sizeof text - 1, "n10", out));
    assert_string_equal(out, "10.0.0.10");
    assert_true(tm_slurm__read_address(text, sizeof text - 1, "n1", out));
    assert_string_equal(out, "10.0.0.1");
    assert_false(tm_slurm__read_address(text, sizeof text - 1, "n2", out));
    assert_false(tm_slurm__read_address(text, sizeof text - 1, "n", out));
}

static void test_rows(void **state)
{
    (void)state;
    static const char text[] = "squeue: warning: something\n"
                               "7|RUNNING|None|n3|N/A|3:59:30|0|spot|tidemill:abc:18446744073709551615:2|\n"
                               "8|PENDING|Resources, and more|||N/A|0|spot|tidemill:abc:5:3|\n"
                               "9|PREEMPTED|None|n1|2026-01-01T00:00:00|0:10|0|spot|tidemill:abc:5:4|\n"
                               "10|FAILED|NonZeroExitCode|n1|N/A|0:10|256|spot|tidemill:abc:5:5|\n"
                               "11|FAILED|None|n1|N/A|0:10|9|spot|tidemill:abc:5:6|\n"
                               "12|RUNNING|None|n3|N/A|3:59:30|0|spot|of|somebody|else|\n"
                               "13|RUNNING|None|n3|N/A|3:59:30|0|spot|tidemill:abc:5:0|\n";
    struct tm_slurm__row row;
    size_t at = 0;
    assert_true(tm_slurm__next_row(text, sizeof text - 1, &at, &row));
    assert_int_equal(row.job, 7);
    assert_int_equal(row.phase, TM_SLURM_RUNNING);
    assert_int_equal(row.left_ms, ((3 * 60 + 59) * 60 + 30) * 1000);
    assert_string_equal(row.node, "n3");
    assert_true(row.tag.run == UINT64_MAX && row.tag.instance == 2 && !row.preempted);
    assert_true(tm_slurm__next_row(text, sizeof text - 1, &at, &row));
    assert_int_equal(row.phase, TM_SLURM_PENDING);
    assert_true(row.left_ms == -1);
    assert_true(tm_slurm__next_row(text, sizeof text - 1, &at, &row));
    assert_true(row.phase == TM_SLURM_ENDED && row.preempted);
    assert_true(tm_slurm__next_row(text, sizeof text - 1, &at, &row));
    assert_int_equal(row.status, 1);
    assert_true(tm_slurm__next_row(text, sizeof text - 1, &at, &row));
    assert_int_equal(row.status, 128 + 9);
    assert_false(tm_slurm__next_row(text, sizeof text - 1, &at, &row));
}

/* ---- a scheduler that does as it is told ---- */

static void begin(struct tm_slurm__jobs *s, int want)
{
    tm_slurm_jobs__init(s);
    s->pools[0] = (struct tm_slurm__pool){.partition = "spot", .limit = 4, .price_usd_h = 3.6, .notice_ms = 20000};
    s->pool_count = 1;
    s->tag = (struct tm_slurm__tag){.folder = "abc", .run = 5, .instance = 2};
    tm_slurm_jobs__want(s, 0, want, 0);
}

static int take(struct tm_slurm__jobs *s, int64_t now_ms, const struct tm_slurm__command *command, int status,
                const char *text)
{
    struct tm_slurm__answer answer = {0};
    int rc = tm_slurm_answer__read(&answer, command->kind, status, text, strlen(text), NULL);
    if (rc == 0) rc = tm_slurm_jobs__answer(s, now_ms, command, &answer, NULL);
    tm_slurm_answer__deinit(&answer);
    return rc;
}

/* What is due; the answer is given. -1: nothing was. */
static int answer(struct tm_slurm__jobs *s, int64_t now_ms, int status, const char *text)
{
    struct tm_slurm__command command;
    bool due = false;
    assert_int_equal(tm_slurm_jobs__next(s, now_ms, &command, &due, NULL), 0);
    if (!due) return -1;
    assert_int_equal(take(s, now_ms, &command, status, text), 0);
    return (int)command.kind;
}

/* "arrived 3, lost 4 announced" */
static const char *events(struct tm_slurm__jobs *s)
{
    static char out[400];
    struct tm_cloud_event event;
    out[0] = '\0';
    while (tm_slurm_jobs__event(s, &event)) {
        if (event.kind == TM_CLOUD_REFUSED) continue;
        (void)snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s %d%s", out[0] != '\0' ? ", " : "",
                       tm_cloud_event_kind_name(event.kind), (int)event.instance,
                       event.kind == TM_CLOUD_LOST && event.announced ? " announced" : "");
    }
    return out;
}

#define ROW(job, state, preempt, left, code, instance)                                                                 \
#job "|" state "|None|n" #job "|" preempt "|" left "|" #code "|spot|tidemill:abc:5:" #instance "|\n"

/* Two jobs that run: instances 3 and 4. */
static void begin_two(struct tm_slurm__jobs *s)
{
    begin(s, 2);
    assert_int_equal(answer(s, 0, 0, ""), TM_SLURM_QUERY); /* who is there? nobody */
    assert_int_equal(answer(s, 0, 0, "31\n"), TM_SLURM_SUBMIT);
    assert_int_equal(answer(s, 0, 0, "32\n"), TM_SLURM_SUBMIT);
    s->query_ms = 0;
    assert_int_equal(
        answer(s, 0, 0, ROW(31, "RUNNING", "N/A", "UNLIMITED", 0, 3) ROW(32, "RUNNING", "N/A", "UNLIMITED", 0, 4)),
        TM_SLURM_QUERY);
    assert_string_equal(events(s), "arrived 3, arrived 4");
}

static void test_preemption(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    begin_two(&s);
    assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_NODES);
    assert_int_equal(answer(&s, 0, 0, ""), -1);
    assert_int_equal(answer(&s, 60000, 0,
                            ROW(31, "RUNNING", "2026-01-01T00:00:00", "UNLIMITED", 0, 3)
                                ROW(32, "RUNNING", "N/A", "UNLIMITED", 0, 4)),
                     TM_SLURM_QUERY);
    assert_string_equal(events(&s), "notice 3");
    /* The next is asked for while it may still be there, but not at once: whoever preempts comes first. */
    s.nodes_ms = s.query_ms = INT64_MAX;
    assert_int_equal(answer(&s, 79999, 0, ""), -1);
    assert_int_equal(answer(&s, 80000, 0, "33\n"), TM_SLURM_SUBMIT);
    s.query_ms = 0;
    assert_int_equal(answer(&s, 82000, 0,
                            ROW(31, "COMPLETED", "2026-01-01T00:00:00", "0:10", 0, 3) ROW(
                                32, "RUNNING", "N/A", "UNLIMITED", 0, 4) ROW(33, "PENDING", "N/A", "UNLIMITED", 0, 5)),
                     TM_SLURM_QUERY);
    assert_string_equal(events(&s), "lost 3 announced"); /* that it ended in order does not make it ours to end */
    struct tm_cloud_bill bill = tm_slurm_jobs__bill(&s, 100000);
    assert_true(bill.seconds[TM_CLOUD_SPOT] == 182 && bill.usd[TM_CLOUD_SPOT] > 0.181);
    tm_slurm_jobs__deinit(&s);
}

static void test_ends(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        const char *told;
        int want; /* after it */
    } rows[] = {{ROW(31, "COMPLETED", "N/A", "0:10", 0, 3), "released 3", 1},
                {ROW(31, "CANCELLED", "N/A", "0:10", 0, 3), "lost 3", 2},
                {ROW(31, "FAILED", "N/A", "0:10", 256, 3), "lost 3", 2},
                {ROW(31, "NODE_FAIL", "N/A", "0:10", 0, 3), "lost 3", 2},
                {ROW(31, "TIMEOUT", "N/A", "0:00", 0, 3), "lost 3", 2},
                {ROW(31, "PREEMPTED", "2026-01-01T00:00:00", "0:00", 0, 3), "lost 3 announced", 2},
                {ROW(31, "PENDING", "N/A", "0:00", 0, 3), "lost 3", 2},
                {"", "lost 3", 2}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slurm__jobs s;
        char text[400];
        begin_two(&s);
        s.query_ms = 0;
        s.nodes_ms = INT64_MAX;
        (void)snprintf(text, sizeof text, "%s%s", rows[i].row, ROW(32, "RUNNING", "N/A", "UNLIMITED", 0, 4));
        assert_int_equal(answer(&s, 2000, 0, text), TM_SLURM_QUERY);
        assert_row_string(rows[i].row, events(&s), rows[i].told);
        assert_row(s.pools[0].want == rows[i].want, "%s: want %d", rows[i].row, s.pools[0].want);
        tm_slurm_jobs__deinit(&s);
    }
}

/* One that was over before squeue showed it running was there, if it had a node. */
static void test_short_lives(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        const char *told;
    } rows[] = {{ROW(31, "CANCELLED", "N/A", "0:10", 0, 3), "arrived 3, lost 3"},
                {ROW(31, "PREEMPTED", "2026-01-01T00:00:00", "0:00", 0, 3), "arrived 3, lost 3 announced"},
                {ROW(31, "COMPLETING", "N/A", "0:10", 0, 3), "arrived 3"},
                {ROW(31, "BOOT_FAIL", "N/A", "0:10", 0, 3), "lost 3"},
                {"31|CANCELLED|None||N/A|0:10|0|spot|tidemill:abc:5:3|\n", "lost 3"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slurm__jobs s;
        begin(&s, 1);
        assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_QUERY);
        assert_int_equal(answer(&s, 0, 0, "31\n"), TM_SLURM_SUBMIT);
        s.query_ms = 0;
        assert_int_equal(answer(&s, 1000, 0, rows[i].row), TM_SLURM_QUERY);
        assert_row_string(rows[i].row, events(&s), rows[i].told);
        tm_slurm_jobs__deinit(&s);
    }
}

/* An sbatch without an answer: squeue says whether it worked. A job that comes to light later is cancelled. */
static void test_no_answer(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    bool due = false;
    begin(&s, 1);
    assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_QUERY);
    assert_int_equal(answer(&s, 0, -1, ""), TM_SLURM_SUBMIT);
    assert_int_equal(answer(&s, 0, 1, "slurm_load_jobs error"), TM_SLURM_QUERY); /* that says nothing */
    assert_string_equal(events(&s), "");
    s.query_ms = 0;
    assert_int_equal(answer(&s, 1000, 0, ROW(40, "RUNNING", "N/A", "UNLIMITED", 0, 3)), TM_SLURM_QUERY);
    assert_string_equal(events(&s), "arrived 3"); /* it had worked */
    tm_slurm_jobs__deinit(&s);
    begin(&s, 1);
    assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_QUERY);
    assert_int_equal(answer(&s, 0, 1, "sbatch: error: no"), TM_SLURM_SUBMIT);
    assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_QUERY);
    assert_string_equal(events(&s), "lost 3");
    assert_int_equal(answer(&s, 10, 0, ""), -1); /* not at once again */
    assert_true(tm_slurm_jobs__due_ms(&s) > 10 && tm_slurm_jobs__due_ms(&s) <= 5000);
    assert_int_equal(answer(&s, 5000, 0, "41\n"), TM_SLURM_SUBMIT);
    s.query_ms = 0;
    assert_int_equal(
        answer(&s, 6000, 0, ROW(40, "PENDING", "N/A", "UNLIMITED", 0, 3) ROW(41, "RUNNING", "N/A", "UNLIMITED", 0, 4)),
        TM_SLURM_QUERY);
    assert_string_equal(events(&s), "arrived 4");
    assert_int_equal(tm_slurm_jobs__next(&s, 6000, &command, &due, NULL), 0);
    assert_true(due && command.kind == TM_SLURM_CANCEL && command.cancel_count == 1 && command.cancel[0] == 40);
    tm_slurm_jobs__deinit(&s);
}

/* After a restart: what waits is kept, what is of another run or runs and cannot hear of it is cancelled. */
static void test_adoption(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    bool due = false;
    begin(&s, 2);
    assert_int_equal(answer(&s, 0, 0,
                            ROW(20, "RUNNING", "N/A", "UNLIMITED", 0, 1)
                                ROW(21, "PENDING", "N/A", "UNLIMITED", 0,
                                    2) "22|PENDING|None|||UNLIMITED|0|spot|tidemill:abc:4:1|\n"
                                       "23|PENDING|None|||UNLIMITED|0|spot|tidemill:abd:5:1|\n"),
                     TM_SLURM_QUERY);
    assert_int_equal(s.instance_count, 1);
    assert_true(s.instances[0].id == 2 && s.jobs[0].step == TM_SLURM_QUEUED);
    assert_int_equal(tm_slurm_jobs__next(&s, 0, &command, &due, NULL), 0);
    assert_true(due && command.kind == TM_SLURM_CANCEL && command.cancel_count == 2);
    assert_int_equal(answer(&s, 0, 0, "24\n"), TM_SLURM_SUBMIT);
    assert_int_equal(s.instances[1].id, 3);
    tm_slurm_jobs__deinit(&s);
}

static bool hears_but_20(void *context, int64_t job)
{
    ++*(int *)context;
    return job != 20;
}

/* What runs, and can hear of it, is kept as another instance, behind all that wait. */
static void test_adoption_of_nodes(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    bool due = false;
    int asked = 0;
    begin(&s, 4);
    s.hears = hears_but_20;
    s.context = &asked;
    s.tag.instance = 5;
    static const char rows[] = ROW(20, "RUNNING", "N/A", "UNLIMITED", 0, 1) ROW(21, "RUNNING", "N/A", "300", 0, 2)
        ROW(22, "PENDING", "N/A", "UNLIMITED", 0, 3) ROW(23, "RUNNING", "N/A", "UNLIMITED", 0, 4)
            ROW(24, "RUNNING", "2026-01-01T00:00:00", "UNLIMITED", 0, 5) "25|RUNNING|None|n1|N/A|UNLIMITED|0|spot|"
                                                                         "tidemill:abc:4:9|\n";
    assert_int_equal(answer(&s, 0, 0, rows), TM_SLURM_QUERY);
    assert_string_equal(events(&s), "arrived 6, arrived 7");
    assert_int_equal(s.instance_count, 3);
    assert_true(s.instances[0].id == 3 && s.jobs[0].step == TM_SLURM_QUEUED && !s.jobs[0].renamed);
    assert_true(s.instances[1].id == 6 && s.jobs[1].number == 21 && s.jobs[1].renamed && s.instances[1].recalled);
    assert_true(s.instances[2].id == 7 && s.jobs[2].number == 23 && s.jobs[2].renamed);
    assert_int_equal(asked, 3); /* neither what is preempted nor what is another run's */
    assert_int_equal(tm_slurm_jobs__next(&s, 0, &command, &due, NULL), 0);
    assert_true(due && command.kind == TM_SLURM_CANCEL && command.cancel_count == 3);
    assert_int_equal(answer(&s, 0, 0, "26\n"), TM_SLURM_SUBMIT); /* the fourth that is wanted */
    assert_true(s.instance_count == 4 && s.instances[3].id == 8);
    /* They are known by their jobs' numbers: instance 4 was of the earlier program, and is job 23's tag. */
    s.query_ms = 0;
    assert_int_equal(answer(&s, 1000, 0,
                            ROW(21, "RUNNING", "N/A", "299", 0, 2) ROW(22, "RUNNING", "N/A", "UNLIMITED", 0, 3)
                                ROW(23, "NODE_FAIL", "N/A", "UNLIMITED", 0, 4)
                                    ROW(26, "PENDING", "N/A", "UNLIMITED", 0, 8)),
                     TM_SLURM_QUERY);
    assert_string_equal(events(&s), "arrived 3, lost 7");
    assert_int_equal(tm_slurm_jobs__release(&s, 6, 1000, NULL), 0);
    assert_int_equal(tm_slurm_jobs__next(&s, 1000, &command, &due, NULL), 0);
    assert_true(due && command.kind == TM_SLURM_CANCEL && command.cancel_count == 1 && command.cancel[0] == 21);
    tm_slurm_jobs__deinit(&s);
}

/* Not more than the pool may have. */
static void test_adoption_limit(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    bool due = false;
    int asked = 0;
    begin(&s, 4);
    s.pools[0].limit = 1;
    s.hears = hears_but_20;
    s.context = &asked;
    assert_int_equal(
        answer(&s, 0, 0, ROW(31, "RUNNING", "N/A", "UNLIMITED", 0, 1) ROW(32, "RUNNING", "N/A", "UNLIMITED", 0, 2)),
        TM_SLURM_QUERY);
    assert_string_equal(events(&s), "arrived 3");
    assert_int_equal(tm_slurm_jobs__next(&s, 0, &command, &due, NULL), 0);
    assert_true(due && command.kind == TM_SLURM_CANCEL && command.cancel_count == 1 && command.cancel[0] == 32);
    tm_slurm_jobs__deinit(&s);
}

static void test_limits(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    begin(&s, 1);
    assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_QUERY);
    assert_int_equal(answer(&s, 0, 0, "31\n"), TM_SLURM_SUBMIT);
    s.query_ms = 0;
    assert_int_equal(answer(&s, 0, 0, ROW(31, "RUNNING", "N/A", "1:00", 0, 3)), TM_SLURM_QUERY);
    assert_string_equal(events(&s), "arrived 3");
    s.nodes_ms = s.query_ms = INT64_MAX;
    assert_int_equal(tm_slurm_jobs__due_ms(&s), 40000); /* twenty seconds before its time is up */
    assert_int_equal(tm_slurm_jobs__tick(&s, 39999, NULL), 0);
    assert_string_equal(events(&s), "");
    assert_int_equal(tm_slurm_jobs__tick(&s, 40000, NULL), 0);
    assert_string_equal(events(&s), "notice 3");
    /* It leaves before its time is up: a loss that was announced, and its place in the pool stays wanted. */
    assert_int_equal(tm_slurm_jobs__release(&s, 3, 41000, NULL), 0);
    assert_string_equal(events(&s), "lost 3 announced");
    assert_true(s.jobs[0].cancel && s.pools[0].want == 1 && s.instances[0].state == TM_INSTANCE_LOST);
    tm_slurm_jobs__deinit(&s);
}

static void test_orders(void **state)
{
    (void)state;
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    bool due = false;
    begin_two(&s);
    s.nodes_ms = INT64_MAX;
    assert_int_equal(tm_slurm_jobs__release(&s, 9, 0, NULL), -(int)TM_ENOTFOUND);
    assert_int_equal(tm_slurm_jobs__release(&s, 3, 5000, NULL), 0);
    assert_string_equal(events(&s), "released 3");
    assert_int_equal(tm_slurm_jobs__next(&s, 5000, &command, &due, NULL), 0);
    assert_true(due && command.kind == TM_SLURM_CANCEL && command.cancel[0] == 31);
    tm_slurm_jobs__want(&s, 0, 9, 5000); /* up to its limit of four; 4 is there */
    for (int i = 0; i < 3; i++)
        assert_int_equal(answer(&s, 5000, 0, i == 0 ? "33\n" : i == 1 ? "34\n" : "35\n"), TM_SLURM_SUBMIT);
    assert_int_not_equal(answer(&s, 5000, 1, ""), TM_SLURM_SUBMIT);
    tm_slurm_jobs__want(&s, 0, 2, 5000); /* those that wait go, the newest first */
    assert_int_equal(tm_slurm_jobs__next(&s, 5000, &command, &due, NULL), 0);
    assert_true(command.kind == TM_SLURM_CANCEL && command.cancel_count == 2 && command.cancel[0] == 34);
    tm_slurm_jobs__end_all(&s, 5000);
    assert_int_equal(tm_slurm_jobs__left(&s), 5);
    while (tm_slurm_jobs__left(&s) > 0)
        (void)answer(&s, s.query_ms, 0, "");
    tm_slurm_jobs__deinit(&s);
}

static int go_through(void)
{
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    bool due = true;
    begin(&s, 2);
    int rc = 0;
    for (int i = 0; rc == 0 && due && i < 4; i++) {
        rc = tm_slurm_jobs__next(&s, 0, &command, &due, NULL);
        const char *text = i == 1 ? "31\n" : i == 2 ? "32\n" : i == 3 ? ROW(31, "RUNNING", "N/A", "1:00", 0, 3) : "";
        if (rc == 0) rc = take(&s, 0, &command, 0, text);
    }
    tm_slurm_jobs__deinit(&s);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = go_through());
}

/* ---- processes: commands that are scripts ---- */

static void write_tool(const char *dir, const char *name, const char *body)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "#!/bin/sh\ncd '%s'\n%s\n", dir, body) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static int until(struct tm_cloud *cloud, enum tm_cloud_event_kind kind)
{
    struct tm_cloud_event event = {0};
    struct tm_error e;
    do {
        int rc = cloud->next(cloud, 20000, &event, &e);
        assert_row(rc == 0, "%s", e.text);
    } while (event.kind != kind);
    return (int)event.instance;
}

static void test_processes(void **state)
{
    (void)state;
    char dir[] = "/tmp/tidemill-slurm-XXXXXX";
    assert_non_null(mkdtemp(dir));
    write_tool(dir, "scontrol", "echo 'PartitionName=spot GraceTime=30 MaxTime=UNLIMITED State=UP'");
    write_tool(dir, "sbatch",
               "for word; do case $word in --comment=*) c=${word#*=};; esac; done\n"
               "n=$(cat n 2> /dev/null || echo 10); n=$((n + 1)); echo $n > n; echo $c > job-$n; echo $n");
    write_tool(dir, "squeue",
               "for f in job-*; do [ -e $f ] && "
               "echo \"${f#job-}|RUNNING|None|n1|N/A|UNLIMITED|0|spot|$(cat $f)|\"; done; exit 0");
    write_tool(dir, "scancel", "for n; do rm -f job-$n; done");
    write_tool(dir, "sinfo", "echo 'n1|idle'");
    static const char *const command[] = {"true", NULL};
    struct tm_slurm_pool pool = {.partition = "spot", .limit = 3, .notice_ms = -1, .words = " --a  --b "};
    struct tm_slurm_options options = {.pools = &pool,
                                       .pool_count = 1,
                                       .command = command,
                                       .folder = dir,
                                       .script_dir = dir,
                                       .log_dir = dir,
                                       .run = 5,
                                       .poll_ms = 50,
                                       .tools = dir};
    struct tm_cloud *cloud = NULL;
    struct tm_error e;
    struct tm_env *env = tm_env_real();
    assert_row(tm_slurm_cloud_create(env, &options, &cloud, &e) == 0, "%s", e.text);
    assert_int_equal(cloud->want(cloud, TM_CLOUD_SPOT, 2, &e), 0);
    assert_int_equal(cloud->want(cloud, 7, 2, &e), -(int)TM_EUSAGE);
    assert_int_equal(until(cloud, TM_CLOUD_ARRIVED), 1);
    assert_int_equal(until(cloud, TM_CLOUD_ARRIVED), 2);
    assert_int_equal(cloud->release(cloud, 1, &e), 0);
    assert_int_equal(until(cloud, TM_CLOUD_RELEASED), 1);
    assert_row(cloud->destroy(cloud, &e) == 0, "%s", e.text);
    char gone[300];
    (void)snprintf(gone, sizeof gone, "%s/job-11", dir);
    assert_false(env->file_exists(env, gone));
    (void)snprintf(gone, sizeof gone, "%s/job-12", dir);
    assert_false(env->file_exists(env, gone));
    pool.partition = "spto";
    assert_int_equal(tm_slurm_cloud_create(env, &options, &cloud, &e), -(int)TM_EINPUT);
    (void)snprintf(gone, sizeof gone, "rm -rf '%s'", dir);
    assert_int_equal(system(gone), 0);
}

static void read_line(const char *dir, const char *name, char out[64])
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(out, 64, file));
    assert_int_equal(fclose(file), 0);
}

/* Two jobs run, and their program is killed. The one that sees the folder is told its new number once all that it needs
 * is there; the other is cancelled. Its script, which runs here, starts another agent as soon as the first has ended.
 */
static int prepare_11(void *context, uint64_t id, struct tm_error *e)
{
    (void)e;
    char line[64];
    read_line(context, "slurm-job-11", line);
    if (id == 3) assert_string_equal(line, "1\n");
    return 0;
}

static void test_taking_over(void **state)
{
    (void)state;
    char dir[] = "/tmp/tidemill-slurm-XXXXXX";
    char line[400];
    assert_non_null(mkdtemp(dir));
    write_tool(dir, "scontrol", "echo 'PartitionName=spot GraceTime=30 MaxTime=UNLIMITED State=UP'");
    write_tool(dir, "sbatch",
               "for word; do case $word in --comment=*) c=${word#*=};; esac; done\n"
               "n=$(cat n 2> /dev/null || echo 10); n=$((n + 1)); echo $n > n; echo $c > job-$n; cp $word script-$n\n"
               "echo $n");
    write_tool(dir, "squeue",
               "for f in job-*; do [ -e $f ] && "
               "echo \"${f#job-}|RUNNING|None|n1|N/A|UNLIMITED|0|spot|$(cat $f)|\"; done; exit 0");
    write_tool(dir, "scancel", "for n; do rm -f job-$n; done");
    write_tool(dir, "sinfo", "echo 'n1|idle'");
    /* The agent: it says which instance it is, and ends when its file names another. */
    write_tool(dir, "srun",
               "echo \"$TIDEMILL_INSTANCE_ID $*\" >> agents\n"
               "for i in $(seq 1500); do\n"
               "    read -r now < $TIDEMILL_INSTANCE_FILE && [ $now = $TIDEMILL_INSTANCE_ID ] || exit 0\n"
               "    [ -e over ] && exit 7\n"
               "    sleep 0.02\n"
               "done");
    static const char *const command[] = {"agent", NULL};
    struct tm_slurm_pool pool = {.partition = "spot", .limit = 2, .notice_ms = -1};
    struct tm_slurm_options options = {.pools = &pool,
                                       .pool_count = 1,
                                       .command = command,
                                       .folder = dir,
                                       .script_dir = dir,
                                       .log_dir = dir,
                                       .run = 5,
                                       .poll_ms = 50,
                                       .tools = dir};
    struct tm_cloud *killed = NULL;
    struct tm_cloud *cloud = NULL;
    struct tm_error e;
    struct tm_env *env = tm_env_real();
    assert_row(tm_slurm_cloud_create(env, &options, &killed, &e) == 0, "%s", e.text);
    assert_int_equal(killed->want(killed, TM_CLOUD_SPOT, 2, &e), 0);
    assert_int_equal(until(killed, TM_CLOUD_ARRIVED), 1);
    assert_int_equal(until(killed, TM_CLOUD_ARRIVED), 2);
    (void)snprintf(line, sizeof line,
                   "cd '%s'; PATH=\"$PWD:$PATH\" SLURM_JOB_ID=11 bash ./script-11 & echo $! > script", dir);
    assert_int_equal(system(line), 0);
    (void)snprintf(line, sizeof line, "cd '%s'; timeout 20 sh -c 'until [ -s agents ]; do sleep 0.02; done'", dir);
    assert_int_equal(system(line), 0);
    options.id_last = 2;
    options.prepare = prepare_11;
    options.context = dir;
    assert_row(tm_slurm_cloud_create(env, &options, &cloud, &e) == 0, "%s", e.text);
    assert_int_equal(cloud->want(cloud, TM_CLOUD_SPOT, 1, &e), 0);
    assert_int_equal(until(cloud, TM_CLOUD_ARRIVED), 3);
    (void)snprintf(line, sizeof line,
                   "cd '%s'; timeout 20 sh -c 'until [ $(wc -l < agents) = 2 ]; do sleep 0.02; done' && "
                   "[ \"$(cut -d' ' -f1-3 agents | xargs)\" = '1 --ntasks=1 --kill-on-bad-exit=1 3 --ntasks=1 "
                   "--kill-on-bad-exit=1' ] && touch over && timeout 20 tail --pid=$(cat script) -f /dev/null",
                   dir);
    assert_int_equal(system(line), 0);
    (void)snprintf(line, sizeof line, "%s/slurm-job-11", dir);
    assert_false(env->file_exists(env, line));
    assert_row(cloud->destroy(cloud, &e) == 0, "%s", e.text);
    (void)snprintf(line, sizeof line, "%s/job-12", dir);
    assert_false(env->file_exists(env, line));
    (void)killed->destroy(killed, NULL);
    (void)snprintf(line, sizeof line, "rm -rf '%s'", dir);
    assert_int_equal(system(line), 0);
}

/* ---- slurmrestd ---- */

/* As 22.05 answers (v0.0.38), but for what nobody reads. */
static const char old_jobs[] =
    "{\"meta\": {\"plugin\": {\"type\": \"openapi\\/v0.0.38\"}}, \"errors\": [], \"jobs\": ["
    "{\"comment\": \"tidemill:abc:5:3\", \"end_time\": 1794926413, \"exit_code\": 0, \"job_id\": 31, \"job_state\": "
    "\"RUNNING\", \"nodes\": \"n1\", \"partition\": \"spot\", \"preempt_time\": 1794926383, \"state_reason\": "
    "\"None\", \"time_limit\": 30},"
    "{\"comment\": \"tidemill:abc:5:4\", \"end_time\": 1794928182, \"exit_code\": 0, \"job_id\": 32, \"job_state\": "
    "\"RUNNING\", \"nodes\": \"n4\", \"partition\": \"spot\", \"preempt_time\": 0, \"state_reason\": \"None\", "
    "\"time_limit\": 30},"
    "{\"comment\": \"\", \"end_time\": 6089893622, \"exit_code\": 0, \"job_id\": 5, \"job_state\": \"PENDING\", "
    "\"nodes\": \"\", \"partition\": \"prod\", \"preempt_time\": 0, \"state_reason\": \"Resources\", "
    "\"time_limit\": null},"
    "{\"comment\": \"tidemill:abc:5:5\", \"end_time\": 1794926386, \"exit_code\": 15, \"job_id\": 33, \"job_state\": "
    "\"CANCELLED\", \"nodes\": \"n1\", \"partition\": \"spot\", \"preempt_time\": 1794926383, \"state_reason\": "
    "\"None\", \"time_limit\": 30},"
    "{\"comment\": \"tidemill:abc:5:6\", \"end_time\": 0, \"exit_code\": 256, \"job_id\": 34, \"job_state\": "
    "\"COMPLETING\", \"nodes\": \"n2\", \"partition\": \"spot\", \"preempt_time\": 0, \"state_reason\": \"None\", "
    "\"time_limit\": null}]}";

/* The same jobs in the shapes of 0.0.39 on: lists of words, numbers with "set" and "infinite", an exit code in parts.
 */
#define NUMBER(n) "{\"set\": true, \"infinite\": false, \"number\": " #n "}"
#define NO_NUMBER "{\"set\": false, \"infinite\": true, \"number\": 0}"
#define NEW_JOB(id, tag, states, node, end, limit, preempt, code)                                                      \
    "{\"comment\": \"" tag "\", \"end_time\": " end ", \"exit_code\": " code ", \"job_id\": " #id                      \
    ", \"job_state\": " states ", \"nodes\": \"" node "\", \"partition\": \"spot\", \"preempt_time\": " preempt        \
    ", \"state_reason\": \"None\", \"time_limit\": " limit "}"
#define CODE_39(code, signal)                                                                                          \
    "{\"status\": \"SUCCESS\", \"return_code\": " #code ", \"signal\": {\"signal_id\": " #signal ", \"name\": \"\"}}"
#define CODE_41(code, signal)                                                                                          \
    "{\"status\": [\"SUCCESS\"], \"return_code\": " NUMBER(code) ", \"signal\": {\"id\": " NUMBER(                     \
        signal) ", \"name\": \"NONE\"}}"
#define NEW_JOBS(CODE)                                                                                                 \
    "{\"jobs\": [" NEW_JOB(                                                                                            \
        31, "tidemill:abc:5:3", "[\"RUNNING\"]", "n1", NUMBER(1794926413), NUMBER(30), NUMBER(1794926383),             \
        CODE(                                                                                                          \
            0,                                                                                                         \
            0)) "," NEW_JOB(32, "tidemill:abc:5:4", "[\"RUNNING\"]", "n4", NUMBER(1794928182), NUMBER(30), NUMBER(0),  \
                            CODE(                                                                                      \
                                0,                                                                                     \
                                0)) "," NEW_JOB(5, "", "[\"PENDING\"]", "", NO_NUMBER, NO_NUMBER, NUMBER(0),           \
                                                CODE(                                                                  \
                                                    0,                                                                 \
                                                    0)) "," NEW_JOB(33, "tidemill:abc:5:5", "[\"CANCELLED\"]", "n1",   \
                                                                    NUMBER(1794926386), NUMBER(30),                    \
                                                                    NUMBER(1794926383),                                \
                                                                    CODE(                                              \
                                                                        0,                                             \
                                                                        15)) "," NEW_JOB(34, "tidemill:abc:5:6",       \
                                                                                         "[\"FAILED\", "               \
                                                                                         "\"COMPLETING\"]",            \
                                                                                         "n2", NO_NUMBER, NO_NUMBER,   \
                                                                                         NUMBER(0),                    \
                                                                                         CODE(                         \
                                                                                             1,                        \
                                                                                             0)) "], \"errors\": [], " \
                                                                                                 "\"warnings\": []}"

static void test_rest_jobs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *text;
    } rows[] = {{"38", old_jobs}, {"39", NEW_JOBS(CODE_39)}, {"41", NEW_JOBS(CODE_41)}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slurm__answer answer = {0};
        char words[TM_SLURM_REST_WORDS_MAX];
        assert_int_equal(tm_slurm_rest__read(&answer, TM_SLURM_QUERY, 200, rows[i].text, strlen(rows[i].text),
                                             1794926390, words, NULL),
                         0);
        assert_row(answer.status == 0 && answer.row_count == 4, "%s: %zu rows", rows[i].name, answer.row_count);
        const struct tm_slurm__row *row = answer.rows;
        assert_row(row[0].job == 31 && row[0].preempted && row[0].left_ms == 23000, "%s", rows[i].name);
        assert_row(row[1].phase == TM_SLURM_RUNNING && !row[1].preempted && row[1].left_ms == 1792000, "%s",
                   rows[i].name);
        assert_row_string(rows[i].name, row[1].node, "n4");
        assert_row(row[1].tag.run == 5 && row[1].tag.instance == 4, "%s", rows[i].name);
        assert_row(row[2].phase == TM_SLURM_ENDED && row[2].preempted && row[2].status == 128 + 15, "%s", rows[i].name);
        assert_row(row[3].phase == TM_SLURM_COMPLETING && row[3].left_ms == -1 && row[3].status == 1, "%s",
                   rows[i].name);
        tm_slurm_answer__deinit(&answer);
    }
}

static void test_rest_answers(void **state)
{
    (void)state;
    static const struct {
        enum tm_slurm__command_kind kind;
        int http;
        const char *text;
        int status;
        int64_t job;
        const char *words;
    } rows[] = {
        {TM_SLURM_SUBMIT, 200, "{\"errors\": [], \"job_id\": 7, \"step_id\": \"BATCH\"}", 0, 7, ""},
        {TM_SLURM_SUBMIT, 200, "{\"result\": {\"job_id\": 8}, \"errors\": [], \"warnings\": []}", 0, 8, ""},
        {TM_SLURM_SUBMIT, 500,
         "{\"errors\": [{\"error\": \"Invalid partition name specified\", \"error_code\": 2000}]}", 1, 0,
         "Invalid partition name specified"},
        {TM_SLURM_SUBMIT, 400, "no JSON", 1, 0, "HTTP status 400"},
        {TM_SLURM_SUBMIT, 503, "", -1, 0, "HTTP status 503"},
        {TM_SLURM_QUERY, 500,
         "{\"errors\": [{\"description\": \"Unable to find JobId=9\", \"error_number\": 2017, \"error\": \"Invalid job "
         "id specified\"}], \"jobs\": []}",
         0, 0, ""}, /* it is forgotten, which says something */
        {TM_SLURM_QUERY, 500, "{\"errors\": [{\"errno\": 1007, \"error\": \"Protocol\\nerror\"}], \"jobs\": []}", 1, 0,
         "Protocol error"},
        {TM_SLURM_QUERY, 401, "Authentication failure", 1, 0, "HTTP status 401"},
        {TM_SLURM_QUERY, 200, "{}", 1, 0, "HTTP status 200"},
        {TM_SLURM_CANCEL, 200, "{\"errors\": []}", 0, 0, ""},
        {TM_SLURM_CANCEL, 500, "{\"errors\": [{\"error_number\": 2017, \"error\": \"x\"}]}", 0, 0, ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slurm__answer answer = {.words = ""};
        char words[TM_SLURM_REST_WORDS_MAX];
        assert_int_equal(tm_slurm_rest__read(&answer, rows[i].kind, rows[i].http, rows[i].text, strlen(rows[i].text), 0,
                                             words, NULL),
                         0);
        assert_row(answer.status == rows[i].status && answer.job == rows[i].job, "%s: %d, %lld", rows[i].text,
                   answer.status, (long long)answer.job);
        assert_row_string(rows[i].text, words, rows[i].words);
        tm_slurm_answer__deinit(&answer);
    }
}

static void test_rest_nodes(void **state)
{
    (void)state;
    static const char text[] =
        "{\"errors\": [], \"nodes\": [{\"name\": \"n1\", \"state\": \"allocated\", \"state_flags\": "
        "[]}, {\"name\": \"n6\", \"state\": \"idle\", \"state_flags\": [\"DRAIN\"]}, {\"name\": "
        "\"n2\", \"state\": [\"IDLE\"]}, {\"name\": \"n3\", \"state\": [\"MIXED\", \"DRAIN\"]}, "
        "{\"name\": \"n4\", \"state\": [\"DOWN\"]}]}";
    struct tm_slurm__answer answer = {0};
    char words[TM_SLURM_REST_WORDS_MAX];
    assert_int_equal(tm_slurm_rest__read(&answer, TM_SLURM_NODES, 200, text, sizeof text - 1, 0, words, NULL), 0);
    assert_int_equal(answer.leaving_count, 3);
    assert_string_equal(answer.leaving[0], "n6");
    assert_string_equal(answer.leaving[2], "n4");
    tm_slurm_answer__deinit(&answer);
}

static void test_rest_partitions(void **state)
{
    (void)state;
    static const char old[] =
        "{\"partitions\": [{\"name\": \"prod\", \"max_time_limit\": -1, \"preemption_grace_time\": 0, "
        "\"state\": \"DOWN\", \"total_nodes\": 2}, {\"name\": \"spot\", \"max_time_limit\": 90, "
        "\"preemption_grace_time\": 30, \"state\": \"UP\", \"total_nodes\": 6}]}";
    static const char new[] =
        "{\"partitions\": [{\"name\": \"prod\", \"maximums\": {\"time\": " NO_NUMBER "}, \"grace_time\": 0, "
        "\"partition\": {\"state\": [\"DOWN\"]}, \"nodes\": {\"total\": 2}}, {\"name\": \"spot\", \"maximums\": "
        "{\"time\": " NUMBER(
            90) "}, \"grace_time\": 30, \"partition\": {\"state\": [\"UP\"]}, \"nodes\": {\"total\": 6}}]}";
    const char *const texts[] = {old, new};
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_slurm__partition found;
        assert_true(tm_slurm_rest__read_partition(texts[i], strlen(texts[i]), "spot", &found));
        assert_row(found.up && found.grace_ms == 30000 && found.time_max_ms == 5400000 && found.nodes == 6, "%zu", i);
        assert_true(tm_slurm_rest__read_partition(texts[i], strlen(texts[i]), "prod", &found));
        assert_row(!found.up && found.grace_ms == 0 && found.time_max_ms == -1 && found.nodes == 2, "%zu", i);
        assert_false(tm_slurm_rest__read_partition(texts[i], strlen(texts[i]), "spto", &found));
    }
}

static const char variables[] =
    "PATH=/bin:/usr/bin\0SLURM_JOB_ID=5\0SLURM_JWT=secret\0SLURM_CONF=/etc/s\0EMPTY=\0odd\0";

static void test_rest_requests(void **state)
{
    (void)state;
    struct tm_slurm__rest_job job = {.version = 38,
                                     .name = "tidemill-abc",
                                     .comment = "tidemill:abc:5:3",
                                     .partition = "spot",
                                     .script = "#!/bin/bash\ntrue \"x\"\n",
                                     .folder = "/run",
                                     .time_limit_ms = 61000,
                                     .words = " --gpus-per-node=4  -A lab --cpus-per-task 2",
                                     .variables = variables,
                                     .variables_length = sizeof variables - 1};
    struct tm_text text;
    tm_text_init(&text, 4096);
    tm_slurm_rest__write_job(&job, &text);
    assert_string_equal(tm_text_string(&text),
                        "{\"script\": \"#!/bin/bash\\u000atrue "
                        "\\\"x\\\"\\u000a\", \"job\": {\"name\": \"tidemill-abc\", \"comment\": \"tidemill:abc:5:3\", "
                        "\"partition\": \"spot\", \"current_working_directory\": \"/run\", \"nodes\": \"1\", "
                        "\"tasks\": 1, \"exclusive\": "
                        "\"exclusive\", \"requeue\": false, \"open_mode\": \"append\", \"standard_output\": "
                        "\"/dev/null\", \"standard_error\": "
                        "\"/dev/"
                        "null\", \"time_limit\": 2, \"gpus_per_node\": \"4\", \"account\": \"lab\", \"cpus_per_task\": "
                        "2, \"environment\": {"
                        "\"PATH\": \"/bin:/usr/bin\", \"SLURM_CONF\": \"/etc/s\", \"EMPTY\": \"\"}}}\n");
    tm_text_clear(&text);
    job.version = 41;
    tm_slurm_rest__write_job(&job, &text);
    assert_string_equal(tm_text_string(&text),
                        "{\"job\": {\"script\": \"#!/bin/bash\\u000atrue "
                        "\\\"x\\\"\\u000a\", \"name\": \"tidemill-abc\", \"comment\": \"tidemill:abc:5:3\", "
                        "\"partition\": \"spot\", \"current_working_directory\": \"/"
                        "run\", \"nodes\": \"1\", \"tasks\": 1, \"exclusive\": [\"true\"], "
                        "\"requeue\": false, \"open_mode\": [\"APPEND\"], \"standard_output\": \"/dev/"
                        "null\", \"standard_error\": \"/dev/null\", "
                        "\"time_limit\": {\"set\": true, \"number\": 2}, \"tres_per_node\": \"gres/"
                        "gpu:4\", \"account\": \"lab\", \"cpus_per_task\": 2, "
                        "\"environment\": [\"PATH=/bin:/usr/bin\", \"SLURM_CONF=/etc/s\", \"EMPTY=\"]}}\n");
    tm_text_deinit(&text);
    static const struct {
        const char *words;
        bool good;
    } rows[] = {{"", true},
                {NULL, true},
                {"--qos=a --gres gpu:2 -C x", true},
                {"--mail-type=ALL", false},
                {"--qos", false},
                {"--qos --gres=gpu", false},
                {"-c two", false},
                {"-A=x", false},
                {"x", false}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row((tm_slurm_rest__check_words(rows[i].words, NULL) == 0) == rows[i].good, "%s",
                   rows[i].words != NULL ? rows[i].words : "none");
}

static int read_jobs(void)
{
    struct tm_slurm__answer answer = {0};
    char words[TM_SLURM_REST_WORDS_MAX];
    int rc = tm_slurm_rest__read(&answer, TM_SLURM_QUERY, 200, old_jobs, sizeof old_jobs - 1, 0, words, NULL);
    tm_slurm_answer__deinit(&answer);
    return rc;
}

static void test_rest_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = read_jobs());
}

static void test_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {{"", ""},
                {"\n\n", ""},
                {"one\n", "one"},
                {"no controller \r\n\nconnect failure\n", "no controller; connect failure"}};
    char out[TM_SLURM_SAID_MAX];
    char much[1000];
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        tm_slurm__in_one_line(rows[i].text, strlen(rows[i].text), out);
        assert_string_equal(out, rows[i].want);
    }
    memset(much, 'x', sizeof much);
    much[299] = '\n';
    tm_slurm__in_one_line(much, sizeof much, out);
    assert_int_equal(strlen(out), TM_SLURM_SAID_MAX - 1);
}

/* Why jobs wait goes with how many do; once more when it becomes one that somebody must do something about. */
static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *reason, *told;
    } rows[] = {{"Resources", "1 Resources"},
                {"Priority", ""},
                {"JobHeldAdmin", "1 JobHeldAdmin"},
                {"JobHeldAdmin", ""},
                {"None", "1 "}};
    struct tm_slurm__jobs s;
    begin(&s, 1);
    assert_int_equal(answer(&s, 0, 0, ""), TM_SLURM_QUERY);
    assert_int_equal(answer(&s, 0, 0, "11\n"), TM_SLURM_SUBMIT);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[300];
        char told[300] = "";
        struct tm_cloud_event event;
        (void)snprintf(text, sizeof text, "11|PENDING|%s|||INVALID|0|spot|tidemill:abc:5:3|\n", rows[i].reason);
        s.query_ms = 0;
        assert_int_equal(answer(&s, 1000, 0, text), TM_SLURM_QUERY);
        while (tm_slurm_jobs__event(&s, &event))
            if (event.kind == TM_CLOUD_REFUSED) (void)snprintf(told, sizeof told, "%d %s", event.count, event.why);
        assert_row(strcmp(told, rows[i].told) == 0, "%s: \"%s\"", rows[i].reason, told);
    }
    tm_slurm_jobs__deinit(&s);
}

static void test_rest_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        int rc;
    } rows[] = {{"unix:/nowhere/at/all", -(int)TM_EPEER},
                {"http://127.0.0.1:1", -(int)TM_EPEER},
                {"unix:relative", -(int)TM_EINPUT},
                {"http://127.0.0.1:1/", -(int)TM_EINPUT},
                {"slurm:6820", -(int)TM_EINPUT},
                {"", -(int)TM_EINPUT},
                {"http://login.example:1", -(int)TM_EINPUT},
                {"http://10.0.0.1", -(int)TM_EINPUT},
                {"http://127.0.0.1@x:1", -(int)TM_EINPUT},
                {"http://[::1]:1", -(int)TM_EPEER},
                {"http://[2001:db8::1]:1", -(int)TM_EINPUT}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slurm__rest *rest = NULL;
        struct tm_error e = {.text = ""};
        int rc = tm_slurm_rest__open(tm_env_real(), rows[i].address, NULL, &rest, &e);
        assert_row(rc == rows[i].rc, "%s: %d %s", rows[i].address, rc, e.text);
    }
}

TM_TEST_MAIN(TM_TEST(test_durations), TM_TEST(test_job_numbers), TM_TEST(test_partitions), TM_TEST(test_nodes),
             TM_TEST(test_addresses), TM_TEST(test_rows), TM_TEST(test_preemption), TM_TEST(test_ends),
             TM_TEST(test_short_lives), TM_TEST(test_no_answer), TM_TEST(test_adoption),
             TM_TEST(test_adoption_of_nodes), TM_TEST(test_adoption_limit), TM_TEST(test_limits), TM_TEST(test_orders),
             TM_TEST(test_memory), TM_TEST(test_processes), TM_TEST(test_taking_over), TM_TEST(test_rest_jobs),
             TM_TEST(test_rest_answers), TM_TEST(test_rest_nodes), TM_TEST(test_rest_partitions),
             TM_TEST(test_rest_requests), TM_TEST(test_rest_memory), TM_TEST(test_rest_addresses),
             TM_TEST(test_one_line), TM_TEST(test_reasons))

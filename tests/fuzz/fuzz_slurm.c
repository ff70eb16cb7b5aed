/* What Slurm prints: whatever comes, rows and numbers are within bounds, and jobs stay instances. */
#include "fuzz.h"

#include "cloud/slurm_jobs.h"
#include "cloud/slurm_rest_json.h"

#include <stdio.h>
#include <string.h>

static void read_all(const char *text, size_t length)
{
    struct tm_slurm__row row;
    struct tm_slurm__partition partition;
    char node[TM_SLURM_WORD_MAX];
    for (size_t at = 0; tm_slurm__next_row(text, length, &at, &row);)
        assert(row.job > 0 && row.tag.instance > 0 && row.status >= 0 && row.status < 256 && row.left_ms >= -1);
    for (size_t at = 0; tm_slurm__next_leaving(text, length, &at, node);)
        assert(at <= length);
    if (tm_slurm__read_address(text, length, "n1", node)) assert(strlen(node) < sizeof node);
    assert(tm_slurm__job_number(text, length) >= 0);
    if (tm_slurm__read_partition(text, length, "spot", &partition)) assert(partition.grace_ms >= 0);
    assert(tm_slurm__duration_ms(text, length) >= -1);
}

/* The same from slurmrestd. */
static void read_rest(const char *text, size_t length)
{
    struct tm_slurm__answer answer = {0};
    struct tm_slurm__partition partition;
    char words[TM_SLURM_REST_WORDS_MAX];
    for (int kind = TM_SLURM_SUBMIT; kind <= TM_SLURM_NODES; kind++) {
        tm_slurm_answer__clear(&answer);
        if (tm_slurm_rest__read(&answer, (enum tm_slurm__command_kind)kind, 200, text, length, 1794926390, words,
                                NULL) != 0)
            break;
        assert(answer.job >= 0 && strlen(words) < sizeof words);
        for (size_t i = 0; i < answer.row_count; i++) {
            const struct tm_slurm__row *row = &answer.rows[i];
            assert(row->job > 0 && row->tag.instance > 0 && row->status >= 0 && row->status < 256);
            assert(row->left_ms >= -1);
        }
    }
    tm_slurm_answer__deinit(&answer);
    if (tm_slurm_rest__read_partition(text, length, "spot", &partition))
        assert(partition.grace_ms >= 0 && partition.time_max_ms >= -1);
}

/* Options of sbatch, and variables: whatever they are, a request is written. */
static void write_rest(const char *text, size_t length)
{
    char words[512];
    struct tm_text out;
    (void)snprintf(words, sizeof words, "%.*s", (int)(length < sizeof words ? length : sizeof words - 1), text);
    struct tm_slurm__rest_job job = {.version = length % 2 == 0 ? 38 : 41,
                                     .name = "a",
                                     .comment = "b",
                                     .partition = "c",
                                     .script = words,
                                     .folder = "/",
                                     .words = words,
                                     .variables = text,
                                     .variables_length = length};
    tm_text_init(&out, 1 << 20);
    if (tm_slurm_rest__check_words(words, NULL) == 0) tm_slurm_rest__write_job(&job, &out);
    job.words = NULL;
    tm_slurm_rest__write_job(&job, &out);
    tm_text_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    struct tm_cloud_event event;
    struct tm_slurm__answer answer = {0};
    bool due = false;
    read_all((const char *)data, size);
    read_rest((const char *)data, size);
    write_rest((const char *)data, size);
    tm_slurm_jobs__init(&s);
    s.pools[0] = (struct tm_slurm__pool){.partition = "spot", .limit = 2, .notice_ms = 20000};
    s.pool_count = 1;
    s.tag = (struct tm_slurm__tag){.folder = "abc", .run = 5, .instance = 2};
    tm_slurm_jobs__want(&s, 0, 2, 0);
    for (int64_t now_ms = 0; now_ms < 40000; now_ms += 4000) { /* every command has this answer */
        if (tm_slurm_jobs__next(&s, now_ms, &command, &due, NULL) != 0 || !due) continue;
        int status = now_ms / 4000 % 3 == 2;
        if (tm_slurm_answer__read(&answer, command.kind, status, (const char *)data, size, NULL) != 0) break;
        if (tm_slurm_jobs__answer(&s, now_ms, &command, &answer, NULL) != 0) break;
        (void)tm_slurm_jobs__tick(&s, now_ms, NULL);
        while (tm_slurm_jobs__event(&s, &event))
            assert(event.kind == TM_CLOUD_REFUSED || event.instance > 0);
        assert(s.stray_count <= TM_SLURM_CANCEL_MAX);
    }
    tm_slurm_jobs__deinit(&s);
    tm_slurm_answer__deinit(&answer);
    assert(tm_alloc_live() == 0);
    return 0;
}

/* What Slurm prints: whatever comes, rows and numbers are within bounds, and jobs stay instances. */
#include "fuzz.h"

#include "cloud/slurm_jobs.h"

static void read_all(const char *text, size_t length)
{
    struct tm_slurm__row row;
    struct tm_slurm__partition partition;
    char node[TM_SLURM_WORD_MAX];
    for (size_t at = 0; tm_slurm__next_row(text, length, &at, &row);)
        assert(row.job > 0 && row.tag.instance > 0 && row.status >= 0 && row.status < 256 && row.left_ms >= -1);
    for (size_t at = 0; tm_slurm__next_leaving(text, length, &at, node);)
        assert(at <= length);
    assert(tm_slurm__job_number(text, length) >= 0);
    if (tm_slurm__read_partition(text, length, "spot", &partition)) assert(partition.grace_ms >= 0);
    assert(tm_slurm__duration_ms(text, length) >= -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_slurm__jobs s;
    struct tm_slurm__command command;
    struct tm_cloud_event event;
    bool due = false;
    read_all((const char *)data, size);
    tm_slurm_jobs__init(&s);
    s.pools[0] = (struct tm_slurm__pool){.partition = "spot", .limit = 2, .notice_ms = 20000};
    s.pool_count = 1;
    s.tag = (struct tm_slurm__tag){.folder = "abc", .run = 5, .instance = 2};
    tm_slurm_jobs__want(&s, 0, 2, 0);
    for (int64_t now_ms = 0; now_ms < 40000; now_ms += 4000) { /* every command has this answer */
        if (tm_slurm_jobs__next(&s, now_ms, &command, &due, NULL) != 0 || !due) continue;
        int status = now_ms / 4000 % 3 == 2;
        if (tm_slurm_jobs__answer(&s, now_ms, &command, status, (const char *)data, size, NULL) != 0) break;
        (void)tm_slurm_jobs__tick(&s, now_ms, NULL);
        while (tm_slurm_jobs__event(&s, &event))
            assert(event.kind == TM_CLOUD_REFUSED || event.instance > 0);
        assert(s.stray_count <= TM_SLURM_CANCEL_MAX);
    }
    tm_slurm_jobs__deinit(&s);
    assert(tm_alloc_live() == 0);
    return 0;
}

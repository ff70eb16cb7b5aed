/* Job files of `tidemill train`: what is accepted is a job that can be assigned. */
#include "engine/assignment.h"
#include "engine/train_job.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_arena arena;
    struct tm_job file;
    struct tm_train_job job;
    struct tm_error e;
    tm_job_init(&file);
    tm_arena_init(&arena, 16 << 20);
    int rc = tm_job_parse("fuzz", (const char *)data, size, &file, &e);
    if (rc == 0 && tm_train_job_of(&file, &arena, &job, &e) == 0) {
        assert(tm_network__check(&job.network, &e) == 0);
        assert(job.micro_batch > 0 && job.batch % job.micro_batch == 0 && job.steps > 0);
        assert(tm_network__parameters(&job.network) > 0);
    }
    tm_job_deinit(&file);
    tm_arena_deinit(&arena);
    assert(tm_alloc_live() == 0);
    return 0;
}

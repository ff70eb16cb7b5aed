/* Job files: whatever comes in is read or refused with words; what is read can be read again. */
#include "fuzz.h"
#include "workload/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_job job;
    struct tm_error e = {0};
    tm_job_init(&job);
    int rc = tm_job_parse("fuzz", (const char *)data, size, &job, &e);
    assert(rc == 0 || e.text[0] != '\0');
    if (rc == 0) assert(job.samples >= 0 && job.batch >= 0 && job.num_instances >= 0);
    tm_job_deinit(&job);
    assert(tm_alloc_live() == 0);
    return 0;
}

/* DeepVM's data sets: what is read can be planned with. */
#include "fuzz.h"
#include "plan/deepvm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tm_deepvm_data set;
    struct tm_deepvm_answer answers[TM_DEEPVM_TOP_MAX];
    struct tm_error e;
    size_t count = 0;
    tm_deepvm_data_init(&set);
    if (tm_deepvm_data__parse("fuzz", (const char *)data, size, &set, &e) == 0) {
        for (enum tm_deepvm_planner planner = TM_DEEPVM; planner <= TM_DEEPVM_PERF_FIRST; planner++) {
            struct tm_deepvm_request request = {
                .planner = planner, .max_usd_h = 3, .buffer = 0.5, .checkpoint_size = 2, .top = 3};
            if (tm_deepvm_plan(&set, &request, answers, &count, &e) == 0) assert(count <= 3);
        }
    }
    tm_deepvm_data_deinit(&set);
    assert(tm_alloc_live() == 0);
    return 0;
}

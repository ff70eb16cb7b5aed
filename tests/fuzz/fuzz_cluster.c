/* Clusters in words: what is read prints, and reads again as the same; a job on it ends with numbers or with words. */
#include "base/text.h"
#include "fuzz.h"
#include "sim/cluster_whatif.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tm_cluster cluster;
    static struct tm_cluster again;
    struct tm_error e;
    char *text = tm_strndup((const char *)data, size);
    assert(text != NULL);
    if (tm_cluster_parse(text, &cluster, &e) == 0) {
        struct tm_text once;
        struct tm_text twice;
        tm_text_init(&once, 1 << 16);
        tm_text_init(&twice, 1 << 16);
        tm_cluster_print(&cluster, &once);
        assert(tm_cluster_parse(tm_text_string(&once), &again, &e) == 0);
        tm_cluster_print(&again, &twice);
        assert(strcmp(tm_text_string(&once), tm_text_string(&twice)) == 0);
        struct tm_cluster_job job = {
            .model = &tm_cluster__models[1], .steps = 1000, .revocations = -1, .runs = 2, .replace = size % 2 == 0};
        struct tm_cluster_outcome outcome;
        assert(tm_cluster_run(&job, &cluster, &outcome, &e) == 0);
        assert(outcome.lost == 1 || outcome.time_h.mean > 0);
        tm_text_deinit(&once);
        tm_text_deinit(&twice);
    }
    tm_free(text);
    assert(tm_alloc_live() == 0);
    return 0;
}

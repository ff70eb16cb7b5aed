/* What Kubernetes, SkyPilot and their users write: lists of pods and clusters, statuses, kubeconfig files. Whatever is
 * read can be a name in a path and a line of a log. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/dns_name.h"
#include "cloud/kube_config.h"
#include "cloud/kube_pod.h"
#include "cloud/sky_cloud.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_remote_row *rows = NULL;
    size_t capacity = 0;
    size_t count = 0;
    char words[TM_REMOTE_WORDS_MAX];
    struct tm_kube_config config;
    struct tm_arena arena;
    const char *text = (const char *)data;
    if (tm_kube_pods__read(text, size, 0, &rows, &capacity, &count, NULL) == 0) {
        for (size_t i = 0; i < count; i++) {
            assert(tm_dns_name_is_good(rows[i].name));
            assert(strpbrk(rows[i].words, "\n\r\t") == NULL && rows[i].left_ms >= 0);
        }
    }
    struct tm_remote_answer answer;
    if (tm_sky_answer__read(text, size, &rows, &capacity, &answer, NULL) == 0) {
        assert(answer.row_count == 0 || answer.rows == rows);
        assert(strpbrk(answer.words, "\n\r\t") == NULL);
    }
    tm_free(rows);
    tm_kube_status__read(text, size, words);
    assert(strpbrk(words, "\n\r\t") == NULL);
    tm_arena_init(&arena, 4 << 20);
    if (tm_kube_config__read(tm_env_real(), "fuzz", text, size, "/nowhere", NULL, &arena, &config, NULL) == 0)
        assert(config.server != NULL && strncmp(config.server, "http", 4) == 0);
    tm_arena_deinit(&arena);
    return 0;
}

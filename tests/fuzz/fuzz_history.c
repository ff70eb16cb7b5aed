/* The user's price history: what is read sorts, prints, and reads again as the same. */
#include "base/env_virtual.h"
#include "fuzz.h"
#include "market/price_history.h"

#include <string.h>

static int read_back(struct tm_env *env, const char *text, size_t length, struct tm_text *out)
{
    struct tm_price_history history;
    struct tm_error e;
    tm_price_history_init(&history);
    (void)env->file_write(env, "/data/spot-prices.csv", text, length, &e);
    int rc = tm_price_history_load(env, &history, &e);
    if (rc == 0) rc = tm_price_history__sort(&history, &e);
    if (rc == 0) tm_price_history__print(&history, out);
    tm_price_history_deinit(&history);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_text once;
    struct tm_text twice;
    assert(env != NULL);
    tm_text_init(&once, 16 << 20);
    tm_text_init(&twice, 16 << 20);
    (void)tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/data");
    if (read_back(env, (const char *)data, size, &once) == 0) {
        assert(read_back(env, tm_text_string(&once), once.length, &twice) == 0);
        assert(strcmp(tm_text_string(&once), tm_text_string(&twice)) == 0);
    }
    tm_text_deinit(&once);
    tm_text_deinit(&twice);
    tm_env_virtual_destroy(env);
    assert(tm_alloc_live() == 0);
    return 0;
}

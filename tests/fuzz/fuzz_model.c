/* Our model format, and formulas: what parses prints, and parses again to the same text. */
#include "fuzz.h"
#include "workload/model.h"

#include <string.h>

static void round_trip(const struct tm_model *model)
{
    struct tm_text once;
    struct tm_text twice;
    struct tm_model again;
    struct tm_error e;
    tm_text_init(&once, 64 << 20);
    tm_text_init(&twice, 64 << 20);
    tm_model_init(&again);
    tm_model__print(model, &once);
    assert(tm_model__parse("again", tm_text_string(&once), once.length, &again, &e) == 0);
    tm_model__print(&again, &twice);
    assert(strcmp(tm_text_string(&once), tm_text_string(&twice)) == 0);
    assert(again.layer_count == model->layer_count && again.point_count == model->point_count);
    tm_model_deinit(&again);
    tm_text_deinit(&once);
    tm_text_deinit(&twice);
}

/* A formula is a command's argument: one line, not too long, without a NUL. */
static void read_formula(const char *data, size_t size)
{
    char *text = tm_strndup(data, size);
    struct tm_model model;
    struct tm_error e;
    assert(text != NULL);
    tm_model_init(&model);
    if (tm_model__from_formula(text, &model, &e) == 0) {
        struct tm_model_totals totals = tm_model_totals(&model);
        assert(totals.params > 0 && totals.forward_flops > 0 && model.layer_count >= 4);
        round_trip(&model);
    }
    tm_model_deinit(&model);
    tm_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_model model;
    struct tm_error e;
    tm_model_init(&model);
    if (tm_model__parse("fuzz", (const char *)data, size, &model, &e) == 0) round_trip(&model);
    tm_model_deinit(&model);
    if (size < 200 && memchr(data, '\0', size) == NULL) read_formula((const char *)data, size);
    assert(tm_alloc_live() == 0);
    return 0;
}

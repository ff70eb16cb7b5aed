/* Profiles in our form and in other people's CSV: what parses prints, and parses again to the same text. */
#include "fuzz.h"
#include "workload/profile.h"

#include <string.h>

static void round_trip(const struct tm_profile *profile)
{
    struct tm_text once;
    struct tm_text twice;
    struct tm_profile again;
    struct tm_error e;
    tm_text_init(&once, 64 << 20);
    tm_text_init(&twice, 64 << 20);
    tm_profile_init(&again);
    tm_profile_print(profile, &once);
    assert(tm_profile_parse("again", tm_text_string(&once), once.length, &again, &e) == 0);
    tm_profile_print(&again, &twice);
    assert(strcmp(tm_text_string(&once), tm_text_string(&twice)) == 0);
    assert(again.step_count == profile->step_count && again.run_count == profile->run_count);
    assert(again.layer_count == profile->layer_count && again.network_count == profile->network_count);
    tm_profile_deinit(&again);
    tm_text_deinit(&once);
    tm_text_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_profile profile;
    struct tm_error e;
    tm_profile_init(&profile);
    if (tm_profile_parse("fuzz", (const char *)data, size, &profile, &e) == 0) {
        const char *network = NULL;
        struct tm_model model;
        round_trip(&profile);
        tm_model_init(&model);
        if (tm_profile_choose(&profile, "fuzz", NULL, &network, &e) == 0)
            (void)tm_profile_model(&profile, "fuzz", network, &model, &e);
        tm_model_deinit(&model);
        /* A second reading adds the same rows once more. */
        size_t rows = profile.step_count + profile.run_count;
        assert(tm_profile_parse("fuzz", (const char *)data, size, &profile, &e) == 0);
        assert(profile.step_count + profile.run_count == 2 * rows);
    } else {
        assert(profile.step_count == 0 && profile.run_count == 0 && profile.source[0] == '\0');
    }
    tm_profile_deinit(&profile);
    assert(tm_alloc_live() == 0);
    return 0;
}

/* A profiled network as a model: its layers in the order of the profile. */
#include "workload/profile.h"

#include "base/number.h"

#include <string.h>

int tm_profile_choose(const struct tm_profile *profile, const char *file, const char *name, const char **out,
                      struct tm_error *e)
{
    const char *found = NULL;
    bool several = false;
    for (size_t i = 0; i < profile->layer_count; i++) {
        const char *network = profile->layers[i].network;
        if (name != NULL && strcmp(network, name) != 0) continue;
        several = several || (found != NULL && strcmp(found, network) != 0);
        if (found == NULL) found = network;
    }
    if (found == NULL && name != NULL)
        return tm_error_set(e, TM_EINPUT, "%s: it has no layers of \"%.60s\"", file, name);
    if (found == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "%s: it has no table [layer]: give --model, or make a profile with tidemill profile", file);
    if (several)
        return tm_error_set(e, TM_EINPUT, "%s: it has layers of several networks; choose one with --network", file);
    *out = found;
    return 0;
}

static void put_layer(const struct tm_profile_layer *row, struct tm_text *out)
{
    const double figures[] = {row->layer.params,       row->layer.forward_flops, row->layer.traffic_values,
                              row->layer.saved_values, row->layer.output_values, row->layer.ops};
    char number[TM_NUMBER_TEXT_MAX];
    tm_text_printf(out, "%s,%s", row->layer.name, tm_layer_kind_names[row->layer.kind]);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        tm_text_printf(out, ",%s", tm_number_print(figures[i], number));
    tm_text_printf(out, ",%s\n", row->tied);
}

/* The batch that the job takes by itself; of several that were profiled the largest. 0: no steps. */
static int own_batch(const struct tm_profile *profile, const char *network)
{
    int64_t largest = 0;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        int64_t batch = (int64_t)step->micro_batch * (step->micro_batches > 0 ? step->micro_batches : 1);
        if (strcmp(step->network, network) == 0 && batch > largest) largest = batch;
    }
    return largest < 1 << 30 ? (int)largest : 1 << 30;
}

/* By way of the file form, so that what is checked there is checked here. */
int tm_profile_model(const struct tm_profile *profile, const char *file, const char *network, struct tm_model *model,
                     struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_MODEL_BYTES_MAX);
    tm_text_printf(&text, "tidemill-model 1\nname: %s\n", network);
    for (size_t i = 0; i < profile->network_count; i++) {
        const struct tm_profile_network *row = &profile->networks[i];
        if (strcmp(row->network, network) != 0) continue;
        tm_text_printf(&text, "optimizer-states: %d\n", row->optimizer_states);
        if (row->input[0] != '\0') tm_text_printf(&text, "input: %s\n", row->input);
        break;
    }
    int batch = own_batch(profile, network);
    if (batch > 0) tm_text_printf(&text, "global-batch: %d\n", batch);
    tm_text_puts(&text, "name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied\n");
    for (size_t i = 0; i < profile->layer_count; i++) {
        if (strcmp(profile->layers[i].network, network) == 0) put_layer(&profile->layers[i], &text);
    }
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_model__parse(file, tm_text_string(&text), text.length, model, e);
    tm_text_deinit(&text);
    return rc;
}

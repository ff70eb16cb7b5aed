#include "workload/profile_report.h"

#include "base/alloc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BUCKETS_MAX = 4096 };

static double layer_ms(const struct tm_profile_layer *layer)
{
    return (isnan(layer->forward_ms) ? 0 : layer->forward_ms) + (isnan(layer->backward_ms) ? 0 : layer->backward_ms);
}

/* Keeps the slowest layers, in order. */
static void rank_layers(const struct tm_profile *profile, const char *network, struct tm_profile_report *out)
{
    for (size_t i = 0; i < profile->layer_count; i++) {
        const struct tm_profile_layer *layer = &profile->layers[i];
        if (strcmp(layer->network, network) != 0) continue;
        out->layers_in_all++;
        out->layers_ms += layer_ms(layer);
        size_t at = out->layer_count;
        while (at > 0 && layer_ms(out->layers[at - 1]) < layer_ms(layer))
            at--;
        if (at == TM_REPORT_LAYERS_MAX) continue;
        if (out->layer_count < TM_REPORT_LAYERS_MAX) out->layer_count++;
        for (size_t k = out->layer_count - 1; k > at; k--)
            out->layers[k] = out->layers[k - 1];
        out->layers[at] = layer;
    }
}

static int sum_gradients(const struct tm_profile *profile, const char *network, struct tm_profile_report *out,
                         struct tm_error *e)
{
    struct tm_comm_bucket *tensors = tm_calloc(profile->gradient_count + 1, sizeof *tensors);
    struct tm_comm_bucket *buckets = tm_calloc(BUCKETS_MAX, sizeof *buckets);
    int rc = tensors == NULL || buckets == NULL ? tm_error_nomem(e) : 0;
    double hidden = 0;
    for (size_t i = 0; rc == 0 && i < profile->gradient_count; i++) {
        const struct tm_profile_gradient *row = &profile->gradients[i];
        if (strcmp(row->network, network) != 0) continue;
        tensors[out->tensors++] = (struct tm_comm_bucket){row->bytes, row->ready};
        out->grad_bytes += row->bytes;
    }
    if (rc == 0) out->buckets = tm_comm__tensor_buckets(tensors, out->tensors, buckets, BUCKETS_MAX);
    for (size_t i = 0; rc == 0 && i < out->buckets; i++)
        hidden += buckets[i].ready < 1 ? buckets[i].bytes : 0;
    if (rc == 0 && out->buckets > 0) {
        out->first_ready = buckets[0].ready;
        out->hidden_share = hidden / out->grad_bytes;
    }
    tm_free(tensors);
    tm_free(buckets);
    return rc;
}

__attribute__((format(printf, 2, 3))) static void advise(struct tm_profile_report *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(out->advice[out->advice_count++], TM_REPORT_TEXT_MAX, format, arguments);
    va_end(arguments);
}

static void find_advice(const struct tm_profile *profile, const char *network, struct tm_profile_report *out)
{
    const struct tm_profile_step *step = out->step;
    double data_share = isnan(step->data_ms) ? 0 : step->data_ms / out->step_ms;
    double other_share = isnan(step->other_ms) ? 0 : step->other_ms / out->step_ms;
    int batches = 0;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *other = &profile->steps[i];
        batches += strcmp(other->network, network) == 0 && strcmp(other->gpu, step->gpu) == 0 &&
                   other->precision == step->precision;
    }
    if (data_share > 0.05)
        advise(out,
               "The loop waits for data %.0f%% of the time: give the DataLoader more workers, or a larger prefetch.",
               100 * data_share);
    if (other_share > 0.15)
        advise(out,
               "%.0f%% of a step is outside forward, backward and optimizer: look for copies to the device, logging "
               "and .item().",
               100 * other_share);
    if (out->layer_count > 0 && layer_ms(out->layers[0]) > 0.4 * out->layers_ms && out->layers_in_all > 2)
        advise(out, "One layer (%.60s) takes %.0f%% of the passes: pipelines cannot be split evenly.",
               out->layers[0]->layer.name, 100 * layer_ms(out->layers[0]) / out->layers_ms);
    if (out->buckets > 0 && out->hidden_share < 0.5)
        advise(out,
               "%.0f%% of the gradients are ready only when the backward pass ends: little communication can overlap "
               "with it.",
               100 * (1 - out->hidden_share));
    if (out->spread > 0.1)
        advise(out, "Steps vary by %.0f%%: was the machine busy? Profile again on an idle one.", 100 * out->spread);
    if (batches == 1)
        advise(out,
               "Only one batch size is known: profile another with --add, and other sizes are predicted from both.");
}

int tm_profile_report(const struct tm_profile *profile, const char *network, struct tm_profile_report *out,
                      struct tm_error *e)
{
    struct tm_profile_report fresh = {.spread = NAN};
    for (size_t i = 0; i < profile->step_count; i++) {
        if (strcmp(profile->steps[i].network, network) == 0) fresh.step = &profile->steps[i];
    }
    if (fresh.step == NULL) return tm_error_set(e, TM_EINPUT, "no steps of %s in the profile", network);
    const struct tm_profile_step *step = fresh.step;
    fresh.step_ms = tm_profile__whole_step_ms(step);
    fresh.samples_per_s =
        (double)step->micro_batch * (step->micro_batches > 0 ? step->micro_batches : 1) / fresh.step_ms * 1e3;
    if (step->step_ms_p10 > 0 && step->step_ms_p90 >= step->step_ms_p10)
        fresh.spread = tm_estimate__spread_between(step->step_ms_p10, step->step_ms_p90);
    rank_layers(profile, network, &fresh);
    int rc = sum_gradients(profile, network, &fresh, e);
    if (rc != 0) return rc;
    find_advice(profile, network, &fresh);
    *out = fresh;
    return 0;
}

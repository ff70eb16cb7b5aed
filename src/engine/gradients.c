#include "engine/gradients.h"

#include "base/alloc.h"
#include "engine/fixed_point.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 64 };

const char *const tm_determinism_names[] = {"bitwise", "fast", NULL};

int tm_gradients__init(struct tm_gradients *gradients, const struct tm_kernels *kernels,
                       const struct tm_layer_state *state, enum tm_determinism determinism, float *single,
                       struct tm_error *e)
{
    *gradients = (struct tm_gradients){
        .kernels = kernels, .spec = &state->spec, .determinism = determinism, .single = single, .first = true};
    gradients->memory = tm_calloc(2 * state->spec.floats * sizeof(float) + ALIGN, 1);
    if (gradients->memory == NULL) return tm_error_nomem(e);
    unsigned char *aligned = gradients->memory;
    aligned += (ALIGN - (uintptr_t)aligned % ALIGN) % ALIGN;
    gradients->sums.integers = (void *)aligned;
    gradients->kept.integers = gradients->sums.integers + state->spec.floats;
    return 0;
}

void tm_gradients__deinit(struct tm_gradients *gradients)
{
    tm_free(gradients->memory);
    *gradients = (struct tm_gradients){0};
}

void tm_gradients__start(struct tm_gradients *gradients, const int32_t scales[TM_TENSORS_MAX])
{
    memcpy(gradients->scales, scales, sizeof gradients->scales);
    memset(gradients->largest, 0, sizeof gradients->largest);
    gradients->first = true;
}

float *tm_gradients__begin(struct tm_gradients *gradients, size_t tensor, float *out_beta)
{
    bool direct = gradients->determinism != TM_BITWISE;
    *out_beta = direct && !gradients->first ? 1.0F : 0.0F;
    return direct ? gradients->sums.floats + gradients->spec->tensors[tensor].offset : gradients->single;
}

float *tm_gradients__begin_set(struct tm_gradients *gradients)
{
    return gradients->single;
}

static void note_largest(struct tm_gradients *gradients, size_t tensor, float largest)
{
    if (isnan(largest) || largest > gradients->largest[tensor]) gradients->largest[tensor] = largest;
}

void tm_gradients__end(struct tm_gradients *gradients, size_t tensor, const float *at)
{
    const struct tm_tensor_spec *spec = &gradients->spec->tensors[tensor];
    float *sum = gradients->sums.floats + spec->offset;
    if (gradients->determinism == TM_BITWISE) {
        float unit = tm_fixed__unit(gradients->scales[tensor]);
        note_largest(gradients, tensor,
                     gradients->kernels->quantise(gradients->sums.integers + spec->offset, at, unit, gradients->first,
                                                  spec->count));
    } else if (at != sum && gradients->first) {
        memcpy(sum, at, spec->count * sizeof *sum);
    } else if (at != sum) {
        gradients->kernels->add_f32(sum, at, spec->count);
    }
}

void tm_gradients__micro_done(struct tm_gradients *gradients)
{
    gradients->first = false;
}

void tm_gradients__finish(struct tm_gradients *gradients)
{
    if (gradients->first) memset(gradients->sums.floats, 0, gradients->spec->floats * sizeof(float));
    gradients->first = false;
    if (gradients->determinism != TM_NAIVE) return;
    for (size_t t = 0; t < gradients->spec->tensor_count; t++) {
        const struct tm_tensor_spec *spec = &gradients->spec->tensors[t];
        /* in place: a value is read before its place is written */
        float *floats = gradients->sums.floats + spec->offset;
        float largest = gradients->kernels->quantise(gradients->sums.integers + spec->offset, floats,
                                                     tm_fixed__unit(gradients->scales[t]), true, spec->count);
        note_largest(gradients, t, largest);
    }
}

double tm_gradients__unit(const struct tm_gradients *gradients, size_t tensor, int64_t micro_batches)
{
    double unit = gradients->determinism == TM_FAST ? 1.0 : ldexp(1.0, -gradients->scales[tensor]);
    return unit / (double)micro_batches;
}

double tm_gradients__square_sum(const struct tm_gradients *gradients, size_t from_tensor, int64_t micro_batches)
{
    double total = 0;
    for (size_t t = from_tensor; t < gradients->spec->tensor_count; t++) {
        const struct tm_tensor_spec *spec = &gradients->spec->tensors[t];
        double unit = tm_gradients__unit(gradients, t, micro_batches);
        double sum = gradients->determinism == TM_FAST
                         ? gradients->kernels->square_sum_f32(gradients->sums.floats + spec->offset, spec->count)
                         : gradients->kernels->square_sum_i32(gradients->sums.integers + spec->offset, spec->count);
        total += sum * unit * unit;
    }
    return total;
}

#include "engine/optimizer.h"

#include <math.h>

struct tm_optimizer tm_optimizer_defaults(void)
{
    return (struct tm_optimizer){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
}

/* The learning rate of step `step`, the first being 0. */
static double rate_of(const struct tm_optimizer *optimizer, int64_t step)
{
    if (step < optimizer->warmup_steps)
        return optimizer->lr * (double)(step + 1) / (double)(optimizer->warmup_steps + 1);
    if (optimizer->decay_steps <= optimizer->warmup_steps) return optimizer->lr;
    if (step >= optimizer->decay_steps) return optimizer->lr_min;
    double done = (double)(step - optimizer->warmup_steps) / (double)(optimizer->decay_steps - optimizer->warmup_steps);
    return optimizer->lr_min + 0.5 * (1 + cos(M_PI * done)) * (optimizer->lr - optimizer->lr_min);
}

double tm_optimizer__clip_factor(const struct tm_optimizer *optimizer, double norm)
{
    if (optimizer->clip <= 0) return 1;
    double factor = optimizer->clip / (norm + 1e-6);
    return factor < 1 ? factor : 1;
}

void tm_optimizer__apply(const struct tm_optimizer *optimizer, const struct tm_gradients *gradients, int64_t step,
                         int64_t micro_batches, double clip_factor, struct tm_layer_state *state)
{
    double rate = rate_of(optimizer, step);
    double t = (double)(step + 1);
    struct tm_adamw adamw = {.beta1 = (float)optimizer->beta1,
                             .beta2 = (float)optimizer->beta2,
                             .eps = (float)optimizer->eps,
                             .step_size = (float)(rate / (1 - pow(optimizer->beta1, t))),
                             .v_scale = (float)(1 / sqrt(1 - pow(optimizer->beta2, t)))};
    for (size_t i = 0; i < state->spec.tensor_count; i++) {
        const struct tm_tensor_spec *tensor = &state->spec.tensors[i];
        adamw.keep = (float)(1 - (tensor->decays ? rate * optimizer->weight_decay : 0));
        adamw.grad_scale = (float)(tm_gradients__unit(gradients, i, micro_batches) * clip_factor);
        float *w = state->weights + tensor->offset;
        float *m = state->moment1 + tensor->offset;
        float *v = state->moment2 + tensor->offset;
        if (gradients->determinism == TM_FAST)
            gradients->kernels->adamw_f32(w, m, v, gradients->sums.floats + tensor->offset, &adamw, tensor->count);
        else
            gradients->kernels->adamw_i32(w, m, v, gradients->sums.integers + tensor->offset, &adamw, tensor->count);
    }
}

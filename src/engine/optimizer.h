/* AdamW with decoupled decay, clipping by global norm, and a learning rate that warms up and then falls as a cosine. */
#ifndef TM_ENGINE_OPTIMIZER_H
#define TM_ENGINE_OPTIMIZER_H

#include "engine/gradients.h"

struct tm_optimizer {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    double clip;          /* largest global norm of gradients; 0: none */
    int64_t warmup_steps; /* the rate grows linearly over so many steps */
    int64_t decay_steps;  /* and falls to lr_min at this step; 0: it stays */
    double lr_min;
};

/* lr 1e-3, betas 0.9 and 0.95, eps 1e-8, decay 0.1, clip 1. */
struct tm_optimizer tm_optimizer_defaults(void);

/* What gradients of this norm are multiplied by, at most 1 (as PyTorch's clip_grad_norm_). */
double tm_optimizer__clip_factor(const struct tm_optimizer *optimizer, double norm);

/* One update of a layer from its reduced gradients. */
void tm_optimizer__apply(const struct tm_optimizer *optimizer, const struct tm_gradients *gradients, int64_t step,
                         int64_t micro_batches, double clip_factor, struct tm_layer_state *state);

#endif

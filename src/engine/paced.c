#include "engine/paced.h"

#include "base/alloc.h"
#include "workload/model.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { STATE_BYTES_MIN = 128, MESSAGE_BYTES_MIN = 64, MESSAGE_BYTES_MAX = 1 << 20, BLOCK_WORDS = 8 };
static const double forward_share = 1.0 / 3; /* of a micro-batch: backward takes twice as long */
static const double activation_bytes = 2;    /* of a value */
static const double late_share = 0.25;       /* of a step: so much is made up for */

struct tm_paced {
    struct tm_env *env;
    struct tm_paced_job job;
    const struct tm_kernels *kernels;
    uint32_t layer_count;
    uint64_t **layers; /* owned; [layer]: NULL: not held */
    uint32_t *words;   /* owned; [layer]: of its gradient */
    int32_t *gradient; /* owned: of the stage's layers, one after the other */
    size_t gradient_capacity;
    uint8_t *message; /* owned; what is sent along the pipeline */
    struct tm_paced_place place;
    int64_t begun_ns; /* when the running step should have begun */
    double step_ns;   /* what it takes */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool cancelled;
};

/* ---- sizes ---- */

static uint64_t scaled(double bytes, uint32_t divisor, uint64_t least, uint64_t most)
{
    double result = bytes / divisor;
    if (!(result > (double)least)) return least;
    return result < (double)most ? (uint64_t)result / 8 * 8 : most;
}

uint32_t tm_paced__layers(const struct tm_paced_job *job)
{
    return (uint32_t)job->model->layer_count;
}

uint64_t tm_paced__layer_bytes(const struct tm_paced_job *job, uint32_t layer)
{
    double bytes = job->model->layers[layer].params * 4 * (1 + job->model->optimizer_states);
    return scaled(bytes, job->bytes_divisor, STATE_BYTES_MIN, (uint64_t)1 << 40);
}

static uint32_t gradient_words(const struct tm_paced_job *job, uint32_t layer)
{
    double bytes = job->model->layers[layer].params * 4;
    return (uint32_t)(scaled(bytes, job->bytes_divisor, 4 * TM_PACED_WORDS, (uint64_t)1 << 32) / 4);
}

/* What a stage hands on of all its pipeline's micro-batches, where layer `last` is its last one. */
static size_t message_bytes(const struct tm_paced *paced, uint32_t last)
{
    const struct tm_model *model = paced->job.model;
    uint32_t count = paced->place.last_micro_batch - paced->place.first_micro_batch;
    int samples = model->micro_batch > 0 ? model->micro_batch : 1;
    double bytes = model->layers[last].output_values * samples * count * activation_bytes;
    return (size_t)scaled(bytes, paced->job.bytes_divisor, MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX);
}

/* ---- the chain ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + 0x9E3779B97F4A7C15U + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

void tm_paced__init_layer(const struct tm_paced_job *job, uint32_t layer, void *out)
{
    uint64_t *words = out;
    for (uint64_t w = 0; w < tm_paced__layer_bytes(job, layer) / sizeof *words; w++)
        words[w] = mix(layer + 1, w);
}

/* What one micro-batch adds to the words of a layer's gradient that live: sums of it have no order. */
static void add_micro_batch(int32_t *gradient, uint32_t layer, uint64_t step, uint32_t micro_batch)
{
    uint64_t key = mix(mix(layer + 1, step), micro_batch);
    for (uint32_t w = 0; w < TM_PACED_WORDS; w++)
        gradient[w] = (int32_t)((uint32_t)gradient[w] + (uint32_t)mix(key, w));
}

static double norm_of(const int32_t *gradient)
{
    uint64_t sum = 0;
    for (uint32_t w = 0; w < TM_PACED_WORDS; w++)
        sum = mix(sum, (uint32_t)gradient[w]);
    return (double)(sum >> 11) * 0x1p-53;
}

/* The head of the chain takes the step in, and one block of the state, another each step, takes the head. */
static void apply_to(uint64_t *state, uint64_t bytes, const int32_t *gradient, uint64_t step, double norm)
{
    uint64_t bits;
    uint64_t blocks = bytes / sizeof *state / BLOCK_WORDS;
    memcpy(&bits, &norm, sizeof bits);
    for (uint32_t w = 0; w < BLOCK_WORDS; w++)
        state[w] = mix(mix(mix(state[w], (uint32_t)gradient[w % TM_PACED_WORDS]), bits), step);
    uint64_t *block = state + (1 + step % (blocks - 1)) * BLOCK_WORDS;
    for (uint32_t w = 0; w < BLOCK_WORDS; w++)
        block[w] = mix(block[w], state[w]);
}

int tm_paced_reference(const struct tm_paced_job *job, uint64_t steps,
                       void (*each)(void *context, uint32_t layer, const void *state, uint64_t bytes), void *context,
                       struct tm_error *e)
{
    uint32_t count = (uint32_t)job->model->layer_count;
    uint64_t **states = tm_calloc(count, sizeof *states);
    int32_t(*gradients)[TM_PACED_WORDS] = tm_calloc(count, sizeof *gradients);
    int rc = states == NULL || gradients == NULL ? tm_error_nomem(e) : 0;
    for (uint32_t l = 0; rc == 0 && l < count; l++) {
        states[l] = tm_alloc(tm_paced__layer_bytes(job, l));
        if (states[l] == NULL) rc = tm_error_nomem(e);
        if (rc == 0) tm_paced__init_layer(job, l, states[l]);
    }
    for (uint64_t step = 1; rc == 0 && step <= steps; step++) {
        double norm = 0;
        memset(gradients, 0, count * sizeof *gradients);
        for (uint32_t l = 0; l < count; l++) {
            for (uint32_t m = 0; m < job->micro_batches; m++)
                add_micro_batch(gradients[l], l, step, m);
            norm += norm_of(gradients[l]);
        }
        for (uint32_t l = 0; l < count; l++)
            apply_to(states[l], tm_paced__layer_bytes(job, l), gradients[l], step, norm);
    }
    for (uint32_t l = 0; states != NULL && l < count; l++) {
        if (rc == 0) each(context, l, states[l], tm_paced__layer_bytes(job, l));
        tm_free(states[l]);
    }
    tm_free(states);
    tm_free(gradients);
    return rc;
}

/* ---- life ---- */

static int check_job(const struct tm_paced_job *job, struct tm_error *e)
{
    if (job->model->layer_count == 0) return tm_error_set(e, TM_EINPUT, "%s has no layers", job->model->name);
    if (!(job->speed > 0) || !isfinite(job->speed) || job->bytes_divisor == 0 || job->micro_batches == 0)
        return tm_error_set(e, TM_EINPUT, "the paced engine needs a replay speed, micro-batches and sizes above 0");
    return 0;
}

int tm_paced__create(struct tm_env *env, const struct tm_paced_job *job, struct tm_paced **out, struct tm_error *e)
{
    int rc = check_job(job, e);
    if (rc != 0) return rc;
    struct tm_paced *paced = tm_calloc(1, sizeof *paced);
    if (paced == NULL) return tm_error_nomem(e);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&paced->lock, NULL);
    (void)pthread_cond_init(&paced->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    paced->env = env;
    paced->job = *job;
    paced->layer_count = (uint32_t)job->model->layer_count;
    paced->layers = tm_calloc(paced->layer_count, sizeof *paced->layers);
    paced->words = tm_calloc(paced->layer_count, sizeof *paced->words);
    paced->message = tm_calloc(1, MESSAGE_BYTES_MAX);
    if (paced->layers == NULL || paced->words == NULL || paced->message == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = tm_kernels_choose(env, &paced->kernels, e);
    for (uint32_t l = 0; rc == 0 && l < paced->layer_count; l++)
        paced->words[l] = gradient_words(job, l);
    if (rc != 0)
        tm_paced__destroy(paced);
    else
        *out = paced;
    return rc;
}

void tm_paced__destroy(struct tm_paced *paced)
{
    if (paced == NULL) return;
    tm_free(paced->layers);
    tm_free(paced->words);
    tm_free(paced->gradient);
    tm_free(paced->message);
    (void)pthread_cond_destroy(&paced->changed);
    (void)pthread_mutex_destroy(&paced->lock);
    tm_free(paced);
}

void tm_paced__take(struct tm_paced *paced, uint32_t layer, void *memory)
{
    paced->layers[layer] = memory;
}

void *tm_paced__layer(struct tm_paced *paced, uint32_t layer)
{
    return paced->layers[layer];
}

void tm_paced__drop(struct tm_paced *paced, uint32_t layer)
{
    paced->layers[layer] = NULL;
}

/* ---- time ---- */

void tm_paced__cancel(struct tm_paced *paced)
{
    (void)pthread_mutex_lock(&paced->lock);
    paced->cancelled = true;
    (void)pthread_cond_broadcast(&paced->changed);
    (void)pthread_mutex_unlock(&paced->lock);
}

void tm_paced__resume(struct tm_paced *paced)
{
    (void)pthread_mutex_lock(&paced->lock);
    paced->cancelled = false;
    (void)pthread_mutex_unlock(&paced->lock);
}

/* Until `part` of the step has passed, counted from when it should have begun. */
static int wait_until(struct tm_paced *paced, double part, struct tm_error *e)
{
    int64_t until_ns = paced->begun_ns + (int64_t)(part * paced->step_ns);
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int rc = 0;
    (void)pthread_mutex_lock(&paced->lock);
    while (!paced->cancelled && rc == 0)
        rc = pthread_cond_timedwait(&paced->changed, &paced->lock, &until);
    bool cancelled = paced->cancelled;
    (void)pthread_mutex_unlock(&paced->lock);
    return cancelled ? tm_error_set(e, TM_ECANCELED, "the step was abandoned") : 0;
}

static int begin(struct tm_paced *paced, const struct tm_paced_place *place, bool fresh, struct tm_error *e)
{
    double step_s = paced->job.step_s(paced->job.context, place->pipelines, place->stages);
    if (!(step_s > 0) || !isfinite(step_s))
        return tm_error_set(e, TM_EINPUT, "%s: the step time of %u pipelines of %u stages is not known",
                            paced->job.model->name, place->pipelines, place->stages);
    int64_t now_ns = paced->env->monotonic_ns(paced->env);
    uint32_t equal = (paced->job.micro_batches + place->pipelines - 1) / place->pipelines;
    double share = place->last_micro_batch - place->first_micro_batch, fill = place->stages - 1;
    double slowness = paced->job.slowness > 0 ? paced->job.slowness : 1;
    if (paced->job.slow_file != NULL && paced->env->file_exists(paced->env, paced->job.slow_file)) slowness *= 2;
    double step_ns = step_s / paced->job.speed * 1e9 * slowness * (share + fill) / (equal + fill);
    int64_t due_ns = paced->begun_ns + (int64_t)paced->step_ns;
    int64_t earliest_ns = now_ns - (int64_t)(late_share * step_ns);
    paced->begun_ns = fresh ? now_ns : due_ns > earliest_ns ? due_ns : earliest_ns;
    paced->step_ns = step_ns;
    paced->place = *place;
    return 0;
}

uint64_t tm_paced__computed_us(const struct tm_paced *paced)
{
    double share = paced->place.last_micro_batch - paced->place.first_micro_batch, fill = paced->place.stages - 1;
    return (uint64_t)(paced->step_ns * share / (share + fill) / 1000);
}

/* ---- a step ---- */

/* Every message begins with what it is, so that one that went astray is found. */
static int pass_on(struct tm_paced *paced, struct tm_mesh *mesh, uint32_t stage, uint64_t tag, uint32_t last,
                   struct tm_error *e)
{
    memcpy(paced->message, &tag, sizeof tag);
    return mesh->send(mesh, (int)(paced->place.pipeline * paced->place.stages + stage), tag, paced->message,
                      message_bytes(paced, last), e);
}

static int take_in(struct tm_paced *paced, struct tm_mesh *mesh, uint32_t stage, uint64_t tag, uint32_t last,
                   struct tm_error *e)
{
    struct tm_parcel *parcel = NULL;
    int rc = mesh->receive(mesh, (int)(paced->place.pipeline * paced->place.stages + stage), tag,
                           message_bytes(paced, last), &parcel, e);
    if (rc != 0) return rc;
    bool right = memcmp(parcel->data, &tag, sizeof tag) == 0;
    mesh->give_back(mesh, parcel);
    return right ? 0 : tm_error_set(e, TM_EPEER, "stage %u sent something other than requested", stage);
}

/* 1F1B, in parts of the step: with M micro-batches of time t each, it takes (M + P - 1) t. The first goes down to the
 * last stage, which works on all of them; the last comes back up. */
static int run_pipeline(struct tm_paced *paced, struct tm_mesh *mesh, uint64_t step, struct tm_error *e)
{
    const struct tm_paced_place *place = &paced->place;
    uint32_t stage = place->stage;
    bool last = stage + 1 == place->stages;
    double count = place->last_micro_batch - place->first_micro_batch;
    double each = 1 / (count + place->stages - 1);
    double down = each * forward_share;
    double up = each - down;
    uint64_t forward = tm_message__tag(TM_MESSAGE_FORWARD, (int64_t)step, 0, 0);
    uint64_t backward = tm_message__tag(TM_MESSAGE_BACKWARD, (int64_t)step, 0, 0);
    int rc = 0;
    if (stage > 0) rc = take_in(paced, mesh, stage - 1, forward, place->first_layer - 1, e);
    if (rc == 0 && !last) rc = wait_until(paced, down * (stage + 1), e);
    if (rc == 0 && !last) rc = pass_on(paced, mesh, stage + 1, forward, place->last_layer - 1, e);
    if (rc == 0 && !last) rc = take_in(paced, mesh, stage + 1, backward, place->last_layer - 1, e);
    if (rc == 0) rc = wait_until(paced, 1 - up * stage, e);
    if (rc == 0 && stage > 0) rc = pass_on(paced, mesh, stage - 1, backward, place->first_layer - 1, e);
    return rc;
}

static size_t stage_words(const struct tm_paced *paced)
{
    size_t count = 0;
    for (uint32_t l = paced->place.first_layer; l < paced->place.last_layer; l++)
        count += paced->words[l];
    return count;
}

static int make_gradients(struct tm_paced *paced, uint64_t step, struct tm_error *e)
{
    const struct tm_paced_place *place = &paced->place;
    size_t count = stage_words(paced);
    if (tm_grow((void **)&paced->gradient, &paced->gradient_capacity, count, sizeof *paced->gradient, SIZE_MAX / 4) !=
        0)
        return tm_error_nomem(e);
    memset(paced->gradient, 0, count * sizeof *paced->gradient);
    int32_t *gradient = paced->gradient;
    for (uint32_t l = place->first_layer; l < place->last_layer; l++) {
        for (uint32_t m = place->first_micro_batch; m < place->last_micro_batch; m++)
            add_micro_batch(gradient, l, step, m);
        gradient += paced->words[l];
    }
    return 0;
}

static int reduce(struct tm_paced *paced, struct tm_mesh *mesh, uint64_t step, struct tm_error *e)
{
    const struct tm_paced_place *place = &paced->place;
    struct tm_group group = {.count = (int)place->pipelines, .place = (int)place->pipeline};
    uint32_t index = 0;
    if (place->pipelines == 1) return 0;
    if (place->pipelines > sizeof group.ranks / sizeof *group.ranks)
        return tm_error_set(e, TM_ELIMIT, "%u pipelines; the paced engine supports at most %zu", place->pipelines,
                            sizeof group.ranks / sizeof *group.ranks);
    for (uint32_t p = 0; p < place->pipelines; p++)
        group.ranks[p] = (int)(p * place->stages + place->stage);
    return tm_mesh__all_reduce(mesh, &group, paced->kernels, TM_SUM_I32, paced->gradient, stage_words(paced),
                               tm_message__tag(TM_MESSAGE_REDUCE, (int64_t)step, 0, 0), &index, e);
}

int tm_paced__prepare(struct tm_paced *paced, struct tm_mesh *mesh, const struct tm_paced_place *place, uint64_t step,
                      bool fresh, struct tm_paced_norm *out, struct tm_error *e)
{
    int rc = begin(paced, place, fresh, e);
    if (rc != 0) return rc;
    rc = make_gradients(paced, step, e);
    if (rc == 0) rc = run_pipeline(paced, mesh, step, e);
    if (rc == 0) rc = reduce(paced, mesh, step, e);
    if (rc != 0) return rc;
    const int32_t *gradient = paced->gradient;
    for (uint32_t l = place->first_layer; l < place->last_layer; l++) {
        *out++ = (struct tm_paced_norm){.layer = l, .sum = norm_of(gradient)};
        gradient += paced->words[l];
    }
    return 0;
}

void tm_paced__apply(struct tm_paced *paced, uint64_t step, double norm)
{
    const int32_t *gradient = paced->gradient;
    for (uint32_t l = paced->place.first_layer; l < paced->place.last_layer; l++) {
        if (paced->layers[l] != NULL)
            apply_to(paced->layers[l], tm_paced__layer_bytes(&paced->job, l), gradient, step, norm);
        gradient += paced->words[l];
    }
}

/* ---- a layer's steps elsewhere ---- */

uint64_t tm_paced__gradient_bytes(const struct tm_paced_job *job, uint32_t layer)
{
    return gradient_words(job, layer) * sizeof(int32_t);
}

void tm_paced__read_gradient(const struct tm_paced *paced, uint32_t layer, void *out)
{
    const int32_t *gradient = paced->gradient;
    for (uint32_t l = paced->place.first_layer; l < layer; l++)
        gradient += paced->words[l];
    memcpy(out, gradient, paced->words[layer] * sizeof *gradient);
}

void tm_paced__advance_layer(const struct tm_paced_job *job, uint32_t layer, uint64_t step, double norm, void *state,
                             const void *gradient)
{
    apply_to(state, tm_paced__layer_bytes(job, layer), gradient, step, norm);
}

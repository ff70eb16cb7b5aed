/* What happens between workers at the end of a step: sums of gradients, then one exchange in which everyone learns that
 * everyone is prepared. */
#include "base/alloc.h"
#include "engine/engine_internal.h"
#include "engine/fixed_point.h"

#include <math.h>
#include <string.h>

static enum tm_sum_kind sum_kind(const struct tm_engine *engine)
{
    return engine->options.determinism == TM_FAST ? TM_SUM_F32 : TM_SUM_I32;
}

static int reduce_range(struct tm_engine *engine, struct tm_mesh *mesh, const struct tm_group *group, int layer,
                        size_t from, size_t end, uint32_t *index, struct tm_error *e)
{
    uint64_t tag = tm_message__tag(TM_MESSAGE_REDUCE, engine->step, engine->attempt, 0);
    float *sums = engine->layers[layer].gradients.sums.floats;
    return tm_mesh__all_reduce(mesh, group, engine->options.kernels, sum_kind(engine), sums + from, end - from, tag,
                               index, e);
}

/* Both contributions to the tied weight, over every worker that holds a copy of it. Where one worker holds both copies
 * they are added there, by the same integers. */
static int reduce_tied(struct tm_engine *engine, struct tm_mesh *mesh, uint32_t *index, struct tm_error *e)
{
    int head = engine->layer_count - 1;
    struct tm_group group = tm_assignment__tied_group(&engine->assignment, engine->rank);
    struct tm_gradients *embed = &engine->layers[0].gradients;
    struct tm_gradients *last = &engine->layers[head].gradients;
    bool both = engine->assignment.stages == 1;
    int layer = engine->stage == 0 ? 0 : head;
    size_t count = engine->layers[layer].gradients.spec->tensors[0].count;
    if (both && sum_kind(engine) == TM_SUM_I32)
        engine->options.kernels->add_i32(embed->sums.integers, last->sums.integers, count);
    else if (both)
        engine->options.kernels->add_f32(embed->sums.floats, last->sums.floats, count);
    int rc = reduce_range(engine, mesh, &group, layer, 0, count, index, e);
    if (rc == 0 && both) memcpy(last->sums.floats, embed->sums.floats, count * sizeof(float));

    float *largest = &engine->layers[layer].gradients.largest[0];
    if (both && (isnan(last->largest[0]) || last->largest[0] > *largest)) *largest = last->largest[0];
    uint64_t tag = tm_message__tag(TM_MESSAGE_LARGEST, engine->step, engine->attempt, 1);
    if (rc == 0) rc = tm_mesh__all_largest(mesh, &group, largest, 1, tag, e);
    if (both) last->largest[0] = *largest;
    return rc;
}

static bool has_tied(const struct tm_engine *engine, int layer)
{
    return layer == 0 || layer == engine->layer_count - 1;
}

/* The largest |gradient| of every tensor of the stage but the tied one. */
static int reduce_largest(struct tm_engine *engine, struct tm_mesh *mesh, const struct tm_group *group,
                          struct tm_error *e)
{
    size_t count = (size_t)(engine->end - engine->first) * TM_TENSORS_MAX;
    float *all = tm_calloc(count, sizeof *all);
    if (all == NULL) return tm_error_nomem(e);
    for (int l = engine->first; l < engine->end; l++)
        memcpy(all + (l - engine->first) * TM_TENSORS_MAX, engine->layers[l].gradients.largest,
               TM_TENSORS_MAX * sizeof *all);
    uint64_t tag = tm_message__tag(TM_MESSAGE_LARGEST, engine->step, engine->attempt, 0);
    int rc = tm_mesh__all_largest(mesh, group, all, count, tag, e);
    for (int l = engine->first; l < engine->end; l++)
        memcpy(engine->layers[l].gradients.largest, all + (l - engine->first) * TM_TENSORS_MAX,
               TM_TENSORS_MAX * sizeof *all);
    tm_free(all);
    return rc;
}

int tm_engine__reduce(struct tm_engine *engine, struct tm_mesh *mesh, struct tm_error *e)
{
    struct tm_group group = tm_assignment__stage_group(&engine->assignment, engine->stage, engine->rank);
    uint32_t index = 0;
    for (int l = engine->first; l < engine->end; l++)
        tm_gradients__finish(&engine->layers[l].gradients);
    int rc = reduce_largest(engine, mesh, &group, e);
    for (int l = engine->first; rc == 0 && l < engine->end; l++) {
        const struct tm_layer_spec *spec = engine->layers[l].gradients.spec;
        rc = reduce_range(engine, mesh, &group, l, has_tied(engine, l) ? spec->tensors[1].offset : 0, spec->floats,
                          &index, e);
    }
    index = 1U << 31; /* stages differ in how many pieces they sent: the tied weight counts from elsewhere */
    if (rc == 0 && (has_tied(engine, engine->first) || has_tied(engine, engine->end - 1)))
        rc = reduce_tied(engine, mesh, &index, e);
    return rc;
}

/* ---- the exchange ---- */

/* What a worker says of one of its layers. */
struct layer_word {
    double square_sum;
    int32_t overflow;
    int32_t not_finite;
};

struct worker_word {
    int64_t bad_layer; /* whose output was no number; -1: none */
    int64_t bad_micro;
};

static size_t word_bytes(const struct tm_assignment *assignment, int pipeline, int stage)
{
    size_t layers = (size_t)(assignment->first_layer[stage + 1] - assignment->first_layer[stage]);
    size_t micros = (size_t)(assignment->first_micro[pipeline + 1] - assignment->first_micro[pipeline]);
    return sizeof(struct worker_word) + layers * sizeof(struct layer_word) + micros * sizeof(double);
}

static void write_words(struct tm_engine *engine, unsigned char *out)
{
    struct worker_word own = {.bad_layer = engine->bad_layer, .bad_micro = engine->bad_micro};
    memcpy(out, &own, sizeof own);
    out += sizeof own;
    for (int l = engine->first; l < engine->end; l++) {
        const struct tm_gradients *gradients = &engine->layers[l].gradients;
        bool is_copy = l == engine->layer_count - 1; /* of the tied weight: it counts once, in layer 0 */
        struct layer_word word = {
            .square_sum = tm_gradients__square_sum(gradients, is_copy ? 1 : 0, engine->options.micro_batches)};
        engine->norms[l] = word.square_sum;
        if (!isfinite(word.square_sum)) word.not_finite = 1;
        for (size_t t = 0; t < gradients->spec->tensor_count; t++) {
            if (isnan(gradients->largest[t])) word.not_finite = 1;
            int64_t addends = tm_engine__addends(engine, l, t);
            if (!tm_fixed__fits(gradients->largest[t], gradients->scales[t], addends)) word.overflow = 1;
        }
        memcpy(out, &word, sizeof word);
        out += sizeof word;
    }
    memcpy(out, engine->losses + engine->micro_first, (size_t)engine->micro_count * sizeof(double));
}

/* All that was said, put in order: by layer, by micro-batch. */
struct heard {
    struct layer_word *layers; /* by layer; of pipeline 0, as all pipelines say the same */
    double *losses;            /* by micro-batch */
    struct worker_word first_bad;
    bool overflow;
};

static void read_words(const struct tm_engine *engine, int pipeline, int stage, const unsigned char *words,
                       struct heard *heard)
{
    const struct tm_assignment *a = &engine->assignment;
    struct worker_word own;
    memcpy(&own, words, sizeof own);
    words += sizeof own;
    if (own.bad_layer >= 0 && (heard->first_bad.bad_layer < 0 || own.bad_layer < heard->first_bad.bad_layer))
        heard->first_bad = own;
    for (int l = a->first_layer[stage]; l < a->first_layer[stage + 1]; l++, words += sizeof(struct layer_word)) {
        struct layer_word word;
        memcpy(&word, words, sizeof word);
        if (word.overflow) heard->overflow = true;
        if (pipeline == 0) heard->layers[l] = word;
    }
    if (stage == a->stages - 1)
        memcpy(heard->losses + a->first_micro[pipeline], words,
               (size_t)(a->first_micro[pipeline + 1] - a->first_micro[pipeline]) * sizeof(double));
}

static int tell_and_hear(struct tm_engine *engine, struct tm_mesh *mesh, unsigned char *own, struct heard *heard,
                         struct tm_error *e)
{
    const struct tm_assignment *a = &engine->assignment;
    uint64_t tag = tm_message__tag(TM_MESSAGE_EXCHANGE, engine->step, engine->attempt, 0);
    int workers = a->pipelines * a->stages;
    int rc = 0;
    write_words(engine, own);
    size_t own_bytes = word_bytes(a, engine->pipeline, engine->stage);
    for (int i = 0; rc == 0 && i < workers; i++) {
        if (a->ranks[i] != engine->rank) rc = mesh->send(mesh, a->ranks[i], tag, own, own_bytes, e);
    }
    for (int i = 0; rc == 0 && i < workers; i++) {
        int pipeline = i / a->stages;
        int stage = i % a->stages;
        struct tm_parcel *parcel = NULL;
        if (a->ranks[i] == engine->rank) {
            read_words(engine, pipeline, stage, own, heard);
            continue;
        }
        rc = mesh->receive(mesh, a->ranks[i], tag, word_bytes(a, pipeline, stage), &parcel, e);
        if (rc != 0) break;
        read_words(engine, pipeline, stage, parcel->data, heard);
        mesh->give_back(mesh, parcel);
    }
    return rc;
}

static const char *layer_label(const struct tm_engine *engine, int64_t layer, char buffer[32])
{
    static const char *const ends[] = {"the embedding", "the head"};
    if (layer == 0 || layer == engine->layer_count - 1) return ends[layer == 0 ? 0 : 1];
    size_t at = 32;
    buffer[--at] = '\0';
    for (int64_t n = layer - 1; at == 31 || n > 0; n /= 10)
        buffer[--at] = (char)('0' + n % 10);
    memcpy(buffer + at - 6, "block ", 6);
    return buffer + at - 6;
}

/* Where a number stopped being one: the first layer of the way forth, else the first of the way back. */
static int check_numbers(const struct tm_engine *engine, const struct heard *heard, struct tm_error *e)
{
    char label[32];
    if (heard->first_bad.bad_layer >= 0)
        return tm_error_set(e, TM_EINPUT,
                            "step %lld: layer %lld (%s) gave NaN or infinity in micro-batch %lld; the step was not "
                            "applied. Lower optimizer.lr, or clip gradients more",
                            (long long)engine->step, (long long)heard->first_bad.bad_layer,
                            layer_label(engine, heard->first_bad.bad_layer, label),
                            (long long)heard->first_bad.bad_micro);
    for (int l = engine->layer_count - 1; l >= 0; l--) {
        if (!heard->layers[l].not_finite) continue;
        return tm_error_set(e, TM_EINPUT,
                            "step %lld: gradients of layer %d (%s) are NaN or infinite; the step was not applied. "
                            "Lower optimizer.lr, or clip gradients more",
                            (long long)engine->step, l, layer_label(engine, l, label));
    }
    return 0;
}

static void conclude(const struct tm_engine *engine, const struct heard *heard, struct tm_step_result *out)
{
    double square_sum = 0;
    double loss = 0;
    for (int l = 0; l < engine->layer_count; l++)
        square_sum += heard->layers[l].square_sum;
    for (int64_t m = 0; m < engine->options.micro_batches; m++)
        loss += heard->losses[m];
    out->loss = loss / (double)engine->options.micro_batches;
    out->norm = sqrt(square_sum);
    out->clip_factor = tm_optimizer__clip_factor(&engine->options.optimizer, out->norm);
}

int tm_engine__exchange(struct tm_engine *engine, struct tm_mesh *mesh, struct tm_step_result *out, bool *out_redo,
                        struct tm_error *e)
{
    struct heard heard = {.first_bad = {.bad_layer = -1}};
    unsigned char *own = tm_alloc(word_bytes(&engine->assignment, engine->pipeline, engine->stage));
    heard.layers = tm_calloc((size_t)engine->layer_count, sizeof *heard.layers);
    heard.losses = tm_calloc((size_t)engine->options.micro_batches, sizeof *heard.losses);
    int rc = own == NULL || heard.layers == NULL || heard.losses == NULL ? tm_error_nomem(e) : 0;
    if (rc == 0) rc = tell_and_hear(engine, mesh, own, &heard, e);
    if (rc == 0) rc = check_numbers(engine, &heard, e);
    if (rc == 0) conclude(engine, &heard, out);
    *out_redo = heard.overflow;
    tm_free(own);
    tm_free(heard.layers);
    tm_free(heard.losses);
    return rc;
}

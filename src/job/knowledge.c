#include "job/knowledge.h"

#include "base/alloc.h"
#include "base/paths.h"
#include "base/suggest.h"
#include "plan/supply.h"
#include "workload/memory.h"
#include "workload/shipped_profiles.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double SAME_SHARE = 0.01; /* works that differ by less are one */

static int find_gpu(const struct tm_catalog *catalog, const char *name, const struct tm_gpu **out, struct tm_error *e)
{
    *out = tm_catalog_gpu(catalog, name);
    if (*out != NULL) return 0;
    struct tm_suggest suggest = {.word = name};
    for (size_t i = 0; i < catalog->gpu_count; i++)
        tm_suggest_offer(&suggest, catalog->gpus[i].name);
    return tm_error_set(e, TM_EUSAGE, "unknown GPU \"%.40s\"%s%s%s", name,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

int tm_knowledge__gpu(const struct tm_catalog *catalog, const char *name, struct tm_gpu_figures *out,
                      struct tm_error *e)
{
    const struct tm_gpu *gpu = NULL;
    int rc = find_gpu(catalog, name, &gpu, e);
    if (rc == 0) *out = tm_plan_gpu_figures(gpu);
    return rc;
}

int tm_knowledge__group(const struct tm_catalog *catalog, const struct tm_instance_type *instance,
                        struct tm_fleet_group *out, struct tm_error *e)
{
    const struct tm_gpu *gpu = NULL;
    int rc = find_gpu(catalog, instance->gpu, &gpu, e);
    if (rc == 0) *out = tm_plan_group(gpu, instance);
    return rc;
}

/* Is this the whole of a word of the file's name? The A10 of a100_steps.csv is none, the L4 of my-l4-steps.csv is. */
static bool names_gpu(const char *file, const char *gpu)
{
    size_t length = strlen(gpu);
    for (const char *at = strcasestr(file, gpu); at != NULL; at = strcasestr(at + 1, gpu)) {
        bool begins = at == file || !isalnum((unsigned char)at[-1]);
        if (begins && !isalnum((unsigned char)at[length])) return true;
    }
    return false;
}

/* The GPU of steps that do not name theirs: the one that was asked for, else the longest name that the file's name has,
 * else that of a step that names it. */
static int profile_gpu(const struct tm_catalog *catalog, const struct tm_profile *profile, const char *path,
                       const char *asked, struct tm_gpu_figures *out, struct tm_error *e)
{
    const char *file = tm_path_base(path);
    if (asked != NULL) return tm_knowledge__gpu(catalog, asked, out, e);
    for (size_t i = 0; i < catalog->gpu_count; i++) {
        const char *name = catalog->gpus[i].name;
        if (names_gpu(file, name) && (asked == NULL || strlen(name) > strlen(asked))) asked = name;
    }
    for (size_t i = 0; asked == NULL && i < profile->step_count; i++)
        if (profile->steps[i].gpu[0] != '\0') asked = profile->steps[i].gpu;
    if (asked != NULL) return tm_knowledge__gpu(catalog, asked, out, e);
    return tm_error_set(e, TM_EUSAGE, "%s: neither its rows nor its name say which GPU it was measured on; %s", path,
                        "give it: --gpu H200 (of a profile to learn from: --profile-gpu)");
}

int tm_knowledge_step_gpus(const struct tm_catalog *catalog, const struct tm_profile *profile, const char *path,
                           const char *asked, struct tm_gpu_figures **out, struct tm_error *e)
{
    struct tm_gpu_figures unnamed = {.name = NULL};
    int rc = 0;
    struct tm_gpu_figures *gpus = tm_calloc(profile->step_count + 1, sizeof *gpus);
    if (gpus == NULL) return tm_error_nomem(e);
    for (size_t i = 0; rc == 0 && i < profile->step_count; i++) {
        const char *name = profile->steps[i].gpu;
        if (name[0] == '\0' && unnamed.name == NULL) rc = profile_gpu(catalog, profile, path, asked, &unnamed, e);
        gpus[i] = unnamed;
        if (rc == 0 && name[0] != '\0') rc = tm_knowledge__gpu(catalog, name, &gpus[i], e);
    }
    if (rc == 0) {
        *out = gpus;
        return 0;
    }
    tm_free(gpus);
    return rc;
}

/* A GPU's name where an instance type's is expected: which types have it; "": it is none. */
static void name_types_of_gpu(const struct tm_catalog *catalog, const char *gpu,
                              bool (*allows)(const void *context, const char *cloud), const void *context, size_t size,
                              char *out)
{
    enum { NAMED = 4 };
    int named = 0;
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; i < catalog->instance_count && named < NAMED && length < size; i++) {
        const struct tm_instance_type *instance = &catalog->instances[i];
        if (strcasecmp(instance->gpu, gpu) != 0 || (allows != NULL && !allows(context, instance->cloud))) continue;
        length += (size_t)snprintf(out + length, size - length, "%s%s (%.0f of them)", named++ > 0 ? ", " : "",
                                   instance->name, instance->gpus);
    }
}

/* TYPE@PLACE, as recorded pools are written: the type, where there is such a one. */
static const struct tm_instance_type *type_before_place(const struct tm_catalog *catalog, const char *name)
{
    size_t length = strcspn(name, "@");
    for (size_t i = 0; i < catalog->instance_count && name[length] == '@'; i++) {
        const struct tm_instance_type *instance = &catalog->instances[i];
        if (strlen(instance->name) == length && strncasecmp(instance->name, name, length) == 0) return instance;
    }
    return NULL;
}

int tm_knowledge_instance(const struct tm_catalog *catalog, const char *name,
                          bool (*allows)(const void *context, const char *cloud), const void *context,
                          const struct tm_instance_type **out, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *instance = &catalog->instances[i];
        tm_suggest_offer(&suggest, instance->name);
        if (strcasecmp(instance->name, name) != 0) continue;
        if (allows != NULL && !allows(context, instance->cloud)) continue;
        *out = instance;
        return 0;
    }
    char types[256];
    name_types_of_gpu(catalog, name, allows, context, sizeof types, types);
    if (types[0] != '\0')
        return tm_error_set(e, TM_EUSAGE,
                            "%.60s is a GPU: name an instance type that has it, such as %s; tidemill catalog --gpu "
                            "%.60s lists all",
                            name, types, name);
    const struct tm_instance_type *placed = type_before_place(catalog, name);
    if (placed != NULL)
        return tm_error_set(e, TM_EUSAGE,
                            "\"%.60s\": no place is named here, prices are those of the cheapest: write %s; tidemill "
                            "catalog show %s lists its prices everywhere",
                            name, placed->name, placed->name);
    return tm_error_set(e, TM_EUSAGE, "no instance type \"%.60s\" in the catalogue%s%s%s", name,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

int tm_knowledge_prices(const struct tm_catalog *catalog, const char *instance, const char *remedy, double *spot_usd_h,
                        double *on_demand_usd_h, struct tm_error *e)
{
    const struct tm_instance_type *found = NULL;
    struct tm_suggest suggest = {.word = instance};
    for (size_t i = 0; found == NULL && i < catalog->instance_count; i++) {
        tm_suggest_offer(&suggest, catalog->instances[i].name);
        if (strcasecmp(catalog->instances[i].name, instance) == 0) found = &catalog->instances[i];
    }
    if (isnan(*spot_usd_h) && found != NULL) *spot_usd_h = tm_catalog_cheapest(catalog, found, TM_PRICE_SPOT);
    if (isnan(*on_demand_usd_h) && found != NULL)
        *on_demand_usd_h = tm_catalog_cheapest(catalog, found, TM_PRICE_ON_DEMAND);
    if (!isnan(*spot_usd_h) && !isnan(*on_demand_usd_h)) return 0;
    bool suggests = found == NULL && suggest.best != NULL;
    return tm_error_set(e, TM_EUSAGE, "no price of %.60s is known%s%s%s; %s", instance,
                        suggests ? " (did you mean " : "", suggests ? suggest.best : "", suggests ? "?)" : "", remedy);
}

/* The longest shipped name that a network's name begins with, up to a dash. */
static bool find_shipped(const char *network, char name[128])
{
    (void)snprintf(name, 128, "%s", network);
    for (;;) {
        for (size_t i = 0; i < tm_model_shipped_count(); i++) {
            if (strcmp(tm_model_shipped_name(i), name) == 0) return true;
        }
        char *dash = strrchr(name, '-');
        if (dash == NULL) return false;
        *dash = '\0';
    }
}

/* Did a network of the profile store its attention scores? Where its steps took far more memory than without. */
static bool stores_scores(const struct tm_profile *profile, const char *network, const struct tm_model *fused)
{
    struct tm_footprint footprint = tm_footprint_of(fused, 0, fused->layer_count);
    double measured = 0;
    double predicted = 0;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        if (strcmp(step->network, network) != 0 || isnan(step->peak_gib) || step->recompute != 0) continue;
        struct tm_memory_use use = {.precision = step->precision,
                                    .optimizer_states = fused->optimizer_states,
                                    .micro_batch = step->micro_batch,
                                    .in_flight = 1,
                                    .micro_batches = 1};
        measured += step->peak_gib;
        predicted += tm_memory_gib(&footprint, &use);
    }
    return measured > 1.25 * predicted;
}

static bool has_fused_attention(const struct tm_model *model)
{
    for (size_t i = 0; i < model->layer_count; i++) {
        if (model->layers[i].attention_flops > 0) return true;
    }
    return false;
}

/* Do the shipped profiles have a network of this model that stored its scores? */
static bool ships_scores(const struct tm_profile *shipped, const char *model)
{
    size_t length = strlen(model);
    for (size_t i = 0; i < shipped->network_count; i++) {
        const char *known = shipped->networks[i].model;
        if (strncmp(known, model, length) == 0 && strcmp(known + length, ";attention=plain") == 0) return true;
    }
    return false;
}

/* Notes a want of memory, so that it is not taken for a network that nobody knows. */
static bool is_found(struct tm_knowledge_names *names, int rc)
{
    names->no_memory = names->no_memory || rc == -(int)TM_ENOMEM;
    return rc == 0;
}

bool tm_knowledge_step_model(void *context, const struct tm_profile_step *step, struct tm_model *model)
{
    struct tm_knowledge_names *names = context;
    const char *own = NULL;
    char name[128];
    char spec[512];
    const char *given = tm_profile_model_name(names->profile, step->network);
    const char *compiled = step->compile != 0 ? ";compile=1" : "";
    if (given[0] != '\0') {
        (void)snprintf(spec, sizeof spec, "%s%s", given, compiled);
        if (is_found(names, tm_model_load(names->env, spec, model, NULL))) return true;
        if (names->no_memory) return false;
        return is_found(names, tm_model_load(names->env, given, model, NULL)); /* a file's model has no such key */
    }
    if (tm_profile_choose(names->profile, "", step->network, &own, NULL) == 0 &&
        is_found(names, tm_profile_model(names->profile, "", own, model, NULL)))
        return true;
    if (names->no_memory || !find_shipped(step->network, name)) return false;
    if (!is_found(names, tm_model_load(names->env, name, model, NULL))) return false;
    if (!has_fused_attention(model)) return true;
    bool plain = names->shipped != NULL ? ships_scores(names->shipped, name)
                                        : stores_scores(names->profile, step->network, model);
    (void)snprintf(spec, sizeof spec, "%s;attention=%s%s", name, plain ? "plain" : "fused", compiled);
    return is_found(names, tm_model_load(names->env, spec, model, NULL));
}

void tm_knowledge_init(struct tm_knowledge *knowledge)
{
    *knowledge = (struct tm_knowledge){.compute = tm_compute_prior(), .comm = tm_comm_gpus(), .gpu = ""};
    tm_profile_init(&knowledge->profile);
}

void tm_knowledge_deinit(struct tm_knowledge *knowledge)
{
    tm_profile_deinit(&knowledge->profile);
    tm_free(knowledge->batches);
    tm_free(knowledge->ms);
    tm_free(knowledge->gradients);
}

/* Is this row of the profile one of the model's own? Names may carry more behind a dash: gpt2-124m-1024. */
static bool is_named(const char *network, const struct tm_model *model)
{
    size_t length = strlen(model->name);
    return strncmp(network, model->name, length) == 0 && (network[length] == '\0' || network[length] == '-');
}

static bool near(double a, double b)
{
    return fabs(a - b) <= SAME_SHARE * fmax(fabs(a), fabs(b));
}

/* As much to compute, to move and to keep: another context, or attention that is not fused, is another work. */
static bool is_same_work(const struct tm_model *a, const struct tm_model *b)
{
    struct tm_model_totals of_a = tm_model_totals(a), of_b = tm_model_totals(b);
    return near(of_a.params, of_b.params) && near(of_a.trained_params, of_b.trained_params) &&
           near(of_a.train_flops, of_b.train_flops) && near(of_a.traffic_values, of_b.traffic_values) &&
           near(of_a.saved_values, of_b.saved_values);
}

/* Whose steps are looked for. */
struct own {
    struct tm_knowledge_names names; /* no_memory is set where memory was out */
    const struct tm_model *model;
    bool itself; /* it is the profile's own network */
};

/* Is this row one of the model's own steps? By its name, or, where the profile says which model that network is, by
 * what it does. */
static bool is_own(struct own *own, const struct tm_profile_step *step)
{
    const struct tm_model *model = own->model;
    struct tm_model other;
    bool told = tm_profile_model_name(own->names.profile, step->network)[0] != '\0';
    if (own->itself || !told) return is_named(step->network, model);
    if ((step->recompute != 0) != model->recompute || (step->compile != 0) != model->compiled) return false;
    tm_model_init(&other);
    bool same = tm_knowledge_step_model(&own->names, step, &other) && is_same_work(&other, model);
    tm_model_deinit(&other);
    return same;
}

static int learn_gradients(struct own *own, struct tm_knowledge *knowledge, struct tm_error *e)
{
    const struct tm_profile *profile = &knowledge->profile;
    knowledge->gradients = tm_calloc(profile->gradient_count + 1, sizeof *knowledge->gradients);
    if (knowledge->gradients == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < profile->gradient_count; i++) {
        const struct tm_profile_gradient *row = &profile->gradients[i];
        const struct tm_profile_step step = {
            .network = row->network, .recompute = own->model->recompute, .compile = own->model->compiled};
        if (is_own(own, &step))
            knowledge->gradients[knowledge->gradient_count++] = (struct tm_comm_bucket){row->bytes, row->ready};
    }
    return own->names.no_memory ? tm_error_nomem(e) : 0;
}

/* Data-parallel runs of the user's own teach what links and collectives really give. */
static int learn_links(const struct tm_profile *profile, struct tm_comm_model *out, struct tm_error *e)
{
    const struct tm_profile_run **runs = tm_calloc(profile->run_count, sizeof *runs); /* NOLINT: pointers */
    if (runs == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < profile->run_count; i++)
        runs[i] = &profile->runs[i];
    int rc = tm_comm_learn(runs, profile->run_count, out, e);
    tm_free(runs);
    return rc;
}

/* What a job names lies here, or beside its file. */
static const char *find_file(struct tm_env *env, const char *name, const char *folder, struct tm_arena *arena)
{
    if (name == NULL || name[0] == '/' || env->file_exists(env, name)) return name;
    const char *beside = tm_arena_printf(arena, "%s/%s", folder, name);
    return beside != NULL && env->file_exists(env, beside) ? beside : name;
}

struct tm_knowledge_source tm_knowledge__of_job(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena)
{
    return (struct tm_knowledge_source){.profile = find_file(env, job->profile, job->folder, arena),
                                        .profile_gpu = job->profile_gpu,
                                        .network = job->network,
                                        .model = find_file(env, job->model, job->folder, arena)};
}

int tm_knowledge__said_precision(const struct tm_job *job)
{
    for (int i = 0; job->precision != NULL && tm_precision_names[i] != NULL; i++)
        if (strcmp(job->precision, tm_precision_names[i]) == 0) return i;
    return -1;
}

int tm_knowledge_read(struct tm_env *env, const struct tm_knowledge_source *source, struct tm_knowledge *knowledge,
                      struct tm_error *e)
{
    return source->profile != NULL ? tm_profile_load(env, source->profile, &knowledge->profile, e) : 0;
}

int tm_knowledge_model(struct tm_env *env, const struct tm_knowledge_source *source,
                       const struct tm_knowledge *knowledge, struct tm_model *model, struct tm_error *e)
{
    const char *network = NULL;
    if (source->model != NULL) return tm_model_load(env, source->model, model, e);
    int rc = tm_profile_choose(&knowledge->profile, source->profile, source->network, &network, e);
    return rc == 0 ? tm_profile_model(&knowledge->profile, source->profile, network, model, e) : rc;
}

/* The model's step with the largest batch, at a precision or at any; NULL: none, or no memory. */
static const struct tm_profile_step *find_step(struct own *own, int precision)
{
    const struct tm_profile *profile = own->names.profile;
    const struct tm_profile_step *best = NULL;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        bool suits = precision == TM_PRECISION_MIXED || (int)step->precision == precision;
        bool larger = best == NULL || step->micro_batch > best->micro_batch;
        if (suits && larger && is_own(own, step)) best = step;
    }
    return best;
}

int tm_knowledge_precision(const struct tm_knowledge_source *source, const struct tm_knowledge *knowledge,
                           const struct tm_model *model, int usual)
{
    const struct tm_profile *profile = &knowledge->profile;
    const struct tm_profile_step *best = NULL;
    for (size_t i = 0; source->model == NULL && i < profile->step_count; i++) { /* this very job, as it is */
        const struct tm_profile_step *step = &profile->steps[i];
        if (is_named(step->network, model) && (best == NULL || step->micro_batch > best->micro_batch)) best = step;
    }
    return best != NULL ? (int)best->precision : usual;
}

/* The GPU that a step was taken on, if the catalogue knows it. Steps without a name are all of one GPU. */
static bool find_step_gpu(const struct tm_catalog *catalog, const struct tm_profile_step *step,
                          const struct tm_gpu_figures *unnamed, struct tm_gpu_figures *out)
{
    *out = *unnamed;
    return step->gpu[0] == '\0' || tm_knowledge__gpu(catalog, step->gpu, out, NULL) == 0;
}

/* Cells to learn from: what both profiles tell of GPUs and models that are known. */
struct cells {
    struct tm_compute_cell *cells;
    size_t count;
};

static int add_cells(struct tm_env *env, const struct tm_catalog *catalog, const struct tm_profile *profile,
                     const struct tm_gpu_figures *unnamed, struct cells *out, struct tm_error *e)
{
    struct tm_knowledge_names names = {.env = env, .profile = profile};
    struct tm_model model;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        struct tm_compute_cell cell = {
            .precision = step->precision, .batch = step->micro_batch, .step_ms = tm_profile_step_ms(step)};
        if (!find_step_gpu(catalog, step, unnamed, &cell.gpu)) continue; /* processors teach nothing about GPUs */
        tm_model_init(&model);
        if (tm_knowledge_step_model(&names, step, &model)) {
            cell.network = tm_network_of(model.layers, model.layer_count);
            cell.network.recompute = step->recompute != 0;
            cell.network.compiled = step->compile != 0;
            cell.network.channels_last = model.channels_last;
            out->cells[out->count++] = cell;
        }
        tm_model_deinit(&model);
        if (names.no_memory) return tm_error_nomem(e);
    }
    return 0;
}

/* Learns from the shipped profiles and, where there is one, the user's. */
static int learn_cells(struct tm_env *env, const struct tm_catalog *catalog, const struct tm_profile *user,
                       const struct tm_gpu_figures *unnamed, struct tm_compute_model *out, struct tm_error *e)
{
    static const struct tm_gpu_figures nameless = {.name = ""};
    struct tm_profile shipped;
    struct cells cells = {NULL, 0};
    tm_profile_init(&shipped);
    int rc = tm_shipped_profiles(&shipped, e);
    size_t most = shipped.step_count + (user != NULL ? user->step_count : 0) + 1;
    if (rc == 0) cells.cells = tm_calloc(most, sizeof *cells.cells);
    if (rc == 0 && cells.cells == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = add_cells(env, catalog, &shipped, &nameless, &cells, e);
    if (rc == 0 && user != NULL) rc = add_cells(env, catalog, user, unnamed, &cells, e);
    if (rc == 0) rc = tm_compute_learn(cells.cells, cells.count, out, e);
    tm_free(cells.cells);
    tm_profile_deinit(&shipped);
    return rc;
}

int tm_knowledge_shipped(struct tm_env *env, const struct tm_catalog *catalog, struct tm_compute_model *out,
                         struct tm_error *e)
{
    return learn_cells(env, catalog, NULL, NULL, out, e);
}

/* The measured steps of the model in question. */
static int keep_steps(struct own *own, const struct tm_catalog *catalog, const struct tm_gpu_figures *unnamed,
                      struct tm_knowledge *knowledge, struct tm_error *e)
{
    size_t count = knowledge->profile.step_count;
    knowledge->batches = tm_calloc(count + 1, sizeof *knowledge->batches);
    knowledge->ms = tm_calloc(count + 1, sizeof *knowledge->ms);
    if (knowledge->batches == NULL || knowledge->ms == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++) {
        const struct tm_profile_step *step = &knowledge->profile.steps[i];
        struct tm_gpu_figures gpu;
        if (!find_step_gpu(catalog, step, unnamed, &gpu) || strcmp(gpu.name, knowledge->gpu) != 0) continue;
        if (step->precision != knowledge->precision || !is_own(own, step)) continue;
        knowledge->batches[knowledge->count] = step->micro_batch;
        knowledge->ms[knowledge->count++] = tm_profile_step_ms(step);
    }
    return own->names.no_memory ? tm_error_nomem(e) : 0;
}

int tm_knowledge_learn(struct tm_env *env, const struct tm_knowledge_source *source, const struct tm_catalog *catalog,
                       const struct tm_model *model, int precision, struct tm_knowledge *knowledge, struct tm_error *e)
{
    const char *path = source->profile;
    const struct tm_profile *profile = &knowledge->profile;
    struct tm_gpu_figures unnamed = {.name = ""};
    struct tm_gpu_figures timed = {.name = ""};
    int rc = 0;
    if (path == NULL) return tm_knowledge_shipped(env, catalog, &knowledge->compute, e);
    bool any_unnamed = profile->step_count == 0;
    for (size_t i = 0; i < profile->step_count && !any_unnamed; i++)
        any_unnamed = profile->steps[i].gpu[0] == '\0';
    if (any_unnamed || source->profile_gpu != NULL)
        rc = profile_gpu(catalog, profile, path, source->profile_gpu, &unnamed, e);
    if (rc != 0) return rc;
    struct own own = {.names = {.env = env, .profile = profile}, .model = model, .itself = source->model == NULL};
    const struct tm_profile_step *step = find_step(&own, precision);
    if (own.names.no_memory) return tm_error_nomem(e);
    if (step != NULL) {
        knowledge->precision = step->precision;
        if (find_step_gpu(catalog, step, &unnamed, &timed)) knowledge->gpu = timed.name;
    }
    rc = keep_steps(&own, catalog, &unnamed, knowledge, e);
    if (rc == 0) rc = learn_cells(env, catalog, profile, &unnamed, &knowledge->compute, e);
    if (rc == 0 && profile->run_count > 0) rc = learn_links(profile, &knowledge->comm, e);
    if (rc == 0) rc = learn_gradients(&own, knowledge, e);
    return rc;
}

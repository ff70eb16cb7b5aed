#include "cli/knowledge.h"

#include "base/alloc.h"
#include "base/paths.h"
#include "base/suggest.h"
#include "plan/supply.h"

#include <stdio.h>
#include <string.h>

int tm_knowledge_gpu(const struct tm_catalog *catalog, const char *name, struct tm_gpu_figures *out, struct tm_error *e)
{
    const struct tm_gpu *gpu = tm_catalog_gpu(catalog, name);
    if (gpu != NULL) {
        *out = tm_plan_gpu_figures(gpu);
        return 0;
    }
    struct tm_suggest suggest = {.word = name};
    for (size_t i = 0; i < catalog->gpu_count; i++)
        tm_suggest_offer(&suggest, catalog->gpus[i].name);
    return tm_error_set(e, TM_EUSAGE, "unknown GPU \"%.40s\"%s%s%s", name,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

int tm_knowledge_profile_gpu(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_profile *profile,
                             const char *path, const char *option, struct tm_gpu_figures *out, struct tm_error *e)
{
    const char *asked = tm_given_text(cli, option);
    if (asked == NULL && profile->step_count > 0 && profile->steps[0].gpu[0] != '\0') asked = profile->steps[0].gpu;
    for (size_t i = 0; asked == NULL && i < catalog->gpu_count; i++) {
        if (strcasestr(tm_path_base(path), catalog->gpus[i].name) != NULL) asked = catalog->gpus[i].name;
    }
    return tm_knowledge_gpu(catalog, asked != NULL ? asked : "H200", out, e);
}

int tm_knowledge_instance(const struct tm_cli *cli, const struct tm_catalog *catalog, const char *name,
                          const struct tm_instance **out, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance *instance = &catalog->instances[i];
        tm_suggest_offer(&suggest, instance->name);
        if (strcasecmp(instance->name, name) != 0) continue;
        if (cli != NULL && !tm_given_matches(cli, "cloud", instance->cloud)) continue;
        *out = instance;
        return 0;
    }
    return tm_error_set(e, TM_EUSAGE, "no instance type \"%.60s\" in the catalogue%s%s%s", name,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

static bool find_shipped(struct tm_cli *cli, const char *network, struct tm_model *model)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s", network);
    for (;;) {
        for (size_t i = 0; i < tm_model_shipped_count(); i++) {
            if (strcmp(tm_model_shipped_name(i), name) == 0) return tm_model_load(cli->env, name, model, NULL) == 0;
        }
        char *dash = strrchr(name, '-');
        if (dash == NULL) return false;
        *dash = '\0';
    }
}

bool tm_knowledge_network(void *context, const char *network, struct tm_network *out)
{
    const struct tm_knowledge_names *names = context;
    const char *own = NULL;
    struct tm_model model;
    tm_model_init(&model);
    bool found = tm_profile_choose(names->profile, "", network, &own, NULL) == 0 &&
                 tm_profile_model(names->profile, "", own, &model, NULL) == 0;
    found = found || find_shipped(names->cli, network, &model);
    if (found) *out = tm_network_of(model.layers, model.layer_count);
    tm_model_deinit(&model);
    return found;
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

static int learn_gradients(const struct tm_model *model, struct tm_knowledge *knowledge, struct tm_error *e)
{
    const struct tm_profile *profile = &knowledge->profile;
    knowledge->gradients = tm_calloc(profile->gradient_count + 1, sizeof *knowledge->gradients);
    if (knowledge->gradients == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < profile->gradient_count; i++) {
        const struct tm_profile_gradient *row = &profile->gradients[i];
        if (is_named(row->network, model))
            knowledge->gradients[knowledge->gradient_count++] = (struct tm_comm_bucket){row->bytes, row->ready};
    }
    return 0;
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

int tm_knowledge_read(struct tm_cli *cli, struct tm_knowledge *knowledge, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "profile");
    return path != NULL ? tm_profile_load(cli->env, path, &knowledge->profile, e) : 0;
}

int tm_knowledge_model(struct tm_cli *cli, const struct tm_knowledge *knowledge, struct tm_model *model,
                       struct tm_error *e)
{
    const char *path = tm_given_text(cli, "profile");
    const char *network = NULL;
    if (tm_given(cli, "model")) return tm_model_load(cli->env, tm_given_text(cli, "model"), model, e);
    int rc = tm_profile_choose(&knowledge->profile, path, tm_given_text(cli, "network"), &network, e);
    return rc == 0 ? tm_profile_model(&knowledge->profile, path, network, model, e) : rc;
}

/* The model's step with the largest batch, at a precision or at any; NULL: none. */
static const struct tm_profile_step *find_step(const struct tm_profile *profile, const struct tm_model *model,
                                               int precision)
{
    const struct tm_profile_step *best = NULL;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        bool suits = precision == TM_PRECISION_MIXED || (int)step->precision == precision;
        if (suits && is_named(step->network, model) && (best == NULL || step->micro_batch > best->micro_batch))
            best = step;
    }
    return best;
}

int tm_knowledge_precision(struct tm_cli *cli, const struct tm_knowledge *knowledge, const struct tm_model *model,
                           int *out, struct tm_error *e)
{
    const struct tm_profile_step *step = find_step(&knowledge->profile, model, TM_PRECISION_MIXED);
    *out = cli->settings.precision;
    if (step != NULL && !tm_given(cli, "model")) *out = (int)step->precision; /* this very job, as it is */
    return tm_given_choice(cli, "precision", out, e);
}

/* The GPU that a step was taken on, if the catalogue knows it. Steps without a name are all of one GPU. */
static bool find_step_gpu(const struct tm_catalog *catalog, const struct tm_profile_step *step,
                          const struct tm_gpu_figures *unnamed, struct tm_gpu_figures *out)
{
    *out = *unnamed;
    return step->gpu[0] == '\0' || tm_knowledge_gpu(catalog, step->gpu, out, NULL) == 0;
}

static int learn_steps(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                       const struct tm_gpu_figures *unnamed, struct tm_knowledge *knowledge, struct tm_error *e)
{
    struct tm_knowledge_names names = {cli, &knowledge->profile};
    size_t count = knowledge->profile.step_count;
    struct tm_compute_cell *cells = tm_calloc(count + 1, sizeof *cells);
    knowledge->batches = tm_calloc(count + 1, sizeof *knowledge->batches);
    knowledge->ms = tm_calloc(count + 1, sizeof *knowledge->ms);
    size_t known = 0;
    int rc = cells == NULL || knowledge->batches == NULL || knowledge->ms == NULL ? tm_error_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct tm_profile_step *step = &knowledge->profile.steps[i];
        struct tm_compute_cell cell = {
            .precision = step->precision, .batch = step->micro_batch, .step_ms = tm_profile_step_ms(step)};
        if (!find_step_gpu(catalog, step, unnamed, &cell.gpu)) continue; /* processors teach nothing about GPUs */
        if (is_named(step->network, model) && step->precision == knowledge->precision &&
            strcmp(cell.gpu.name, knowledge->gpu) == 0) {
            knowledge->batches[knowledge->count] = step->micro_batch;
            knowledge->ms[knowledge->count++] = cell.step_ms;
        }
        if (tm_knowledge_network(&names, step->network, &cell.network)) cells[known++] = cell;
    }
    if (rc == 0 && known > 0) rc = tm_compute_learn(cells, known, &knowledge->compute, e);
    tm_free(cells);
    return rc;
}

int tm_knowledge_learn(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                       int precision, struct tm_knowledge *knowledge, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "profile");
    const struct tm_profile *profile = &knowledge->profile;
    struct tm_gpu_figures unnamed = {.name = ""};
    struct tm_gpu_figures own = {.name = ""};
    int rc = 0;
    if (path == NULL) return 0;
    bool any_unnamed = profile->step_count == 0;
    for (size_t i = 0; i < profile->step_count && !any_unnamed; i++)
        any_unnamed = profile->steps[i].gpu[0] == '\0';
    if (any_unnamed || tm_given(cli, "profile-gpu"))
        rc = tm_knowledge_profile_gpu(cli, catalog, profile, path, "profile-gpu", &unnamed, e);
    if (rc != 0) return rc;
    const struct tm_profile_step *step = find_step(profile, model, precision);
    if (step != NULL) {
        knowledge->precision = step->precision;
        if (find_step_gpu(catalog, step, &unnamed, &own)) knowledge->gpu = own.name;
    }
    rc = learn_steps(cli, catalog, model, &unnamed, knowledge, e);
    if (rc == 0 && profile->run_count > 0) rc = learn_links(profile, &knowledge->comm, e);
    if (rc == 0) rc = learn_gradients(model, knowledge, e);
    return rc;
}

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

bool tm_knowledge_network(void *context, const char *network, struct tm_network *out)
{
    struct tm_cli *cli = context;
    struct tm_model model;
    char name[128];
    tm_model_init(&model);
    (void)snprintf(name, sizeof name, "%s", network);
    bool found = false;
    for (;;) {
        for (size_t i = 0; i < tm_model_shipped_count() && !found; i++)
            found = strcmp(tm_model_shipped_name(i), name) == 0;
        char *dash = strrchr(name, '-');
        if (found || dash == NULL) break;
        *dash = '\0';
    }
    found = found && tm_model_load(cli->env, name, &model, NULL) == 0;
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

int tm_knowledge_learn(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                       enum tm_precision precision, struct tm_knowledge *knowledge, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "profile");
    struct tm_gpu_figures gpu;
    if (path == NULL) return 0;
    int rc = tm_profile_load(cli->env, path, &knowledge->profile, e);
    if (rc == 0) rc = tm_knowledge_profile_gpu(cli, catalog, &knowledge->profile, path, "profile-gpu", &gpu, e);
    if (rc != 0) return rc;
    size_t count = knowledge->profile.step_count;
    struct tm_compute_cell *cells = tm_calloc(count + 1, sizeof *cells);
    knowledge->batches = tm_calloc(count + 1, sizeof *knowledge->batches);
    knowledge->ms = tm_calloc(count + 1, sizeof *knowledge->ms);
    if (cells == NULL || knowledge->batches == NULL || knowledge->ms == NULL) rc = tm_error_nomem(e);
    size_t known = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct tm_profile_step *step = &knowledge->profile.steps[i];
        double ms = tm_profile_step_ms(step);
        if (is_named(step->network, model) && step->precision == precision) {
            knowledge->batches[knowledge->count] = step->micro_batch;
            knowledge->ms[knowledge->count++] = ms;
        }
        struct tm_compute_cell cell = {
            .gpu = gpu, .precision = step->precision, .batch = step->micro_batch, .step_ms = ms};
        if (tm_knowledge_network(cli, step->network, &cell.network)) cells[known++] = cell;
    }
    if (rc == 0 && known > 0) rc = tm_compute_learn(cells, known, &knowledge->compute, e);
    if (rc == 0 && knowledge->profile.run_count > 0) rc = learn_links(&knowledge->profile, &knowledge->comm, e);
    if (rc == 0) rc = learn_gradients(model, knowledge, e);
    knowledge->gpu = gpu.name;
    tm_free(cells);
    return rc;
}

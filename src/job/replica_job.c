#include "job/replica_job.h"

#include <string.h>

/* The largest micro-batch that was profiled. */
static const struct tm_profile_step *find_step(const struct tm_profile *profile, const char *network, int precision)
{
    const struct tm_profile_step *best = NULL;
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *step = &profile->steps[i];
        if (strcmp(step->network, network) != 0) continue;
        if (precision != TM_PRECISION_MIXED && (int)step->precision != precision) continue;
        if (best == NULL || step->micro_batch > best->micro_batch) best = step;
    }
    return best;
}

int tm_replica_job_init(struct tm_env *env, const struct tm_knowledge_source *source, const struct tm_catalog *catalog,
                        int precision, struct tm_knowledge *knowledge, struct tm_replica_job *out, struct tm_error *e)
{
    const struct tm_profile *profile = &knowledge->profile;
    struct tm_replica_request *request = &out->request;
    bool any = precision == TM_PRECISION_MIXED;
    *out = (struct tm_replica_job){.request = {.profile = profile}};
    tm_model_init(&out->model);
    int rc = tm_profile_choose(profile, source->profile, source->network, &request->network, e);
    if (rc != 0) return rc;
    const struct tm_profile_step *step = find_step(profile, request->network, precision);
    if (step == NULL)
        return tm_error_set(e, TM_EINPUT, "%s: no steps of %s%s%s", source->profile, request->network,
                            any ? "" : " in ", any ? "" : tm_precision_names[precision]);
    rc = tm_profile_model(profile, source->profile, request->network, &out->model, e);
    if (rc == 0) rc = tm_knowledge_learn(env, source, catalog, &out->model, (int)step->precision, knowledge, e);
    if (rc != 0) return rc;
    out->layers = tm_network_of(out->model.layers, out->model.layer_count);
    const char *gpu = step->gpu[0] != '\0' ? step->gpu : knowledge->gpu;
    bool known = tm_knowledge__gpu(catalog, gpu, &out->figures, NULL) == 0;
    bool host = strcmp(step->gpu, "cpu") == 0; /* collectives load the processors that train */
    out->comm = profile->run_count > 0 || !host ? knowledge->comm : tm_comm_hosts();
    request->gpu = step->gpu;
    request->precision = step->precision;
    request->figures = known ? &out->figures : NULL;
    request->layers = &out->layers;
    request->compute = &knowledge->compute;
    request->comm = &out->comm;
    return 0;
}

void tm_replica_job_deinit(struct tm_replica_job *job)
{
    tm_model_deinit(&job->model);
}

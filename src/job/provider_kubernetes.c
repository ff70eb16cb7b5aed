/* Kubernetes as a provider: pods by fleet.pods, made and deleted by the API server (cloud/kube_cloud.h). */
#include "job/provider.h"

#include "base/dns_name.h"
#include "cloud/kube_cloud.h"
#include "cloud/kube_pod.h"

#include <stdio.h>
#include <string.h>

static int check_image(const struct tm_job_pods *pods, const char *place, struct tm_error *e)
{
    if (pods->image == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pods.image: which image has tidemill in it? write for example pods: {image: "
                            "registry.example.com/tidemill:0.1}",
                            place);
    return 0;
}

/* Pods must reach this machine: in a pod by its own address, else somebody must say how. */
static int find_address(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e)
{
    const char *own = env->variable(env, "POD_IP");
    if (settings->listen != NULL || settings->advertise != NULL) return 0;
    if (own == NULL)
        return tm_error_set(e, TM_EUSAGE,
                            "where do pods reach this machine? give --advertise HOST, or --listen HOST:PORT; in a pod "
                            "set the variable POD_IP from status.podIP");
    settings->advertise = tm_arena_strdup(&settings->job.arena, own);
    return settings->advertise == NULL ? tm_error_nomem(e) : 0;
}

static int settle_kubernetes(struct tm_env *env, struct tm_run_settings *settings, const char *place,
                             struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    if (fleet->pools.count > 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pools: pods are one pool; leave it out with cloud: kubernetes, and say "
                            "fleet.limit",
                            place);
    int rc = check_image(&fleet->pods, place, e);
    if (rc != 0) return rc;
    if (fleet->limit == 0)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.limit: how many pods at most? write for example limit: 4", place);
    if (fleet->instance == NULL || fleet->instance[0] == '\0') fleet->instance = "pod";
    if (fleet->spot_usd_h_millionths < 0) fleet->spot_usd_h_millionths = 0;
    if (fleet->on_demand_usd_h_millionths < 0) fleet->on_demand_usd_h_millionths = fleet->spot_usd_h_millionths;
    return find_address(env, settings, e);
}

/* A label: the job's name, as far as it may be one. */
static const char *app_of(const struct tm_provider_request *request)
{
    const char *name = request->settings->job.name;
    return name != NULL && tm_dns_label_is_good(name) ? name : "tidemill";
}

static int open_kubernetes(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                           struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &request->settings->job.fleet;
    const struct tm_job_pods *pods = &fleet->pods;
    struct tm_kube_options options = {
        .pod = {.app = app_of(request),
                .image = pods->image,
                .account = pods->account,
                .priority = pods->priority,
                .selector = pods->selector.items,
                .selector_count = pods->selector.count,
                .spot = (enum tm_kube_spot)pods->spot,
                .gpu = pods->gpu,
                .gpus = pods->gpus,
                .cpu = pods->cpu,
                .memory = pods->memory,
                .grace_s = tm_kube_grace_s(fleet->notice_ms)},
        .context = pods->context,
        .space = pods->space,
        .folder = request->dir,
        .limit = {(int)fleet->limit, (int)fleet->on_demand},
        .price_usd_h = {(double)fleet->spot_usd_h_millionths / 1e6, (double)fleet->on_demand_usd_h_millionths / 1e6},
        .poll_ms = fleet->poll_ms,
        .id_first = request->account->instance + 1,
        .arena = request->arena,
        .ticket = tm_provider__day_ticket,
        .has_joined = tm_provider__has_joined,
        .ticket_context = (void *)request};
    return tm_kube_cloud_create(env, &options, out, e);
}

const struct tm_provider tm_provider__kubernetes = {.name = "kubernetes",
                                                    .about = "instances are pods of a Kubernetes cluster",
                                                    .instances_max = TM_REMOTE_INSTANCES_MAX,
                                                    .joins = true,
                                                    .settle = settle_kubernetes,
                                                    .open = open_kubernetes};

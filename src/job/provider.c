#include "job/provider.h"

#include "base/log.h"
#include "cloud/remote_cloud.h"
#include "job/pool_lives.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* In the order of tm_job_cloud_names. */
static const struct tm_provider *const providers[] = {
    &tm_provider__local, &tm_provider__hosts, &tm_provider__slurm,    &tm_provider__kubernetes, &tm_provider__aws,
    &tm_provider__azure, &tm_provider__gcp,   &tm_provider__skypilot, &tm_provider__join};

enum { COUNT = sizeof providers / sizeof *providers };

const struct tm_provider *tm_provider__at(size_t index)
{
    return index < COUNT ? providers[index] : NULL;
}

const struct tm_provider *tm_provider_of(const struct tm_job *job)
{
    assert(job->cloud >= 0 && job->cloud < COUNT);
    return providers[job->cloud];
}

int tm_provider_settle(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    const struct tm_provider *provider = tm_provider_of(&settings->job);
    if (!provider->emulates) {
        settings->copy_every_ms = (int64_t)((double)settings->copy_every_ms * settings->job.fleet.speed);
        settings->job.fleet.speed = 1;
        settings->no_losses = true;
    }
    if (provider->joins) settings->tls = true;
    if (provider != &tm_provider__slurm && tm_job_fleet_has_partitions(&settings->job.fleet))
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pools: partition is Slurm's, but the cloud is %s; write cloud: slurm, or give "
                            "--cloud slurm",
                            place, provider->name);
    int rc = provider->settle != NULL ? provider->settle(env, settings, place, e) : 0;
    if (rc == 0) rc = tm_pool_lives__fill_starts(env, &settings->job, e);
    if (rc == 0 && settings->job.fleet.limit > provider->instances_max)
        rc = tm_error_set(e, TM_EINPUT, "%s: fleet.limit: %lld instances, but cloud %s has at most %d; write fewer",
                          place, (long long)settings->job.fleet.limit, provider->name, provider->instances_max);
    return rc;
}

int tm_provider_check(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    const struct tm_provider *provider = tm_provider_of(&settings->job);
    return provider->check != NULL ? provider->check(settings, place, e) : 0;
}

static int ask_price(struct tm_env *env, const struct tm_run_settings *settings, const char *type, const char *zone,
                     int64_t *millionths, struct tm_error *e)
{
    double usd_h = NAN;
    if (*millionths >= 0 || type == NULL || type[0] == '\0') return 0;
    int rc = tm_provider_of(&settings->job)->spot_price(env, settings, type, zone != NULL ? zone : "", &usd_h, e);
    if (rc == 0 && !isnan(usd_h)) *millionths = llround(usd_h * 1e6);
    return rc;
}

int tm_provider_ask_prices(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_error own = {.text = ""};
    int rc = 0;
    if (tm_provider_of(&settings->job)->spot_price == NULL) return 0;
    if (tm_provider_of(&settings->job)->spot_prices != NULL)
        rc = tm_provider_of(&settings->job)->spot_prices(env, settings, &own);
    if (rc != 0 && rc != -(int)TM_ENOMEM) {
        tm_log(TM_LOG_WARN, "%s; spot prices are the catalogue's", own.text);
        rc = 0;
    }
    for (size_t i = 0; rc == 0 && i < fleet->pools.count; i++) {
        struct tm_job_pool *pool = &((struct tm_job_pool *)fleet->pools.items)[i];
        if (pool->market == TM_POOL_SPOT && pool->trace == NULL)
            rc = ask_price(env, settings, pool->instance, pool->zone, &pool->usd_h_millionths, &own);
    }
    if (rc == 0 && fleet->pools.count == 0)
        rc = ask_price(env, settings, fleet->instance, "", &fleet->spot_usd_h_millionths, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) tm_log(TM_LOG_WARN, "%s; spot prices are the catalogue's", own.text);
    return 0;
}

const char *tm_provider_any_host(struct tm_env *env)
{
    char bound[TM_ADDRESS_MAX];
    int handle = -1;
    if (env->net_listen(env, "[::]:0", &handle, bound, NULL) != 0) return "0.0.0.0";
    env->net_close(env, handle);
    return "::";
}

bool tm_provider__has_joined(void *request, uint64_t id)
{
    const struct tm_provider_request *from = request;
    return from->has_joined(from->office, id);
}

int tm_provider__day_ticket(void *request, uint64_t id, enum tm_instance_kind market, char out[TM_TICKET_MAX],
                            struct tm_error *e)
{
    static const int64_t day_ms = 24 * 3600 * INT64_C(1000);
    const struct tm_provider_request *from = request;
    const struct tm_ticket_for who = {.instance = id, .anchor = market == TM_INSTANCE_ON_DEMAND, .valid_ms = day_ms};
    static_assert((int)TM_REMOTE_WORDS_MAX >= (int)TM_TICKET_MAX, "a ticket has room");
    return from->ticket(from->office, &who, out, e);
}

#include "job/provider.h"

#include "cloud/remote_cloud.h"

#include <assert.h>
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
    int rc = provider->settle != NULL ? provider->settle(env, settings, place, e) : 0;
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

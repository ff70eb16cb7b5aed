#include "job/job_coordinator.h"

#include "job/copies_place.h"
#include "job/job_engine.h"
#include "job/job_pools.h"
#include "job/provider.h"
#include "job/run_fingerprint.h"
#include "job/run_layouts.h"
#include "layout/shares.h"
#include "market/catalog.h"
#include "run/decide_policy.h"
#include "run/protocol_times.h"
#include "run/serve.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "wire/peer_links.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INTERVAL_S = 60 };

/* Paths and texts that the service borrows. */
struct place {
    char record[TM_STATE_PATH_MAX];
    char copies[TM_STATE_PATH_MAX];
    char tls[TM_STATE_PATH_MAX];
    char address[TM_STATE_PATH_MAX];
    char here[TM_STATE_PATH_MAX];
    char token[TM_STATE_TOKEN_MAX];
    char listen[TM_ADDRESS_MAX];
    struct tm_text fingerprint;
};

/* Where the last one listened, so that everybody finds the next. One that `run` starts again is told a host and no
 * port: its port is the last one's. */
static void find_listen(struct tm_env *env, const struct tm_job_coordinator *job, struct place *place)
{
    char last[TM_ADDRESS_MAX];
    char told[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    bool was = tm_state_read(env, job->dir, TM_STATE_ADDRESS, last, sizeof last, NULL) == 0;
    const char *given = job->listen != NULL ? job->listen : was ? last : "127.0.0.1";
    tm_address_of_host(given, "0", place->listen);
    if (job->by_hand || !was || tm_address_split(place->listen, host, port, NULL) != 0 || strcmp(port, "0") != 0)
        return;
    if (job->advertise != NULL && tm_address_split(job->advertise, told, port, NULL) == 0) return; /* not our port */
    if (tm_address_split(last, told, port, NULL) == 0) tm_address_join(host, port, place->listen);
}

static void find_place(struct tm_env *env, const struct tm_job_coordinator *job, struct place *place)
{
    tm_state_path(job->dir, TM_STATE_RECORD, place->record);
    tm_state_path(job->dir, TM_STATE_COPIES, place->copies);
    tm_state_path(job->dir, TM_STATE_ADDRESS, place->address);
    tm_state_path(job->dir, TM_STATE_ADDRESS_HERE, place->here);
    tm_state_tls_path(job->dir, TM_STATE_TLS_COORDINATOR, place->tls);
    find_listen(env, job, place);
}

/* No coordinator was here before: there is no record, nobody has been told an address, and there are no copies. Where
 * only the record is gone, the job goes on from what the others have. */
static bool is_fresh(struct tm_env *env, const struct place *place)
{
    uint64_t set = 0;
    if (env->file_exists(env, place->record) || env->file_exists(env, place->address)) return false;
    return tm_copy_store_newest(env, place->copies, &set, NULL) == -(int)TM_ENOTFOUND;
}

static void fill_times(struct tm_coordinator_options *out)
{
    out->heartbeat_ms = TM_PROTOCOL_HEARTBEAT_MS;
    out->lease_ms = TM_PROTOCOL_LEASE_MS;
    out->orphan_ms = TM_PROTOCOL_ORPHAN_MS;
    out->resend_ms = TM_PROTOCOL_RESEND_MS;
    out->settle_ms = TM_PROTOCOL_SETTLE_MS;
    out->follow_limit_ms = TM_PROTOCOL_FOLLOW_MS;
    out->drain_limit_ms = TM_PROTOCOL_DRAIN_MS;
    out->fetch_limit_ms = TM_PROTOCOL_FETCH_MS;
    out->stall_ms = TM_PROTOCOL_STALL_MS;
    out->quarantine_ms = TM_PROTOCOL_QUARANTINE_MS;
    out->copy_limit_ms = TM_PROTOCOL_COPY_MS;
    out->false_alarm_ms = TM_PROTOCOL_FALSE_ALARM_MS;
    out->durable_wait_ms = TM_PROTOCOL_DURABLE_WAIT_MS;
    out->sets_kept = TM_PROTOCOL_SETS_KEPT;
}

static void fill_service(struct tm_env *env, const struct tm_job_coordinator *job, const struct place *place,
                         const struct tm_run_settings *settings, const struct tm_run_work *work,
                         struct tm_coordinator_service *out)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    bool of_run = env->variable(env, "TIDEMILL_RUN_MARK") != NULL;
    *out = (struct tm_coordinator_service){
        .coordinator = {.job = settings->number,
                        .token = place->token,
                        .fingerprint = tm_text_string(&place->fingerprint),
                        .layers = work->layers,
                        .steps = (uint64_t)settings->job.steps,
                        .micro_batches = work->micro_batches,
                        .copies = tm_run_restarts_all(settings) ? 0 : 1,
                        .workers = (uint32_t)tm_job_fleet_workers_each(fleet),
                        .pools = tm_job_fleet_has_choices(fleet) ? (uint32_t)fleet->pools.count : 0,
                        .remotes = fleet->on_demand_trains != 0
                                       ? 0
                                       : (uint32_t)(fleet->on_demand * tm_job_fleet_workers_each(fleet)),
                        .speeds_alike = of_run && tm_provider_of(&settings->job)->emulates &&
                                        !tm_job_engine_of(&settings->job)->paced,
                        .copies_to_files = true,
                        .leaves_early = of_run && tm_provider_of(&settings->job)->leaves_early,
                        .log_steps = settings->job.log.count > 0,
                        .failures_max = (uint32_t)settings->job.max_failures,
                        .resume = true,
                        .retry = job->by_hand || env->variable(env, "TIDEMILL_RUN_RETRY") != NULL,
                        .fresh = is_fresh(env, place)},
        .listen = place->listen,
        .advertise = job->advertise,
        .record = place->record,
        .copy_folder = place->copies,
        .copies_shared = tm_copies_place__is_shared(env, job->dir),
        .tls_folder = job->tls || tm_run_settings_tls(settings) ? place->tls : NULL,
        .address_file = place->address,
        .here_file = place->here,
        .owner_dir = of_run ? job->dir : NULL,
        .alone = job->alone,
        .stop = job->stop,
        .hook = job->hook,
        .bound = job->bound,
        .context = job->context};
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count && i < TM_RUN_POOLS_MAX; i++)
        if (pools[i].throughput > 0) out->coordinator.pool_slowness[i] = tm_slowness(1 / pools[i].throughput);
    for (size_t i = 0; i < count && i < TM_RUN_POOLS_MAX && out->coordinator.pools > 0; i++)
        if (pools[i].role == TM_POOL_KEEPS_COPIES) out->coordinator.keeper_pools |= (uint64_t)1 << i;
    for (size_t i = 0; i < count && i < TM_RUN_POOLS_MAX; i++)
        out->coordinator.pool_region[i] = (uint32_t)tm_job_pools__region(fleet, i);
    const struct tm_far far = tm_job_pools__far(fleet, tm_run_work__gradient_bytes(work), (double)work->batch);
    out->coordinator.region_step_usd = far.sample_usd * (double)work->batch;
    if (!fleet->across_regions) /* else some of its state is in each that it uses, and that is as in a simulation */
        out->coordinator.move_usd = tm_job_pools__egress_usd(fleet, tm_run_work__state_bytes(work));
    fill_times(&out->coordinator);
}

/* What views say of the job. */
static void tell_job(struct tm_env *env, const struct tm_run_settings *settings, const struct tm_run_work *work,
                     struct tm_run_job *out)
{
    const char *command = env->variable(env, "TIDEMILL_RUN_COMMAND");
    *out = (struct tm_run_job){.steps = (uint64_t)settings->job.steps,
                               .samples_per_step = (uint64_t)work->batch,
                               .tokens_per_step = (uint64_t)(work->batch * work->sample_tokens),
                               .layers = work->layers,
                               .micro_batches = work->micro_batches,
                               .workers = (uint32_t)tm_job_fleet_workers_each(&settings->job.fleet),
                               .speed = settings->job.fleet.speed,
                               .deadline_s = (double)settings->job.deadline_ms / 1000,
                               .budget_usd = (double)settings->job.budget_usd_millionths / 1e6};
    (void)snprintf(out->name, sizeof out->name, "%s", settings->job.name);
    if (command != NULL && strlen(command) < sizeof out->command)
        (void)snprintf(out->command, sizeof out->command, "%s", command);
}

/* "8x V100" */
static void name_gpu(const struct tm_catalog *catalog, const char *type, char out[TM_STATUS_GPU_MAX])
{
    for (size_t i = 0; type != NULL && i < catalog->instance_count; i++) {
        const struct tm_instance_type *one = &catalog->instances[i];
        if (strcmp(one->name, type) != 0 || one->gpu[0] == '\0') continue;
        if (one->gpus == 1)
            (void)snprintf(out, TM_STATUS_GPU_MAX, "%s", one->gpu);
        else
            (void)snprintf(out, TM_STATUS_GPU_MAX, "%gx %s", one->gpus, one->gpu);
        return;
    }
}

/* For people: where the catalogue cannot be read, no GPU is named, and nothing is compared with on-demand. */
static void tell_catalog(struct tm_env *env, const struct tm_run_settings *settings, struct tm_run_job *out)
{
    struct tm_catalog catalog;
    size_t count = 0;
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    tm_catalog_init(&catalog);
    if (tm_catalog_load(env, &catalog, NULL) == 0) {
        for (size_t i = 0; i < out->pool_count && i < count; i++)
            name_gpu(&catalog, pools[i].instance, out->gpus[i]);
        for (size_t i = 0; i < out->pool_count && i < count; i++)
            out->on_demand_usd_h[i] = fmax(0, tm_job_pool__on_demand_usd_h(&catalog, &pools[i]));
        if (out->pool_count == 0) name_gpu(&catalog, fleet->instance, out->gpus[0]);
    }
    tm_catalog_deinit(&catalog);
}

static int name_pools(const struct tm_run_settings *settings, struct tm_arena *arena, struct tm_run_job *out,
                      struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&settings->job.fleet, &count);
    if (!tm_job_fleet_has_choices(&settings->job.fleet)) {
        out->keepers = tm_job_fleet_keepers(&settings->job.fleet) > 0 ? 2 : 0;
        return 0;
    }
    for (size_t i = 0; i < count && i < TM_RUN_POOLS_MAX; i++) {
        const char *name = tm_job_pool__name(&pools[i], arena);
        if (name == NULL) return tm_error_nomem(e);
        if (pools[i].role == TM_POOL_KEEPS_COPIES) out->keepers |= (uint64_t)1 << i;
        (void)snprintf(out->pools[out->pool_count++], sizeof out->pools[0], "%s", name);
    }
    return 0;
}

static int make_decider(const struct tm_run_settings *settings, const struct tm_run_work *work,
                        const struct tm_run_layouts *layouts, struct tm_policy_decider **out, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    bool trains = fleet->on_demand_trains != 0;
    struct tm_policy_rule rule = {.info = tm_policy_find(settings->job.policy),
                                  .layouts = &layouts->job.layouts,
                                  .migrations = layouts->migrations,
                                  .cost = &layouts->job.cost,
                                  .steps_unknown = layouts->speed_unknown,
                                  .speed = fleet->speed,
                                  .interval_s = INTERVAL_S,
                                  .workers = (int)tm_job_fleet_workers_each(fleet),
                                  .workers_min = (int)fleet->workers_min,
                                  .workers_max = (int)(trains ? fleet->limit : fleet->limit - fleet->on_demand),
                                  .anchors = (int)fleet->on_demand,
                                  .anchors_train = trains,
                                  .deadline_s = tm_job_wants_spot(&settings->job)
                                                    ? 0 /* nothing can be done about it */
                                                    : (double)settings->job.deadline_ms / 1000 / fleet->speed,
                                  .budget_usd = (double)settings->job.budget_usd_millionths / 1e6,
                                  .deadline_moot = tm_job_wants_spot(&settings->job),
                                  .samples_per_step = (double)work->batch,
                                  .spot_wait_s = (double)fleet->spot_start_ms / 1000,
                                  .copy_every_ms = settings->copy_every_ms, /* 0: the policy says when */
                                  .copy_every_alone_ms = settings->copy_every_ms};
    if (tm_job_fleet_has_choices(fleet)) tm_job_pools__rule(fleet, work, tm_job_pools__join_s(fleet, rule.cost), &rule);
    return tm_policy_decider_create(&rule, out, e);
}

static int serve(struct tm_env *env, struct tm_job_coordinator *job, const struct tm_run_settings *settings,
                 struct place *place, struct tm_arena *arena, struct tm_error *e)
{
    struct tm_run_work work;
    struct tm_run_layouts layouts;
    struct tm_run_job told;
    struct tm_coordinator_service service;
    struct tm_policy_decider *decider = NULL;
    int rc = tm_run_work__load(env, &settings->job, arena, &work, e);
    if (rc == 0) rc = tm_run__fingerprint(env, &settings->job, arena, &place->fingerprint, e);
    if (rc == 0) rc = tm_state_token(env, job->dir, place->token, e);
    if (rc == 0) rc = tm_run_layouts__init(env, job->dir, settings, &work, &layouts, e);
    if (rc != 0) return rc;
    rc = make_decider(settings, &work, &layouts, &decider, e);
    if (rc == 0) {
        fill_service(env, job, place, settings, &work, &service);
        tell_job(env, settings, &work, &told);
        service.decider = tm_policy_decider_get(decider);
        service.job = &told;
        rc = name_pools(settings, arena, &told, e);
        if (rc == 0) tell_catalog(env, settings, &told);
        if (rc == 0) rc = tm_coordinator_serve(env, &service, e);
        job->unrecorded = rc == 0 && service.unrecorded;
    }
    tm_policy_decider_destroy(decider);
    tm_run_layouts__deinit(&layouts);
    return rc;
}

int tm_job_coordinate(struct tm_env *env, struct tm_job_coordinator *job, const struct tm_run_settings *settings,
                      struct tm_arena *arena, struct tm_error *e)
{
    struct place place;
    find_place(env, job, &place);
    tm_text_init(&place.fingerprint, TM_RUN_FINGERPRINT_MAX);
    int rc = serve(env, job, settings, &place, arena, e);
    tm_text_deinit(&place.fingerprint);
    return rc;
}

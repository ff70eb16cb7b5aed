#include "job/launch.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "cloud/away_vm.h"
#include "job/bucket_result.h"
#include "job/job_engine.h"
#include "job/job_pools.h"
#include "job/launch_internal.h"
#include "job/run_costs.h"
#include "job/run_lives.h"
#include "job/run_report_file.h"
#include "run/run_tap.h"

#include <assert.h>
#include <string.h>

enum { KEEP_LIMIT_MS = 120000, KEEP_AGAIN_MS = 3000 };
enum { SAVE_LIMIT_MS = 60000, CHAOS_BEGIN_MS = 1000, CHAOS_LASTING_MS = 2000 };

/* ---- the cloud ---- */

/* A run that goes on goes on where its cloud stood; behind the trace's end what there was stays. */
static int make_trace(struct tm_launch *launch, struct tm_error *e)
{
    struct tm_trace *trace = &launch->trace;
    int rc = tm_trace_copy(&launch->request.plan->trace, trace, e);
    if (rc != 0 || launch->account.time_ms == 0) return rc;
    int64_t from_ms = launch->account.time_ms < trace->end_ms ? launch->account.time_ms : trace->end_ms - 1;
    return tm_trace_cut(trace, from_ms, trace->end_ms, trace, e);
}

static int make_pools(struct tm_launch *launch, struct tm_error *e)
{
    const struct tm_job_pools *pools = launch->request.plan->pools;
    int rc = 0;
    for (int i = 0; rc == 0 && pools != NULL && i < tm_job_pools__all(pools); i++) {
        const struct tm_trace *trace = pools->list[i].trace;
        struct tm_trace *out = &launch->pool_traces[launch->pool_count++];
        tm_job_pools__describe(pools, &launch->request.settings->job.fleet, i, &launch->pools[i]);
        if (trace == NULL) continue;
        int64_t from_ms = pools->list[i].from_ms + launch->account.time_ms;
        rc = tm_trace_cut(trace, from_ms < trace->end_ms ? from_ms : trace->end_ms - 1, trace->end_ms, out, e);
    }
    return rc;
}

static int open_cloud(struct tm_launch *launch, struct tm_error *e)
{
    tm_state_path(launch->request.dir, TM_STATE_CLOUD, launch->cloud_dir);
    tm_state_path(launch->request.dir, TM_STATE_LOGS, launch->log_dir);
    int rc = make_trace(launch, e);
    if (rc == 0) rc = make_pools(launch, e);
    if (rc != 0) return rc;
    const struct tm_run_settings *settings = launch->request.settings;
    launch->opened = (struct tm_provider_request){.settings = settings,
                                                  .trace = &launch->trace,
                                                  .pools = launch->pools,
                                                  .pool_traces = launch->pool_traces,
                                                  .pool_count = launch->pool_count,
                                                  .account = &launch->account,
                                                  .dir = launch->request.dir,
                                                  .cloud_dir = launch->cloud_dir,
                                                  .log_dir = launch->log_dir,
                                                  .program = launch->request.program,
                                                  .mark = launch->owner.mark,
                                                  .certify = tm_run_settings_tls(settings) ? tm_run_tls__issue : NULL,
                                                  .context = &launch->tls,
                                                  .ticket = tm_office_ticket,
                                                  .has_joined = tm_office_has_joined,
                                                  .bind = tm_office_bind,
                                                  .office = launch->office,
                                                  .arena = launch->request.arena};
    return tm_provider_of(&settings->job)->open(launch->env, &launch->opened, &launch->cloud, e);
}

/* ---- starting ---- */

/* Where the coordinator listens and where instances are told that it is: as the cloud reaches this machine, unless
 * something else is said. */
static void find_addresses(struct tm_launch *launch)
{
    const struct tm_run_settings *settings = launch->request.settings;
    char cloud_host[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    const struct tm_provider *provider = tm_provider_of(&settings->job);
    (void)snprintf(cloud_host, sizeof cloud_host, "127.0.0.1"); /* where those who join from elsewhere do not go */
    if (provider->host != NULL) provider->host(launch->cloud, cloud_host);
    const char *usual = provider->joins ? tm_provider_any_host(launch->env) : cloud_host;
    tm_address_of_host(settings->listen != NULL ? settings->listen : usual, "0", launch->listen);
    bool any = tm_address_split(launch->listen, host, port, NULL) == 0 && tm_host_is_any(host);
    const char *told = settings->advertise != NULL ? settings->advertise : any ? cloud_host : "";
    (void)snprintf(launch->advertise, sizeof launch->advertise, "%s", told);
}

/* How all this was called, for the record: the coordinator hears it. */
static int name_call(struct tm_launch *launch, const char **out, struct tm_error *e)
{
    const struct tm_launch_request *request = &launch->request;
    if (request->call == NULL) return 0;
    *out = tm_arena_printf(request->arena, "TIDEMILL_RUN_COMMAND=%s", request->call);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

/* What the VM was told that this runs on; 0: nothing. */
static double own_number(struct tm_env *env, const char *name)
{
    const char *text = env->variable(env, name);
    double number = 0;
    return text != NULL && tm_number_double(text, strlen(text), &number) && number > 0 ? number : 0;
}

double tm_launch_own_usd_h(struct tm_env *env)
{
    return own_number(env, TM_OWN_USD_H);
}

static int start(struct tm_launch *launch, struct tm_error *e)
{
    const struct tm_run_settings *settings = launch->request.settings;
    const char *call = NULL;
    tm_state_tls_path(launch->request.dir, TM_STATE_TLS_CLOUD, launch->tls_dir);
    bool joins = tm_provider_of(&settings->job)->joins;
    if (joins) find_addresses(launch);
    int rc = tm_launch__open_office(launch, e);
    if (rc == 0) rc = open_cloud(launch, e);
    if (rc == 0) rc = name_call(launch, &call, e);
    if (rc != 0) return rc;
    if (!joins) find_addresses(launch);
    launch->stop_at_ms = launch->request.until_end ? launch->trace.end_ms : INT64_MAX;
    launch->chaos = (struct tm_chaos_options){.faults_max = (uint64_t)launch->request.faults_max,
                                              .chaos = {.seed = (uint64_t)settings->chaos,
                                                        .mean_ms = settings->chaos_mean_ms,
                                                        .begin_ms = CHAOS_BEGIN_MS,
                                                        .lasting_ms = CHAOS_LASTING_MS},
                                              .workers = (uint32_t)tm_job_fleet_workers_each(&settings->job.fleet),
                                              .netns = settings->netns};
    for (int kind = 0; kind < TM_FAULT_KINDS; kind++)
        launch->chaos.chaos.weights[kind] = (uint32_t)(settings->chaos_kinds >> kind & 1);
    struct tm_supervisor_options options = {
        .driver = {.cloud = launch->cloud,
                   .dir = launch->request.dir,
                   .token = launch->token,
                   .tls_folder = tm_run_settings_tls(settings) ? launch->tls_dir : NULL,
                   .job = settings->number,
                   .speed = settings->job.fleet.speed,
                   .own_usd_h = tm_launch_own_usd_h(launch->env),
                   .own_since_ms = (int64_t)(own_number(launch->env, TM_OWN_SINCE) * 1000),
                   .before = launch->account},
        .program = launch->request.program,
        .mark = launch->owner.mark,
        .call = call,
        .listen = launch->listen,
        .advertise = launch->advertise[0] != '\0' ? launch->advertise : NULL,
        .chaos = settings->chaos >= 0 ? &launch->chaos : NULL,
        .resumed = launch->request.resumed,
        .restart_all = tm_run_restarts_all(settings),
        .workers = (uint32_t)tm_job_fleet_workers_each(&settings->job.fleet)};
    return tm_supervisor_create(launch->env, &options, &launch->supervisor, e);
}

/* Its books are where others find them before anything is rented. */
static int open_home(struct tm_launch *launch, struct tm_error *e)
{
    if (!tm_bucket__of(launch->env, launch->request.dir, launch->place)) {
        launch->place[0] = '\0';
        return 0;
    }
    return tm_run_home_open(launch->env, launch->request.dir, launch->place, 0, &launch->home, e);
}

bool tm_launch_tell(struct tm_launch *launch, const char *where)
{
    if (launch->home != NULL) tm_run_home_tell(launch->home, where);
    return launch->home != NULL;
}

int tm_launch_create(struct tm_env *env, const struct tm_launch_request *request, struct tm_launch **out,
                     struct tm_error *e)
{
    struct tm_launch *launch = tm_calloc(1, sizeof *launch);
    *out = launch;
    if (launch == NULL) return tm_error_nomem(e);
    launch->env = env;
    launch->request = *request;
    tm_trace_init(&launch->trace);
    for (int i = 0; i < TM_CLOUD_POOLS_MAX; i++)
        tm_trace_init(&launch->pool_traces[i]);
    int rc = tm_launch__prepare(launch, e);
    if (rc == 0) rc = open_home(launch, e);
    return rc == 0 ? start(launch, e) : rc;
}

void tm_launch_destroy(struct tm_launch *launch)
{
    if (launch == NULL) return;
    assert(launch->supervisor == NULL && launch->cloud == NULL); /* closed */
    const char *dir = launch->request.dir;
    (void)tm_run_home_close(launch->home, NULL);
    tm_run_tls__deinit(&launch->tls);
    if (launch->owned && tm_run_settings_tls(launch->request.settings)) tm_run_tls__remove(dir);
    if (launch->owned) tm_state_disown(launch->env, dir, &launch->owner);
    tm_trace_deinit(&launch->trace);
    for (int i = 0; i < TM_CLOUD_POOLS_MAX; i++)
        tm_trace_deinit(&launch->pool_traces[i]);
    tm_free(launch);
}

/* ---- running ---- */

/* A script of the user's may have a model to save once the job is finished: its instance ends when it has. */
static int begin_saving(struct tm_launch *launch, struct tm_error *e)
{
    int rc = 0;
    launch->saving = tm_job_engine_of(&launch->request.settings->job)->saves;
    launch->ended = !launch->saving;
    launch->save_until_ns = launch->env->monotonic_ns(launch->env) + SAVE_LIMIT_MS * (int64_t)1000000;
    int pools = 0;
    (void)launch->cloud->pools(launch->cloud, &pools);
    for (int i = 0; rc == 0 && launch->saving && i < pools; i++)
        rc = launch->cloud->want(launch->cloud, i, 0, e);
    if (rc != -(int)TM_ENONE) return rc;
    launch->ended = true;
    return 0;
}

static int let_save(struct tm_launch *launch, int64_t timeout_ms, struct tm_error *e)
{
    struct tm_cloud *cloud = launch->cloud;
    struct tm_cloud_event event;
    size_t count = 0;
    size_t here = 0;
    const struct tm_cloud_instance *all = cloud->instances(cloud, &count);
    for (size_t i = 0; i < count; i++)
        here += tm_instance_is_here(&all[i]);
    launch->ended = here == 0 || launch->env->monotonic_ns(launch->env) >= launch->save_until_ns;
    if (launch->ended) return 0;
    int rc = cloud->next(cloud, timeout_ms, &event, e);
    if (rc == -(int)TM_ENONE) launch->ended = true;
    return rc == -(int)TM_ETIMEOUT || rc == -(int)TM_ENONE ? 0 : rc;
}

/* What somebody wrote into the bucket who does not reach us. */
static void take_order(struct tm_launch *launch)
{
    enum tm_home_order order = launch->home != NULL ? tm_run_home_order(launch->home) : TM_HOME_ORDER_NONE;
    for (int i = 0; i < (int)order; i++) /* twice: at once */
        tm_launch_stop(launch);
}

int tm_launch_step(struct tm_launch *launch, int64_t timeout_ms, struct tm_error *e)
{
    take_order(launch);
    if (launch->saving) return let_save(launch, timeout_ms, e);
    int rc = tm_supervisor_step(launch->supervisor, timeout_ms, e);
    if (rc == 0 && launch->cloud->now_ms(launch->cloud) >= launch->stop_at_ms) {
        tm_supervisor_stop(launch->supervisor);
        launch->stop_at_ms = INT64_MAX;
    }
    return rc == 0 && tm_supervisor_ended(launch->supervisor) ? begin_saving(launch, e) : rc;
}

bool tm_launch_ended(const struct tm_launch *launch)
{
    return launch->ended;
}

int tm_launch_strays(const struct tm_launch *launch)
{
    bool looks = launch->cloud != NULL && launch->cloud->strays != NULL;
    return launch->leftovers + (looks ? launch->cloud->strays(launch->cloud) : 0);
}

const char *tm_launch_left(const struct tm_launch *launch)
{
    return launch->left;
}

void tm_launch_stop(struct tm_launch *launch)
{
    if (launch->saving)
        launch->ended = true;
    else
        tm_supervisor_stop(launch->supervisor);
}

/* What happened to the instances, for the next plan: that of an emulated cloud stays in the run's folder. */
static void keep_lives(struct tm_launch *launch)
{
    const struct tm_job *job = &launch->request.settings->job;
    const struct tm_provider *provider = tm_provider_of(job);
    const struct tm_run_lives lives = {.cloud = provider->name,
                                       .type = job->fleet.instance,
                                       .dir = launch->request.dir,
                                       .emulated = provider->emulates};
    struct tm_error e;
    if (tm_run_lives__keep(launch->env, launch->cloud, &lives, &e) != 0)
        tm_log(TM_LOG_WARN, "how long the instances lived could not be stored: %s", e.text);
    if (tm_run_lives__keep_waits(launch->env, launch->cloud, provider->name, &e) != 0)
        tm_log(TM_LOG_WARN, "how long instances were waited for could not be stored: %s", e.text);
}

int tm_launch_close(struct tm_launch *launch, int rc, struct tm_error *e)
{
    struct tm_error ending;
    if (launch == NULL) return rc;
    int closed = launch->supervisor != NULL ? tm_supervisor_close(launch->supervisor, &ending) : 0;
    tm_supervisor_destroy(launch->supervisor);
    launch->supervisor = NULL;
    if (launch->cloud != NULL) {
        keep_lives(launch);
        struct tm_error left = {.text = ""};
        int destroyed = launch->cloud->destroy(launch->cloud, &left);
        if (destroyed != 0) (void)snprintf(launch->left, sizeof launch->left, "%s", left.text);
        if (destroyed != 0 && closed == 0) ending = left;
        if (closed == 0) closed = destroyed;
    }
    launch->cloud = NULL;
    tm_office_destroy(launch->office);
    launch->office = NULL;
    if (rc != 0 || closed == 0) return rc;
    if (e != NULL) *e = ending;
    return closed;
}

/* ---- what is left ---- */

int tm_launch_status(struct tm_launch *launch, struct tm_run_status *out, struct tm_error *e)
{
    return tm_run_record_status(launch->request.dir, out, e);
}

/* Of a job that was stopped there is a result if its last step is in files: not where it was cut short, or before its
 * first copy set. */
static bool has_result(const struct tm_launch *launch, const struct tm_run_status *status)
{
    const struct tm_job_engine *engine = tm_job_engine_of(&launch->request.settings->job);
    if (engine->result == NULL || status->state == TM_JOB_FINISHED) return engine->result != NULL;
    if (status->durable == 0) return false;
    bool whole = status->committed > 0 && status->durable == status->committed;
    return status->state == TM_JOB_STOPPED && (engine->proves_steps || whole);
}

static int keep_result(struct tm_launch *launch, struct tm_run_status *status, struct tm_error *e)
{
    const struct tm_launch_request *request = &launch->request;
    const struct tm_job *job = &request->settings->job;
    int rc = tm_job_engine_of(job)->result(launch->env, job, request->dir, status->committed, request->arena,
                                           status->weights_hash, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the weights of the last step");
}

/* For the next plan, and for simulations. A run in which nothing happened has nothing to tell. */
static void keep_costs(struct tm_launch *launch)
{
    const struct tm_launch_request *request = &launch->request;
    struct tm_error e;
    int rc = tm_run_costs__save(launch->env, request->dir, request->settings, &request->plan->work, &e);
    if (rc != 0 && rc != -(int)TM_ENONE)
        tm_log(TM_LOG_WARN, "the measured migration costs could not be stored: %s", e.text);
}

static int keep_summary(struct tm_launch *launch, const struct tm_run_status *status, struct tm_error *e)
{
    struct tm_text text;
    struct tm_jsonout json;
    if (status->state != TM_JOB_FINISHED && status->state != TM_JOB_FAILED) return 0;
    tm_text_init(&text, 1 << 20);
    tm_jsonout_init(&json, &text);
    tm_run_summary_write(status, &json);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(launch->env, launch->request.dir, TM_STATE_SUMMARY, tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

static void tell_no_weights(const struct tm_launch *launch, const struct tm_run_status *status)
{
    if (status->state != TM_JOB_STOPPED || tm_job_engine_of(&launch->request.settings->job)->result == NULL) return;
    if (status->durable == 0)
        tm_log(TM_LOG_WARN, "there are no weights yet: the job was stopped before its first copy set was complete");
}

static int keep_once(struct tm_launch *launch, struct tm_run_status *status, struct tm_error *e)
{
    char place[TM_COPY_PLACE_MAX];
    int rc = has_result(launch, status) ? keep_result(launch, status, e) : 0;
    tell_no_weights(launch, status);
    if (rc == 0) rc = keep_summary(launch, status, e);
    if (rc == 0) rc = tm_run_report_write(launch->env, launch->request.dir, NULL, e); /* the summary has the hash */
    if (rc == 0 && tm_bucket_result__place(launch->env, launch->request.dir, place))
        rc = tm_bucket_result__bring(launch->env, launch->request.dir, place, e);
    return rc;
}

/* A VM of its own goes with the run, and with it what is not in the bucket by then. The bucket, or the service that has
 * the VM's credentials, may be away for a moment: they are asked again. */
static int keep(struct tm_launch *launch, struct tm_run_status *status, struct tm_error *e)
{
    struct tm_env *env = launch->env;
    struct tm_error own = {.text = ""};
    bool goes = own_number(env, TM_OWN_SINCE) > 0;
    int64_t end_ns = env->monotonic_ns(env) + KEEP_LIMIT_MS * 1000000LL;
    int rc = keep_once(launch, status, &own);
    while (goes && rc != 0 && env->monotonic_ns(env) < end_ns) {
        tm_log(TM_LOG_WARN, "the result is not kept yet: %s; once more", own.text);
        env->sleep_ms(env, KEEP_AGAIN_MS);
        rc = keep_once(launch, status, &own);
    }
    if (rc != 0 && e != NULL) *e = own;
    return rc;
}

int tm_launch_keep(struct tm_launch *launch, struct tm_run_status *status, struct tm_error *e)
{
    keep_costs(launch);
    int rc = keep(launch, status, e);
    int closed = tm_run_home_close(launch->home, rc == 0 ? e : NULL); /* last: whoever waits for its end finds all */
    launch->home = NULL;
    return rc == 0 ? closed : rc;
}

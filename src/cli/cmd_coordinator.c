/* The coordinator of a run, as `tidemill run` starts it and starts it again. A command of the program's own, in no
 * list. */
#include "api/api_server.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/run_fingerprint.h"
#include "cli/run_shapes.h"
#include "run/decide_policy.h"
#include "run/serve.h"
#include "run/state_folder.h"
#include "store/copy_file.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const struct tm_option tm_coordinator_command_options[] = {
    {.name = "state", .value = "DIR", .help = "the job's state folder"},
    {.name = NULL},
};

enum { INTERVAL_S = 60 };

static volatile int stopping;

static void on_term(int number)
{
    (void)number;
    stopping++;
}

/* Paths and texts that the service borrows. */
struct place {
    const char *dir;
    char record[TM_STATE_PATH_MAX];
    char copies[TM_STATE_PATH_MAX];
    char tls[TM_STATE_PATH_MAX];
    char address[TM_STATE_PATH_MAX];
    char job[TM_STATE_PATH_MAX];
    char token[TM_STATE_TOKEN_MAX];
    char listen[TM_ADDRESS_MAX];
    struct tm_text fingerprint;
};

/* Where the last one listened, so that everybody finds the next; where there was none, where `run` says. */
static void find_listen(struct tm_cli *cli, struct place *place)
{
    const char *host = cli->env->variable(cli->env, "TIDEMILL_COORDINATOR_HOST");
    if (tm_state_read(cli->env, place->dir, TM_STATE_ADDRESS, place->listen, sizeof place->listen, NULL) == 0) return;
    (void)snprintf(place->listen, sizeof place->listen, "%s:0", host != NULL ? host : "127.0.0.1");
}

/* No coordinator was here before: there is no record, nobody has been told an address, and there are no copies. Where
 * only the record is gone, the job goes on from what the others have. */
static bool is_fresh(struct tm_cli *cli, const struct place *place)
{
    uint64_t set = 0;
    struct tm_env *env = cli->env;
    if (env->file_exists(env, place->record) || env->file_exists(env, place->address)) return false;
    return tm_copy_newest_set(env, place->copies, &set, NULL) == -(int)TM_ENOTFOUND;
}

static void fill_service(struct tm_cli *cli, struct place *place, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_coordinator_service *out)
{
    *out = (struct tm_coordinator_service){
        .coordinator = {.job = settings->job,
                        .token = place->token,
                        .fingerprint = tm_text_string(&place->fingerprint),
                        .layers = work->layers,
                        .steps = work->steps,
                        .micro_batches = work->micro_batches,
                        .heartbeat_ms = 250,
                        .lease_ms = 2500,
                        .orphan_ms = 20000,
                        .resend_ms = 500,
                        .settle_ms = 200,
                        .follow_limit_ms = 20000,
                        .drain_limit_ms = 10000,
                        .fetch_limit_ms = 15000,
                        .stall_ms = 15000,
                        .quarantine_ms = 5000,
                        .copy_limit_ms = 10000,
                        .false_alarm_ms = 30000,
                        .durable_wait_ms = 600000,
                        .copies = settings->checkpoint_restart ? 0 : 1,
                        .remotes = settings->fleet.on_demand_trains != 0 ? 0 : (uint32_t)settings->fleet.on_demand,
                        .copies_to_files = true,
                        .sets_kept = 2,
                        .failures_max = (uint32_t)settings->failures_max,
                        .resume = true,
                        .fresh = is_fresh(cli, place)},
        .listen = place->listen,
        .record = place->record,
        .copy_folder = place->copies,
        .tls_folder = settings->netns ? place->tls : NULL,
        .address_file = place->address,
        .owner_dir = place->dir,
        .stop = &stopping};
    if (cli->env->variable(cli->env, "TIDEMILL_RUN_MARK") == NULL) out->owner_dir = NULL;
}

/* What views say of the job. */
static void tell_job(struct tm_cli *cli, const struct tm_run_settings *settings, const struct tm_run_work *work,
                     struct tm_run_job *out)
{
    const char *command = cli->env->variable(cli->env, "TIDEMILL_RUN_COMMAND");
    *out = (struct tm_run_job){.steps = work->steps,
                               .samples_per_step = (uint64_t)work->batch,
                               .tokens_per_step = (uint64_t)(work->batch * work->sample_tokens),
                               .layers = work->layers,
                               .micro_batches = work->micro_batches,
                               .speed = settings->fleet.speed};
    (void)snprintf(out->name, sizeof out->name, "%s", settings->name);
    if (command != NULL && strlen(command) < sizeof out->command)
        (void)snprintf(out->command, sizeof out->command, "%s", command);
}

static int serve(struct tm_cli *cli, struct place *place, const struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_run_work work;
    struct tm_run_shapes shapes;
    struct tm_coordinator_service service;
    struct tm_policy_decider *decider = NULL;
    int rc = tm_run_work_load(cli->env, place->job, settings, &cli->arena, &work, e);
    if (rc == 0) rc = tm_run_fingerprint(cli->env, place->job, settings, &cli->arena, &place->fingerprint, e);
    if (rc == 0) rc = tm_state_token(cli->env, place->dir, place->token, e);
    if (rc == 0) rc = tm_run_shapes_init(cli, place->dir, settings, &work, &shapes, e);
    if (rc != 0) return rc;
    const struct tm_job_fleet *fleet = &settings->fleet;
    bool trains = fleet->on_demand_trains != 0;
    struct tm_policy_rule rule = {.info = tm_policy_find(settings->policy),
                                  .shapes = &shapes.job.shapes,
                                  .migrations = shapes.migrations,
                                  .cost = &shapes.job.cost,
                                  .steps_unknown = shapes.speed_unknown,
                                  .interval_s = INTERVAL_S,
                                  .workers_min = (int)fleet->workers_min,
                                  .workers_max = (int)(trains ? fleet->limit : fleet->limit - fleet->on_demand),
                                  .anchors = (int)fleet->on_demand,
                                  .anchors_train = trains,
                                  .deadline_s = (double)settings->deadline_ms / 1000 / fleet->speed,
                                  .budget_usd = (double)settings->budget_usd_millionths / 1e6,
                                  .samples_per_step = (double)work.batch,
                                  .copy_every_ms = settings->copy_every_ms, /* 0: the policy says when */
                                  .copy_every_alone_ms = settings->copy_every_ms};
    struct tm_run_job told;
    struct tm_api_server *api = NULL;
    rc = tm_policy_decider_create(&rule, &decider, e);
    if (rc == 0) rc = tm_api_server_create(cli->env, place->dir, &api, e);
    if (rc == 0) {
        fill_service(cli, place, settings, &work, &service);
        tell_job(cli, settings, &work, &told);
        service.decider = tm_policy_decider_get(decider);
        service.job = &told;
        service.hook = tm_api_server_hook(api);
        rc = tm_coordinator_serve(cli->env, &service, e);
    }
    tm_api_server_destroy(api);
    tm_policy_decider_destroy(decider);
    tm_run_shapes_deinit(&shapes);
    return rc;
}

int tm_cmd_coordinator(struct tm_cli *cli, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_term};
    struct place place = {.dir = tm_given_text(cli, "state")};
    struct tm_run_settings settings;
    (void)sigaction(SIGTERM, &action, NULL);
    if (place.dir == NULL) return tm_error_set(e, TM_EUSAGE, "a coordinator is started by tidemill run");
    if (cli->env->variable(cli->env, "TIDEMILL_RUN_MARK") != NULL) (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int rc = tm_state_check(place.dir, e);
    if (rc != 0) return rc;
    tm_state_path(place.dir, TM_STATE_RECORD, place.record);
    tm_state_path(place.dir, TM_STATE_COPIES, place.copies);
    tm_state_path(place.dir, TM_STATE_TLS, place.tls);
    tm_state_path(place.dir, TM_STATE_ADDRESS, place.address);
    tm_state_path(place.dir, TM_STATE_JOB, place.job);
    tm_text_init(&place.fingerprint, TM_RUN_FINGERPRINT_MAX);
    tm_run_settings_init(&settings);
    rc = tm_run_settings_load(cli->env, place.dir, &settings, e);
    find_listen(cli, &place);
    if (rc == 0) rc = serve(cli, &place, &settings, e);
    tm_run_settings_deinit(&settings);
    tm_text_deinit(&place.fingerprint);
    return rc;
}

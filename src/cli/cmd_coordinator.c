/* The coordinator of a job: as `tidemill run` starts it and starts it again, in a folder that is there; and as a person
 * does, for machines of one's own. */
#include "api/api_server.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "job/coordinator_folder.h"
#include "job/job_engine.h"
#include "job/run_fingerprint.h"
#include "job/run_layouts.h"
#include "run/decide_policy.h"
#include "run/serve.h"
#include "run/state_folder.h"
#include "run/supervisor.h"
#include "store/copy_file.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

const struct tm_option tm_coordinator_command_options[] = {
    {.name = "listen",
     .value = "HOST:PORT",
     .help = "where agents and workers reach it (127.0.0.1, any port); beyond loopback with certificates"},
    {.name = "copies",
     .value = "DIR",
     .help = "a folder that all machines share, for copy sets in files (on one machine: copies in the state folder)"},
    {.name = "instances", .value = "N", .help = "make certificates for so many machines (16)"},
    {.name = "prepare", .help = "make token and certificates, and do not start: to copy them to the machines first"},
    {.name = "state", .value = "DIR", .help = "the state folder (~/.local/state/tidemill/NAME)"},
    {.name = NULL},
};

enum { INTERVAL_S = 60 };

static volatile int stopping;
static volatile int alone;

static void on_term(int number)
{
    (void)number;
    stopping++;
}

static void on_alone(int number)
{
    (void)number;
    alone = 1;
}

/* Paths and texts that the service borrows. */
struct place {
    const char *dir;
    bool by_hand;
    bool use_tls;
    char record[TM_STATE_PATH_MAX];
    char copies[TM_STATE_PATH_MAX];
    char tls[TM_STATE_PATH_MAX];
    char address[TM_STATE_PATH_MAX];
    char job[TM_STATE_PATH_MAX];
    char token_file[TM_STATE_PATH_MAX];
    char token[TM_STATE_TOKEN_MAX];
    char listen[TM_ADDRESS_MAX];
    struct tm_text fingerprint;
};

/* Where the last one listened, so that everybody finds the next; where there was none, where `run` says. */
static void find_listen(struct tm_cli *cli, struct place *place)
{
    const char *given = tm_given_text(cli, "listen");
    if (given != NULL) {
        (void)snprintf(place->listen, sizeof place->listen, "%s", given);
        return;
    }
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

/* --copies: the folder's own name for it is a link. */
static bool is_link(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 && S_ISLNK(s.st_mode);
}

/* On standard output, at once: whoever started this waits for it. */
static void say_bound(void *context, const char *address)
{
    const struct place *place = context;
    const char *colon = strrchr(address, ':');
    bool beyond = !tm_address_is_loopback(address);
    (void)printf("the coordinator is at %s; its state is in %s\n"
                 "on each machine, with a number of its own from 1:\n"
                 "  tidemill agent --coordinator %s%s --token-file %s --instance N --job JOB.yaml%s%s%s\n",
                 address, place->dir, beyond ? "HOST" : "", beyond ? colon : address,
                 beyond ? "token" : place->token_file,
                 beyond           ? " \\\n                 --tls instance-N --host ITS-ADDRESS"
                 : place->use_tls ? " --tls instance-N"
                                  : "",
                 " --copies ", beyond ? "SHARED-DIR" : place->copies);
    (void)fflush(stdout);
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
                        .retry = place->by_hand || cli->env->variable(cli->env, "TIDEMILL_RUN_RETRY") != NULL,
                        .fresh = is_fresh(cli, place)},
        .listen = place->listen,
        .record = place->record,
        .copy_folder = place->copies,
        .copies_shared = place->by_hand && is_link(place->copies),
        .tls_folder = place->use_tls ? place->tls : NULL,
        .address_file = place->address,
        .owner_dir = place->dir,
        .alone = &alone,
        .stop = &stopping,
        .bound = place->by_hand && !cli->quiet ? say_bound : NULL,
        .context = place};
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
    struct tm_run_layouts layouts;
    struct tm_coordinator_service service;
    struct tm_policy_decider *decider = NULL;
    int rc = tm_run_work_load(cli->env, place->job, settings, &cli->arena, &work, e);
    if (rc == 0) rc = tm_run_fingerprint(cli->env, place->job, settings, &cli->arena, &place->fingerprint, e);
    if (rc == 0) rc = tm_state_token(cli->env, place->dir, place->token, e);
    if (rc == 0) rc = tm_run_layouts_init(cli->env, place->dir, settings, &work, &layouts, e);
    if (rc != 0) return rc;
    const struct tm_job_fleet *fleet = &settings->fleet;
    bool trains = fleet->on_demand_trains != 0;
    struct tm_policy_rule rule = {.info = tm_policy_find(settings->policy),
                                  .layouts = &layouts.job.layouts,
                                  .migrations = layouts.migrations,
                                  .cost = &layouts.job.cost,
                                  .steps_unknown = layouts.speed_unknown,
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
        if (rc == 0 && service.unrecorded) cli->exit_status = TM_COORDINATOR_UNRECORDED;
    }
    tm_api_server_destroy(api);
    tm_policy_decider_destroy(decider);
    tm_run_layouts_deinit(&layouts);
    return rc;
}

/* ---- machines of one's own ---- */

static int tell_prepared(struct tm_cli *cli, const struct tm_coordinator_folder *folder)
{
    tm_text_printf(&cli->out, "%s is ready. To each machine N copy, and keep secret:\n  %s/token\n", folder->dir,
                   folder->dir);
    if (folder->tls) tm_text_printf(&cli->out, "  %s/tls/instance-N/ (for %d days)\n", folder->dir, TM_TLS_VALID_DAYS);
    tm_text_puts(&cli->out, "and the job file. Then start the coordinator without --prepare.\n");
    return 0;
}

/* How it ended, and the weights of the built-in engine as a checkpoint. */
static int tell_end(struct tm_cli *cli, const struct place *place, const struct tm_run_settings *settings,
                    struct tm_error *e)
{
    struct tm_run_status status;
    char hash[33];
    int rc = tm_run_status_of(cli, place->dir, &status, e);
    if (rc != 0) return rc;
    bool wrong = status.state == TM_JOB_FAILED || status.gave_up;
    tm_text_printf(&cli->out, "%s at step %" PRIu64 "%s%s\n", tm_job_state_name(status.state), status.committed,
                   wrong ? ": " : "", wrong ? status.reason : "");
    if (wrong) cli->exit_status = 1;
    if (status.state == TM_JOB_FINISHED && tm_job_engine_of(settings)->weights) {
        struct tm_run_work work;
        rc = tm_run_work_load(cli->env, place->job, settings, &cli->arena, &work, e);
        if (rc == 0)
            rc = tm_job_engine_of(settings)->result(cli->env, place->dir, settings, &work, status.committed,
                                                    &cli->arena, hash, e);
        if (rc == 0) tm_text_printf(&cli->out, "weights %s in %s/result\n", hash, place->dir);
    }
    tm_run_status_deinit(&status);
    return rc;
}

static void fill_place(struct place *place)
{
    tm_state_path(place->dir, TM_STATE_RECORD, place->record);
    tm_state_path(place->dir, TM_STATE_COPIES, place->copies);
    tm_state_path(place->dir, TM_STATE_ADDRESS, place->address);
    tm_state_path(place->dir, TM_STATE_JOB, place->job);
    tm_state_path(place->dir, TM_STATE_TOKEN, place->token_file);
    tm_state_tls_path(place->dir, TM_STATE_TLS_COORDINATOR, place->tls);
}

/* The folder is this program's while it serves: nobody else may write to the record. */
static int serve_by_hand(struct tm_cli *cli, struct place *place, const struct tm_run_settings *settings,
                         struct tm_error *e)
{
    struct tm_state_owner owner;
    int leftovers = 0;
    int rc = tm_state_own(cli->env, place->dir, &owner, &leftovers, e);
    if (rc != 0) return rc;
    rc = serve(cli, place, settings, e);
    tm_state_disown(cli->env, place->dir, &owner);
    if (rc == 0 && cli->exit_status == TM_COORDINATOR_UNRECORDED)
        return tm_error_set(
            e, TM_EFULL, "disk full: %s cannot hold how the job ended; free some room and start it again", place->dir);
    return rc == 0 ? tell_end(cli, place, settings, e) : rc;
}

int tm_cmd_coordinator(struct tm_cli *cli, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_term};
    struct sigaction orphaned = {.sa_handler = on_alone};
    struct place place = {.dir = tm_given_text(cli, "state")};
    struct tm_coordinator_folder folder = {.tls = false};
    struct tm_run_settings settings;
    bool of_run = cli->env->variable(cli->env, "TIDEMILL_RUN_MARK") != NULL;
    (void)sigaction(SIGTERM, &action, NULL);
    if (cli->argument_count > 1 || (cli->argument_count == 0 && place.dir == NULL))
        return tm_error_set(e, TM_EUSAGE, "name one job file: tidemill coordinator JOB.yaml");
    if (of_run) {
        /* Not killed with the program that runs it: how far the job was is put down first. */
        (void)sigaction(SIGHUP, &orphaned, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGHUP);
    }
    struct tm_coordinator_request request = {.path = cli->argument_count > 0 ? cli->arguments[0] : NULL,
                                             .state = place.dir,
                                             .listen = tm_given_text(cli, "listen"),
                                             .copies = tm_given_text(cli, "copies")};
    int rc = tm_given_integer(cli, "instances", 1, TM_COORDINATOR_INSTANCES_MAX, &request.instances, e);
    if (rc == 0)
        rc = of_run ? tm_state_check(place.dir, e)
                    : tm_coordinator_folder_make(cli->env, &request, &cli->arena, &folder, e);
    if (rc != 0) return rc;
    if (!of_run) {
        place.dir = folder.dir;
        place.by_hand = true;
        (void)sigaction(SIGINT, &action, NULL);
        if (tm_given(cli, "prepare")) return tell_prepared(cli, &folder);
    }
    fill_place(&place);
    tm_text_init(&place.fingerprint, TM_RUN_FINGERPRINT_MAX);
    tm_run_settings_init(&settings);
    rc = tm_run_settings_load(cli->env, place.dir, &settings, e);
    place.use_tls = folder.tls || settings.netns;
    find_listen(cli, &place);
    if (rc == 0) rc = of_run ? serve(cli, &place, &settings, e) : serve_by_hand(cli, &place, &settings, e);
    tm_run_settings_deinit(&settings);
    tm_text_deinit(&place.fingerprint);
    return rc;
}

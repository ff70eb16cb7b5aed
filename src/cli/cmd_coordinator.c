/* The coordinator of a job: as `tidemill run` starts it and starts it again, in a folder that is there; and as a person
 * does, for machines of one's own. */
#include "api/api_client.h"
#include "api/api_server.h"
#include "cli/commands.h"
#include "job/coordinator_folder.h"
#include "job/job_coordinator.h"
#include "job/job_engine.h"
#include "run/state_folder.h"
#include "run/step_log.h"
#include "run/supervisor.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

const struct tm_option tm_coordinator_command_options[] = {
    {.name = "listen",
     .value = "HOST[:PORT]",
     .help = "address for agents and workers (127.0.0.1, any port); beyond loopback it uses certificates"},
    {.name = "advertise",
     .value = "HOST[:PORT]",
     .help = "where agents are told it is, if that is not where it listens (0.0.0.0, a name)"},
    {.name = "copies",
     .value = "DIR",
     .help = "for copy sets: a folder shared by all machines, s3://BUCKET/PREFIX or az://CONTAINER/PREFIX (on one "
             "machine: copies in the "
             "state folder)"},
    {.name = "instances", .value = "N", .help = "make certificates for this many machines (16)"},
    {.name = "prepare", .help = "make token and certificates and exit, so that they can be copied to the machines"},
    {.name = "state", .value = "DIR", .help = "the state folder (~/.local/state/tidemill/NAME)"},
    {.name = NULL},
};

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

/* What is said once it listens. */
struct place {
    const char *dir;
    bool tls;
};

/* On standard output, at once: whoever started this waits for it. */
static void say_bound(void *context, const char *address)
{
    const struct place *place = context;
    char host[TM_ADDRESS_MAX] = "";
    char port[TM_PORT_MAX] = "";
    bool beyond = !tm_address_is_loopback(address);
    bool any = tm_address_split(address, host, port, NULL) == 0 && tm_host_is_any(host);
    char token_file[TM_STATE_PATH_MAX];
    char copies[TM_STATE_PATH_MAX];
    tm_state_path(place->dir, TM_STATE_TOKEN, token_file);
    tm_state_path(place->dir, TM_STATE_COPIES, copies);
    (void)printf("the coordinator is at %s; its state is in %s\n"
                 "on each machine, with a unique number from 1:\n"
                 "  tidemill agent --coordinator %s%s --token-file %s --instance N --job JOB.yaml%s%s%s\n",
                 address, place->dir, any ? "HOST:" : "", any ? port : address, beyond ? "token" : token_file,
                 beyond       ? " \\\n                 --tls instance-N --host ITS-ADDRESS"
                 : place->tls ? " --tls instance-N"
                              : "",
                 " --copies ", beyond ? "SHARED-DIR" : copies);
    (void)fflush(stdout);
}

/* Who watches from within the coordinator's process. */
struct watchers {
    struct tm_run_hook api;
    struct tm_step_log *log; /* NULL: the job has no loggers */
};

static void serve_watchers(void *context, struct tm_run_tap *tap)
{
    const struct watchers *watchers = context;
    watchers->api.serve(watchers->api.context, tap);
    if (watchers->log != NULL) tm_step_log_serve(watchers->log, tap);
}

static size_t watch_watchers(void *context, int *handles, size_t max, int64_t *out_wait_ms)
{
    const struct watchers *watchers = context;
    return watchers->api.watch(watchers->api.context, handles, max, out_wait_ms);
}

static int serve(struct tm_cli *cli, struct tm_job_coordinator *job, const struct tm_run_settings *settings,
                 struct tm_error *e)
{
    struct tm_api_server *api = NULL;
    struct watchers watchers = {.log = NULL};
    int rc = tm_api_server_create(cli->env, job->dir, &api, e);
    if (rc == 0 && settings->job.log.count > 0) {
        watchers.log =
            tm_step_log_create(cli->env, job->dir, &settings->job.log, settings->job.folder, settings->number);
        if (watchers.log == NULL) rc = tm_error_nomem(e);
    }
    if (rc == 0) {
        watchers.api = tm_api_server_hook(api);
        job->hook = (struct tm_run_hook){.context = &watchers, .serve = serve_watchers, .watch = watch_watchers};
        rc = tm_job_coordinate(cli->env, job, settings, &cli->arena, e);
    }
    if (rc == 0 && job->by_hand && watchers.log != NULL) rc = tm_step_log_complete(watchers.log, e);
    if (rc == 0 && job->unrecorded) cli->exit_status = TM_COORDINATOR_UNRECORDED;
    tm_step_log_destroy(watchers.log);
    tm_api_server_destroy(api);
    return rc;
}

/* ---- machines of one's own ---- */

static int tell_prepared(struct tm_cli *cli, const struct tm_coordinator_folder *folder)
{
    tm_text_printf(&cli->out, "%s is ready. Copy to each machine N, and keep secret:\n  %s/token\n", folder->dir,
                   folder->dir);
    if (folder->tls) tm_text_printf(&cli->out, "  %s/tls/instance-N/ (for %d days)\n", folder->dir, TM_TLS_VALID_DAYS);
    tm_text_puts(&cli->out, "and the job file. Then start the coordinator without --prepare.\n");
    return 0;
}

/* How it ended, and the weights of the built-in engine as a checkpoint. */
static int tell_end(struct tm_cli *cli, const char *dir, const struct tm_run_settings *settings, struct tm_error *e)
{
    const struct tm_job_engine *engine = tm_job_engine_of(&settings->job);
    struct tm_run_status status;
    char hash[33];
    int rc = tm_api_run_status(cli->env, dir, &status, e);
    if (rc != 0) return rc;
    bool wrong = status.state == TM_JOB_FAILED || status.gave_up;
    tm_text_printf(&cli->out, "%s at step %" PRIu64 "%s%s\n", tm_job_state_name(status.state), status.committed,
                   wrong ? ": " : "", wrong ? status.reason : "");
    if (wrong) cli->exit_status = 1;
    if (status.state == TM_JOB_FINISHED && engine->weights) {
        rc = engine->result(cli->env, &settings->job, dir, status.committed, &cli->arena, hash, e);
        if (rc == 0) tm_text_printf(&cli->out, "weights %s in %s/result\n", hash, dir);
    }
    tm_run_status_deinit(&status);
    return rc;
}

/* The folder is this program's while it serves: nobody else may write to the record. */
static int serve_by_hand(struct tm_cli *cli, struct tm_job_coordinator *job, const struct tm_run_settings *settings,
                         struct tm_error *e)
{
    struct tm_state_owner owner;
    int leftovers = 0;
    int rc = tm_state_own(cli->env, job->dir, &owner, &leftovers, e);
    if (rc != 0) return rc;
    rc = serve(cli, job, settings, e);
    tm_state_disown(cli->env, job->dir, &owner);
    if (rc == 0 && job->unrecorded)
        return tm_error_set(e, TM_EFULL,
                            "disk full: %s cannot hold how the job ended; free some disk space and start it again",
                            job->dir);
    return rc == 0 ? tell_end(cli, job->dir, settings, e) : rc;
}

int tm_cmd_coordinator(struct tm_cli *cli, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_term};
    struct sigaction orphaned = {.sa_handler = on_alone};
    struct tm_coordinator_folder folder = {.tls = false};
    struct tm_run_settings settings;
    struct place place;
    bool of_run = cli->env->variable(cli->env, "TIDEMILL_RUN_MARK") != NULL;
    struct tm_coordinator_request request = {.path = cli->argument_count > 0 ? cli->arguments[0] : NULL,
                                             .state = tm_given_text(cli, "state"),
                                             .listen = tm_given_text(cli, "listen"),
                                             .advertise = tm_given_text(cli, "advertise"),
                                             .copies = tm_given_text(cli, "copies")};
    struct tm_job_coordinator job = {.dir = request.state,
                                     .listen = request.listen,
                                     .advertise = request.advertise,
                                     .stop = &stopping,
                                     .alone = &alone,
                                     .context = &place};
    (void)sigaction(SIGTERM, &action, NULL);
    if (cli->argument_count > 1 || (request.path == NULL && request.state == NULL))
        return tm_error_set(e, TM_EUSAGE, "give one job file: tidemill coordinator JOB.yaml");
    int rc = tm_given_integer(cli, "instances", 1, TM_COORDINATOR_INSTANCES_MAX, &request.instances, e);
    if (rc != 0) return rc;
    if (of_run) {
        /* Not killed with the program that runs it: how far the job was is put down first. */
        (void)sigaction(SIGHUP, &orphaned, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGHUP);
        rc = tm_state_check(job.dir, e);
    } else {
        (void)sigaction(SIGINT, &action, NULL);
        rc = tm_coordinator_folder_make(cli->env, &request, &cli->arena, &folder, e);
        if (rc == 0 && tm_given(cli, "prepare")) return tell_prepared(cli, &folder);
        job.dir = folder.dir;
        job.by_hand = true;
        if (!cli->quiet) job.bound = say_bound;
    }
    if (rc != 0) return rc;
    tm_run_settings_init(&settings);
    rc = tm_run_settings_load(cli->env, job.dir, &settings, e);
    job.tls = folder.tls || tm_run_settings_tls(&settings);
    place = (struct place){job.dir, job.tls};
    if (rc == 0) rc = of_run ? serve(cli, &job, &settings, e) : serve_by_hand(cli, &job, &settings, e);
    tm_run_settings_deinit(&settings);
    return rc;
}

#include "base/number.h"
#include "cli/commands.h"
#include "job/run_fingerprint.h"
#include "run/run_settings.h"
#include "run/serve.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { ADDRESS_WAIT_MS = 60000, LOOK_MS = 20, WORDS_MAX = 48, VARIABLES_MAX = 20, LOCAL_POLL_MS = 100 };

static const char *const notice_names[] = {"aws", "gcp", "azure", "local", "none", NULL};
enum { NOTICE_LOCAL = TM_NOTICE_CLOUDS, NOTICE_NONE };

const struct tm_option tm_agent_command_options[] = {
    {.name = "coordinator", .value = "HOST:PORT", .help = "where the job's coordinator is"},
    {.name = "token-file", .value = "FILE", .help = "the job's join token; the file token of its state folder"},
    {.name = "job", .value = "JOB.yaml", .help = "what the built-in worker trains; else name a command behind --"},
    {.name = "instance", .value = "N", .help = "this machine's number within the job, from 1; each its own"},
    {.name = "host", .value = "ADDRESS", .help = "where other workers reach this machine (127.0.0.1)"},
    {.name = "anchor", .help = "this machine is not taken back: it holds copies for the others"},
    {.name = "notice",
     .value = "CLOUD",
     .help = "whose notices are read: aws, gcp, azure, the local cloud's, or none (the default); SIGTERM is always one",
     .choices = notice_names},
    {.name = "notice-left", .value = "DURATION", .help = "time left after SIGTERM (30s)"},
    {.name = "tls",
     .value = "DIR",
     .help =
         "this machine's certificate: ca.pem, node.pem, node.key; tls/instance-N of the coordinator's state folder"},
    {.name = "copies", .value = "DIR", .help = "a folder that all instances share, for copy sets in files"},
    {.name = "give-up", .value = "DURATION", .help = "end, with status 1, after so long without a coordinator (5m)"},
    {.name = "state", .value = "DIR", .help = "all of this from a job's state folder on the same machine"},
    {.name = NULL},
};

static volatile int terminating;

static void on_term(int number)
{
    (void)number;
    terminating++;
}

/* What the agent goes by, wherever it comes from. */
struct request {
    const char *state; /* NULL: none */
    const char *job;   /* file; NULL: none */
    char coordinator[TM_ADDRESS_MAX];
    const char *token_file;
    char token[TM_STATE_TOKEN_MAX];
    uint64_t number; /* of the job */
    int64_t instance;
    const char *host;
    const char *tls;
    const char *copies;
    bool anchor;
    int notice;
    bool restarts_all; /* checkpoint-restart: workers are ended all the time */
    bool chaos;        /* and some by its schedule */
    char worker_file[TM_STATE_PATH_MAX];
    char output[TM_STATE_PATH_MAX];
};

static const char *state_path(struct tm_cli *cli, const char *dir, enum tm_state_file file)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, file, path);
    return tm_arena_strdup(&cli->arena, path);
}

/* The coordinator may not listen yet. */
static int await_address(struct tm_cli *cli, const char *dir, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    int rc = -1;
    for (int64_t waited_ms = 0; rc != 0 && waited_ms < ADDRESS_WAIT_MS && terminating == 0; waited_ms += LOOK_MS) {
        rc = tm_state_read(cli->env, dir, TM_STATE_ADDRESS, out, TM_ADDRESS_MAX, e);
        if (rc != 0) cli->env->sleep_ms(cli->env, LOOK_MS);
    }
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the coordinator does not say where it is");
}

static int from_state(struct tm_cli *cli, struct request *r, struct tm_error *e)
{
    struct tm_run_settings settings;
    tm_run_settings_init(&settings);
    int rc = tm_state_check(r->state, e);
    if (rc == 0) rc = tm_run_settings_load(cli->env, r->state, &settings, e);
    if (rc == 0) rc = await_address(cli, r->state, r->coordinator, e);
    if (rc == 0) {
        r->token_file = state_path(cli, r->state, TM_STATE_TOKEN);
        r->copies = state_path(cli, r->state, TM_STATE_COPIES);
        if (settings.netns) {
            char member[64];
            char path[TM_STATE_PATH_MAX];
            (void)snprintf(member, sizeof member, TM_STATE_TLS_INSTANCE, (uint64_t)r->instance);
            tm_state_tls_path(r->state, member, path);
            r->tls = tm_arena_strdup(&cli->arena, path);
        }
        r->restarts_all = settings.checkpoint_restart;
        r->chaos = settings.chaos >= 0;
        r->notice = NOTICE_LOCAL;
        if (r->token_file == NULL || r->copies == NULL || (settings.netns && r->tls == NULL)) rc = tm_error_nomem(e);
    }
    tm_run_settings_deinit(&settings);
    return rc;
}

/* What a cloud says by variables counts less than options. */
static int read_variables(struct tm_cli *cli, struct request *r, struct tm_error *e)
{
    struct tm_env *env = cli->env;
    const char *id = env->variable(env, "TIDEMILL_INSTANCE_ID");
    const char *host = env->variable(env, "TIDEMILL_INSTANCE_HOST");
    const char *kind = env->variable(env, "TIDEMILL_INSTANCE_KIND");
    if (id != NULL && (!tm_number_i64(id, strlen(id), &r->instance) || r->instance < 1))
        return tm_error_set(e, TM_EUSAGE, "TIDEMILL_INSTANCE_ID: expected a number from 1, got \"%.40s\"", id);
    if (host != NULL) r->host = host;
    r->anchor = kind != NULL && strcmp(kind, "on-demand") == 0;
    return 0;
}

/* The worker may be called in another folder. What is not there stays as it was given: whoever needs it says so. */
static int make_absolute(struct tm_cli *cli, const char **path, struct tm_error *e)
{
    char real[PATH_MAX];
    if (*path == NULL || realpath(*path, real) == NULL) return 0;
    *path = tm_arena_strdup(&cli->arena, real);
    return *path == NULL ? tm_error_nomem(e) : 0;
}

static int make_paths_absolute(struct tm_cli *cli, struct request *r, struct tm_error *e)
{
    const char **paths[] = {&r->token_file, &r->tls, &r->copies, &r->job};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof *paths; i++)
        rc = make_absolute(cli, paths[i], e);
    return rc;
}

static int read_request(struct tm_cli *cli, struct request *r, struct tm_error *e)
{
    *r = (struct request){.state = tm_given_text(cli, "state"), .host = "127.0.0.1", .notice = NOTICE_NONE};
    int rc = read_variables(cli, r, e);
    if (rc == 0 && r->state != NULL) rc = from_state(cli, r, e);
    if (rc == 0) rc = tm_given_choice(cli, "notice", &r->notice, e);
    if (rc == 0) rc = tm_given_integer(cli, "instance", 1, INT64_MAX, &r->instance, e);
    if (rc != 0) return rc;
    const char *coordinator = tm_given_text(cli, "coordinator");
    if (coordinator != NULL) (void)snprintf(r->coordinator, sizeof r->coordinator, "%s", coordinator);
    if (tm_given(cli, "token-file")) r->token_file = tm_given_text(cli, "token-file");
    if (tm_given(cli, "host")) r->host = tm_given_text(cli, "host");
    if (tm_given(cli, "tls")) r->tls = tm_given_text(cli, "tls");
    if (tm_given(cli, "copies")) r->copies = tm_given_text(cli, "copies");
    if (tm_given(cli, "anchor")) r->anchor = true;
    r->job = tm_given_text(cli, "job");
    if (r->coordinator[0] == '\0' || r->token_file == NULL)
        return tm_error_set(e, TM_EUSAGE, "which job? give --coordinator HOST:PORT and --token-file FILE");
    if (strchr(r->coordinator, ':') == NULL)
        return tm_error_set(e, TM_EUSAGE, "--coordinator: expected HOST:PORT, got \"%.100s\"", r->coordinator);
    if (r->instance < 1)
        return tm_error_set(e, TM_EUSAGE, "which instance of the job is this? give --instance N, each its own number");
    if (r->state == NULL && r->job == NULL && cli->argument_count == 0)
        return tm_error_set(e, TM_EUSAGE, "what is trained? give --job JOB.yaml, or a command behind --");
    rc = tm_token_read(cli->env, r->token_file, r->token, e);
    if (rc == 0 && r->state == NULL) rc = make_paths_absolute(cli, r, e);
    return rc == 0 ? tm_token_job(r->token, &r->number, e) : rc;
}

/* ---- the worker ---- */

static int program_path(struct tm_cli *cli, const char **out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return tm_error_set(e, TM_EIO, "/proc/self/exe: cannot be read");
    path[length] = '\0';
    *out = tm_arena_strdup(&cli->arena, path);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

static int make_words(struct tm_cli *cli, const struct request *r, const char *words[WORDS_MAX + 1], struct tm_error *e)
{
    size_t count = 0;
    if (cli->argument_count > WORDS_MAX)
        return tm_error_set(e, TM_ELIMIT, "the worker's command has more than %d words", WORDS_MAX);
    for (; count < cli->argument_count; count++)
        words[count] = cli->arguments[count];
    words[count] = NULL;
    if (count > 0) return 0;
    int rc = program_path(cli, &words[0], e);
    words[1] = "worker";
    words[2] = r->state != NULL ? "--state" : "--job";
    words[3] = r->state != NULL ? r->state : r->job;
    words[4] = NULL;
    return rc;
}

static int make_variables(struct tm_cli *cli, const struct request *r, const char *fingerprint,
                          const char *out[VARIABLES_MAX + 1], struct tm_error *e)
{
    struct tm_arena *arena = &cli->arena;
    size_t count = 0;
    out[count++] = tm_arena_printf(arena, "TIDEMILL_COORDINATOR=%s", r->coordinator);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_TOKEN_FILE=%s", r->token_file);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_JOB=%" PRIu64, r->number);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_INSTANCE_ID=%" PRId64, r->instance);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_HOST=%s", r->host);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_COPIES=%s", r->copies != NULL ? r->copies : "");
    out[count++] = tm_arena_printf(arena, "TIDEMILL_TLS=%s", r->tls != NULL ? r->tls : "");
    out[count++] = tm_arena_printf(arena, "TIDEMILL_STATE=%s", r->state != NULL ? r->state : "");
    out[count++] = r->anchor ? "TIDEMILL_ANCHOR=1" : "TIDEMILL_ANCHOR=0";
    out[count++] = "PYTHONUNBUFFERED=1"; /* what a script prints is shown while it runs */
    out[count++] = "LOCAL_RANK=0";       /* what torchrun's scripts look for; rank and world change with generations */
    out[count++] = "LOCAL_WORLD_SIZE=1";
    out[count++] = tm_arena_printf(arena, "TORCHELASTIC_RUN_ID=%016" PRIx64, r->number);
    if (cli->argument_count > 0 && fingerprint != NULL)
        out[count++] = tm_arena_printf(arena, "TIDEMILL_FINGERPRINT=%s", fingerprint);
    out[count] = NULL;
    for (size_t i = 0; i < count; i++)
        if (out[i] == NULL) return tm_error_nomem(e);
    return 0;
}

static void fill_service(struct tm_cli *cli, struct request *r, const struct tm_notice_options *notice,
                         struct tm_agent_service *out)
{
    *out = (struct tm_agent_service){.agent = {.job = r->number,
                                               .id = (uint64_t)r->instance,
                                               .token = r->token,
                                               .heartbeat_ms = 500,
                                               .backoff_ms = 100,
                                               .restarts_max = 12,
                                               .restart_window_ms = 600000},
                                     .coordinator = r->coordinator,
                                     .tls_folder = r->tls,
                                     .notice = r->notice == NOTICE_NONE ? NULL : notice,
                                     .notice_ms = 30000,
                                     .give_up_ms = 300000,
                                     .terminating = &terminating};
    out->agent.kills_expected = r->restarts_all || r->chaos;
    if (r->restarts_all) {
        out->agent.backoff_ms = 1;
        out->agent.restarts_max = 1U << 30;
    }
    if (r->state == NULL) return;
    tm_state_worker_path(r->state, (uint64_t)r->instance, r->worker_file);
    out->worker_file = r->worker_file;
    tm_state_output_path(r->state, (uint64_t)r->instance, r->output);
    out->output = r->output;
    out->output_name = r->output + strlen(r->state) + 1;
    (void)cli;
}

/* What its worker would train: another job file, or another script, is refused before a worker is started. */
static int tell_fingerprint(struct tm_cli *cli, const struct request *r, struct tm_agent_options *out,
                            struct tm_error *e)
{
    struct tm_run_settings settings;
    struct tm_job job;
    struct tm_text text;
    int rc = 0;
    if (r->state != NULL) return 0; /* the same folder as the coordinator's */
    tm_text_init(&text, TM_RUN_FINGERPRINT_MAX);
    tm_run_settings_init(&settings);
    tm_job_init(&job);
    if (r->job != NULL) {
        const char *slash = strrchr(r->job, '/');
        const char *folder = slash != NULL ? tm_arena_strndup(&cli->arena, r->job, (size_t)(slash - r->job)) : "";
        rc = folder == NULL ? tm_error_nomem(e) : tm_job_load(cli->env, r->job, &job, e);
        if (rc == 0) rc = tm_run_settings_of_job(&job, r->job, folder, &settings, e);
        if (rc == 0) rc = tm_run_fingerprint(cli->env, r->job, &settings, &cli->arena, &text, e);
    }
    for (size_t i = 0; i < cli->argument_count; i++)
        tm_run_fingerprint_word(cli->env, "", cli->arguments[i], &text);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) out->fingerprint = tm_arena_strdup(&cli->arena, tm_text_string(&text));
    if (rc == 0 && out->fingerprint == NULL) rc = tm_error_nomem(e);
    tm_job_deinit(&job);
    tm_run_settings_deinit(&settings);
    tm_text_deinit(&text);
    return rc;
}

int tm_cmd_agent(struct tm_cli *cli, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_term};
    struct request r;
    struct tm_agent_service service;
    const char *words[WORDS_MAX + 1];
    const char *variables[VARIABLES_MAX + 1];
    (void)sigaction(SIGTERM, &action, NULL);
    /* An instance of the local cloud goes with the program that runs it. */
    if (cli->env->variable(cli->env, "TIDEMILL_CLOUD_MARK") != NULL) (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int rc = read_request(cli, &r, e);
    if (rc != 0) return rc;
    struct tm_notice_options notice = {.cloud = TM_NOTICE_AWS};
    if (r.notice < NOTICE_LOCAL) notice.cloud = (enum tm_notice_cloud)r.notice;
    notice.address = cli->env->variable(cli->env, "TIDEMILL_METADATA");
    if (r.notice == NOTICE_LOCAL) notice.poll_ms = LOCAL_POLL_MS;
    if (r.notice == NOTICE_LOCAL && notice.address == NULL)
        return tm_error_set(e, TM_EUSAGE, "--notice local: TIDEMILL_METADATA does not say where the local cloud is");
    fill_service(cli, &r, &notice, &service);
    rc = tm_given_duration(cli, "notice-left", &service.notice_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "give-up", &service.give_up_ms, e);
    if (rc == 0) rc = tell_fingerprint(cli, &r, &service.agent, e);
    if (rc == 0) rc = make_words(cli, &r, words, e);
    if (rc == 0) rc = make_variables(cli, &r, service.agent.fingerprint, variables, e);
    if (rc != 0) return rc;
    service.worker = words;
    service.variables = variables;
    return tm_agent_serve(cli->env, &service, e);
}

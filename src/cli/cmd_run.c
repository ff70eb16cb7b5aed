#include "base/log.h"
#include "base/paths.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/live_view.h"
#include "cli/run_summary.h"
#include "cli/run_table.h"
#include "cloud/local_cloud.h"
#include "job/job_changes.h"
#include "job/run_costs.h"
#include "job/run_output.h"
#include "job/run_result.h"
#include "job/run_tls.h"
#include "run/run_tap.h"
#include "run/supervisor.h"
#include "store/copy_file.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES_MAX = 4 << 20 };
enum { STEP_MS = 100, SAVE_LIMIT_MS = 60000, ANSWER_MAX = 64, CHAOS_BEGIN_MS = 1000, CHAOS_LASTING_MS = 2000 };

const struct tm_option tm_run_command_options[] = {
    {.name = "state", .value = "DIR", .help = "where the job's files live (~/.local/state/tidemill/NAME)"},
    {.name = "yes", .letter = 'y', .help = "do not ask; needed where the input is no terminal"},
    {.name = "resume", .help = "go on with a run that was stopped or killed, on whatever layout there can be now"},
    {.name = "again", .help = "begin anew although a run is there; it is removed, with its weights and copies"},
    {.name = "trace", .value = "TRACE", .help = "how instances come and go: a file, or hadp, hasp, ladp, lasp"},
    {.name = "from", .value = "TIME", .help = "the part of the trace that is replayed begins here"},
    {.name = "to", .value = "TIME", .help = "and ends here"},
    {.name = "until-end", .help = "stop when the trace ends, in order, if the job is not finished before"},
    {.name = "speed", .value = "N", .help = "seconds of the trace in a second on the wall (60)"},
    {.name = "limit", .value = "N", .help = "at most N instances; the trace's counts are scaled to it (6)"},
    {.name = "notice", .value = "DURATION", .help = "how long before a loss it is announced, in the trace's time (2m)"},
    {.name = "notice-wall", .value = "DURATION", .help = "the same by the clock on the wall"},
    {.name = "policy",
     .value = "NAME",
     .help = "who decides about layouts (tidemill); checkpoint: all restart each time"},
    {.name = "no-preemptions", .help = "all instances come at once and stay"},
    {.name = "chaos", .value = "SEED", .help = "kill, stop, cut and fill what the seed's schedule says"},
    {.name = "chaos-every", .value = "DURATION", .help = "mean time between two faults (3s)"},
    {.name = "chaos-kinds",
     .value = "LIST",
     .help = "of kill-worker, kill-agent, kill-coordinator, stop-worker, stop-agent, cut-link, full-disk (all)"},
    {.name = "chaos-faults", .value = "N", .help = "so many faults, then no more (0: no end)"},
    {.name = "netns", .help = "each instance in a network namespace of its own, with TLS; needs root"},
    {.name = "link", .value = "RATE", .help = "with --netns: rate of each instance's link, such as 1Gbit/s"},
    {.name = "seed", .value = "N", .help = "which instances are lost (1)"},
    {.name = NULL},
};

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number)
{
    (void)number;
    if (interrupts < 2) interrupts++;
}

/* One run, from its options to its end. */
struct run {
    int64_t faults_max; /* of chaos; 0: no end */
    struct tm_cli *cli;
    const char *path; /* job file; NULL: a resumed one */
    const char *dir;
    bool resumed;
    struct tm_run_settings settings;
    struct tm_run_plan plan;
    struct tm_state_owner owner;
    struct tm_run_tls tls;
    bool owned;
    char token[TM_STATE_TOKEN_MAX];
    const char *program;
    struct tm_trace trace; /* what the cloud replays */
    struct tm_cloud_account account;
    struct tm_cloud *cloud;
    struct tm_supervisor *supervisor;
    struct tm_live_view *view; /* NULL: nothing is shown */
    struct tm_run_output *output;
};

/* What people see on the way; the one document of --json stays alone on standard output. */
static void show(const struct run *run, const struct tm_text *text)
{
    if (run->cli->quiet) return;
    FILE *to = run->cli->json ? stderr : stdout;
    (void)fwrite(tm_text_string(text), 1, text->length, to);
    (void)fflush(to);
}

/* ---- what is asked for ---- */

static int absolute_folder(struct tm_cli *cli, const char *path, const char **out, struct tm_error *e)
{
    char real[PATH_MAX];
    if (realpath(path, real) == NULL) return tm_error_errno(e, errno, "%s", path);
    const char *slash = strrchr(real, '/');
    *out = tm_arena_strndup(&cli->arena, real, slash == real ? 1 : (size_t)(slash - real));
    return *out == NULL ? tm_error_nomem(e) : 0;
}

/* A trace that is given by option is meant from here. */
static int read_trace_option(struct run *run, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &run->settings.fleet;
    const char *trace = tm_given_text(run->cli, "trace");
    char real[PATH_MAX];
    bool found = trace != NULL && realpath(trace, real) != NULL;
    if (trace != NULL) fleet->trace = tm_arena_strdup(&run->settings.arena, found ? real : trace);
    return fleet->trace == NULL ? tm_error_nomem(e) : 0;
}

/* One name of --chaos-kinds. */
static int add_kind(struct tm_cli *cli, void *context, const char *value, struct tm_error *e)
{
    struct tm_run_settings *settings = context;
    struct tm_suggest suggest = {.word = value};
    (void)cli;
    for (int kind = 0; kind < TM_FAULT_KINDS; kind++) {
        const char *name = tm_fault_kind_name((enum tm_fault_kind)kind);
        tm_suggest_offer(&suggest, name);
        if (strcmp(name, value) == 0) {
            settings->chaos_kinds |= (int64_t)1 << kind;
            return 0;
        }
    }
    return tm_error_set(e, TM_EUSAGE, "--chaos-kinds: there is no \"%.40s\"%s%s%s", value,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

static int read_options(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    struct tm_run_settings *s = &run->settings;
    struct tm_job_fleet *fleet = &s->fleet;
    int rc = read_trace_option(run, e);
    if (rc == 0) rc = tm_given_duration(cli, "from", &fleet->from_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "to", &fleet->to_ms, e);
    if (rc == 0) rc = tm_given_number(cli, "speed", 1e-3, 1e6, &fleet->speed, e);
    if (rc == 0 && tm_given(cli, "limit") && fleet->pools.count > 0)
        rc = tm_error_set(e, TM_EUSAGE, "--limit: fleet.pools says how many instances there are; change it there");
    if (rc == 0) rc = tm_given_integer(cli, "limit", 1, TM_LOCAL_INSTANCES_MAX, &fleet->limit, e);
    if (rc == 0) rc = tm_given_duration(cli, "notice", &fleet->notice_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "notice-wall", &fleet->notice_wall_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "seed", 0, INT64_MAX, &fleet->seed, e);
    if (rc == 0) rc = tm_given_integer(cli, "chaos", 0, INT64_MAX, &s->chaos, e);
    if (rc == 0) rc = tm_given_time_span(cli, "chaos-every", &s->chaos_mean_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "chaos-faults", 0, INT64_MAX, &run->faults_max, e);
    if (tm_given(cli, "chaos-kinds")) s->chaos_kinds = 0;
    if (rc == 0) rc = tm_cmd_each_value(cli, "chaos-kinds", s, add_kind, e);
    if (rc != 0) return rc;
    static const struct tm_field link = {.key = "link", .type = TM_FIELD_RATE};
    if (tm_given(cli, "link"))
        rc = tm_field_read_text("--link", tm_given_text(cli, "link"), &link, &s->arena, &s->link_bit_s, e);
    if (tm_given(cli, "policy")) s->policy = tm_arena_strdup(&s->arena, tm_given_text(cli, "policy"));
    if (rc == 0 && s->policy == NULL) rc = tm_error_nomem(e);
    if (rc != 0) return rc;
    s->checkpoint_restart = strcmp(s->policy, "checkpoint") == 0;
    if (tm_given(cli, "no-preemptions")) s->no_losses = true;
    if (tm_given(cli, "netns")) s->netns = true;
    const char *place = run->path != NULL ? run->path : run->dir;
    rc = tm_run_settings_check(s, &(struct tm_run_places){.file = place}, e);
    if (rc != 0 && e != NULL && tm_given(cli, "policy")) e->code = TM_EUSAGE;
    return rc;
}

static int read_job(struct run *run, struct tm_error *e)
{
    struct tm_job job;
    const char *folder = NULL;
    tm_job_init(&job);
    int rc = tm_job_load(run->cli->env, run->path, &job, e);
    if (rc == 0) rc = absolute_folder(run->cli, run->path, &folder, e);
    if (rc == 0) rc = tm_run_settings_of_job(&job, run->path, folder, &run->settings, e);
    tm_job_deinit(&job);
    return rc;
}

static int find_state(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    const char *given = tm_given_text(cli, "state");
    if (given != NULL && given[0] != '/') {
        char here[TM_STATE_PATH_MAX];
        if (getcwd(here, sizeof here) == NULL) return tm_error_errno(e, errno, "the current folder");
        given = tm_arena_printf(&cli->arena, "%s/%s", here, given);
        if (given == NULL) return tm_error_nomem(e);
    }
    run->dir = given != NULL ? given : tm_path(cli->env, TM_PATH_STATE, run->settings.name, &cli->arena, e);
    if (run->dir == NULL) return -(int)e->code;
    return tm_state_check(run->dir, e);
}

static bool is_there(const struct run *run, enum tm_state_file file)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(run->dir, file, path);
    return run->cli->env->file_exists(run->cli->env, path);
}

/* A run's work is in its record or, where that was lost, in its copies. */
static bool has_work(const struct run *run)
{
    char path[TM_STATE_PATH_MAX];
    uint64_t set = 0;
    tm_state_path(run->dir, TM_STATE_COPIES, path);
    return is_there(run, TM_STATE_RECORD) || tm_copy_newest_set(run->cli->env, path, &set, NULL) == 0;
}

/* A run goes on as the job that it was begun as. Where its files are gone, the job file that is given must do. */
static int check_job(struct run *run, struct tm_error *e)
{
    struct tm_text changes;
    struct tm_text text;
    char own[TM_STATE_PATH_MAX];
    bool whole = is_there(run, TM_STATE_RUN) && is_there(run, TM_STATE_JOB);
    if (run->path == NULL)
        return whole ? 0
                     : tm_error_set(e, TM_ENOTFOUND,
                                    "%s: %s is gone, but the run's work is there; name the job file, too: tidemill run "
                                    "JOB.yaml --resume --state %s",
                                    run->dir, is_there(run, TM_STATE_RUN) ? "job.yaml" : "run.yaml", run->dir);
    if (!is_there(run, TM_STATE_JOB)) return 0;
    tm_state_path(run->dir, TM_STATE_JOB, own);
    tm_text_init(&changes, 1 << 20);
    tm_text_init(&text, 1 << 20);
    int rc = tm_job_changes(run->cli->env, own, run->path, &changes, e);
    if (rc == 0 && changes.length > 0) {
        tm_text_printf(
            &text,
            "%s has changed since this run began. The run keeps the job file it began with; options override it:\n%s"
            "--again or another --state begins anew with what it says now.\n\n",
            run->path, tm_text_string(&changes));
        show(run, &text);
    }
    tm_text_deinit(&changes);
    tm_text_deinit(&text);
    return rc;
}

/* The settings of the run that is there, options of this call instead. */
static int read_resumed(struct run *run, struct tm_error *e)
{
    if (run->path != NULL) { /* only to find the folder */
        int rc = read_job(run, e);
        if (rc != 0) return rc;
    } else if (!tm_given(run->cli, "state")) {
        return tm_error_set(e, TM_EUSAGE, "which run? name its job file, or give --state DIR");
    }
    int rc = find_state(run, e);
    if (rc != 0) return rc;
    if (!has_work(run))
        return tm_error_set(e, TM_ENOTFOUND, "%s: there is no run to go on with; leave --resume out", run->dir);
    run->resumed = true;
    rc = check_job(run, e);
    if (rc != 0) return rc;
    if (is_there(run, TM_STATE_RUN)) return tm_run_settings_load(run->cli->env, run->dir, &run->settings, e);
    tm_log(TM_LOG_WARN, "%s: run.yaml is gone; what %s says counts instead", run->dir, run->path);
    return 0;
}

static int read_request(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    bool resume = tm_given(cli, "resume");
    if (cli->argument_count > 1 || (cli->argument_count == 0 && !resume))
        return tm_error_set(e, TM_EUSAGE, "name one job file: tidemill run JOB.yaml");
    run->path = cli->argument_count > 0 ? cli->arguments[0] : NULL;
    int rc = resume ? read_resumed(run, e) : read_job(run, e);
    if (rc == 0) rc = read_options(run, e);
    if (rc == 0 && !resume) rc = find_state(run, e);
    return rc;
}

/* ---- the folder ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

/* What an earlier run left; nothing else that lies there. */
static void clear_folder(const struct run *run)
{
    static const char *const also[] = {"record-wal", "record-shm"};
    char path[TM_STATE_PATH_MAX + 32];
    for (int file = 0; file < TM_STATE_FILE_COUNT; file++) {
        if (file == TM_STATE_OWNER || file == TM_STATE_LOCK || file == TM_STATE_COST)
            continue; /* what was measured is of use to the next */
        tm_state_path(run->dir, (enum tm_state_file)file, path);
        (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", run->dir, also[i]);
        (void)remove(path);
    }
}

static int copy_job(const struct run *run, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_JOB_BYTES_MAX);
    int rc = run->cli->env->file_read(run->cli->env, run->path, &text, e);
    if (rc == 0) rc = tm_state_write(run->cli->env, run->dir, TM_STATE_JOB, tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

static int write_settings(const struct run *run, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    tm_run_settings_print(&run->settings, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(run->cli->env, run->dir, TM_STATE_RUN, tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

static int take_name(void *context, const char *name, struct tm_error *e)
{
    (void)context;
    (void)name;
    (void)e;
    return 0;
}

/* Before anything is rented: what cannot be written, listed and read back now would never be durable. */
static int check_copies(const struct run *run, struct tm_error *e)
{
    struct tm_env *env = run->cli->env;
    char folder[TM_STATE_PATH_MAX];
    char path[TM_STATE_PATH_MAX + 16];
    static const char word[] = "written\n";
    struct tm_text back;
    tm_state_path(run->dir, TM_STATE_COPIES, folder);
    (void)snprintf(path, sizeof path, "%s/check", folder);
    tm_text_init(&back, sizeof word);
    int rc = env->file_write_private(env, path, word, sizeof word - 1, e);
    if (rc == 0) rc = env->file_read(env, path, &back, e);
    if (rc == 0 && strcmp(tm_text_string(&back), word) != 0)
        rc = tm_error_set(e, TM_EIO, "%s: what was written is not what is read", path);
    if (rc == 0) rc = env->folder_each(env, folder, take_name, NULL, e);
    if (rc == 0) rc = env->file_remove(env, path, e);
    tm_text_deinit(&back);
    if (rc != 0)
        return tm_error_wrap(e, rc, "the folder for copies cannot be used; mend that, or give another --state");
    return 0;
}

/* Takes the folder and puts down what all processes of the run read. */
static int prepare_folder(struct run *run, struct tm_error *e)
{
    struct tm_env *env = run->cli->env;
    int leftovers = 0;
    int rc = tm_state_own(env, run->dir, &run->owner, &leftovers, e);
    if (rc != 0) return rc;
    run->owned = true;
    if (leftovers > 0) tm_log(TM_LOG_WARN, "%d processes of an earlier run were left, and are ended", leftovers);
    if (!run->resumed) clear_folder(run);
    if (!is_there(run, TM_STATE_JOB)) rc = copy_job(run, e);
    if (rc == 0) rc = tm_state_token(env, run->dir, run->token, e);
    if (rc == 0) rc = tm_token_job(run->token, &run->settings.job, e);
    if (rc == 0) rc = write_settings(run, e);
    if (rc == 0) rc = check_copies(run, e);
    if (rc == 0 && run->settings.netns) /* new each time: all who use them are started anew */
        rc = tm_run_tls_make(env, run->dir, &run->tls, e);
    if (rc == 0 && !run->resumed && !run->plan.speed_unknown)
        rc = tm_run_predictions_save(env, run->dir, &run->plan, e);
    if (rc == 0) rc = tm_cloud_account_read(env, run->dir, &run->account, e);
    return rc;
}

/* ---- the cloud ---- */

/* A run that goes on goes on where its cloud stood; behind the trace's end what there was stays. */
static int make_trace(struct run *run, struct tm_error *e)
{
    struct tm_trace *trace = &run->trace;
    int rc = tm_trace_copy(&run->plan.trace, trace, e);
    if (rc != 0 || run->account.time_ms == 0) return rc;
    int64_t from_ms = run->account.time_ms < trace->end_ms ? run->account.time_ms : trace->end_ms - 1;
    return tm_trace_cut(trace, from_ms, trace->end_ms, trace, e);
}

static int open_cloud(struct run *run, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &run->settings.fleet;
    const char *const command[] = {run->program, "agent", "--state", run->dir, NULL};
    const char *const variables[] = {run->owner.mark, NULL};
    static char state[TM_STATE_PATH_MAX];
    static char logs[TM_STATE_PATH_MAX];
    static const char *words[5];
    static const char *marks[2];
    memcpy(words, command, sizeof command);
    memcpy(marks, variables, sizeof variables);
    tm_state_path(run->dir, TM_STATE_CLOUD, state);
    tm_state_path(run->dir, TM_STATE_LOGS, logs);
    int rc = make_trace(run, e);
    if (rc != 0) return rc;
    struct tm_local_options options = {.trace = &run->trace,
                                       .command = words,
                                       .variables = marks,
                                       .state_dir = state,
                                       .log_dir = logs,
                                       .speed = fleet->speed,
                                       .notice_ms = fleet->notice_ms,
                                       .notice_wall_ms = fleet->notice_wall_ms,
                                       .hint_ms = fleet->hint_ms,
                                       .spot_start_ms = fleet->spot_start_ms,
                                       .on_demand_start_ms = fleet->on_demand_start_ms,
                                       .spot_usd_h = (double)fleet->spot_usd_h_millionths / 1e6,
                                       .on_demand_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6,
                                       .limit = (int)fleet->limit,
                                       .id_first = run->account.instance + 1,
                                       .seed = (uint64_t)fleet->seed,
                                       .no_losses = run->settings.no_losses,
                                       .netns = run->settings.netns,
                                       .link_bits_per_s = run->settings.link_bit_s,
                                       .prepare = run->settings.netns ? tm_run_tls_issue : NULL,
                                       .context = &run->tls};
    rc = tm_local_cloud_create(run->cli->env, &options, &run->cloud, e);
    if (rc == 0 && tm_local_cloud_leftovers(run->cloud) > 0)
        tm_log(TM_LOG_WARN, "an earlier run left %d processes and namespaces of instances, which are removed",
               tm_local_cloud_leftovers(run->cloud));
    return rc;
}

/* ---- running ---- */

/* The record says how it was called, for whoever wants to do it again. */
static int tell_command(const struct run *run, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 16);
    tm_cli_put_call(run->cli, "run", &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0 && setenv("TIDEMILL_RUN_COMMAND", tm_text_string(&text), 1) != 0) rc = tm_error_nomem(e);
    tm_text_deinit(&text);
    return rc;
}

static int start(struct run *run, struct tm_chaos_options *chaos, struct tm_error *e)
{
    static char tls[TM_STATE_PATH_MAX];
    tm_state_tls_path(run->dir, TM_STATE_TLS_CLOUD, tls);
    int rc = open_cloud(run, e);
    if (rc != 0) return rc;
    char host[TM_ADDRESS_MAX];
    tm_local_cloud_host(run->cloud, host);
    if (setenv("TIDEMILL_COORDINATOR_HOST", host, 1) != 0) return tm_error_nomem(e);
    rc = tell_command(run, e);
    if (rc != 0) return rc;
    *chaos = (struct tm_chaos_options){.faults_max = (uint64_t)run->faults_max,
                                       .chaos = {.seed = (uint64_t)run->settings.chaos,
                                                 .mean_ms = run->settings.chaos_mean_ms,
                                                 .begin_ms = CHAOS_BEGIN_MS,
                                                 .lasting_ms = CHAOS_LASTING_MS},
                                       .netns = run->settings.netns};
    for (int kind = 0; kind < TM_FAULT_KINDS; kind++)
        chaos->chaos.weights[kind] = (uint32_t)(run->settings.chaos_kinds >> kind & 1);
    struct tm_supervisor_options options = {.driver = {.cloud = run->cloud,
                                                       .dir = run->dir,
                                                       .token = run->token,
                                                       .tls_folder = run->settings.netns ? tls : NULL,
                                                       .job = run->settings.job,
                                                       .speed = run->settings.fleet.speed,
                                                       .before = run->account},
                                            .program = run->program,
                                            .mark = run->owner.mark,
                                            .chaos = run->settings.chaos >= 0 ? chaos : NULL,
                                            .resumed = run->resumed,
                                            .restart_all = run->settings.checkpoint_restart};
    return tm_supervisor_create(run->cli->env, &options, &run->supervisor, e);
}

static void write_aside(void *context, const char *text, size_t length)
{
    (void)context;
    (void)fwrite(text, 1, length, stderr);
    (void)fflush(stderr);
}

/* On a terminal a picture that changes, elsewhere lines; beside the document of --json on standard error. */
static void open_view(struct run *run)
{
    struct tm_cli *cli = run->cli;
    if (cli->quiet) return;
    struct tm_term term = cli->json ? tm_term_detect(cli->env, STDERR_FILENO, TM_COLOR_NEVER) : cli->term;
    run->view = tm_live_view_of_run(cli->env, term, run->dir, cli->json ? write_aside : NULL, NULL);
    run->output = tm_run_output_create(run->dir);
}

static void show_output(struct run *run, bool last)
{
    struct tm_text lines;
    if (run->view == NULL || run->output == NULL) return;
    tm_text_init(&lines, OUTPUT_BYTES_MAX);
    tm_run_output_take(run->output, last, &lines);
    tm_live_view_put(run->view, &lines);
    tm_text_deinit(&lines);
}

static int supervise(struct run *run, struct tm_error *e)
{
    int heard = 0;
    int rc = 0;
    open_view(run);
    int64_t end_ms = tm_given(run->cli, "until-end") ? run->trace.end_ms : INT64_MAX;
    while (rc == 0 && !tm_supervisor_ended(run->supervisor)) {
        rc = tm_supervisor_step(run->supervisor, STEP_MS, e);
        if (run->view != NULL) tm_live_view_step(run->view);
        show_output(run, false);
        if (rc == 0 && run->cloud->now_ms(run->cloud) >= end_ms) {
            tm_supervisor_stop(run->supervisor);
            end_ms = INT64_MAX;
        }
        for (; heard < interrupts; heard++)
            tm_supervisor_stop(run->supervisor);
    }
    return rc;
}

/* A script of the user's may have a model to save once the job is finished: its instance ends when it has. */
static int let_save(struct run *run, struct tm_error *e)
{
    struct tm_cloud_event event;
    int heard = interrupts;
    int64_t end_ns = run->cli->env->monotonic_ns(run->cli->env) + SAVE_LIMIT_MS * (int64_t)1000000;
    int rc = run->settings.engine == TM_RUN_COMMAND ? 0 : -(int)TM_ENONE;
    for (int kind = 0; rc == 0 && kind < TM_INSTANCE_KINDS; kind++)
        rc = run->cloud->want(run->cloud, (enum tm_instance_kind)kind, 0, e);
    while (rc == 0 && interrupts == heard && run->cli->env->monotonic_ns(run->cli->env) < end_ns) {
        size_t count = 0;
        size_t here = 0;
        const struct tm_cloud_instance *all = run->cloud->instances(run->cloud, &count);
        for (size_t i = 0; i < count; i++)
            here += tm_instance_is_here(&all[i]);
        if (here == 0) break;
        rc = run->cloud->next(run->cloud, STEP_MS, &event, e);
        show_output(run, false);
        if (rc == -(int)TM_ETIMEOUT) rc = 0;
    }
    return rc == -(int)TM_ENONE ? 0 : rc;
}

/* ---- what is left ---- */

/* The weights as a checkpoint, and the hash that `tidemill train` gives them. */
static int keep_weights(struct run *run, struct tm_run_status *status, struct tm_error *e)
{
    if (run->settings.engine == TM_RUN_PACED)
        return tm_run_result_paced(run->cli->env, run->dir, status->committed, &run->plan.work, status->weights_hash,
                                   e);
    int rc = tm_run_result_gpt(run->cli->env, run->dir, run->settings.folder, status->committed, &run->cli->arena,
                               status->weights_hash, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the weights of the last step");
}

/* Of a job that was stopped there are weights if its last step is in files: not where it was cut short. */
static bool has_weights(const struct run *run, const struct tm_run_status *status)
{
    if (run->settings.engine == TM_RUN_COMMAND) return false;
    if (status->state == TM_JOB_FINISHED) return true;
    bool paced = run->settings.engine == TM_RUN_PACED; /* whose states prove every step */
    return status->state == TM_JOB_STOPPED &&
           (paced || (status->committed > 0 && status->durable == status->committed));
}

/* For the next plan, and for simulations. A run in which nothing happened has nothing to tell. */
static void keep_costs(struct run *run)
{
    struct tm_error e;
    int rc = tm_run_costs_save(run->cli->env, run->dir, &run->settings, &run->plan.work, &e);
    if (rc != 0 && rc != -(int)TM_ENONE) tm_log(TM_LOG_WARN, "costs as measured are not kept: %s", e.text);
}

static void print_summary(struct run *run, const struct tm_run_status *status)
{
    struct tm_run_predictions predicted;
    bool known = tm_run_predictions_load(run->cli->env, run->dir, &predicted, NULL) == 0;
    tm_text_putc(&run->cli->out, '\n');
    tm_run_summary_print(status, known ? &predicted : NULL, run->dir, &run->cli->term, &run->cli->out);
}

static int write_summary(struct run *run, const struct tm_run_status *status, struct tm_error *e)
{
    struct tm_text text;
    struct tm_jsonout json;
    tm_text_init(&text, 1 << 20);
    tm_jsonout_init(&json, &text);
    tm_run_summary_write(status, &json);
    int rc = tm_text_status(&text, e);
    bool over = status->state == TM_JOB_FINISHED || status->state == TM_JOB_FAILED;
    if (rc == 0 && over) rc = tm_state_write(run->cli->env, run->dir, TM_STATE_SUMMARY, tm_text_string(&text), e);
    if (rc == 0 && run->cli->json) tm_text_puts(&run->cli->out, tm_text_string(&text));
    tm_text_deinit(&text);
    if (rc == 0 && !run->cli->json) print_summary(run, status);
    return rc;
}

/* The record tells how it ended. */
static int finish(struct run *run, struct tm_error *e)
{
    char record[TM_STATE_PATH_MAX];
    struct tm_run_watch *watch = tm_run_watch_create();
    if (watch == NULL) return tm_error_nomem(e);
    tm_state_path(run->dir, TM_STATE_RECORD, record);
    int rc = tm_run_record_watch(record, watch, e);
    if (rc == 0) {
        struct tm_run_status status = *tm_run_watch_status(watch); /* its lists are borrowed */
        if (has_weights(run, &status)) rc = keep_weights(run, &status, e);
        if (run->view != NULL) tm_live_view_finish(run->view, &status);
        keep_costs(run);
        if (rc == 0) rc = write_summary(run, &status, e);
        if (rc == 0) rc = tm_run_report_write(run->cli->env, run->dir, NULL, e); /* the summary has the weights' hash */
        if (rc == 0 && (status.state == TM_JOB_FAILED || status.gave_up)) run->cli->exit_status = 1;
    }
    tm_run_watch_destroy(watch);
    return rc;
}

/* Everything that was started ends here, whatever happened. */
static int end_all(struct run *run, int rc, struct tm_error *e)
{
    struct tm_error ending;
    int closed = run->supervisor != NULL ? tm_supervisor_close(run->supervisor, &ending) : 0;
    tm_supervisor_destroy(run->supervisor);
    run->supervisor = NULL;
    if (run->cloud != NULL) {
        int destroyed = run->cloud->destroy(run->cloud, closed == 0 ? &ending : NULL);
        if (closed == 0) closed = destroyed;
    }
    run->cloud = NULL;
    show_output(run, true);
    if (rc != 0 || closed == 0) return rc;
    *e = ending;
    return closed;
}

static void free_all(struct run *run)
{
    tm_live_view_destroy(run->view);
    tm_run_output_destroy(run->output);
    tm_run_tls_deinit(&run->tls);
    if (run->owned && run->settings.netns) tm_run_tls_remove(run->dir);
    if (run->owned) tm_state_disown(run->cli->env, run->dir, &run->owner);
    tm_trace_deinit(&run->trace);
    tm_run_plan_deinit(&run->plan);
    tm_run_settings_deinit(&run->settings);
}

/* ---- asking ---- */

static int show_plan(struct run *run, struct tm_error *e)
{
    struct tm_text text;
    char path[TM_STATE_PATH_MAX];
    tm_state_path(run->dir, TM_STATE_JOB, path);
    bool own = run->resumed && is_there(run, TM_STATE_JOB);
    int rc = tm_run_plan_make(run->cli->env, own ? path : run->path, run->dir, &run->settings, &run->cli->arena,
                              &run->plan, e);
    if (rc != 0) return rc;
    tm_text_init(&text, 1 << 20);
    rc = tm_run_table_print(&run->cli->term, &run->settings, &run->plan, run->dir, &text, e);
    if (rc == 0) show(run, &text);
    tm_text_deinit(&text);
    return rc;
}

static bool is_yes(const char *question, bool usually)
{
    char answer[ANSWER_MAX];
    (void)fprintf(stderr, "%s [%s] ", question, usually ? "Y/n" : "y/N");
    (void)fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) == NULL) return false;
    return answer[0] == 'y' || answer[0] == 'Y' || (usually && answer[0] == '\n');
}

/* What is there goes only by a word that is meant for it. */
static int check_removal(const struct run *run, struct tm_error *e)
{
    char question[TM_STATE_PATH_MAX + 100];
    if (tm_given(run->cli, "yes") || !isatty(STDIN_FILENO)) return 0; /* --again says it; without -y nothing is done */
    (void)snprintf(question, sizeof question, "Delete the run in %s, with its weights and copies?", run->dir);
    return is_yes(question, false) ? 0 : tm_error_set(e, TM_ECANCELED, "nothing was removed, nothing was rented");
}

/* How the run that is there ended; TM_JOB_TRAINING: it did not, or nobody knows. */
static enum tm_job_state state_there(const struct run *run)
{
    char record[TM_STATE_PATH_MAX];
    enum tm_job_state state = TM_JOB_TRAINING;
    struct tm_run_watch *watch = is_there(run, TM_STATE_SUMMARY) ? tm_run_watch_create() : NULL;
    tm_state_path(run->dir, TM_STATE_RECORD, record);
    if (watch != NULL && tm_run_record_watch(record, watch, NULL) == 0) state = tm_run_watch_status(watch)->state;
    tm_run_watch_destroy(watch);
    return state;
}

/* Nothing that lasts is thrown away unasked: not an unfinished run, not the copy sets of one that failed, not the
 * weights of one that is finished. */
static int check_folder(const struct run *run, struct tm_error *e)
{
    char copies[TM_STATE_PATH_MAX];
    uint64_t set = 0;
    if (run->resumed || !has_work(run)) return 0;
    if (tm_given(run->cli, "again")) return check_removal(run, e);
    tm_state_path(run->dir, TM_STATE_COPIES, copies);
    bool durable = tm_copy_newest_set(run->cli->env, copies, &set, NULL) != -(int)TM_ENOTFOUND;
    enum tm_job_state state = state_there(run);
    bool ended = state == TM_JOB_FINISHED || state == TM_JOB_FAILED;
    if (ended && !durable) return 0;
    if (state == TM_JOB_FINISHED)
        return tm_error_set(e, TM_EEXISTS,
                            "%s: a finished run is there, with its weights; --again removes it, another --state leaves "
                            "it alone",
                            run->dir);
    return tm_error_set(e, TM_EEXISTS,
                        "%s: %s run is there; --resume goes on with it, --again removes it, another --state leaves it "
                        "alone",
                        run->dir, state == TM_JOB_FAILED ? "a failed" : "an unfinished");
}

static int ask(const struct run *run, struct tm_error *e)
{
    if (tm_given(run->cli, "yes")) return 0;
    if (!isatty(STDIN_FILENO))
        return tm_error_set(e, TM_EUSAGE, "nobody can be asked here: look at the plan, and give -y to go on");
    return is_yes("Proceed?", true) ? 0 : tm_error_set(e, TM_ECANCELED, "nothing was rented");
}

static int find_program(struct run *run, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return tm_error_errno(e, errno, "/proc/self/exe");
    run->program = tm_arena_strndup(&run->cli->arena, path, (size_t)length);
    return run->program == NULL ? tm_error_nomem(e) : 0;
}

int tm_cmd_run(struct tm_cli *cli, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    struct run run = {.cli = cli};
    struct tm_chaos_options chaos;
    tm_run_settings_init(&run.settings);
    tm_trace_init(&run.trace);
    tm_trace_init(&run.plan.trace);
    int rc = read_request(&run, e);
    if (rc == 0) rc = find_program(&run, e);
    if (rc == 0) rc = tm_state_free(cli->env, run.dir, e);
    if (rc == 0) rc = check_folder(&run, e);
    if (rc == 0) rc = tm_job_fleet_check_local(&run.settings.fleet, run.path != NULL ? run.path : run.dir, e);
    if (rc == 0) rc = show_plan(&run, e);
    if (rc == 0) rc = ask(&run, e);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    if (rc == 0) rc = prepare_folder(&run, e);
    if (rc == 0) rc = start(&run, &chaos, e);
    if (rc == 0) rc = supervise(&run, e);
    if (rc == 0) rc = let_save(&run, e);
    rc = end_all(&run, rc, e);
    if (rc == 0) rc = finish(&run, e);
    free_all(&run);
    return rc;
}

#include "base/address.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/dashboard_open.h"
#include "cli/live_view.h"
#include "cli/run_alerts.h"
#include "cli/run_detach.h"
#include "cli/run_loggers.h"
#include "cli/run_summary.h"
#include "cli/run_table.h"
#include "cli/run_traces.h"
#include "cli/web_tape.h"
#include "job/detach.h"
#include "job/job_changes.h"
#include "job/job_file.h"
#include "job/launch.h"
#include "job/provider.h"
#include "job/run_output.h"
#include "run/chaos_driver.h"
#include "run/find_run.h"
#include "run/run_home.h"
#include "run/run_places.h"
#include "run/state_folder.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES_MAX = 4 << 20, STEP_MS = 100, PAGE_STEP_MS = 20, ANSWER_MAX = 64 };

const struct tm_option tm_run_command_options[] = {
    {.name = "state", .value = "DIR", .help = "state folder of the run (~/.local/state/tidemill/NAME)"},
    {.name = "dry-run",
     .help = "print the fleet, what it is expected to take and cost, and whether deadline and budget can be met; then "
             "end"},
    {.name = "yes", .letter = 'y', .help = "do not ask; required if the input is not a terminal"},
    {.name = "anyway", .help = "run even if the deadline or the budget cannot be met"},
    {.name = "resume", .help = "resume a run that was stopped or killed, on any layout"},
    {.name = "again", .help = "start over: delete the run in the state folder, with its weights and copies"},
    {.name = "cloud",
     .value = "NAME",
     .help = "where the instances come from: local (processes on this machine that follow a trace), hosts (machines of "
             "yours, over ssh), slurm (one-node jobs in its partitions), kubernetes (pods), aws (VMs of EC2), "
             "gcp (VMs of Compute Engine), azure (VMs of Azure), skypilot (clusters that it rents) or join (machines "
             "that join by a ticket: "
             "tidemill ticket)",
     .choices = tm_job_cloud_names},
    {.name = "hosts",
     .value = "FILE",
     .help = "cloud hosts, with this list, one a line: [user@]host[:port] [slots=N or gpus=N] [max_slots=N]"},
    {.name = "trace", .value = "TRACE", .help = "the trace to replay: a file, or hadp, hasp, ladp, lasp"},
    {.name = "from", .value = "TIME", .help = "where in the trace the replay starts"},
    {.name = "to", .value = "TIME", .help = "where in the trace the replay ends"},
    {.name = "until-end", .help = "if the job is not finished when the trace ends, stop it with a copy"},
    {.name = "speed", .value = "N", .help = "replay speed: seconds of the trace per second of real time (60)"},
    {.name = "limit", .value = "N", .help = "at most N instances; the trace is scaled to it (6)"},
    {.name = "notice", .value = "DURATION", .help = "notice before a preemption, in the trace's time (2m)"},
    {.name = "notice-wall", .value = "DURATION", .help = "the same, in real time"},
    {.name = "policy",
     .value = "NAME",
     .help = "policy that chooses layouts (tidemill); checkpoint: the whole fleet restarts at each change"},
    {.name = "no-preemptions", .help = "no preemptions: all instances arrive at once and stay"},
    {.name = "chaos",
     .value = "SEED",
     .help = "inject faults on a schedule drawn from SEED: kill, stop, cut links, fill the disk"},
    {.name = "chaos-every", .value = "DURATION", .help = "mean time between two faults (3s)"},
    {.name = "chaos-kinds",
     .value = "LIST",
     .help = "kinds of faults: kill-worker, kill-agent, kill-coordinator, stop-worker, stop-agent, cut-link, full-disk "
             "(all)"},
    {.name = "chaos-faults", .value = "N", .help = "number of faults (0: no limit)"},
    {.name = "netns", .help = "each instance in its own network namespace, with TLS; needs root"},
    {.name = "link", .value = "RATE", .help = "with --netns: bandwidth of each instance's link, such as 1Gbit/s"},
    {.name = "listen",
     .value = "HOST[:PORT]",
     .help =
         "where the coordinator listens (where the cloud's instances reach this machine, any port); with a port, and "
         "nothing said of a cloud or a trace, machines join there by tickets, as with --cloud join"},
    {.name = "advertise", .value = "HOST[:PORT]", .help = "where instances are told it is (where it listens)"},
    {.name = "tls", .help = "TLS on loopback, too; beyond it always"},
    {.name = "detach",
     .help =
         "with cloud aws, gcp or azure: rent a small on-demand VM that runs the coordinator, so that this machine may "
         "go; status, events, logs, stop and attach then talk to it"},
    {.name = "serve",
     .value = "HOST:PORT",
     .help = "serve the dashboard's API there, with TLS and a token, and say so in the bucket of the copies: tidemill "
             "attach finds it"},
    {.name = "serve-as", .value = "HOST", .help = "where others reach --serve (where it listens)"},
    {.name = "dashboard", .help = "also serve the dashboard while it runs, and print the link to its page"},
    {.name = "seed", .value = "N", .help = "seed that picks which instances are preempted (1)"},
    TM_TAPE_OPTIONS,
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
    const char *state; /* the folder, where neither option nor job say it; NULL: they do */
    const char *place; /* of the books it came from; NULL: it is of this machine */
    bool resumed;
    struct tm_run_settings settings;
    const char *refused; /* why it cannot run as it is: the cloud has not got the fleet, nothing trains it; NULL */
    struct tm_run_plan plan;
    struct tm_verdict verdict;
    const char *program;
    struct tm_launch *launch;
    struct tm_live_view *view; /* NULL: nothing is shown */
    struct tm_run_output *output;
    struct tm_dashboard *dashboard; /* NULL: not asked for */
    struct tm_run_alerts *alerts;   /* NULL: nobody is to be told */
    struct tm_run_traces *traces;   /* NULL: none are wanted */
    struct tm_run_loggers *loggers; /* NULL: the job has none */
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

/* A trace that is given by option is meant from here. */
static int read_trace_option(struct run *run, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &run->settings.job.fleet;
    const char *trace = tm_given_text(run->cli, "trace");
    char real[PATH_MAX];
    bool found = trace != NULL && realpath(trace, real) != NULL;
    if (trace != NULL) fleet->trace = tm_arena_strdup(&run->settings.job.arena, found ? real : trace);
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
    return tm_error_set(e, TM_EUSAGE, "--chaos-kinds: unknown kind \"%.40s\"%s%s%s", value,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

static int keep_address(struct run *run, const char *option, const char **out, struct tm_error *e)
{
    const char *given = tm_given_text(run->cli, option);
    if (given == NULL) return 0;
    int rc = tm_address_check_given(given, e);
    if (rc != 0) return tm_error_wrap(e, rc, "--%s", option);
    *out = tm_arena_strdup(&run->settings.job.arena, given);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

/* The first option given that only a cloud that emulates one has; NULL: none. */
static const char *emulation_option(const struct run *run)
{
    static const char *const options[] = {
        "trace", "from",        "to",          "until-end",    "speed", "notice", "notice-wall", "no-preemptions",
        "chaos", "chaos-every", "chaos-kinds", "chaos-faults", "netns", "link",   "seed"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (tm_given(run->cli, options[i])) return options[i];
    return NULL;
}

static int refuse_emulation(struct run *run, struct tm_error *e)
{
    const struct tm_provider *provider = tm_provider_of(&run->settings.job);
    const char *option = provider->emulates ? NULL : emulation_option(run);
    if (option == NULL) return 0;
    return tm_error_set(e, TM_EUSAGE,
                        "--%s is for the local cloud, where one can say what happens; leave it out with cloud %s",
                        option, provider->name);
}

/* A port that others are to know, and not a word on where instances come from: they dial in. */
static bool dials_in(const struct run *run)
{
    static const char *const keys[] = {"cloud", "fleet.trace", "fleet.losses", "fleet.hosts", "hosts"};
    const struct tm_job *job = &run->settings.job;
    const char *listen = tm_given(run->cli, "listen") ? tm_given_text(run->cli, "listen") : "";
    const char *port = strrchr(listen, ':');
    if (port == NULL || strchr(port, ']') != NULL || run->resumed) return false;
    if (tm_given(run->cli, "cloud") || tm_given(run->cli, "hosts") || emulation_option(run) != NULL) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (tm_job_says(job, keys[i])) return false;
    return job->fleet.pools.count == 0;
}

static int read_cloud(struct run *run, struct tm_error *e)
{
    struct tm_job *job = &run->settings.job;
    int before = job->cloud;
    int rc = tm_given_choice(run->cli, "cloud", &job->cloud, e);
    if (rc == 0 && dials_in(run))
        while (strcmp(tm_job_cloud_names[job->cloud], "join") != 0)
            job->cloud++;
    if (rc == 0 && run->resumed && job->cloud != before)
        rc =
            tm_error_set(e, TM_EUSAGE, "--cloud: the run in %s is on cloud %s; resume it there, or use another --state",
                         run->dir, tm_job_cloud_names[before]);
    if (rc == 0 && tm_given(run->cli, "hosts"))
        rc = tm_provider_read_hosts(run->cli->env, tm_given_text(run->cli, "hosts"), job, e);
    if (rc == 0) rc = tm_provider_heed_hosts(job, tm_given(run->cli, "cloud") || run->resumed, e);
    if (rc == 0) rc = tm_job_check_sky(job, e);
    return rc == 0 ? refuse_emulation(run, e) : rc;
}

/* How many: all that there are, where neither file nor option says. */
static void unsay_limit(struct run *run)
{
    struct tm_job *job = &run->settings.job;
    bool said = tm_given(run->cli, "limit") || tm_job_says(job, "fleet.limit") || run->resumed;
    if (tm_provider_of(job)->joins && !said && job->fleet.pools.count == 0) job->fleet.limit = 0;
}

/* Another machine is to run it, or does. */
static bool is_detached(const struct run *run)
{
    return tm_given(run->cli, "detach") || (run->resumed && tm_run_is_away(run->cli->env, run->dir));
}

static int read_options(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    struct tm_run_settings *s = &run->settings;
    struct tm_job_fleet *fleet = &s->job.fleet;
    int rc = read_cloud(run, e);
    if (rc == 0) rc = read_trace_option(run, e);
    if (rc == 0) rc = tm_given_duration(cli, "from", &fleet->from_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "to", &fleet->to_ms, e);
    if (rc == 0) rc = tm_given_number(cli, "speed", 1e-3, 1e6, &fleet->speed, e);
    if (rc == 0 && tm_given(cli, "limit") && fleet->pools.count > 0)
        rc = tm_error_set(e, TM_EUSAGE, "--limit: fleet.pools says how many instances there are; change it there");
    if (rc == 0) rc = tm_given_integer(cli, "limit", 1, tm_provider_of(&s->job)->instances_max, &fleet->limit, e);
    if (rc == 0) rc = tm_given_duration(cli, "notice", &fleet->notice_ms, e);
    if (tm_given(cli, "notice")) fleet->notice_wall_ms = 0; /* the file's */
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
        rc = tm_field_read_text("--link", tm_given_text(cli, "link"), &link, &s->job.arena, &s->link_bit_s, e);
    if (tm_given(cli, "policy")) s->job.policy = tm_arena_strdup(&s->job.arena, tm_given_text(cli, "policy"));
    if (rc == 0 && s->job.policy == NULL) rc = tm_error_nomem(e);
    if (rc != 0) return rc;
    if (tm_given(cli, "no-preemptions")) s->no_losses = true;
    if (tm_given(cli, "netns")) s->netns = true;
    if (tm_given(cli, "tls")) s->tls = true;
    rc = keep_address(run, "listen", &s->listen, e);
    if (rc == 0) rc = keep_address(run, "advertise", &s->advertise, e);
    if (rc != 0) return rc;
    const char *place = run->path != NULL ? run->path : run->dir;
    if (is_detached(run)) rc = tm_detach_check(s, place, e);
    if (rc != 0) return rc;
    if (is_detached(run) && run->resumed) s->job.workdir = NULL; /* it is in the bucket */
    /* The VM of a detached run says its own; a dry run asks nobody where it is reached: nothing is rented. */
    bool unreached = is_detached(run) || (tm_given(cli, "dry-run") && tm_job_rents_vms(&s->job));
    if (unreached && s->advertise == NULL) s->advertise = "127.0.0.1";
    unsay_limit(run);
    rc = tm_provider_settle(cli->env, s, place, e);
    if (rc != 0) return rc;
    rc = tm_run_settings_check(s, &(struct tm_run_places){.file = place}, e);
    if (rc != 0 && e != NULL && tm_given(cli, "policy")) e->code = TM_EUSAGE;
    return rc;
}

static int find_state(struct run *run, struct tm_error *e)
{
    const char *given = run->state != NULL ? run->state : tm_given_text(run->cli, "state");
    return tm_launch_find_dir(run->cli->env, given, run->settings.job.name, &run->cli->arena, &run->dir, e);
}

/* What the bucket has of it. One that was lost before it began is begun there. */
static int read_away(struct run *run, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    int rc = tm_run_away_refresh(run->cli->env, run->dir, e);
    if (rc != 0 || tm_launch_has_work(run->cli->env, run->dir)) return rc;
    tm_run_settings_deinit(&run->settings);
    tm_run_settings_init(&run->settings);
    tm_state_path(run->dir, TM_STATE_JOB, path);
    rc = tm_job_file_load(run->cli->env, path, &run->settings, e);
    run->resumed = rc == 0;
    return rc;
}

/* "s3://BUCKET/PREFIX": a run as it is in its bucket, begun or not. */
static int arrive(struct run *run, const char *place, bool *out_resume, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    const char *job = NULL;
    const char *slash = strrchr(place, '/');
    run->place = place;
    run->settings.job.name = slash + 1; /* of the folder */
    int rc = find_state(run, e);
    run->settings.job.name = NULL;
    if (rc == 0) rc = tm_detach_arrive(cli->env, place, run->dir, &cli->arena, &job, e);
    run->state = run->dir;
    run->path = job;
    *out_resume = job == NULL;
    return rc;
}

/* The settings of the run that is there, options of this call instead. */
static int read_resumed(struct run *run, struct tm_error *e)
{
    if (run->path != NULL) { /* only to find the folder */
        int rc = tm_job_file_load(run->cli->env, run->path, &run->settings, e);
        if (rc != 0) return rc;
    } else if (!tm_given(run->cli, "state") && run->state == NULL) {
        return tm_error_set(e, TM_EUSAGE, "which run? give its job file, or --state with its folder or name");
    }
    const char *given = tm_given_text(run->cli, "state");
    int rc = 0;
    if (run->state == NULL && given != NULL && strchr(given, '/') == NULL &&
        !run->cli->env->file_exists(run->cli->env, given))
        rc = tm_run_find(run->cli->env, given, &run->cli->arena, &run->state, e); /* a name, as for status */
    if (rc == 0) rc = find_state(run, e);
    if (rc == 0 && tm_run_is_away(run->cli->env, run->dir)) rc = read_away(run, e);
    if (rc != 0 || run->resumed) return rc;
    struct tm_text changes;
    tm_text_init(&changes, 1 << 20);
    rc = tm_launch_resume(run->cli->env, run->dir, &run->settings, &changes, e);
    if (rc == 0 && changes.length > 0) show(run, &changes);
    tm_text_deinit(&changes);
    run->resumed = rc == 0;
    if (rc == 0 && run->place != NULL) run->settings.job.folder = tm_detach_folder(run->dir, &run->settings.job.arena);
    return rc == 0 && run->settings.job.folder == NULL ? tm_error_nomem(e) : rc;
}

static int read_request(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    bool resume = tm_given(cli, "resume");
    if (cli->argument_count > 1 || (cli->argument_count == 0 && !resume))
        return tm_error_set(e, TM_EUSAGE, "give one job file: tidemill run JOB.yaml");
    run->path = cli->argument_count > 0 ? cli->arguments[0] : NULL;
    struct tm_job asked = {.cloud = 0}; /* what a file may leave open depends on who has the instances */
    int rc = run->path != NULL && tm_detach_is_place(run->path) ? arrive(run, run->path, &resume, e) : 0;
    if (rc == 0) rc = tm_given_choice(cli, "cloud", &asked.cloud, e);
    run->settings.by_resources = tm_provider_of(&asked)->by_resources;
    if (rc == 0) rc = resume ? read_resumed(run, e) : tm_job_file_load(run->cli->env, run->path, &run->settings, e);
    if (rc == 0) rc = read_options(run, e);
    if (rc == 0 && !resume) rc = find_state(run, e);
    return rc;
}

/* ---- running ---- */

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
    run->output = tm_run_output_create(cli->env, run->dir);
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

/* A page beside it: what it shows it asks like any other. */
static void open_dashboard(struct run *run)
{
    struct tm_text text;
    struct tm_error e;
    char where[TM_HOME_WHERE_MAX];
    if (!tm_given(run->cli, "dashboard") && !tm_given(run->cli, "serve")) return;
    if (tm_dashboard_open(run->cli, run->dir, &run->dashboard, &e) != 0) {
        tm_log(TM_LOG_WARN, "%s; the run goes on without it", e.text);
        return;
    }
    tm_run_where(run->dashboard, run->dir, where);
    if (tm_given(run->cli, "serve") && where[0] != '\0') {
        (void)tm_launch_tell(run->launch, where);
        if (!tm_given(run->cli, "dashboard")) return; /* its link has a token: not for logs */
    }
    tm_text_init(&text, 1024);
    tm_text_puts(&text, "dashboard: ");
    tm_dashboard_link(run->dashboard, true, &text);
    tm_text_putc(&text, '\n');
    show(run, &text);
    tm_text_deinit(&text);
}

/* Who joins by a ticket needs one. */
static void show_tickets(struct run *run)
{
    struct tm_text text;
    if (!tm_provider_of(&run->settings.job)->guests) return;
    tm_text_init(&text, TM_STATE_PATH_MAX + 256);
    tm_text_printf(&text,
                   "machines join with: tidemill agent --join TICKET; tickets, one for each: tidemill ticket --state "
                   "%s\n",
                   run->dir);
    show(run, &text);
    tm_text_deinit(&text);
}

/* A dashboard that is opened later shall find it wherever it is. */
static void put_down_place(const struct run *run)
{
    const char *root = tm_path(run->cli->env, TM_PATH_STATE, "", &run->cli->arena, NULL);
    if (root != NULL) tm_run_places_add(run->cli->env, root, run->dir);
}

static int supervise(struct run *run, struct tm_error *e)
{
    int heard = 0;
    int rc = 0;
    put_down_place(run);
    open_dashboard(run);
    show_tickets(run);
    run->alerts = tm_run_alerts_open(run->cli, &run->settings.job, run->dir, run->resumed);
    run->traces = tm_run_traces_open(run->cli, run->dir, run->resumed);
    run->loggers = tm_run_loggers_open(run->cli, &run->settings, run->dir);
    open_view(run);
    while (rc == 0 && !tm_launch_ended(run->launch)) {
        rc = tm_launch_step(run->launch, run->dashboard == NULL ? STEP_MS : PAGE_STEP_MS, e);
        if (run->dashboard != NULL) tm_dashboard_step(run->dashboard, 0);
        tm_run_alerts_step(run->alerts, tm_launch_strays(run->launch));
        tm_run_traces_step(run->traces);
        tm_run_loggers_step(run->loggers);
        if (run->view != NULL) tm_live_view_step(run->view);
        show_output(run, false);
        for (; heard < interrupts; heard++)
            tm_launch_stop(run->launch);
    }
    return rc;
}

static void print_summary(struct run *run, const struct tm_run_status *status)
{
    struct tm_run_predictions predicted;
    bool known = tm_run_predictions_load(run->cli->env, run->dir, &predicted, NULL) == 0;
    tm_text_putc(&run->cli->out, '\n');
    tm_run_summary_print(status, known ? &predicted : NULL, run->dir, &run->cli->term, &run->cli->out);
}

/* The program cannot go on with the run, or cannot say how it ended. */
static void tell_failed(struct run *run, const struct tm_error *e)
{
    tm_run_loggers_finish(run->loggers);
    tm_run_alerts_failed(run->alerts, e->text);
    tm_run_traces_finish(run->traces);
}

static int finish(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    struct tm_run_status status;
    struct tm_jsonout json;
    int rc = tm_launch_status(run->launch, &status, e);
    if (rc != 0) {
        tell_failed(run, e);
        return rc;
    }
    rc = tm_launch_keep(run->launch, &status, e);
    if (run->view != NULL) tm_live_view_finish(run->view, &status);
    if (rc == 0 && cli->json) {
        tm_jsonout_init(&json, &cli->out);
        tm_run_summary_write(&status, &json);
    } else if (rc == 0) {
        print_summary(run, &status);
    }
    if (rc == 0 && (status.state == TM_JOB_FAILED || status.gave_up)) cli->exit_status = 1;
    tm_run_loggers_finish(run->loggers);
    tm_run_alerts_finish(run->alerts, &status);
    tm_run_traces_finish(run->traces);
    tm_run_status_deinit(&status);
    return rc;
}

/* A job that is over has a result, also where something could not be given back; that stays the error. */
static int finish_closed(struct run *run, int closed, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    int rc = finish(run, &own);
    if (rc != 0 && closed != 0) tm_log(TM_LOG_WARN, "%s", own.text);
    if (rc != 0 && closed == 0) *e = own;
    return closed != 0 ? closed : rc;
}

/* From here on instances are rented; whatever happens, they are given back. */
static int launch(struct run *run, struct tm_error *e)
{
    struct tm_text call; /* so that whoever reads the record can do it again */
    struct tm_launch_request request = {.dir = run->dir,
                                        .resumed = run->resumed,
                                        .keep_token = run->place != NULL,
                                        .settings = &run->settings,
                                        .plan = &run->plan,
                                        .program = run->program,
                                        .faults_max = run->faults_max,
                                        .until_end = tm_given(run->cli, "until-end"),
                                        .arena = &run->cli->arena};
    tm_text_init(&call, 1 << 16);
    tm_cli_put_call(run->cli, "run", &call);
    int rc = tm_text_status(&call, e);
    request.call = tm_text_string(&call);
    if (rc == 0) rc = tm_launch_create(run->cli->env, &request, &run->launch, e);
    if (rc == 0) rc = supervise(run, e);
    bool over = rc == 0;
    if (!over) tell_failed(run, e);
    rc = tm_launch_close(run->launch, rc, e);
    show_output(run, true);
    if (run->launch != NULL && tm_launch_left(run->launch)[0] != '\0')
        tm_run_alerts_left(run->alerts, tm_launch_left(run->launch));
    if (over) rc = finish_closed(run, rc, e);
    tm_launch_destroy(run->launch);
    tm_text_deinit(&call);
    return rc;
}

/* Options that the run has there, too. */
static int put_options(const struct run *run, struct tm_text *out, struct tm_error *e)
{
    static const char *const names[] = {"limit", "policy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!tm_given(run->cli, names[i])) continue;
        tm_text_printf(out, "%s--%s '", out->length > 0 ? " " : "", names[i]);
        for (const char *at = tm_given_text(run->cli, names[i]); *at != '\0'; at++)
            if (*at != '\'') tm_text_putc(out, *at);
        tm_text_putc(out, '\'');
    }
    return tm_text_status(out, e);
}

static int detach(struct run *run, struct tm_error *e)
{
    struct tm_text options;
    tm_text_init(&options, 4096);
    int rc = put_options(run, &options, e);
    const struct tm_detach_request request = {.dir = run->dir,
                                              .settings = &run->settings,
                                              .program = run->program,
                                              .arena = &run->cli->arena,
                                              .options = tm_text_string(&options),
                                              .notify = &run->cli->settings.notify,
                                              .resumed = run->resumed,
                                              .again = tm_given(run->cli, "again")};
    if (rc == 0) rc = tm_run_detach(run->cli, &request, e);
    if (rc == 0) put_down_place(run);
    tm_text_deinit(&options);
    return rc;
}

/* ---- asking ---- */

/* What it would be: of a job that nothing can be expected of, why. */
static int make_verdict(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    int rc = tm_provider_ask_prices(cli->env, &run->settings, e);
    if (rc == 0) rc = tm_run_plan_make(cli->env, run->dir, &run->settings, &cli->arena, &run->plan, e);
    if (rc == 0) {
        double own_usd_h = is_detached(run) ? tm_detach_usd_h(&run->settings) : tm_launch_own_usd_h(cli->env);
        if (is_detached(run) && own_usd_h <= 0)
            tm_log(TM_LOG_WARN,
                   "what the VM of the coordinator costs is not known, and not in the bill; write "
                   "fleet.%s.coordinator_price",
                   tm_provider_of(&run->settings.job)->name);
        tm_run_plan_add_own(&run->plan, own_usd_h);
        return tm_verdict_make(&run->settings.job, &run->plan, run->refused, &cli->arena, &run->verdict, e);
    }
    if (rc != -(int)TM_ENONE || !tm_given(cli, "dry-run") || !cli->json) return rc;
    const char *why = tm_arena_strdup(&cli->arena, e->text);
    if (why == NULL) return tm_error_nomem(e);
    tm_verdict_never(&run->settings.job, why, &run->verdict);
    return 0;
}

/* Is somebody there to be asked? */
static bool is_asked(const struct run *run)
{
    return !tm_given(run->cli, "yes") && isatty(STDIN_FILENO);
}

static int show_plan(struct run *run, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    int rc = tm_run_table_print(&run->cli->term, &run->settings, &run->plan, &run->verdict, run->dir, &text, e);
    if (run->verdict.feasible || tm_given(run->cli, "dry-run") || is_asked(run))
        tm_text_printf(&text, "%s%s\n", run->verdict.feasible ? "" : "not feasible: ", run->verdict.why);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0 && tm_given(run->cli, "dry-run"))
        tm_text_puts(&run->cli->out, tm_text_string(&text));
    else if (rc == 0)
        show(run, &text);
    tm_text_deinit(&text);
    return rc;
}

/* Nothing is rented, and nothing is written. */
static int print_dry(struct run *run, struct tm_error *e)
{
    struct tm_cli *cli = run->cli;
    struct tm_jsonout json;
    if (!run->verdict.feasible) cli->exit_status = tm_code_exit_status(TM_ENONE);
    if (!cli->json) return show_plan(run, e);
    tm_jsonout_init(&json, &cli->out);
    tm_run_verdict_json(run->settings.job.name, &run->verdict, &json);
    return 0;
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
    return is_yes(question, false) ? 0 : tm_error_set(e, TM_ECANCELED, "not confirmed: nothing was changed");
}

static int check_folder(const struct run *run, struct tm_error *e)
{
    if (run->resumed || !tm_launch_has_work(run->cli->env, run->dir)) return 0;
    return tm_given(run->cli, "again") ? check_removal(run, e) : tm_launch_may_clear(run->cli->env, run->dir, e);
}

static int ask(const struct run *run, struct tm_error *e)
{
    bool anyway = tm_given(run->cli, "anyway") || tm_given(run->cli, "until-end"); /* it need not finish */
    bool feasible = run->verdict.feasible || run->resumed || anyway; /* what is left of a run may take less */
    if (!feasible && !is_asked(run))
        return tm_error_set(e, TM_ENONE,
                            "%s; nothing was rented: change deadline or budget in the job file, or pass --anyway",
                            run->verdict.why);
    if (!feasible)
        return is_yes("Proceed anyway?", false) ? 0
                                                : tm_error_set(e, TM_ECANCELED, "not confirmed: nothing was rented");
    if (tm_given(run->cli, "yes")) return 0;
    if (!isatty(STDIN_FILENO)) return tm_error_set(e, TM_EUSAGE, "not a terminal: pass -y to start the run");
    return is_yes("Proceed?", true) ? 0 : tm_error_set(e, TM_ECANCELED, "not confirmed: nothing was rented");
}

static int find_program(struct run *run, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return tm_error_errno(e, errno, "/proc/self/exe");
    run->program = tm_arena_strndup(&run->cli->arena, path, (size_t)length);
    return run->program == NULL ? tm_error_nomem(e) : 0;
}

/* A dry run goes on although something was refused: it says that with the rest. */
static int note_refusal(struct run *run, int rc, struct tm_error *e)
{
    if (rc != -(int)TM_EINPUT || !tm_given(run->cli, "dry-run")) return rc;
    const char *before = run->refused;
    run->refused = before == NULL ? tm_arena_strdup(&run->cli->arena, e->text)
                                  : tm_arena_printf(&run->cli->arena, "%s; %s", before, e->text);
    return run->refused == NULL ? tm_error_nomem(e) : 0;
}

/* What the cloud is not, or nobody trains, is said by name before anything is rented. */
static int check_possible(struct run *run, struct tm_error *e)
{
    const char *place = run->path != NULL ? run->path : run->dir;
    int rc = tm_provider_check(&run->settings, place, e);
    rc = note_refusal(run, rc, e);
    if (rc == 0 && !run->resumed) rc = note_refusal(run, tm_job_file_check_engine(&run->settings.job, e), e);
    return rc;
}

static int do_run(struct run *run, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    int rc = read_request(run, e);
    if (rc == 0) rc = check_possible(run, e);
    if (rc == 0 && tm_given(run->cli, "dry-run")) {
        rc = make_verdict(run, e);
        return rc == 0 ? print_dry(run, e) : rc;
    }
    if (rc == 0) rc = find_program(run, e);
    if (rc == 0) rc = tm_state_free(run->cli->env, run->dir, e);
    if (rc == 0) rc = check_folder(run, e);
    if (rc == 0) rc = make_verdict(run, e);
    if (rc == 0) rc = show_plan(run, e);
    if (rc == 0) rc = ask(run, e);
    if (rc == 0 && is_detached(run)) return detach(run, e);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    return rc == 0 ? launch(run, e) : rc;
}

int tm_cmd_run(struct tm_cli *cli, struct tm_error *e)
{
    struct run run = {.cli = cli};
    tm_run_settings_init(&run.settings);
    tm_trace_init(&run.plan.trace);
    int rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = do_run(&run, e);
    tm_run_loggers_close(run.loggers);
    tm_run_alerts_close(run.alerts);
    tm_run_traces_close(run.traces);
    tm_dashboard_destroy(run.dashboard);
    tm_live_view_destroy(run.view);
    tm_run_output_destroy(run.output);
    tm_run_plan_deinit(&run.plan);
    tm_run_settings_deinit(&run.settings);
    return rc;
}

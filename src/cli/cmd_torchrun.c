#include "base/address.h"
#include "base/log.h"
#include "base/number.h"
#include "base/paths.h"
#include "cli/commands.h"
#include "cli/own_address.h"
#include "job/job_agent.h"
#include "job/launch.h"
#include "job/provider.h"
#include "job/script_figures.h"
#include "job/tickets.h"
#include "job/torchrun.h"
#include "run/protocol_times.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, RUN_WORDS_MAX = 24, LOOK_MS = 100, OFFICE_MS = 60000, END_MS = 70000 };

const struct tm_option tm_torchrun_command_options[] = {
    {.name = "nnodes", .value = "N|MIN:MAX", .help = "machines; fewer than MIN wait, more than MAX are not used (1)"},
    {.name = "nproc-per-node", .value = "N", .help = "workers on each: a number, gpu, cpu or auto (1)"},
    {.name = "standalone", .help = "on this machine alone"},
    {.name = "rdzv-endpoint",
     .value = "HOST[:PORT]",
     .help = "where machines meet: if it names this one, it coordinates and listens there and on the next port; "
             "else this one joins, by a ticket (port 29400)"},
    {.name = "rdzv-conf", .value = "KEY=VALUE,...", .help = "ticket=TICKET: to join by (else TIDEMILL_TICKET)"},
    {.name = "rdzv-id", .value = "ID", .help = "name of the job (the script's)"},
    {.name = "rdzv-backend", .value = "NAME", .help = "c10d or static: both mean Tidemill's own here"},
    {.name = "master-addr", .value = "HOST", .help = "with --master-port: another way to say --rdzv-endpoint"},
    {.name = "master-port", .value = "PORT", .help = "port of --master-addr (29500)"},
    {.name = "node-rank", .value = "N", .help = "no effect: ranks change with the machines that are there"},
    {.name = "max-restarts", .value = "N", .help = "failures without a new step before the job fails (3)"},
    {.name = "local-addr", .value = "ADDRESS", .help = "where workers of other machines reach this one"},
    {.name = "module", .letter = 'm', .help = "the script is a module's name, as of python -m"},
    {.name = "no-python", .help = "the script is a program of its own"},
    {.name = "monitor-interval", .value = "S", .help = "no effect: ends are heard at once"},
    {.name = "start-method", .value = "NAME", .help = "no effect: each worker is a process of its own"},
    {.name = "role", .value = "NAME", .help = "no effect"},
    {.name = "log-dir", .value = "DIR", .help = "no effect: logs are in the state folder; tidemill logs"},
    {.name = "redirects", .value = "N", .letter = 'r', .help = "no effect: see --log-dir"},
    {.name = "tee", .value = "N", .letter = 't', .help = "no effect: see --log-dir"},
    {.name = "event-log-handler", .value = "NAME", .help = "no effect: tidemill events"},
    {.name = "local-ranks-filter", .value = "N,...", .help = "no effect: tidemill logs shows one worker's"},
    {.name = "duplicate-stdout-filters", .value = "TEXT,...", .help = "no effect: see --log-dir"},
    {.name = "duplicate-stderr-filters", .value = "TEXT,...", .help = "no effect: see --log-dir"},
    {.name = "signals-to-handle", .value = "NAME,...", .help = "no effect: SIGTERM is a notice, SIGINT stops"},
    {.name = "shutdown-timeout", .value = "S", .help = "no effect: a worker that does not end is killed"},
    {.name = "run-path", .help = "refused: give the script itself"},
    {.name = "logs-specs", .value = "NAME", .help = "refused: see --log-dir"},
    {.name = "numa-binding", .value = "NAME", .help = "refused: start the script under numactl, with --no-python"},
    {.name = "virtual-local-rank", .help = "refused: LOCAL_RANK is a worker's number on its machine"},
    {.name = "steps",
     .value = "N",
     .help =
         "steps of the job, as the script's tidemill.torch.init has them (read from there, if it is a plain number; "
         "so are the next four)"},
    {.name = "batch", .value = "N", .help = "its batch"},
    {.name = "micro-batch", .value = "N", .help = "its micro-batch (the batch)"},
    {.name = "seed", .value = "N", .help = "its seed"},
    {.name = "determinism", .value = "NAME", .help = "fast or bitwise, as the script has it"},
    {.name = "state", .value = "DIR", .help = "state folder of the run (~/.local/state/tidemill/NAME)"},
    {.name = "resume", .help = "resume a run that was stopped or killed"},
    {.name = "again", .help = "start over: delete the run in the state folder"},
    {.name = "node-of", .value = "DIR", .help = "the node beside the coordinator of that run", .hidden = true},
    {.name = NULL},
};

/* What says nothing to a run of ours is said, not passed over. */
static const struct {
    const char *option;
    const char *why;
} meaningless[] = {
    {"node-rank", "ranks are given by the run, and change with the machines that are there"},
    {"monitor-interval", "ends of workers are heard at once"},
    {"start-method", "each worker is a process of its own"},
    {"role", "all workers are alike"},
    {"log-dir", "outputs are in the state folder: tidemill logs"},
    {"redirects", "outputs are in the state folder: tidemill logs"},
    {"tee", "outputs are in the state folder: tidemill logs"},
    {"event-log-handler", "what happens is in the record: tidemill events"},
    {"local-ranks-filter", "tidemill logs shows one worker's output"},
    {"duplicate-stdout-filters", "outputs are in the state folder: tidemill logs"},
    {"duplicate-stderr-filters", "outputs are in the state folder: tidemill logs"},
    {"signals-to-handle", "SIGTERM is a notice, SIGINT stops the job"},
    {"shutdown-timeout", "a worker that does not end is killed"},
};

/* What would change what the script does is refused, with what to write instead. */
static const struct {
    const char *option;
    const char *instead;
} refused[] = {
    {"run-path", "give the script itself: it is run by python"},
    {"logs-specs", "outputs are in the state folder (tidemill logs); leave it out"},
    {"numa-binding", "write it into the command: --no-python numactl --cpunodebind=0 python3 SCRIPT"},
    {"virtual-local-rank", "LOCAL_RANK is a worker's number on its machine; leave it out"},
};

struct torchrun {
    struct tm_cli *cli;
    struct tm_torchrun job;
    char endpoint[TM_ADDRESS_MAX]; /* "": none, on this machine alone */
    char bound[TM_ADDRESS_MAX];    /* what the endpoint is here, where it names this machine */
    char listen[TM_ADDRESS_MAX];
    char advertise[TM_ADDRESS_MAX]; /* "": where it listens */
    const char *local;              /* where others reach the node beside the coordinator; NULL: as it comes in */
    char own[TM_ADDRESS_MAX];
    const char *ticket; /* to join by; NULL: none */
    const char *dir;    /* state folder */
    const char *file;   /* the job's */
    char name[64];
    char folder[PATH_BYTES];
};

static volatile int terminating;

static void on_term(int number)
{
    (void)number;
    terminating++;
}

/* ---- what is asked for ---- */

/* A number, or what there is of on this machine. */
static int read_workers(struct torchrun *t, struct tm_error *e)
{
    const char *text = tm_given_text(t->cli, "nproc-per-node");
    struct tm_env *env = t->cli->env;
    int64_t gpus = 0;
    char path[32];
    t->job.workers = 1;
    if (text == NULL) return 0;
    if (tm_number_i64(text, strlen(text), &t->job.workers) && t->job.workers >= 1 && t->job.workers <= 64) return 0;
    bool any = strcmp(text, "auto") == 0;
    do
        (void)snprintf(path, sizeof path, "/dev/nvidia%d", (int)gpus);
    while (env->file_exists(env, path) && ++gpus < 64);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (strcmp(text, "gpu") == 0 && gpus == 0)
        return tm_error_set(e, TM_EUSAGE, "--nproc-per-node gpu: there is no NVIDIA GPU on this machine");
    if (any || strcmp(text, "gpu") == 0 || strcmp(text, "cpu") == 0) {
        bool cpu = strcmp(text, "cpu") == 0 || gpus == 0;
        t->job.workers = !cpu ? gpus : cores < 1 ? 1 : cores > 64 ? 64 : cores;
        return 0;
    }
    return tm_error_set(e, TM_EUSAGE, "--nproc-per-node: expected 1 to 64, gpu, cpu or auto, got \"%.40s\"", text);
}

static int read_endpoint(struct torchrun *t, struct tm_error *e)
{
    const char *endpoint = tm_given_text(t->cli, "rdzv-endpoint");
    const char *master = tm_given_text(t->cli, "master-addr");
    const char *port = tm_given_text(t->cli, "master-port");
    char host[TM_ADDRESS_MAX];
    char number[TM_PORT_MAX];
    if (endpoint != NULL && master != NULL)
        return tm_error_set(e, TM_EUSAGE, "--rdzv-endpoint and --master-addr say the same: leave one out");
    if (endpoint != NULL || master != NULL)
        tm_address_of_host(endpoint != NULL ? endpoint : master,
                           endpoint != NULL ? "29400"
                           : port != NULL   ? port
                                            : "29500",
                           t->endpoint);
    if (tm_given(t->cli, "standalone") && t->job.nodes_max > 1)
        return tm_error_set(e, TM_EUSAGE, "--standalone is one machine: leave out --nnodes, or give --rdzv-endpoint");
    if (tm_given(t->cli, "standalone") || (t->job.nodes_max == 1 && t->endpoint[0] == '\0')) {
        t->endpoint[0] = '\0';
        return 0;
    }
    if (t->endpoint[0] == '\0')
        return tm_error_set(e, TM_EUSAGE, "--nnodes %s: where do they meet? give --rdzv-endpoint HOST:PORT",
                            tm_given_text(t->cli, "nnodes"));
    int rc = tm_address_split(t->endpoint, host, number, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "--rdzv-endpoint");
}

/* "ticket=..." among others, which mean nothing here. */
static int read_conf(struct tm_cli *cli, void *context, const char *value, struct tm_error *e)
{
    struct torchrun *t = context;
    (void)e;
    if (strncmp(value, "ticket=", 7) == 0)
        t->ticket = value + 7;
    else if (!cli->quiet)
        tm_log(TM_LOG_WARN, "--rdzv-conf %.60s has no effect: Tidemill's own coordinator is where machines meet",
               value);
    return 0;
}

static int read_numbers(struct torchrun *t, struct tm_error *e)
{
    struct tm_cli *cli = t->cli;
    t->job.max_restarts = t->job.seed = -1;
    t->job.nodes_min = t->job.nodes_max = 1;
    int rc = tm_given(cli, "nnodes")
                 ? tm_torchrun_nodes(tm_given_text(cli, "nnodes"), &t->job.nodes_min, &t->job.nodes_max, e)
                 : 0;
    if (rc == 0) rc = read_workers(t, e);
    if (rc == 0) rc = tm_given_integer(cli, "max-restarts", 0, 1000, &t->job.max_restarts, e);
    if (rc == 0) rc = tm_given_integer(cli, "steps", 1, INT64_MAX, &t->job.steps, e);
    if (rc == 0) rc = tm_given_integer(cli, "batch", 1, INT64_MAX, &t->job.batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "micro-batch", 1, INT64_MAX, &t->job.micro_batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "seed", 0, INT64_MAX, &t->job.seed, e);
    return rc;
}

static int read_request(struct torchrun *t, struct tm_error *e)
{
    struct tm_cli *cli = t->cli;
    const char *id = tm_given_text(cli, "rdzv-id");
    const char *backend = tm_given_text(cli, "rdzv-backend");
    int rc = read_numbers(t, e);
    if (rc == 0) rc = read_endpoint(t, e);
    if (rc == 0) rc = tm_cmd_each_value(cli, "rdzv-conf", t, read_conf, e);
    if (rc != 0) return rc;
    const char *variable = cli->env->variable(cli->env, "TIDEMILL_TICKET");
    if (t->ticket == NULL && variable != NULL && variable[0] != '\0') t->ticket = variable;
    for (size_t i = 0; i < sizeof meaningless / sizeof *meaningless; i++)
        if (tm_given(cli, meaningless[i].option))
            tm_log(TM_LOG_WARN, "--%s has no effect: %s", meaningless[i].option, meaningless[i].why);
    if (backend != NULL && strcmp(backend, "c10d") != 0 && strcmp(backend, "static") != 0)
        tm_log(TM_LOG_WARN, "--rdzv-backend %.40s has no effect: Tidemill's own coordinator is where machines meet",
               backend);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (tm_given(cli, refused[i].option))
            return tm_error_set(e, TM_EUSAGE, "--%s is not for Tidemill: %s", refused[i].option, refused[i].instead);
    if (getcwd(t->folder, sizeof t->folder) == NULL) return tm_error_errno(e, errno, "the current folder");
    const char *python = cli->env->variable(cli->env, "PYTHON_EXEC"); /* as torchrun has it */
    tm_torchrun_name(id != NULL ? id : cli->argument_count > 0 ? cli->arguments[0] : "torchrun", t->name);
    t->job.name = t->name;
    t->job.folder = t->folder;
    t->job.determinism = tm_given_text(cli, "determinism");
    t->job.python = tm_given(cli, "no-python") ? NULL : python != NULL ? python : "python3";
    t->job.module = tm_given(cli, "module");
    t->job.words = cli->arguments;
    t->job.word_count = cli->argument_count;
    return 0;
}

/* ---- this machine joins ---- */

static int serve_agent(struct torchrun *t, const char *ticket, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_term};
    struct tm_job_agent request = {.ticket = ticket,
                                   .host = tm_given_text(t->cli, "local-addr"),
                                   .shows = !t->cli->json && !t->cli->quiet, /* as torchrun does */
                                   .notice = TM_AGENT_NOTICE_UNSAID,
                                   .notice_ms = TM_PROTOCOL_NOTICE_MS,
                                   .give_up_ms = TM_PROTOCOL_GIVE_UP_MS,
                                   .terminating = &terminating};
    (void)sigaction(SIGTERM, &action, NULL);
    return tm_job_agent_serve(t->cli->env, &request, &t->cli->arena, e);
}

static int join(struct torchrun *t, struct tm_error *e)
{
    if (t->ticket == NULL)
        return tm_error_set(
            e, TM_EUSAGE,
            "%s is another machine: to join its job, this one needs a ticket; ask there for one (tidemill "
            "ticket), and give it in the variable TIDEMILL_TICKET, or by --rdzv-conf ticket=TICKET",
            t->endpoint);
    return serve_agent(t, t->ticket, e);
}

/* Beside the coordinator: asks its office for a ticket once it is there. */
static int serve_node(struct torchrun *t, const char *dir, struct tm_error *e)
{
    struct tm_env *env = t->cli->env;
    const char *const *tickets = NULL;
    const struct tm_tickets_request one = {.count = 1};
    int rc = -1;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive the run */
    for (int64_t waited_ms = 0; rc != 0 && waited_ms < OFFICE_MS; waited_ms += LOOK_MS) {
        rc = tm_tickets_ask(env, dir, &one, &t->cli->arena, &tickets, e);
        if (rc != 0) env->sleep_ms(env, LOOK_MS);
    }
    return rc == 0 ? serve_agent(t, tickets[0], e) : rc;
}

/* ---- this machine coordinates ---- */

/* What the options do not say the script may. */
static int ask_script(struct torchrun *t, struct tm_error *e)
{
    struct tm_script_figures figures;
    struct tm_torchrun *job = &t->job;
    bool found = false;
    bool said = job->steps > 0 && job->batch > 0 && job->micro_batch > 0;
    if (job->word_count == 0 || said) return 0;
    int rc = job->module ? tm_script_figures_of_module(t->cli->env, "", job->words[0], &figures, &found, e)
                         : tm_script_figures_of(t->cli->env, job->words[0], &figures, &found, e);
    if (rc != 0 || !found) return rc;
    if (job->steps < 1) job->steps = figures.steps;
    if (job->batch < 1) job->batch = figures.batch;
    if (job->micro_batch < 1) job->micro_batch = figures.micro_batch;
    if (job->seed < 0) job->seed = figures.seed;
    if (job->determinism == NULL && figures.determinism[0] != '\0')
        job->determinism = tm_arena_strdup(&t->cli->arena, figures.determinism);
    return job->determinism == NULL && figures.determinism[0] != '\0' ? tm_error_nomem(e) : 0;
}

static int write_job(struct torchrun *t, struct tm_error *e)
{
    struct tm_text text;
    struct tm_cli *cli = t->cli;
    tm_text_init(&text, 1 << 20);
    int rc = ask_script(t, e);
    if (rc == 0) rc = tm_torchrun_job(&t->job, &text, e);
    if (rc == 0) rc = tm_launch_find_dir(cli->env, tm_given_text(cli, "state"), t->name, &cli->arena, &t->dir, e);
    if (rc == 0 && (t->file = tm_arena_printf(&cli->arena, "%s.torchrun.yaml", t->dir)) == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = cli->env->file_write_private(cli->env, t->file, text.data, text.length, e);
    tm_text_deinit(&text);
    return rc;
}

/* Where this machine listens, and what others are told. A name may mean something else here than elsewhere: Debian's
 * installer writes 127.0.1.1 beside a machine's own. So of a name it listens on every address, and the node beside the
 * coordinator, whose workers others must reach too, gets one that is not the machine's own alone. */
static void find_addresses(struct torchrun *t)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    t->local = tm_given_text(t->cli, "local-addr");
    (void)snprintf(t->listen, sizeof t->listen, "%s", t->endpoint[0] == '\0' ? "127.0.0.1:0" : t->endpoint);
    if (t->job.nodes_max == 1 || t->endpoint[0] == '\0' || tm_address_is_loopback(t->endpoint)) return;
    if (tm_address_split(t->endpoint, host, port, NULL) != 0 || tm_host_is_address(host)) return;
    tm_address_join(tm_provider_any_host(t->cli->env), port, t->listen);
    (void)snprintf(t->advertise, sizeof t->advertise, "%s", host);
    if (t->local != NULL || !tm_address_is_loopback(t->bound) || !tm_own_address(t->own)) return;
    t->local = t->own;
    if (!t->cli->quiet)
        tm_log(TM_LOG_WARN,
               "%s is this machine alone, as it is looked up here: its workers are told to others as %s "
               "(--local-addr says otherwise)",
               host, t->local);
}

static int start_node(struct torchrun *t, int *out_pid, struct tm_error *e)
{
    bool shows = !t->cli->json && !t->cli->quiet;
    const char *words[] = {"/proc/self/exe", "torchrun", "--node-of", t->dir, NULL, NULL, NULL, NULL};
    size_t count = 4;
    if (!shows) words[count++] = "--quiet";
    if (t->local != NULL) words[count++] = "--local-addr";
    if (t->local != NULL) words[count++] = t->local;
    const struct tm_process_options options = {.argv = words, .group = true};
    return t->cli->env->process_start_with(t->cli->env, &options, out_pid, e);
}

static int coordinate(struct torchrun *t, struct tm_error *e)
{
    struct tm_cli *cli = t->cli;
    const char *words[RUN_WORDS_MAX] = {"run", "--yes", "--state", NULL};
    size_t count = 3;
    int node = 0;
    int status = 0;
    bool alone = t->endpoint[0] == '\0';
    int rc = write_job(t, e);
    if (rc != 0) return rc;
    find_addresses(t);
    if (!alone && !cli->quiet && t->job.nodes_min > 1)
        tm_log(TM_LOG_WARN,
               "it waits until there are %" PRId64 " machines: say the same line on the others, with "
               "TIDEMILL_TICKET=TICKET before it; tidemill ticket --state %s gives one for each",
               t->job.nodes_min, t->dir);
    words[count++] = t->dir;
    if (tm_given(cli, "resume")) words[count++] = "--resume";
    if (tm_given(cli, "again")) words[count++] = "--again";
    if (cli->json) words[count++] = "--json";
    if (cli->quiet) words[count++] = "--quiet";
    words[count++] = "--cloud";
    words[count++] = "join";
    words[count++] = "--listen";
    words[count++] = t->listen; /* this machine is the only node, or the first */
    if (t->advertise[0] != '\0') words[count++] = "--advertise";
    if (t->advertise[0] != '\0') words[count++] = t->advertise;
    words[count++] = t->file;
    rc = start_node(t, &node, e);
    if (rc != 0) return rc;
    cli->exit_status = tm_cli_main(cli->env, (int)count, (char *const *)words);
    if (node > 0 && cli->env->process_wait(cli->env, node, cli->exit_status == 0 ? END_MS : 0, &status, NULL) != 0) {
        (void)cli->env->process_signal_group(cli->env, node, SIGKILL, NULL);
        (void)cli->env->process_wait(cli->env, node, LOOK_MS * 50, &status, NULL);
    }
    return 0;
}

/* One can listen at an address of one's own alone. */
static bool is_here(struct torchrun *t)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    char address[TM_ADDRESS_MAX];
    struct tm_env *env = t->cli->env;
    int handle = -1;
    if (t->endpoint[0] == '\0') return true;
    if (tm_address_split(t->endpoint, host, port, NULL) != 0) return false;
    tm_address_join(host, "0", address);
    if (env->net_listen(env, address, &handle, t->bound, NULL) != 0) return false;
    env->net_close(env, handle);
    return true;
}

int tm_cmd_torchrun(struct tm_cli *cli, struct tm_error *e)
{
    struct torchrun t = {.cli = cli};
    if (tm_given(cli, "node-of")) return serve_node(&t, tm_given_text(cli, "node-of"), e);
    int rc = read_request(&t, e);
    if (rc != 0) return rc;
    return t.ticket == NULL && is_here(&t) ? coordinate(&t, e) : join(&t, e);
}

#include "job/job_agent.h"

#include "base/address.h"
#include "base/log.h"
#include "base/number.h"
#include "job/job_file.h"
#include "job/join.h"
#include "job/run_fingerprint.h"
#include "job/stay.h"
#include "run/protocol_times.h"
#include "run/serve.h"
#include "run/state_folder.h"
#include "store/copy_store.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ADDRESS_WAIT_MS = 60000,
    LOOK_MS = 20,
    WORDS_MAX = 48,
    VARIABLES_MAX = 20,
    LOCAL_POLL_MS = 100,
    NUMBER_LOOK_MS = 1000,
    RENEW_LOOK_MS = 200,
    RENEW_WAIT_MS = 120000 /* more than a kubelet takes to show a Secret that has changed */
};

/* One agent on its way: the request, completed. */
struct agent {
    struct tm_env *env;
    struct tm_arena *arena;
    struct tm_job_agent r;
    char coordinator[TM_ADDRESS_MAX]; /* as the state folder says */
    char token[TM_STATE_TOKEN_MAX];
    uint64_t number;   /* of the job */
    bool restarts_all; /* checkpoint-restart: workers are ended all the time */
    bool chaos;        /* and some by its schedule */
    bool joined;       /* by a ticket: the state folder is of this machine alone */
    struct tm_joined join;
    uint32_t workers; /* of this instance */
    struct tm_agent_worker each[TM_WORKERS_EACH_MAX];
    char again[TM_TICKET_MAX]; /* by which it is to join once more */
    const char *file;          /* that its ticket is read from; NULL: none */
    char seen[TM_TICKET_MAX];  /* what was in it */
};

static const char *state_path(struct agent *a, enum tm_state_file file)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(a->r.state, file, path);
    return tm_arena_strdup(a->arena, path);
}

/* The coordinator may not listen yet. */
static int await_address(struct agent *a, struct tm_error *e)
{
    int rc = -1;
    for (int64_t waited_ms = 0; rc != 0 && waited_ms < ADDRESS_WAIT_MS && *a->r.terminating == 0;
         waited_ms += LOOK_MS) {
        rc = tm_state_read(a->env, a->r.state, TM_STATE_ADDRESS, a->coordinator, sizeof a->coordinator, e);
        if (rc != 0) a->env->sleep_ms(a->env, LOOK_MS);
    }
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the coordinator has not published its address");
}

/* What a cloud says by variables. */
static int from_variables(struct agent *a, struct tm_error *e)
{
    struct tm_env *env = a->env;
    const char *id = env->variable(env, "TIDEMILL_INSTANCE_ID");
    const char *host = env->variable(env, "TIDEMILL_INSTANCE_HOST");
    const char *kind = env->variable(env, "TIDEMILL_INSTANCE_KIND");
    int64_t number = 0;
    if (id != NULL && (!tm_number_i64(id, strlen(id), &number) || number < 1))
        return tm_error_set(e, TM_EUSAGE, "TIDEMILL_INSTANCE_ID: expected a number from 1, got \"%.40s\"", id);
    if (a->r.instance == 0) a->r.instance = number;
    if (a->r.host == NULL) a->r.host = host;
    if (kind != NULL && strcmp(kind, "on-demand") == 0) a->r.anchor = true;
    return 0;
}

static int certificate_path(struct agent *a, struct tm_error *e)
{
    char member[64];
    char path[TM_STATE_PATH_MAX];
    (void)snprintf(member, sizeof member, TM_STATE_TLS_INSTANCE, (uint64_t)a->r.instance);
    tm_state_tls_path(a->r.state, member, path);
    a->r.tls = tm_arena_strdup(a->arena, path);
    return a->r.tls == NULL ? tm_error_nomem(e) : 0;
}

static int from_state(struct agent *a, struct tm_error *e)
{
    struct tm_run_settings settings;
    tm_run_settings_init(&settings);
    int rc = tm_state_check(a->r.state, e);
    if (rc == 0) rc = tm_run_settings_load(a->env, a->r.state, &settings, e);
    if (rc == 0) rc = await_address(a, e);
    if (rc == 0) {
        if (a->r.coordinator == NULL) a->r.coordinator = a->coordinator;
        if (a->r.token_file == NULL) a->r.token_file = state_path(a, TM_STATE_TOKEN);
        if (a->r.copies == NULL) a->r.copies = state_path(a, TM_STATE_COPIES);
        if (a->r.notice == TM_AGENT_NOTICE_UNSAID) a->r.notice = TM_AGENT_NOTICE_LOCAL;
        a->restarts_all = tm_run_restarts_all(&settings);
        a->chaos = settings.chaos >= 0;
        a->workers = (uint32_t)tm_job_fleet_workers_each(&settings.job.fleet);
        if (a->r.token_file == NULL || a->r.copies == NULL) rc = tm_error_nomem(e);
    }
    if (rc == 0 && tm_run_settings_tls(&settings) && a->r.tls == NULL) rc = certificate_path(a, e);
    tm_run_settings_deinit(&settings);
    return rc;
}

/* The worker may be called in another folder. What is not there stays as it was given: whoever needs it says so. */
static int make_absolute(struct agent *a, const char **path, struct tm_error *e)
{
    char real[PATH_MAX];
    if (*path == NULL || realpath(*path, real) == NULL) return 0;
    *path = tm_arena_strdup(a->arena, real);
    return *path == NULL ? tm_error_nomem(e) : 0;
}

static int make_paths_absolute(struct agent *a, struct tm_error *e)
{
    const char **paths[] = {&a->r.token_file, &a->r.tls, &a->r.copies, &a->r.job};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof *paths; i++)
        rc = make_absolute(a, paths[i], e);
    return rc;
}

/* All by a ticket, where there is one, and nothing else says which job it is. */
static int join(struct agent *a, struct tm_error *e)
{
    const char *ticket = NULL;
    bool said = a->r.state != NULL || a->r.coordinator != NULL;
    if (a->r.ticket == NULL && said) return 0;
    if (a->r.ticket != NULL && said)
        return tm_error_set(e, TM_EUSAGE, "--join says which job it is: leave out --state and --coordinator");
    int rc = tm_join__find_ticket(a->env, a->r.ticket, a->arena, &ticket, e);
    if (rc != 0 || ticket == NULL) return rc;
    if (a->r.ticket != NULL && a->r.ticket[0] == '@') {
        a->file = a->r.ticket + 1;
        (void)snprintf(a->seen, sizeof a->seen, "%.*s", (int)strcspn(ticket, " \r\n"), ticket);
    }
    rc = tm_join__run(a->env, ticket, a->r.terminating, a->arena, &a->join, e);
    if (rc != 0) return rc;
    a->joined = true;
    a->r.state = a->join.dir;
    a->r.instance = (int64_t)a->join.instance;
    a->r.copies = a->join.copies;
    a->r.tls = a->join.tls;
    a->r.anchor = a->r.anchor || a->join.anchor;
    if (a->r.host == NULL) a->r.host = a->join.host;
    if (a->r.notice == TM_AGENT_NOTICE_UNSAID) a->r.notice = TM_AGENT_NOTICE_NONE;
    return 0;
}

static int complete(struct agent *a, struct tm_error *e)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    int rc = join(a, e);
    if (rc == 0) rc = from_variables(a, e);
    if (rc == 0 && a->r.state != NULL) rc = from_state(a, e);
    if (rc != 0) return rc;
    if (a->r.coordinator == NULL || a->r.token_file == NULL)
        return tm_error_set(e, TM_EUSAGE,
                            "which job? give --join TICKET, or --coordinator HOST:PORT and --token-file FILE");
    if (strchr(a->r.coordinator, ':') == NULL)
        return tm_error_set(e, TM_EUSAGE, "--coordinator: expected HOST:PORT, got \"%.100s\"", a->r.coordinator);
    rc = tm_address_split(a->r.coordinator, host, port, e);
    if (rc != 0) return tm_error_wrap(e, rc, "--coordinator");
    if (a->r.host == NULL && !tm_address_is_loopback(a->r.coordinator))
        return tm_error_set(
            e, TM_EUSAGE,
            "the coordinator is on another machine: give --host ADDRESS, where other workers reach this "
            "one");
    if (a->r.host == NULL) a->r.host = "127.0.0.1";
    if (a->r.instance < 1)
        return tm_error_set(e, TM_EUSAGE, "which instance of the job is this? give --instance N, a unique number");
    if (a->r.state == NULL && a->r.job == NULL && a->r.word_count == 0)
        return tm_error_set(e, TM_EUSAGE, "what should be trained? give --job JOB.yaml, or a command after --");
    if (a->r.copies != NULL && (rc = tm_copy_store_check_place(a->r.copies, e)) != 0)
        return tm_error_wrap(e, rc, "--copies");
    rc = tm_token_read(a->env, a->r.token_file, a->token, e);
    if (rc == 0 && a->r.state == NULL) rc = make_paths_absolute(a, e);
    return rc == 0 ? tm_token_job(a->token, &a->number, e) : rc;
}

/* ---- the worker ---- */

static int program_path(struct agent *a, const char **out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return tm_error_set(e, TM_EIO, "/proc/self/exe: cannot be read");
    path[length] = '\0';
    *out = tm_arena_strdup(a->arena, path);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

static int make_words(struct agent *a, const char *words[WORDS_MAX + 1], struct tm_error *e)
{
    const struct tm_job_agent *r = &a->r;
    size_t count = 0;
    if (r->word_count > WORDS_MAX)
        return tm_error_set(e, TM_ELIMIT, "the worker's command has more than %d words", WORDS_MAX);
    for (; count < r->word_count; count++)
        words[count] = r->words[count];
    words[count] = NULL;
    if (count > 0) return 0;
    int rc = program_path(a, &words[0], e);
    words[1] = "worker";
    words[2] = r->state != NULL ? "--state" : "--job";
    words[3] = r->state != NULL ? r->state : r->job;
    words[4] = NULL;
    return rc;
}

static int make_variables(struct agent *a, const char *fingerprint, const char *out[VARIABLES_MAX + 1],
                          struct tm_error *e)
{
    const struct tm_job_agent *r = &a->r;
    struct tm_arena *arena = a->arena;
    size_t count = 0;
    out[count++] = tm_arena_printf(arena, "TIDEMILL_COORDINATOR=%s", r->coordinator);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_TOKEN_FILE=%s", r->token_file);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_JOB=%" PRIu64, a->number);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_HOST=%s", r->host);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_COPIES=%s", r->copies != NULL ? r->copies : "");
    out[count++] = tm_arena_printf(arena, "TIDEMILL_TLS=%s", r->tls != NULL ? r->tls : "");
    out[count++] = tm_arena_printf(arena, "TIDEMILL_STATE=%s", r->state != NULL ? r->state : "");
    out[count++] = r->anchor ? "TIDEMILL_ANCHOR=1" : "TIDEMILL_ANCHOR=0";
    out[count++] = "PYTHONUNBUFFERED=1"; /* what a script prints is shown while it runs */
    out[count++] = tm_arena_printf(arena, "TIDEMILL_INSTANCE=%" PRId64, r->instance);
    /* what torchrun's scripts look for; rank and world change with generations */
    out[count++] = tm_arena_printf(arena, "LOCAL_WORLD_SIZE=%u", a->workers);
    out[count++] = tm_arena_printf(arena, "TIDEMILL_LOCAL_WORLD_SIZE=%u", a->workers); /* what frameworks do not hide */
    out[count++] = tm_arena_printf(arena, "GROUP_RANK=%" PRId64, r->instance - 1);
    out[count++] = tm_arena_printf(arena, "TORCHELASTIC_RUN_ID=%016" PRIx64, a->number);
    if (r->word_count > 0 && fingerprint != NULL)
        out[count++] = tm_arena_printf(arena, "TIDEMILL_FINGERPRINT=%s", fingerprint);
    out[count] = NULL;
    for (size_t i = 0; i < count; i++)
        if (out[i] == NULL) return tm_error_nomem(e);
    return 0;
}

/* As the job says: its file, where there is no state folder that has said it. */
static int count_workers(struct agent *a, struct tm_error *e)
{
    struct tm_run_settings settings;
    int rc = 0;
    tm_run_settings_init(&settings);
    if (a->workers == 0 && a->r.job != NULL) rc = tm_job_file_load(a->env, a->r.job, &settings, e);
    if (rc == 0 && a->workers == 0) a->workers = (uint32_t)tm_job_fleet_workers_each(&settings.job.fleet);
    tm_run_settings_deinit(&settings);
    return rc;
}

/* What differs between the workers of an instance. */
static int describe_worker(struct agent *a, uint32_t local, struct tm_agent_worker *out, struct tm_error *e)
{
    const struct tm_job_agent *r = &a->r;
    uint64_t number = tm_worker_of_instance((uint64_t)r->instance, local, a->workers);
    const char **variables = tm_arena_alloc(a->arena, 4 * sizeof *variables);
    if (variables == NULL) return tm_error_nomem(e);
    variables[0] = tm_arena_printf(a->arena, "TIDEMILL_INSTANCE_ID=%" PRIu64, number); /* by which it joins */
    variables[1] = tm_arena_printf(a->arena, "LOCAL_RANK=%u", local);
    variables[2] = tm_arena_printf(a->arena, "TIDEMILL_LOCAL_RANK=%u", local);
    variables[3] = NULL;
    out->variables = variables;
    bool good = variables[0] != NULL && variables[1] != NULL && variables[2] != NULL;
    if (r->state != NULL && r->shows) {
        char path[TM_STATE_PATH_MAX];
        tm_state_worker_path(r->state, number, path);
        out->worker_file = tm_arena_strdup(a->arena, path);
        good = good && out->worker_file != NULL;
    } else if (r->state != NULL) {
        char path[TM_STATE_PATH_MAX];
        tm_state_worker_path(r->state, number, path);
        out->worker_file = tm_arena_strdup(a->arena, path);
        tm_state_output_path(r->state, number, path);
        out->output = tm_arena_strdup(a->arena, path);
        good = good && out->worker_file != NULL && out->output != NULL;
        if (good && !a->joined) out->output_name = out->output + strlen(r->state) + 1;
    }
    return good ? 0 : tm_error_nomem(e);
}

static void fill_service(struct agent *a, const struct tm_notice_options *notice, struct tm_agent_service *out)
{
    const struct tm_job_agent *r = &a->r;
    *out = (struct tm_agent_service){.agent = {.job = a->number,
                                               .id = tm_worker_of_instance((uint64_t)r->instance, 0, a->workers),
                                               .instance = (uint64_t)r->instance,
                                               .token = a->token,
                                               .heartbeat_ms = TM_PROTOCOL_AGENT_HEARTBEAT_MS,
                                               .backoff_ms = TM_PROTOCOL_BACKOFF_MS,
                                               .restarts_max = TM_PROTOCOL_RESTARTS_MAX,
                                               .restart_window_ms = TM_PROTOCOL_RESTART_WINDOW_MS},
                                     .workers = a->each,
                                     .worker_count = a->workers,
                                     .coordinator = r->coordinator,
                                     .tls_folder = r->tls,
                                     .notice = r->notice == TM_AGENT_NOTICE_NONE ? NULL : notice,
                                     .notice_ms = r->notice_ms,
                                     .give_up_ms = r->give_up_ms,
                                     .terminating = r->terminating};
    /* Slurm sends a notice to all processes of a job: the worker trains on until its agent says otherwise. */
    out->worker_deaf = a->env->variable(a->env, "SLURM_JOB_ID") != NULL;
    out->agent.kills_expected = a->restarts_all || a->chaos;
    if (a->restarts_all) {
        out->agent.backoff_ms = 1;
        out->agent.restarts_max = 1U << 30;
    }
}

/* What its worker would train: another job file, or another script, is refused before a worker is started. */
static int tell_fingerprint(struct agent *a, struct tm_agent_options *out, struct tm_error *e)
{
    struct tm_run_settings settings;
    struct tm_text text;
    int rc = 0;
    if (a->r.state != NULL && !a->joined) return 0; /* the same folder as the coordinator's */
    tm_text_init(&text, TM_RUN_FINGERPRINT_MAX);
    tm_run_settings_init(&settings);
    if (a->r.job != NULL) rc = tm_job_file_load(a->env, a->r.job, &settings, e);
    if (a->joined) rc = tm_run_settings_load(a->env, a->r.state, &settings, e);
    if (rc == 0 && (a->r.job != NULL || a->joined)) rc = tm_run__fingerprint(a->env, &settings.job, a->arena, &text, e);
    for (size_t i = 0; i < a->r.word_count; i++)
        tm_run_fingerprint__word(a->env, "", a->r.words[i], &text);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) out->fingerprint = tm_arena_strdup(a->arena, tm_text_string(&text));
    if (rc == 0 && out->fingerprint == NULL) rc = tm_error_nomem(e);
    tm_run_settings_deinit(&settings);
    tm_text_deinit(&text);
    return rc;
}

static int fill_notice(struct agent *a, struct tm_notice_options *out, struct tm_error *e)
{
    *out = (struct tm_notice_options){.cloud = TM_NOTICE_AWS};
    if (a->r.notice == TM_AGENT_NOTICE_UNSAID) a->r.notice = TM_AGENT_NOTICE_NONE;
    if (a->r.notice < TM_AGENT_NOTICE_LOCAL) out->cloud = (enum tm_notice_cloud)a->r.notice;
    out->address = a->env->variable(a->env, "TIDEMILL_METADATA");
    if (a->r.notice != TM_AGENT_NOTICE_LOCAL) return 0;
    out->poll_ms = LOCAL_POLL_MS;
    if (out->address != NULL) return 0;
    return tm_error_set(e, TM_EUSAGE, "--notice local: TIDEMILL_METADATA does not give the local cloud's address");
}

/* Whoever started the agent in a slot of its own learns that the machine was taken, not that the job is done. */
static void mark_taken(const struct agent *a)
{
    char path[TM_STATE_PATH_MAX];
    const char *slot = a->env->variable(a->env, "TIDEMILL_SLOT");
    if (slot == NULL || a->r.terminating == NULL || *a->r.terminating == 0) return;
    (void)snprintf(path, sizeof path, "%s/taken", slot);
    (void)a->env->file_write_private(a->env, path, "", 0, NULL);
}

/* A file that says what this machine is to the run: its instance's number (TIDEMILL_INSTANCE_FILE), or the ticket that
 * it joined by (--join @FILE). Whoever takes the run over may change it. */
struct told_file {
    struct tm_env *env;
    const char *path; /* NULL: there is none */
    bool numbered;
    char was[TM_TICKET_MAX]; /* what this agent goes by */
    int64_t look_ms;         /* the next time */
    struct tm_stay *stay;    /* NULL: none */
};

/* Its one word; false: it is gone or cannot be read, which says nothing. */
static bool read_told(const struct told_file *file, char out[TM_TICKET_MAX])
{
    size_t length = 0;
    int64_t size = 0;
    if (file->env->file_read_at(file->env, file->path, 0, out, TM_TICKET_MAX - 1, &length, &size, NULL) != 0)
        return false;
    out[length] = '\0';
    out[strcspn(out, " \r\n")] = '\0';
    return out[0] != '\0';
}

/* Another number or ticket there: the run was resumed, and this agent is of the killed one. By a ticket it joins again;
 * with a number its node's script starts another. */
static bool is_still(void *context, bool noticed, int64_t left_ms)
{
    struct told_file *file = context;
    int64_t now_ms = file->env->monotonic_ns(file->env) / 1000000;
    char now[TM_TICKET_MAX];
    int64_t number = 0;
    if (file->stay != NULL && !tm_stay__goes_on(file->stay, noticed, left_ms)) return false;
    if (file->path == NULL || now_ms < file->look_ms) return true;
    file->look_ms = now_ms + NUMBER_LOOK_MS;
    if (!read_told(file, now) || strcmp(now, file->was) == 0) return true;
    if (file->numbered && (!tm_number_i64(now, strlen(now), &number) || number < 1)) return true;
    tm_log(TM_LOG_INFO, "the run was resumed: this machine is %s%s now", file->numbered ? "instance " : "let in anew",
           file->numbered ? now : "");
    return false;
}

static void find_told_file(const struct agent *a, struct told_file *out)
{
    bool by_file = a->joined && a->file != NULL;
    *out = (struct told_file){.env = a->env, .numbered = !by_file};
    out->path = by_file ? a->file : a->joined ? NULL : a->env->variable(a->env, "TIDEMILL_INSTANCE_FILE");
    if (by_file)
        memcpy(out->was, a->seen, sizeof out->was);
    else
        (void)snprintf(out->was, sizeof out->was, "%" PRId64, a->r.instance);
}

/* One that was let in by a file that has another ticket now comes back by that. */
static void take_new_ticket(struct agent *a, const struct told_file *file)
{
    char now[TM_TICKET_MAX];
    if (file->numbered || file->path == NULL || a->again[0] != '\0') return;
    if (!read_told(file, now) || strcmp(now, file->was) == 0) return;
    memcpy(a->again, now, sizeof now);
    memcpy(a->seen, now, sizeof now);
}

static int stay_and_serve(struct agent *a, struct tm_agent_service *service, struct tm_error *e)
{
    struct told_file file;
    int rc = 0;
    find_told_file(a, &file);
    if (a->joined && a->join.stays)
        rc = tm_stay__begin(a->env, a->join.office, a->join.tls, a->join.instance, &file.stay, e);
    if (rc != 0) return rc;
    service->stays = file.stay != NULL || file.path != NULL ? is_still : NULL;
    service->context = &file;
    rc = tm_agent_serve(a->env, service, e);
    if (rc == 0) mark_taken(a);
    tm_stay__end(file.stay, tm_code_exit_status((enum tm_code) - rc), a->again);
    if (rc == 0) take_new_ticket(a, &file);
    return rc;
}

static int serve(struct agent *a, struct tm_error *e)
{
    struct tm_notice_options notice;
    struct tm_agent_service service;
    const char *words[WORDS_MAX + 1];
    const char *variables[VARIABLES_MAX + 1];
    int rc = complete(a, e);
    if (rc == 0) rc = fill_notice(a, &notice, e);
    if (rc == 0) rc = count_workers(a, e);
    for (uint32_t i = 0; rc == 0 && i < a->workers; i++)
        rc = describe_worker(a, i, &a->each[i], e);
    if (rc != 0) return rc;
    fill_service(a, &notice, &service);
    rc = tell_fingerprint(a, &service.agent, e);
    if (rc == 0) rc = make_words(a, words, e);
    if (rc == 0) rc = make_variables(a, service.agent.fingerprint, variables, e);
    if (rc != 0) return rc;
    service.worker = words;
    service.variables = variables;
    return stay_and_serve(a, &service, e);
}

/* It could not get in: in a pod perhaps by the ticket of a run that is gone, while the kubelet does not show the next
 * one so far. True: that has come. */
static bool await_ticket(struct agent *a, int rc)
{
    if (a->file == NULL || a->env->variable(a->env, "KUBERNETES_SERVICE_HOST") == NULL) return false;
    struct told_file file = {.env = a->env, .path = a->file};
    int64_t limit_ms = a->r.give_up_ms;
    if (rc != -(int)TM_EIO && limit_ms > RENEW_WAIT_MS) limit_ms = RENEW_WAIT_MS; /* somebody did answer */
    int64_t until_ms = a->env->monotonic_ns(a->env) / 1000000 + limit_ms;
    memcpy(file.was, a->seen, sizeof file.was);
    while (*a->r.terminating == 0 && a->env->monotonic_ns(a->env) / 1000000 < until_ms) {
        take_new_ticket(a, &file);
        if (a->again[0] != '\0') return true;
        a->env->sleep_ms(a->env, RENEW_LOOK_MS);
    }
    return false;
}

static int serve_once(struct agent *a, struct tm_error *e)
{
    int rc = serve(a, e);
    if (a->joined)
        tm_join__remove(&a->join);
    else if (rc != 0 && await_ticket(a, rc))
        return 0;
    return rc;
}

int tm_job_agent_serve(struct tm_env *env, const struct tm_job_agent *request, struct tm_arena *arena,
                       struct tm_error *e)
{
    struct agent a = {.env = env, .arena = arena, .r = *request};
    int rc = serve_once(&a, e);
    while (rc == 0 && a.again[0] != '\0' && *request->terminating == 0) {
        const struct agent last = a;
        if (strcmp(last.again, last.seen) != 0)
            tm_log(TM_LOG_WARN, "this machine was away for too long, and joins again");
        a = (struct agent){.env = env, .arena = arena, .r = *request, .file = last.file};
        memcpy(a.seen, last.seen, sizeof a.seen);
        a.r.ticket = last.again;
        rc = serve_once(&a, e);
    }
    return rc;
}

#include "job/join.h"

#include "base/address.h"
#include "base/log.h"
#include "job/workdir.h"
#include "run/run_settings.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "store/data_set.h"
#include "wire/office_link.h"
#include "wire/ticket.h"

#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 60, BETWEEN_MS = 500, SILENT_WAITS = 6, KEY_MAX = 1 << 14, TEXT_MAX = 4 << 20 };

int tm_join__find_ticket(struct tm_env *env, const char *given, struct tm_arena *arena, const char **out,
                         struct tm_error *e)
{
    struct tm_text text;
    *out = NULL;
    if (given == NULL) given = env->variable(env, "TIDEMILL_TICKET");
    if (given == NULL || given[0] == '\0') return 0;
    tm_text_init(&text, TM_TICKET_MAX * 4);
    int rc = 0;
    if (given[0] == '@')
        rc = env->file_read(env, given + 1, &text, e);
    else
        tm_text_puts(&text, given);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) *out = tm_arena_strdup(arena, tm_text_string(&text));
    if (rc == 0 && *out == NULL) rc = tm_error_nomem(e);
    tm_text_deinit(&text);
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

void tm_join__remove(const struct tm_joined *joined)
{
    if (joined->dir != NULL) (void)nftw(joined->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A name that nobody can have taken before, in a folder for things that do not last. */
static int make_folder(struct tm_env *env, uint64_t job, struct tm_arena *arena, const char **out, struct tm_error *e)
{
    const char *under = env->variable(env, "TMPDIR");
    const char *dir =
        tm_arena_printf(arena, "%s/tidemill-%08" PRIx64 "-%016" PRIx64,
                        under != NULL && under[0] == '/' ? under : "/tmp", job >> 32, env->random_u64(env));
    if (dir == NULL) return tm_error_nomem(e);
    const char *logs = tm_arena_printf(arena, "%s/logs", dir);
    if (logs == NULL) return tm_error_nomem(e);
    int rc = env->folder_make(env, dir, e);
    if (rc == 0) *out = dir;
    return rc == 0 ? env->folder_make(env, logs, e) : rc; /* where the worker's output goes */
}

/* ---- getting in ---- */

/* One machine on its way. */
struct join {
    struct tm_env *env;
    struct tm_arena *arena;
    struct tm_ticket ticket;
    struct tm_tls *tls;
    struct tm_office_link *link;
    struct tm_text private_key;
    struct tm_text public_key;
    struct tm_joined made;
    char name[64]; /* of this machine */
};

static void find_name(struct join *j)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 12);
    if (j->env->file_read(j->env, "/proc/sys/kernel/hostname", &text, NULL) == 0)
        (void)snprintf(j->name, sizeof j->name, "%.*s", (int)strcspn(tm_text_string(&text), "\n"),
                       tm_text_string(&text));
    tm_text_deinit(&text);
}

static int ask(struct join *j, struct tm_arena *arena, Tmw__OfficeMessage **out, struct tm_error *e)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__Enrol body = TMW__ENROL__INIT;
    uint8_t channel[TM_TLS_BINDING_BYTES];
    uint8_t proof[TM_TICKET_PROOF_BYTES];
    int rc = tm_office_link_channel(j->link, channel, e);
    if (rc != 0) return rc;
    if (!tm_ticket_prove(j->ticket.secret, channel, sizeof channel, j->public_key.data, j->public_key.length, proof))
        return tm_error_nomem(e);
    message.body_case = TMW__OFFICE_MESSAGE__BODY_ENROL;
    message.enrol = &body;
    body.name = j->name;
    body.ticket = j->ticket.number;
    body.proof = (ProtobufCBinaryData){sizeof proof, proof};
    body.public_key = (ProtobufCBinaryData){j->public_key.length, (uint8_t *)j->public_key.data};
    rc = tm_office_link_send(j->link, &message, e);
    if (rc == 0) rc = tm_office_link_receive(j->link, arena, out, e);
    if (rc == 0 && (*out)->body_case != TMW__OFFICE_MESSAGE__BODY_ENROLLED)
        rc = tm_error_set(e, TM_EPEER, "the office answered something else");
    return rc;
}

static int write_file(struct join *j, const char *folder, const char *name, const void *data, size_t length,
                      struct tm_error *e)
{
    const char *path = tm_arena_printf(j->arena, "%s/%s", folder, name);
    if (path == NULL) return tm_error_nomem(e);
    return j->env->file_write_private(j->env, path, data, length, e);
}

/* "HOST:PORT"; without a host, the one by which we have come. */
static int find_coordinator(const struct join *j, const char *told, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (told[0] != ':') {
        (void)snprintf(out, TM_ADDRESS_MAX, "%.100s", told);
        return tm_address_split(out, host, port, e);
    }
    int rc = tm_address_split(j->ticket.address, host, port, e);
    if (rc == 0) tm_address_join(host, told + 1, out);
    return rc == 0 ? tm_address_split(out, host, port, e) : rc;
}

static int lay_down(struct join *j, const Tmw__Enrolled *got, struct tm_error *e)
{
    char address[TM_ADDRESS_MAX];
    char member[64];
    char path[TM_STATE_PATH_MAX];
    struct tm_text copies;
    (void)snprintf(member, sizeof member, TM_STATE_TLS_INSTANCE, got->instance);
    tm_state_tls_path(j->made.dir, member, path);
    j->made.tls = tm_arena_strdup(j->arena, path);
    j->made.host = tm_arena_strdup(j->arena, tm_office_link_own_host(j->link));
    j->made.instance = got->instance;
    j->made.anchor = got->anchor;
    j->made.stays = got->stays;
    j->made.office = tm_arena_strdup(j->arena, j->ticket.address);
    if (j->made.tls == NULL || j->made.host == NULL || j->made.office == NULL) return tm_error_nomem(e);
    tm_text_init(&copies, TM_STATE_PATH_MAX);
    tm_copy_store_office_place(j->ticket.address, path, &copies);
    int rc = tm_text_status(&copies, e);
    j->made.copies = rc == 0 ? tm_arena_strdup(j->arena, tm_text_string(&copies)) : NULL;
    tm_text_deinit(&copies);
    if (rc == 0 && j->made.copies == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = write_file(j, path, "node.key", j->private_key.data, j->private_key.length, e);
    if (rc == 0) rc = write_file(j, path, "node.pem", got->certificate.data, got->certificate.len, e);
    if (rc == 0) rc = write_file(j, path, "ca.pem", got->authority.data, got->authority.len, e);
    if (rc == 0) rc = tm_state_write(j->env, j->made.dir, TM_STATE_TOKEN, got->token, e);
    if (rc == 0) rc = find_coordinator(j, got->coordinator, address, e);
    return rc == 0 ? tm_state_write(j->env, j->made.dir, TM_STATE_ADDRESS, address, e) : rc;
}

/* One try; -TM_EBUSY and -TM_EIO: there may be another. */
static int enrol(struct join *j, struct tm_error *e)
{
    struct tm_arena arena;
    Tmw__OfficeMessage *answer = NULL;
    tm_office_link_close(j->link);
    j->link = NULL;
    int rc = tm_office_link_open(j->env, j->ticket.address, j->tls, &j->link, e);
    if (rc != 0) return rc;
    tm_arena_init(&arena, 8 << 20);
    rc = ask(j, &arena, &answer, e);
    if (rc == 0) rc = lay_down(j, answer->enrolled, e);
    tm_arena_deinit(&arena);
    return rc;
}

/* ---- what the job is ---- */

static int fetch_piece(struct join *j, enum tm_office_file file, struct tm_text *out, uint64_t *out_total,
                       struct tm_error *e)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__FileRequest body = TMW__FILE_REQUEST__INIT;
    Tmw__OfficeMessage *answer = NULL;
    struct tm_arena arena;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_FILE_REQUEST;
    message.file_request = &body;
    body.file = file;
    body.offset = out->length;
    tm_arena_init(&arena, 8 << 20);
    int rc = tm_office_link_send(j->link, &message, e);
    if (rc == 0) rc = tm_office_link_receive(j->link, &arena, &answer, e);
    if (rc == 0 && answer->body_case != TMW__OFFICE_MESSAGE__BODY_FILE_DATA)
        rc = tm_error_set(e, TM_EPEER, "the office answered something else");
    if (rc == 0) {
        const Tmw__FileData *data = answer->file_data;
        *out_total = data->total;
        if (data->data.len == 0 && out->length < data->total)
            rc = tm_error_set(e, TM_EIO, "a file that ends too early");
        if (data->data.len > 0) tm_text_append(out, (const char *)data->data.data, data->data.len);
    }
    tm_arena_deinit(&arena);
    return rc == 0 ? tm_text_status(out, e) : rc;
}

static int fetch(struct join *j, enum tm_office_file file, const char *name, size_t limit, struct tm_error *e)
{
    struct tm_text text;
    uint64_t total = 1;
    int rc = 0;
    tm_text_init(&text, limit);
    while (rc == 0 && text.length < total)
        rc = fetch_piece(j, file, &text, &total, e);
    if (rc == 0) rc = write_file(j, j->made.dir, name, text.data, text.length, e);
    tm_text_deinit(&text);
    return rc;
}

static int ask_data_set(struct join *j, struct tm_arena *arena, struct tm_grant *out, uint64_t *out_total,
                        struct tm_error *e)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__FileRequest body = TMW__FILE_REQUEST__INIT;
    Tmw__OfficeMessage *answer = NULL;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_FILE_REQUEST;
    message.file_request = &body;
    body.file = TM_OFFICE_DATA_SET;
    int rc = tm_office_link_send(j->link, &message, e);
    if (rc == 0) rc = tm_office_link_receive(j->link, arena, &answer, e);
    if (rc == 0 && answer->body_case != TMW__OFFICE_MESSAGE__BODY_STORE_URLS)
        rc = tm_error_set(e, TM_EPEER, "the office answered something else");
    if (rc != 0) return rc;
    tm_text_append(&out->urls, (const char *)answer->store_urls->urls.data, answer->store_urls->urls.len);
    *out_total = answer->store_urls->total;
    return tm_text_status(&out->urls, e);
}

/* A data set in a bucket, by URLs of the office: before this machine counts as here, while the others train. Where
 * there are none, or they do not lead there, it is looked for with what credentials this machine has. */
static int bring_data_set(struct join *j, struct tm_job *job, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_grant grant;
    struct tm_error own = {.text = ""};
    const char *path = NULL;
    uint64_t total = 0;
    tm_arena_init(&arena, 8 << 20);
    tm_grant_init(&grant);
    int rc = ask_data_set(j, &arena, &grant, &total, &own);
    if (rc == 0) {
        rc = tm_data_set_take(j->env, job->data, &grant, total, &job->arena, &path, &own);
        if (rc == -(int)TM_EPEER) rc = -(int)TM_ENONE; /* of the bucket, not of the office */
        if (rc == -(int)TM_ENONE)
            tm_log(TM_LOG_WARN, "data: %s is not read by the run's URLs: %s", job->data, own.text);
    }
    if (rc == 0) job->data = path;
    tm_grant_deinit(&grant);
    tm_arena_deinit(&arena);
    if (rc == -(int)TM_ENONE) return 0;
    if (rc != 0 && e != NULL) *e = own;
    return rc;
}

/* A command's folder is as it is on the coordinator's machine, where there is one; else it is brought. On a VM of a job
 * that brings none it is where setup ran, and the agent runs: what setup fetched is there. */
static int bring_folder(struct join *j, struct tm_run_settings *settings, struct tm_error *e)
{
    const char *folder = tm_workdir__find(&settings->job, j->arena);
    const char *here = tm_arena_printf(j->arena, "%s/workdir", j->made.dir);
    const char *file = tm_arena_printf(j->arena, "%s/workdir.tar", j->made.dir);
    if (here == NULL || file == NULL) return tm_error_nomem(e);
    if (folder == NULL || j->env->file_exists(j->env, folder)) return 0;
    if (settings->job.workdir == NULL && tm_job_rents_vms(&settings->job)) {
        char where[PATH_MAX];
        settings->brought = realpath(".", where) != NULL ? tm_arena_strdup(j->arena, where) : NULL;
        return settings->brought == NULL ? tm_error_nomem(e) : 0;
    }
    int rc = fetch(j, TM_OFFICE_DATA, "workdir.tar", TM_WORKDIR_MAX, e);
    if (rc == -(int)TM_ENOTFOUND)
        return tm_error_set(e, TM_ENOTFOUND,
                            "this machine has no folder %s, where the job's command runs; write workdir: . in the job "
                            "file, and it is brought along",
                            folder);
    if (rc == 0) rc = tm_workdir__unpack(j->env, file, here, e);
    settings->brought = here;
    return rc;
}

/* The settings say where the job's folder is on the coordinator's machine: here it is this one, for what was handed
 * over. */
static int settle(struct join *j, struct tm_error *e)
{
    struct tm_run_settings settings;
    struct tm_text text;
    struct tm_job *job = &settings.job;
    tm_run_settings_init(&settings);
    tm_text_init(&text, TEXT_MAX);
    int rc = tm_run_settings_load(j->env, j->made.dir, &settings, e);
    if (rc == 0 && job->engine == TM_JOB_ENGINE_COMMAND) {
        rc = bring_folder(j, &settings, e);
        if (rc == 0 && job->data != NULL && tm_data_set_is(job->data)) rc = bring_data_set(j, job, e);
    } else if (rc == 0) {
        const char *before = job->folder;
        int data = fetch(j, TM_OFFICE_DATA, "data", TM_JOIN_DATA_MAX, e);
        rc = data == -(int)TM_ENOTFOUND ? 0 : data;
        if (data == 0)
            job->data = tm_arena_printf(&job->arena, "%s/data", j->made.dir);
        else if (rc == 0 && job->data != NULL && tm_data_set_is(job->data)) /* too large to be handed over */
            rc = bring_data_set(j, job, e);
        else if (job->data != NULL && job->data[0] != '/' && before[0] != '\0' &&
                 strcmp(job->data, "kjv-new-testament") != 0)
            job->data = tm_arena_printf(&job->arena, "%s/%s", before, job->data);
        job->folder = j->made.dir;
    }
    if (rc == 0) tm_run_settings_print(&settings, &text);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(j->env, j->made.dir, TM_STATE_RUN, tm_text_string(&text), e);
    tm_text_deinit(&text);
    tm_run_settings_deinit(&settings);
    return rc;
}

static int fetch_job(struct join *j, struct tm_error *e)
{
    int rc = fetch(j, TM_OFFICE_JOB, "job.yaml", TM_JOB_BYTES_MAX, e);
    if (rc == 0) rc = fetch(j, TM_OFFICE_RUN, "run.yaml", TEXT_MAX, e);
    return rc == 0 ? settle(j, e) : rc;
}

static int try_all(struct join *j, const volatile int *terminating, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    bool told = false;
    int waits = 0;
    int rc = -(int)TM_EIO;
    for (int unheard = 0; unheard < TRIES;) {
        if (*terminating != 0) return tm_error_set(e, TM_ECANCELED, "this machine goes before it could join");
        rc = enrol(j, &own);
        if (rc == 0) rc = fetch_job(j, &own); /* a connection that is lost meanwhile: all again, with the same key */
        if (rc != -(int)TM_EBUSY && rc != -(int)TM_EIO) break;
        unheard = rc == -(int)TM_EIO ? unheard + 1 : 0;
        bool soon = rc == -(int)TM_EBUSY && ++waits <= SILENT_WAITS; /* a run that has just begun wants nobody yet */
        if (!told && !soon) tm_log(TM_LOG_WARN, "waiting to join: %s", own.text);
        told = told || !soon;
        j->env->sleep_ms(j->env, BETWEEN_MS);
    }
    if (rc != 0 && e != NULL) *e = own;
    return rc;
}

int tm_join__run(struct tm_env *env, const char *ticket, const volatile int *terminating, struct tm_arena *arena,
                 struct tm_joined *out, struct tm_error *e)
{
    struct join j = {.env = env, .arena = arena};
    find_name(&j);
    tm_text_init(&j.private_key, KEY_MAX);
    tm_text_init(&j.public_key, KEY_MAX);
    int rc = tm_ticket_parse(ticket, strlen(ticket), &j.ticket, e);
    if (rc == 0) rc = tm_tls_create_pinned(j.ticket.authority, &j.tls, e);
    if (rc == 0) rc = tm_tls_make_key(&j.private_key, &j.public_key, e);
    if (rc == 0) rc = make_folder(env, j.ticket.job, arena, &j.made.dir, e);
    if (rc == 0) rc = try_all(&j, terminating, e);
    if (rc != 0) tm_join__remove(&j.made);
    tm_office_link_close(j.link);
    tm_tls_destroy(j.tls);
    tm_text_deinit(&j.private_key);
    tm_text_deinit(&j.public_key);
    if (rc != 0) return tm_error_wrap(e, rc, "joining");
    *out = j.made;
    return 0;
}

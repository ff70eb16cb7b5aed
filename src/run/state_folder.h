/* The folder of a run: everything that a job leaves on this machine, and how its processes find each other.
 *
 *     job.yaml       the job as it was given                 run.yaml      how it is run (run_settings.h)
 *     token          the join token, for the owner alone     address       HOST:PORT of the coordinator
 *     api            where the status API is, and its credential, for the owner alone
 *     record         the job's record (store/record.h)       copies/       copy sets in files
 *     tls/           a certificate for each member           logs/         outputs of coordinator and instances
 *     cloud/         of the cloud: its state, what it has billed (account), workers' pids
 *     owner          pid, start and mark of the program that runs it; gone when none does
 *     result/        the weights at the end, as a checkpoint
 *     metrics.jsonl  every committed step once, where the job has loggers (step_log.h)
 *     away           another machine runs it: the place of its books (run_home.h)
 *     summary.json, report.html, measured.tmcost, prediction.json (what the plan said)
 *
 * Only one program runs a job. One that was killed leaves `owner` behind: the next finds it, ends all processes with
 * its mark, and takes over. */
#ifndef TM_RUN_STATE_FOLDER_H
#define TM_RUN_STATE_FOLDER_H

#include "base/env.h"

#include <inttypes.h>

enum { TM_STATE_PATH_MAX = 4096, TM_STATE_TOKEN_MAX = 128, TM_STATE_MARK_MAX = 64 };

/* X(name, file, a folder?) */
#define TM_STATE_FILES(X)                                                                                              \
    X(JOB, "job.yaml")                                                                                                 \
    X(RUN, "run.yaml")                                                                                                 \
    X(TOKEN, "token")                                                                                                  \
    X(ADDRESS, "address")                                                                                              \
    X(ADDRESS_HERE, "address.here")                                                                                    \
    X(API, "api")                                                                                                      \
    X(OFFICE, "office")                                                                                                \
    X(RECORD, "record")                                                                                                \
    X(COPIES, "copies")                                                                                                \
    X(TLS, "tls")                                                                                                      \
    X(LOGS, "logs")                                                                                                    \
    X(CLOUD, "cloud")                                                                                                  \
    X(ACCOUNT, "cloud/account")                                                                                        \
    X(LOCK, "lock")                                                                                                    \
    X(OWNER, "owner")                                                                                                  \
    X(RESULT, "result")                                                                                                \
    X(SUMMARY, "summary.json")                                                                                         \
    X(REPORT, "report.html")                                                                                           \
    X(PREDICTION, "prediction.json")                                                                                   \
    X(COST, "measured.tmcost")                                                                                         \
    X(LIFETIMES, "lifetimes.csv")                                                                                      \
    X(METRICS, "metrics.jsonl")                                                                                        \
    X(AWAY, "away")                                                                                                    \
    X(AWAY_CALL, "away.call")

enum tm_state_file {
#define TM_STATE_FILE_ENUM(name, text) TM_STATE_##name,
    TM_STATE_FILES(TM_STATE_FILE_ENUM)
#undef TM_STATE_FILE_ENUM
        TM_STATE_FILE_COUNT
};

/* "DIR/token" and so on. A path that does not fit is cut, and then not found: check the folder with tm_state_check. */
void tm_state_path(const char *dir, enum tm_state_file file, char out[TM_STATE_PATH_MAX]);
/* "DIR/tls/MEMBER": the folder with that member's certificate. */
#define TM_STATE_TLS_COORDINATOR "coordinator"
#define TM_STATE_TLS_CLOUD       "cloud"
#define TM_STATE_TLS_OFFICE      "office"
#define TM_STATE_TLS_INSTANCE    "instance-%" PRIu64
void tm_state_tls_path(const char *dir, const char *member, char out[TM_STATE_PATH_MAX]);
/* -TM_ELIMIT: the folder's name is too long. */
int tm_state_check(const char *dir, struct tm_error *e);

/* A small text file of the folder, without the line's end; `size` with the NUL. -TM_EINPUT: longer than that, or empty.
 */
int tm_state_read(struct tm_env *env, const char *dir, enum tm_state_file file, char *out, size_t size,
                  struct tm_error *e);
/* The same the other way. Everything in the folder is for its owner alone. */
int tm_state_write(struct tm_env *env, const char *dir, enum tm_state_file file, const char *text, struct tm_error *e);

/* ---- the join token: "JOB-SECRET", both hexadecimal; it names the job and lets one in ---- */

/* Reads the folder's token, or makes one where there is none. */
int tm_state_token(struct tm_env *env, const char *dir, char out[TM_STATE_TOKEN_MAX], struct tm_error *e);
/* Any file that holds one; -TM_EINPUT: it does not. */
int tm_token_read(struct tm_env *env, const char *path, char out[TM_STATE_TOKEN_MAX], struct tm_error *e);
/* The number of the job that a token is for; -TM_EINPUT: it is no token of ours. */
int tm_token_job(const char *token, uint64_t *out_job, struct tm_error *e);

/* ---- who runs it ---- */

struct tm_state_owner {
    int pid;
    int64_t start;                /* when it started: pid and start name one process */
    int lock;                     /* of whoever has it: held as long as it runs */
    char mark[TM_STATE_MARK_MAX]; /* "TIDEMILL_RUN_MARK=...": among the variables of all that it starts */
};

/* 0: nobody has it; -TM_EBUSY: who does. */
int tm_state_free(struct tm_env *env, const char *dir, struct tm_error *e);
/* Takes the folder: -TM_EBUSY where another program that lives has it. What one that is gone left is ended first, and
 * counted. */
int tm_state_own(struct tm_env *env, const char *dir, struct tm_state_owner *out, int *out_leftovers,
                 struct tm_error *e);
/* Gives it back. */
void tm_state_disown(struct tm_env *env, const char *dir, const struct tm_state_owner *owner);
/* Who has it; -TM_ENOTFOUND: nobody that lives. */
int tm_state__owner(struct tm_env *env, const char *dir, struct tm_state_owner *out, struct tm_error *e);

/* ---- workers, for whoever wants to end one: agents write down "PID START" ---- */

/* Where its output goes: "DIR/logs/worker-N.log". */
void tm_state_output_path(const char *dir, uint64_t instance, char out[TM_STATE_PATH_MAX]);
void tm_state_worker_path(const char *dir, uint64_t instance, char out[TM_STATE_PATH_MAX]);
/* -TM_ENOTFOUND: none runs there now. */
int tm_state_worker(struct tm_env *env, const char *dir, uint64_t instance, int *out_pid, struct tm_error *e);

#endif

/* One process of a small real cluster, for tests/cluster/run: coordinator, agent, or a worker of the built-in engine.
 * FOLDER holds the job (job.yaml), and gets all that the processes leave.
 *
 *   cluster-node coordinator FOLDER LISTEN [tls]
 *   cluster-node agent FOLDER ID [tls]          starts `cluster-node worker` again and again
 *   cluster-node worker FOLDER ID INCARNATION [tls]
 *   cluster-node hash FOLDER                    of the weights in the newest copy set
 *   cluster-node events FOLDER                  the record, as text
 *   cluster-node certificates FOLDER            a job's own authority and certificate */
#include "base/alloc.h"
#include "base/log.h"
#include "engine/elastic.h"
#include "engine/elastic_result.h"
#include "engine/trainer.h"
#include "run/serve.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };
static const char token[] = "token-of-the-test";
static volatile int terminating;

static void on_term(int number)
{
    (void)number;
    terminating++;
}

static void path_in(const char *folder, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s", folder, name);
}

static int load_job(const char *folder, struct tm_arena *arena, struct tm_train_job *out)
{
    char path[PATH_BYTES];
    struct tm_job job;
    struct tm_error e = {.text = ""};
    path_in(folder, "job.yaml", path);
    tm_job_init(&job);
    tm_arena_init(arena, 1 << 20);
    int rc = tm_job_load(tm_env_real(), path, &job, &e);
    if (rc == 0) rc = tm_train_job_of(&job, arena, out, &e);
    tm_job_deinit(&job);
    if (rc != 0) fprintf(stderr, "%s\n", e.text);
    return rc;
}

static bool read_address(const char *folder, char out[256])
{
    char path[PATH_BYTES];
    path_in(folder, "address", path);
    FILE *file = fopen(path, "r");
    bool good = file != NULL && fgets(out, 256, file) != NULL;
    if (file != NULL) (void)fclose(file);
    return good;
}

/* ---- the worker ---- */

static int worker(const char *folder, uint64_t id, uint64_t incarnation, bool tls)
{
    char address[256] = "";
    char copies[PATH_BYTES];
    char certificates[PATH_BYTES];
    struct tm_error e = {.text = ""};
    struct tm_arena arena;
    struct tm_train_job job;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive its agent */
    path_in(folder, "copies", copies);
    path_in(folder, "tls", certificates);
    if (!read_address(folder, address) || load_job(folder, &arena, &job) != 0) return 1;
    struct tm_elastic_options options = {.job = &job,
                                         .library = {.size = sizeof options.library,
                                                     .coordinator = address,
                                                     .token = token,
                                                     .copy_folder = copies,
                                                     .tls_folder = tls ? certificates : NULL,
                                                     .job = 7,
                                                     .instance = id,
                                                     .incarnation = incarnation}};
    int rc = tm_elastic_worker(tm_env_real(), &options, &e);
    if (rc != 0) fprintf(stderr, "worker: %s\n", e.text);
    tm_arena_deinit(&arena);
    return rc == 0 ? 0 : 1;
}

static int hash(const char *folder)
{
    char copies[PATH_BYTES];
    char text[33];
    struct tm_error e = {.text = ""};
    struct tm_arena arena;
    struct tm_train_job job;
    struct tm_elastic_result result;
    path_in(folder, "copies", copies);
    if (load_job(folder, &arena, &job) != 0) return 1;
    int rc = tm_elastic_weights_hash(tm_env_real(), copies, &job, &result, &e);
    if (rc == 0)
        printf("step %" PRIu64 " weights %s\n", result.step, tm_hash_print(result.weights_hash, text));
    else
        fprintf(stderr, "%s\n", e.text);
    tm_arena_deinit(&arena);
    return rc == 0 ? 0 : 1;
}

/* ---- coordinator and agent ---- */

static int coordinator(const char *folder, const char *listen, bool tls)
{
    struct tm_arena arena;
    struct tm_train_job job;
    char record[PATH_BYTES];
    char copies[PATH_BYTES];
    char address[PATH_BYTES];
    char certificates[PATH_BYTES];
    struct tm_error e = {.text = ""};
    path_in(folder, "record", record);
    path_in(folder, "copies", copies);
    path_in(folder, "address", address);
    path_in(folder, "tls", certificates);
    if (load_job(folder, &arena, &job) != 0) return 1;
    struct tm_use_all rule = {.stages = 2, .workers_min = 1, .copy_every_ms = 1500};
    struct tm_coordinator_service service = {.coordinator = {.job = 7,
                                                             .token = token,
                                                             .layers = tm_elastic_layers(&job),
                                                             .steps = (uint64_t)job.steps,
                                                             .micro_batches = tm_elastic_micro_batches(&job),
                                                             .heartbeat_ms = 250,
                                                             .lease_ms = 2000,
                                                             .orphan_ms = 20000,
                                                             .resend_ms = 500,
                                                             .settle_ms = 300,
                                                             .follow_limit_ms = 5000,
                                                             .drain_limit_ms = 5000,
                                                             .fetch_limit_ms = 8000,
                                                             .stall_ms = 8000,
                                                             .quarantine_ms = 5000,
                                                             .copy_limit_ms = 10000,
                                                             .false_alarm_ms = 30000,
                                                             .durable_wait_ms = 600000,
                                                             .copies = 1,
                                                             .copies_to_files = true,
                                                             .sets_kept = 2,
                                                             .fresh = access(record, F_OK) != 0},
                                             .decider = tm_decider_use_all(&rule),
                                             .listen = listen,
                                             .record = record,
                                             .copy_folder = copies,
                                             .tls_folder = tls ? certificates : NULL,
                                             .address_file = address,
                                             .stop = &terminating};
    int rc = tm_coordinator_serve(tm_env_real(), &service, &e);
    if (rc != 0) fprintf(stderr, "coordinator: %s\n", e.text);
    tm_arena_deinit(&arena);
    return rc == 0 ? 0 : 1;
}

static int agent(const char *program, const char *folder, const char *id, bool tls)
{
    char address[256] = "";
    char certificates[PATH_BYTES];
    struct tm_error e = {.text = ""};
    path_in(folder, "tls", certificates);
    if (!read_address(folder, address)) return 1;
    const char *const words[] = {program, "worker", folder, id, "%u", tls ? "tls" : NULL, NULL};
    struct tm_agent_service service = {.agent = {.job = 7,
                                                 .id = strtoull(id, NULL, 10),
                                                 .token = token,
                                                 .heartbeat_ms = 500,
                                                 .backoff_ms = 200,
                                                 .restarts_max = 10,
                                                 .restart_window_ms = 600000},
                                       .coordinator = address,
                                       .tls_folder = tls ? certificates : NULL,
                                       .worker = words,
                                       .notice_ms = 8000,
                                       .terminating = &terminating};
    int rc = tm_agent_serve(tm_env_real(), &service, &e);
    if (rc != 0) fprintf(stderr, "agent: %s\n", e.text);
    return rc == 0 ? 0 : 1;
}

/* ---- the record as text ---- */

static int print_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_text words;
    (void)context;
    (void)sequence;
    tm_text_init(&words, 4096);
    tm_run_event_words(event, &words);
    printf("%" PRId64 " %s: %s\n", event->at_ms, tm_run_event_kind(event), tm_text_string(&words));
    int rc = tm_text_status(&words, e);
    tm_text_deinit(&words);
    return rc;
}

static int events(const char *folder)
{
    char path[PATH_BYTES];
    struct tm_error e = {.text = ""};
    path_in(folder, "record", path);
    int rc = tm_run_record_each(path, 0, SIZE_MAX, print_event, NULL, &e);
    if (rc != 0) fprintf(stderr, "%s\n", e.text);
    return rc == 0 ? 0 : 1;
}

static int certificates(const char *folder)
{
    struct tm_error e = {.text = ""};
    int rc = tm_tls_make_job(tm_env_real(), folder, &e);
    if (rc != 0) fprintf(stderr, "%s\n", e.text);
    return rc == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_term};
    bool tls = argc > 1 && strcmp(argv[argc - 1], "tls") == 0;
    const char *what = argc > 2 ? argv[1] : "";
    (void)signal(SIGPIPE, SIG_IGN);
    tm_log_set_level(TM_LOG_INFO);
    if (strcmp(what, "worker") != 0) (void)sigaction(SIGTERM, &action, NULL);
    if (strcmp(what, "coordinator") == 0 && argc > 3) return coordinator(argv[2], argv[3], tls);
    if (strcmp(what, "agent") == 0 && argc > 3) return agent(argv[0], argv[2], argv[3], tls);
    if (strcmp(what, "worker") == 0 && argc > 4)
        return worker(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), tls);
    if (strcmp(what, "hash") == 0) return hash(argv[2]);
    if (strcmp(what, "events") == 0) return events(argv[2]);
    if (strcmp(what, "certificates") == 0) return certificates(argv[2]);
    fprintf(stderr, "use: see the head of cluster_node.c\n");
    return 2;
}

/* Coordinator and agents for tests of the Python package (tests/torch/run): like those of a run, with times that suit a
 * test and a layout that the test says.
 *
 *   torch-node coordinator FOLDER LISTEN STEPS LAYERS MICRO_BATCHES STAGES
 *   torch-node agent FOLDER ID COMMAND...     starts COMMAND again and again, with a worker's variables
 *   torch-node events FOLDER                  the record, as text
 *
 * TORCH_NODE_COPY_MS: time between copy sets; 1500 where it is not said. */
#include "run/serve.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, VARIABLE_BYTES = 1200 };
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

static int coordinator(char **words)
{
    char record[PATH_BYTES];
    char copies[PATH_BYTES];
    char address[PATH_BYTES];
    struct tm_error e = {.text = ""};
    path_in(words[0], "record", record);
    path_in(words[0], "copies", copies);
    path_in(words[0], "address", address);
    const char *copy_ms = getenv("TORCH_NODE_COPY_MS");
    struct tm_use_all rule = {.stages = (uint32_t)strtoul(words[5], NULL, 10),
                              .workers_min = 1,
                              .copy_every_ms = copy_ms == NULL ? 1500 : strtol(copy_ms, NULL, 10)};
    struct tm_coordinator_service service = {.coordinator = {.job = 7,
                                                             .token = token,
                                                             .layers = (uint32_t)strtoul(words[3], NULL, 10),
                                                             .steps = strtoull(words[2], NULL, 10),
                                                             .micro_batches = (uint32_t)strtoul(words[4], NULL, 10),
                                                             .heartbeat_ms = 250,
                                                             .lease_ms = 2000,
                                                             .orphan_ms = 30000,
                                                             .resend_ms = 500,
                                                             .settle_ms = 300,
                                                             .drain_limit_ms = 15000,
                                                             .fetch_limit_ms = 15000,
                                                             .follow_limit_ms = 15000,
                                                             .stall_ms = 30000,
                                                             .quarantine_ms = 5000,
                                                             .copy_limit_ms = 15000,
                                                             .false_alarm_ms = 60000,
                                                             .durable_wait_ms = 600000,
                                                             .copies = 1,
                                                             .copies_to_files = true,
                                                             .speeds_alike = getenv("TORCH_NODE_SPEEDS") == NULL,
                                                             .sets_kept = 2,
                                                             .fresh = access(record, F_OK) != 0},
                                             .decider = tm_decider_use_all(&rule),
                                             .listen = words[1],
                                             .record = record,
                                             .copy_folder = copies,
                                             .address_file = address,
                                             .stop = &terminating};
    int rc = tm_coordinator_serve(tm_env_real(), &service, &e);
    if (rc != 0) fprintf(stderr, "coordinator: %s\n", e.text);
    return rc == 0 ? 0 : 1;
}

static int agent(const char *folder, const char *id, const char *const *command)
{
    char path[PATH_BYTES];
    char address[256] = "";
    char variables[5][VARIABLE_BYTES];
    struct tm_error e = {.text = ""};
    path_in(folder, "address", path);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(address, sizeof address, file) == NULL) return 1;
    (void)fclose(file);
    (void)snprintf(variables[0], VARIABLE_BYTES, "TIDEMILL_COORDINATOR=%s", address);
    (void)snprintf(variables[1], VARIABLE_BYTES, "TIDEMILL_TOKEN_FILE=%s/token", folder);
    (void)snprintf(variables[2], VARIABLE_BYTES, "TIDEMILL_JOB=7");
    (void)snprintf(variables[3], VARIABLE_BYTES, "TIDEMILL_INSTANCE_ID=%s", id);
    (void)snprintf(variables[4], VARIABLE_BYTES, "TIDEMILL_COPIES=%s/copies", folder);
    path_in(folder, "token", path);
    file = fopen(path, "w");
    if (file == NULL || fputs(token, file) < 0 || fclose(file) != 0) return 1;
    const char *const list[] = {variables[0], variables[1], variables[2], variables[3], variables[4], NULL};
    struct tm_agent_service service = {.agent = {.job = 7,
                                                 .id = strtoull(id, NULL, 10),
                                                 .token = token,
                                                 .heartbeat_ms = 500,
                                                 .backoff_ms = 200,
                                                 .restarts_max = 10,
                                                 .restart_window_ms = 600000},
                                       .coordinator = address,
                                       .worker = command,
                                       .variables = list,
                                       .notice_ms = 20000,
                                       .terminating = &terminating};
    int rc = tm_agent_serve(tm_env_real(), &service, &e);
    if (rc != 0) fprintf(stderr, "agent: %s\n", e.text);
    return rc == 0 ? 0 : 1;
}

static int print_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_text words;
    (void)context;
    (void)sequence;
    tm_text_init(&words, 1 << 16);
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

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_term};
    const char *what = argc > 2 ? argv[1] : "";
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigaction(SIGTERM, &action, NULL);
    if (strcmp(what, "coordinator") == 0 && argc == 8) return coordinator(argv + 2);
    if (strcmp(what, "agent") == 0 && argc > 4) return agent(argv[2], argv[3], (const char *const *)(argv + 4));
    if (strcmp(what, "events") == 0) return events(argv[2]);
    fprintf(stderr, "use: see the head of torch_node.c\n");
    return 2;
}

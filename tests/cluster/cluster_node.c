/* One process of a small real cluster, for tests/cluster/run: coordinator, agent, or a worker with a toy engine over
 * include/tidemill.h. The engine's state is a hash chain, so the weights after the last step say whether every step was
 * applied once, in order, whatever was killed meanwhile.
 *
 *   cluster-node coordinator FOLDER LISTEN STEPS [tls]
 *   cluster-node agent FOLDER ID [tls]          starts `cluster-node worker` again and again
 *   cluster-node worker FOLDER ID INCARNATION [tls]
 *   cluster-node reference STEPS                the hashes that must come out
 *   cluster-node events FOLDER                  the record, as text
 *   cluster-node certificates FOLDER            a job's own authority and certificate */
#include "base/alloc.h"
#include "run/serve.h"
#include "wire/hash.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <tidemill.h>
#include <time.h>
#include <unistd.h>

enum { LAYERS = 8, WORDS = 40000, MICRO_BATCHES = 8, STEP_MS = 60, PATH_BYTES = 1024 };
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

/* ---- the toy engine ---- */

struct toy {
    uint64_t *layers[LAYERS];
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + 0x9E3779B97F4A7C15U + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    return sizeof(uint64_t) * (WORDS + layer);
}

static int init_layer(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    (void)context;
    uint64_t *words = out;
    for (uint64_t w = 0; w < bytes / sizeof *words; w++)
        words[w] = mix(layer + 1, w);
    return 0;
}

static void *layer_memory(void *context, uint32_t layer, uint64_t bytes)
{
    struct toy *toy = context;
    toy->layers[layer] = malloc(bytes);
    return toy->layers[layer];
}

static void drop_layer(void *context, uint32_t layer)
{
    struct toy *toy = context;
    free(toy->layers[layer]);
    toy->layers[layer] = NULL;
}

static uint64_t gradient_of(const uint64_t *words, uint32_t layer, uint64_t step)
{
    uint64_t sum = 0;
    for (uint64_t m = 0; m < MICRO_BATCHES; m++)
        sum += mix(words[0] ^ words[WORDS - 1], step * MICRO_BATCHES + m + layer);
    return sum;
}

static double norm_of(uint64_t gradient)
{
    return (double)(gradient >> 11) * 0x1p-53;
}

static void apply_to(uint64_t *words, uint32_t layer, uint64_t step, double norm)
{
    uint64_t bits;
    uint64_t gradient = gradient_of(words, layer, step);
    memcpy(&bits, &norm, sizeof bits);
    for (uint64_t w = 0; w < WORDS + layer; w++)
        words[w] = mix(mix(words[w], gradient + w), bits);
}

static void print_hash(FILE *out, uint32_t layer, const uint64_t *words)
{
    struct tm_hash hash = tm_hash_of(words, layer_bytes(NULL, layer));
    fprintf(out, "layer %u %016" PRIx64 "%016" PRIx64 "\n", layer, hash.high, hash.low);
}

static int reference(uint64_t steps)
{
    struct toy toy = {{NULL}};
    for (uint32_t l = 0; l < LAYERS; l++)
        (void)init_layer(&toy, l, layer_memory(&toy, l, layer_bytes(NULL, l)), layer_bytes(NULL, l));
    for (uint64_t step = 1; step <= steps; step++) {
        double norm = 0;
        for (uint32_t l = 0; l < LAYERS; l++)
            norm += norm_of(gradient_of(toy.layers[l], l, step));
        for (uint32_t l = 0; l < LAYERS; l++)
            apply_to(toy.layers[l], l, step, norm);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        print_hash(stdout, l, toy.layers[l]);
        drop_layer(&toy, l);
    }
    return 0;
}

/* ---- the worker ---- */

/* Works for a while, or until the step is given up. */
static bool compute(tidemill *t)
{
    for (int i = 0; i < STEP_MS; i += 5) {
        struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL);
        if (tidemill_cancelled(t)) return false;
    }
    return true;
}

static void do_work(tidemill *t, struct toy *toy, const struct tidemill_work *work)
{
    if (work->kind == TIDEMILL_APPLY) {
        for (uint32_t l = 0; l < LAYERS; l++)
            if (toy->layers[l] != NULL) apply_to(toy->layers[l], l, work->step, work->norm);
        printf("applied %" PRIu64 " of %ux%u\n", work->step, work->pipelines, work->stages);
        (void)fflush(stdout);
        (void)tidemill_applied(t, work->step);
        return;
    }
    struct tidemill_norm norms[LAYERS];
    size_t count = 0;
    for (uint32_t l = work->first_layer; l < work->last_layer; l++)
        norms[count++] = (struct tidemill_norm){.layer = l, .sum = norm_of(gradient_of(toy->layers[l], l, work->step))};
    if (compute(t)) (void)tidemill_held(t, work->step, norms, count);
}

static int worker(const char *folder, uint64_t id, uint64_t incarnation, bool tls)
{
    char address[256] = "";
    char path[PATH_BYTES];
    char copies[PATH_BYTES];
    char certificates[PATH_BYTES];
    char error[512];
    struct toy toy = {{NULL}};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive its agent */
    path_in(folder, "address", path);
    path_in(folder, "copies", copies);
    path_in(folder, "tls", certificates);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(address, sizeof address, file) == NULL) return 1;
    (void)fclose(file);
    struct tidemill_options options = {.size = sizeof options,
                                       .coordinator = address,
                                       .token = token,
                                       .kernel_class = "toy",
                                       .copy_folder = copies,
                                       .tls_folder = tls ? certificates : NULL,
                                       .job = 7,
                                       .instance = id,
                                       .incarnation = incarnation};
    struct tidemill_engine engine = {.context = &toy,
                                     .layer_bytes = layer_bytes,
                                     .init_layer = init_layer,
                                     .layer_memory = layer_memory,
                                     .drop_layer = drop_layer};
    tidemill *t = tidemill_open(&options, &engine, error, sizeof error);
    if (t == NULL) {
        fprintf(stderr, "worker: %s\n", error);
        return 1;
    }
    struct tidemill_work work;
    int rc = 0;
    while ((rc = tidemill_next(t, &work)) == 0)
        do_work(t, &toy, &work);
    (void)snprintf(path, sizeof path, "%s/weights-%" PRIu64, folder, id);
    file = fopen(path, "w");
    for (uint32_t l = 0; l < LAYERS && file != NULL; l++) {
        if (toy.layers[l] != NULL) print_hash(file, l, toy.layers[l]);
        drop_layer(&toy, l);
    }
    if (file != NULL) (void)fclose(file);
    tidemill_close(t);
    return rc == 1 ? 0 : 1;
}

/* ---- coordinator and agent ---- */

static int coordinator(const char *folder, const char *listen, uint64_t steps, bool tls)
{
    char record[PATH_BYTES];
    char copies[PATH_BYTES];
    char address[PATH_BYTES];
    char certificates[PATH_BYTES];
    struct tm_error e = {.text = ""};
    path_in(folder, "record", record);
    path_in(folder, "copies", copies);
    path_in(folder, "address", address);
    path_in(folder, "tls", certificates);
    struct tm_use_all rule = {.stages = 2, .workers_min = 1, .copy_every_ms = 1500};
    struct tm_coordinator_service service = {.coordinator = {.job = 7,
                                                             .token = token,
                                                             .layers = LAYERS,
                                                             .steps = steps,
                                                             .micro_batches = MICRO_BATCHES,
                                                             .heartbeat_ms = 250,
                                                             .lease_ms = 2000,
                                                             .orphan_ms = 20000,
                                                             .resend_ms = 500,
                                                             .settle_ms = 300,
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
    return rc == 0 ? 0 : 1;
}

static int agent(const char *program, const char *folder, const char *id, bool tls)
{
    char path[PATH_BYTES];
    char address[256] = "";
    char certificates[PATH_BYTES];
    struct tm_error e = {.text = ""};
    path_in(folder, "address", path);
    path_in(folder, "tls", certificates);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(address, sizeof address, file) == NULL) return 1;
    (void)fclose(file);
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
    if (strcmp(what, "worker") != 0) (void)sigaction(SIGTERM, &action, NULL);
    if (strcmp(what, "coordinator") == 0 && argc > 4)
        return coordinator(argv[2], argv[3], strtoull(argv[4], NULL, 10), tls);
    if (strcmp(what, "agent") == 0 && argc > 3) return agent(argv[0], argv[2], argv[3], tls);
    if (strcmp(what, "worker") == 0 && argc > 4)
        return worker(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), tls);
    if (strcmp(what, "reference") == 0) return reference(strtoull(argv[2], NULL, 10));
    if (strcmp(what, "events") == 0) return events(argv[2]);
    if (strcmp(what, "certificates") == 0) return certificates(argv[2]);
    fprintf(stderr, "use: see the head of cluster_node.c\n");
    return 2;
}

/* A large run as watchers see it: a real record in a state folder of its own, and the API that a coordinator serves,
 * but nobody trains. Instances come and go, by preemption with and without notice, in three pools.
 *
 *   tidemill-big-run FOLDER INSTANCES EVENTS [still]
 *
 * Writes EVENTS events, says "ready", and goes on with some forty a second until it gets a line's end or its end of
 * input. still: the record is all; it ends. */
#include "api/api_server.h"
#include "run/state_folder.h"
#include "run/test/record_samples.h"
#include "store/record.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum {
    INSTANCES_MAX = 1000,
    STAGES = 4,
    POOLS = 3,
    PULSE_MS = 25,
    PULSES_A_BATCH = 8,
    STEP_MS = 200,
    CHANGES = 5,
    NOTICE_STEPS = 18
};

struct big {
    struct tm_run_tap tap;
    struct tm_record *record;
    struct tm_run_watch *watch;
    uint32_t want[POOLS];
    struct samples samples;
    struct tm_error *e;
    uint64_t here[INSTANCES_MAX]; /* who is in each place */
    uint32_t count;
    uint64_t next;    /* instance */
    uint64_t noticed; /* its place + 1; 0: none */
    uint64_t leaves;  /* the batch that it leaves with */
    uint64_t step;    /* committed */
    uint64_t written; /* events */
    uint64_t batches;
    uint64_t seed;
    uint64_t generation;
    int64_t begun_ms;
};

static const char *const pool_names[POOLS] = {"aws/us-east-1a/g5.xlarge/spot", "gcp/europe-west4/a2-highgpu-1g/spot",
                                              "aws/us-east-1/g5.xlarge/on-demand"};
static const uint64_t pool_prices[POOLS] = {402000, 1100000, 1006000};

static uint32_t pool_of(uint64_t id)
{
    return id % 10 == 0 ? 2 : (uint32_t)(id % 2);
}

static uint64_t draw(struct big *b, uint64_t below)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (b->seed >> 33) % below;
}

/* What was made goes to the record and to the watch. */
static int flush(struct big *b)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < b->samples.count; i++) {
        struct tm_text text;
        uint64_t number = 0;
        tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
        tm_record_event_pack(b->samples.events[i], &text);
        rc = tm_text_status(&text, b->e);
        if (rc == 0) rc = b->record->append(b->record, text.data, text.length, false, &number, b->e);
        if (rc == 0) rc = tm_run_watch_take(b->watch, number, b->samples.events[i], b->e);
        b->tap.sequence = number;
        b->written++;
        tm_text_deinit(&text);
    }
    int64_t at_ms = b->samples.at_ms;
    samples_deinit(&b->samples);
    samples_init(&b->samples);
    b->samples.at_ms = at_ms;
    return rc;
}

static int64_t cloud_ms(const struct big *b)
{
    return (b->samples.at_ms - b->begun_ms) * 60;
}

static Tmw__Instance *tell(struct big *b, uint64_t id, int64_t start_ms, int64_t end_ms)
{
    Tmw__Instance *instance = add_instance(&b->samples, id, start_ms, end_ms);
    uint64_t price = pool_prices[pool_of(id)];
    instance->pool = pool_of(id);
    instance->spot = pool_of(id) != 2;
    instance->zone = 1 + pool_of(id);
    instance->price_microusd_h = price;
    instance->bill_microusd = (uint64_t)(end_ms > start_ms ? end_ms - start_ms : 0) * price / 3600000;
    return instance;
}

static void come(struct big *b, uint32_t place)
{
    b->here[place] = b->next++;
    (void)tell(b, b->here[place], cloud_ms(b) + 1, 0);
    (void)add_arrival(&b->samples, b->here[place]);
}

static void go(struct big *b, uint32_t place, bool announced)
{
    (void)add_loss(&b->samples, b->here[place], announced);
    tell(b, b->here[place], 1 + cloud_ms(b) / 2, cloud_ms(b) + 1)->announced = announced;
}

static void change(struct big *b, enum tm_change_cause cause)
{
    b->generation++;
    add_fence(&b->samples, b->generation, cause);
    b->samples.at_ms += 20;
    (void)add_start(&b->samples, b->generation, b->step, b->count / STAGES, STAGES, b->here, b->count);
    add_pause(&b->samples, b->generation, cause, 60 + draw(b, 400), STEP_MS);
}

static void begin(struct big *b)
{
    SAMPLE(&b->samples, job, Tmw__JobEvent, job, JOB, tmw__job_event__init);
    job->name = samples_text(&b->samples, "large");
    job->steps = 200000;
    job->samples_per_step = 4096;
    job->layers = 4;
    job->micro_batches = 8;
    job->speed = 60;
    job->n_pools = POOLS;
    job->pools = samples_alloc(&b->samples, POOLS * sizeof *job->pools);
    for (size_t i = 0; i < POOLS; i++)
        job->pools[i] = samples_text(&b->samples, pool_names[i]);
    job->n_gpus = POOLS;
    job->gpus = samples_alloc(&b->samples, POOLS * sizeof *job->gpus);
    for (size_t i = 0; i < POOLS; i++)
        job->gpus[i] = samples_text(&b->samples, i == 1 ? "A100-40GB" : "A10G");
    SAMPLE(&b->samples, price, Tmw__PriceEvent, price, PRICE, tmw__price_event__init);
    price->spot_microusd_h = pool_prices[0];
    price->on_demand_microusd_h = pool_prices[2];
    price->n_pool_microusd_h = POOLS;
    price->pool_microusd_h = samples_alloc(&b->samples, sizeof pool_prices);
    memcpy(price->pool_microusd_h, pool_prices, sizeof pool_prices);
    SAMPLE(&b->samples, rent, Tmw__RentEvent, rent, RENT, tmw__rent_event__init);
    rent->n_want = POOLS;
    rent->want = samples_alloc(&b->samples, POOLS * sizeof *rent->want);
    for (uint32_t i = 0; i < b->count; i++)
        b->want[pool_of(i + 1)]++;
    memcpy(rent->want, b->want, sizeof b->want);
    rent->want_spot = rent->want[0] + rent->want[1];
    rent->want_on_demand = rent->want[2];
    for (uint32_t i = 0; i < b->count; i++) {
        come(b, i);
        if (i % 16 == 15 && flush(b) != 0) return;
    }
    change(b, TM_CHANGED_BEGIN);
}

/* About eight events: a step or two, and every now and then who goes and who comes. */
static int batch(struct big *b)
{
    b->samples.at_ms += STEP_MS;
    b->step++;
    add_progress(&b->samples, b->step, 2 + 8 / (1 + (double)b->step / 400) + (double)draw(b, 100) / 1000, STEP_MS);
    if (++b->batches % CHANGES == 0) {
        bool announced = b->noticed != 0 && b->batches >= b->leaves;
        uint32_t place = announced ? (uint32_t)b->noticed - 1 : (uint32_t)draw(b, b->count);
        if (!announced && place + 1 == b->noticed) place = (place + 1) % b->count;
        go(b, place, announced);
        come(b, place);
        change(b, announced ? TM_CHANGED_NOTICE : TM_CHANGED_LOSS);
        if (announced) b->noticed = 0;
    } else if (b->batches % CHANGES == 2 && b->noticed == 0 && draw(b, 2) == 0) {
        b->noticed = 1 + draw(b, b->count);
        b->leaves = b->batches + NOTICE_STEPS;
        add_notice(&b->samples, b->here[b->noticed - 1], STEP_MS * NOTICE_STEPS + 400, false);
    }
    if (b->batches % 40 == 0) add_set(&b->samples, b->batches / 40, b->step);
    return flush(b);
}

/* ---- what is served ---- */

static const struct tm_run_status *status_of(struct tm_run_tap *tap)
{
    struct big *b = tap->self;
    struct tm_coordinator_view view = {.state = TM_JOB_TRAINING,
                                       .phase = TM_COORDINATOR_RUNNING,
                                       .generation = b->generation,
                                       .applied = b->step,
                                       .failure = "",
                                       .waiting = "",
                                       .trouble = "",
                                       .want_spot = b->want[0] + b->want[1],
                                       .want_on_demand = b->want[2],
                                       .want = b->want,
                                       .pool_count = POOLS};
    (void)tm_run_watch_look(b->watch, &view, b->samples.at_ms, NULL);
    return tm_run_watch_status(b->watch);
}

struct reading {
    tm_run_each_f each;
    void *context;
};

static int read_one(void *context, uint64_t sequence, const void *data, size_t length, struct tm_error *e)
{
    const struct reading *reading = context;
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    if (rc == 0) rc = reading->each(reading->context, sequence, event, e);
    tm_arena_deinit(&arena);
    return rc;
}

static int events_of(struct tm_run_tap *tap, uint64_t after, size_t max, tm_run_each_f each, void *context,
                     struct tm_error *e)
{
    const struct big *b = tap->self;
    struct reading reading = {.each = each, .context = context};
    return b->record->each(b->record, after, max, read_one, &reading, e);
}

static void stop_it(struct tm_run_tap *tap, bool now)
{
    (void)tap;
    (void)now;
}

static int steer_it(struct tm_run_tap *tap, const struct tm_steer_order *order, struct tm_error *e)
{
    (void)tap;
    (void)order;
    return tm_error_set(e, TM_EBUSY, "nobody trains here");
}

static bool is_over(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, PULSE_MS) != 0;
}

/* Notices tell when an instance leaves: by the clock of whoever watches. */
static void catch_up(struct big *b)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (b->samples.at_ms < now_ms - STEP_MS) b->samples.at_ms = now_ms - STEP_MS;
}

static int serve(struct big *b, const char *dir)
{
    struct tm_env *env = tm_env_real();
    struct tm_state_owner owner;
    struct tm_api_server *server = NULL;
    int leftovers = 0;
    int rc = tm_state_own(env, dir, &owner, &leftovers, b->e);
    if (rc != 0) return rc;
    rc = tm_api_server_create(env, dir, &server, b->e);
    if (rc == 0) {
        struct tm_run_hook hook = tm_api_server_hook(server);
        puts("ready");
        (void)fflush(stdout);
        for (uint64_t pulse = 1; rc == 0 && !is_over(); pulse++) {
            if (pulse % PULSES_A_BATCH == 0) {
                catch_up(b);
                rc = batch(b);
            }
            hook.serve(hook.context, &b->tap);
        }
        tm_api_server_destroy(server);
    }
    tm_state_disown(env, dir, &owner);
    return rc;
}

int main(int argc, char **argv)
{
    static struct big b;
    struct tm_error e = {.text = ""};
    char path[TM_STATE_PATH_MAX];
    if (argc < 4 || atoi(argv[2]) < STAGES || atoi(argv[2]) > INSTANCES_MAX) {
        fputs("use: tidemill-big-run FOLDER INSTANCES EVENTS [still]\n", stderr);
        return 2;
    }
    (void)mkdir(argv[1], 0700);
    tm_state_path(argv[1], TM_STATE_RECORD, path);
    b = (struct big){.e = &e, .count = (uint32_t)atoi(argv[2]), .next = 1, .seed = 7, .watch = tm_run_watch_create()};
    b.tap =
        (struct tm_run_tap){.self = &b, .status = status_of, .events = events_of, .stop = stop_it, .steer = steer_it};
    samples_init(&b.samples);
    uint64_t wanted = strtoull(argv[3], NULL, 10);
    /* It began so long ago that it has come to now: two events of each instance, then twelve in five steps. */
    uint64_t later = wanted > 2 * b.count ? wanted - 2 * b.count : 0;
    b.begun_ms = b.samples.at_ms = (int64_t)time(NULL) * 1000 - (int64_t)(later * 5 / 12) * (STEP_MS + 4);
    int rc = tm_record_open(path, &b.record, &e);
    if (rc == 0) begin(&b);
    while (rc == 0 && b.written < wanted)
        rc = batch(&b);
    if (rc == 0) rc = b.record->flush(b.record, true, &e);
    if (rc == 0 && argc < 5) rc = serve(&b, argv[1]);
    samples_deinit(&b.samples);
    tm_run_watch_destroy(b.watch);
    tm_record_close(b.record);
    if (rc != 0) fprintf(stderr, "%s\n", e.text);
    return rc == 0 ? 0 : 1;
}

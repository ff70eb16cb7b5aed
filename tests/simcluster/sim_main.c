/* The program: seeds, scenarios, traces. --help says how it is called. */
#include "sim.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef TIDEMILL_PLANTED
enum tm_planted_bug tm_planted_bug = TM_BUG_none;
static const char *const bug_names[] = {
#define NAME(name, what) #name,
    TM_PLANTED_BUGS(NAME)
#undef NAME
};
#endif

enum { STOP_BOUND_MS = 90000 };

struct arguments {
    uint64_t seed, seeds, links, from;
    const char *scenario;
    const char *until; /* stop at the first failure that holds this */
    struct choice choice;
    bool trace, list, help, one;
};

struct totals {
    uint64_t seeds, failed, faults, memory_faults, memory_deaths, messages, steps, generations, sets, rolled_back,
        decisions, moves, pool_worlds;
    uint64_t kinds[FAULT_KINDS];
    double hours;
    char last_failure[512];
};

/* From when faults stop: leases, quarantines and orphan times have passed, and the rest of the steps is trained. */
static int64_t bound_ms(const struct sim *sim)
{
    double step_ms = sim->compute_ms * 1.4 * pools_slowest(sim) + 400;
    int64_t stop_ms = sim->stop_for_ms > 0 ? sim->stop_for_ms + STOP_BOUND_MS : 0;
    return sim->faults.until_ms + stop_ms + 150000 + (int64_t)((double)sim->steps * step_ms * 1.5);
}

static bool finish(struct sim *sim, long live, struct totals *totals)
{
    sim_settle(sim);
    check_end(sim);
    totals->seeds++;
    totals->faults += sim->fault_count;
    totals->memory_faults += sim->memory_faults;
    totals->memory_deaths += sim->memory_deaths;
    for (size_t i = 0; i < FAULT_KINDS; i++)
        totals->kinds[i] += sim->fault_kinds[i];
    totals->messages += sim->messages;
    totals->steps += sim->highest_applied;
    totals->generations += sim->generation_count;
    totals->sets += sim->set_count;
    totals->rolled_back += sim->rolled_back;
    totals->decisions += sim->decided_again;
    totals->moves += sim->moves;
    totals->pool_worlds += sim->pool_count > 0;
    totals->hours += (double)sim->now_ms / 3.6e6;
    char failure[sizeof sim->failure];
    memcpy(failure, sim->failure, sizeof failure);
    uint64_t seed = sim->seed;
    sim_deinit(sim);
    if (failure[0] == '\0' && tm_alloc_live() != live)
        (void)snprintf(failure, sizeof failure, "leak: %ld allocations are left", tm_alloc_live() - live);
    if (failure[0] == '\0') return true;
    totals->failed++;
    memcpy(totals->last_failure, failure, sizeof failure);
    printf("FAILED seed %llu: %s\n", (unsigned long long)seed, failure);
    return false;
}

static int64_t clock_ms(struct tm_env *env)
{
    const struct sim *sim = env->self;
    return sim->now_ms;
}

/* TIDEMILL_DEBUG=run,worker shows what goes on, in simulated time. */
static bool open_debug(struct sim *sim)
{
    static struct tm_env clock = {.now_ms = clock_ms};
    struct tm_error e;
    clock.self = sim;
    if (tm_debug_set(&clock, getenv("TIDEMILL_DEBUG"), &e) == 0) return true;
    fprintf(stderr, "%s\n", e.text);
    return false;
}

static bool run_seed(uint64_t seed, const struct arguments *arguments, struct totals *totals)
{
    static struct sim sim; /* large */
    long live = tm_alloc_live();
    sim_init(&sim, seed, &arguments->choice);
    sim.trace = arguments->trace;
    if (!open_debug(&sim)) return false;
    if (!sim_begin(&sim)) return false;
    faults_plan(&sim);
    sim_run_until(&sim, bound_ms(&sim));
    return finish(&sim, live, totals);
}

static bool run_scenario(const char *name, uint64_t seed, bool trace, struct totals *totals)
{
    static struct sim sim;
    static const struct choice usual = {.scale = 1};
    for (size_t i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, name) != 0) continue;
        long live = tm_alloc_live();
        sim_init(&sim, seed, &usual);
        sim.trace = trace;
        if (!open_debug(&sim)) return false;
        scenario_setup(&sim);
        if (scenarios[i].setup != NULL) scenarios[i].setup(&sim);
        if (!sim_begin(&sim)) return false;
        scenarios[i].play(&sim);
        sim_run_until(&sim, bound_ms(&sim));
        printf("  %llu steps, %zu generations, %zu copy sets, %llu steps rolled back, %llu redone\n",
               (unsigned long long)sim.highest_applied, sim.generation_count, sim.set_count,
               (unsigned long long)sim.rolled_back, (unsigned long long)sim_steps_redone(&sim));
        return finish(&sim, live, totals);
    }
    fprintf(stderr, "no scenario \"%s\": --list names them\n", name);
    return false;
}

static void print_totals(const struct totals *totals)
{
    printf(
        "%llu seeds, %llu failed: %.1f simulated hours, %llu faults (%llu of memory, %llu of them fatal to a process), "
        "%llu messages, %llu steps, %llu generations, %llu copy sets, %llu steps rolled back, %llu decisions made "
        "again, %llu worlds of several pools, %llu moves to another region\n",
        (unsigned long long)totals->seeds, (unsigned long long)totals->failed, totals->hours,
        (unsigned long long)totals->faults, (unsigned long long)totals->memory_faults,
        (unsigned long long)totals->memory_deaths, (unsigned long long)totals->messages,
        (unsigned long long)totals->steps, (unsigned long long)totals->generations, (unsigned long long)totals->sets,
        (unsigned long long)totals->rolled_back, (unsigned long long)totals->decisions,
        (unsigned long long)totals->pool_worlds, (unsigned long long)totals->moves);
}

static const char *const kind_words[] = {
#define WORDS(name, text) text,
    SIM_FAULTS(WORDS)
#undef WORDS
};
static const char *const kind_names[] = {
#define NAMES(name, text) #name,
    SIM_FAULTS(NAMES)
#undef NAMES
};

/* How often each kind of fault was there; 0 is for the eye of whoever changes the dice. */
static void print_kinds(const struct totals *totals)
{
    printf("faults:");
    for (size_t i = 0; i < FAULT_KINDS; i++)
        printf("%s %llu %s", i == 0 ? "" : ",", (unsigned long long)totals->kinds[i], kind_words[i]);
    printf("\n");
}

/* ---- how it is called ---- */

/* MESSAGE_LOST is message-lost to who types it. */
static void option_name(size_t kind, char out[64])
{
    size_t length = strnlen(kind_names[kind], 63);
    for (size_t i = 0; i < length; i++)
        out[i] = (char)(kind_names[kind][i] == '_' ? '-' : kind_names[kind][i] - 'A' + 'a');
    out[length] = '\0';
}

static void print_help(void)
{
    printf(
        "tidemill-simcluster: a whole cluster in one process, on a virtual clock, with faults by seed\n\n"
        "  --seed N [--trace]       replay one seed: exit 0 where all checkers hold, else 1\n"
        "  --seeds N [--from A]     N seeds from A on (1); prints what they covered\n"
        "    [--until TEXT]         ... stops at the first failure that holds TEXT\n"
        "  --links N [--from A]     N seeds of connections alone\n"
        "  --scenario NAME          one of the named scenarios, with --seed N and --trace\n"
        "  --list                   names them\n\n"
        "With --seed and --seeds (a seed is the same run only with the same of these):\n"
        "  --nodes N                begin with N instances, up to 64 (simcluster-large: 1024; else 2 to 9, by dice)\n"
        "  --steps N                of the job, up to 400 (else 60 to 180, by dice)\n"
        "  --log-steps              every step that is committed is in the record, once and in order\n"
        "  --workers N              of each instance, up to 8 (else 1 to 3, by dice)\n"
        "  --faults X               so many times as many faults as usual: 0 to 100, 0.5 is half\n"
        "  --faults LIST            only these kinds, with commas: a name below, or how several begin (message,file)\n"
        "  --faults no-LIST         all but these\n\n"
        "Kinds of faults:\n");
    for (size_t i = 0; i < FAULT_KINDS; i++) {
        char name[64];
        option_name(i, name);
        printf("  %-28s %s\n", name, kind_words[i]);
    }
}

/* A number, or names with commas; "no-" before them turns them round. */
static bool read_faults(const char *value, struct choice *out)
{
    char *end = NULL;
    double scale = strtod(value, &end);
    if (*value != '\0' && *end == '\0') {
        out->scale = scale;
        for (size_t i = 0; i < FAULT_KINDS; i++)
            out->off[i] = out->off[i] || scale == 0;
        if (scale == 0) out->scale = 1;
        return scale >= 0 && scale <= 100;
    }
    bool without = strncmp(value, "no-", 3) == 0;
    if (without) value += 3;
    for (size_t i = 0; i < FAULT_KINDS; i++)
        out->off[i] = !without;
    while (*value != '\0') {
        size_t length = strcspn(value, ",");
        size_t found = 0;
        for (size_t i = 0; i < FAULT_KINDS; i++) {
            char name[64];
            option_name(i, name);
            if (length == 0 || strncmp(name, value, length) != 0) continue;
            if (name[length] != '\0' && name[length] != '-') continue;
            out->off[i] = without;
            found++;
        }
        if (found == 0) return false;
        value += length + (value[length] == ',');
    }
    return true;
}

/* What has no value; false: it is another one. */
static bool read_flag(const char *word, struct arguments *out)
{
    out->trace = out->trace || strcmp(word, "--trace") == 0;
    out->list = out->list || strcmp(word, "--list") == 0;
    out->help = out->help || strcmp(word, "--help") == 0;
    out->choice.log_steps = out->choice.log_steps || strcmp(word, "--log-steps") == 0;
    return strcmp(word, "--log-steps") == 0 || strcmp(word, "--trace") == 0 || strcmp(word, "--list") == 0 ||
           strcmp(word, "--help") == 0;
}

static bool read_number(const char *word, const char *value, struct arguments *out)
{
    char *end = NULL;
    uint64_t number = strtoull(value, &end, 10);
    if (*value == '\0' || *end != '\0') return false;
    if (strcmp(word, "--seed") == 0) {
        out->seed = number;
        out->one = true;
    } else if (strcmp(word, "--seeds") == 0) {
        out->seeds = number;
    } else if (strcmp(word, "--links") == 0) {
        out->links = number;
    } else if (strcmp(word, "--from") == 0) {
        out->from = number;
    } else if (strcmp(word, "--nodes") == 0 && number >= 2 && number <= INSTANCES_MOST) {
        out->choice.instances = (size_t)number;
    } else if (strcmp(word, "--steps") == 0 && number >= 1 && number <= STEPS_MAX) {
        out->choice.steps = number;
    } else if (strcmp(word, "--workers") == 0 && number >= 1 && number <= 8) {
        out->choice.workers = (size_t)number;
    } else {
        return false;
    }
    return true;
}

static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    *out = (struct arguments){.from = 1, .choice = {.scale = 1}};
    for (int i = 1; i < argc; i++) {
        if (read_flag(argv[i], out)) continue;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--until") == 0 && *value != '\0') {
            out->until = value;
        } else if (strcmp(argv[i], "--scenario") == 0 && *value != '\0') {
            out->scenario = value;
#ifdef TIDEMILL_PLANTED
        } else if (strcmp(argv[i], "--bug") == 0) {
            for (int b = 0; b < TM_BUG_COUNT; b++)
                if (strcmp(bug_names[b], value) == 0) tm_planted_bug = (enum tm_planted_bug)b;
#endif
        } else if (strcmp(argv[i], "--faults") == 0) {
            if (!read_faults(value, &out->choice)) return false;
        } else if (!read_number(argv[i], value, out)) {
            return false;
        }
        i++;
    }
    return out->one || out->seeds > 0 || out->links > 0 || out->scenario != NULL || out->list || out->help;
}

/* The options that make the same seed the same run. */
static void print_replay(uint64_t seed, int argc, char **argv)
{
    printf("  replay: build/tidemill-simcluster --seed %llu", (unsigned long long)seed);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--log-steps") == 0) printf(" --log-steps");
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--nodes") == 0 || strcmp(argv[i], "--workers") == 0 || strcmp(argv[i], "--steps") == 0 ||
            strcmp(argv[i], "--faults") == 0)
            printf(" %s %s", argv[i], argv[i + 1]);
    printf(" --trace\n");
}

static void run_seeds(const struct arguments *arguments, int argc, char **argv, struct totals *totals)
{
    for (uint64_t seed = arguments->from; seed < arguments->from + arguments->seeds; seed++) {
        if (run_seed(seed, arguments, totals)) continue;
        print_replay(seed, argc, argv);
        if (arguments->until != NULL && strstr(totals->last_failure, arguments->until) != NULL) return;
    }
}

static int run_links(const struct arguments *arguments)
{
    uint64_t failed = 0;
    uint64_t faults = 0;
    uint64_t messages = 0;
    for (uint64_t seed = arguments->from; seed < arguments->from + arguments->links; seed++)
        failed += !sim_links_run(seed, &faults, &messages);
    printf("%llu seeds of connections, %llu failed: %llu faults, %llu messages\n", (unsigned long long)arguments->links,
           (unsigned long long)failed, (unsigned long long)faults, (unsigned long long)messages);
    return failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    struct totals totals = {0};
    if (!read_arguments(argc, argv, &arguments)) {
        fprintf(stderr, "%s: not understood; --help says what there is\n", argv[0]);
        return 2;
    }
    if (arguments.help) {
        print_help();
        return 0;
    }
    tm_log_set_level(TM_LOG_ERROR); /* what is warned of is what we do to them */
    if (arguments.links > 0) return run_links(&arguments);
    if (arguments.list) {
        for (size_t i = 0; i < scenario_count; i++)
            printf("%-24s %s\n", scenarios[i].name, scenarios[i].what);
        return 0;
    }
    if (arguments.scenario != NULL) {
        bool good = run_scenario(arguments.scenario, arguments.one ? arguments.seed : 1, arguments.trace, &totals);
        printf("%s: %s\n", arguments.scenario, good ? "holds" : "FAILED");
        return good ? 0 : 1;
    }
    if (arguments.one) {
        (void)run_seed(arguments.seed, &arguments, &totals);
    } else {
        run_seeds(&arguments, argc, argv, &totals);
    }
    print_kinds(&totals);
    print_totals(&totals);
    if (arguments.choice.log_steps) printf("steps without a loss in the record: %llu\n", events_losses_unknown);
    return totals.failed == 0 ? 0 : 1;
}

/* build/tidemill-simcluster --seed N [--trace]      replays one seed: exit 0 where all checkers hold, else 1
 * build/tidemill-simcluster --seeds N [--from A]    N seeds from A on (1); prints what they covered
 *                           [--until TEXT]          ... stops at the first failure that holds TEXT
 * build/tidemill-simcluster --links N [--from A]    N seeds of connections alone (sim_links.c)
 * build/tidemill-simcluster --scenario NAME         one of the named scenarios; --list names them */
#include "sim.h"

#include "base/alloc.h"
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

struct totals {
    uint64_t seeds, failed, faults, memory_faults, memory_deaths, messages, steps, generations, sets, rolled_back;
    uint64_t kinds[FAULT_KINDS];
    double hours;
    char last_failure[512];
};

/* From when faults stop: leases, quarantines and orphan times have passed, and the rest of the steps is trained. */
static int64_t bound_ms(const struct sim *sim)
{
    double step_ms = sim->compute_ms * 1.4 + 400;
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

static bool run_seed(uint64_t seed, bool trace, struct totals *totals)
{
    static struct sim sim; /* large */
    long live = tm_alloc_live();
    sim_init(&sim, seed);
    sim.trace = trace;
    if (!sim_begin(&sim)) return false;
    faults_plan(&sim);
    sim_run_until(&sim, bound_ms(&sim));
    return finish(&sim, live, totals);
}

static bool run_scenario(const char *name, uint64_t seed, bool trace, struct totals *totals)
{
    static struct sim sim;
    for (size_t i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, name) != 0) continue;
        long live = tm_alloc_live();
        sim_init(&sim, seed);
        sim.trace = trace;
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
        "%llu messages, %llu steps, %llu generations, %llu copy sets, %llu steps rolled back\n",
        (unsigned long long)totals->seeds, (unsigned long long)totals->failed, totals->hours,
        (unsigned long long)totals->faults, (unsigned long long)totals->memory_faults,
        (unsigned long long)totals->memory_deaths, (unsigned long long)totals->messages,
        (unsigned long long)totals->steps, (unsigned long long)totals->generations, (unsigned long long)totals->sets,
        (unsigned long long)totals->rolled_back);
}

/* How often each kind of fault was there; 0 is for the eye of whoever changes the dice. */
static void print_kinds(const struct totals *totals)
{
    static const char *const words[] = {
#define WORDS(name, text) text,
        SIM_FAULTS(WORDS)
#undef WORDS
    };
    printf("faults:");
    for (size_t i = 0; i < FAULT_KINDS; i++)
        printf("%s %llu %s", i == 0 ? "" : ",", (unsigned long long)totals->kinds[i], words[i]);
    printf("\n");
}

struct arguments {
    uint64_t seed, seeds, links, from;
    const char *scenario;
    const char *until; /* stop at the first failure that holds this */
    bool trace, list, one;
};

static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    *out = (struct arguments){.from = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end = NULL;
        uint64_t number = strtoull(value, &end, 10);
        bool is_number = *value != '\0' && *end == '\0';
        if (strcmp(argv[i], "--trace") == 0) {
            out->trace = true;
            continue;
        }
        if (strcmp(argv[i], "--list") == 0) {
            out->list = true;
            continue;
        }
        if (strcmp(argv[i], "--seed") == 0 && is_number) {
            out->seed = number;
            out->one = true;
        } else if (strcmp(argv[i], "--seeds") == 0 && is_number) {
            out->seeds = number;
        } else if (strcmp(argv[i], "--links") == 0 && is_number) {
            out->links = number;
        } else if (strcmp(argv[i], "--from") == 0 && is_number) {
            out->from = number;
        } else if (strcmp(argv[i], "--until") == 0 && *value != '\0') {
            out->until = value;
        } else if (strcmp(argv[i], "--scenario") == 0 && *value != '\0') {
            out->scenario = value;
#ifdef TIDEMILL_PLANTED
        } else if (strcmp(argv[i], "--bug") == 0) {
            for (int b = 0; b < TM_BUG_COUNT; b++)
                if (strcmp(bug_names[b], value) == 0) tm_planted_bug = (enum tm_planted_bug)b;
#endif
        } else {
            return false;
        }
        i++;
    }
    return out->one || out->seeds > 0 || out->links > 0 || out->scenario != NULL || out->list;
}

static void run_seeds(const struct arguments *arguments, struct totals *totals)
{
    for (uint64_t seed = arguments->from; seed < arguments->from + arguments->seeds; seed++) {
        if (run_seed(seed, false, totals)) continue;
        printf("  replay: build/tidemill-simcluster --seed %llu --trace\n", (unsigned long long)seed);
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
        fprintf(stderr,
                "use: %s --seed N [--trace] | --seeds N [--from A] | --links N [--from A] | --scenario NAME [--seed N] "
                "[--trace] | --list\n",
                argv[0]);
        return 2;
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
        (void)run_seed(arguments.seed, arguments.trace, &totals);
    } else {
        run_seeds(&arguments, &totals);
    }
    print_kinds(&totals);
    print_totals(&totals);
    return totals.failed == 0 ? 0 : 1;
}

/* The simulated cluster: coordinator, agents and workers (the real state machines, every message packed and unpacked)
 * in one process on a virtual clock, with a toy engine whose state is a hash chain. A seed decides everything: the job,
 * the fleet, and which messages, processes, disks, links and instances fail when. doc/protocol.md lists what is
 * checked.
 *
 *   sim_main.c       the program: seeds, scenarios, traces
 *   sim_world.c      time, network, processes
 *   sim_files.c      a copy store in memory, with faults, for workers and for the coordinator's manifests
 *   sim_hostile.c    strangers: frames of theirs, and of ours that they kept
 *   sim_faults.c     what goes wrong, by seed; and scenarios, which are scripts of the same faults
 *   sim_split.c      two coordinators of one job
 *   sim_runs.c       two runs on one state folder
 *   sim_orders.c     orders from outside: stop, go on
 *   sim_cloud.c      the cloud: what it says, what it does when it is told
 *   sim_regions.c    pools to choose from, in several regions
 *   sim_toy.c        the toy engine and the oracle that knows what every layer must be after every step
 *   sim_check.c      the checkers
 *   sim_events.c     what the record tells people, held against what happened
 *   sim_links.c      connections alone, with handles that can leak */
#ifndef TM_SIMCLUSTER_SIM_H
#define TM_SIMCLUSTER_SIM_H

#include "base/planted.h"
#include "base/random.h"
#include "run/action_queue.h"
#include "run/agent.h"
#include "run/cloud_link.h"
#include "run/coordinator.h"
#include "run/decide_policy.h"
#include "run/set_manifests.h"
#include "sim/bottleneck.h"
#include "store/copy_file.h"
#include "worker/worker.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef SIM_LARGE
enum { INSTANCES_MAX = 1152, MICRO_MAX = 384, INSTANCES_MOST = 1024 };
#else
enum {
    INSTANCES_MAX = 256, /* instances in one run; number 0 is the coordinator's machine */
    MICRO_MAX = 32,
    INSTANCES_MOST = 64 /* to begin with */
};
#endif
enum {
    LAYERS_MAX = 12,
    STEPS_MAX = 400,
    WORDS_MAX = 10, /* of a layer's state */
    GENERATIONS_MAX = 4096,
    SETS_SEEN_MAX = 512,
    TICK_MS = 200,
    CAPTURED_MAX = 4000,
    PAUSES_SEEN_MAX = 256,
    OVERHEARD_MAX = 48,
    RUNS_MAX = 32,
    POOLS_MAX = 5,
};

struct sim;

/* What goes wrong. A run of many seeds must have had all of them. */
#define SIM_FAULTS(X)                                                                                                  \
    X(MESSAGE_LOST, "messages lost")                                                                                   \
    X(MESSAGE_DOUBLED, "doubled")                                                                                      \
    X(MESSAGE_LATE, "late by up to 40 s")                                                                              \
    X(MESSAGE_OVERTAKEN, "overtaken by a later one")                                                                   \
    X(MESSAGE_REPLAYED, "that come again much later")                                                                  \
    X(STRANGER, "frames of strangers")                                                                                 \
    X(JOB_DIFFERS, "machines with another job file")                                                                   \
    X(LINK_CUT, "links cut one way")                                                                                   \
    X(PARTITION, "partitions")                                                                                         \
    X(CONNECTION_LOST, "connections of living processes lost")                                                         \
    X(WORKER_KILLED, "workers killed")                                                                                 \
    X(AGENT_KILLED, "agents killed")                                                                                   \
    X(COORDINATOR_KILLED, "coordinators killed")                                                                       \
    X(COORDINATOR_KILLED_BETWEEN, "killed between a write and what follows it")                                        \
    X(COORDINATOR_SECOND, "second coordinators on one record")                                                         \
    X(COORDINATOR_MOVED, "coordinators that another one took over from")                                               \
    X(RUN_SECOND, "second runs on one state folder")                                                                   \
    X(RUN_KILLED, "runs killed and two started at once")                                                               \
    X(CLOUD_KILLED, "the cloud's program started anew")                                                                \
    X(WORKER_STILL, "workers that stand still")                                                                        \
    X(AGENT_STILL, "agents that stand still")                                                                          \
    X(COORDINATOR_STILL, "coordinators that stand still")                                                              \
    X(CLOUD_STILL, "clouds that stand still")                                                                          \
    X(WORKER_HANGS, "engines that hang")                                                                               \
    X(WORKER_SLOW, "slow workers")                                                                                     \
    X(INSTANCE_TAKEN, "instances taken without a notice")                                                              \
    X(SPOT_LOST, "times that all spot instances are taken at once")                                                    \
    X(NOTICE_LATE, "notices too late")                                                                                 \
    X(NOTICE_FALSE, "false")                                                                                           \
    X(NOTICE_UNDONE, "taken back")                                                                                     \
    X(NOTICE_TWICE, "twice")                                                                                           \
    X(NOTICE_SHORT, "that come true sooner")                                                                           \
    X(NOTICE_RIGHT, "that come true")                                                                                  \
    X(SUPPLY, "changes of the supply")                                                                                 \
    X(POOL_CAPACITY, "changes of a pool's capacity")                                                                   \
    X(POOL_PRICE, "of its price")                                                                                      \
    X(POOL_REFUSED, "refusals of a pool")                                                                              \
    X(SYNC_FAILED, "syncs that fail")                                                                                  \
    X(RECORD_FULL, "disks of the coordinator full for long")                                                           \
    X(RECORD_CUT, "records without their last events")                                                                 \
    X(DISK_LOST, "disks lost")                                                                                         \
    X(FILES_DOWN, "times without files")                                                                               \
    X(FILES_SLOW, "with slow files")                                                                                   \
    X(FILES_FULL, "disks for copies full for long")                                                                    \
    X(FILES_UNREADABLE, "unreadable for long")                                                                         \
    X(FILE_TORN, "files torn")                                                                                         \
    X(FILE_DAMAGED, "files damaged")                                                                                   \
    X(COPY_DAMAGED, "copies in memory damaged")                                                                        \
    X(MEMORY, "allocations that fail")                                                                                 \
    X(CLOCK_JUMP, "jumps of the clock")

enum sim_fault_kind {
#define SIM_FAULT_ENUM(name, words) FAULT_##name,
    SIM_FAULTS(SIM_FAULT_ENUM)
#undef SIM_FAULT_ENUM
        FAULT_KINDS
};

/* ---- the toy engine ---- */

struct toy_layer {
    bool have;
    uint64_t step;
    uint64_t words[WORDS_MAX];
};

struct toy_partial { /* one pipeline's share of a layer's gradient */
    uint64_t sum;
    uint32_t micro_batches;
    uint64_t samples; /* a sum over the names of its samples: says which they were */
};

struct toy_share { /* what replicas of a stage exchange */
    uint64_t generation;
    uint64_t step;
    bool have;
    struct toy_partial layers[LAYERS_MAX];
};

struct toy {
    struct sim *sim;
    struct node *node;
    struct toy_layer layers[LAYERS_MAX];
    /* the step under way */
    bool computing;
    bool local_done;
    uint64_t ticket; /* an event of an older ticket is void */
    uint64_t generation;
    uint64_t step;
    uint32_t pipelines;
    uint32_t pipeline;
    uint32_t stage;
    uint32_t first_layer;
    uint32_t last_layer;
    uint64_t replicas[INSTANCES_MAX]; /* node of each pipeline's same stage */
    uint32_t micro_first[MICRO_MAX + 1];
    struct toy_share shares[MICRO_MAX]; /* by pipeline: the newest heard */
    struct toy_share own[2];            /* of this step and the one before */
    struct toy_partial held[LAYERS_MAX];
    bool applying;
    uint64_t begun_ms;
    uint64_t time_us; /* that it computes */
};

/* ---- processes and machines ---- */

/* A worker and what keeps it. Those of one instance follow one another, come together and go together; what the cloud
 * knows of the instance stands with the first of them. */
struct node {
    uint64_t id;
    bool up; /* the instance runs */
    bool anchor;
    bool spot;
    bool giving_back;
    bool released;
    bool announced; /* by the cloud */
    bool forgotten; /* the cloud's program was started anew after it had ended */
    int64_t notice_end_ms;
    int64_t start_ms;
    int64_t end_ms;
    uint64_t price_microusd_h;
    int64_t goes_ms; /* when it will be taken; -1: no plan */
    uint32_t pool;

    struct tm_agent agent;
    bool agent_up;
    int64_t agent_paused_ms;

    struct tm_worker *worker; /* NULL: no process */
    bool other_job;           /* its job file has another learning rate */
    uint64_t incarnation;
    struct toy toy;
    int64_t died_ms;   /* when its last worker did */
    int64_t paused_ms; /* the process stands still until then */
    bool hangs;        /* the engine does */
    double slow;       /* how many times slower it computes, now ... */
    double usual_slow; /* ... and where nothing is wrong */
    int64_t clock_ms;  /* its monotonic clock is ahead by this, ... */
    int64_t clock_ppm; /* ... and runs so much faster than the coordinator's */
    /* its first report to a fence: what the coordinator could go on from */
    uint64_t reported_generation;
    uint64_t reported_incarnation;
    uint64_t reported_applied;
    uint64_t reported_held;
    bool reported_norm;
    uint64_t reported_step[LAYERS_MAX]; /* of each layer; UINT64_MAX: not held */
};

struct record_entry {
    uint8_t *data;
    size_t length;
    bool sync;
};

struct stored_file {
    uint64_t set;
    uint32_t layer;
    uint8_t *data;
    size_t length;
    bool damaged; /* by us */
};

struct faults {
    double loss, duplicate, long_delay;
    int64_t delay_ms_max;
    bool cut[INSTANCES_MAX][INSTANCES_MAX]; /* from, to */
    bool files_down;
    int64_t files_full_ms;       /* until then no file can be written, ... */
    int64_t files_unreadable_ms; /* ... or read */
    int64_t record_full_ms;      /* ... or the record written */
    int64_t files_slow_ms;       /* a file that is put now is there so much later */
    int64_t memory_short_ms;     /* until then, allocations of processes fail now and then */
    int64_t until_ms;            /* after it, nothing goes wrong any more */
    bool over;
    int64_t utc_jump_ms;
};

struct generation_seen {
    uint64_t generation;
    uint64_t base;
    int64_t at_ms;
};

struct set_seen {
    uint64_t set, step;
    bool dropped;
    bool given_up;  /* a file of it was damaged, and a generation rightly started below it */
    bool forgotten; /* the record that named it was lost: that it is dropped is not told any more */
    bool bad;       /* says the record: its files may go */
    bool in_files;
    bool due;     /* there was a moment to write its manifest: from then on a lost record takes nothing */
    bool unnamed; /* the record was lost before that */
    size_t part_count;
    struct {
        uint32_t layer;
        uint64_t holder, incarnation;
        struct tm_hash hash;
    } parts[LAYERS_MAX * 4];
};

struct pause_seen { /* as an event tells it, and as it was */
    enum tm_change_cause cause;
    uint64_t generation;
    int64_t told_ms, true_ms;
};

struct held_seen { /* who held a step in a generation */
    uint64_t generation, step;
    uint64_t instances[INSTANCES_MAX / 64]; /* bit n: node n */
    int64_t first_ms;
};

struct event {
    int64_t at_ms;
    uint64_t order;
    void (*run)(struct sim *sim, struct event *event);
    uint64_t a, b, c, d;
    uint8_t *data; /* owned */
    size_t length;
};

/* What whoever starts the world has chosen. */
struct choice {
    bool off[FAULT_KINDS];
    double scale;     /* so many times as many faults as usual */
    size_t instances; /* at the start; 0: a few, by dice */
    size_t workers;   /* of each; 0: by dice */
    uint64_t steps;   /* of the job; 0: by dice */
    bool log_steps;
};

struct overheard { /* a frame that somebody has kept */
    uint64_t from, to, role;
    uint8_t *data; /* owned; NULL: none yet */
    size_t length;
};

/* A coordinator whose record another one has now: its disk was moved to another machine, say, while it stood still. */
struct outlived {
    struct tm_coordinator *coordinator; /* NULL: none */
    struct tm_set_manifests manifests;
    uint64_t incarnation;
    size_t policy;     /* its decider */
    int64_t paused_ms; /* it stands still until then */
    int64_t dirty_ms;  /* since when it has something to write, which will fail; 0: nothing */
    bool writes;       /* planted: it can */
};

struct runs {        /* the state folder, and the programs that would have it */
    char owner[256]; /* the file; "": none */
    int lock_pid;
    int pid; /* who has the job */
    bool down;
    bool alive[RUNS_MAX];
    size_t count;
    int self_pid;  /* who calls now */
    int other_pid; /* who calls after so many calls of it; 0: nobody */
    int other_in;
    int other_rc;
};

struct sim_pool {
    int region; /* pools of one region can train together */
    bool spot;
    size_t limit;
    size_t supply; /* now */
    size_t granting;
    size_t refused;
    uint64_t price_microusd_h;
    int64_t start_ms;
    double speed;
    bool tells; /* how many more it would give, and how long that takes */
};

struct sim {
    uint64_t seed;
    const struct choice *choice;
    bool trace;
    int64_t now_ms;
    struct tm_random random; /* of the world */
    struct event *heap;
    size_t heap_count, heap_capacity;
    uint64_t order;

    /* the job */
    uint32_t layers, micro_batches, stages;
    uint64_t steps;
    double compute_ms;
    bool by_share; /* a step takes what its micro-batches take, and no more */
    struct tm_coordinator_options coordinator_options;
    struct tm_use_all rule;
    double deadline_s; /* 0: none */
    bool fixed_copies; /* else room policy says when */
    bool by_policy;    /* room policy decides; else all are used */
    struct tm_layer model_layers[LAYERS_MAX];
    struct tm_model model;
    struct tm_cost cost;
    struct tm_layouts layouts;
    struct tm_migrations *migrations;
    struct tm_policy_decider *policies[2]; /* a coordinator that was taken over from keeps its own */
    size_t policy;                         /* that the coordinator has */
    uint64_t decided_again;
    uint32_t layout_dice; /* the decider changes the number of stages by dice of this many sides; 0: never */

    struct tm_cloud_link cloud;
    int64_t cloud_paused_ms;
    bool cloud_passive; /* the script says what comes and goes */
    size_t supply;      /* of spot instances */
    size_t granting[2]; /* on their way: on demand, spot */
    int64_t rent_off_ms;
    struct sim_pool pools[POOLS_MAX];
    size_t pool_count; /* 0: there is no choice */
    struct tm_random pool_dice;
    bool mixed; /* instances of some pools are faster than others */
    bool region_known;
    int region;       /* that the last generation trained in */
    uint64_t moves;   /* to another region */
    uint32_t workers; /* of each instance */
    uint32_t votes_direct_max, vote_fan;
    uint32_t anchors;        /* on-demand instances that hold copies; coordinator_options.remotes: they do not train */
    uint32_t on_demand_dice; /* the decider wants on-demand instances by dice of this many sides; 0: none */

    struct node instances[INSTANCES_MAX];
    size_t node_count;                  /* 1 + instances ever */
    struct tm_coordinator *coordinator; /* NULL: down */
    struct outlived outlived;
    struct runs runs;
    uint64_t coordinator_starts;
    int64_t coordinator_paused_ms;
    int64_t crash_after_actions; /* -1: never */
    bool crash_before_manifest;
    bool full_before_manifest; /* for 5 s */
    bool fail_next_sync;
    bool record_stuck; /* the coordinator knows that the disk is full */
    struct record_entry *record;
    size_t record_count, record_capacity, record_synced;
    size_t record_checked;        /* so many events are known to all checkers: nothing takes them back */
    uint64_t sync_ms_max;         /* 0: a sync takes no time */
    struct tm_random disk;        /* how long each takes */
    int64_t sync_done_ms;         /* when the last one is done */
    struct tm_action_queue queue; /* of the coordinator's process: what waits for a sync */
    struct stored_file *files;
    size_t file_count, file_capacity;
    struct tm_copy_store store;
    struct tm_set_manifests manifests; /* of the coordinator's process */
    bool finished;
    int64_t finished_ms;
    bool settles;
    bool gives_up; /* the job is to fail: its workers get nowhere */
    bool stopped;  /* by order, and not gone on yet */
    int64_t stop_for_ms;
    bool stop_machines_stay;
    bool stop_at_once;
    bool resumes;          /* the next coordinator is to go on with a stopped job */
    bool stands_still;     /* says the record */
    uint64_t applied_here; /* in the generation that started last */

    struct faults faults;
    uint64_t fault_count;
    uint64_t fault_kinds[FAULT_KINDS];
    int64_t last_at_ms[INSTANCES_MAX][INSTANCES_MAX]; /* when the last message from one machine to another gets there */
    uint64_t memory_faults;                           /* among them */
    uint64_t memory_deaths; /* processes that said that they must be destroyed for want of memory */
    uint64_t messages;
    uint64_t layers_moved; /* chunks that were fetched in a change of generation */
    bool capturing;        /* keeps workers' messages, to send them again later */
    size_t captured_count;
    struct tm_random odd; /* dice of their own for strangers and what they keep */
    struct overheard overheard[OVERHEARD_MAX];
    size_t fleet_max; /* instances beyond which none come by themselves */

    /* checkers */
    char failure[512];
    uint64_t *oracle; /* [step][layer][word] */
    uint64_t oracle_steps;
    double oracle_norm[STEPS_MAX + 2];
    struct generation_seen generations[GENERATIONS_MAX];
    size_t generation_count;
    struct set_seen sets[SETS_SEEN_MAX];
    size_t set_count;
    struct held_seen *held;
    size_t held_count, held_capacity;
    uint64_t steps_applied;
    uint64_t rolled_back;
    uint64_t come_back; /* rolled back, and had again from one that came back; or told again by a record begun anew */
    uint64_t highest_applied;
    int64_t commit_ms; /* the last, by anyone */
    uint64_t commit_generation;
    int64_t pause_true_ms;
    struct pause_seen pauses[PAUSES_SEEN_MAX];
    size_t pause_count;
    uint64_t told_redone;
    uint64_t bottleneck; /* the worker that the last note called so */
    uint64_t told_pace_ms;
    struct tm_roster last_roster;
};

/* sim_world.c */
void sim_schedule(struct sim *sim, int64_t at_ms, void (*run)(struct sim *, struct event *), uint64_t a, uint64_t b,
                  uint64_t c, uint64_t d, const void *data, size_t length);
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_send(struct sim *sim, uint64_t from_node, uint64_t to_node, void (*run)(struct sim *, struct event *),
              uint64_t role, uint64_t extra, const void *data, size_t length);
void sim_init(struct sim *sim, uint64_t seed, const struct choice *choice); /* chooses the job by the seed */
bool sim_begin(struct sim *sim);
void sim_replay_captured(struct sim *sim);
void sim_deliver_at(struct sim *sim, int64_t at_ms, const struct overheard *frame); /* past all faults of the network */
uint64_t sim_steps_redone(const struct sim *sim);
void sim_deinit(struct sim *sim);
void sim_run_until(struct sim *sim, int64_t until_ms); /* or a failure, or the end of the job and its aftermath */
void sim_settle(struct sim *sim);
struct node *sim_add_instance(struct sim *sim);           /* its first worker's node; NULL: there were too many */
void sim_alike(struct sim *sim, const struct node *node); /* the others of its instance are of the same kind */
/* The first worker's node of the instance of a node, and the first of the next instance. */
static inline uint64_t sim_first(const struct sim *sim, uint64_t node)
{
    return tm_worker_of_instance(tm_instance_of_worker(node, sim->workers), 0, sim->workers);
}
static inline uint64_t sim_next(const struct sim *sim, uint64_t node)
{
    return sim_first(sim, node) + sim->workers;
}
void sim_instance_gone(struct sim *sim, struct node *node);
void sim_disconnect(struct sim *sim, const struct node *node, enum tm_role role);
void sim_worker_kill(struct sim *sim, struct node *node);
void sim_worker_end(struct sim *sim, struct node *node, int status);             /* by itself, so */
void sim_damage_part(struct node *node, struct tm_copy_part *part, uint64_t at); /* sim_faults.c */
void sim_agent_kill(struct sim *sim, struct node *node, int64_t back_in_ms);
void sim_coordinator_start(struct sim *sim);
void sim_coordinator_start_in(struct sim *sim, int64_t in_ms);
void sim_record_left(struct sim *sim, bool disk_lost); /* as the next coordinator finds it */
void sim_record_put(struct sim *sim, const void *data, size_t length, bool sync);
void sim_say(struct sim *sim, uint64_t from_node, const struct tm_action *action, const void *data);
void sim_coordinator_crash(struct sim *sim, bool disk_lost, int64_t back_in_ms);
void sim_coordinator_actions(struct sim *sim, struct tm_outbox *out);
void sim_agents_again(struct sim *sim);
void sim_worker_actions(struct sim *sim, struct node *node, struct tm_outbox *out);
/* Around every event of a process: in between, an allocation may fail. */
void sim_memory_short(struct sim *sim);
void sim_memory_back(struct sim *sim);
int64_t sim_clock(const struct sim *sim, const struct node *node);
int64_t sim_utc(const struct sim *sim);
extern const char sim_token[];
extern const char
    sim_fingerprint[]; /* of the job; in seeds the first worker says it, in scenarios the coordinator knows it */
double sim_unit(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t limit);

/* sim_hostile.c: who is not of the job */
void hostile_overhears(struct sim *sim, uint64_t from, uint64_t to, uint64_t role, const void *data, size_t length);
void hostile_replays(struct sim *sim);
void hostile_speaks(struct sim *sim);
bool hostile_is(const struct tm_peer *peer);
/* One of ours answers a stranger. */
void hostile_answered(struct sim *sim, uint64_t from_node, const struct tm_peer *to, const void *data, size_t length);
void hostile_check(struct sim *sim, const Tmw__RecordEvent *event);
void hostile_deinit(struct sim *sim);

/* sim_split.c: two coordinators of one job */
void split_second(struct sim *sim); /* one is started while the other lives: the record's lock refuses it */
void split_move(struct sim *sim,
                int64_t back_in_ms); /* another one takes over, and the old one is back after a while */
bool split_takes(struct sim *sim, const struct event *event); /* is this message for the old one? Then it has it. */
void split_end(struct sim *sim);

/* sim_runs.c: two runs on one state folder */
void runs_begin(struct sim *sim);
void runs_second(struct sim *sim);
void runs_kill(struct sim *sim);

/* sim_files.c */
enum { MANIFEST = -1 };           /* as a layer's number */
void files_open(struct sim *sim); /* by the coordinator's process */
void files_deinit(struct sim *sim);
bool files_readable(const struct sim *sim);
bool files_writable(const struct sim *sim);
struct stored_file *files_find(const struct sim *sim, uint64_t set, uint32_t layer);
/* By a worker: what the file will hold is fixed now; a crash or a fault decides whether it ever does. */
void files_put(struct sim *sim, struct node *node, int64_t at_ms, uint64_t set, uint32_t layer);
void files_get(struct sim *sim, const struct node *node, int64_t at_ms, uint64_t set, uint32_t layer);
void files_drop(struct sim *sim, struct tm_set_manifests *manifests, uint64_t set);
void files_retry(struct sim *sim);
void files_mended(struct sim *sim);                /* all manifests could have been written just now */
uint64_t files_newest_step(const struct sim *sim); /* for who reads the weights; 0: none */
void files_forgotten(struct sim *sim);             /* the record is lost */

/* sim_cloud.c */
void cloud_start(struct sim *sim);
void cloud_receive(struct sim *sim, const tm_message *message, struct tm_outbox *out);
void cloud_check(struct sim *sim);
double cloud_bill_microusd(const struct sim *sim, const struct node *node);
void sim_cloud_actions(struct sim *sim, struct tm_outbox *out);

/* sim_regions.c */
void pools_draw(struct sim *sim);
void pools_rule(const struct sim *sim, struct tm_policy_rule *rule);
double pools_slowest(const struct sim *sim);
void pools_place(struct sim *sim, struct node *first, size_t number); /* the instance is of this pool */
void pools_place_any(struct sim *sim, struct node *first);
size_t pools_report(const struct sim *sim, Tmw__PoolReport *told, Tmw__PoolReport **list);
void pools_rent(struct sim *sim);
void pools_plan(struct sim *sim);
void pools_mend(struct sim *sim);
bool pools_off(const struct sim *sim, const struct tm_coordinator_view *view);
void pools_fail_rent(struct sim *sim, const struct tm_coordinator_view *view);
void pools_started(struct sim *sim, const struct tm_roster *roster);
void pools_check(struct sim *sim, const struct tm_coordinator_view *view);

/* sim_orders.c */
void orders_stop(struct sim *sim, int64_t at_ms, int64_t for_ms, bool machines_stay);
void orders_done(struct sim *sim);
void orders_state(struct sim *sim, const Tmw__StateEvent *event);
void orders_started(struct sim *sim, uint64_t base);
void orders_applied(struct sim *sim, const struct node *node, uint64_t generation, uint64_t step);

/* sim_toy.c */
struct tm_worker_engine toy_engine(struct toy *toy);
uint64_t toy_layer_bytes(uint32_t layer);
bool oracle_make(struct sim *sim);
const uint64_t *oracle_words(const struct sim *sim, uint64_t step, uint32_t layer);
bool oracle_matches(const struct sim *sim, uint64_t step, uint32_t layer, const void *data, size_t length);
void toy_receive(struct sim *sim, struct event *event);
void toy_tick(struct toy *toy);

/* sim_check.c */
void check_begun(struct sim *sim, const struct node *node, uint64_t generation);
void check_held(struct sim *sim, struct node *node, uint64_t generation, uint64_t step);
void check_applied(struct sim *sim, struct node *node, uint64_t generation, uint64_t step);
void check_report(struct sim *sim, struct node *node, uint64_t incarnation, const Tmw__Report *report);
void check_losses(struct sim *sim);
void check_release(struct sim *sim, uint64_t id);
void check_record(struct sim *sim, const void *data, size_t length);
void check_now(struct sim *sim); /* what must hold at any time */
void check_end(struct sim *sim);

/* sim_events.c */
void events_applied(struct sim *sim, uint64_t generation);
void events_take(struct sim *sim, const Tmw__RecordEvent *event);
void events_check(struct sim *sim);
extern unsigned long long events_losses_unknown; /* of all seeds so far: steps in records without their loss */

/* sim_links.c: connections alone, by seed. False: it says on standard output what broke. */
bool sim_links_run(uint64_t seed, uint64_t *faults, uint64_t *messages);

/* sim_faults.c */
bool fault_may(const struct sim *sim, enum sim_fault_kind kind); /* was it chosen? */
bool fault_comes(struct sim *sim, enum sim_fault_kind kind);     /* ... then it is counted */
void faults_plan(struct sim *sim);
void faults_stop(struct sim *sim, struct event *event);
void fault_cut(struct sim *sim, uint64_t from, uint64_t to, int64_t for_ms);
void fault_files_full(struct sim *sim, int64_t for_ms);
void fault_notice(struct sim *sim, struct node *node, int64_t left_ms, int64_t told_ms);
void fault_notice_undone(struct sim *sim, struct node *node);
struct scenario {
    const char *name;
    const char *what;
    void (*setup)(struct sim *sim); /* before anything starts; NULL: the usual small job */
    void (*play)(struct sim *sim);
};
void scenario_setup(struct sim *sim);
extern const struct scenario scenarios[];
extern const size_t scenario_count;

#endif

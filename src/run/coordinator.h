/* The coordinator as a state machine: (state, event) -> (state, actions). No I/O, no clock: every event brings the
 * time.
 *
 *      a member is lost, or all have drained            all have reported, the step in doubt is resolved
 *   RUNNING ------------------------------> COLLECTING ------------------------------------------> ASSIGNED
 *      ^  \--> DRAINING (planned changes:  ^   |  ^                                                    |
 *      |       stop at a common step)      |   \--/ too few workers, or no state to start from         |
 *      |                                   \------------------ a member is lost -----------------------|
 *      \-------------------------------------- all hold their layers at the base step ----------------/
 *
 * An instance may have several workers. What the cloud says of it is true of each of them; it is given back when none
 * of them is needed. Seats go to workers so that replicas of a stage are on different instances and neighbouring stages
 * on one (coord_base.c), copies to holders on another instance than their source (coord_copy.c).
 *
 * Before it drains, while all train on, workers that will get layers follow them (coord_follow.c). So at the change
 * nothing is left to move; if something is, it is fetched in ASSIGNED. Anchors may be remotes (options.remotes): they
 * report and keep copies like all others, and get no seat.
 *
 * Why no step is lost, applied twice or skipped:
 *  - A generation number is recorded, synced, before anyone hears of it; a layout is recorded before it starts. So a
 *    restarted coordinator never uses a number for two different things.
 *  - A step needs the flags of all seated members of its generation. One fenced member therefore stops them all: a new
 *    generation may start once one seated member of the last has obeyed the fence, or all are known to be dead, or the
 *    orphan time (after which a worker without word from us stops by itself) has passed since our last word to them.
 *  - Members differ by at most one step, and one that is behind holds the gradients of the step the others applied. So
 *    if any survivor applied it, all apply it (Resolve, with the norm that it was applied with); else it is redone.
 *  - The base is the newest step at which every layer is found, live or in copies, with one hash. It is never below the
 *    newest whole copy set while the holders of that set may still be there; nor, for the orphan time, below what was
 *    applied while a member of the last generation may only be silent.
 *
 * A lost record is rebuilt: for the orphan time the coordinator only listens; then no worker that it has not heard can
 * be training, and it continues in a new epoch (the upper half of a generation's number): above the highest heard, and
 * not below the time in seconds, so that it is new even if no worker that knew it is left. If a worker comes back that
 * has obeyed a higher number, it gets no message that lets it train, and all are fenced in the next epoch. */
#ifndef TM_RUN_COORDINATOR_H
#define TM_RUN_COORDINATOR_H

#include "run/decide.h"
#include "wire/outbox.h"

enum tm_coordinator_phase {
    TM_COORDINATOR_REBUILDING,
    TM_COORDINATOR_COLLECTING,
    TM_COORDINATOR_ASSIGNED,
    TM_COORDINATOR_RUNNING,
    TM_COORDINATOR_DRAINING,
    TM_COORDINATOR_STOPPING, /* ordered: all stop at a common step, and it is written to files */
    TM_COORDINATOR_STOPPED,
    TM_COORDINATOR_FINISHED,
    TM_COORDINATOR_FAILED /* an engine said that the job itself is wrong, or it failed too often: nothing is tried again
                           */
};

/* Actions beside TM_ACTION_SEND. */
enum {
    TM_COORDINATOR_RECORD = TM_ACTION_OWN, /* data: a RecordEvent; number 1: sync it before the next action */
    TM_COORDINATOR_MANIFEST,   /* number: a set with parts in files; data: its RecordEvent, kept beside them */
    TM_COORDINATOR_FILES_DROP, /* number: a copy set whose files may go */
    TM_COORDINATOR_DONE,       /* the job is finished, was stopped, or has failed */
};

struct tm_coordinator_options {
    uint64_t job;
    uint64_t incarnation;
    const char *token;       /* borrowed */
    const char *fingerprint; /* what is known of the job: lines of wire/fingerprint.h; borrowed; NULL: nothing */
    uint64_t random_seed;
    uint32_t layers;
    uint64_t steps;
    uint32_t micro_batches;
    uint32_t heartbeat_ms;
    uint32_t lease_ms;
    uint32_t orphan_ms;
    int64_t resend_ms;
    bool leaves_early;       /* instances with a notice are released once nothing of them is needed */
    int64_t settle_ms;       /* arrivals are gathered this long before a planned change */
    int64_t follow_limit_ms; /* layers are taken this long before a planned change at most; 0: only in the change */
    int64_t drain_limit_ms;  /* then a planned change fences without waiting for a common step */
    int64_t fetch_limit_ms;  /* without any progress */
    int64_t stall_ms;        /* without a step applied, while it should be */
    int64_t quarantine_ms;
    int64_t copy_limit_ms;
    int64_t false_alarm_ms;     /* after the end of a notice: the instance is still here, so it counts again */
    int64_t durable_wait_ms;    /* for holders of the newest set that are neither here nor known to be gone */
    uint32_t predicted_step_ms; /* where the decider predicts none for its layout; 0: none */
    uint32_t copies;            /* of each layer, in peers' memory */
    uint32_t votes_direct_max;  /* in a generation of up to so many seats each member tells each other; 0: 16 */
    uint32_t vote_fan;          /* branches of the tree of flags in larger ones; 0: 8 */
    uint32_t workers;           /* an instance, all lost together (wire/message.h says how they are numbered); 0: 1 */
    uint32_t pools;             /* that the job may choose from; 0: there is no choice */
    /* Of their instances, as the job has it, in thousandths (layout/shares.h); 0: as usual. */
    uint32_t pool_slowness[TM_RUN_POOLS_MAX];
    /* Pools of one region have one number; each region beyond the first that trains costs so much a step. */
    uint32_t pool_region[TM_RUN_POOLS_MAX];
    double region_step_usd;
    double move_usd;       /* the state of a job that goes from one region to another */
    bool speeds_alike;     /* all instances share one machine: that one seems slow says nothing */
    uint64_t keeper_pools; /* those whose instances are anchors that keep copies and do not train; a bit for each */
    uint32_t remotes;      /* so many anchors keep copies and do not train (tiering); the others train */
    bool copies_to_files;
    bool log_steps; /* the record has every step that was committed (coord_steps.c) */
    uint32_t sets_kept;
    uint32_t
        failures_max; /* so many tries that end without a new step, and the job fails (coord_failure.c); 0: never */
    bool fresh;       /* a new job: an empty record is no loss */
    bool retry;       /* the user wants it to go on: a job that failed is tried again; failures count from none */
    bool resume;      /* go on with a job that the record calls stopped; else it stays so */
};

struct tm_coordinator;

/* The caller owns the result; the token must outlive it. NULL: out of memory. */
struct tm_coordinator *tm_coordinator_create(const struct tm_coordinator_options *options,
                                             const struct tm_decider *decider);
void tm_coordinator_destroy(struct tm_coordinator *coordinator);

/* Before begin: every event of the record, oldest first. */
int tm_coordinator_load(struct tm_coordinator *coordinator, const Tmw__RecordEvent *event, struct tm_error *e);
/* After the last load: does the record say nothing of where the job stands, so that it must be rebuilt? */
bool tm_coordinator_rebuilds(const struct tm_coordinator *coordinator);
/* Before begin, where it is so: manifests found beside copies in files, in any order. */
int tm_coordinator__load_manifest(struct tm_coordinator *coordinator, const Tmw__RecordEvent *event,
                                  struct tm_error *e);
/* `now_ms` is monotonic, `utc_ms` only goes to the record. */
void tm_coordinator_begin(struct tm_coordinator *coordinator, int64_t now_ms, int64_t utc_ms, struct tm_outbox *out);
/* The time of day, for the record; a tick has it too. */
void tm_coordinator__utc(struct tm_coordinator *coordinator, int64_t utc_ms);
void tm_coordinator_tick(struct tm_coordinator *coordinator, int64_t now_ms, int64_t utc_ms, struct tm_outbox *out);
void tm_coordinator_receive(struct tm_coordinator *coordinator, int64_t now_ms, const tm_message *message,
                            struct tm_outbox *out);
/* The program knows that this process is dead (its connection was reset by its own machine, it was killed). */
void tm_coordinator_dead(struct tm_coordinator *coordinator, int64_t now_ms, const struct tm_peer *peer,
                         struct tm_outbox *out);
/* The last connection of this process was lost. Mostly it is dead; if not, it connects and joins again, and has missed
 * at most a generation. So a machine that is gone need not be waited for until its lease ends. While its agent is
 * here, it is given a moment: the agent knows whether it is dead. */
void tm_coordinator_disconnected(struct tm_coordinator *coordinator, int64_t now_ms, const struct tm_peer *peer,
                                 struct tm_outbox *out);
/* The record cannot be written now (`why`, in words; copied), or can be again (NULL). While it cannot, no action asks
 * for a sync: training goes on, and what the record must know first waits. One that was asked for before and failed
 * must not be followed by anything: then the coordinator is created again from what is in the record, told this, and
 * begun. */
void tm_coordinator_record_stuck(struct tm_coordinator *coordinator, const char *why);
/* Stops the job in order: a common step, a copy set of it in files, then "stopped" in the record; all are told to end.
 * A coordinator with `resume` goes on from there later. Said again, or at the end of the job, nothing. `at_once`:
 * without a new copy set; what is not in files is lost. */
void tm_coordinator_stop(struct tm_coordinator *coordinator, int64_t now_ms, const char *reason, bool at_once,
                         struct tm_outbox *out);

/* Another limit, an instance that goes, a copy now: recorded, then carried out as the job goes on. -TM_EINPUT: a limit
 * that is passed already; -TM_ENOTFOUND: no such instance is here; -TM_EBUSY: the job ends, or makes no copies;
 * -TM_EFULL: the record cannot be written now; -TM_ELIMIT: too many are to go. */
int tm_coordinator__steer(struct tm_coordinator *coordinator, const struct tm_steer_order *order, struct tm_outbox *out,
                          struct tm_error *e);

/* The program has to end now, and the job goes on later: what was heard since the last event goes into the record. */
void tm_coordinator__last_words(struct tm_coordinator *coordinator, int64_t now_ms, struct tm_outbox *out);

struct tm_step_loss {
    uint64_t step;
    double loss;
};

struct tm_coordinator_view {
    enum tm_coordinator_phase phase;
    uint64_t generation;
    uint64_t base;
    const struct tm_roster *roster; /* of the generation assigned or running */
    uint64_t applied;               /* the highest step heard of */
    uint64_t durable_step;          /* of the newest whole set that is still good; 0: none */
    uint64_t durable_set;
    uint64_t steps_rolled_back; /* committed, lost, and done again */
    uint64_t steps_redone;      /* under way, not committed, and done again */
    uint64_t generations_started;
    size_t leases; /* workers and agents that hold one */
    size_t workers;
    size_t agents_untold;              /* that hold a lease and have not been told yet that the job is over */
    const char *waiting;               /* what it waits for, in words; "" */
    const char *trouble;               /* with files that cannot be written or read, in words; "" */
    bool trouble_full;                 /* because a disk is full */
    const struct tm_step_loss *losses; /* of the last steps that were told, by step; borrowed until the next event */
    size_t loss_count;
    uint32_t step_ms;         /* of the newest of them; 0: not known */
    const char *failure;      /* phase FAILED: what the engine said; "" */
    const char *kernel_class; /* the first worker's, and so the job's; "": none has joined */
    enum tm_job_state state;
    uint64_t stopped_step; /* TM_JOB_STOPPED: from which it can go on */
    bool gave_up;          /* TM_JOB_STOPPED: not by order, but because it could not go on */
    uint32_t want_spot;    /* instances; what the cloud is told */
    uint32_t want_on_demand;
    const struct tm_run_pool *pools; /* by number, as the cloud last told; of a job with a choice of them */
    const uint32_t *want;            /* of each */
    size_t pool_count;
    uint64_t spot_microusd_h; /* now; 0: not known */
    uint64_t on_demand_microusd_h;
    uint64_t bill_microusd; /* by the cloud's own count, of all instances that ever were */
    uint64_t on_demand_bill_microusd;
    const Tmw__Instance *instances; /* all that the cloud ever named, in the order of their naming */
    size_t instance_count;
};
struct tm_coordinator_view tm_coordinator_look(const struct tm_coordinator *coordinator);
const char *tm_coordinator_phase_name(enum tm_coordinator_phase phase);

#endif

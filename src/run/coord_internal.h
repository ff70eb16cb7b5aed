/* Shared inside the room: the coordinator's state, and what its parts ask of each other. */
#ifndef TM_RUN_COORD_INTERNAL_H
#define TM_RUN_COORD_INTERNAL_H

#include "base/planted.h"
#include "base/random.h"
#include "run/coordinator.h"
#include "sim/bottleneck.h"
#include "wire/fingerprint.h"
#include "wire/hash.h"
#include "wire/last_lines.h"
#include "wire/step_list.h"

#define TM_BODY(message, name, field, pointer)                                                                         \
    do {                                                                                                               \
        (message).body_case = TMW__ENVELOPE__BODY_##name;                                                              \
        (message).field = (pointer);                                                                                   \
    } while (0)

enum {
    KNOWN_MAX = 2 * TM_MEMBERS_MAX + 64, /* worker and agent of each, the cloud, some that have just gone */
    SETS_MAX = 64,
    SETS_NAMED_AHEAD = 64, /* numbers for which the record is asked at once */
    SETS_UNHEARD = 1024,   /* that a lost record may have named */
    INDEX_SIZE = 4096,     /* a power of two, more than known ones by a good deal */
    BAD_MAX = 4096,
    INSTANCES_MAX = 1 << 16,
    SOURCES_MAX = 8,
    PAST_MAX = 8,
    LOSSES_MAX = 256,
    PROGRESS_EVERY_MS = 1000,
    BILL_TOLD_EVERY_MS = 10000, /* where no step gets done */
    PACE_STEPS_MAX = 64,
    RELEASES_MAX = 64,
    FAILURES_KEPT = 64,
    HINTS_KEPT = 64,
    ZONES_KEPT = 256,
    FILES_FAILED_MAX = 3 /* copy sets, or moves of layers, in a row for want of files that can be written or read */
};

struct layer_report {
    bool have;
    uint64_t step;
    struct tm_hash hash;
};

struct copy_held {
    uint64_t set;
    uint64_t step;
    uint32_t layer;
    struct tm_hash hash;
    uint64_t holder; /* 0: files */
    uint64_t holder_incarnation;
};

/* A worker or an agent that has said hello, or that the record expects. */
struct known {
    struct tm_peer peer;
    bool registered;         /* holds a lease */
    bool gone;               /* the cloud told this process that its machine has ended: it cannot come back */
    uint64_t past[PAST_MAX]; /* incarnations that are dead: what still comes from them is old */
    size_t past_next;
    uint64_t round; /* of challenges */
    uint64_t round_before;
    bool anchor;
    bool follows;           /* it can */
    uint64_t follow_number; /* that it obeys */
    uint64_t follow_step;
    uint64_t follow_told;
    int64_t follow_told_ms;
    char address[TM_MEMBER_ADDRESS_MAX];
    char endpoint[TM_MEMBER_ADDRESS_MAX];
    int64_t heard_ms;
    int64_t acked_ms; /* our last word to it */
    int64_t joined_ms;
    int64_t cut_ms;          /* when its connection was lost, and its agent's was not; 0: it was not */
    int64_t silent_until_ms; /* it was lost since the last start: what it may hold is waited for until then; 0: not */
    int64_t asked_ms;        /* when it was last told what it has not done yet */

    /* from heartbeats */
    uint64_t generation;
    uint32_t phase;
    uint64_t applied;
    uint64_t held;
    uint64_t working_on;
    uint64_t drain_step; /* that it knows of */
    uint64_t waiting_for;
    uint64_t progress;
    int64_t progress_ms; /* when it last changed */
    uint32_t step_ms;
    uint64_t copied_set;
    uint64_t waited_for;       /* how often others did, in this generation */
    uint64_t micro_us;         /* what a micro-batch takes it; 0: not known ... */
    uint64_t micro_generation; /* ... in this one */
    uint32_t slowness;         /* as measured last (layout/shares.h); 0: never */

    /* from its report to the fence */
    uint64_t reported; /* the generation it reported to */
    uint64_t report_applied;
    uint64_t report_held;
    uint64_t report_working_on; /* when the fence came */
    uint64_t report_assigned;   /* whose layout it has */
    double norm;
    bool norm_known;
    struct layer_report *layers;
    struct layer_report *followed; /* layers that it follows */
    struct copy_held *copies;
    size_t copy_count;
    bool ready;

    uint64_t told_here; /* the incarnation that events say is here; 0: none */
    bool was_here;      /* an earlier one was */

    int64_t quarantine_until_ms;
    uint32_t quarantines;
    bool noticed; /* its agent says so */
    int64_t notice_end_ms;
    bool told_notice;   /* an event says that it has a notice */
    bool cloud_noticed; /* the cloud says so */
    int64_t cloud_notice_end_ms;

    char trouble[TM_MESSAGE_STRING_MAX + 1]; /* it has with files; "": none */
    bool trouble_full;

    /* agents and the cloud */
    uint64_t agent_sequence;      /* of the newest word */
    uint64_t restart_incarnation; /* of the worker to end; 0: none */
    bool told_end;                /* that the job is over */
    uint64_t failed_in; /* its worker failed when this many times (+ 1) failures had been overcome; 0: never */
};

struct copy_set {
    uint64_t set;
    uint64_t generation;
    uint64_t step;
    struct copy_held *parts;
    size_t part_count;
    uint64_t took_ms;
    bool bad;
};

/* The set under way. */
struct copying {
    uint64_t set; /* 0: none */
    uint64_t step;
    int64_t since_ms;
    struct copy_held *parts; /* planned; hash known once done */
    bool *done;
    uint64_t *sources; /* of each part */
    size_t part_count;
};

/* What heartbeats say of the running generation's pace. */
struct pace {
    int64_t started_ms;
    double factor;  /* observed over predicted step time, learned so far */
    bool corrected; /* in this generation */
    double step_s[PACE_STEPS_MAX];
    size_t step_count;
    /* the window under way */
    int64_t window_ms;
    uint64_t window_applied;
    uint64_t samples; /* heartbeats of seated members ... */
    uint64_t waits;   /* ... and those of one that waits */
    struct tm_bottleneck detector;
    bool told_bottleneck;
};

/* From the last commit of one generation to the first of the next. */
struct pause {
    bool open;
    int64_t since_ms;
    enum tm_change_cause cause;
    uint64_t step_ms; /* what a step took before it */
};

/* The cloud's last report, but for its instances. */
struct cloud_seen {
    bool heard;
    int64_t heard_ms;
    int64_t billed_ms; /* when the instances' bills last went to the record */
    int64_t now_ms;    /* the cloud's */
    double speed;
    uint64_t spot_microusd_h;
    int64_t spot_wait_ms; /* of a job without a choice of pools */
    int64_t on_demand_wait_ms;
    uint32_t starting[2]; /* likewise, spot and on-demand: granted, not there yet */
    uint64_t on_demand_microusd_h;
    int64_t spot_offered;
    uint64_t bill_microusd;
    uint64_t on_demand_bill_microusd;
    struct tm_run_pool pools[TM_RUN_POOLS_MAX]; /* of a job with a choice of them */
    bool pools_told;
};

/* A planned change that is prepared. */
struct following {
    uint64_t number; /* of the orders to follow */
    bool active;
    int64_t since_ms;
    int64_t drained_ms;      /* members stand still since; 0: they do not */
    struct tm_roster roster; /* foreseen */
};

/* An instance that is to be given back. */
struct release {
    uint64_t id;
    uint32_t pool;
    bool ordered; /* the cloud is told */
    bool drained; /* somebody has ordered it to go: another one is rented in its place */
    bool noticed; /* it goes anyway, and somebody waits for its place */
};

/* What the record was told of decisions, by this coordinator. */
struct decisions_told {
    bool policy;        /* what decides */
    uint64_t number;    /* of the last event */
    uint32_t *observed; /* owned; intervals that it has not been told yet, three numbers each */
    size_t observed_count;
    size_t observed_capacity;
    struct tm_outbox *out; /* of the decision under way */
};

/* What was ordered of the run. */
struct steered {
    struct tm_run_limits limits;
    bool copy;          /* a copy set is owed ... */
    uint64_t copy_step; /* ... of this step or a later one */
};

/* Where a layer at the base step can be had. */
struct layer_sources {
    struct tm_hash hash;
    uint64_t set; /* 0: live */
    uint64_t workers[SOURCES_MAX];
    size_t worker_count;
    bool from_file;
};

/* What all members are told alike, made once for a roster: it would be most of the work otherwise. */
enum { LAYOUT_WHOLE, LAYOUT_SINCE_STARTED, LAYOUT_SINCE_BEFORE, LAYOUT_FORMS };
struct assignment {
    struct tm_arena arena; /* of the layouts */
    bool open;             /* the arena is in use */
    Tmw__Layout *layouts[LAYOUT_FORMS];
    struct layer_sources *sources; /* owned; [layer] */
    bool *found;                   /* owned; [layer] */
    bool *looked;                  /* owned; [layer] */
};

struct bad_part {
    uint64_t set;
    uint32_t layer;
    uint64_t source;
    uint64_t step; /* for live state */
};

struct tm_coordinator {
    struct tm_coordinator_options options;
    struct tm_decider decider;
    struct tm_peer self;
    struct tm_random random;
    int64_t utc_ms;
    int64_t job_utc_ms; /* when the job began: of the record's first event */
    bool job_utc_known;
    int64_t begun_ms;

    enum tm_coordinator_phase phase;
    bool entered;     /* any: it has begun */
    int64_t phase_ms; /* since when */
    uint64_t generation;
    uint64_t checked_generation; /* at the end of the last event */
    uint64_t highest_seen;
    struct tm_roster roster;  /* assigned or running */
    struct tm_roster started; /* the last that started: only its members may be training */
    bool *started_dead;       /* by place in it */
    struct tm_roster before;  /* the last that was assigned and never started */
    struct assignment assignment;
    size_t ready_count; /* so many of the roster's first members are ready, or spares */
    size_t missing;     /* of known: whose report was awaited last */
    uint64_t base;
    uint64_t applied;
    uint64_t reached; /* the highest step that is known to have been committed since the last start */
    uint64_t rolled_back;
    uint64_t generations_started;
    int64_t applied_ms; /* when `applied` last grew */
    int64_t changed_ms; /* when the set of workers last changed */
    uint64_t drain_step;
    const char *waiting;
    struct pace pace;
    uint32_t predicted_step_ms; /* of the layout, says the decider; 0: not known */
    double uneven;              /* what steps take over what they would take shared out anew; 0: not looked at ... */
    int64_t uneven_ms;          /* ... then */
    uint32_t shared_out;        /* changes for that alone, since the fleet last changed ... */
    int64_t shared_out_ms;      /* ... the last of them then */

    uint64_t rounds; /* grows whenever a process takes a number over */
    struct known *known;
    size_t known_count;
    size_t known_capacity;
    uint16_t index[INDEX_SIZE]; /* of known, by role and number: place + 1; 0: free */

    struct copy_set *sets; /* whole ones, oldest first */
    size_t set_count;
    size_t set_capacity;
    struct copying copying;
    uint64_t newest_set;
    uint64_t sets_named; /* the record says that numbers up to this may be in use */
    int64_t copied_ms;   /* when the newest whole set's step was applied, or a try was given up */
    struct bad_part *bad;
    size_t bad_count;
    size_t bad_capacity;

    struct tm_step_loss losses[LOSSES_MAX]; /* by step */
    size_t loss_count;
    struct tm_step_list steps_told; /* that the record does not have yet */
    uint64_t logged_step;           /* it has all up to this one */
    int64_t logged_ms;
    uint32_t told_step_ms;
    uint64_t progress_step;      /* the newest in the record */
    int64_t progress_ms;         /* when it was put there */
    uint64_t told_bill_microusd; /* by the record */
    uint64_t told_on_demand_bill_microusd;
    /* By pool, from region to region: the state of a job that moved, and gradients of all steps up to this one; what is
     * redone counts again. */
    double traffic_usd[TM_RUN_POOLS_MAX];
    uint64_t traffic_step;
    uint32_t home; /* the region of the pool that had most of those who made it, and one; 0: not known */
    char failure[TM_MESSAGE_STRING_MAX + 1];

    uint64_t highest;                /* step that was ever heard to be committed */
    uint32_t failures;               /* tries since that ended badly, ... */
    uint64_t failures_past;          /* how often a new step came after some */
    uint64_t failed_step;            /* ... when this was the highest, ... */
    int64_t failed_ms;               /* ... the last one then: who was started before is of the same try */
    uint64_t failed[FAILURES_KEPT];  /* incarnations whose end has been heard of */
    uint64_t refused[FAILURES_KEPT]; /* ... and of workers that were refused */
    size_t refused_next;
    uint32_t refusals;  /* tries since the last new step that ended so while nobody else was here, ... */
    int64_t refusal_ms; /* ... the last one then */
    size_t failed_next;

    char kernel_class[TM_MESSAGE_STRING_MAX + 1];
    bool kernel_class_known;
    size_t fingerprint_told;           /* parts, to the record, by this process */
    struct tm_fingerprint fingerprint; /* of the job: each part as the job file or the first member has it */

    bool commit_known;
    int64_t commit_ms;                 /* when the newest step that was heard of was committed */
    enum tm_change_cause change_cause; /* of the first fence since the last start */
    enum tm_change_cause drain_cause;
    struct pause pause;
    uint64_t redone;
    enum tm_job_state told_state; /* by events */
    bool told_state_known;
    bool told_rent;
    uint32_t told_spot;
    uint32_t told_on_demand;
    uint32_t told_want[TM_RUN_POOLS_MAX];
    uint64_t told_hints[HINTS_KEPT]; /* ring: instances whose hint is in the record */
    size_t told_hint_count;
    uint32_t told_zones[ZONES_KEPT]; /* ring: zones whose name is in the record */
    size_t told_zone_count;
    bool told_refused[TM_RUN_POOLS_MAX]; /* by pool: it has no capacity for all that are wanted */

    bool starved; /* there are too few workers, or the newest copy set's holders are not here */
    struct cloud_seen cloud;
    bool rents; /* the decider has said how many are wanted; else what there is is kept */
    uint32_t want_spot;
    uint32_t want_on_demand;
    uint32_t want[TM_RUN_POOLS_MAX]; /* by pool, where there is a choice; beside those with a notice */
    uint64_t seated_pools;           /* bit by bit: whose workers may have seats; 0: all */
    struct following follow;
    uint64_t follow_highest; /* number heard of */
    struct release releases[RELEASES_MAX];
    size_t release_count;
    bool copy_asked; /* a copy set is needed before an instance can go */
    struct steered steered;
    Tmw__Instance *instances; /* plain data: no pointers inside */
    size_t instance_count;
    size_t instance_capacity;
    bool instances_mixed; /* they are not in the order of their numbers */
    bool stuck;           /* the record cannot be written: nothing happens that it must know first */
    char stuck_why[TM_MESSAGE_STRING_MAX + 1];
    enum tm_change_cause fence_due; /* that had to wait for it; TM_CHANGED_NONE: none */
    const char *fence_why;
    uint32_t files_failed; /* in a row */
    int64_t last_step_ms;  /* since when only the last copy set is missing; 0: it is not so */
    bool gave_up;
    bool stop_wanted;
    int64_t stop_ms; /* since when */
    char stop_reason[TM_MESSAGE_STRING_MAX + 1];
    uint64_t stopped_step;
    bool stopped_quiet;
    bool resumed; /* and no generation has started since */
    struct decisions_told decisions;
    bool loaded_stopped;
    bool loaded;
    bool loaded_started; /* the record ends in a running generation */
    bool loaded_finished;
};

/* A time that is counted on both sides, on the side that must not be the first to think it over: clocks may run
 * differently by a sixteenth. */
static inline int64_t tm_coord__surely_ms(uint32_t ms)
{
    return TM_PLANTED(clock_margin) ? (int64_t)ms : (int64_t)ms + ms / 16;
}

/* coordinator.c */
tm_message tm_coord__head(const struct tm_coordinator *c, const struct tm_peer *to);
struct known *tm_coord__find(struct tm_coordinator *c, enum tm_role role, uint64_t id);
struct known *tm_coord__member(struct tm_coordinator *c, const struct tm_member *member); /* that process, or NULL */
struct known *tm_coord__add(struct tm_coordinator *c, enum tm_role role, uint64_t id);
bool tm_coord__usable(const struct tm_coordinator *c, const struct known *k, int64_t now_ms);
bool tm_coord__noticed(const struct tm_coordinator *c, const struct known *k, int64_t now_ms);
bool tm_coord__remote(const struct tm_coordinator *c, const struct known *k, int64_t now_ms); /* keeps copies alone */
void tm_coord__outnumbered(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
bool tm_coord__runs(const struct tm_coordinator *c); /* a generation does, whether it is to go on or not */

/* coord_check.c: phases, and what always holds */
bool tm_coord__may_enter(bool begun, enum tm_coordinator_phase from, enum tm_coordinator_phase to);
void tm_coord__enter(struct tm_coordinator *c, enum tm_coordinator_phase phase, int64_t now_ms);
void tm_coord__check(struct tm_coordinator *c, int64_t now_ms); /* at the end of every event */

/* coord_join.c: leases, heartbeats, agents */
void tm_coord__on_hello(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_coord__on_heartbeat(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_coord__on_agent(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_coord__challenge(struct tm_coordinator *c, const struct tm_peer *to, struct tm_outbox *out);
void tm_coord__stop_worker(struct tm_coordinator *c, const struct known *k, struct tm_outbox *out);

/* coord_cloud.c: instances, notices, the bill; what is wanted */
void tm_coord__on_cloud(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
int tm_coord__store_instance(struct tm_coordinator *c, const Tmw__Instance *instance);
/* What the decision says of instances, from now on. */
void tm_coord__want(struct tm_coordinator *c, const struct tm_run_decision *decision);
/* By number; of a job without a choice: 0 spot, 1 on-demand. */
uint32_t tm_coord__pool(const struct tm_coordinator *c, const Tmw__Instance *instance);
/* Of a pool, with those that have a notice and train to its end. */
uint32_t tm_coord__wanted(const struct tm_coordinator *c, uint32_t pool);
bool tm_coord__more_come(const struct tm_coordinator *c); /* the cloud has not given all that are wanted */
/* May a worker have a seat, as far as its pool is concerned? */
bool tm_coord__may_sit(const struct tm_coordinator *c, uint64_t id);
const Tmw__Instance *tm_coord__instance(const struct tm_coordinator *c, uint64_t id); /* NULL: not known */
/* The instance of a worker or its keeper, by their number. */
static inline uint64_t tm_coord__place(const struct tm_coordinator *c, uint64_t worker)
{
    return tm_instance_of_worker(worker, c->options.workers);
}
const Tmw__Instance *tm_coord__instance_of(const struct tm_coordinator *c, uint64_t worker); /* NULL: not known */
static inline uint32_t tm_coord__workers_each(const struct tm_coordinator *c)
{
    return c->options.workers > 1 ? c->options.workers : 1;
}
uint64_t tm_coord__bill(const struct tm_coordinator *c, bool on_demand_only);
/* With the traffic between regions. */
uint64_t tm_coord__spent(const struct tm_coordinator *c);
/* The generation that runs has committed up to `step`: what its gradients cost between regions, if it is in several. */
void tm_coord__traffic_made(struct tm_coordinator *c, uint64_t step);

/* coord_release.c: which instances are given back, and when */
bool tm_coord__releasing(const struct tm_coordinator *c, uint64_t id);
void tm_coord__release_pump(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
size_t tm_coord__release_list(struct tm_coordinator *c, uint64_t list[RELEASES_MAX]); /* what the cloud is told */
/* It goes because somebody says so. False: there is no room for another. */
bool tm_coord__drain_instance(struct tm_coordinator *c, const Tmw__Instance *instance);
/* How many are still here that go because somebody says so, of a pool or (UINT32_MAX) of all. */
uint32_t tm_coord__draining(const struct tm_coordinator *c, uint32_t pool);

/* coord_steer.c: what is ordered of a run that goes on */
void tm_coord__load_steer(struct tm_coordinator *c, const Tmw__SteerEvent *body);
void tm_coord__steer_copied(struct tm_coordinator *c, uint64_t step);              /* a set of it is whole */
void tm_coord__steer_copy_failed(struct tm_coordinator *c, struct tm_outbox *out); /* it has no place */

/* coord_watch.c: who is lost, who hangs */
void tm_coord__watch(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__lost(struct tm_coordinator *c, int64_t now_ms, struct known *k, bool dead, struct tm_outbox *out);
void tm_coord__process_dead(struct tm_coordinator *c, uint64_t id, uint64_t incarnation);
/* Its connection was closed: one that lives is back at once. */
void tm_coord__closed(struct tm_coordinator *c, int64_t now_ms, struct known *k, struct tm_outbox *out);
/* Whom a member waits for in the end. */
struct known *tm_coord__root_of(struct tm_coordinator *c, struct known *k);
void tm_coord__stalled(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);

/* coord_generation.c */
void tm_coord__fence(struct tm_coordinator *c, int64_t now_ms, enum tm_change_cause cause, const char *why,
                     struct tm_outbox *out);
void tm_coord__send_fence(struct tm_coordinator *c, struct known *k, struct tm_outbox *out);
void tm_coord__collect(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__reconsider(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
/* Sets the common step; do all members stand at it? */
bool tm_coord__drained(struct tm_coordinator *c);
void tm_coord__drain_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__start_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__resend(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__finish_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__on_report(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_coord__on_ready(struct tm_coordinator *c, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_coord__on_fetch_failed(struct tm_coordinator *c, int64_t now_ms, const tm_message *message,
                               struct tm_outbox *out);

/* coord_decisions.c: what the policy is told and asked, for the record */
struct tm_decision_ear tm_coord__ear(struct tm_coordinator *c, struct tm_outbox *out); /* for one decision */
void tm_coord__decisions_tell(struct tm_coordinator *c, struct tm_outbox *out);        /* after it */

/* coord_base.c: from what step to go on, who sits where, who fetches what from whom */
/* The newest step at which every layer can be had. */
uint64_t tm_coord__best_base(struct tm_coordinator *c);
/* Where a layer at `step` can be had. Returns false if nowhere. */
bool tm_coord__sources(struct tm_coordinator *c, uint32_t layer, uint64_t step, struct layer_sources *out);
int tm_coord__seat(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision, uint64_t base);
void tm_coord__send_assign(struct tm_coordinator *c, const struct tm_member *member, struct tm_outbox *out);

void tm_coord__assignment_end(struct tm_coordinator *c); /* what was made for the roster is not true any more */

int tm_coord__foresee(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                      struct tm_roster *out);

/* coord_shares.c: which pipeline gets how many micro-batches */
void tm_coord__shares_heard(struct tm_coordinator *c, struct known *k, const Tmw__Heartbeat *body);
/* Pairs members that are alike, and fills slownesses and micro-batches. `stages_free`: no layer is anywhere yet. */
int tm_coord__share_out(struct tm_coordinator *c, bool stages_free, struct tm_roster *roster);
/* A change for the sake of shares alone begins: the next one is longer in coming each time. */
void tm_coord__shared_out(struct tm_coordinator *c, int64_t now_ms);
/* What steps of the running generation take over what they would take shared out anew; 1: as good as can be. */
double tm_coord__uneven(struct tm_coordinator *c, int64_t now_ms);

/* coord_follow.c: layers are taken before a planned change */
/* May the drain begin? Until then, those who will get layers are told to follow them. */
bool tm_coord__followed(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                        int64_t limit_ms, struct tm_outbox *out);
bool tm_coord__follow_last(struct tm_coordinator *c, int64_t now_ms); /* may the fence? */
void tm_coord__follow_end(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__follow_forget(struct tm_coordinator *c);

/* coord_copy.c */
void tm_coord__copy_pump(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
/* At a step that all will reach or stand at. */
uint64_t tm_coord__filed_step(struct tm_coordinator *c); /* of the newest set that is whole in files; 0: none */
void tm_coord__copy_at(struct tm_coordinator *c, int64_t now_ms, uint64_t step, bool files_only, struct tm_outbox *out);
void tm_coord__copy_begin(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__copy_heard(struct tm_coordinator *c, int64_t now_ms, const struct known *k, const Tmw__Heartbeat *body,
                          struct tm_outbox *out);
void tm_coord__copy_abandon(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
/* No part is known to be lost or damaged with all its holders. */
const struct copy_set *tm_coord__newest_good(struct tm_coordinator *c);
bool tm_coord__is_bad(const struct tm_coordinator *c, uint64_t set, uint32_t layer, uint64_t source, uint64_t step);
/* The sets to keep; at most SETS_MAX. */
size_t tm_coord__kept(struct tm_coordinator *c, uint64_t keep[SETS_MAX]);
/* Sets that the reports show to be whole though the record does not know them. */
void tm_coord__adopt_sets(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__sets_deinit(struct tm_coordinator *c);

/* coord_progress.c: losses, and the failure of the job itself */
void tm_coord__loss_told(struct tm_coordinator *c, uint64_t step, double loss);
void tm_coord__losses_heard(struct tm_coordinator *c, const Tmw__Heartbeat *body);
/* coord_steps.c */
void tm_coord__steps_heard(struct tm_coordinator *c, Tmw__StepLoss *const *steps, size_t count, uint64_t applied);
void tm_coord__steps_tell(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__steps_tell_all(struct tm_coordinator *c, uint64_t up_to, struct tm_outbox *out);
void tm_coord__load_steps(struct tm_coordinator *c, const Tmw__StepsEvent *body);
void tm_coord__losses_forget(struct tm_coordinator *c, uint64_t base);
void tm_coord__progress_tell(struct tm_coordinator *c, int64_t now_ms, bool last, struct tm_outbox *out);
struct why_failed {
    const char *reason;
    uint64_t worker;
    uint64_t step;
    char *const *lines; /* the last of a traceback or of its output */
    size_t line_count;
    const char *file; /* with all of it; "": not known */
};
void tm_coord__fail(struct tm_coordinator *c, int64_t now_ms, const struct why_failed *why, struct tm_outbox *out);
bool tm_coord__ended(const struct tm_coordinator *c);

/* coord_failure.c: workers that end by themselves, and when to give up */
void tm_coord__worker_failed(struct tm_coordinator *c, int64_t now_ms, uint64_t id, const Tmw__AgentHeartbeat *body,
                             struct tm_outbox *out);
void tm_coord__progress_made(struct tm_coordinator *c, uint64_t step); /* committed, now or in the record */
void tm_coord__try_again(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__load_failure(struct tm_coordinator *c, const Tmw__FailureEvent *body);

/* coord_observe.c */
void tm_coord__observe_start(struct tm_coordinator *c, int64_t now_ms);
void tm_coord__observe(struct tm_coordinator *c, const struct known *k, const Tmw__Heartbeat *body);
void tm_coord__observe_tell(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);

/* coord_files.c: files that cannot be written or read */
/* True: a disk is full, and what follows has to wait for the record. */
bool tm_coord__stuck(struct tm_coordinator *c);
void tm_coord__fence_late(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__trouble_heard(struct known *k, const Tmw__Heartbeat *body);
const char *tm_coord__trouble(const struct tm_coordinator *c, bool *out_full); /* in words; "": none */
/* A copy set was given up, or a member did not get its layers. After a few in a row because of files, so is the job. */
void tm_coord__files_failed(struct tm_coordinator *c, int64_t now_ms, const char *what, uint64_t set,
                            struct tm_outbox *out);
/* The last step is done, and cannot be written. */
void tm_coord__last_set_limit(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);

/* coord_stop.c */
/* The job cannot go on, and is stopped with what it has in files; somebody may mend it, and go on from there. */
void tm_coord__give_up(struct tm_coordinator *c, int64_t now_ms, const char *why, struct tm_outbox *out);
void tm_coord__stop_begin(struct tm_coordinator *c, int64_t now_ms);
void tm_coord__stop_check(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__stop_limit(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);
void tm_coord__load_state(struct tm_coordinator *c, const Tmw__StateEvent *body);
bool tm_coord__stays_stopped(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out);

/* coord_events.c: what people are told */
void tm_coord__tell_arrival(struct tm_coordinator *c, struct known *k, struct tm_outbox *out);
void tm_coord__tell_loss(struct tm_coordinator *c, int64_t now_ms, struct known *k, bool dead, bool seated,
                         struct tm_outbox *out);
void tm_coord__tell_notice(struct tm_coordinator *c, int64_t now_ms, struct known *k, struct tm_outbox *out);
int tm_coord__load_here(struct tm_coordinator *c, const Tmw__RecordEvent *event, struct tm_error *e);
void tm_coord__commit_heard(struct tm_coordinator *c, int64_t now_ms, uint64_t applied, uint64_t ago_ms);
void tm_coord__pause_begin(struct tm_coordinator *c);
void tm_coord__pause_end(struct tm_coordinator *c, int64_t now_ms, const Tmw__Heartbeat *body, struct tm_outbox *out);
void tm_coord__tell_restart(struct tm_coordinator *c, bool rebuilt, struct tm_outbox *out);
enum tm_job_state tm_coord__state(const struct tm_coordinator *c);
void tm_coord__record_state(struct tm_coordinator *c, bool sync, struct tm_outbox *out);
void tm_coord__tell_state(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__tell_rent(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__keep_hint(struct tm_coordinator *c, uint64_t instance); /* it is in the record */
void tm_coord__keep_zone(struct tm_coordinator *c, uint32_t zone);     /* it is in the record */
void tm_coord__tell_zones(struct tm_coordinator *c, const Tmw__CloudReport *report, struct tm_outbox *out);
void tm_coord__tell_hints(struct tm_coordinator *c, const Tmw__CloudReport *report, struct tm_outbox *out);
void tm_coord__tell_refusals(struct tm_coordinator *c, const Tmw__CloudReport *report, struct tm_outbox *out);

/* coord_record.c */
void tm_coord__record(struct tm_coordinator *c, Tmw__RecordEvent *event, bool sync, struct tm_outbox *out);
void tm_coord__record_fenced(struct tm_coordinator *c, enum tm_change_cause cause, const char *why,
                             struct tm_outbox *out);
void tm_coord__record_started(struct tm_coordinator *c, uint64_t rolled_back, uint64_t redone, struct tm_outbox *out);
void tm_coord__record_set(struct tm_coordinator *c, const struct copy_set *set, struct tm_outbox *out);
void tm_coord__record_sets_named(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__record_bad(struct tm_coordinator *c, uint64_t set, struct tm_outbox *out);
void tm_coord__record_finished(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__record_progress(struct tm_coordinator *c, const struct tm_step_loss *newest, struct tm_outbox *out);
void tm_coord__record_failed(struct tm_coordinator *c, const struct why_failed *why, struct tm_outbox *out);
void tm_coord__record_kernel_class(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__record_fingerprint(struct tm_coordinator *c, struct tm_outbox *out); /* what was not told yet */
void tm_coord__record_instance(struct tm_coordinator *c, const Tmw__Instance *instance, struct tm_outbox *out);
void tm_coord__record_price(struct tm_coordinator *c, struct tm_outbox *out);
void tm_coord__note(struct tm_coordinator *c, const char *what, uint64_t worker, uint64_t value, struct tm_outbox *out);

/* The upper half of a number is its epoch, and there is always a next one: whoever names the last is no friend. */
static inline bool tm_coord__can_be_generation(uint64_t number)
{
    return number >> 32 < UINT32_MAX;
}

#endif

/* What people and machines see of a run: one struct, made from the events of the job's record, oldest first, and from
 * what the coordinator says of now. So the same numbers come out while it runs (in the coordinator's process) and
 * afterwards, from the record alone.
 *
 *     struct tm_run_watch *watch = tm_run_watch_create();
 *     tm_run_watch_take(watch, sequence, event, e);      for every event, again and again as they come
 *     tm_run_watch_look(watch, &view, utc_ms, e);        while it runs: what no event has said yet
 *     const struct tm_run_status *status = tm_run_watch_status(watch);
 *
 * Counts, exactly:
 *   committed     the highest step applied by a generation and not rolled back since
 *   rolled back   steps that were committed, lost with all replicas of a stage, and done again from the newest copy set
 *   redone        rolled-back steps, and steps that were under way, not committed, when a generation ended without a
 *                 drain: all work that was done more than once. Planned changes redo nothing
 *   waiting       time without enough workers, or without the holders of the newest copy set
 *   pause         the time that a change of generation took from training: from the last commit before it to the first
 *                 commit after it, less waiting, less one step at the pace before it; not below 0. Start-up is no
 *                 pause, nor is a stop
 *   recovery      a pause whose cause is a loss, a hang or a damaged copy: nobody planned it
 *   generations   those that started
 *   arrivals      instances that came; a worker started again on its instance is none
 *   losses        instances that were taken away, announced (there was a notice) or not; not those given back.
 *                 Where no cloud tells of instances, workers that came and were lost are counted instead
 *   worker losses worker processes that were lost, for whatever reason, whether they came back or not
 *   trouble       files that cannot be written or read now; no event, and none once all is over
 *   bill          by the cloud's own count, of all instances that ever were
 *   on demand     what the same instance-seconds cost at the on-demand price
 *   state hash    XXH3-128 over the hashes of all layers' state, by layer, of the copy set made at the last step
 *   weights hash  of the weights alone, as the engine counts it; a summary has the state's where there is none
 *   wall          from the first event to the last, or to now, in real time; the time between a stop and
 *                 going on is left out */
#ifndef TM_RUN_RUN_STATUS_H
#define TM_RUN_RUN_STATUS_H

#include "base/jsonout.h"
#include "cloud/cloud.h"
#include "run/coordinator.h"
#include "wire/last_lines.h"

enum {
    TM_STATUS_NAME_MAX = 64,
    TM_STATUS_COMMAND_MAX = 4096,
    TM_STATUS_POOL_NAME_MAX = 96,
    TM_STATUS_GPU_MAX = 48,
    TM_STATUS_TEXT_MAX = 200,
    TM_STATUS_LOSS_POINTS = 256,  /* over the whole run: when full, every second one goes */
    TM_STATUS_EVENTS = 32,        /* the last ones */
    TM_STATUS_GONE_SHOWN = 64,    /* instances that are gone: the last ones */
    TM_STATUS_PAUSES_SHOWN = 256, /* the last ones */
};

/* What the job is: the record's first event, so that a record can be understood alone. */
struct tm_run_job {
    char name[TM_STATUS_NAME_MAX];
    uint64_t steps;
    uint64_t samples_per_step; /* 0: not known */
    uint64_t tokens_per_step;  /* 0: not known */
    uint32_t layers;
    uint32_t micro_batches;
    double speed;                                          /* the cloud's seconds per second of real time */
    double deadline_s;                                     /* of the job file, in the cloud's time; 0: none */
    double budget_usd;                                     /* of the job file; 0: none */
    char command[TM_STATUS_COMMAND_MAX];                   /* to repeat it; "": not known, or longer than this */
    char pools[TM_RUN_POOLS_MAX][TM_STATUS_POOL_NAME_MAX]; /* that it may choose from */
    size_t pool_count;                                     /* 0: there is no choice */
    char gpus[TM_RUN_POOLS_MAX][TM_STATUS_GPU_MAX];        /* of an instance of each, or [0] of any; "": not known */
    double on_demand_usd_h[TM_RUN_POOLS_MAX]; /* an instance of each pool, were it on-demand; 0: not known */
    uint64_t keepers; /* bits: pools that only keep copies; without a choice, bit 1: on-demand instances */
    uint32_t workers; /* an instance */
};

/* A pool that the job may choose. */
struct tm_run_pool_status {
    uint32_t want;
    uint32_t here;
    double price_usd_h; /* NaN: not known */
    double instance_hours;
    double bill_usd;
};

enum { TM_RUN_ZONE_MAX = 64 };

enum tm_seat_kind { TM_SEAT_NONE, TM_SEAT_SPARE, TM_SEAT_TRAINS, TM_SEAT_KEEPS };

struct tm_run_instance {
    uint64_t id;
    enum tm_instance_state state;
    uint32_t pool;          /* its number, where there is a choice */
    int64_t paid_before_ms; /* that was paid before start_ms */
    bool spot;
    bool announced; /* of one that is lost: there was a notice */
    uint32_t zone;
    char zone_name[TM_RUN_ZONE_MAX]; /* as the cloud calls it; "": not known */
    int64_t start_ms;                /* the cloud's time, as end_ms */
    int64_t end_ms;                  /* 0: it is here */
    int64_t leaves_utc_ms;           /* TM_INSTANCE_NOTICED: UTC */
    double price_usd_h;
    double bill_usd;
    bool worker;            /* its worker holds a lease */
    bool drained;           /* somebody has ordered it to go */
    enum tm_seat_kind seat; /* in the newest layout */
    uint32_t pipeline;
    uint32_t stage;
};

struct tm_run_pause {
    uint64_t generation; /* that ended it */
    enum tm_change_cause cause;
    int64_t end_utc_ms; /* first commit after it */
    double pause_s;
};

/* One that is of interest to people. */
struct tm_run_event_text {
    uint64_t sequence;
    int64_t utc_ms;
    char kind[24];                 /* as in the schema */
    char text[TM_STATUS_TEXT_MAX]; /* in words, with its numbers */
};

/* p50 and max are NaN where there is none. */
struct tm_run_spread {
    uint64_t count;
    double p50_s;
    double max_s;
    double total_s;
};

struct tm_run_status {
    struct tm_run_job job;
    enum tm_job_state state;
    char reason[TM_STATUS_TEXT_MAX];  /* of the state, or what is waited for; "" */
    char trouble[TM_STATUS_TEXT_MAX]; /* with files that cannot be written or read now, though it goes on; "" */
    bool gave_up;                     /* TM_JOB_STOPPED: not by order, but because it could not go on */
    struct tm_last_lines output;      /* TM_JOB_FAILED: the last that the worker wrote that ended it; safe to print */
    char output_file[TM_STATUS_TEXT_MAX]; /* where all of it is, below the state folder; "": not known */
    bool live;                            /* a coordinator said so; else: the record's last word */
    uint64_t sequence;                    /* of the last event */
    int64_t utc_ms;                       /* now, or of the last event */
    int64_t begun_utc_ms;

    uint64_t committed;
    uint64_t durable; /* step of the newest whole copy set */
    uint64_t redone;
    uint64_t rolled_back;
    double loss; /* newest; NaN: none */
    struct tm_step_loss points[TM_STATUS_LOSS_POINTS];
    size_t point_count;
    double step_s;         /* newest measured; NaN */
    double steps_s;        /* per second, over the last seconds; 0 while nothing is committed */
    char state_hash[33];   /* "": not known */
    char weights_hash[33]; /* "": not known; the record does not hold it: whoever has the weights fills it in */

    uint64_t generation;
    uint64_t generations;
    uint32_t pipelines; /* of the layout; 0: none */
    uint32_t stages;
    uint32_t *first_layers; /* at which each stage begins; owned */
    uint64_t *seats;        /* instance at [pipeline * stages + stage]; owned */
    uint32_t spares;

    struct tm_run_instance *instances; /* by number; owned */
    size_t instance_count;
    size_t instance_capacity;
    uint32_t here;
    uint32_t noticed;
    uint32_t want_spot;
    uint32_t want_on_demand;
    struct tm_run_pool_status pools[TM_RUN_POOLS_MAX]; /* of job.pools */
    uint64_t arrivals;
    uint64_t losses_announced;
    uint64_t losses_unannounced;
    uint64_t worker_losses;
    double bill_usd;
    double on_demand_usd; /* NaN: no on-demand price is known */
    double deadline_s;    /* that holds now, in the cloud's time since the job began; NaN: none */
    double budget_usd;    /* that holds now; NaN: none */
    double left_s;        /* until it is done, in real time, if it goes on as it did; NaN: not known, or not going on */
    double left_low_s;    /* with four chances in five between this ... */
    double left_high_s;   /* ... and this; NaN: too little was seen to tell */
    double spot_usd_h;    /* NaN: not known */
    double on_demand_usd_h;

    struct tm_run_pause *pauses; /* owned */
    size_t pause_count;
    size_t pause_capacity;
    struct tm_run_spread pause;
    struct tm_run_spread recovery;
    double waiting_s;
    double wall_s;

    struct tm_run_event_text events[TM_STATUS_EVENTS]; /* oldest first */
    size_t event_count;
};

/* Does an instance of it cost anything, as far as is known? */
bool tm_run_status_is_priced(const struct tm_run_status *status);
/* What it would cost on-demand, an hour: of its pool, where there is a choice of them. NaN: not known. */
double tm_run__on_demand_usd_h(const struct tm_run_status *status, const struct tm_run_instance *instance);
bool tm_run_instance_is_here(const struct tm_run_instance *instance);

void tm_run_status_deinit(struct tm_run_status *status);

/* GET /v1/status, `status --json`. Reading gives back what was written; -TM_EINPUT names the key. */
void tm_run_status_write(const struct tm_run_status *status, struct tm_jsonout *json);
int tm_run_status_read(const char *file, const char *text, size_t length, struct tm_run_status *out,
                       struct tm_error *e);

/* The end of a run: `run --json` and summary.json. */
void tm_run_summary_write(const struct tm_run_status *status, struct tm_jsonout *json);

/* ---- making it ---- */

struct tm_run_watch;
struct tm_run_watch *tm_run_watch_create(void); /* the caller owns it; NULL: out of memory */
void tm_run_watch_destroy(struct tm_run_watch *watch);

/* Events must come in the order of their sequence; one that was taken before is passed over. */
int tm_run_watch_take(struct tm_run_watch *watch, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e);
/* What the coordinator says of now. */
int tm_run_watch_look(struct tm_run_watch *watch, const struct tm_coordinator_view *view, int64_t utc_ms,
                      struct tm_error *e);
/* What the wall's time of the run would be at an event then. */
double tm_run_watch__wall_s(const struct tm_run_watch *watch, int64_t utc_ms);
/* All of it as it stands now; borrowed until the next call with this watch. */
const struct tm_run_status *tm_run_watch_status(struct tm_run_watch *watch);

/* The same, given away: the caller owns what is in `out`, and the watch is empty again. */
void tm_run_watch__give(struct tm_run_watch *watch, struct tm_run_status *out);

/* ---- single events ---- */

/* The event that says what the job is, packed for the record; appended to `out`. */
void tm_run_job__pack(const struct tm_run_job *job, int64_t utc_ms, struct tm_text *out);

/* Is it for machines only (progress, prices, bills so far)? */
bool tm_run_event_quiet(const Tmw__RecordEvent *event);
/* Its kind, as in the schema: "loss". */
const char *tm_run_event_kind(const Tmw__RecordEvent *event);
/* In words, with its numbers: "worker 3 is lost: its process ended". Text from outside is made safe to print. */
void tm_run_event_words(const Tmw__RecordEvent *event, struct tm_text *out);
/* All of it: {"sequence", "utc_ms", "kind", "quiet", "text", and under its kind every field of the schema}. Lists of
 * parts of copies are left out. */
void tm_run_event_write(uint64_t sequence, const Tmw__RecordEvent *event, struct tm_jsonout *json);
/* Who has a copy set: workers by their numbers, 0 for files, each once; the first TM_RUN_HOLDERS_MAX. How many. */
enum { TM_RUN_HOLDERS_MAX = 64 };
size_t tm_run__set_holders(const Tmw__CopySet *set, uint64_t out[TM_RUN_HOLDERS_MAX]);
/* The same without its fields, but for orders to rent and copies: what a page needs, and no layout of a thousand. */
void tm_run_event_write_brief(uint64_t sequence, const Tmw__RecordEvent *event, struct tm_jsonout *json);

#endif

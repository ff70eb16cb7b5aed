/* How a job is run: what its file says in the keys of a run, options instead of it, and defaults for the rest. It lies
 * in the state folder as run.yaml, from which coordinator, agents, workers and a resumed run read it again. */
#ifndef TM_RUN_RUN_SETTINGS_H
#define TM_RUN_RUN_SETTINGS_H

#include "market/trace.h"
#include "market/trace_draw.h"
#include "workload/job.h"

enum tm_run_engine {
    TM_RUN_GPT,
    TM_RUN_PACED,
    TM_RUN_COMMAND, /* the job's `run` */
};
extern const char *const tm_run_engine_names[];

struct tm_run_settings {
    struct tm_arena arena; /* owns the texts */
    const char *name;
    uint64_t job;       /* its number */
    const char *folder; /* of the job file as given, absolute: what the file names is meant from there */
    int engine;         /* enum tm_run_engine */
    const char *policy;
    const char *costs;             /* of migrations: a name or a file, borrowed; NULL: as measured, else the engine's */
    struct tm_job_fleet fleet;     /* everything in it is said */
    int64_t copy_every_ms;         /* on the wall; 0: the policy decides */
    int64_t deadline_ms;           /* in the trace's time; 0: none */
    int64_t budget_usd_millionths; /* 0: none */
    double probability;            /* to meet the deadline, at least */
    double step_core_s;            /* work of a step on one core of this machine, as measured; 0: not known */
    int64_t cores;                 /* of the machine that all instances of the local cloud share; 0: not known */
    bool no_losses;                /* what came stays */
    bool netns;                    /* each instance in a network namespace of its own ... */
    int64_t link_bit_s;            /* ... with a link of this rate; 0: not shaped */
    const char *listen;    /* HOST or HOST:PORT where the coordinator listens; NULL: where the cloud reaches it */
    const char *advertise; /* HOST or HOST:PORT that instances are told; NULL: where it listens */
    bool tls;              /* asked for: tm_run_settings_tls */
    int64_t failures_max;  /* tries without a new step until the job fails; 0: no limit */
    int64_t chaos;         /* seed of the faults; TM_FLEET_UNSAID: none */
    int64_t chaos_mean_ms; /* between two */
    int64_t chaos_kinds;   /* bits by enum tm_fault_kind; 0: all */
};

void tm_run_settings_init(struct tm_run_settings *settings);
void tm_run_settings_deinit(struct tm_run_settings *settings);

/* Fills in what the job says and defaults for what it does not. `path` is the job's, `folder` its absolute folder.
 * Prices that neither says stay unsaid: they are the catalogue's. `settings` must be initialised. */
int tm_run_settings_of_job(const struct tm_job *job, const char *path, const char *folder,
                           struct tm_run_settings *settings, struct tm_error *e);
/* Where things stand, for messages; a line of 0: nowhere. */
struct tm_run_places {
    const char *file;
    int name_line, policy_line, fleet_line;
};
/* What is wrong with it as a whole, as -TM_EINPUT. */
int tm_run_settings_check(const struct tm_run_settings *settings, const struct tm_run_places *places,
                          struct tm_error *e);

/* Connections of the job are TLS: where it is asked for, and where they leave the machine, or its name for itself. */
bool tm_run_settings_tls(const struct tm_run_settings *settings);

/* run.yaml: reading gives back what was written. */
void tm_run_settings_print(const struct tm_run_settings *settings, struct tm_text *out);
int tm_run_settings__parse(const char *file, const char *text, size_t length, struct tm_run_settings *settings,
                           struct tm_error *e);
/* Of a state folder. */
int tm_run_settings_load(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_error *e);

/* What preemptions are drawn from, for as long as a run may take; `pools` has room for TM_DRAW_POOLS_MAX. */
struct tm_draw tm_run_draw(const struct tm_job_fleet *fleet, struct tm_draw_pool *pools);

/* The trace that the local cloud replays: the part that is asked for, its counts scaled to the spot instances that
 * there can be where it is to be; or one that is drawn. `out` must be initialised. */
int tm_run_trace(struct tm_env *env, const struct tm_run_settings *settings, struct tm_trace *out, struct tm_error *e);

/* By the policy: at each change everybody restarts from the newest checkpoint. */
bool tm_run_restarts_all(const struct tm_run_settings *settings);

#endif

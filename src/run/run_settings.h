/* How a job is run: the job, with options instead of what its file says and defaults for what it does not, and what
 * only a run has (where it listens, what was measured, the faults that are injected). In the state folder the file lies
 * as job.yaml, and as run.yaml what was settled: coordinator, agents, workers and a resumed run read both again. */
#ifndef TM_RUN_RUN_SETTINGS_H
#define TM_RUN_RUN_SETTINGS_H

#include "market/trace.h"
#include "market/trace_draw.h"
#include "workload/job.h"

struct tm_run_settings {
    struct tm_job job; /* settled: name, policy and fleet are said; its folder is absolute. Its arena owns all texts */
    uint64_t number;   /* of the job, by its token */
    const char *costs; /* of migrations: a name or a file, borrowed; NULL: as measured, else the engine's */
    int64_t copy_every_ms; /* in real time; 0: the policy decides */
    double step_core_s;    /* work of a step on one core of this machine, as measured; 0: not known */
    int64_t cores;         /* of the machine that all instances of the local cloud share; 0: not known */
    bool by_resources;     /* whoever has the instances chooses their types by the job's resources */
    bool no_losses;        /* what came stays */
    bool netns;            /* each instance in a network namespace of its own ... */
    int64_t link_bit_s;    /* ... with a link of this rate; 0: not shaped */
    const char *brought;   /* of a machine that joined: where the folder of the command is; NULL: where the job says */
    const char *listen;    /* HOST or HOST:PORT where the coordinator listens; NULL: where the cloud reaches it */
    const char *advertise; /* HOST or HOST:PORT that instances are told; NULL: where it listens */
    bool tls;              /* asked for: tm_run_settings_tls */
    int64_t chaos;         /* seed of the faults; TM_FLEET_UNSAID: none */
    int64_t chaos_mean_ms; /* between two */
    int64_t chaos_kinds;   /* bits by enum tm_fault_kind; 0: all */
};

void tm_run_settings_init(struct tm_run_settings *settings);
void tm_run_settings_deinit(struct tm_run_settings *settings);

/* Fills in what the job does not say, and checks the whole. Prices that it does not say stay unsaid: they are the
 * catalogue's. The job must have been read, and its folder be absolute. */
int tm_run_settings_settle(struct tm_run_settings *settings, struct tm_error *e);
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

/* run.yaml: reading puts back what was written, whatever the job of `settings` says; of the job only that is replaced.
 */
void tm_run_settings_print(const struct tm_run_settings *settings, struct tm_text *out);
int tm_run_settings__parse(const char *file, const char *text, size_t length, struct tm_run_settings *settings,
                           struct tm_error *e);
/* Of a state folder: its job.yaml and, over it, its run.yaml. */
int tm_run_settings_load(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_error *e);
/* Its run.yaml alone, over the job that `settings` have. */
int tm_run_settings_read(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_error *e);

/* What preemptions are drawn from, for as long as a run may take; `pools` has room for TM_DRAW_POOLS_MAX. */
struct tm_draw tm_run_draw(const struct tm_job_fleet *fleet, struct tm_draw_pool *pools);

/* The trace that the local cloud replays: the part that is asked for, its counts scaled to the spot instances that
 * there can be where it is to be; or one that is drawn. `out` must be initialised. */
int tm_run_trace(struct tm_env *env, const struct tm_run_settings *settings, struct tm_trace *out, struct tm_error *e);

/* By the policy: at each change everybody restarts from the newest checkpoint. */
bool tm_run_restarts_all(const struct tm_run_settings *settings);

#endif

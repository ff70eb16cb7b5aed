/* Chaos by seed: a schedule of faults as a pure function of seed and number; others carry them out.
 *
 * Fault k is somewhere in the k-th interval of mean_ms, so faults come in order, one per interval, and any one can be
 * computed without the others. */
#ifndef TM_CLOUD_CHAOS_H
#define TM_CLOUD_CHAOS_H

#include <stdint.h>

/* X(name, as text, lasts) */
#define TM_FAULTS(X)                                                                                                   \
    X(KILL_WORKER, "kill-worker", 0)           /* SIGKILL */                                                           \
    X(KILL_AGENT, "kill-agent", 0)             /* SIGKILL: the whole instance goes */                                  \
    X(KILL_COORDINATOR, "kill-coordinator", 0) /* SIGKILL */                                                           \
    X(STOP_WORKER, "stop-worker", 1)           /* SIGSTOP, then SIGCONT */                                             \
    X(STOP_AGENT, "stop-agent", 1)                                                                                     \
    X(CUT_LINK, "cut-link", 1)   /* of an instance */                                                                  \
    X(FULL_DISK, "full-disk", 1) /* of an instance */

enum tm_fault_kind {
#define TM_FAULT_ENUM(name, text, lasts) TM_FAULT_##name,
    TM_FAULTS(TM_FAULT_ENUM)
#undef TM_FAULT_ENUM
        TM_FAULT_KINDS
};

struct tm_chaos {
    uint64_t seed;
    int64_t mean_ms;                  /* between faults; > 0 */
    int64_t begin_ms;                 /* none before */
    int64_t lasting_ms;               /* mean of those that last */
    uint32_t weights[TM_FAULT_KINDS]; /* how often each, among all; all 0: evenly */
};

struct tm_fault {
    uint64_t number;
    int64_t time_ms;
    enum tm_fault_kind kind;
    int64_t lasts_ms; /* 0: over at once */
    uint64_t pick;    /* whom it hits: tm_fault_target */
};

struct tm_fault tm_chaos_fault(const struct tm_chaos *chaos, uint64_t number);
/* The number of the first fault at or after a time. */
uint64_t tm_chaos_first_from(const struct tm_chaos *chaos, int64_t time_ms);
/* Which of `count` candidates (> 0), in the caller's order. */
uint64_t tm_fault_target(const struct tm_fault *fault, uint64_t count);
const char *tm_fault_kind_name(enum tm_fault_kind kind);

#endif

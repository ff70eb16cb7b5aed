/* Decides a recorded job again: the policy is made from what the record says it was made from, told and asked what it
 * was told and asked, and every answer is compared with the one that was given. The policy of the record must answer
 * the same in everything; another one is asked the same, and compared in what would have been carried out. And the
 * micro-batches of every generation are shared out again by the slownesses that its layout names. */
#ifndef TM_RUN_DECIDE_AGAIN_H
#define TM_RUN_DECIDE_AGAIN_H

#include "policy/policy.h"
#include "wire/message.h"

/* One decision that differs. */
struct tm_decided_otherwise {
    uint64_t index;    /* of decisions, from 1 */
    uint64_t sequence; /* in the record */
    int64_t utc_ms;
    char policy[TM_MESSAGE_STRING_MAX + 1]; /* that decided */
    const char *figure;                     /* the first that differs */
    struct tm_facts facts;
    struct tm_decision was;
    struct tm_decision would;
    struct tm_layout was_layout;
    struct tm_layout would_layout;
    struct tm_layout standing;
};

struct tm_decided_again {
    uint64_t decisions;
    uint64_t different;
    uint64_t unknown;                  /* not judged: the record lacks what came before them, or there was no answer */
    uint64_t policies;                 /* coordinators that decided */
    uint64_t generations;              /* that started ... */
    uint64_t shared_otherwise;         /* ... and were shared out otherwise than their members' slownesses say */
    struct tm_decided_otherwise first; /* where different > 0 */
};

struct tm_decide_again;

/* `other` NULL: by the record's own policy; else it must be able to run a job (-TM_EUSAGE). The caller owns the result.
 */
int tm_decide_again_create(const struct tm_policy_info *other, struct tm_decide_again **out, struct tm_error *e);
void tm_decide_again_destroy(struct tm_decide_again *again); /* NULL is allowed */
/* Every event of the record, oldest first. -TM_EINPUT: it cannot be understood. */
int tm_decide_again_take(struct tm_decide_again *again, uint64_t sequence, const Tmw__RecordEvent *event,
                         struct tm_error *e);
const struct tm_decided_again *tm_decide_again_result(const struct tm_decide_again *again);

#endif

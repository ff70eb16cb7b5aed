/* What the cloud says of this instance: readers of the three clouds' notices behind one interface.
 *
 * A reader never blocks, has at most one connection, and bounds everything it reads. Failures (refused, slow, 5xx,
 * nonsense) are counted and retried after `retry_ms`, doubled up to `retry_max_ms`; a notice stays until the cloud
 * withdraws it in a readable answer.
 *
 *   AWS    token, then spot/instance-action and the rebalance recommendation, each poll_ms
 *   GCP    `preempted` by a long poll, then maintenance-event
 *   Azure  scheduled events, each poll_ms */
#ifndef TM_CLOUD_NOTICE_H
#define TM_CLOUD_NOTICE_H

#include "base/env.h"
#include "base/http.h"

enum tm_notice_cloud { TM_NOTICE_AWS, TM_NOTICE_GCP, TM_NOTICE_AZURE, TM_NOTICE_CLOUDS };

#define TM_NOTICE_ADDRESS "169.254.169.254:80" /* of all three */

struct tm_notice_options {
    enum tm_notice_cloud cloud;
    const char *address;  /* borrowed; NULL: TM_NOTICE_ADDRESS */
    int64_t poll_ms;      /* 0: 1000 */
    int64_t answer_ms;    /* an answer may take so long (a long poll: so much longer); 0: 2000 */
    int64_t retry_ms;     /* 0: 250 */
    int64_t retry_max_ms; /* 0: 5000 */
    int64_t gcp_left_ms;  /* what GCP gives after its word, which bears no time; 0: 30000 */
};

/* The newest word. */
struct tm_notice {
    bool hinted;         /* it may go soon */
    bool going;          /* it will go ... */
    int64_t gone_utc_ms; /* ... then, or has to be ready to */
};

/* What a kind of cloud asks and how it understands the answers: one row a cloud (notice_aws.c, ...). */
struct tm_notice_reader;

int tm_notice_reader_create(struct tm_env *env, const struct tm_notice_options *options, struct tm_notice_reader **out,
                            struct tm_error *e);
void tm_notice_reader_destroy(struct tm_notice_reader *reader); /* NULL is allowed */

/* Does what can be done now: 0 where the word changed (then *out is the new one), -TM_EBUSY where it did not. */
int tm_notice_reader_step(struct tm_notice_reader *reader, struct tm_notice *out, struct tm_error *e);
/* What to wait for before the next step: a handle (-1: none) and a wait. */
int tm_notice_reader_handle(const struct tm_notice_reader *reader);
int64_t tm_notice_reader_wait_ms(const struct tm_notice_reader *reader);

struct tm_notice_health {
    uint64_t answers; /* that were understood */
    uint64_t failures;
    uint64_t failures_in_row;
    const char *last; /* words of the last failure, "" for none; borrowed */
};
struct tm_notice_health tm_notice_reader__health(const struct tm_notice_reader *reader);

/* ---- the answers' readers, for the fuzzer ---- */

/* -TM_EINPUT where the text is no such answer. */
int tm_notice__parse_aws_action(const char *text, size_t length, int64_t *out_gone_utc_ms, struct tm_error *e);
int tm_notice__parse_gcp_preempted(const char *text, size_t length, bool *out_preempted, struct tm_error *e);
int tm_notice__parse_azure(const char *text, size_t length, int64_t now_utc_ms, struct tm_notice *out,
                           struct tm_error *e);

#endif

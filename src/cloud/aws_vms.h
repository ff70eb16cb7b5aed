/* AWS's VMs as instances: which call is due, and what its answer means. Nothing here asks anybody or reads a clock, so
 * a test can be AWS.
 *
 * One VM is one call of RunInstances with a token of its own, which is written down before (aws_cloud.c). A call
 * without an answer is made again with the same token and the same words: AWS then names the VM that it has started, or
 * starts it. What an earlier program of this run left is adopted: its VMs are instances again, under new numbers, and
 * get new tickets. A VM of this run that is not wanted is ended, and asked for until AWS says that it has gone.
 *
 * The bill is AWS's: each second at the price of its moment, at least 60 s, and nothing for a spot instance that AWS
 * takes back within its first hour. */
#ifndef TM_CLOUD_AWS_VMS_H
#define TM_CLOUD_AWS_VMS_H

#include "cloud/aws_text.h"
#include "cloud/cloud.h"

enum { TM_AWS_VMS_MAX = 1 << 16 };

struct tm_aws__pool {
    struct tm_cloud_pool about;
    int want;
    bool said;   /* how many are wanted, since this program began */
    int missing; /* as was told */
    int failures;
    int64_t retry_ms;
    double price_usd_h; /* now; NaN: not known */
};

enum tm_aws__step { TM_AWS_ASKED, TM_AWS_BOOTS, TM_AWS_HERE, TM_AWS_GONE };

struct tm_aws__vm {
    char token[TM_AWS_TOKEN_MAX];
    char id[TM_AWS_ID_MAX]; /* "": not known */
    enum tm_aws__step step;
    bool calling;    /* RunInstances is under way */
    bool ending;     /* it is to be ended */
    bool ended;      /* TerminateInstances was answered */
    bool over;       /* it has gone, or never was */
    bool adopted;    /* from an earlier program: its ticket is worth nothing */
    bool ticket_due; /* a new one is to be put where it looks for it */
    bool log_due;    /* its output is to be fetched */
    int drops_due;   /* of objects in the bucket */
    bool kept;       /* it is written down as it is now: whoever does that sets it ... */
    bool dropped;    /* ... and that it is not any more */
    int tries;
    int64_t retry_ms; /* of RunInstances, TerminateInstances */
    int64_t since_ms; /* it is there since then; may be before this program */
    int64_t boots_ms; /* known since then, to this program */
    int64_t seen_ms;  /* when AWS last named it */
    int64_t paid_ms;  /* the bill is up to here */
    double paid_s;
    double paid_usd;
    bool minimum; /* 60 s are paid in any case */
};

enum tm_aws__call_kind {
    TM_AWS_DESCRIBE,
    TM_AWS_RUN,
    TM_AWS_TERMINATE,
    TM_AWS_PRICES,
    TM_AWS_PUT_TICKET,
    TM_AWS_GET_LOG,
    TM_AWS_DROP, /* what it left in the bucket */
    TM_AWS_CALL_KINDS
};

struct tm_aws__call {
    enum tm_aws__call_kind kind;
    size_t at; /* of the VM */
};

struct tm_aws__vms {
    struct tm_aws__pool pools[TM_CLOUD_POOLS_MAX];
    int pool_count;
    uint64_t id_next;
    uint64_t random; /* state of the jitter */
    int64_t poll_max_ms;
    int64_t poll_ms; /* now */
    int64_t look_ms; /* of the next look */
    int64_t prices_ms;
    int64_t start_limit_ms;
    int64_t begin_utc_ms;  /* of this program's time */
    int64_t before_utc_ms; /* up to here an earlier program has paid; 0: there was none */
    bool looking, pricing;
    bool adopting; /* before anything is asked for: who is there? */
    struct tm_cloud_instance *instances;
    size_t count, instance_capacity;
    struct tm_aws__vm *vms; /* by the same places */
    size_t vm_capacity;
    struct tm_cloud_event *events;
    size_t event_first, event_count, event_capacity;
};

void tm_aws_vms__init(struct tm_aws__vms *v);
void tm_aws_vms__deinit(struct tm_aws__vms *v);

/* What an earlier program wrote down, before the first call: a VM of that token, whose id may not be known. */
int tm_aws_vms__recall(struct tm_aws__vms *v, int pool, const char *token, const char *id, struct tm_error *e);

/* The next call to make now; *out_due false: none. It is under way until it is answered below. */
int tm_aws_vms__next(struct tm_aws__vms *v, int64_t now_ms, struct tm_aws__call *out, bool *out_due,
                     struct tm_error *e);
/* When something is to be done that no answer brings; INT64_MAX: never. */
int64_t tm_aws_vms__due_ms(const struct tm_aws__vms *v);
/* What time alone brings: VMs that never joined. */
int tm_aws_vms__tick(struct tm_aws__vms *v, int64_t now_ms, struct tm_error *e);

/* Answers. RunInstances gave this VM. */
void tm_aws_vms__rented(struct tm_aws__vms *v, size_t at, const struct tm_aws__row *row, int64_t now_ms);
/* RunInstances was refused with this code; "": there was no answer. An error: nothing can be rented with this. */
int tm_aws_vms__refused(struct tm_aws__vms *v, size_t at, const char *code, const char *words, int64_t now_ms,
                        struct tm_error *e);
/* The call could not even be made: later. */
void tm_aws_vms__unmade(struct tm_aws__vms *v, size_t at, int64_t now_ms);
/* DescribeInstances: all VMs of this run that AWS knows of, those that have ended among them. NULL: no answer. */
int tm_aws_vms__described(struct tm_aws__vms *v, const struct tm_aws__row *rows, size_t count, int64_t now_ms,
                          struct tm_error *e);
/* TerminateInstances: "" where it was accepted. */
void tm_aws_vms__terminated(struct tm_aws__vms *v, size_t at, bool answered, const char *code, int64_t now_ms);
/* DescribeSpotPriceHistory: the price now; then the end of all. */
void tm_aws_vms__priced(struct tm_aws__vms *v, const struct tm_aws__price *price, int64_t now_ms);
void tm_aws_vms__all_priced(struct tm_aws__vms *v, int64_t now_ms);
/* The instance's agent has joined. */
int tm_aws_vms__joined(struct tm_aws__vms *v, size_t at, int64_t now_ms, struct tm_error *e);

/* Orders. */
void tm_aws_vms__want(struct tm_aws__vms *v, int pool, int count, int64_t now_ms);
int tm_aws_vms__release(struct tm_aws__vms *v, uint64_t id, int64_t now_ms, struct tm_error *e);
void tm_aws_vms__end_all(struct tm_aws__vms *v, int64_t now_ms);

bool tm_aws_vms__event(struct tm_aws__vms *v, struct tm_cloud_event *out);
/* How many may still be there. */
size_t tm_aws_vms__left(const struct tm_aws__vms *v);
/* Up to now; fills in the bills of instances, too. */
struct tm_cloud_bill tm_aws_vms__bill(struct tm_aws__vms *v, int64_t now_ms);

#endif

/* VMs that a cloud rents by calls, as instances: which call is due, and what its answer means. Nothing here asks
 * anybody or reads a clock, so a test can be the cloud. vm_cloud.c is the loop around it.
 *
 * One VM is one call with a token of its own, which is written down before. Where several pools were asked at once, the
 * one that gave it is known when the cloud names it. A call
 * without an answer is made again with the same token and the same words: the cloud then names the VM that it has
 * started, or starts it. What an earlier program of this run left is adopted: its VMs are instances again, under new
 * numbers, and get new tickets. A VM of this run that is not wanted is ended, and asked for until the cloud says that
 * it has gone.
 *
 * The bill (vm_bill.c) is by the cloud's rules (tm_vm__rules): each second at the price of its moment, at least so
 * many, and nothing for a spot instance that is taken back soon after it came. */
#ifndef TM_CLOUD_VMS_H
#define TM_CLOUD_VMS_H

#include "cloud/cloud.h"

#define TM_VM_TAG_RUN   "tidemill:run"
#define TM_VM_TAG_TOKEN "tidemill:token"
#define TM_VM_TAG_POOL  "tidemill:pool"
#define TM_VM_TAG_OWNER "tidemill:owner"
#define TM_VM_TAG_UNTIL "tidemill:until"
/* Of the VM of a coordinator alone (away_vm.h): the place of its books. */
#define TM_VM_TAG_COORDINATOR "tidemill:coordinator"

enum { TM_VM_TOKEN_MAX = 65, TM_VM_ID_MAX = 65, TM_VM_PRICES_EVERY_MS = 5 * 60000 };

/* What a renter does after a refusal. */
enum tm_vm__remedy {
    TM_VM_ELSEWHERE, /* this pool has nothing now: another, and this one again in some minutes */
    TM_VM_QUOTA, /* the account may not have more of these, nor of what the same quota holds: in a quarter of an hour,
                  * with a word to the user */
    TM_VM_AGAIN, /* the same again, with the same token, after a pause */
    TM_VM_LOOK,  /* the token was used with other words: what is there is found by its tag */
    TM_VM_STOP   /* nothing that comes by waiting: settings, permissions, a bill */
};

/* What differs from cloud to cloud. */
struct tm_vm__rules {
    const char *cloud; /* as people call it: "AWS" */
    enum tm_vm__remedy (*remedy_of)(const char *code);
    const char *(*advice)(const char *code); /* what the user is told to do; "": nothing */
    /* Is another pool held by the quota that this one was refused for? NULL: none is. */
    bool (*shares_quota)(const char *code, const char *words, const struct tm_cloud_pool *refused,
                         const struct tm_cloud_pool *other);
    int64_t minimum_s;  /* of a VM are billed in any case */
    int64_t free_s;     /* a spot instance that is taken back within so long costs nothing */
    int64_t believe_ms; /* what the cloud does not name for so long is not there */
    int64_t steady_ms;  /* spot prices hold for days, and are asked for so often; 0: TM_VM_PRICES_EVERY_MS */
    bool free_leaving;  /* a VM costs nothing from when its end was accepted */
    bool templates;     /* spot VMs may come from a call to several pools, by a template of their own that is to go */
};

enum tm_vm__phase {
    TM_VM_RUNS,    /* or will */
    TM_VM_STOPPED, /* it does not run, and costs: it failed, or shut down */
    TM_VM_LEAVING, /* the cloud ends it, and still names it */
    TM_VM_ENDED    /* it costs nothing any more */
};

/* One VM, as the cloud tells. */
struct tm_vm__row {
    char id[TM_VM_ID_MAX];
    char token[TM_VM_TOKEN_MAX]; /* of its tag, or the cloud's own field */
    enum tm_vm__phase phase;
    bool interrupted; /* it was the cloud that took it back */
    bool itself;      /* it shut itself down */
    char reason[64];  /* in the cloud's words; "": none */
    char zone[64];
    char type[64];
    char address[64];    /* private */
    int pool;            /* of its tag; -1: none */
    int64_t launched_ms; /* UTC; 0: not said */
    int64_t ended_ms;    /* UTC; 0: not said, or it has not */
};

struct tm_vm__price {
    char type[64];
    char zone[64];
    double usd_h;
    int64_t since_ms; /* UTC; 0: not said */
};

enum { TM_VMS_MAX = 1 << 16 };

struct tm_vm__pool {
    struct tm_cloud_pool about;
    int want;
    bool said;     /* how many are wanted, since this program began */
    int missing;   /* as was told */
    char why[200]; /* the last refusal, in words */
    int failures;
    int64_t retry_ms;
    double price_usd_h; /* now; NaN: not known */
};

enum tm_vm__step { TM_VM_ASKED, TM_VM_BOOTS, TM_VM_HERE, TM_VM_GONE };

struct tm_vm {
    char token[TM_VM_TOKEN_MAX];
    char id[TM_VM_ID_MAX]; /* "": not known */
    enum tm_vm__step step;
    bool calling;    /* the call that rents it is under way */
    bool ending;     /* it is to be ended */
    bool ended;      /* and that was answered */
    bool over;       /* it has gone, or never was */
    bool adopted;    /* from an earlier program: its ticket is worth nothing */
    bool ticket_due; /* a new one is to be put where it looks for it */
    bool bound;      /* its last ticket is good from its address alone */
    bool log_due;    /* its output is to be fetched */
    int drops_due;   /* of objects in the bucket */
    bool templated;  /* there may be a launch template of its token */
    bool kept;       /* it is written down as it is now: whoever does that sets it ... */
    bool dropped;    /* ... and that it is not any more */
    int tries;
    int64_t retry_ms;  /* of renting, ending */
    int64_t follow_ms; /* when its operation is looked at; INT64_MAX: there is none, or that is under way */
    int64_t since_ms;  /* it is there since then; may be before this program */
    int64_t boots_ms;  /* known since then, to this program */
    int64_t seen_ms;   /* when the cloud last named it */
    int64_t begin_ms;  /* this program pays from then on */
    int64_t end_ms;    /* and until then; INT64_MAX: it has not ended */
    int64_t paid_ms;   /* settled up to here; INT64_MIN: not known, INT64_MAX: nobody pays */
    double paid_s;
    double paid_usd;
    bool minimum;  /* rules->minimum_s are paid in any case */
    bool launched; /* the cloud has said when it began */
    bool priced;   /* and what it costs */
};

enum tm_vm__call_kind {
    TM_VM_DESCRIBE,
    TM_VM_RUN,
    TM_VM_TERMINATE,
    TM_VM_PRICES,
    TM_VM_FOLLOW, /* how an operation of the cloud's goes that began with a call */
    TM_VM_DROP_TEMPLATE,
    TM_VM_PUT_TICKET, /* from here on: objects in the bucket */
    TM_VM_GET_LOG,
    TM_VM_DROP, /* what it left in the bucket */
    TM_VM_CALL_KINDS
};

struct tm_vm__call {
    enum tm_vm__call_kind kind;
    size_t at; /* of the VM */
};

/* How often calls of a kind may be made: so many at once, and so many a second from then on; 0: as often as one likes.
 */
struct tm_vm__rate {
    double burst;
    double per_s;
};

/* What was asked of a kind of call lately, and has not come back by its rate. */
struct tm_vm__bucket {
    double spent;
    int64_t since_ms;
};

struct tm_vms {
    const struct tm_vm__rules *rules;
    const struct tm_vm__rate *rates; /* by kind of call; NULL: no limits */
    struct tm_vm__bucket buckets[TM_VM_CALL_KINDS];
    struct tm_vm__pool pools[TM_CLOUD_POOLS_MAX];
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
    bool unpriced; /* nobody says what spot costs now: pools keep the price they have */
    int strays;    /* found and ended: nobody here asked for them */
    bool adopting; /* before anything is asked for: who is there? */
    struct tm_cloud_instance *instances;
    size_t count, instance_capacity;
    struct tm_vm *vms; /* by the same places */
    size_t vm_capacity;
    struct tm_vm__price *quotes; /* of the answer that is being read */
    size_t quote_count, quote_capacity;
    struct tm_cloud_event *events;
    size_t event_first, event_count, event_capacity;
};

/* `rules`: borrowed. */
void tm_vms__init(struct tm_vms *v, const struct tm_vm__rules *rules);
void tm_vms__deinit(struct tm_vms *v);

/* What an earlier program wrote down, before the first call: a VM of that token, whose id may not be known. */
int tm_vms__recall(struct tm_vms *v, int pool, const char *token, const char *id, struct tm_error *e);

/* The next call to make now; *out_due false: none. It is under way until it is answered below. */
int tm_vms__next(struct tm_vms *v, int64_t now_ms, struct tm_vm__call *out, bool *out_due, struct tm_error *e);
/* When something is to be done that no answer brings; INT64_MAX: never. */
int64_t tm_vms__due_ms(const struct tm_vms *v);
/* What time alone brings: VMs that never joined. */
int tm_vms__tick(struct tm_vms *v, int64_t now_ms, struct tm_error *e);

/* May one of this pool be asked for now? */
bool tm_vms__may_ask(const struct tm_vms *v, int pool, int64_t now_ms);

/* Answers. This VM was given. */
void tm_vms__rented(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms);
/* It was refused with this code; "": there was no answer. An error: nothing can be rented with this. */
int tm_vms__refused(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms,
                    struct tm_error *e);
/* As refused, by an answer that the cloud gives for this token from now on, whoever asks: nothing came of it. So where
 * the remedy is TM_VM_AGAIN, another VM with a token of its own is asked for, after a pause that grows, and that is
 * told as a refusal. */
int tm_vms__denied(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms,
                   struct tm_error *e);
/* Of several pools that were asked in one call, this one had nothing, for the reason of this code. */
int tm_vms__pool_refused(struct tm_vms *v, int pool, const char *code, int64_t now_ms, struct tm_error *e);
/* The call could not even be made: later. */
void tm_vms__unmade(struct tm_vms *v, size_t at, int64_t now_ms);
/* It was refused, or its operation has failed, and something of it may be there all the same: that is ended, and paid
 * for by nobody. `code` and the error as of tm_vms__refused; for TM_VM_AGAIN as of tm_vms__denied. */
int tm_vms__failed(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms,
                   struct tm_error *e);
/* Its call goes on in another place: where a list may have named it meanwhile it is not. */
void tm_vms__elsewhere(struct tm_vms *v, size_t at);
/* Its operation is not over: TM_VM_FOLLOW is due in so long. */
void tm_vms__follow(struct tm_vms *v, size_t at, int64_t wait_ms, int64_t now_ms);
/* All VMs of this run that the cloud knows of, those that have ended among them. NULL: no answer. */
int tm_vms__described(struct tm_vms *v, const struct tm_vm__row *rows, size_t count, int64_t now_ms,
                      struct tm_error *e);
/* Ending it: "" where that was accepted. */
void tm_vms__terminated(struct tm_vms *v, size_t at, bool answered, const char *code, int64_t now_ms);
/* Spot prices, each since its time, in any order, from tm_vms__unsettled_ms on; then the end of all. */
void tm_vms__priced(struct tm_vms *v, const struct tm_vm__price *price);
void tm_vms__all_priced(struct tm_vms *v, int64_t now_ms);
/* The instance's agent has joined. */
int tm_vms__joined(struct tm_vms *v, size_t at, int64_t now_ms, struct tm_error *e);

/* Orders. */
void tm_vms__want(struct tm_vms *v, int pool, int count, int64_t now_ms);
int tm_vms__release(struct tm_vms *v, uint64_t id, int64_t now_ms, struct tm_error *e);
void tm_vms__end_all(struct tm_vms *v, int64_t now_ms);

bool tm_vms__event(struct tm_vms *v, struct tm_cloud_event *out);
/* How many may still be there. */
size_t tm_vms__left(const struct tm_vms *v);

/* ---- vm_rates.c: what the clouds allow ---- */

/* Of a cloud ("aws"), by kind of call; NULL: nothing is known of its limits. */
const struct tm_vm__rate *tm_vms__rates(const char *cloud);
/* From when on another call of this kind may be made. */
int64_t tm_vms__free_ms(const struct tm_vms *v, enum tm_vm__call_kind kind);
/* One is made. */
void tm_vms__spend(struct tm_vms *v, enum tm_vm__call_kind kind, int64_t now_ms);

/* ---- vm_bill.c ---- */

/* Up to now; fills in the bills of instances, too. */
struct tm_cloud_bill tm_vms__bill(struct tm_vms *v, int64_t now_ms);
/* It has gone; NULL: nobody says how. */
void tm_vms__end_bill(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms);
/* From when on prices are not settled. */
int64_t tm_vms__unsettled_ms(const struct tm_vms *v, int64_t now_ms);
/* May the bill still change, though nothing more is wanted? */
bool tm_vms__owes(const struct tm_vms *v);

#endif

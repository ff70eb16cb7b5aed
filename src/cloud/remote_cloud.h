/* A cloud of things with names on somebody's service: pods of Kubernetes, clusters of SkyPilot. What is the same for
 * all of them is here: which call is due, and what its answer means for instances, notices, losses and bills. A driver
 * says how a thing is made, listed and ended there (kube_cloud.c, sky_cloud.c).
 *
 * A thing is an instance. Its name has the state folder and its pool, so that a program that takes over finds what an
 * earlier one left: things that run or wait are adopted, as instances under new numbers, by a call that brings them a
 * new ticket (an earlier one is good for one run of the program); what is too much, ends or has ended is deleted. A
 * call without an answer may have worked: the next list tells. What ends is looked for until it is gone, and so is
 * everything at the end. */
#ifndef TM_CLOUD_REMOTE_CLOUD_H
#define TM_CLOUD_REMOTE_CLOUD_H

#include "cloud/cloud.h"

enum { TM_REMOTE_NAME_MAX = 64, TM_REMOTE_WORDS_MAX = 256, TM_REMOTE_INSTANCES_MAX = 256 };

enum tm_remote_call_kind {
    TM_REMOTE_CREATE,
    TM_REMOTE_ADOPT, /* one of an earlier program is this instance from now on, and needs what is made for a new one */
    TM_REMOTE_LIST,
    TM_REMOTE_DELETE
};

struct tm_remote_call {
    enum tm_remote_call_kind kind;
    char name[TM_REMOTE_NAME_MAX]; /* of the thing; "": TM_REMOTE_LIST */
    uint64_t instance;             /* TM_REMOTE_CREATE, TM_REMOTE_ADOPT */
    enum tm_instance_kind market;  /* likewise */
    int pool;                      /* likewise */
    bool force;                    /* TM_REMOTE_DELETE: asked for before, and it is still there */
    bool ends; /* TM_REMOTE_LIST: nothing is wanted any more; what has done its work is to be told as ended, where the
                * thing itself stays */
};

enum tm_remote_phase {
    TM_REMOTE_PENDING, /* it is there, and does not run yet */
    TM_REMOTE_RUNNING,
    TM_REMOTE_LEAVING, /* the service ends it: this is a notice */
    TM_REMOTE_ENDED,   /* it does not run any more, and stands in the list */
};

struct tm_remote_row {
    char name[TM_REMOTE_NAME_MAX];
    enum tm_remote_phase phase;
    bool refused;       /* TM_REMOTE_PENDING: for want of capacity */
    int64_t left_ms;    /* TM_REMOTE_LEAVING: until it is gone */
    int status;         /* TM_REMOTE_ENDED: of what ran in it; -1: not known, or it was killed */
    double price_usd_h; /* where the service says; 0: it does not */
    char host[64];
    char zone[64];
    char words[TM_REMOTE_WORDS_MAX]; /* why it waits or ended, for people; "": nothing to say */
};

enum tm_remote_outcome {
    TM_REMOTE_DONE,
    TM_REMOTE_NO_ANSWER, /* it may have worked */
    TM_REMOTE_REFUSED,   /* it did not, and `words` says why; later it may */
    TM_REMOTE_GONE,      /* TM_REMOTE_DELETE, TM_REMOTE_ADOPT: there is no such thing */
};

struct tm_remote_answer {
    enum tm_remote_outcome outcome;
    const struct tm_remote_row *rows; /* TM_REMOTE_LIST: all whose names begin with the prefix; the driver's */
    size_t row_count;
    char words[TM_REMOTE_WORDS_MAX];
};

/* How a service is asked. One call at a time; nothing is waited for. */
struct tm_remote_driver {
    void *self;
    const char *things;  /* "pods" */
    const char *look_up; /* what shows those that were left, as a command */
    bool adopts_waiting; /* one that does not run yet can be adopted at once; else when it does */
    /* An error is one of ours (memory, a ticket); what the service says is an answer. */
    int (*begin)(void *self, const struct tm_remote_call *call, struct tm_error *e);
    /* Moves the call on; true: it has ended. */
    bool (*step)(void *self, struct tm_remote_answer *out);
    size_t (*watch)(void *self, int *handles, size_t max, int64_t *out_wait_ms);
    /* `whole`: nothing of ours is left but what the driver has made beside the things. */
    void (*destroy)(void *self, bool whole);
};

/* All is borrowed as long as the cloud is there. */
struct tm_remote_options {
    const char *prefix; /* of all names of this state folder: tm_remote__prefix */
    /* That there is a choice of, each with its limit; borrowed by `create` alone. */
    const struct tm_cloud_pool *pools;
    int pool_count;          /* 0: no choice but the market, and the next three say the rest */
    const char *type;        /* of the instances: "pod" */
    int limit[2];            /* by market: instances at a time */
    double price_usd_h[2];   /* where something is known */
    int64_t poll_ms;         /* longest time between two lists */
    int64_t end_limit_ms;    /* for all to be gone at the end */
    int64_t start_limit_ms;  /* from running to joining, and for an adoption: later it is a loss */
    int64_t delete_again_ms; /* one that is still there so long after it was asked to end is ended by force */
    uint64_t id_first;       /* 0: 1 */
    bool (*has_joined)(void *context, uint64_t id); /* then it has arrived; NULL: once it runs */
    void *context;
};

/* "tm-" and a hash of the state folder. */
void tm_remote__prefix(const char *folder, char out[TM_REMOTE_NAME_MAX]);

/* Takes the driver over, also where it fails. The caller owns the result (its `destroy`). */
int tm_remote_cloud__create(struct tm_env *env, const struct tm_remote_driver *driver,
                            const struct tm_remote_options *options, struct tm_cloud **out, struct tm_error *e);

#endif

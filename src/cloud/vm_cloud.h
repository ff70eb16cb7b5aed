/* A cloud of VMs that are rented by calls over the web (vms.h says how they live): the loop, the calls that are under
 * way, what is written down, and what VMs leave in the bucket. A driver says what a call is (aws_cloud.c,
 * azure_cloud.c, gcp_cloud.c). No call is waited for.
 *
 * What a call would rent is in a file of the state folder before the call is made, with its token: a program that dies
 * between call and answer leaves what the next one needs to find the VM. */
#ifndef TM_CLOUD_VM_CLOUD_H
#define TM_CLOUD_VM_CLOUD_H

#include "cloud/vms.h"
#include "web/web.h"

enum { TM_VM_TICKET_MAX = 512, TM_VM_CALLS_MAX = 12, TM_VM_PATH_MAX = 1200 };

/* All is borrowed as long as the cloud is there. */
struct tm_vm_options {
    const struct tm_cloud_pool *pools;
    int pool_count;
    const char *job; /* its name */
    const char *owner;
    uint64_t run;       /* tells this run from all others; the same after a restart */
    uint64_t group;     /* names its firewall: that of the VM that this runs on; 0: one of the run's own */
    const char *bucket; /* where VMs find the program, and what they leave */
    const char *prefix; /* "" or "a/b", of all objects */
    const char *program;
    const char *wheel;     /* file of the Python package, which VMs get as they get the program; NULL: they need none */
    const char *variables; /* as of vm_user_data.h */
    const char *setup;
    const char *state_dir; /* what must be found again after a crash */
    const char *log_dir;   /* an instance's output goes to worker-ID.log in it */
    uint64_t id_first;
    int64_t account_ms; /* the cloud's time that is already paid for: where the last program of this run stood */
    int64_t poll_ms;    /* longest time between two looks; 0: 15 s */
    int64_t silence_ms; /* VMs end themselves after so long without the run; 0: 15 minutes */
    int64_t life_ms;    /* and after so long in any case; 0: 6 days */
    int64_t start_ms;   /* from the call to the agent's joining; 0: 30 minutes */
    /* What the instance's agent needs, as one word. */
    int (*ticket)(void *context, uint64_t id, bool on_demand, char out[TM_VM_TICKET_MAX], struct tm_error *e);
    bool (*has_joined)(void *context, uint64_t id);
    /* The cloud says that the instance is there: its ticket is good from there alone. NULL: somebody may translate
     * addresses between VMs and this machine. */
    void (*bind)(void *context, uint64_t id, const char *host);
    void *context;
};

/* How a cloud is asked. `slot` is the call's place in tm_vm_cloud.slots, which has what it is for. */
struct tm_vm__driver {
    void *self;
    const struct tm_vm__rules *rules;
    const char *folder; /* of its notes, in the state folder: "aws" */
    /* Begins the call: its first request. -TM_EBUSY: not yet, what it is signed by is on its way; it is begun again a
     * moment later. Another error: it could not be asked. `end` follows on each. */
    int (*begin)(void *self, size_t slot, struct tm_web_call **out, struct tm_error *e);
    /* A request has ended with `rc` (tm_web_end; `why` says why): tells tm_vms what that means, and takes the answer's
     * memory. The call goes on where *out is another request. Not for objects: what becomes of them is the same
     * everywhere. An error ends the run. */
    int (*take)(void *self, size_t slot, int rc, struct tm_web_answer *answer, const struct tm_error *why,
                struct tm_web_call **out, struct tm_error *e);
    /* The call is over, or is given up: frees what it has. */
    void (*end)(void *self, size_t slot);
    /* All VMs have gone: waits until what was made beside them is removed. NULL: nothing is. */
    void (*remove_rest)(void *self);
    void (*destroy)(void *self); /* after all calls */
};

/* One that is under way. */
struct tm_vm__slot {
    bool used;
    struct tm_vm__call call;
    char word[TM_VM_TICKET_MAX]; /* what is put */
    struct tm_web_call *begun;   /* NULL: it is begun again in a moment */
};

struct tm_vm_cloud {
    struct tm_cloud cloud;                /* first */
    const struct tm_away_vm *coordinator; /* it is of that one's VM alone (away_vm.h); NULL: of workers */
    struct tm_env *env;
    struct tm_vm__driver driver;
    struct tm_vm_options options;
    struct tm_cloud_pool pools[TM_CLOUD_POOLS_MAX];
    struct tm_vms vms;
    struct tm_web *web;
    struct tm_vm__slot slots[TM_VM_CALLS_MAX];
    struct tm_vm__row *rows; /* for drivers: of an answer in several pages */
    size_t row_count, row_capacity;
    int64_t start_ns;
    char folder[TM_VM_PATH_MAX]; /* of notes */
    char wheel_sha256[65];       /* for drivers to fill in as they bring it */
};

/* The first half: fills what a driver needs to prepare itself. `c` is zeroed, and the driver's to embed or point to. On
 * error nothing is left. */
int tm_vm_cloud__init(struct tm_vm_cloud *c, struct tm_env *env, const struct tm_vm__driver *driver,
                      const struct tm_vm_options *options, struct tm_error *e);
/* The second: what an earlier program left. After that c->cloud is a cloud; its `destroy` calls the driver's, last. */
int tm_vm_cloud__open(struct tm_vm_cloud *c, struct tm_error *e);
/* Frees what the two made, for a driver that could not prepare itself. */
void tm_vm_cloud__deinit(struct tm_vm_cloud *c);

enum { TM_VM_ORIGIN_MAX = 512 }; /* of a cloud's API: "https://HOST" */

/* ---- for drivers ---- */

int64_t tm_vm_cloud__now_ms(const struct tm_vm_cloud *c); /* as vms.h counts */
/* In `take`: another request was begun with `rc`. Where it could not be, the call is as if nobody had answered. An
 * error ends the run. */
int tm_vm_cloud__go_on(struct tm_vm_cloud *c, size_t slot, int rc, struct tm_error *e);
int tm_vm_cloud__add_row(struct tm_vm_cloud *c, const struct tm_vm__row *row, struct tm_error *e);
/* All rows are there, or (rc) none came: tells tm_vms. */
int tm_vm_cloud__take_rows(struct tm_vm_cloud *c, int rc, struct tm_error *e);
/* Names a VM that is to be rented, where it has no name: "tm-RUN-RANDOM". */
void tm_vm_cloud__name(struct tm_vm_cloud *c, size_t at);
/* "/PREFIX/vm/TOKEN.WHAT", or of all VMs (at == SIZE_MAX) "/PREFIX/vm/WHAT". */
void tm_vm_cloud__key(const struct tm_vm_cloud *c, size_t at, const char *what, char *out, size_t room);
/* Of an object's call in a slot: "log" or "ticket". */
const char *tm_vm_cloud__object(const struct tm_vm_cloud *c, size_t slot);
int64_t tm_vm_cloud__silence_ms(const struct tm_vm_cloud *c);
int64_t tm_vm_cloud__life_ms(const struct tm_vm_cloud *c);

/* ---- vm_notes.c: what is written down ---- */

/* What an earlier program of this run left, into `vms`; and from when on it has not paid. */
int tm_vm_cloud__read_notes(struct tm_vm_cloud *c, struct tm_error *e);
/* The words of the call that rents this VM, as they were written down. */
int tm_vm_cloud__read_words(struct tm_vm_cloud *c, const char *token, struct tm_text *out, struct tm_error *e);
/* Writes down a VM: with the words of its call, or with its id. Lasts when it returns. */
int tm_vm_cloud__write_note(struct tm_vm_cloud *c, size_t at, const char *words, struct tm_error *e);
void tm_vm_cloud__drop_note(struct tm_vm_cloud *c, size_t at);

#endif

/* Providers: who has the instances of a run, as one table. A row says what of the job and the options it takes, and how
 * it is opened as a cloud (cloud/cloud.h). Which one a run has is `cloud:` of its job file, or --cloud; nothing else
 * asks by name.
 *
 * A new one is a name in tm_job_cloud_names (workload/job.c), a file job/provider_NAME.c with its row, and a line in
 * provider.c. */
#ifndef TM_JOB_PROVIDER_H
#define TM_JOB_PROVIDER_H

#include "base/arena.h"
#include "cloud/away_vm.h"
#include "cloud/cloud.h"
#include "run/cloud_driver.h"
#include "run/office.h"
#include "run/run_settings.h"

/* What a provider is opened with: all is borrowed, and stays as long as its cloud does. */
struct tm_provider_request {
    const struct tm_run_settings *settings;
    const struct tm_trace *trace;           /* for one that replays: from where an earlier program of this run stood */
    const struct tm_cloud_pool *pools;      /* that the job may choose from, by number */
    const struct tm_trace *pool_traces;     /* of each, for one that replays; end_ms 0: there are always some */
    int pool_count;                         /* 0: there is no choice */
    const struct tm_cloud_account *account; /* what the run has used before: numbers of instances go on from there */
    const char *dir;                        /* the state folder */
    const char *cloud_dir; /* in it: what the provider must find again after a crash; it may not be there yet */
    const char *log_dir;   /* in it: outputs, a file for each instance */
    const char *program;   /* path of tidemill itself */
    const char *mark;      /* "NAME=VALUE": among the variables of all that is started on this machine */
    /* Makes the certificate of an instance on this machine, before it is started; NULL: the run has no TLS. */
    int (*certify)(void *context, uint64_t instance, struct tm_error *e);
    void *context;
    /* One that joins: a ticket for an instance, which its agent needs and nothing else (tidemill agent --join, or the
     * variable TIDEMILL_TICKET); and whether it was used, so that the instance is there. Ask for it when the instance
     * is started: it lasts for minutes. */
    int (*ticket)(void *office, const struct tm_ticket_for *who, char out[TM_TICKET_MAX], struct tm_error *e);
    bool (*has_joined)(struct tm_office *office, uint64_t instance);
    void (*bind)(struct tm_office *office, uint64_t instance, const char *host); /* the ticket, to this host */
    struct tm_office *office;                                                    /* NULL: the provider does not join */
    struct tm_arena *arena;                                                      /* for texts that the cloud borrows */
};

/* How it rents a VM for a coordinator (cloud/away_vm.h), for run --detach. */
struct tm_provider_coordinator {
    const char *scheme; /* of the places of its runs: "s3" */
    const char *type;   /* instance type, where the job says none ... */
    double usd_h;       /* ... and what it costs */
    const char *key;    /* of the job's fleet: as whom it acts */
    const char *about;  /* which is "an instance profile whose role" may rent VMs */
    const char *rights; /* what that needs, beside what `cloud check --emit policy` prints, and what the user needs */
    const struct tm_job_coordinator_vm *(*said)(const struct tm_job_fleet *fleet);
    int (*rent)(struct tm_env *env, const struct tm_run_settings *settings, struct tm_away_vm *o,
                char out_id[TM_VM_ID_MAX], struct tm_error *e);
    int (*find)(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out, struct tm_error *e);
};

struct tm_provider {
    const char *name;
    const char *about; /* what it is, for help and tables: "instances are processes on this machine" */
    int instances_max; /* at a time */
    bool emulates;     /* instances follow a trace, at a replay speed, with faults and links as one likes; else time is
                        * real, and what happens, happens */
    bool typed;        /* instances are of types that the catalogue knows: one has a worker for each of its GPUs */
    bool by_resources; /* it chooses instance types by the job's resources: they need not name one */
    bool joins;        /* instances are other machines: their agents join by tickets, over TLS, and share no folder */
    bool leaves_early; /* an instance with a notice goes as soon as nothing needs it: somebody waits for its place */
    bool guests;       /* they come by themselves, with tickets that people ask for (tickets.h) */
    /* Fills in what follows from being on it, once job file and options are read; -TM_EINPUT and -TM_EUSAGE say what is
     * missing. `place` is where the job stands, for messages. NULL: nothing. */
    int (*settle)(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e);
    /* What it cannot be, as -TM_EINPUT, before anything is rented. NULL: it can be anything. */
    int (*check)(const struct tm_run_settings *settings, const char *place, struct tm_error *e);
    /* What a spot instance of this type costs now in this zone, or ("") where it is cheapest of where the job runs;
     * NaN: nobody says. NULL: there is nobody to ask. */
    int (*spot_price)(struct tm_env *env, const struct tm_run_settings *settings, const char *type, const char *zone,
                      double *out_usd_h, struct tm_error *e);
    /* The same of all pools at once, where that is one question: fills in what the job does not say. What is not known
     * after that is asked for by spot_price. NULL: each by itself. */
    int (*spot_prices)(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e);
    /* The caller owns the cloud (its `destroy`). What an earlier program of this run left is adopted or ended here. */
    int (*open)(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                struct tm_error *e);
    /* Where its instances reach this machine, unless --listen or --advertise says. NULL for one that joins: it listens
     * on every address, and its tickets say by which one a machine comes. */
    void (*host)(const struct tm_cloud *cloud, char out[TM_ADDRESS_MAX]);
    const struct tm_provider_coordinator *coordinator; /* NULL: it rents none */
};

/* Of the job. */
const struct tm_provider *tm_provider_of(const struct tm_job *job);
/* By place in the table; NULL: there are no more. */
const struct tm_provider *tm_provider__at(size_t index);
/* The provider's `settle`, and what every one that does not emulate has: real time, and no trace that takes instances
 * away. Call it once, after options. */
int tm_provider_settle(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e);
/* The provider's `check`. */
int tm_provider_check(const struct tm_run_settings *settings, const char *place, struct tm_error *e);

/* Fills in spot prices that the job does not say: those of now, where the provider knows them. The catalogue's stay
 * where it cannot be asked, with a warning. Waits. */
int tm_provider_ask_prices(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e);

/* A file with a list of hosts (cloud/host_list.h), as fleet.hosts of the job. */
int tm_provider_read_hosts(struct tm_env *env, const char *path, struct tm_job *job, struct tm_error *e);

/* A job with hosts is on cloud hosts, unless another one was said, by option or in the file: that is refused.
 * `cloud_given`: by option. */
int tm_provider_heed_hosts(struct tm_job *job, bool cloud_given, struct tm_error *e);

/* The host to listen on for machines of either family: "::", or "0.0.0.0" where this one has no IPv6. */
const char *tm_provider_any_host(struct tm_env *env);

/* For clouds whose instances join, with a struct tm_provider_request as context: whether an instance has, and a ticket
 * that is good for a day, because it may wait for capacity as long. */
bool tm_provider__has_joined(void *request, uint64_t id);
int tm_provider__day_ticket(void *request, uint64_t id, enum tm_instance_kind market, char out[TM_TICKET_MAX],
                            struct tm_error *e);

extern const struct tm_provider tm_provider__local;      /* provider_local.c */
extern const struct tm_provider tm_provider__hosts;      /* provider_hosts.c */
extern const struct tm_provider tm_provider__slurm;      /* provider_slurm.c */
extern const struct tm_provider tm_provider__kubernetes; /* provider_kubernetes.c */
extern const struct tm_provider tm_provider__aws;        /* provider_aws.c */
extern const struct tm_provider tm_provider__azure;      /* provider_azure.c */
extern const struct tm_provider tm_provider__gcp;        /* provider_gcp.c */
extern const struct tm_provider tm_provider__skypilot;   /* provider_skypilot.c */
extern const struct tm_provider tm_provider__join;       /* provider_join.c */

#endif

#ifndef TM_JOB_LAUNCH_INTERNAL_H
#define TM_JOB_LAUNCH_INTERNAL_H

#include "job/launch.h"
#include "job/provider.h"
#include "job/run_tls.h"
#include "run/run_home.h"
#include "run/supervisor.h"
#include "store/copy_store.h"

struct tm_launch {
    struct tm_env *env;
    struct tm_launch_request request;
    struct tm_state_owner owner;
    bool owned;
    int leftovers;                /* processes of an earlier program, ended */
    char left[TM_ERROR_TEXT_MAX]; /* what could not be given back at the end, in words; "" */
    struct tm_run_tls tls;
    char token[TM_STATE_TOKEN_MAX];
    struct tm_trace trace;                           /* what the cloud replays */
    struct tm_cloud_pool pools[TM_CLOUD_POOLS_MAX];  /* to choose from ... */
    struct tm_trace pool_traces[TM_CLOUD_POOLS_MAX]; /* ... and what each replays */
    int pool_count;
    struct tm_cloud_account account;
    struct tm_office *office; /* NULL: nobody joins from elsewhere */
    struct tm_cloud *cloud;
    struct tm_supervisor *supervisor;
    struct tm_chaos_options chaos;
    int64_t stop_at_ms; /* of the cloud's time */
    bool saving;        /* the job is over, and a script may have a model to save */
    int64_t save_until_ns;
    bool ended;
    struct tm_run_home *home;      /* its books in the bucket; NULL: its copies are in none */
    char place[TM_COPY_PLACE_MAX]; /* the bucket's; "": none */
    /* texts that cloud and supervisor borrow */
    struct tm_provider_request opened;
    char cloud_dir[TM_STATE_PATH_MAX];
    char log_dir[TM_STATE_PATH_MAX];
    char tls_dir[TM_STATE_PATH_MAX];
    char office_tls_dir[TM_STATE_PATH_MAX];
    char office_listen[TM_ADDRESS_MAX];
    char office_host[TM_ADDRESS_MAX]; /* for agents: of coordinator and office; "": as they come */
    char listen[TM_ADDRESS_MAX];
    char advertise[TM_ADDRESS_MAX]; /* "": where it listens */
};

/* Takes the folder and puts down what all processes of the run read. */
int tm_launch__prepare(struct tm_launch *launch, struct tm_error *e);
/* Where the provider's instances join: opens the office. The coordinator's address must be known. */
int tm_launch__open_office(struct tm_launch *launch, struct tm_error *e);

#endif

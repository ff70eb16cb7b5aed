/* The insides of the cloud of hosts: hosts_cloud.c has its life, hosts_command.c what is run on a host. */
#ifndef TM_CLOUD_HOSTS_INTERNAL_H
#define TM_CLOUD_HOSTS_INTERNAL_H

#include "cloud/hosts_cloud.h"

enum { TM_HOSTS_PATH_BYTES = 4096 };

enum tm_hosts__doing {
    TM_HOSTS_NOTHING,  /* the slot is free */
    TM_HOSTS_LOOKING,  /* does an agent of an earlier program run there? And as TM_HOSTS_ASKING */
    TM_HOSTS_ASKING,   /* who we are there, and whether the program is there */
    TM_HOSTS_BRINGING, /* the program */
    TM_HOSTS_STARTING, /* the agent is started, and has not joined */
    TM_HOSTS_WATCHING,
    TM_HOSTS_RETURNING, /* the connection has ended: does the agent still run? */
    TM_HOSTS_ENDING,    /* the agent is ended, and its folder removed */
};

struct tm_hosts__slot {
    const struct tm_host *host;
    int number; /* on its host */
    enum tm_hosts__doing doing;
    uint64_t id; /* of the instance; 0: none */
    int pid;     /* of ssh; 0: none */
    int handle;  /* ready when it has ended; -1: none */
    int output;  /* its output; -1: none */
    struct tm_text said;
    char here[TM_ADDRESS_MAX]; /* this machine as the host sees it */
    bool unclean;              /* something may be left there */
    bool unknown;              /* an earlier program may have left an agent, and nobody has looked yet */
    bool keeps;                /* its agent is to be one that was found there */
    int failures;              /* in a row */
    int returns;               /* to its agent, likewise */
    int64_t retry_ms;
    int64_t since_ms;
    int64_t billed_ms;
};

struct tm_hosts__cloud {
    struct tm_cloud cloud; /* first */
    struct tm_env *env;
    struct tm_hosts_options options;
    struct tm_cloud_pool pools[2];
    char sha256[65];  /* of the program */
    char sockets[64]; /* folder of ssh's control sockets */
    struct tm_hosts__slot *slots;
    size_t slot_count;
    int want[2];
    bool said; /* how many are wanted, since this program began */
    struct tm_cloud_instance *instances;
    size_t instance_count;
    size_t instance_capacity;
    struct tm_cloud_event *events;
    size_t event_count;
    size_t event_first;
    size_t event_capacity;
    struct tm_cloud_bill bill;
    int64_t begin_ms;
};

/* Starts ssh for what the slot is doing; it reads from a file that only we can read. */
int tm_hosts__run(struct tm_hosts__cloud *cloud, struct tm_hosts__slot *slot, struct tm_error *e);
/* Takes what ssh has said so far. */
void tm_hosts__hear(struct tm_hosts__cloud *cloud, struct tm_hosts__slot *slot);
/* Has ssh ended? Then it is forgotten, and its status told. */
bool tm_hosts__has_ended(struct tm_hosts__cloud *cloud, struct tm_hosts__slot *slot, int *out_status);
/* Ends ssh, if it runs. */
void tm_hosts__stop(struct tm_hosts__cloud *cloud, struct tm_hosts__slot *slot);
/* The rest of a line that begins with `word` in what was said; false: there is none. */
bool tm_hosts__said(const struct tm_hosts__slot *slot, const char *word, char *out, size_t size);
/* A folder for ssh's control sockets, with a name that is short, as sockets need, and that nobody can have taken; that
 * of a program that was killed is removed. */
int tm_hosts__make_sockets(struct tm_hosts__cloud *cloud, struct tm_error *e);
/* Ends the connections that ssh keeps, and removes their folder. */
void tm_hosts__close_sockets(struct tm_hosts__cloud *cloud);
/* What the slot's host reads: it is there as long as something may be left on the host. */
void tm_hosts__script_path(const struct tm_hosts__cloud *cloud, size_t slot, char out[TM_HOSTS_PATH_BYTES]);
int tm_hosts__hash_program(struct tm_env *env, const char *path, char out[65], struct tm_error *e);

#endif

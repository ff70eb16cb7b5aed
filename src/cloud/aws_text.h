/* What EC2 says, read: its VMs, its prices, and what a renter does when it refuses. */
#ifndef TM_CLOUD_AWS_TEXT_H
#define TM_CLOUD_AWS_TEXT_H

#include "web/xml.h"

#include <stdbool.h>
#include <stdint.h>

#define TM_AWS_TAG_RUN   "tidemill:run"
#define TM_AWS_TAG_TOKEN "tidemill:token"
#define TM_AWS_TAG_POOL  "tidemill:pool"
#define TM_AWS_TAG_OWNER "tidemill:owner"
#define TM_AWS_TAG_UNTIL "tidemill:until"

enum { TM_AWS_TOKEN_MAX = 65, TM_AWS_ID_MAX = 32 };

/* What a renter does after a refusal. */
enum tm_aws__remedy {
    TM_AWS_ELSEWHERE, /* this pool has nothing now: another, and this one again in some minutes */
    TM_AWS_QUOTA,     /* the account may not have more of these: in a quarter of an hour, with a word to the user */
    TM_AWS_AGAIN,     /* the same again, with the same token, after a pause */
    TM_AWS_LOOK,      /* the token was used with other words: what is there is found by its tag */
    TM_AWS_STOP       /* nothing that comes by waiting: settings, permissions, a bill */
};
enum tm_aws__remedy tm_aws__remedy_of(const char *code);
/* What the user is told to do; "": nothing. */
const char *tm_aws__advice(const char *code);

/* One VM. */
struct tm_aws__row {
    char id[TM_AWS_ID_MAX];
    char token[TM_AWS_TOKEN_MAX]; /* of its tag, or its client token */
    char state[24];               /* pending, running, shutting-down, terminated, stopping, stopped */
    char reason[64];              /* code; "": none */
    char zone[64];
    char type[64];
    char address[64];    /* private */
    int pool;            /* of its tag; -1: none */
    int64_t launched_ms; /* UTC; 0: not said */
};
/* An element of instancesSet. False: it has no id. */
bool tm_aws__read_vm(const struct tm_xml *item, struct tm_aws__row *out);
/* Has it ended, or is it about to, and costs nothing any more? */
bool tm_aws__is_gone(const struct tm_aws__row *row);
/* Was it AWS that took it back? */
bool tm_aws__is_interrupted(const struct tm_aws__row *row);

struct tm_aws__price {
    char type[64];
    char zone[64];
    double usd_h;
};
/* An element of spotPriceHistorySet. False: it is none. */
bool tm_aws__read_price(const struct tm_xml *item, struct tm_aws__price *out);

#endif

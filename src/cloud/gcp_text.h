/* What Compute Engine says, read: its VMs and its operations, and what a renter does when it refuses. */
#ifndef TM_CLOUD_GCP_TEXT_H
#define TM_CLOUD_GCP_TEXT_H

#include "base/doc.h"
#include "cloud/vms.h"

/* Labels, by which everything that was rented is found: a colon is not allowed in them. */
#define TM_GCP_LABEL_JOB  "tidemill-job"
#define TM_GCP_LABEL_RUN  "tidemill-run"
#define TM_GCP_LABEL_POOL "tidemill-pool"
/* Of a coordinator's VM: the number of the place of its books, which itself stands in its metadata, under the same
 * name. */
#define TM_GCP_LABEL_COORDINATOR "tidemill-coordinator"
/* Of a firewall rule, which has no labels: the job's name follows. */
#define TM_GCP_RULE_ABOUT "Tidemill: VMs of one job reach each other; job "
/* How the name of the second ends, which keeps all others out. */
#define TM_GCP_RULE_REST "-rest"
/* And that of the one which lets people reach a coordinator: the name is the tag of its VM, too. */
#define TM_GCP_RULE_API "-api"

enum { TM_GCP_LABEL_MAX = 64, TM_GCP_NAME_MAX = 128 };

extern const struct tm_vm__rules tm_gcp__rules;
enum tm_vm__remedy tm_gcp__remedy_of(const char *code);
const char *tm_gcp__advice(const char *code);

/* As the value of a label: small letters, digits and hyphens. */
void tm_gcp__label(const char *text, char out[TM_GCP_LABEL_MAX]);
/* "us-central1-a", not "us-central1". */
bool tm_gcp__is_zone(const char *place);
/* The region of a zone, or of a region. */
void tm_gcp__region(const char *place, char out[64]);
/* "ZONE/NAME" taken apart; false: it is something else. */
bool tm_gcp__split(const char *id, char zone[64], char name[64]);

/* An instance type of the catalogue as a machine type with accelerators: "n1-standard-8+2xT4". `count` 0: none beside
 * what the machine type has. */
struct tm_gcp__machine {
    char type[64];
    char accelerator[64];
    int count;
};
void tm_gcp__machine(const char *type, struct tm_gcp__machine *out);

/* An instance: its id is "ZONE/NAME", its token its name. False: it has neither. */
bool tm_gcp__read_vm(const json_t *item, struct tm_vm__row *out);

struct tm_gcp__disk {
    char id[TM_VM_ID_MAX]; /* "ZONE/NAME" */
    char zone[64];
    char job[TM_GCP_LABEL_MAX];
    char type[64]; /* "pd-balanced" */
    char size_gb[24];
    int64_t created_ms; /* 0: not said */
    bool used;          /* by a VM */
};
/* False: it is not one of ours that stays. */
bool tm_gcp__read_disk(const json_t *item, struct tm_gcp__disk *out);

struct tm_gcp__operation {
    char name[TM_GCP_NAME_MAX];
    char kind[64];             /* "insert", "delete", "compute.instances.preempted" */
    char target[TM_VM_ID_MAX]; /* "ZONE/NAME" of an instance; "": it is about something else */
    bool done;
    char code[128]; /* errors sit inside: of the first; "": none */
    char message[300];
};
/* False: it has no name. */
bool tm_gcp__read_operation(const json_t *root, struct tm_gcp__operation *out);

/* Of a run's first firewall rule, and the tag of its VMs. */
void tm_gcp__rule_name(uint64_t run, char out[40]);

#endif

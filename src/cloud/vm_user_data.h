/* What a VM does when it boots: a script that cloud-init runs as root, once. It fetches the program and, for a job with
 * `run`, the Python package (each checked by its SHA-256), runs the job's setup, and joins the run by a ticket. When
 * its agent has ended in order, it ends itself, as the cloud has it (tm_vm__guest); when the run does not answer any
 * more, it waits for a new ticket (a resumed run lays one where it looks), and ends itself when none comes. Its output
 * goes back to the bucket.
 *
 * User data is no place for secrets: everybody on the VM can read it, and whoever may describe instances. So there is
 * only what is of no use to others: a ticket that one machine can use once, and URLs for three or four objects. */
#ifndef TM_CLOUD_VM_USER_DATA_H
#define TM_CLOUD_VM_USER_DATA_H

#include "cloud/vm_cloud.h"

/* What differs from cloud to cloud in a VM. */
struct tm_vm__guest {
    const char *cloud;      /* as people call it: "AWS" */
    const char *notice;     /* as the agent calls it: --notice aws */
    const char *put_header; /* of a request that puts an object: "-H NAME:VALUE", or "" */
    const char *noticed;    /* commands: is this VM about to be taken back? */
    const char *power_off;  /* commands, the last in its life: it is not billed any more */
    const char *addresses;  /* commands: its own address, as `own`, and one that others know, as `public` */
    size_t room;            /* of bytes the cloud takes */
};

struct tm_vm__user_data {
    const struct tm_vm__guest *guest;
    const char *words;      /* lines NAME='VALUE' for the guest's commands; NULL: none */
    const char *job;        /* its name, for people */
    const char *program;    /* URL to get it from */
    const char *sha256;     /* of the program, in hex */
    const char *wheel;      /* URL to get the Python package from; NULL: it is not needed */
    const char *wheel_name; /* of its file, which pip wants to know */
    const char *wheel_sha256;
    const char *ticket;     /* the first */
    const char *ticket_url; /* URL to get later ones from */
    const char *log_url;    /* URL to put the output to */
    const char *variables;  /* lines "export NAME='VALUE'" for setup; "": none */
    const char *setup;      /* commands; NULL: none */
    int64_t silence_s;      /* without a run for so long, it ends itself */
    int64_t life_s;         /* after so long in any case */
};

/* NAME='TEXT' for the shell, whatever is in it. */
void tm_vm__put_word(struct tm_text *out, const char *name, const char *text);
/* The parts that another script needs that fetches the program into /var/lib/tidemill: what the guest has; and the
 * beginning, after which `say`, `put_log` and `end` are there. It needs $job, $program, $sha256, $log_url, $life (s).
 */
void tm_vm__put_guest(struct tm_text *out, const struct tm_vm__guest *guest);
const char *tm_vm__boot_script(void);
/* And those that fetch the Python package into that folder: what it is, then, after the beginning, how. */
void tm_vm__put_wheel(struct tm_text *out, const char *url, const char *name, const char *sha256);
const char *tm_vm__wheel_script(void);

/* -TM_ELIMIT: it is longer than the cloud allows. */
int tm_vm__print_user_data(const struct tm_vm__user_data *data, struct tm_text *out, struct tm_error *e);

/* ---- vm_boot.c ---- */

struct tm_vm__boot {
    const struct tm_vm__guest *guest;
    const char *words;  /* as of tm_vm__user_data */
    const char *sha256; /* of the program, whose object is "program-SHA256" */
    /* Appends the URL by which anybody may ask for this object (tm_vm_cloud__key), for so long at most. -TM_EBUSY: as
     * of a driver's begin. */
    int (*url)(void *self, size_t at, const char *what, const char *method, int64_t seconds, struct tm_text *out,
               struct tm_error *e);
    void *self;
};
/* The script of one VM: a worker's, with a new ticket, or a coordinator's. */
int tm_vm_cloud__print_boot(struct tm_vm_cloud *c, size_t at, const struct tm_vm__boot *boot, struct tm_text *out,
                            struct tm_error *e);

enum { TM_VM_TAGS = 7 };
struct tm_vm__tag {
    const char *name;
    char value[256];
};
/* Job, owner, time limit, a name for people; then run, pool and token. at == SIZE_MAX: those of what is made for the
 * firewall, whose run is its name. Of a coordinator's VM: no run, of which it is not an instance, but the place of the
 * books. Gives how many. */
size_t tm_vm_cloud__tags(const struct tm_vm_cloud *c, size_t at, struct tm_vm__tag out[TM_VM_TAGS]);

#endif

/* What a VM does when it boots: a script that cloud-init runs as root, once. It fetches the program (checked by its
 * SHA-256), runs the job's setup, and joins the run by a ticket. When its agent has ended in order, it shuts down, and
 * with that ends itself; when the run does not answer any more, it waits for a new ticket (a resumed run lays one where
 * it looks), and shuts down when none comes. Its output goes back to the bucket.
 *
 * User data is no place for secrets: everybody on the VM can read it, and whoever may describe instances. So there is
 * only what is of no use to others: a ticket that one machine can use once, and URLs for three objects. */
#ifndef TM_CLOUD_AWS_USER_DATA_H
#define TM_CLOUD_AWS_USER_DATA_H

#include "base/text.h"

#include <stdint.h>

enum { TM_AWS_USER_DATA_MAX = 16384 };

struct tm_aws__user_data {
    const char *job;        /* its name, for people */
    const char *program;    /* URL to get it from */
    const char *sha256;     /* of the program, in hex */
    const char *ticket;     /* the first */
    const char *ticket_url; /* URL to get later ones from */
    const char *log_url;    /* URL to put the output to */
    const char *variables;  /* lines "export NAME='VALUE'" for setup; "": none */
    const char *setup;      /* commands; NULL: none */
    int64_t silence_s;      /* without a run for so long, it ends itself */
    int64_t life_s;         /* after so long in any case */
};

/* -TM_ELIMIT: it is longer than AWS allows. */
int tm_aws__print_user_data(const struct tm_aws__user_data *data, struct tm_text *out, struct tm_error *e);

/* Its parts, for other scripts: NAME='TEXT' as a shell reads it; and what begins each: the program is fetched into
 * /var/lib/tidemill, `say` and `end` are there, and $life is the longest life. It needs $job, $program, $sha256,
 * $log_url, $life. */
void tm_aws__put_word(struct tm_text *out, const char *name, const char *text);
const char *tm_aws__boot_script(void);

#endif

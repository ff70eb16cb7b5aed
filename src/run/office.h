/* The office of a run: where machines with a ticket get in (wire/ticket.h), and where members on other machines keep
 * copies in files. It is what makes a folder that all machines share unnecessary. A thread of its own in the program
 * that has the job's authority (tidemill run); TLS, whatever the address.
 *
 * Who connects without a certificate may only enrol: it shows that it knows a ticket's secret, once, for a public key
 * of its own, and gets a certificate for that key, the join token and where the coordinator is. Whoever is in may read
 * the job, its settings and its data (enum tm_office_file), put and get parts of copy sets (store/copy_store.h), and
 * ask for the newest.
 *
 * Tickets are for an instance that somebody starts, or for nobody in particular: who comes by such a one is a guest,
 * gets the next number, and says again and again that it is there (cloud/join_cloud.h). Who can read the state folder
 * asks for tickets by the word in its file `office`.
 *
 * The folder of copies stays the coordinator's: parts go into it as those of workers on this machine do, and the result
 * of the job ends in the state folder wherever it was trained. Where copies are in a bucket that has URLs for members
 * (store/grant.h), members are given those, and the bytes do not come through here. */
#ifndef TM_RUN_OFFICE_H
#define TM_RUN_OFFICE_H

#include "cloud/join_cloud.h"
#include "wire/ticket.h"
#include "wire/tls.h"

enum {
    TM_OFFICE_TICKET_MS = 15 * 60 * 1000,
    TM_OFFICE_TICKETS_MAX = 4096,
    TM_OFFICE_ASKED_MAX = 64, /* tickets at a time, for whoever asks */
    TM_OFFICE_VALID_MAX_MS = 24 * 3600 * 1000,
    TM_OFFICE_AWAY_MS = 30000 /* a guest that is silent for so long is lost; a tenth, if its connection has ended */
};

/* All is borrowed as long as the office is there. */
struct tm_office_options {
    const char *listen;     /* HOST:PORT; port 0: any */
    const char *host;       /* that a ticket names where whoever asks for it does not say; NULL: this machine's name */
    const char *dir;        /* state folder: settings, address of the coordinator, copies */
    const char *tls_folder; /* the office's own certificate, for TM_TLS_OFFICE */
    const char *token;
    const char *data;     /* a file that machines need and may not have; NULL: none */
    const char *data_set; /* an object of a bucket that they read by URLs (store/data_set.h); NULL: none */
    /* HOST that agents are told for the coordinator; NULL: the one by which they reached the office. Its port is the
     * coordinator's own. */
    const char *coordinator_host;
    uint64_t job;
    struct tm_tls_authority *authority;
    bool guests;     /* tickets are given to whoever asks with the run's own word */
    int64_t away_ms; /* 0: TM_OFFICE_AWAY_MS */
};

/* For whom a ticket is. */
struct tm_ticket_for {
    uint64_t instance; /* 0: whoever comes, a guest */
    bool anchor;
    const char *host; /* where that machine reaches this one; NULL: the office's own */
    int64_t valid_ms; /* 0: TM_OFFICE_TICKET_MS */
};

struct tm_office;

/* Listens, and starts its thread. The caller owns the result. */
int tm_office_create(struct tm_env *env, const struct tm_office_options *options, struct tm_office **out,
                     struct tm_error *e);
void tm_office_destroy(struct tm_office *office);              /* NULL is allowed */
const char *tm_office_address(const struct tm_office *office); /* where it listens */
/* A new ticket; an earlier one of the same instance that was not used is worth nothing any more. `office` is a struct
 * tm_office. */
int tm_office_ticket(void *office, const struct tm_ticket_for *who, char out[TM_TICKET_MAX], struct tm_error *e);
/* Its ticket that was not used is good from this host alone from now on: there the cloud says that the instance is.
 * For machines whose address nobody translates on the way. */
void tm_office_bind(struct tm_office *office, uint64_t instance, const char *host);
/* Has the last ticket of this instance been used? */
bool tm_office_has_joined(struct tm_office *office, uint64_t instance);

/* ---- guests ---- */

/* So many may be here, those about to go aside; none is welcome before. The first ever gets this number. */
void tm_office_welcome(struct tm_office *office, int count, uint64_t id_first);
/* Those that are here, and, once, those that are not any more. */
size_t tm_office_guests(struct tm_office *office, struct tm_guest *out, size_t max);
/* It is told to go the next time it says that it is there: within a second. */
void tm_office_dismiss(struct tm_office *office, uint64_t instance);

#endif

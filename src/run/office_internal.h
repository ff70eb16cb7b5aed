/* The insides of the office: office.c has the thread and its connections, office_answer.c what is answered. */
#ifndef TM_RUN_OFFICE_INTERNAL_H
#define TM_RUN_OFFICE_INTERNAL_H

#include "run/office.h"
#include "store/copy_store.h"
#include "wire/office_link.h"

#include <pthread.h>

enum { TM_OFFICE_PIECE = 512 << 10, TM_OFFICE_PART_MAX = 1 << 30, TM_OFFICE_GUESTS_MAX = 512 };

struct tm_office__ticket {
    uint64_t number;
    uint64_t instance;
    bool anchor;
    bool used;
    bool void_;    /* another one has taken its place */
    char from[64]; /* host that it is good from alone; "": any */
    int64_t until_ns;
    uint8_t secret[TM_TICKET_SECRET_BYTES];
    uint64_t given;                     /* once used: the instance that it was used for */
    uint8_t key[TM_TICKET_PROOF_BYTES]; /* and whose key: who did not hear the answer may ask again */
};

/* Who came by a ticket for nobody in particular. */
struct tm_office__guest {
    uint64_t id; /* of the instance */
    char name[64];
    enum tm_guest_state state;
    bool dismissed; /* it is told to go */
    bool told;      /* that it is over */
    bool linked;    /* it has said that it is there */
    bool noticed;
    int64_t notice_end_ns;
    int64_t heard_ns;
    int64_t dropped_ns; /* when its last connection ended */
    int status;
    uint64_t ticket; /* by which it may come back; 0: none */
};

struct tm_office__client {
    int handle;
    uint64_t guest; /* who says on it that it stays; 0: nobody */
    bool broken;
    bool enrolled; /* by a ticket, on this connection */
    int64_t since_ns;
    struct tm_tls_session *tls;
    struct tm_text in;  /* plain */
    struct tm_text out; /* raw */
    size_t out_at;
    /* a part that comes */
    struct tm_copy_name put;
    struct tm_block *put_block;
    uint64_t put_at;
    /* a part that goes */
    struct tm_copy_name get;
    struct tm_block *get_block;
    uint64_t get_at;
};

struct tm_office {
    struct tm_env *env;
    struct tm_office_options options;
    struct tm_tls *tls;
    struct tm_copy_store *store;
    struct tm_block_pool *pool;
    int listener;
    int wake[2];
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX]; /* for tickets */
    uint8_t fingerprint[TM_TLS_FINGERPRINT_BYTES];
    struct tm_office__client *clients[256];
    size_t client_count; /* places */
    pthread_t thread;
    bool has_thread;
    bool ends; /* with the lock, as what follows */
    pthread_mutex_t lock;
    struct tm_office__ticket *tickets; /* ring of TM_OFFICE_TICKETS_MAX */
    uint64_t ticket_count;             /* ever made */
    struct tm_office__guest guests[TM_OFFICE_GUESTS_MAX];
    size_t guest_count;
    uint64_t guest_next;                    /* number of the next */
    int welcome;                            /* so many may be here */
    uint8_t secret[TM_TICKET_SECRET_BYTES]; /* of the word in the state folder; no lock: it never changes */
    bool has_word;
    char buffer[1 << 16];
};

/* Sends a message to the client, once there is room. */
void tm_office__send(struct tm_office__client *client, const Tmw__OfficeMessage *message);
/* Answers one message; a client that may not ask it is told so, and breaks. */
void tm_office__answer(struct tm_office *office, struct tm_office__client *client, const Tmw__OfficeMessage *message);
/* More of a part that goes to the client. */
void tm_office__go_on(struct tm_office__client *client);
/* May it ask for more than to be let in? */
bool tm_office__is_in(const struct tm_office__client *client);

/* ---- tickets and guests: office_guests.c ---- */

/* The word by which whoever reads the state folder asks for tickets. */
int tm_office__write_word(struct tm_office *office, struct tm_error *e);
void tm_office__remove_word(struct tm_office *office);
/* Makes tickets, and sends them. */
int tm_office__give_tickets(struct tm_office *office, struct tm_office__client *client, const Tmw__TicketRequest *body,
                            struct tm_error *e);
/* With the lock. -TM_EBUSY: not now. */
int tm_office__has_room(const struct tm_office *office, struct tm_error *e);
/* With the lock: one more guest, who gets the number guest_next. */
void tm_office__admit(struct tm_office *office, const char *name);
/* One is there, or says good-bye. -TM_EEXISTS: it was away for too long, and has its answer: a ticket. */
int tm_office__stay(struct tm_office *office, struct tm_office__client *client, const Tmw__Stay *body, bool *out_go,
                    struct tm_error *e);
/* The client's connection ends. */
void tm_office__unlink(struct tm_office *office, const struct tm_office__client *client);

#endif

/* A ticket: all that a machine needs to join a job, as one word that can be put into a file, a variable or a command.
 * It names where the job's office is (run/office.h), the fingerprint of the job's authority, so that nobody can pass
 * for the office, the job, and a secret that lets one machine in, once, within minutes.
 *
 *     "tmt1_" base64url(job 8, number 8, secret 16, SHA-256 of the authority's certificate 32, HOST:PORT)
 *
 * Whole numbers are little endian. A ticket is a secret until it has been used: it is not for logs. */
#ifndef TM_WIRE_TICKET_H
#define TM_WIRE_TICKET_H

#include "base/env.h"

enum {
    TM_TICKET_SECRET_BYTES = 16,
    TM_TICKET_FINGERPRINT_BYTES = 32,
    TM_TICKET_MAX = 256, /* of the word, with its end */
};

struct tm_ticket {
    uint64_t job;
    uint64_t number; /* among the job's tickets */
    uint8_t secret[TM_TICKET_SECRET_BYTES];
    uint8_t authority[TM_TICKET_FINGERPRINT_BYTES];
    char address[TM_ADDRESS_MAX];
};

void tm_ticket_print(const struct tm_ticket *ticket, char out[TM_TICKET_MAX]);
/* White space around it is left out. -TM_EINPUT: it is no ticket, or not all of one. The text is not repeated. */
int tm_ticket_parse(const char *text, size_t length, struct tm_ticket *out, struct tm_error *e);

/* The proof that the ticket's secret is known: for this TLS connection and this public key alone. False: no memory. */
enum { TM_TICKET_PROOF_BYTES = 32, TM_TICKET_KEY_MAX = 512 };
bool tm_ticket_prove(const uint8_t secret[TM_TICKET_SECRET_BYTES], const void *channel, size_t channel_length,
                     const void *public_key, size_t key_length, uint8_t out[TM_TICKET_PROOF_BYTES]);

#endif

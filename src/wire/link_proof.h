/* The first words on a connection: both ends prove that they know the job's join token, and neither says it. Until that
 * is done nothing else is read, nobody is named, and nothing is answered but this:
 *
 *     whoever connects    "TMLINK01", 32 random bytes
 *     whoever listens     "TMLINK01", 32 random bytes, HMAC(token, "listens", both random numbers, the channel)
 *     whoever connects    HMAC(token, "connect", both random numbers, the channel), then messages
 *
 * The channel is what ties the proof to this connection, so that nobody in between can pass it on to another: with TLS
 * a value that only its two ends have; without, the address that was connected to, which is the listener's own. */
#ifndef TM_WIRE_LINK_PROOF_H
#define TM_WIRE_LINK_PROOF_H

#include "base/env.h"
#include "base/text.h"
#include "wire/proof.h"

enum {
    TM_LINK_MAGIC_BYTES = 8,
    TM_LINK_NONCE_BYTES = 32,
    TM_LINK_PROOF_NEEDS_MAX = TM_LINK_MAGIC_BYTES + TM_LINK_NONCE_BYTES + TM_PROOF_BYTES,
};

struct tm_link_proof {
    bool listens; /* we do: the other end connected */
    bool greeted; /* we have the other's random number */
    bool proven;
    uint8_t own[TM_LINK_NONCE_BYTES];
    uint8_t other[TM_LINK_NONCE_BYTES];
};

/* Appends what is to be sent first. */
void tm_link_proof__begin(struct tm_link_proof *proof, struct tm_env *env, bool listens, struct tm_text *out);
/* How many bytes of the other end are needed next; 0: it is proven. */
size_t tm_link_proof__needs(const struct tm_link_proof *proof);
/* Takes so many, and appends the answer. -TM_EPEER: the other end does not know the token, or is no end of this
 * channel; -TM_EINPUT: it does not speak our protocol. Then nothing is answered: close. */
int tm_link_proof__take(struct tm_link_proof *proof, const char *token, const void *channel, size_t channel_length,
                        const void *bytes, struct tm_text *out);

#endif

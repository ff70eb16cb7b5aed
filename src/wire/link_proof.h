/* The beginning of a connection: both ends prove that they know the job's join token, without sending it. Until then
 * nothing else is read or answered, and the connection belongs to no member:
 *
 *     client    "TMLINK01", 32 random bytes
 *     server    "TMLINK01", 32 random bytes, HMAC(token, "listens", both random numbers, the channel)
 *     client    HMAC(token, "connect", both random numbers, the channel), then messages
 *
 * The channel ties the proof to this connection, so that it cannot be relayed to another: with TLS a value that only
 * the two ends have; without, the address that was connected to, which is the server's own. */
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

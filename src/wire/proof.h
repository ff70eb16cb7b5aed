/* That one knows a secret without saying it: HMAC-SHA-256 of some bytes, keyed by the job's join token. */
#ifndef TM_WIRE_PROOF_H
#define TM_WIRE_PROOF_H

#include "wire/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_PROOF_BYTES = 32 };

/* False: it could not be made (memory). */
bool tm_proof_make(const char *secret, const void *data, size_t length, uint8_t out[TM_PROOF_BYTES]);
/* Is it the proof of these bytes? In a time that does not depend on where they differ. */
bool tm_proof_right(const char *secret, const void *data, size_t length, const uint8_t proof[TM_PROOF_BYTES]);

/* The proof in a hello: by whom, and with the nonce of which challenge. */
bool tm_proof_of_hello(const char *token, uint64_t job, const struct tm_peer *from, uint64_t nonce,
                       uint8_t out[TM_PROOF_BYTES]);
/* Puts nonce and proof into a hello; without a challenge (nonce 0), or without memory, it has none. */
void tm_proof_put_hello(const char *token, uint64_t job, const struct tm_peer *from, uint64_t nonce,
                        uint8_t memory[TM_PROOF_BYTES], Tmw__Hello *hello);

#endif

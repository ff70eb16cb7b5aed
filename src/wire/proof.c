#include "wire/proof.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

bool tm_proof_make(const char *secret, const void *data, size_t length, uint8_t out[TM_PROOF_BYTES])
{
    assert(secret != NULL && data != NULL && length > 0);
    unsigned made = 0;
    bool good =
        HMAC(EVP_sha256(), secret, (int)strlen(secret), data, length, out, &made) != NULL && made == TM_PROOF_BYTES;
    if (!good) ERR_clear_error(); /* what it remembers of a failure is memory */
    return good;
}

bool tm_proof_right(const char *secret, const void *data, size_t length, const uint8_t proof[TM_PROOF_BYTES])
{
    assert(proof != NULL);
    uint8_t right[TM_PROOF_BYTES];
    return tm_proof_make(secret, data, length, right) && CRYPTO_memcmp(right, proof, sizeof right) == 0;
}

bool tm_proof_of_hello(const char *token, uint64_t job, const struct tm_peer *from, uint64_t nonce,
                       uint8_t out[TM_PROOF_BYTES])
{
    uint64_t said[] = {0x544D48454C4C4F31U /* "TMHELLO1" */, job, from->role, from->id, from->incarnation, nonce};
    return tm_proof_make(token, said, sizeof said, out);
}

void tm_proof_put_hello(const char *token, uint64_t job, const struct tm_peer *from, uint64_t nonce,
                        uint8_t memory[TM_PROOF_BYTES], Tmw__Hello *hello)
{
    assert(from->role != TM_ROLE_NONE);
    hello->nonce = nonce;
    if (nonce == 0 || !tm_proof_of_hello(token, job, from, nonce, memory)) return;
    hello->proof.data = memory;
    hello->proof.len = TM_PROOF_BYTES;
}

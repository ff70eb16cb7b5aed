#include "wire/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

bool tm_proof_make(const char *secret, const void *data, size_t length, uint8_t out[TM_PROOF_BYTES])
{
    unsigned made = 0;
    return HMAC(EVP_sha256(), secret, (int)strlen(secret), data, length, out, &made) != NULL && made == TM_PROOF_BYTES;
}

bool tm_proof_right(const char *secret, const void *data, size_t length, const uint8_t proof[TM_PROOF_BYTES])
{
    uint8_t right[TM_PROOF_BYTES];
    return tm_proof_make(secret, data, length, right) && CRYPTO_memcmp(right, proof, sizeof right) == 0;
}

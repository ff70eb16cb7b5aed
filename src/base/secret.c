#include "base/secret.h"

bool tm_secret_equal(const void *given, size_t given_length, const void *secret, size_t secret_length)
{
    const unsigned char *a = given;
    const unsigned char *b = secret;
    unsigned differ = given_length != secret_length;
    for (size_t i = 0; i < given_length && i < secret_length; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

/* Secrets are compared in a time that does not depend on where they differ. */
#ifndef TM_BASE_SECRET_H
#define TM_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

bool tm_secret_equal(const void *given, size_t given_length, const void *secret, size_t secret_length);

#endif

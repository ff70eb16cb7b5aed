/* The address by which other machines reach this one, as far as it can be known here. */
#ifndef TM_CLI_OWN_ADDRESS_H
#define TM_CLI_OWN_ADDRESS_H

#include "base/env.h"

/* That of the default route, else of the first network that is up: IPv4 before IPv6. false: there is none but loopback.
 * Nothing is sent. */
bool tm_own_address(char out[TM_ADDRESS_MAX]);

#endif

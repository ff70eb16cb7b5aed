/* Addresses in words: "HOST:PORT", where HOST is a name, an IPv4 address or an IPv6 address in brackets: "[::1]:7070".
 * Nothing here looks anything up. */
#ifndef TM_BASE_ADDRESS_H
#define TM_BASE_ADDRESS_H

#include "base/env.h"

enum { TM_PORT_MAX = 6 }; /* "65535" and its end */

/* Host (without brackets) and port of an address. -TM_EUSAGE says what is wrong with it. */
int tm_address_split(const char *address, char host[TM_ADDRESS_MAX], char port[TM_PORT_MAX], struct tm_error *e);
/* "HOST:PORT", with brackets around an IPv6 address. */
void tm_address_join(const char *host, const char *port, char out[TM_ADDRESS_MAX]);
/* What is given as a host, or as a host with a port, as an address: where no port is given it is `port`. */
void tm_address_of_host(const char *given, const char *port, char out[TM_ADDRESS_MAX]);

/* What a user gives as HOST or HOST:PORT: -TM_EUSAGE says what is wrong with it. */
int tm_address_check_given(const char *given, struct tm_error *e);
/* A name or an address without a port, such as others can reach: -TM_EUSAGE. */
int tm_host_check(const char *host, struct tm_error *e);

/* Reached from this machine alone: 127.0.0.0/8, ::1, localhost. Anything that cannot be read is not. */
bool tm_address_is_loopback(const char *address);
/* An IP address, not a name; "fe80::1%eth0" is one. */
bool tm_host_is_address(const char *host);
/* Every address of this machine (0.0.0.0, ::): to listen on, not to be reached by. */
bool tm_host_is_any(const char *host);

#endif

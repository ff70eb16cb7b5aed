/* Whose words anybody on the way can read: addresses of services that get a token from us. */
#ifndef TM_CLOUD_PLAIN_HTTP_H
#define TM_CLOUD_PLAIN_HTTP_H

#include <stdbool.h>

/* "http://HOST[:PORT][/...]" of another machine than this one. */
bool tm_cloud__is_plain_abroad(const char *url);

#endif

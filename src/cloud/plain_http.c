#include "cloud/plain_http.h"

#include "base/address.h"

#include <stdio.h>
#include <string.h>

bool tm_cloud__is_plain_abroad(const char *url)
{
    char host[TM_ADDRESS_MAX / 2];
    char address[TM_ADDRESS_MAX];
    if (strncmp(url, "http://", 7) != 0) return false;
    size_t length = strcspn(url + 7, "/?#");
    if (length >= sizeof host) return true;
    (void)snprintf(host, sizeof host, "%.*s", (int)length, url + 7);
    tm_address_of_host(host, "80", address);
    return !tm_address_is_loopback(address);
}

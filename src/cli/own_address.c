#include "cli/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static bool print(const struct sockaddr *address, socklen_t size, char out[TM_ADDRESS_MAX])
{
    return getnameinfo(address, size, out, TM_ADDRESS_MAX, NULL, 0, NI_NUMERICHOST) == 0;
}

/* A datagram socket that is connected says which address it would send from. The far end is one that nobody has
 * (RFC 5737), and nothing is sent to it. */
static bool by_route(char out[TM_ADDRESS_MAX])
{
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc0000201)};
    struct sockaddr_in own = {0};
    socklen_t size = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool found = connect(fd, (const struct sockaddr *)&far, sizeof far) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
                 print((struct sockaddr *)&own, sizeof own, out);
    (void)close(fd);
    return found;
}

static bool serves(const struct ifaddrs *one, int family)
{
    const unsigned need = IFF_UP | IFF_RUNNING;
    if (one->ifa_addr == NULL || one->ifa_addr->sa_family != family) return false;
    if ((one->ifa_flags & need) != need || (one->ifa_flags & IFF_LOOPBACK) != 0) return false;
    return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)one->ifa_addr)->sin6_addr);
}

bool tm_own_address(char out[TM_ADDRESS_MAX])
{
    static const int families[] = {AF_INET, AF_INET6};
    static const socklen_t sizes[] = {sizeof(struct sockaddr_in), sizeof(struct sockaddr_in6)};
    struct ifaddrs *all = NULL;
    bool found = by_route(out);
    if (found || getifaddrs(&all) != 0) return found;
    for (int i = 0; i < 2; i++)
        for (const struct ifaddrs *one = all; one != NULL && !found; one = one->ifa_next)
            found = serves(one, families[i]) && print(one->ifa_addr, sizes[i], out);
    freeifaddrs(all);
    return found;
}

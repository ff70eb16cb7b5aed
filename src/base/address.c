#include "base/address.h"

#include "base/number.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static int not_an_address(const char *address, struct tm_error *e)
{
    return tm_error_set(e, TM_EUSAGE,
                        "address \"%.200s\": expected HOST:PORT, for example 127.0.0.1:7070 or [::1]:7070", address);
}

/* With "%eth0" behind it where it is one of a link. */
static bool is_ipv6(const char *text, size_t length)
{
    char plain[INET6_ADDRSTRLEN];
    struct in6_addr six;
    const char *scope = memchr(text, '%', length);
    if (scope != NULL) length = (size_t)(scope - text);
    if (length >= sizeof plain) return false;
    memcpy(plain, text, length);
    plain[length] = '\0';
    return inet_pton(AF_INET6, plain, &six) == 1;
}

int tm_address_split(const char *address, char host[TM_ADDRESS_MAX], char port[TM_PORT_MAX], struct tm_error *e)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL) return not_an_address(address, e);
    const char *from = address;
    const char *end = colon;
    if (address[0] == '[') {
        from++;
        if (colon == address || colon[-1] != ']') return not_an_address(address, e);
        end--;
        if (!is_ipv6(from, (size_t)(end - from)))
            return tm_error_set(e, TM_EUSAGE, "address \"%.200s\": \"%.*s\" is no IPv6 address", address,
                                (int)(end - from), from);
    } else if (memchr(address, ':', (size_t)(colon - address)) != NULL) {
        return tm_error_set(e, TM_EUSAGE, "address \"%.200s\": write an IPv6 address in brackets: [%.*s]:%s", address,
                            (int)(colon - address), address, colon + 1);
    }
    if (end <= from || end - from >= TM_ADDRESS_MAX) return not_an_address(address, e);
    int64_t number = -1;
    size_t digits = strlen(colon + 1);
    if (digits >= TM_PORT_MAX || !tm_number_i64(colon + 1, digits, &number) || number < 0 || number > 65535)
        return tm_error_set(e, TM_EUSAGE, "address \"%.200s\": the port must be a number from 0 to 65535", address);
    (void)snprintf(host, TM_ADDRESS_MAX, "%.*s", (int)(end - from), from);
    (void)snprintf(port, TM_PORT_MAX, "%u", (unsigned)number & 0xFFFF);
    return 0;
}

void tm_address_join(const char *host, const char *port, char out[TM_ADDRESS_MAX])
{
    bool brackets = strchr(host, ':') != NULL && host[0] != '[';
    (void)snprintf(out, TM_ADDRESS_MAX, "%s%.96s%s:%.6s", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

void tm_address_of_host(const char *given, const char *port, char out[TM_ADDRESS_MAX])
{
    char host[TM_ADDRESS_MAX];
    char own[TM_PORT_MAX];
    if (tm_address_split(given, host, own, NULL) == 0)
        tm_address_join(host, own, out);
    else
        tm_address_join(given, port, out);
}

static bool without_brackets(const char *host, char out[TM_ADDRESS_MAX])
{
    size_t length = strlen(host);
    bool brackets = length >= 2 && host[0] == '[' && host[length - 1] == ']';
    if (length >= TM_ADDRESS_MAX) return false;
    (void)snprintf(out, TM_ADDRESS_MAX, "%.*s", (int)(brackets ? length - 2 : length), brackets ? host + 1 : host);
    return true;
}

static bool host_is_loopback(const char *host)
{
    char plain[TM_ADDRESS_MAX];
    struct in_addr four;
    struct in6_addr six;
    if (!without_brackets(host, plain)) return false;
    if (strcmp(plain, "localhost") == 0) return true;
    if (inet_pton(AF_INET, plain, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, plain, &six) != 1) return false;
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool tm_address_is_loopback(const char *address)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    return tm_address_split(address, host, port, NULL) == 0 && host_is_loopback(host);
}

bool tm_host_is_address(const char *host)
{
    char plain[TM_ADDRESS_MAX];
    struct in_addr four;
    if (!without_brackets(host, plain)) return false;
    return inet_pton(AF_INET, plain, &four) == 1 || is_ipv6(plain, strlen(plain));
}

bool tm_host_is_any(const char *host)
{
    char plain[TM_ADDRESS_MAX];
    struct in_addr four;
    struct in6_addr six;
    if (!without_brackets(host, plain)) return false;
    if (inet_pton(AF_INET, plain, &four) == 1) return four.s_addr == 0;
    return inet_pton(AF_INET6, plain, &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six);
}

/* "::1:7070": an address, but hardly meant as one. */
static bool has_port_behind(const char *given)
{
    const char *colon = strrchr(given, ':');
    int64_t port = 0;
    size_t digits = colon != NULL ? strlen(colon + 1) : 0;
    if (digits < 4 || !tm_number_i64(colon + 1, digits, &port)) return false;
    return is_ipv6(given, (size_t)(colon - given));
}

int tm_host_check(const char *host, struct tm_error *e)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    bool name = host[0] != '\0' && host[0] != '-' && strspn(host, letters) == strlen(host);
    if (strlen(host) < TM_ADDRESS_MAX - TM_PORT_MAX - 4 && (name || tm_host_is_address(host))) return 0;
    return tm_error_set(e, TM_EUSAGE, "\"%.100s\" is no name or address of a machine; write it without a port", host);
}

int tm_address_check_given(const char *given, struct tm_error *e)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    const char *colon = strrchr(given, ':');
    if (has_port_behind(given))
        return tm_error_set(e, TM_EUSAGE,
                            "address \"%.100s\": write an IPv6 address in brackets: [%.*s]%s, or [%.100s]", given,
                            (int)(colon - given), given, colon, given);
    if (tm_host_is_address(given) || colon == NULL) return tm_host_check(given, e);
    int rc = tm_address_split(given, host, port, e);
    return rc == 0 ? tm_host_check(host, e) : rc;
}

#include "cloud/host_list.h"

#include "base/address.h"
#include "base/number.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { PORTS_FROM = 1024 }; /* whoever moves ssh's port elsewhere takes one from here on, or one of a few */

/* A host must not be taken for an option or a word of a shell. */
static bool is_name(const char *text, size_t length)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._@%:[]";
    if (length == 0 || text[0] == '-' || text[0] == '@') return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0' || strchr(allowed, text[i]) == NULL) return false;
    return true;
}

static int wrong(const char *where, const char *text, size_t length, struct tm_error *e)
{
    bool range = memchr(text, '[', length) != NULL;
    return tm_error_set(e, TM_EINPUT, "%s: expected [user@]host[:port] [slots=N], got \"%.*s\"; %s", where,
                        (int)(length < 60 ? length : 60), text,
                        range ? "brackets are for IPv6 addresses: write every host of a range on its own"
                              : "write for example gpu1 or me@gpu2:2222 gpus=4");
}

/* "host", "host:22", "[::1]:22", "::1" (without a port). */
static bool take_host(const char *text, size_t length, struct tm_host *out)
{
    size_t name = length;
    int64_t port = 0;
    const char *colon = memchr(text, ':', length);
    const char *bracket = memchr(text, ']', length);
    if (!is_name(text, length)) return false;
    if (bracket != NULL) { /* user@[::1]:22 */
        const char *open = memchr(text, '[', length);
        size_t after = (size_t)(bracket - text) + 1;
        if (open == NULL || open > bracket || (after < length && text[after] != ':')) return false;
        size_t user = (size_t)(open - text);
        size_t inside = (size_t)(bracket - open) - 1;
        if (user + inside >= sizeof out->name || inside == 0) return false;
        char address[sizeof out->name];
        memcpy(address, open + 1, inside);
        address[inside] = '\0';
        if (!tm_host_is_address(address) || (user > 0 && open[-1] != '@')) return false; /* gpu[1-4] */
        memcpy(out->name, text, user);
        memcpy(out->name + user, open + 1, inside);
        out->name[user + inside] = '\0';
        if (after == length) return true;
        colon = text + after;
    } else {
        if (memchr(text, '[', length) != NULL) return false;
        bool many = colon != NULL && memchr(colon + 1, ':', length - (size_t)(colon + 1 - text)) != NULL;
        if (many) colon = NULL; /* an IPv6 address alone */
        if (colon != NULL) name = (size_t)(colon - text);
        if (name == 0 || name >= sizeof out->name) return false;
        memcpy(out->name, text, name);
        out->name[name] = '\0';
        if (colon == NULL) return true;
    }
    size_t digits = length - (size_t)(colon + 1 - text);
    if (!tm_number_i64(colon + 1, digits, &port) || port < 1 || port > 65535) return false;
    (void)snprintf(out->port, sizeof out->port, "%d", (int)port);
    return true;
}

/* What a line says beside the host, each at most once, in any order. */
struct said {
    int slots, gpus, most; /* 0: not said */
};

static bool take_count(const char *text, size_t length, struct said *said)
{
    const struct {
        const char *key;
        int *to;
        int limit;
    } keys[] = {{"slots=", &said->slots, TM_HOST_SLOTS_MAX},
                {"gpus=", &said->gpus, TM_HOST_SLOTS_MAX},
                {"max_slots=", &said->most, 1 << 20},
                {"max-slots=", &said->most, 1 << 20}}; /* as Open MPI writes it, both ways */
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t key = strlen(keys[i].key);
        int64_t count = 0;
        if (length <= key || memcmp(text, keys[i].key, key) != 0) continue;
        if (!tm_number_i64(text + key, length - key, &count) || count < 1 || count > keys[i].limit) return false;
        if (*keys[i].to != 0) return false;
        *keys[i].to = (int)count;
        return true;
    }
    return false;
}

/* Slots are what is used; max_slots is how many a host bears at most, and never less. */
static bool settle(const struct said *said, struct tm_host *out)
{
    int slots = said->gpus > 0 ? said->gpus : said->slots > 0 ? said->slots : 1;
    if (said->gpus > 0 && said->slots > 0) return false;
    if (said->most > 0 && said->most < slots) return false;
    out->slots = slots;
    out->gpus = said->gpus > 0;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Hydra (MPICH, Intel MPI) writes host:SLOTS. What cannot well be a port of ssh is that, unless slots are said, too. */
static int heed_hydra(const char *where, const struct said *said, struct tm_host *out, struct tm_error *e)
{
    static const int ports[] = {22, 222, 443};
    int64_t number = 0;
    if (said->slots > 0 || said->gpus > 0 || !tm_number_i64(out->port, strlen(out->port), &number)) return 0;
    bool port = number >= PORTS_FROM;
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++)
        port = port || number == ports[i];
    if (port) return 0;
    if (number > TM_HOST_SLOTS_MAX)
        return tm_error_set(e, TM_EINPUT,
                            "%s: %s:%s: as Hydra writes it these are %s slots, and at most %d are used; write %s "
                            "slots=N, or %s:%s slots=1 if it is the port of ssh",
                            where, out->name, out->port, out->port, TM_HOST_SLOTS_MAX, out->name, out->name, out->port);
    if (said->most > 0 && said->most < number)
        return tm_error_set(e, TM_EINPUT, "%s: %s has %d slots, more than max_slots=%d", where, out->name, (int)number,
                            said->most);
    out->slots = (int)number;
    out->port[0] = '\0';
    return 0;
}

int tm_host__parse(const char *where, const char *line, size_t length, struct tm_host *out, bool *out_empty,
                   struct tm_error *e)
{
    struct tm_host host = {.slots = 1};
    struct said said = {0};
    size_t words = 0;
    const char *comment = memchr(line, '#', length);
    if (comment != NULL) length = (size_t)(comment - line);
    for (size_t at = 0; at < length;) {
        if (is_blank(line[at])) {
            at++;
            continue;
        }
        size_t from = at;
        while (at < length && !is_blank(line[at]))
            at++;
        bool good = words == 0 ? take_host(line + from, at - from, &host) : take_count(line + from, at - from, &said);
        if (!good) return wrong(where, line + from, at - from, e);
        words++;
    }
    if (!settle(&said, &host)) return wrong(where, line, length, e);
    int rc = heed_hydra(where, &said, &host, e);
    if (rc != 0) return rc;
    *out_empty = words == 0;
    if (words > 0) *out = host;
    return 0;
}

static struct tm_host *find(struct tm_host *hosts, size_t count, const struct tm_host *host)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(hosts[i].name, host->name) == 0 && strcmp(hosts[i].port, host->port) == 0) return &hosts[i];
    return NULL;
}

/* A host that is there again has more slots: so Open MPI reads it, and PBS writes a line for each of a node's. */
static int add_slots(const char *where, const struct tm_host *more, struct tm_host *host, struct tm_error *e)
{
    if (host->gpus != more->gpus)
        return tm_error_set(e, TM_EINPUT, "%s: %s is there with gpus and without; write it once, with gpus=N", where,
                            host->name);
    if (host->slots + more->slots > TM_HOST_SLOTS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: %s has more than %d slots; write fewer", where, host->name,
                            TM_HOST_SLOTS_MAX);
    host->slots += more->slots;
    return 0;
}

int tm_hosts_parse(const char *file, const char *text, size_t length, struct tm_host *out, size_t *out_count,
                   struct tm_error *e)
{
    size_t count = 0;
    int number = 0;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - text) - at : length - at;
        char where[512];
        struct tm_host host;
        bool empty = true;
        (void)snprintf(where, sizeof where, "%.480s:%d", file, ++number);
        int rc = tm_host__parse(where, text + at, line, &host, &empty, e);
        if (rc != 0) return rc;
        at += line + 1;
        if (empty) continue;
        struct tm_host *known = find(out, count, &host);
        if (known != NULL) {
            rc = add_slots(where, &host, known, e);
            if (rc != 0) return rc;
            continue;
        }
        if (count == TM_HOSTS_MAX) return tm_error_set(e, TM_ELIMIT, "%s: more than %d hosts", where, TM_HOSTS_MAX);
        out[count++] = host;
    }
    if (count == 0) return tm_error_set(e, TM_EINPUT, "%s: there is no host in it; write one a line", file);
    *out_count = count;
    return 0;
}

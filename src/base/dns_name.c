#include "base/dns_name.h"

#include <stddef.h>
#include <string.h>

enum { LABEL_MAX = 63, NAME_MAX_BYTES = 253 };

static bool is_label(const char *text, size_t length)
{
    static const char inner[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    if (length == 0 || length > LABEL_MAX || text[0] == '-' || text[length - 1] == '-') return false;
    return strspn(text, inner) >= length;
}

bool tm_dns_label_is_good(const char *name)
{
    return is_label(name, strlen(name));
}

bool tm_dns_name_is_good(const char *name)
{
    if (strlen(name) > NAME_MAX_BYTES) return false;
    for (const char *at = name;; at++) {
        size_t length = strcspn(at, ".");
        if (!is_label(at, length)) return false;
        at += length;
        if (*at == '\0') return true;
    }
}

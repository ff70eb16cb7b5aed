#include "wire/fingerprint.h"

#include "wire/hash.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_MAX = 100 };

static size_t name_length(const char *part)
{
    const char *equals = strchr(part, '=');
    return equals == NULL || equals[1] == '\0' ? 0 : (size_t)(equals - part);
}

static const char *find(const struct tm_fingerprint *fingerprint, const char *part, size_t name)
{
    assert(name > 0 && fingerprint->count <= TM_FINGERPRINT_PARTS_MAX);
    for (size_t i = 0; i < fingerprint->count; i++)
        if (strncmp(fingerprint->parts[i], part, name + 1) == 0) return fingerprint->parts[i];
    return NULL;
}

bool tm_fingerprint_add(struct tm_fingerprint *fingerprint, const char *part)
{
    assert(part != NULL);
    size_t name = name_length(part);
    size_t length = strnlen(part, TM_MESSAGE_STRING_MAX + 1);
    if (name == 0 || length > TM_MESSAGE_STRING_MAX || fingerprint->count == TM_FINGERPRINT_PARTS_MAX) return false;
    if (find(fingerprint, part, name) != NULL) return false;
    memcpy(fingerprint->parts[fingerprint->count++], part, length + 1);
    return true;
}

void tm_fingerprint_add_lines(struct tm_fingerprint *fingerprint, const char *lines)
{
    char part[TM_MESSAGE_STRING_MAX + 1];
    for (const char *at = lines; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, "\n");
        if (length < sizeof part) {
            memcpy(part, at, length);
            part[length] = '\0';
            (void)tm_fingerprint_add(fingerprint, part);
        }
        at += length + (at[length] == '\n');
    }
}

void tm_fingerprint_line(struct tm_text *out, const char *name, const char *value)
{
    assert(name[0] != '\0' && value != NULL);
    char hash[33];
    bool plain = strlen(value) <= VALUE_MAX;
    for (const char *at = value; *at != '\0'; at++)
        plain = plain && *at != '\n';
    if (plain)
        tm_text_printf(out, "%s=%s\n", name, value);
    else
        tm_text_printf(out, "%s=%.*s... (%s)\n", name, (int)strcspn(value, "\n") < 40 ? (int)strcspn(value, "\n") : 40,
                       value, tm_hash_print(tm_hash_of(value, strlen(value)), hash));
}

size_t tm_fingerprint_list(struct tm_fingerprint *fingerprint, char *out[TM_FINGERPRINT_PARTS_MAX])
{
    assert(fingerprint->count <= TM_FINGERPRINT_PARTS_MAX);
    for (size_t i = 0; i < fingerprint->count; i++)
        out[i] = fingerprint->parts[i];
    return fingerprint->count;
}

bool tm_fingerprint_may_change(const char *part)
{
    return strncmp(part, "program", strlen("program")) == 0;
}

bool tm_fingerprint_differs(const struct tm_fingerprint *job, const char *part, const char *who,
                            char why[TM_MESSAGE_STRING_MAX + 1])
{
    size_t name = name_length(part);
    const char *known = name == 0 ? NULL : find(job, part, name);
    if (known == NULL || strcmp(known, part) == 0) return false;
    const char *what = strncmp(part, "data=", 5) == 0    ? "data"
                       : tm_fingerprint_may_change(part) ? "program"
                                                         : "job file";
    (void)snprintf(why, TM_MESSAGE_STRING_MAX + 1,
                   "another %s: %.*s is %.60s on %s, but %.60s in the job: every machine needs the same %s", what,
                   (int)(name < 40 ? name : 40), part, part + name + 1, who, known + name + 1, what);
    return true;
}

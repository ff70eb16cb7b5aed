#include "web/aws_config.h"

#include <string.h>
#include <strings.h>

struct line {
    const char *at;
    const char *end;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim(struct line *line)
{
    while (line->at < line->end && is_space(*line->at))
        line->at++;
    while (line->end > line->at && is_space(line->end[-1]))
        line->end--;
}

static bool is_word(struct line line, const char *word)
{
    trim(&line);
    size_t length = strlen(word);
    return (size_t)(line.end - line.at) == length && memcmp(line.at, word, length) == 0;
}

/* "profile  NAME" counts as "profile NAME". */
static bool is_section(struct line line, const char *section)
{
    static const char word[] = "profile ";
    if (is_word(line, section)) return true;
    trim(&line);
    size_t length = sizeof word - 1;
    if (strncmp(section, word, length) != 0 || (size_t)(line.end - line.at) <= length) return false;
    if (memcmp(line.at, "profile", length - 1) != 0 || !is_space(line.at[length - 1])) return false;
    return is_word((struct line){line.at + length, line.end}, section + length);
}

/* Whether the line opens a section, and whether it is this one. */
static bool opens(struct line line, const char *section, bool *inside)
{
    if (line.at == line.end || *line.at != '[') return false;
    const char *close = memchr(line.at, ']', (size_t)(line.end - line.at));
    *inside = close != NULL && is_section((struct line){line.at + 1, close}, section);
    return true;
}

static bool is_key(struct line line, const char *key, struct line *value)
{
    const char *equals = memchr(line.at, '=', (size_t)(line.end - line.at));
    if (equals == NULL) return false;
    struct line name = {line.at, equals};
    trim(&name);
    size_t length = strlen(key);
    if ((size_t)(name.end - name.at) != length || strncasecmp(name.at, key, length) != 0) return false;
    *value = (struct line){equals + 1, line.end};
    for (const char *at = value->at; at + 1 < value->end; at++) /* a comment needs a space before it */
        if (is_space(at[0]) && (at[1] == '#' || at[1] == ';')) value->end = at;
    trim(value);
    return true;
}

/* A key of the section, or, where one is `above` it, of those that stand below that. */
static bool search(const char *text, size_t length, const char *section, const char *above, const char *key,
                   struct line *value)
{
    const char *end = text + length;
    struct line none;
    bool inside = false;
    bool below = false; /* the last line that was not indented is `above` */
    bool found = false;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        struct line line = {at, newline == NULL ? end : newline};
        at = newline == NULL ? end : newline + 1;
        if (line.at < line.end && (*line.at == '#' || *line.at == ';')) continue;
        if (opens(line, section, &inside)) {
            found = found || (key == NULL && inside);
            below = false;
            continue;
        }
        bool indented = line.at < line.end && is_space(*line.at);
        if (above != NULL && !indented && line.at < line.end) below = inside && is_key(line, above, &none);
        bool here = above != NULL ? below && indented : inside && !indented;
        if (here && key != NULL && is_key(line, key, value)) found = true;
    }
    return found;
}

bool tm_aws_config__find(const char *text, size_t length, const char *section, const char *key, const char **out,
                         size_t *out_length)
{
    struct line value = {NULL, NULL};
    if (length == 0 || !search(text, length, section, NULL, key, &value) || value.at == value.end) return false;
    *out = value.at;
    *out_length = (size_t)(value.end - value.at);
    return true;
}

bool tm_aws_config__find_below(const char *text, size_t length, const char *section, const char *above, const char *key,
                               const char **out, size_t *out_length)
{
    struct line value = {NULL, NULL};
    if (length == 0 || !search(text, length, section, above, key, &value) || value.at == value.end) return false;
    *out = value.at;
    *out_length = (size_t)(value.end - value.at);
    return true;
}

bool tm_aws_config__has(const char *text, size_t length, const char *section)
{
    return length > 0 && search(text, length, section, NULL, NULL, NULL);
}

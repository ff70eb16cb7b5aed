#include "wire/last_lines.h"

#include <assert.h>
#include <string.h>

static void put(struct tm_last_lines *out, size_t at, const char *text, size_t length)
{
    assert(at < TM_LAST_LINES);
    if (length > TM_MESSAGE_STRING_MAX) length = TM_MESSAGE_STRING_MAX;
    if (length > 0) memcpy(out->text[at], text, length);
    out->text[at][length] = '\0';
}

/* Where the line that ends at `end` begins. */
static size_t line_begin(const char *text, size_t end)
{
    assert(text != NULL);
    while (end > 0 && text[end - 1] != '\n')
        end--;
    return end;
}

void tm_last_lines_of(const char *text, size_t length, struct tm_last_lines *out)
{
    assert(text != NULL || length == 0);
    size_t begins[TM_LAST_LINES];
    size_t ends[TM_LAST_LINES];
    size_t count = 0;
    while (length > 0 && strchr("\r\n \t", text[length - 1]) != NULL)
        length--;
    for (size_t end = length; length > 0 && count < TM_LAST_LINES;) {
        size_t begin = line_begin(text, end);
        ends[count] = end;
        while (ends[count] > begin && text[ends[count] - 1] == '\r')
            ends[count]--;
        begins[count] = begin;
        for (size_t i = begin; i < ends[count]; i++)
            if (text[i] == '\r') begins[count] = i + 1;
        count++;
        if (begin == 0) break;
        end = begin - 1;
    }
    out->count = count;
    for (size_t i = 0; i < count; i++)
        put(out, i, text + begins[count - 1 - i], ends[count - 1 - i] - begins[count - 1 - i]);
}

void tm_last_lines_read(char *const *lines, size_t count, struct tm_last_lines *out)
{
    assert(lines != NULL || count == 0);
    size_t first = count > TM_LAST_LINES ? count - TM_LAST_LINES : 0;
    out->count = count - first;
    for (size_t i = first; i < count; i++)
        put(out, i - first, lines[i], strlen(lines[i]));
}

size_t tm_last_lines_point(struct tm_last_lines *lines, char *pointers[TM_LAST_LINES])
{
    assert(lines->count <= TM_LAST_LINES);
    for (size_t i = 0; i < lines->count; i++)
        pointers[i] = lines->text[i];
    return lines->count;
}

#include "base/suggest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_LENGTH = 63 };

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

size_t tm_suggest__distance(const char *a, const char *b)
{
    size_t rows = strlen(a);
    size_t columns = strlen(b);
    if (rows > NAME_MAX_LENGTH || columns > NAME_MAX_LENGTH) return SIZE_MAX;
    size_t d[NAME_MAX_LENGTH + 1][NAME_MAX_LENGTH + 1];
    for (size_t i = 0; i <= rows; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= columns; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        for (size_t j = 1; j <= columns; j++) {
            char ca = lower(a[i - 1]);
            char cb = lower(b[j - 1]);
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == lower(b[j - 2]) && lower(a[i - 2]) == cb && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[rows][columns];
}

/* Do both have the same digits, one after the other? */
static bool same_digits(const char *a, const char *b)
{
    for (;;) {
        a += strcspn(a, "0123456789");
        b += strcspn(b, "0123456789");
        if (*a != *b) return false;
        if (*a == '\0') return true;
        a++;
        b++;
    }
}

void tm_suggest_offer(struct tm_suggest *suggest, const char *candidate)
{
    size_t length = strlen(suggest->word);
    if (length == 0) return;
    size_t distance = tm_suggest__distance(suggest->word, candidate);
    size_t allowed = length / 3 < 1 ? 1 : length / 3 > 3 ? 3 : length / 3;
    if (distance > 1 && length >= 3 && strncasecmp(suggest->word, candidate, length) == 0) distance = 1;
    if (distance > 1 && !same_digits(suggest->word, candidate)) return; /* llama-65b is not a llama-2-7b mistyped */
    if (distance > allowed) return;
    if (suggest->best == NULL || distance < suggest->best_distance) {
        suggest->best = candidate;
        suggest->best_distance = distance;
    }
}

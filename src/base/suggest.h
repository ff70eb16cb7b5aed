/* "did you mean": the nearest of a list of names. */
#ifndef TM_BASE_SUGGEST_H
#define TM_BASE_SUGGEST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap of neighbours, case ignored) that turn `a` into `b`; names longer than 63
 * count as infinitely far. */
size_t tm_suggest__distance(const char *a, const char *b);

/* Keeps the best candidate over a series of calls: start with best = NULL. A candidate counts when it is at most a
 * third of the word's length away (at least 1, at most 3), or when it starts with the word; one with other digits when
 * it is one edit away: they are sizes and versions. */
struct tm_suggest {
    const char *word;
    const char *best; /* borrowed from the candidates; NULL if none is near */
    size_t best_distance;
};

void tm_suggest_offer(struct tm_suggest *suggest, const char *candidate);

#endif

/* How a process ended, in words. */
#ifndef TM_BASE_END_WORDS_H
#define TM_BASE_END_WORDS_H

#include <stdint.h>

enum { TM_END_WORDS_MAX = 96 };

/* "ended with exit status 1", "was killed by SIGSEGV"; 128 + N is signal N. Returns `out`. */
const char *tm_end_words(uint32_t status, char out[TM_END_WORDS_MAX]);

#endif

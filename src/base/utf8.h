/* UTF-8, code point by code point. */
#ifndef TM_BASE_UTF8_H
#define TM_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length in bytes of the code point at `text` (at most `length` bytes are looked at), and its number in *out_point (may
 * be NULL). 0: not UTF-8 (overlong forms, surrogates and what lies past U+10FFFF included), or length is 0. */
size_t tm_utf8__next(const char *text, size_t length, uint32_t *out_point);

#endif

#include "base/utf8.h"

size_t tm_utf8__next(const char *text, size_t length, uint32_t *out_point)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (length == 0) return 0;
    const unsigned char *s = (const unsigned char *)text;
    size_t size = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (size == 0 || size > length) return 0;
    uint32_t point = size == 1 ? s[0] : s[0] & (0x7FU >> size);
    for (size_t i = 1; i < size; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        point = point << 6 | (s[i] & 0x3FU);
    }
    if (point < smallest[size] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return 0;
    if (out_point != NULL) *out_point = point;
    return size;
}

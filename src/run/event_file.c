#include "run/event_file.h"

#include <inttypes.h>
#include <string.h>

enum { HEAD = 12, TAIL = 4, RECORD_MAX = 1 << 20 };

/* ---- bytes ---- */

static uint32_t crc32c(const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78U & (0U - (crc & 1U)));
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t length)
{
    uint32_t crc = crc32c(data, length);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

static void put_fixed(struct tm_text *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        tm_text_putc(out, (char)(unsigned char)(number >> (8 * i)));
}

static void put_varint(struct tm_text *out, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        tm_text_putc(out, (char)(unsigned char)(number | 0x80));
    tm_text_putc(out, (char)(unsigned char)number);
}

static void put_double(struct tm_text *out, double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_fixed(out, bits, 8);
}

static void put_bytes(struct tm_text *out, char tag, const char *data, size_t length)
{
    tm_text_putc(out, tag);
    put_varint(out, length);
    tm_text_append(out, data, length);
}

static uint64_t get_fixed(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << (8 * i);
    return number;
}

/* ---- records ---- */

static void put_record(struct tm_text *out, const struct tm_text *event)
{
    struct tm_text length;
    tm_text_init(&length, 16);
    put_fixed(&length, event->length, 8);
    tm_text_append(out, length.data, length.length);
    put_fixed(out, length.failed == 0 ? masked(length.data, length.length) : 0, 4);
    tm_text_append(out, event->data, event->length);
    put_fixed(out, masked(event->data, event->length), 4);
    int failed = event->failed != 0 ? event->failed : length.failed;
    if (failed != 0 && out->failed == 0) out->failed = failed;
    tm_text_deinit(&length);
}

void tm_event_file__name(struct tm_text *out, const char *folder, int64_t begun_utc_ms, uint64_t job)
{
    tm_text_printf(out, "%s/events.out.tfevents.%" PRId64 ".tidemill.%016" PRIx64, folder, begun_utc_ms / 1000, job);
}

void tm_event_file__begin(struct tm_text *out, double utc_s)
{
    static const char version[] = "brain.Event:2";
    struct tm_text event;
    tm_text_init(&event, 256);
    tm_text_putc(&event, 0x09);
    put_double(&event, utc_s);
    put_bytes(&event, 0x1A, version, sizeof version - 1);
    put_record(out, &event);
    tm_text_deinit(&event);
}

void tm_event_file__step(struct tm_text *out, double utc_s, uint64_t step, const struct tm_text *body)
{
    struct tm_text event;
    tm_text_init(&event, RECORD_MAX);
    tm_text_putc(&event, 0x09); /* wall_time */
    put_double(&event, utc_s);
    tm_text_putc(&event, 0x10); /* step */
    put_varint(&event, step);
    put_bytes(&event, 0x2A, body->data, body->length); /* summary */
    if (body->failed != 0) event.failed = body->failed;
    put_record(out, &event);
    tm_text_deinit(&event);
}

void tm_event_file__scalar(struct tm_text *body, const char *tag, double value)
{
    struct tm_text one;
    float real = (float)value;
    uint32_t bits = 0;
    tm_text_init(&one, 4096);
    put_bytes(&one, 0x0A, tag, strlen(tag));
    tm_text_putc(&one, 0x15); /* simple_value */
    memcpy(&bits, &real, sizeof bits);
    put_fixed(&one, bits, 4);
    put_bytes(body, 0x0A, one.data, one.length); /* value */
    if (one.failed != 0) body->failed = one.failed;
    tm_text_deinit(&one);
}

/* The step of an event of ours: it stands after the time. */
static uint64_t step_of(const uint8_t *event, size_t length)
{
    uint64_t step = 0;
    if (length < 11 || event[0] != 0x09 || event[9] != 0x10) return 0;
    for (size_t i = 10, shift = 0; i < length && shift < 63; i++, shift += 7) {
        step |= (uint64_t)(event[i] & 0x7F) << shift;
        if ((event[i] & 0x80) == 0) return step;
    }
    return 0;
}

void tm_event_file__scan(const void *data, size_t length, struct tm_event_scan *scan)
{
    const uint8_t *bytes = data;
    scan->used = 0;
    scan->damaged = false;
    while (length - scan->used >= HEAD) {
        const uint8_t *at = bytes + scan->used;
        uint64_t size = get_fixed(at, 8);
        scan->damaged = get_fixed(at + 8, 4) != masked(at, 8) || size > RECORD_MAX;
        if (scan->damaged || length - scan->used - HEAD < size + TAIL) return;
        scan->damaged = get_fixed(at + HEAD + size, 4) != masked(at + HEAD, (size_t)size);
        if (scan->damaged) return;
        uint64_t step = step_of(at + HEAD, (size_t)size);
        if (step > scan->step) scan->step = step;
        scan->records++;
        scan->used += HEAD + (size_t)size + TAIL;
    }
}

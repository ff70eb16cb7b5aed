/* Every message: the first byte chooses one of the schema's bodies, the rest is that body. What is accepted packs to
 * something that reads back the same. Frames and record events of the same bytes, too; and as the first words on a
 * connection they prove nothing. */
#include "fuzz.h"
#include "wire/link_proof.h"
#include "wire/roster.h"

#include <string.h>

static void put_varint(struct tm_text *text, uint64_t value)
{
    for (; value > 127; value >>= 7)
        tm_text_putc(text, (char)((value & 127) | 128));
    tm_text_putc(text, (char)value);
}

/* version 1, from a worker, then the chosen body. */
static void wrap(struct tm_text *text, uint8_t choice, const uint8_t *body, size_t size)
{
    unsigned bodies = TMW__ENVELOPE__BODY_FOLLOW_DATA - TMW__ENVELOPE__BODY_HELLO + 1;
    tm_text_append(text, "\x08\x01\x18\x03\x20\x07", 6);
    put_varint(text, (uint64_t)(TMW__ENVELOPE__BODY_HELLO + choice % bodies) << 3 | 2);
    put_varint(text, size);
    tm_text_append(text, (const char *)body, size);
}

static void check_message(const struct tm_text *text, struct tm_arena *arena)
{
    tm_message *message = NULL;
    if (tm_message_unpack(text->data, text->length, arena, &message, NULL) != 0) return;
    struct tm_text first;
    struct tm_text second;
    tm_text_init(&first, 64 << 20);
    tm_text_init(&second, 64 << 20);
    tm_message_pack(message, &first);
    tm_message *again = NULL;
    int rc = tm_message_unpack(first.data, first.length, arena, &again, NULL);
    assert(rc == 0);
    tm_message_pack(again, &second);
    assert(first.length == second.length && memcmp(first.data, second.data, first.length) == 0);
    if (message->body_case == TMW__ENVELOPE__BODY_ASSIGN) {
        struct tm_roster roster;
        if (tm_roster_read(1, message->assign->layout, 5, 7, &roster, NULL) == 0) {
            assert(tm_roster_check(&roster, 5, 7, NULL) == 0);
            tm_roster_deinit(&roster);
        }
    }
    tm_text_deinit(&second);
    tm_text_deinit(&first);
}

static uint64_t seven(struct tm_env *env)
{
    (void)env;
    return 7;
}

static void check_proof(const uint8_t *data, size_t size, bool listens)
{
    struct tm_env env = {.random_u64 = seven};
    struct tm_link_proof proof;
    struct tm_text out;
    int rc = 0;
    tm_text_init(&out, 256);
    tm_link_proof__begin(&proof, &env, listens, &out);
    for (size_t needs; rc == 0 && (needs = tm_link_proof__needs(&proof)) > 0 && needs <= size;) {
        rc = tm_link_proof__take(&proof, "secret", "c", 1, data, &out);
        data += needs;
        size -= needs;
    }
    assert(!proof.proven && tm_text_status(&out, NULL) == 0);
    tm_text_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    struct tm_text text;
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_text_init(&text, 1 << 20);
    tm_arena_init(&arena, 64 << 20);
    wrap(&text, data[0], data + 1, size - 1);
    check_message(&text, &arena);
    (void)tm_record_event_unpack(data, size, &arena, &event, NULL);
    int64_t frame = tm_frame_next(data, size, NULL);
    assert(frame <= (int64_t)size);
    check_proof(data, size, true);
    check_proof(data, size, false);
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
    assert(tm_alloc_live() == 0);
    return 0;
}

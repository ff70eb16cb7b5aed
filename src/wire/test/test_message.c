#include "base/test/harness.h"
#include "wire/message.h"
#include "wire/outbox.h"
#include "wire/test/wire_samples.h"

#include <math.h>
#include <string.h>

static void packs_and_comes_back(void *context, tm_message *message)
{
    int *count = context;
    struct tm_text first;
    struct tm_text second;
    struct tm_arena arena;
    struct tm_error e = {0};
    tm_message *back = NULL;
    tm_text_init(&first, 1 << 20);
    tm_text_init(&second, 1 << 20);
    tm_arena_init(&arena, 1 << 20);
    tm_message_pack(message, &first);
    int rc = tm_message_unpack(first.data, first.length, &arena, &back, &e);
    assert_row(rc == 0, "%s: %s", tm_message_name(message), e.text);
    assert_row_string(tm_message_name(message), tm_message_name(back), tm_message_name(message));
    tm_message_pack(back, &second);
    assert_row(first.length == second.length && memcmp(first.data, second.data, first.length) == 0,
               "%s: other bytes after a round trip", tm_message_name(message));
    /* Every shorter piece is refused or is a shorter message; none is read past its end (ASan looks on). */
    for (size_t cut = 0; cut < first.length; cut++) {
        char *piece = tm_alloc(cut + 1);
        assert_non_null(piece);
        memcpy(piece, first.data, cut);
        (void)tm_message_unpack(piece, cut, &arena, &back, &e);
        tm_free(piece);
        tm_arena_deinit(&arena);
    }
    tm_arena_deinit(&arena);
    tm_text_deinit(&second);
    tm_text_deinit(&first);
    (*count)++;
}

static void test_every_message_round_trip(void **state)
{
    (void)state;
    struct tm_arena arena;
    int count = 0;
    tm_arena_init(&arena, 1 << 20);
    for_each_sample(1, &arena, packs_and_comes_back, &count);
    tm_arena_deinit(&arena);
    assert_int_equal(count, 29); /* a new message gets its sample by itself; this line says that it was seen */
}

/* What must not come through: made by a change to a good message. */
enum wrong { NEW_VERSION, NO_BODY, NO_ROLE, LONG_STRING, LONG_CHUNK, LONG_LIST, NOT_FINITE, WRONG_COUNT };
static const struct {
    enum wrong wrong;
    const char *says;
} refused[] = {
    {NEW_VERSION, "run the same release"}, {NO_BODY, "with a body unknown"}, {NO_ROLE, "role 9"},
    {LONG_STRING, "longer than"},          {LONG_CHUNK, "more than"},        {LONG_LIST, "entries, more than"},
    {NOT_FINITE, "not a finite number"},
};

static void make_wrong(enum wrong wrong, tm_message *message, struct tm_arena *arena)
{
    static Tmw__Hello hello;
    static Tmw__FetchData data;
    static Tmw__HeartbeatAck ack;
    static Tmw__Resolve resolve;
    tmw__hello__init(&hello);
    tmw__fetch_data__init(&data);
    tmw__heartbeat_ack__init(&ack);
    tmw__resolve__init(&resolve);
    message->body_case = TMW__ENVELOPE__BODY_HELLO;
    message->hello = &hello;
    if (wrong == NEW_VERSION) message->version = TM_MESSAGE_VERSION + 1;
    if (wrong == NO_BODY) message->body_case = TMW__ENVELOPE__BODY__NOT_SET;
    if (wrong == NO_ROLE) message->from_role = 9;
    if (wrong == LONG_STRING) {
        hello.address = tm_arena_alloc(arena, TM_MESSAGE_STRING_MAX + 2);
        memset(hello.address, 'a', TM_MESSAGE_STRING_MAX + 1);
    }
    if (wrong == LONG_CHUNK) {
        message->body_case = TMW__ENVELOPE__BODY_FETCH_DATA;
        message->fetch_data = &data;
        data.data.len = TM_MESSAGE_CHUNK_MAX + 1;
        data.data.data = tm_arena_alloc(arena, data.data.len);
    }
    if (wrong == LONG_LIST) {
        message->body_case = TMW__ENVELOPE__BODY_HEARTBEAT_ACK;
        message->heartbeat_ack = &ack;
        ack.n_keep = TM_MESSAGE_LIST_MAX + 1;
        ack.keep = tm_arena_alloc(arena, ack.n_keep * sizeof *ack.keep);
    }
    if (wrong == NOT_FINITE) {
        message->body_case = TMW__ENVELOPE__BODY_RESOLVE;
        message->resolve = &resolve;
        resolve.norm = NAN;
    }
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < TM_COUNT(refused); i++) {
        struct tm_arena arena;
        struct tm_text text;
        struct tm_error e = {0};
        struct tm_peer from = {.role = TM_ROLE_WORKER, .id = 3, .incarnation = 7};
        struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
        tm_arena_init(&arena, 64 << 20);
        tm_text_init(&text, 8 << 20);
        tm_message message = tm_message_make(5, &from, &to);
        make_wrong(refused[i].wrong, &message, &arena);
        tm_message_pack(&message, &text);
        tm_message *out = NULL;
        int rc = tm_message_unpack(text.data, text.length, &arena, &out, &e);
        assert_row(rc == -(int)TM_EINPUT, "row %zu: %d", i, rc);
        assert_row(strstr(e.text, refused[i].says) != NULL, "row %zu: %s", i, e.text);
        assert_null(out);
        tm_text_deinit(&text);
        tm_arena_deinit(&arena);
    }
}

static void test_frames(void **state)
{
    (void)state;
    struct tm_text text;
    struct tm_error e;
    tm_text_init(&text, 100);
    tm_frame_append(&text, "abc", 3);
    tm_frame_append(&text, "de", 2);
    for (size_t have = 0; have < 7; have++)
        assert_int_equal(tm_frame_next(text.data, have, &e), 0);
    assert_int_equal(tm_frame_next(text.data, text.length, &e), 3);
    assert_memory_equal(text.data + TM_FRAME_HEADER, "abc", 3);
    assert_int_equal(tm_frame_next(text.data + 7, text.length - 7, &e), 2);
    assert_int_equal(tm_frame_next("\0\0\0\0", 4, &e), -(int)TM_EINPUT);
    assert_int_equal(tm_frame_next("\377\377\377\377", 4, &e), -(int)TM_EINPUT);
    tm_text_deinit(&text);
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_peer from = {.role = TM_ROLE_WORKER, .id = 3, .incarnation = 7};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    TM_FAIL_EACH_ALLOC({
        struct tm_outbox outbox;
        struct tm_arena arena;
        struct tm_error e;
        Tmw__Challenge body = TMW__CHALLENGE__INIT;
        tm_message message = tm_message_make(5, &from, &to);
        message.body_case = TMW__ENVELOPE__BODY_CHALLENGE;
        message.challenge = &body;
        body.nonce = 9;
        tm_outbox_init(&outbox);
        tm_arena_init(&arena, 1 << 20);
        tm_outbox_send(&outbox, &to, &message);
        rc = tm_outbox_status(&outbox, &e);
        tm_message *back = NULL;
        if (rc == 0)
            rc = tm_message_unpack(tm_outbox_data(&outbox, &outbox.actions[0]), outbox.actions[0].length, &arena, &back,
                                   &e);
        if (rc == 0) assert_int_equal(back->challenge->nonce, 9);
        tm_arena_deinit(&arena);
        tm_outbox_deinit(&outbox);
    });
}

/* Of several workers an instance: who is lost with whom is in their numbers. */
static void test_numbers_of_workers(void **state)
{
    (void)state;
    static const struct {
        uint64_t instance;
        uint32_t local, workers;
        uint64_t worker;
    } rows[] = {{1, 0, 0, 1}, {7, 0, 1, 7}, {1, 0, 4, 1}, {1, 3, 4, 4}, {2, 0, 4, 5}, {9, 7, 8, 72}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tm_worker_of_instance(rows[i].instance, rows[i].local, rows[i].workers), rows[i].worker);
        assert_int_equal(tm_instance_of_worker(rows[i].worker, rows[i].workers), rows[i].instance);
    }
    assert_int_equal(tm_instance_of_worker(0, 4), 0);
}

TM_TEST_MAIN(TM_TEST(test_numbers_of_workers), TM_TEST(test_every_message_round_trip), TM_TEST(test_refused),
             TM_TEST(test_frames), TM_TEST(test_memory))

/* The coordinator and a worker fed with any messages, in any order, from anyone: no crash, no leak, no endless talk.
 * The input is a list of messages: one byte for who sends it, one for the kind of body, one for its length, then the
 * body. Some are made by the machines themselves: what one says is given to the other. */
#include "fuzz.h"
#include "run/cloud_link.h"
#include "run/coordinator.h"
#include "worker/worker.h"

#include <string.h>

enum { LAYERS = 4, TALK_MAX = 400 };

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    return 16 + layer;
}
static int export_layer(void *context, uint32_t layer, void *out, uint64_t size)
{
    (void)context;
    memset(out, (int)layer, size);
    return 0;
}
static int import_layer(void *context, uint32_t layer, uint64_t step, struct tm_block *block)
{
    (void)context, (void)step;
    assert(layer < LAYERS && block->size == layer_bytes(NULL, layer));
    return 0;
}
static int init_layer(void *context, uint32_t layer)
{
    (void)context, (void)layer;
    return 0;
}
static void drop_layer(void *context, uint32_t layer)
{
    (void)context, (void)layer;
}
static uint64_t begun;
static uint64_t applying;
static void begin(void *context, const struct tm_roster *roster, uint64_t step)
{
    (void)context, (void)roster;
    begun = step;
}
static void nothing(void *context)
{
    (void)context;
    begun = 0;
}
static void apply(void *context, uint64_t step, double norm)
{
    (void)context, (void)norm;
    applying = step;
}
static uint64_t waits(void *context)
{
    (void)context;
    return 0;
}

static uint64_t gradient_bytes(void *context, uint32_t layer)
{
    (void)context;
    return 4 + layer;
}
static int export_gradient(void *context, uint32_t layer, void *out, uint64_t size)
{
    (void)context;
    memset(out, (int)layer, size);
    return 0;
}
static int advance_layer(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_size,
                         const void *gradient, uint64_t gradient_size)
{
    (void)context, (void)step, (void)norm, (void)state, (void)gradient;
    assert(state_size == layer_bytes(NULL, layer) && gradient_size <= gradient_bytes(NULL, layer));
    return 0;
}

static struct tm_coordinator *coordinator;
static struct tm_worker *worker;
static struct tm_cloud_link cloud;
static int64_t now_ms;

/* The cloud joins; what it reports comes from the input. */
static void join_cloud(void)
{
    struct tm_cloud_link_options options = {.job = 1, .incarnation = 22, .token = "t"};
    struct tm_outbox said;
    struct tm_outbox heard;
    struct tm_arena arena;
    tm_message *message = NULL;
    tm_outbox_init(&said);
    tm_outbox_init(&heard);
    tm_arena_init(&arena, 1 << 20);
    tm_cloud_link_init(&cloud, &options);
    for (int round = 0; round < 6; round++) {
        (void)tm_cloud_link_due(&cloud, now_ms, &said);
        for (size_t i = 0; i < said.count; i++)
            if (tm_message_unpack(tm_outbox_data(&said, &said.actions[i]), said.actions[i].length, &arena, &message,
                                  NULL) == 0)
                tm_coordinator_receive(coordinator, now_ms, message, &heard);
        tm_outbox_clear(&said);
        for (size_t i = 0; i < heard.count; i++)
            if (heard.actions[i].kind == TM_ACTION_SEND &&
                tm_message_unpack(tm_outbox_data(&heard, &heard.actions[i]), heard.actions[i].length, &arena, &message,
                                  NULL) == 0)
                (void)tm_cloud_link_receive(&cloud, now_ms, message, &said);
        tm_outbox_clear(&heard);
    }
    assert(cloud.registered);
    tm_outbox_deinit(&said);
    tm_outbox_deinit(&heard);
    tm_arena_deinit(&arena);
}

/* Gives what each says to the other, for a while. */
static void talk(struct tm_outbox *from_coordinator, struct tm_outbox *from_worker)
{
    for (int round = 0; round < TALK_MAX && from_coordinator->count + from_worker->count > 0; round++) {
        struct tm_outbox said_c = *from_coordinator;
        struct tm_outbox said_w = *from_worker;
        tm_outbox_init(from_coordinator);
        tm_outbox_init(from_worker);
        struct tm_arena arena;
        tm_arena_init(&arena, 64 << 20);
        tm_message *message = NULL;
        for (size_t i = 0; i < said_c.count; i++)
            if (said_c.actions[i].kind == TM_ACTION_SEND && said_c.actions[i].to.id == 1 &&
                tm_message_unpack(tm_outbox_data(&said_c, &said_c.actions[i]), said_c.actions[i].length, &arena,
                                  &message, NULL) == 0)
                tm_worker_receive(worker, now_ms, message, from_worker);
        for (size_t i = 0; i < said_w.count; i++)
            if (said_w.actions[i].kind == TM_ACTION_SEND && said_w.actions[i].to.role == TM_ROLE_COORDINATOR &&
                tm_message_unpack(tm_outbox_data(&said_w, &said_w.actions[i]), said_w.actions[i].length, &arena,
                                  &message, NULL) == 0)
                tm_coordinator_receive(coordinator, now_ms, message, from_coordinator);
        if (begun != 0) {
            struct tm_norm norms[LAYERS] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
            uint64_t step = begun;
            begun = 0;
            tm_worker_held(worker, now_ms, step, norms, LAYERS, from_worker);
        }
        if (applying != 0) {
            uint64_t step = applying;
            applying = 0;
            tm_worker_applied(worker, now_ms, step, from_worker);
        }
        tm_arena_deinit(&arena);
        tm_outbox_deinit(&said_c);
        tm_outbox_deinit(&said_w);
    }
}

static void put_varint(struct tm_text *text, uint64_t value)
{
    for (; value > 127; value >>= 7)
        tm_text_putc(text, (char)((value & 127) | 128));
    tm_text_putc(text, (char)value);
}

static void one_message(const uint8_t *data, size_t size, struct tm_outbox *to_c, struct tm_outbox *to_w)
{
    unsigned bodies = TMW__ENVELOPE__BODY_FOLLOW_DATA - TMW__ENVELOPE__BODY_HELLO + 1;
    struct tm_text text;
    struct tm_arena arena;
    tm_message *message = NULL;
    tm_text_init(&text, 1 << 20);
    tm_arena_init(&arena, 64 << 20);
    tm_text_append(&text, "\x08\x01", 2); /* version 1, then job 1 */
    tm_text_append(&text, "\x11\x01\0\0\0\0\0\0\0", 9);
    put_varint(&text, 3 << 3);
    put_varint(&text, (data[0] & 63) / 9 == 6 ? TM_ROLE_CLOUD : 1U + data[0] % 3); /* role */
    put_varint(&text, 4 << 3);
    put_varint(&text, data[0] / 3 % 3); /* id */
    tm_text_append(&text, "\x29", 1);   /* incarnation: the worker's, the coordinator's or another */
    tm_text_append(&text, data[0] & 64 ? "\x0b\0\0\0\0\0\0\0" : "\x16\0\0\0\0\0\0\0", 8);
    if (data[0] & 128) tm_text_append(&text, "\x31\x0b\0\0\0\0\0\0\0", 9); /* to the worker's incarnation */
    put_varint(&text, (uint64_t)(TMW__ENVELOPE__BODY_HELLO + data[1] % bodies) << 3 | 2);
    put_varint(&text, size - 3);
    tm_text_append(&text, (const char *)data + 3, size - 3);
    if (tm_message_unpack(text.data, text.length, &arena, &message, NULL) == 0) {
        tm_worker_receive(worker, now_ms, message, to_w);
        tm_coordinator_receive(coordinator, now_ms, message, to_c);
        (void)tm_cloud_link_receive(&cloud, now_ms, message, to_c);
    }
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
}

static void make_machines(struct tm_use_all *rule)
{
    struct tm_decider decider = tm_decider_use_all(rule);
    struct tm_coordinator_options options = {.job = 1,
                                             .incarnation = 22,
                                             .token = "t",
                                             .layers = LAYERS,
                                             .steps = 50,
                                             .micro_batches = 4,
                                             .heartbeat_ms = 100,
                                             .lease_ms = 1000,
                                             .orphan_ms = 3000,
                                             .resend_ms = 100,
                                             .settle_ms = 100,
                                             .follow_limit_ms = 1000,
                                             .drain_limit_ms = 1000,
                                             .fetch_limit_ms = 1000,
                                             .stall_ms = 1000,
                                             .quarantine_ms = 1000,
                                             .copy_limit_ms = 1000,
                                             .false_alarm_ms = 1000,
                                             .durable_wait_ms = 1000,
                                             .copies = 1,
                                             .copies_to_files = true,
                                             .sets_kept = 2,
                                             .fresh = true};
    struct tm_worker_options worker_options = {.job = 1,
                                               .id = 1,
                                               .incarnation = 11,
                                               .token = "t",
                                               .address = "a",
                                               .kernel_class = "k",
                                               .chunk_bytes = 8,
                                               .copy_bytes_max = 4096,
                                               .resend_ms = 100};
    struct tm_worker_engine engine = {.layer_bytes = layer_bytes,
                                      .export_layer = export_layer,
                                      .import_layer = import_layer,
                                      .init_layer = init_layer,
                                      .drop_layer = drop_layer,
                                      .begin = begin,
                                      .cancel = nothing,
                                      .apply = apply,
                                      .discard = nothing,
                                      .waiting_for = waits,
                                      .gradient_bytes = gradient_bytes,
                                      .export_gradient = export_gradient,
                                      .advance_layer = advance_layer};
    coordinator = tm_coordinator_create(&options, &decider);
    worker = tm_worker_create(&worker_options, &engine);
    assert(coordinator != NULL && worker != NULL);
    begun = applying = 0;
    now_ms = 1000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_use_all rule = {.stages = 2, .workers_min = 1, .copy_every_ms = 500};
    struct tm_outbox out_c;
    struct tm_outbox out_w;
    make_machines(&rule);
    tm_outbox_init(&out_c);
    tm_outbox_init(&out_w);
    tm_coordinator_begin(coordinator, now_ms, 0, &out_c);
    join_cloud();
    for (int messages = 0; size >= 3 && messages < 40; messages++) {
        size_t length = 3 + data[2];
        if (length > size) length = size;
        one_message(data, length, &out_c, &out_w);
        now_ms += data[1] < 200 ? 60 : 2000;
        data += length;
        size -= length;
        tm_worker_tick(worker, now_ms, &out_w);
        tm_coordinator_tick(coordinator, now_ms, now_ms, &out_c);
        if (messages % 2 == 0) talk(&out_c, &out_w);
    }
    tm_outbox_deinit(&out_c);
    tm_outbox_deinit(&out_w);
    tm_coordinator_destroy(coordinator);
    tm_worker_destroy(worker);
    assert(tm_alloc_live() == 0);
    return 0;
}

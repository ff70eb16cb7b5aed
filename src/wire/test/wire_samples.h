/* A message of every kind, each field filled, made from the schema's own description. */
#ifndef TM_WIRE_SAMPLES_H
#define TM_WIRE_SAMPLES_H

#include "base/random.h"
#include "wire/message.h"

#include <assert.h>
#include <string.h>

static ProtobufCMessage *sample_message(const ProtobufCMessageDescriptor *descriptor, struct tm_random *random,
                                        struct tm_arena *arena, int depth);

static void sample_value(const ProtobufCFieldDescriptor *field, void *at, struct tm_random *random,
                         struct tm_arena *arena, int depth)
{
    uint64_t bits = tm_random_u64(random);
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)at = sample_message(field->descriptor, random, arena, depth + 1);
        break;
    case PROTOBUF_C_TYPE_STRING:
        *(char **)at = tm_arena_printf(arena, "text %llu", (unsigned long long)(bits % 1000));
        break;
    case PROTOBUF_C_TYPE_BYTES: {
        ProtobufCBinaryData *bytes = at;
        bytes->len = bits % 40 + 1;
        bytes->data = tm_arena_alloc(arena, bytes->len);
        memset(bytes->data, (int)(bits & 0x7f), bytes->len);
        break;
    }
    case PROTOBUF_C_TYPE_DOUBLE:
        *(double *)at = (double)(bits % 1000) / 8 + 1;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = 1;
        break;
    case PROTOBUF_C_TYPE_UINT32:
        *(uint32_t *)at = (uint32_t)(bits % 7 + 1);
        break;
    default: /* 64 bits, signed or not */
        *(uint64_t *)at = bits % 100000 + 1;
        break;
    }
}

static size_t sample_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_UINT32:
        return 4;
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 8;
    }
}

static ProtobufCMessage *sample_message(const ProtobufCMessageDescriptor *descriptor, struct tm_random *random,
                                        struct tm_arena *arena, int depth)
{
    ProtobufCMessage *message = tm_arena_alloc(arena, descriptor->sizeof_message);
    assert(message != NULL && depth < 5);
    protobuf_c_message_init(descriptor, message);
    uint8_t *start = (uint8_t *)message;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        void *at = start + field->offset;
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) continue; /* the caller chooses */
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            sample_value(field, at, random, arena, depth);
            continue;
        }
        size_t size = sample_size(field->type);
        uint8_t *list = tm_arena_alloc(arena, 3 * size);
        for (size_t k = 0; k < 3; k++)
            sample_value(field, list + k * size, random, arena, depth);
        *(uint8_t **)at = list;
        *(size_t *)(void *)(start + field->quantifier_offset) = 3;
    }
    return message;
}

/* Calls `each` with an envelope of every kind. */
static inline void for_each_sample(uint64_t seed, struct tm_arena *arena,
                                   void (*each)(void *context, tm_message *message), void *context)
{
    struct tm_random random = tm_random_make(seed, 0);
    for (unsigned i = 0; i < tmw__envelope__descriptor.n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &tmw__envelope__descriptor.fields[i];
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) == 0) continue;
        tm_message *message = (tm_message *)sample_message(&tmw__envelope__descriptor, &random, arena, 0);
        message->version = TM_MESSAGE_VERSION;
        message->from_role = TM_ROLE_WORKER;
        message->body_case = (Tmw__Envelope__BodyCase)field->id;
        message->hello = (Tmw__Hello *)sample_message(field->descriptor, &random, arena, 1);
        each(context, message);
    }
}

#endif

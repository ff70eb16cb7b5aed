#include "wire/message.h"

#include <assert.h>
#include <math.h>
#include <string.h>

bool tm_peer_equal(const struct tm_peer *a, const struct tm_peer *b)
{
    return a->role == b->role && a->id == b->id && a->incarnation == b->incarnation;
}

tm_message tm_message_make(uint64_t job, const struct tm_peer *from, const struct tm_peer *to)
{
    assert(from->role != TM_ROLE_NONE && to->role != TM_ROLE_NONE);
    tm_message message = TMW__ENVELOPE__INIT;
    message.version = TM_MESSAGE_VERSION;
    message.job = job;
    message.from_role = from->role;
    message.from_id = from->id;
    message.from_incarnation = from->incarnation;
    message.to_incarnation = to->incarnation;
    return message;
}

struct tm_peer tm_message_sender(const tm_message *message)
{
    return (struct tm_peer){
        .role = (enum tm_role)message->from_role, .id = message->from_id, .incarnation = message->from_incarnation};
}

const char *tm_role_name(enum tm_role role)
{
    static const char *const names[] = {"somebody", "coordinator", "agent", "worker", "cloud"};
    return (size_t)role < sizeof names / sizeof *names ? names[role] : "?";
}

const char *tm_job_state_name(enum tm_job_state state)
{
    static const char *const names[] = {"starting", "training", "waiting", "stopping", "stopped", "finished", "failed"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}

const char *tm_change_cause_name(enum tm_change_cause cause)
{
    static const char *const names[] = {"none",    "loss",  "notice", "arrival", "policy",
                                        "release", "stall", "damage", "begin"};
    return (unsigned)cause < sizeof names / sizeof *names ? names[cause] : "?";
}

/* ---- packing ---- */

/* Room for all of it first: piece by piece takes three times as long. */
static void pack(const ProtobufCMessage *message, struct tm_text *out)
{
    assert(message->descriptor != NULL);
    char *room = tm_text_room(out, protobuf_c_message_get_packed_size(message));
    if (room != NULL) (void)protobuf_c_message_pack(message, (uint8_t *)room);
}

void tm_message_pack(const tm_message *message, struct tm_text *out)
{
    pack(&message->base, out);
}

void tm_record_event_pack(const Tmw__RecordEvent *event, struct tm_text *out)
{
    assert(event->body_case != TMW__RECORD_EVENT__BODY__NOT_SET);
    pack(&event->base, out);
}

void tm_office_message_pack(const Tmw__OfficeMessage *message, struct tm_text *out)
{
    assert(message->body_case != TMW__OFFICE_MESSAGE__BODY__NOT_SET);
    pack(&message->base, out);
}

/* ---- limits: every field of every message, by the schema's own description ---- */

static int check_message(ProtobufCMessage *message, int depth, struct tm_error *e);

static int check_value(const ProtobufCFieldDescriptor *field, const void *value, int depth, struct tm_error *e)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)value;
        if (text != NULL && strnlen(text, TM_MESSAGE_STRING_MAX + 1) > TM_MESSAGE_STRING_MAX)
            return tm_error_set(e, TM_EINPUT, "%s: longer than %d bytes", field->name, TM_MESSAGE_STRING_MAX);
        return 0;
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = value;
        if (bytes->len > TM_MESSAGE_CHUNK_MAX)
            return tm_error_set(e, TM_EINPUT, "%s: %zu bytes, more than %d", field->name, bytes->len,
                                TM_MESSAGE_CHUNK_MAX);
        return 0;
    }
    case PROTOBUF_C_TYPE_DOUBLE: {
        double number = *(const double *)value;
        return isfinite(number) ? 0 : tm_error_set(e, TM_EINPUT, "%s: not a finite number", field->name);
    }
    case PROTOBUF_C_TYPE_MESSAGE: {
        ProtobufCMessage *inner = *(ProtobufCMessage *const *)value;
        return inner == NULL ? 0 : check_message(inner, depth + 1, e);
    }
    default:
        return 0;
    }
}

static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_STRING:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_DOUBLE:
        return sizeof(double);
    default:
        return 0; /* whole numbers: nothing to check in each */
    }
}

static int check_list(const ProtobufCFieldDescriptor *field, const uint8_t *at, size_t count, int depth,
                      struct tm_error *e)
{
    if (count > TM_MESSAGE_LIST_MAX)
        return tm_error_set(e, TM_EINPUT, "%s: %zu entries, more than %d", field->name, count, TM_MESSAGE_LIST_MAX);
    size_t size = element_size(field->type);
    for (size_t i = 0; size > 0 && i < count; i++) {
        int rc = check_value(field, at + i * size, depth, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s[%zu]", field->name, i);
    }
    return 0;
}

static int check_message(ProtobufCMessage *message, int depth, struct tm_error *e)
{
    assert(message->descriptor != NULL && depth >= 0);
    const uint8_t *start = (const uint8_t *)message;
    message->n_unknown_fields = 0; /* fields of a later release are not passed on */
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        int rc = 0;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t count = *(const size_t *)(const void *)(start + field->quantifier_offset);
            const uint8_t *const *list = (const uint8_t *const *)(const void *)(start + field->offset);
            rc = check_list(field, *list, count, depth, e);
        } else if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
            uint32_t which = *(const uint32_t *)(const void *)(start + field->quantifier_offset);
            if (which == field->id) rc = check_value(field, start + field->offset, depth, e);
        } else {
            rc = check_value(field, start + field->offset, depth, e);
        }
        if (rc != 0) return tm_error_wrap(e, rc, "%s", message->descriptor->short_name);
    }
    return 0;
}

/* ---- unpacking ---- */

struct arena_taker {
    struct tm_arena *arena;
    bool failed; /* the schema's reader says only that it failed, not why */
};

static void *take_from_arena(void *data, size_t size)
{
    struct arena_taker *taker = data;
    void *memory = tm_arena_alloc(taker->arena, size);
    if (memory == NULL) taker->failed = true;
    return memory;
}

static void leave_in_arena(void *data, void *memory)
{
    (void)data;
    (void)memory;
}

static int unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t length, struct tm_arena *arena,
                  ProtobufCMessage **out, struct tm_error *e)
{
    assert(arena != NULL && (data != NULL || length == 0));
    if (length > TM_MESSAGE_BYTES_MAX)
        return tm_error_set(e, TM_EINPUT, "message of %zu bytes, more than %d", length, TM_MESSAGE_BYTES_MAX);
    struct arena_taker taker = {.arena = arena};
    ProtobufCAllocator allocator = {.alloc = take_from_arena, .free = leave_in_arena, .allocator_data = &taker};
    static const uint8_t nothing[1] = {0};
    ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, &allocator, length, length == 0 ? nothing : data);
    if (taker.failed) return tm_error_nomem(e);
    if (message == NULL) return tm_error_set(e, TM_EINPUT, "message of %zu bytes: not valid in our schema", length);
    int rc = check_message(message, 0, e);
    if (rc == 0) *out = message;
    return rc;
}

int tm_message_unpack(const void *data, size_t length, struct tm_arena *arena, tm_message **out, struct tm_error *e)
{
    ProtobufCMessage *any = NULL;
    int rc = unpack(&tmw__envelope__descriptor, data, length, arena, &any, e);
    if (rc != 0) return rc;
    tm_message *message = (tm_message *)any;
    if (message->version != TM_MESSAGE_VERSION)
        return tm_error_set(e, TM_EINPUT,
                            "message of version %u, this program uses %d: run the same release everywhere",
                            message->version, TM_MESSAGE_VERSION);
    if (message->body_case == TMW__ENVELOPE__BODY__NOT_SET || message->hello == NULL)
        return tm_error_set(e, TM_EINPUT, "message with a body unknown to this release");
    if (message->from_role < TM_ROLE_COORDINATOR || message->from_role > TM_ROLE_CLOUD)
        return tm_error_set(e, TM_EINPUT, "message from unknown role %u", message->from_role);
    *out = message;
    return 0;
}

int tm_office_message_unpack(const void *data, size_t length, struct tm_arena *arena, Tmw__OfficeMessage **out,
                             struct tm_error *e)
{
    ProtobufCMessage *any = NULL;
    int rc = unpack(&tmw__office_message__descriptor, data, length, arena, &any, e);
    if (rc != 0) return rc;
    Tmw__OfficeMessage *message = (Tmw__OfficeMessage *)any;
    if (message->version != TM_MESSAGE_VERSION)
        return tm_error_set(e, TM_EINPUT,
                            "message of version %u, this program uses %d: run the same release everywhere",
                            message->version, TM_MESSAGE_VERSION);
    if (message->body_case == TMW__OFFICE_MESSAGE__BODY__NOT_SET || message->enrol == NULL)
        return tm_error_set(e, TM_EINPUT, "message with a body unknown to this release");
    *out = message;
    return 0;
}

int tm_record_event_unpack(const void *data, size_t length, struct tm_arena *arena, Tmw__RecordEvent **out,
                           struct tm_error *e)
{
    ProtobufCMessage *any = NULL;
    int rc = unpack(&tmw__record_event__descriptor, data, length, arena, &any, e);
    if (rc == 0) *out = (Tmw__RecordEvent *)any;
    return rc;
}

const char *tm_message_name(const tm_message *message)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&tmw__envelope__descriptor, (unsigned)message->body_case);
    return field == NULL ? "none" : field->name;
}

/* ---- frames ---- */

void tm_frame_append(struct tm_text *out, const void *message, size_t length)
{
    assert(message != NULL && length > 0 && length <= UINT32_MAX);
    char head[TM_FRAME_HEADER];
    for (size_t i = 0; i < sizeof head; i++)
        head[i] = (char)(length >> (8 * i) & 0xff);
    tm_text_append(out, head, sizeof head);
    tm_text_append(out, message, length);
}

int64_t tm_frame_next(const void *data, size_t length, struct tm_error *e)
{
    assert(data != NULL || length == 0);
    const uint8_t *bytes = data;
    if (length < TM_FRAME_HEADER) return 0;
    uint32_t size = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    if (size == 0 || size > TM_MESSAGE_BYTES_MAX)
        return tm_error_set(e, TM_EINPUT, "frame of %u bytes, expected 1 to %d", size, TM_MESSAGE_BYTES_MAX);
    return length - TM_FRAME_HEADER < size ? 0 : (int64_t)size;
}

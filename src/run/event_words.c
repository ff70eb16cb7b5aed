/* Single events of the record, for people (words) and for machines (JSON, field by field from the schema). */
#include "run/run_status.h"

#include "base/end_words.h"
#include "base/term.h"
#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 6, LIST_SHOWN_MAX = 1024, SHARES_NAMED_MAX = 16 };

const char *tm_run_event_kind(const Tmw__RecordEvent *event)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&tmw__record_event__descriptor, (unsigned)event->body_case);
    return field == NULL ? "other" : field->name;
}

bool tm_run_event_quiet(const Tmw__RecordEvent *event)
{
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_PROGRESS:
    case TMW__RECORD_EVENT__BODY_STEPS: /* for loggers */
    case TMW__RECORD_EVENT__BODY_PRICE:
    case TMW__RECORD_EVENT__BODY_ZONE: /* it is told with each instance */
    case TMW__RECORD_EVENT__BODY_JOB:
    case TMW__RECORD_EVENT__BODY_KERNEL_CLASS:
    case TMW__RECORD_EVENT__BODY_FINGERPRINT:
    case TMW__RECORD_EVENT__BODY_SETS_NAMED:
    case TMW__RECORD_EVENT__BODY_POLICY: /* for tidemill replay */
    case TMW__RECORD_EVENT__BODY_DECISION:
    case TMW__RECORD_EVENT__BODY_SET_WHOLE:     /* every few seconds; views tell which step is durable */
    case TMW__RECORD_EVENT__BODY_SET_BAD:       /* old ones go; that one was lost is a note */
    case TMW__RECORD_EVENT__BODY_FINISHED_STEP: /* the job's state is told too */
        return true;
    case TMW__RECORD_EVENT__BODY_INSTANCE:
        return event->instance->end_ms == 0; /* prices and bills; its worker's arrival is told */
    case TMW__RECORD_EVENT__BODY_GENERATION:
        return !event->generation->started; /* what led to the fence is told */
    default:
        return false;
    }
}

/* A text in pieces that a message takes, none of which ends within a character. Cuts `text` into `memory`. */
static size_t cut_text(const char *text, char *memory, char *pieces[], size_t max)
{
    size_t count = 0;
    while (*text != '\0' && count < max) {
        size_t length = strnlen(text, TM_MESSAGE_STRING_MAX + 1);
        if (length > TM_MESSAGE_STRING_MAX)
            for (length = TM_MESSAGE_STRING_MAX; length > 1 && ((unsigned char)text[length] & 0xC0) == 0x80;)
                length--;
        memcpy(memory, text, length);
        memory[length] = '\0';
        pieces[count++] = memory;
        memory += length + 1;
        text += length;
    }
    return count;
}

void tm_run_job__pack(const struct tm_run_job *job, int64_t utc_ms, struct tm_text *out)
{
    enum { PIECES_MAX = 2 * TM_STATUS_COMMAND_MAX / TM_MESSAGE_STRING_MAX };
    char memory[TM_STATUS_COMMAND_MAX + PIECES_MAX], *pieces[PIECES_MAX];
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__JobEvent body = TMW__JOB_EVENT__INIT;
    struct tm_run_job copy = *job; /* the message's texts are not const */
    body.name = copy.name;
    body.command = pieces;
    body.n_command = cut_text(job->command, memory, pieces, PIECES_MAX);
    char *pools[TM_RUN_POOLS_MAX];
    for (size_t i = 0; i < job->pool_count; i++)
        pools[i] = copy.pools[i];
    body.pools = pools;
    body.n_pools = job->pool_count;
    char *gpus[TM_RUN_POOLS_MAX];
    for (size_t i = 0; i < TM_RUN_POOLS_MAX; i++)
        gpus[i] = copy.gpus[i];
    body.gpus = gpus;
    body.n_gpus = job->pool_count > 0 ? job->pool_count : job->gpus[0][0] != '\0';
    uint64_t on_demand_microusd_h[TM_RUN_POOLS_MAX];
    for (size_t i = 0; i < job->pool_count; i++)
        on_demand_microusd_h[i] = (uint64_t)(job->on_demand_usd_h[i] * 1e6 + 0.5);
    body.on_demand_microusd_h = on_demand_microusd_h;
    body.n_on_demand_microusd_h = job->pool_count;
    body.keepers = job->keepers;
    body.steps = job->steps;
    body.samples_per_step = job->samples_per_step;
    body.tokens_per_step = job->tokens_per_step;
    body.layers = job->layers;
    body.micro_batches = job->micro_batches;
    body.speed = job->speed;
    body.deadline_ms = (uint64_t)(job->deadline_s * 1000 + 0.5);
    body.budget_microusd = (uint64_t)(job->budget_usd * 1e6 + 0.5);
    body.workers = job->workers;
    event.at_ms = utc_ms;
    event.body_case = TMW__RECORD_EVENT__BODY_JOB;
    event.job = &body;
    tm_record_event_pack(&event, out);
}

/* ---- words ---- */

static void safe(struct tm_text *out, const char *text)
{
    tm_term_put_safe(out, text, strlen(text));
}

static void instance_words(const Tmw__Instance *instance, struct tm_text *out)
{
    const char *kind = instance->spot ? "spot" : "on-demand";
    tm_text_printf(out, "instance %" PRIu64 " (%s", instance->id, kind);
    if (instance->price_microusd_h > 0) tm_text_printf(out, ", $%.4g/h", (double)instance->price_microusd_h / 1e6);
    tm_text_puts(out, ") ");
    if (instance->end_ms == 0)
        tm_text_puts(out, instance->announced ? "has a notice" : "has arrived");
    else if (instance->released)
        tm_text_puts(out, "was released");
    else
        tm_text_puts(out, instance->announced ? "was preempted, with notice" : "was preempted, without notice");
    if (instance->end_ms == 0 && !instance->announced && instance->paid_before_ms > 0)
        tm_text_printf(out, ", %.3g s after it began", (double)instance->paid_before_ms / 1000);
    if (instance->bill_microusd > 0)
        tm_text_printf(out, "; it cost $%.4g%s", (double)instance->bill_microusd / 1e6,
                       instance->end_ms == 0 ? " so far" : "");
}

/* Who gets how many micro-batches, where that is not the same for all. */
static void share_words(const Tmw__Layout *layout, struct tm_text *out)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (size_t p = 0; p < layout->n_micro_batches; p++) {
        if (layout->micro_batches[p] < least) least = layout->micro_batches[p];
        if (layout->micro_batches[p] > most) most = layout->micro_batches[p];
    }
    if (most <= least + 1 || layout->n_micro_batches > SHARES_NAMED_MAX) return;
    for (size_t p = 0; p < layout->n_micro_batches; p++)
        tm_text_printf(out, "%s%u", p == 0 ? ", sharing micro-batches " : ":", layout->micro_batches[p]);
}

static void generation_words(const Tmw__GenerationEvent *body, struct tm_text *out)
{
    uint32_t number = (uint32_t)body->generation; /* the upper half tells rebuilt records apart */
    if (!body->started || body->layout == NULL) {
        tm_text_printf(out, "generation %" PRIu32 " is forming: %s", number,
                       tm_change_cause_name((enum tm_change_cause)body->cause));
        return;
    }
    size_t spares = 0;
    for (size_t i = 0; i < body->layout->n_members; i++)
        spares += body->layout->members[i]->spare != 0;
    tm_text_printf(out, "generation %" PRIu32 " trains from step %" PRIu64 ": %u x %zu", number, body->base_step,
                   body->layout->pipelines, body->layout->n_stages);
    if (spares > 0) tm_text_printf(out, " and %zu spare%s", spares, spares == 1 ? "" : "s");
    share_words(body->layout, out);
    if (body->redone > 0)
        tm_text_printf(out, "; %" PRIu64 " step%s redone", body->redone, body->redone == 1 ? "" : "s");
    if (body->rolled_back > 0)
        tm_text_printf(out, "; %" PRIu64 " step%s rolled back", body->rolled_back, body->rolled_back == 1 ? "" : "s");
}

static void loss_words(const Tmw__LossEvent *body, struct tm_text *out)
{
    uint64_t worker = body->worker != 0 ? body->worker : body->instance;
    tm_text_printf(out, "worker %" PRIu64 " is gone%s: %s", worker, body->announced ? ", as announced" : "",
                   body->silent ? "it does not answer" : "its process ended");
    if (!body->seated) tm_text_puts(out, "; it was not training");
}

static void notice_words(const Tmw__NoticeEvent *body, struct tm_text *out)
{
    if (body->taken_back)
        tm_text_printf(out, "instance %" PRIu64 " stays: its notice was withdrawn", body->instance);
    else
        tm_text_printf(out, "instance %" PRIu64 " has a notice: it will be preempted in %.3g s", body->instance,
                       (double)body->left_ms / 1000);
}

static void hint_words(const Tmw__HintEvent *body, struct tm_text *out)
{
    tm_text_printf(out, "instance %" PRIu64 " may be preempted soon", body->instance);
    if (body->why[0] == '\0') return;
    tm_text_puts(out, ": ");
    safe(out, body->why);
}

static void pause_words(const Tmw__PauseEvent *body, struct tm_text *out)
{
    uint64_t lost_ms = body->pause_ms > body->step_ms ? body->pause_ms - body->step_ms : 0;
    tm_text_printf(out, "training continues after a pause of %.3f s (%s)", (double)lost_ms / 1000,
                   tm_change_cause_name((enum tm_change_cause)body->cause));
}

static void bottleneck_words(const Tmw__BottleneckEvent *body, struct tm_text *out)
{
    if (body->worker != 0)
        tm_text_printf(out, "worker %" PRIu64 " slows the others down", body->worker);
    else
        tm_text_puts(out, "all workers are slow");
    tm_text_printf(out, ": throughput is %u%% lower; steps take %" PRIu64 " ms instead of %" PRIu64, body->percent,
                   body->observed_ms, body->predicted_ms);
}

static void state_words(const Tmw__StateEvent *body, struct tm_text *out)
{
    tm_text_printf(out, "the job is %s at step %" PRIu64, tm_job_state_name((enum tm_job_state)body->state),
                   body->step);
    if (body->reason == NULL || body->reason[0] == '\0') return;
    tm_text_puts(out, ": ");
    safe(out, body->reason);
}

static void note_words(const Tmw__NoteEvent *body, struct tm_text *out)
{
    safe(out, body->what);
    if (body->worker != 0) tm_text_printf(out, " (worker %" PRIu64 ")", body->worker);
    if (body->value != 0)
        tm_text_printf(out, " (%" PRIu64 ")", body->value > UINT32_MAX ? body->value & UINT32_MAX : body->value);
}

static void failure_words(const Tmw__FailureEvent *body, struct tm_text *out)
{
    char ended[TM_END_WORDS_MAX];
    tm_text_printf(out, "worker %" PRIu64 " %s: failure %u", body->instance, tm_end_words(body->status, ended),
                   body->failures);
    if (body->failures_max > 0) tm_text_printf(out, " of %u", body->failures_max);
    tm_text_puts(out, " without a new step");
}

static void steer_words(const Tmw__SteerEvent *body, struct tm_text *out)
{
    char text[TM_UNITS_TEXT_MAX];
    switch ((enum tm_steer)body->what) {
    case TM_STEER_DEADLINE:
        if (body->deadline_ms == 0)
            tm_text_puts(out, "ordered: there is no deadline any more");
        else
            tm_text_printf(out, "ordered: the deadline is %s after the start",
                           tm_unit_print(TM_UNIT_DURATION, (int64_t)(body->deadline_ms & INT64_MAX), text));
        break;
    case TM_STEER_BUDGET:
        if (body->budget_microusd == 0)
            tm_text_puts(out, "ordered: there is no budget any more");
        else
            tm_text_printf(out, "ordered: the budget is $%.2f", (double)body->budget_microusd / 1e6);
        break;
    case TM_STEER_DRAIN:
        tm_text_printf(out, "ordered: instance %" PRIu64 " is to go", body->instance);
        break;
    case TM_STEER_COPY:
        tm_text_printf(out, "ordered: a copy, at step %" PRIu64, body->step);
        break;
    default:
        tm_text_puts(out, "an order unknown to this release");
        break;
    }
}

static void plain_words(const Tmw__RecordEvent *event, struct tm_text *out)
{
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_SET_BAD:
        tm_text_printf(out, "copy set %" PRIu64 " is dropped", event->set_bad);
        break;
    case TMW__RECORD_EVENT__BODY_SETS_NAMED:
        tm_text_printf(out, "copy sets may have numbers up to %" PRIu64, event->sets_named);
        break;
    case TMW__RECORD_EVENT__BODY_FINISHED_STEP:
        tm_text_printf(out, "finished: step %" PRIu64 " is the last", event->finished_step);
        break;
    case TMW__RECORD_EVENT__BODY_FAILED:
        tm_text_printf(out, "failed at step %" PRIu64 " on worker %" PRIu64 ": ", event->failed->step,
                       event->failed->worker);
        safe(out, event->failed->reason);
        break;
    case TMW__RECORD_EVENT__BODY_FAILURE:
        failure_words(event->failure, out);
        break;
    case TMW__RECORD_EVENT__BODY_KERNEL_CLASS:
        tm_text_puts(out, "the job's kernels are ");
        safe(out, event->kernel_class);
        break;
    case TMW__RECORD_EVENT__BODY_FINGERPRINT:
        tm_text_puts(out, "the job was started with ");
        for (size_t i = 0; i < event->fingerprint->n_parts; i++) {
            if (i > 0) tm_text_puts(out, ", ");
            safe(out, event->fingerprint->parts[i]);
        }
        break;
    case TMW__RECORD_EVENT__BODY_PACE:
        tm_text_printf(out, "steps take %" PRIu64 " ms; %" PRIu64 " ms were predicted", event->pace->observed_ms,
                       event->pace->predicted_ms);
        break;
    case TMW__RECORD_EVENT__BODY_RELEASE:
        tm_text_printf(out, "instance %" PRIu64 " can be released", event->release->instance);
        break;
    case TMW__RECORD_EVENT__BODY_RENT:
        tm_text_printf(out, "wanted: %u spot and %u on-demand instances", event->rent->want_spot,
                       event->rent->want_on_demand);
        for (size_t i = 0; i < event->rent->n_want; i++)
            tm_text_printf(out, "%s%u", i == 0 ? "; by pool " : ", ", event->rent->want[i]);
        break;
    case TMW__RECORD_EVENT__BODY_RESTART:
        tm_text_puts(out, event->restart->rebuilt ? "the coordinator restarted, without its record"
                                                  : "the coordinator restarted; training continued");
        break;
    case TMW__RECORD_EVENT__BODY_ZONE:
        tm_text_printf(out, "zone %" PRIu32 " is ", event->zone->zone);
        safe(out, event->zone->name);
        break;
    case TMW__RECORD_EVENT__BODY_STEER:
        steer_words(event->steer, out);
        break;
    case TMW__RECORD_EVENT__BODY_POLICY:
        tm_text_puts(out, "decisions are made by policy ");
        safe(out, event->policy->name);
        break;
    case TMW__RECORD_EVENT__BODY_DECISION:
        tm_text_puts(out, event->decision->facts.len > 0  ? "a decision, with its facts"
                          : event->decision->hint.len > 0 ? "the policy hears of a notice"
                                                          : "the policy sees how the fleet went on");
        break;
    default:
        tm_text_puts(out, "an event unknown to this release");
        break;
    }
}

void tm_run_event_words(const Tmw__RecordEvent *event, struct tm_text *out)
{
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_GENERATION:
        generation_words(event->generation, out);
        break;
    case TMW__RECORD_EVENT__BODY_SET_WHOLE:
        tm_text_printf(out, "step %" PRIu64 " is durable (copy set %" PRIu64 ")", event->set_whole->step,
                       event->set_whole->set);
        break;
    case TMW__RECORD_EVENT__BODY_INSTANCE:
        instance_words(event->instance, out);
        break;
    case TMW__RECORD_EVENT__BODY_NOTE:
        note_words(event->note, out);
        break;
    case TMW__RECORD_EVENT__BODY_PROGRESS:
        tm_text_printf(out, "step %" PRIu64, event->progress->step);
        if (event->progress->loss_known) tm_text_printf(out, ", loss %.4f", event->progress->loss);
        if (event->progress->step_ms > 0) tm_text_printf(out, ", %u ms per step", event->progress->step_ms);
        break;
    case TMW__RECORD_EVENT__BODY_STEPS:
        tm_text_printf(out, "%zu steps for loggers", event->steps->n_steps);
        if (event->steps->n_steps > 0)
            tm_text_printf(out, ", %" PRIu64 " to %" PRIu64, event->steps->steps[0]->step,
                           event->steps->steps[event->steps->n_steps - 1]->step);
        break;
    case TMW__RECORD_EVENT__BODY_ARRIVAL:
        tm_text_printf(out, "worker %" PRIu64 " %s%s",
                       event->arrival->worker > 0 ? event->arrival->worker : event->arrival->instance,
                       event->arrival->again ? "rejoined" : "joined", event->arrival->anchor ? " (anchor)" : "");
        break;
    case TMW__RECORD_EVENT__BODY_LOSS:
        loss_words(event->loss, out);
        break;
    case TMW__RECORD_EVENT__BODY_NOTICE:
        notice_words(event->notice, out);
        break;
    case TMW__RECORD_EVENT__BODY_PAUSE:
        pause_words(event->pause, out);
        break;
    case TMW__RECORD_EVENT__BODY_BOTTLENECK:
        bottleneck_words(event->bottleneck, out);
        break;
    case TMW__RECORD_EVENT__BODY_HINT:
        hint_words(event->hint, out);
        break;
    case TMW__RECORD_EVENT__BODY_REFUSAL:
        if (event->refusal->missing > 0)
            tm_text_printf(out, "pool %" PRIu32 " has no capacity for %" PRIu32 " of the instances that are wanted%s%s",
                           event->refusal->pool + 1, event->refusal->missing,
                           event->refusal->why[0] != '\0' ? ": " : "", event->refusal->why);
        else
            tm_text_printf(out, "pool %" PRIu32 ": nothing that is wanted of it is refused any more",
                           event->refusal->pool + 1);
        break;
    case TMW__RECORD_EVENT__BODY_STATE:
        state_words(event->state, out);
        break;
    case TMW__RECORD_EVENT__BODY_PRICE:
        tm_text_printf(out, "prices: spot $%.4g/h, on-demand $%.4g/h", (double)event->price->spot_microusd_h / 1e6,
                       (double)event->price->on_demand_microusd_h / 1e6);
        break;
    case TMW__RECORD_EVENT__BODY_JOB:
        tm_text_puts(out, "job ");
        safe(out, event->job->name);
        tm_text_printf(out, ": %" PRIu64 " steps", event->job->steps);
        break;
    default:
        plain_words(event, out);
        break;
    }
}

/* ---- every field, from the schema ---- */

static void write_value(const ProtobufCFieldDescriptor *field, const void *at, const char *key, int depth,
                        struct tm_jsonout *json);

static bool is_left_out(const ProtobufCFieldDescriptor *field)
{
    return strcmp(field->name, "parts") == 0;
}

static void write_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, int depth,
                        struct tm_jsonout *json)
{
    const char *base = (const char *)message;
    const void *at = base + field->offset;
    if (is_left_out(field)) return;
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        write_value(field, at, field->name, depth, json);
        return;
    }
    size_t count = 0;
    const char *items = NULL;
    memcpy(&count, base + field->quantifier_offset, sizeof count);
    memcpy(&items, at, sizeof items);
    size_t size = field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING ? sizeof(void *)
                  : field->type == PROTOBUF_C_TYPE_BYTES  ? sizeof(ProtobufCBinaryData)
                  : field->type == PROTOBUF_C_TYPE_UINT32 ? sizeof(uint32_t)
                                                          : sizeof(uint64_t);
    tm_jsonout_list(json, field->name);
    for (size_t i = 0; i < count && i < LIST_SHOWN_MAX; i++)
        write_value(field, items + i * size, NULL, depth, json);
    tm_jsonout_end(json);
}

static void write_message(const ProtobufCMessage *message, const char *key, int depth, struct tm_jsonout *json)
{
    tm_jsonout_object(json, key);
    for (unsigned i = 0; message != NULL && i < message->descriptor->n_fields; i++)
        write_field(message, &message->descriptor->fields[i], depth, json);
    tm_jsonout_end(json);
}

/* Numbers that only tell one thing from another go as text: JSON readers keep 53 bits. */
static void write_u64(const ProtobufCFieldDescriptor *field, uint64_t value, const char *key, struct tm_jsonout *json)
{
    char text[24];
    if (field->type == PROTOBUF_C_TYPE_UINT64 && value <= (uint64_t)1 << 53) {
        tm_jsonout_integer(json, key, (int64_t)value);
        return;
    }
    (void)snprintf(text, sizeof text, "%016" PRIx64, value);
    tm_jsonout_string(json, key, text);
}

static void write_bytes(const ProtobufCBinaryData *bytes, const char *key, struct tm_jsonout *json)
{
    struct tm_text text;
    tm_text_init(&text, TM_MESSAGE_CHUNK_MAX);
    if (bytes->len > 0) tm_text_append(&text, (const char *)bytes->data, bytes->len);
    tm_jsonout_string(json, key, tm_text_string(&text));
    if (text.failed == -(int)TM_ENOMEM) json->out->failed = text.failed;
    tm_text_deinit(&text);
}

static void write_value(const ProtobufCFieldDescriptor *field, const void *at, const char *key, int depth,
                        struct tm_jsonout *json)
{
    union {
        uint32_t u32;
        uint64_t u64;
        int64_t i64;
        double real;
        protobuf_c_boolean truth;
        char *text;
        ProtobufCMessage *message;
        ProtobufCBinaryData bytes;
    } value;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
        memcpy(&value.u32, at, sizeof value.u32);
        tm_jsonout_integer(json, key, value.u32);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        memcpy(&value.u64, at, sizeof value.u64);
        write_u64(field, value.u64, key, json);
        break;
    case PROTOBUF_C_TYPE_INT64:
        memcpy(&value.i64, at, sizeof value.i64);
        tm_jsonout_integer(json, key, value.i64);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(&value.real, at, sizeof value.real);
        tm_jsonout_number(json, key, value.real);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        memcpy(&value.truth, at, sizeof value.truth);
        tm_jsonout_bool(json, key, value.truth != 0);
        break;
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&value.text, at, sizeof value.text);
        tm_jsonout_string(json, key, value.text == NULL ? "" : value.text);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&value.message, at, sizeof value.message);
        if (depth < DEPTH_MAX) write_message(value.message, key, depth + 1, json);
        break;
    case PROTOBUF_C_TYPE_BYTES: /* lines of figures */
        memcpy(&value.bytes, at, sizeof value.bytes);
        write_bytes(&value.bytes, key, json);
        break;
    default: /* the record has no others */
        tm_jsonout_null(json, key);
        break;
    }
}

size_t tm_run__set_holders(const Tmw__CopySet *set, uint64_t out[TM_RUN_HOLDERS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < set->n_parts && count < TM_RUN_HOLDERS_MAX; i++) {
        size_t at = 0;
        while (at < count && out[at] != set->parts[i]->holder)
            at++;
        if (at == count) out[count++] = set->parts[i]->holder;
    }
    return count;
}

/* Instead of its many parts. */
static void write_holders(const Tmw__CopySet *set, struct tm_jsonout *json)
{
    uint64_t holders[TM_RUN_HOLDERS_MAX];
    size_t count = tm_run__set_holders(set, holders);
    tm_jsonout_list(json, "holders");
    for (size_t i = 0; i < count; i++)
        tm_jsonout_integer(json, NULL, (int64_t)holders[i]);
    tm_jsonout_end(json);
}

static void write_event(uint64_t sequence, const Tmw__RecordEvent *event, bool fields, struct tm_jsonout *json)
{
    struct tm_text words;
    tm_text_init(&words, 2048);
    tm_run_event_words(event, &words);
    tm_jsonout_object(json, NULL);
    tm_jsonout_integer(json, "sequence", (int64_t)sequence);
    tm_jsonout_integer(json, "utc_ms", event->at_ms);
    tm_jsonout_string(json, "kind", tm_run_event_kind(event));
    tm_jsonout_bool(json, "quiet", tm_run_event_quiet(event));
    tm_jsonout_string(json, "text", tm_text_string(&words));
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&tmw__record_event__descriptor, (unsigned)event->body_case);
    if (field != NULL && fields) write_field(&event->base, field, 0, json);
    if (event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE) write_holders(event->set_whole, json);
    tm_jsonout_end(json);
    if (words.failed == -(int)TM_ENOMEM) json->out->failed = words.failed;
    tm_text_deinit(&words);
}

void tm_run_event_write(uint64_t sequence, const Tmw__RecordEvent *event, struct tm_jsonout *json)
{
    write_event(sequence, event, true, json);
}

void tm_run_event_write_brief(uint64_t sequence, const Tmw__RecordEvent *event, struct tm_jsonout *json)
{
    bool fields = event->body_case == TMW__RECORD_EVENT__BODY_RENT ||
                  event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE ||
                  event->body_case == TMW__RECORD_EVENT__BODY_SET_BAD;
    write_event(sequence, event, fields, json);
}

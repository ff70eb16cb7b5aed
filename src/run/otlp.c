#include "run/otlp.h"

#include "base/alloc.h"
#include "base/jsonout.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAIR_MAX = 4096, SPANS_MAX = 4096, NAME_MAX_BYTES = 64, CAUSE_MAX = 40, ID_TEXT_MAX = 33 };

enum span_kind { SPAN_RUN, SPAN_GENERATION, SPAN_CHANGE };

struct span {
    enum span_kind kind;
    int64_t begin_ms, end_ms; /* UTC */
    uint64_t generation;
    uint64_t pipelines, stages, spares, base_step, step, redone, rolled_back;
    char cause[CAUSE_MAX]; /* of a change */
    char state[CAUSE_MAX]; /* of a run: how it ended */
};

struct tm_otlp {
    const char *attributes; /* of the resource; NULL: none */
    char service[NAME_MAX_BYTES];
    char job[NAME_MAX_BYTES];
    uint64_t sequence;
    int64_t begun_ms; /* of the first event; 0: none */
    uint64_t step;    /* the newest */
    bool trains;      /* a generation is under way ... */
    bool changes;     /* ... or a change */
    bool over;
    struct span run, generation, change;
    struct span *ended;
    size_t count, capacity;
};

/* The last one counts. */
static int take_service(void *context, const char *name, const char *value)
{
    struct tm_otlp *otlp = context;
    if (strcmp(name, "service.name") == 0) (void)snprintf(otlp->service, sizeof otlp->service, "%s", value);
    return 0;
}

struct tm_otlp *tm_otlp_create(const char *service, const char *attributes)
{
    struct tm_otlp *otlp = tm_calloc(1, sizeof *otlp);
    if (otlp == NULL) return NULL;
    (void)snprintf(otlp->service, sizeof otlp->service, "%s", service != NULL ? service : "tidemill");
    if (service == NULL) (void)tm_otlp_pairs(attributes, take_service, otlp);
    otlp->attributes = attributes;
    return otlp;
}

void tm_otlp_destroy(struct tm_otlp *otlp)
{
    if (otlp == NULL) return;
    tm_free(otlp->ended);
    tm_free(otlp);
}

uint64_t tm_otlp_sequence(const struct tm_otlp *otlp)
{
    return otlp->sequence;
}

size_t tm_otlp_count(const struct tm_otlp *otlp)
{
    return otlp->count;
}

/* ---- lists of pairs ---- */

static int hex_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* Without the blanks around it, decoded; false: too long, or with control characters. */
static bool take_part(const char *at, const char *end, char out[PAIR_MAX])
{
    size_t length = 0;
    while (at < end && *at == ' ')
        at++;
    while (end > at && end[-1] == ' ')
        end--;
    while (at < end) {
        int high = *at == '%' && end - at > 2 ? hex_of(at[1]) : -1;
        int low = high >= 0 ? hex_of(at[2]) : -1;
        char c = low >= 0 ? (char)(16 * high + low) : *at;
        at += low >= 0 ? 3 : 1;
        if (length + 1 >= PAIR_MAX || (c >= 0 && c < ' ') || c == 127) return false;
        out[length++] = c;
    }
    out[length] = '\0';
    return true;
}

int tm_otlp_pairs(const char *list, int (*each)(void *context, const char *name, const char *value), void *context)
{
    char name[PAIR_MAX], value[PAIR_MAX];
    int rc = 0;
    while (rc == 0 && list != NULL && *list != '\0') {
        const char *end = list + strcspn(list, ",");
        const char *equals = memchr(list, '=', (size_t)(end - list));
        if (equals != NULL && take_part(list, equals, name) && name[0] != '\0' && take_part(equals + 1, end, value))
            rc = each(context, name, value);
        list = *end == ',' ? end + 1 : end;
    }
    return rc;
}

/* ---- taking ---- */

/* Where nobody has fetched them for long, the oldest go. */
static int end_span(struct tm_otlp *otlp, struct span *span, int64_t at_ms)
{
    void *array = otlp->ended;
    if (otlp->count == SPANS_MAX) memmove(otlp->ended, otlp->ended + 1, --otlp->count * sizeof *otlp->ended);
    int rc = tm_grow(&array, &otlp->capacity, otlp->count + 1, sizeof *otlp->ended, SPANS_MAX);
    if (rc != 0) return rc;
    otlp->ended = array;
    span->end_ms = at_ms > span->begin_ms ? at_ms : span->begin_ms;
    span->step = otlp->step;
    otlp->ended[otlp->count++] = *span;
    return 0;
}

static uint64_t number_of(json_t *map, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(map, key));
    return value > 0 ? (uint64_t)value : 0;
}

static void copy_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text == NULL ? "" : text);
}

static int end_both(struct tm_otlp *otlp, int64_t at_ms)
{
    int rc = otlp->trains ? end_span(otlp, &otlp->generation, at_ms) : 0;
    if (rc == 0) otlp->trains = false;
    if (rc == 0 && otlp->changes) rc = end_span(otlp, &otlp->change, at_ms);
    if (rc == 0) otlp->changes = false;
    return rc;
}

static int take_generation(struct tm_otlp *otlp, int64_t at_ms, json_t *body)
{
    json_t *layout = json_object_get(body, "layout");
    json_t *members = json_object_get(layout, "members");
    bool starts = json_is_true(json_object_get(body, "started"));
    bool again = !starts && otlp->changes; /* fenced once more before it could start */
    int rc = again ? 0 : end_both(otlp, at_ms);
    if (rc != 0 || again) return rc;
    struct span span = {.kind = starts ? SPAN_GENERATION : SPAN_CHANGE, .begin_ms = at_ms};
    span.generation = number_of(body, "generation") & UINT32_MAX;
    span.base_step = number_of(body, "base_step");
    if (!starts) {
        const char *words = json_string_value(json_object_get(body, "why"));
        copy_text(span.cause, sizeof span.cause, words);
        otlp->change = span;
        otlp->changes = true;
        return 0;
    }
    span.pipelines = number_of(layout, "pipelines");
    span.stages = json_array_size(json_object_get(layout, "stages"));
    for (size_t i = 0; i < json_array_size(members); i++)
        span.spares += json_is_true(json_object_get(json_array_get(members, i), "spare"));
    span.redone = number_of(body, "redone");
    span.rolled_back = number_of(body, "rolled_back");
    otlp->step = span.base_step;
    otlp->generation = span;
    otlp->trains = true;
    return 0;
}

/* "the job is stopped at step 9": the state's number is the schema's, its word stands in the text. */
static int take_state(struct tm_otlp *otlp, int64_t at_ms, json_t *event)
{
    static const char *const ends[] = {"stopped", "finished", "failed"};
    const char *text = json_string_value(json_object_get(event, "text"));
    for (size_t i = 0; text != NULL && i < sizeof ends / sizeof ends[0]; i++) {
        char words[48];
        (void)snprintf(words, sizeof words, "the job is %s at step", ends[i]);
        if (strncmp(text, words, strlen(words)) != 0) continue;
        int rc = end_both(otlp, at_ms);
        copy_text(otlp->run.state, sizeof otlp->run.state, ends[i]);
        if (rc == 0) rc = end_span(otlp, &otlp->run, at_ms);
        if (rc == 0) otlp->over = true;
        return rc;
    }
    if (otlp->over) { /* it was resumed: a run of its own in the same trace */
        otlp->over = false;
        otlp->run = (struct span){.kind = SPAN_RUN, .begin_ms = at_ms};
    }
    return 0;
}

int tm_otlp_take(struct tm_otlp *otlp, json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "kind"));
    uint64_t sequence = number_of(event, "sequence");
    int64_t at_ms = (int64_t)number_of(event, "utc_ms");
    int rc = 0;
    if (kind == NULL || sequence <= otlp->sequence) return 0;
    json_t *body = json_object_get(event, kind);
    if (otlp->begun_ms == 0) {
        otlp->begun_ms = at_ms;
        otlp->run = (struct span){.kind = SPAN_RUN, .begin_ms = at_ms};
    }
    if (strcmp(kind, "job") == 0)
        copy_text(otlp->job, sizeof otlp->job, json_string_value(json_object_get(body, "name")));
    else if (strcmp(kind, "progress") == 0)
        otlp->step = number_of(body, "step");
    else if (strcmp(kind, "generation") == 0)
        rc = take_generation(otlp, at_ms, body);
    else if (strcmp(kind, "state") == 0)
        rc = take_state(otlp, at_ms, event);
    if (rc == 0) otlp->sequence = sequence;
    return rc;
}

/* ---- writing ---- */

static void put_attribute(struct tm_jsonout *json, const char *key, const char *text)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "key", key);
    tm_jsonout_object(json, "value");
    tm_jsonout_string(json, "stringValue", text);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

/* 64-bit numbers are texts in OTLP's JSON. */
static void put_number(struct tm_jsonout *json, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "key", key);
    tm_jsonout_object(json, "value");
    tm_jsonout_string(json, "intValue", text);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static int put_own(void *context, const char *name, const char *value)
{
    if (strcmp(name, "service.name") != 0) put_attribute(context, name, value); /* it has been put */
    return 0;
}

static void put_time(struct tm_jsonout *json, const char *key, int64_t utc_ms)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64 "000000", utc_ms);
    tm_jsonout_string(json, key, text);
}

static void trace_id(const struct tm_otlp *otlp, char out[ID_TEXT_MAX])
{
    struct {
        char job[NAME_MAX_BYTES];
        int64_t begun_ms;
    } of;
    memset(&of, 0, sizeof of);
    memcpy(of.job, otlp->job, sizeof of.job);
    of.begun_ms = otlp->begun_ms;
    struct tm_hash hash = tm_hash_of(&of, sizeof of);
    (void)snprintf(out, ID_TEXT_MAX, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low | 1); /* never all 0 */
}

static void span_id(const struct tm_otlp *otlp, const struct span *span, char out[ID_TEXT_MAX])
{
    struct {
        int64_t begun_ms, begin_ms;
        uint64_t generation, kind;
    } of = {otlp->begun_ms, span->begin_ms, span->generation, (uint64_t)span->kind};
    (void)snprintf(out, ID_TEXT_MAX, "%016" PRIx64, tm_hash_of(&of, sizeof of).low | 1);
}

static void put_attributes(const struct tm_otlp *otlp, const struct span *span, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "attributes");
    put_attribute(json, "tidemill.job", otlp->job);
    if (span->kind == SPAN_RUN) {
        put_attribute(json, "tidemill.state", span->state);
        put_number(json, "tidemill.step", span->step);
    } else {
        put_number(json, "tidemill.generation", span->generation);
    }
    if (span->kind == SPAN_CHANGE) put_attribute(json, "tidemill.cause", span->cause);
    if (span->kind == SPAN_GENERATION) {
        put_number(json, "tidemill.pipelines", span->pipelines);
        put_number(json, "tidemill.stages", span->stages);
        put_number(json, "tidemill.spares", span->spares);
        put_number(json, "tidemill.step.first", span->base_step + 1);
        put_number(json, "tidemill.step.last", span->step > span->base_step ? span->step : span->base_step);
        put_number(json, "tidemill.steps.redone", span->redone);
        put_number(json, "tidemill.steps.rolled_back", span->rolled_back);
    }
    tm_jsonout_end(json);
}

static void put_span(const struct tm_otlp *otlp, const struct span *span, struct tm_jsonout *json)
{
    char id[ID_TEXT_MAX], parent[ID_TEXT_MAX], trace[ID_TEXT_MAX], name[96];
    bool failed = strcmp(span->state, "failed") == 0;
    trace_id(otlp, trace);
    span_id(otlp, span, id);
    span_id(otlp, &otlp->run, parent);
    if (span->kind == SPAN_RUN)
        (void)snprintf(name, sizeof name, "run %s", otlp->job);
    else
        (void)snprintf(name, sizeof name, "%s %" PRIu64,
                       span->kind == SPAN_GENERATION ? "generation" : "change to generation", span->generation);
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "traceId", trace);
    tm_jsonout_string(json, "spanId", id);
    if (span->kind != SPAN_RUN) tm_jsonout_string(json, "parentSpanId", parent);
    tm_jsonout_string(json, "name", name);
    tm_jsonout_integer(json, "kind", 1); /* internal */
    put_time(json, "startTimeUnixNano", span->begin_ms);
    put_time(json, "endTimeUnixNano", span->end_ms);
    put_attributes(otlp, span, json);
    tm_jsonout_object(json, "status");
    if (failed) tm_jsonout_integer(json, "code", 2);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

void tm_otlp_write(struct tm_otlp *otlp, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "resourceSpans");
    tm_jsonout_object(&json, NULL);
    tm_jsonout_object(&json, "resource");
    tm_jsonout_list(&json, "attributes");
    put_attribute(&json, "service.name", otlp->service);
    (void)tm_otlp_pairs(otlp->attributes, put_own, &json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "scopeSpans");
    tm_jsonout_object(&json, NULL);
    tm_jsonout_object(&json, "scope");
    tm_jsonout_string(&json, "name", "tidemill");
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "spans");
    for (size_t i = 0; i < otlp->count; i++)
        put_span(otlp, &otlp->ended[i], &json);
    for (int i = 0; i < 6; i++)
        tm_jsonout_end(&json);
    otlp->count = 0;
}

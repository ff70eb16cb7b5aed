#include "api/api_schema.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

static const struct {
    const char *name;
    const char *text;
} shapes[] = {
    {"Error", "error:s"},
    {"Status",
     "job:{name:s steps:i samples_per_step:i tokens_per_step:i layers:i micro_batches:i speed:n gpu?:s workers?:i "
     "command:s} state:s reason:s output?:[s] output_file?:s trouble:s gave_up:b live:b sequence:i utc_ms:i "
     "begun_utc_ms:i steps:{committed:i durable:i redone:i rolled_back:i per_s:n? step_s:n?} samples_committed:i "
     "tokens_per_s:n? loss:n? loss_curve:[{step:i loss:n?}] state_hash:s? weights_hash:s? generation:i generations:i "
     "layout:{pipelines:i stages:i spares:i first_layers:[i] seats:[i]} instances:[Instance] instances_here:i "
     "instances_noticed:i want_spot:i want_on_demand:i arrivals:i losses_announced:i losses_unannounced:i "
     "worker_losses:i bill_usd:n? on_demand_usd:n? left_s:n? left_low_s:n? left_high_s:n? deadline_s:n? budget_usd:n? "
     "spot_usd_h:n? on_demand_usd_h:n? pools?:[{pool:s gpu:s want:i here:i price_usd_h:n? instance_hours:n "
     "bill_usd:n?}] pause_s:Spread recovery_s:Spread waiting_s:n pauses:[{generation:i cause:s end_utc_ms:i "
     "pause_s:n}] wall_s:n events:[{sequence:i utc_ms:i kind:s text:s}]"},
    {"Instance",
     "id:i state:s pool?:i spot:b announced:b zone:i zone_name:s start_ms:i end_ms:i leaves_utc_ms:i price_usd_h:n? "
     "bill_usd:n? worker:b drained:b seat:s pipeline:i stage:i"},
    {"Spread", "count:i p50:n? max:n? total:n?"},
    {"Event", "sequence:i utc_ms:i kind:s quiet:b text:s *"}, /* under its kind: what the record has of it */
    {"History",
     "job:s wall_s:n sequence:i progress:{time_s:[n] step:[i] loss:[n?] step_s:[n?]} fleet:{time_s:[n] here:[i] "
     "noticed:[i]} pools:[{pool:s usd:n? points:[[n?]]}] layouts:[{from_s:n to_s:n? generation:i pipelines:i stages:i "
     "spares:i}] bill:{time_s:[n] bill_usd:[n?] on_demand_usd:[n?]} forecasts:[[n?]] copies:[{set:i step:i utc_ms:i "
     "took_ms:i holders:[i]}] pauses:[{from_s:n to_s:n? cause:s}] instances:[{id:i spot:b from_s:n to_s:n? "
     "notice_s:n? state:s announced:b bill_usd:n?}]"},
    {"Logs", "instances:[{instance:i lines:[s]}]"},
    {"Prediction", "policy?:s run?:Expected restart?:Expected on_demand?:Expected"},
    {"Expected", "time_s:n? bill_usd:n? paused_s:n?"},
    {"Ordered", "ordered:s"},
    {"State", "state:s"},
    {"Jobs",
     "jobs:[{name:s folder:s live:b state:s? steps:i committed:i durable:i loss:n? steps_per_s:n? tokens_per_s:n? "
     "bill_usd:n? on_demand_usd:n? usd_per_million_samples:n? left_s:n? left_low_s:n? left_high_s:n? here:i noticed:i "
     "wall_s:n? begun_utc_ms:i utc_ms:i}] next:i?"},
    {"Session", "scope:s version:s"},
    {"Description", "openapi:s info:{title:s version:s} paths:{*} *"},
    {"Plan", "planner:s objective:s judge:s? prices_asked?:s samples:i batch:i batch_from:s input:s? fleets_weighed:i "
             "integer_programs:i bound:n? gap:n? holds?:b observed_factor?:n? answers:[Fleet] others:[Fleet] "
             "binds?:[{constraint:s value_without:n?}] one_more_hour?:Fleet? ten_percent_more?:Fleet? relaxations?:{*} "
             "larger_batch?:{*} why?:s"},
    {"Fleet", "planner:s cloud:s region:s zone:s? instance:s spot_nodes:i on_demand_nodes:i pools:[{instance:s zone:s? "
              "spot:i on_demand:i spot_usd_h:n? on_demand_usd_h:n?}] anchors:{nodes:i instance:s? instances:i} "
              "layout:{pipelines:i stages:i} parallel:{way:s zero:i shards:i tensor:i own_engine:b} samples_per_s:n? "
              "time_s:Estimate cost_usd:Estimate price_usd_h:n? losses:n? trace?:s checkpoint_interval_s:n? "
              "p_deadline:n? p_budget:n? precision:s micro_batch:i recompute:b spot_price_assumed:b egress_usd?:n "
              "chosen:b *"},
    {"Estimate", "mean:n? p10:n? p90:n?"},
    {"Simulation",
     "runs:[{policy:s trace:s? model:s? seed?:i samples:n? samples_per_s:n? fraction_of_ideal:n? stall_s:{migrate:n? "
     "rollback:n? idle:n? start:n?} reconfigurations:i bill_usd:n? usd_per_million_samples:n? finished_at_s:n? "
     "deadline_met:b? decision_us:{mean:n? max:n? tables_ms?:n?} *}] expected?:[{policy:s time_s:Estimate "
     "bill_usd:Estimate p_deadline:n? chosen:b *}] *"},
};

/* ---- from text to schemas ---- */

static void write_type(const char *name, bool nullable, struct tm_jsonout *json)
{
    if (!nullable) {
        tm_jsonout_string(json, "type", name);
        return;
    }
    tm_jsonout_list(json, "type");
    tm_jsonout_string(json, NULL, name);
    tm_jsonout_string(json, NULL, "null");
    tm_jsonout_end(json);
}

/* After the bracket that closes the one at `at`. */
static const char *after_closing(const char *at)
{
    int depth = 0;
    do {
        assert(*at != '\0');
        depth += *at == '[' || *at == '{';
        depth -= *at == ']' || *at == '}';
        at++;
    } while (depth > 0);
    return at;
}

/* After the type at `at`, without its question mark. */
static const char *after_type(const char *at)
{
    if (*at == '[' || *at == '{') return after_closing(at);
    while (isalpha((unsigned char)*at))
        at++;
    return at;
}

/* A key of at most this length, as text of its own. */
enum { WORD_MAX = 64 };

static void copy_word(const char *at, size_t length, char out[WORD_MAX])
{
    assert(length > 0 && length < WORD_MAX);
    memcpy(out, at, length);
    out[length] = '\0';
}

static void write_ref(const char *at, bool nullable, struct tm_jsonout *json)
{
    static const char place[] = "#/components/schemas/";
    char ref[sizeof place + WORD_MAX];
    memcpy(ref, place, sizeof place);
    copy_word(at, (size_t)(after_type(at) - at), ref + sizeof place - 1);
    if (!nullable) {
        tm_jsonout_string(json, "$ref", ref);
        return;
    }
    tm_jsonout_list(json, "anyOf");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "$ref", ref);
    tm_jsonout_end(json);
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "type", "null");
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void write_keys(const char *at, struct tm_jsonout *json);

/* Shapes are text of this file: how deep they are nested is known. */
static void write_schema(const char *key, const char *at, struct tm_jsonout *json) /* NOLINT(misc-no-recursion) */
{
    bool nullable = *after_type(at) == '?';
    tm_jsonout_object(json, key);
    if (*at == '[') {
        write_type("array", nullable, json);
        write_schema("items", at + 1, json);
    } else if (*at == '{') {
        write_type("object", nullable, json);
        write_keys(at + 1, json);
    } else if (isupper((unsigned char)*at)) {
        write_ref(at, nullable, json);
    } else {
        assert(strchr("sinb", *at) != NULL && !isalpha((unsigned char)at[1]));
        write_type(*at == 's' ? "string" : *at == 'i' ? "integer" : *at == 'n' ? "number" : "boolean", nullable, json);
    }
    tm_jsonout_end(json);
}

/* One "key:T" or "key?:T" of an object; its end is *next. */
struct member {
    char name[WORD_MAX];
    bool must;
    const char *type;
    const char *next;
};

static bool next_member(const char *at, struct member *out)
{
    while (*at == ' ')
        at++;
    if (*at == '\0' || *at == '}' || *at == '*') {
        out->next = at;
        return false;
    }
    size_t length = strcspn(at, "?:");
    copy_word(at, length, out->name);
    out->must = at[length] == ':';
    out->type = at + length + (out->must ? 1 : 2);
    assert(out->type[-1] == ':');
    out->next = after_type(out->type);
    out->next += *out->next == '?';
    return true;
}

/* The members at `at`, up to the end of the text or of the object. */
static void write_keys(const char *at, struct tm_jsonout *json) /* NOLINT(misc-no-recursion) */
{
    struct member member;
    const char *from = at;
    tm_jsonout_list(json, "required");
    for (; next_member(at, &member); at = member.next)
        if (member.must) tm_jsonout_string(json, NULL, member.name);
    tm_jsonout_end(json);
    tm_jsonout_object(json, "properties");
    for (at = from; next_member(at, &member); at = member.next)
        write_schema(member.name, member.type, json);
    tm_jsonout_end(json);
    if (*member.next == '*') tm_jsonout_bool(json, "additionalProperties", true);
}

void tm_api__schema_write(const char *key, const char *shape, struct tm_jsonout *json)
{
    tm_jsonout_object(json, key);
    tm_jsonout_string(json, "type", "object");
    write_keys(shape, json);
    tm_jsonout_end(json);
}

void tm_api__schemas_write(struct tm_jsonout *json)
{
    tm_jsonout_object(json, "schemas");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        tm_api__schema_write(shapes[i].name, shapes[i].text, json);
    tm_jsonout_end(json);
}

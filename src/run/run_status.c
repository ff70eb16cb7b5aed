/* A run's status and its summary as JSON, there and back. */
#include "run/run_status.h"

#include "base/alloc.h"
#include "base/doc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { READ_INSTANCES_MAX = 1 << 16 };

static const char *const seat_names[] = {"none", "spare", "trains", "keeps copies"};

void tm_run_status_deinit(struct tm_run_status *status)
{
    tm_free(status->first_layers);
    tm_free(status->seats);
    tm_free(status->instances);
    tm_free(status->pauses);
    *status = (struct tm_run_status){.loss = NAN};
}

/* ---- writing ---- */

static void count(struct tm_jsonout *json, const char *key, uint64_t value)
{
    tm_jsonout_integer(json, key, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void write_job(const struct tm_run_job *job, struct tm_jsonout *json)
{
    tm_jsonout_object(json, "job");
    tm_jsonout_string(json, "name", job->name);
    count(json, "steps", job->steps);
    count(json, "samples_per_step", job->samples_per_step);
    count(json, "tokens_per_step", job->tokens_per_step);
    count(json, "layers", job->layers);
    count(json, "micro_batches", job->micro_batches);
    tm_jsonout_number(json, "speed", job->speed);
    if (job->pool_count == 0 && job->gpus[0][0] != '\0') tm_jsonout_string(json, "gpu", job->gpus[0]);
    if (job->workers > 1) count(json, "workers", job->workers);
    tm_jsonout_string(json, "command", job->command);
    tm_jsonout_end(json);
}

static void write_steps(const struct tm_run_status *s, struct tm_jsonout *json)
{
    tm_jsonout_object(json, "steps");
    count(json, "committed", s->committed);
    count(json, "durable", s->durable);
    count(json, "redone", s->redone);
    count(json, "rolled_back", s->rolled_back);
    tm_jsonout_number(json, "per_s", s->steps_s);
    tm_jsonout_number(json, "step_s", s->step_s);
    tm_jsonout_end(json);
    count(json, "samples_committed", s->committed * s->job.samples_per_step);
    tm_jsonout_number(json, "tokens_per_s", s->steps_s * (double)s->job.tokens_per_step);
    tm_jsonout_number(json, "loss", s->loss);
    tm_jsonout_list(json, "loss_curve");
    for (size_t i = 0; i < s->point_count; i++) {
        tm_jsonout_object(json, NULL);
        count(json, "step", s->points[i].step);
        tm_jsonout_number(json, "loss", s->points[i].loss);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_string(json, "state_hash", s->state_hash[0] == '\0' ? NULL : s->state_hash);
    tm_jsonout_string(json, "weights_hash", s->weights_hash[0] == '\0' ? NULL : s->weights_hash);
}

static void write_layout(const struct tm_run_status *s, struct tm_jsonout *json)
{
    count(json, "generation", s->generation);
    count(json, "generations", s->generations);
    tm_jsonout_object(json, "layout");
    count(json, "pipelines", s->pipelines);
    count(json, "stages", s->stages);
    count(json, "spares", s->spares);
    tm_jsonout_list(json, "first_layers");
    for (uint32_t i = 0; i < s->stages; i++)
        count(json, NULL, s->first_layers[i]);
    tm_jsonout_end(json);
    tm_jsonout_list(json, "seats"); /* pipeline after pipeline */
    for (size_t i = 0; i < (size_t)s->pipelines * s->stages; i++)
        count(json, NULL, s->seats[i]);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void write_instance(const struct tm_run_instance *instance, bool choice, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    count(json, "id", instance->id);
    tm_jsonout_string(json, "state", tm_instance_state_name(instance->state));
    if (choice) count(json, "pool", instance->pool);
    tm_jsonout_bool(json, "spot", instance->spot);
    tm_jsonout_bool(json, "announced", instance->announced);
    count(json, "zone", instance->zone);
    tm_jsonout_string(json, "zone_name", instance->zone_name);
    tm_jsonout_integer(json, "start_ms", instance->start_ms);
    tm_jsonout_integer(json, "end_ms", instance->end_ms);
    tm_jsonout_integer(json, "leaves_utc_ms", instance->leaves_utc_ms);
    tm_jsonout_number(json, "price_usd_h", instance->price_usd_h);
    tm_jsonout_number(json, "bill_usd", instance->bill_usd);
    tm_jsonout_bool(json, "worker", instance->worker);
    tm_jsonout_bool(json, "drained", instance->drained);
    tm_jsonout_string(json, "seat", seat_names[instance->seat]);
    count(json, "pipeline", instance->pipeline);
    count(json, "stage", instance->stage);
    tm_jsonout_end(json);
}

/* Where there is a choice of them. */
static void write_pools(const struct tm_run_status *s, bool whole, struct tm_jsonout *json)
{
    if (s->job.pool_count == 0) return;
    tm_jsonout_list(json, "pools");
    for (size_t i = 0; i < s->job.pool_count; i++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "pool", s->job.pools[i]);
        if (whole) tm_jsonout_string(json, "gpu", s->job.gpus[i]);
        if (whole) count(json, "want", s->pools[i].want);
        if (whole) count(json, "here", s->pools[i].here);
        if (whole) tm_jsonout_number(json, "price_usd_h", s->pools[i].price_usd_h);
        tm_jsonout_number(json, "instance_hours", s->pools[i].instance_hours);
        tm_jsonout_number(json, "bill_usd", s->pools[i].bill_usd);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void write_fleet(const struct tm_run_status *s, struct tm_jsonout *json)
{
    size_t gone = 0;
    for (size_t i = 0; i < s->instance_count; i++)
        gone += !tm_run_instance_is_here(&s->instances[i]);
    tm_jsonout_list(json, "instances");
    for (size_t i = 0; i < s->instance_count; i++) {
        bool here = tm_run_instance_is_here(&s->instances[i]);
        if (here || gone <= TM_STATUS_GONE_SHOWN) write_instance(&s->instances[i], s->job.pool_count > 0, json);
        gone -= !here;
    }
    tm_jsonout_end(json);
    count(json, "instances_here", s->here);
    count(json, "instances_noticed", s->noticed);
    count(json, "want_spot", s->want_spot);
    count(json, "want_on_demand", s->want_on_demand);
    count(json, "arrivals", s->arrivals);
    count(json, "losses_announced", s->losses_announced);
    count(json, "losses_unannounced", s->losses_unannounced);
    count(json, "worker_losses", s->worker_losses);
    tm_jsonout_number(json, "bill_usd", s->bill_usd);
    tm_jsonout_number(json, "on_demand_usd", s->on_demand_usd);
    tm_jsonout_number(json, "left_s", s->left_s);
    tm_jsonout_number(json, "left_low_s", s->left_low_s);
    tm_jsonout_number(json, "left_high_s", s->left_high_s);
    tm_jsonout_number(json, "deadline_s", s->deadline_s);
    tm_jsonout_number(json, "budget_usd", s->budget_usd);
    tm_jsonout_number(json, "spot_usd_h", s->spot_usd_h);
    tm_jsonout_number(json, "on_demand_usd_h", s->on_demand_usd_h);
    write_pools(s, true, json);
}

static void write_spread(const struct tm_run_spread *spread, const char *key, struct tm_jsonout *json)
{
    tm_jsonout_object(json, key);
    count(json, "count", spread->count);
    tm_jsonout_number(json, "p50", spread->p50_s);
    tm_jsonout_number(json, "max", spread->max_s);
    tm_jsonout_number(json, "total", spread->total_s);
    tm_jsonout_end(json);
}

static void write_pauses(const struct tm_run_status *s, struct tm_jsonout *json)
{
    size_t from = s->pause_count > TM_STATUS_PAUSES_SHOWN ? s->pause_count - TM_STATUS_PAUSES_SHOWN : 0;
    write_spread(&s->pause, "pause_s", json);
    write_spread(&s->recovery, "recovery_s", json);
    tm_jsonout_number(json, "waiting_s", s->waiting_s);
    tm_jsonout_list(json, "pauses");
    for (size_t i = from; i < s->pause_count; i++) {
        const struct tm_run_pause *pause = &s->pauses[i];
        tm_jsonout_object(json, NULL);
        count(json, "generation", pause->generation);
        tm_jsonout_string(json, "cause", tm_change_cause_name(pause->cause));
        tm_jsonout_integer(json, "end_utc_ms", pause->end_utc_ms);
        tm_jsonout_number(json, "pause_s", pause->pause_s);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_number(json, "wall_s", s->wall_s);
}

static void write_events(const struct tm_run_status *s, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "events");
    for (size_t i = 0; i < s->event_count; i++) {
        const struct tm_run_event_text *event = &s->events[i];
        tm_jsonout_object(json, NULL);
        count(json, "sequence", event->sequence);
        tm_jsonout_integer(json, "utc_ms", event->utc_ms);
        tm_jsonout_string(json, "kind", event->kind);
        tm_jsonout_string(json, "text", event->text);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

/* Of a job that failed. */
static void write_output(const struct tm_run_status *s, struct tm_jsonout *json)
{
    if (s->output.count > 0) {
        tm_jsonout_list(json, "output");
        for (size_t i = 0; i < s->output.count; i++)
            tm_jsonout_string(json, NULL, s->output.text[i]);
        tm_jsonout_end(json);
    }
    if (s->output_file[0] != '\0') tm_jsonout_string(json, "output_file", s->output_file);
}

void tm_run_status_write(const struct tm_run_status *s, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    write_job(&s->job, json);
    tm_jsonout_string(json, "state", tm_job_state_name(s->state));
    tm_jsonout_string(json, "reason", s->reason);
    write_output(s, json);
    tm_jsonout_string(json, "trouble", s->trouble);
    tm_jsonout_bool(json, "gave_up", s->gave_up);
    tm_jsonout_bool(json, "live", s->live);
    count(json, "sequence", s->sequence);
    tm_jsonout_integer(json, "utc_ms", s->utc_ms);
    tm_jsonout_integer(json, "begun_utc_ms", s->begun_utc_ms);
    write_steps(s, json);
    write_layout(s, json);
    write_fleet(s, json);
    write_pauses(s, json);
    write_events(s, json);
    tm_jsonout_end(json);
}

void tm_run_summary_write(const struct tm_run_status *s, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "job", s->job.name);
    tm_jsonout_string(json, "state", tm_job_state_name(s->state));
    count(json, "steps_committed", s->committed);
    count(json, "steps_redone", s->redone);
    count(json, "steps_rolled_back", s->rolled_back);
    count(json, "samples_committed", s->committed * s->job.samples_per_step);
    tm_jsonout_number(json, "final_loss", s->loss);
    const char *hash = s->weights_hash[0] != '\0' ? s->weights_hash : s->state_hash;
    tm_jsonout_string(json, "weights_hash", hash[0] == '\0' ? NULL : hash);
    count(json, "generations", s->generations);
    count(json, "losses_announced", s->losses_announced);
    count(json, "losses_unannounced", s->losses_unannounced);
    count(json, "arrivals", s->arrivals);
    tm_jsonout_object(json, "pause_s");
    tm_jsonout_number(json, "p50", s->pause.p50_s);
    tm_jsonout_number(json, "max", s->pause.max_s);
    tm_jsonout_number(json, "total", s->pause.total_s);
    tm_jsonout_end(json);
    tm_jsonout_object(json, "recovery_s");
    tm_jsonout_number(json, "p50", s->recovery.p50_s);
    tm_jsonout_number(json, "max", s->recovery.max_s);
    tm_jsonout_end(json);
    tm_jsonout_number(json, "bill_usd", s->bill_usd);
    tm_jsonout_number(json, "on_demand_usd", s->on_demand_usd);
    tm_jsonout_number(json, "wall_s", s->wall_s);
    write_pools(s, false, json);
    tm_jsonout_end(json);
}

/* ---- reading ---- */

/* The first key that is missing or wrong is kept; the rest is then read as nothing. */
struct reading {
    const char *wrong;
};

static double number_of(struct reading *r, json_t *map, const char *key) /* null: NaN */
{
    json_t *value = json_object_get(map, key);
    if (value != NULL && json_is_null(value)) return NAN;
    if (!json_is_number(value) && r->wrong == NULL) r->wrong = key;
    return json_number_value(value);
}

/* Earlier releases do not tell it. */
static double optional_of(struct reading *r, json_t *map, const char *key)
{
    return json_object_get(map, key) == NULL ? NAN : number_of(r, map, key);
}

static int64_t integer_of(struct reading *r, json_t *map, const char *key)
{
    json_t *value = json_object_get(map, key);
    if (!json_is_integer(value) && r->wrong == NULL) r->wrong = key;
    return json_integer_value(value);
}

static uint64_t count_of(struct reading *r, json_t *map, const char *key)
{
    int64_t value = integer_of(r, map, key);
    if (value < 0 && r->wrong == NULL) r->wrong = key;
    return value < 0 ? 0 : (uint64_t)value;
}

static uint32_t small_of(struct reading *r, json_t *map, const char *key)
{
    uint64_t value = count_of(r, map, key);
    if (value > UINT32_MAX && r->wrong == NULL) r->wrong = key;
    return (uint32_t)value;
}

static bool bool_of(struct reading *r, json_t *map, const char *key)
{
    json_t *value = json_object_get(map, key);
    if (!json_is_boolean(value) && r->wrong == NULL) r->wrong = key;
    return json_is_true(value);
}

/* null: "". */
static void text_of(struct reading *r, json_t *map, const char *key, char *out, size_t size)
{
    json_t *value = json_object_get(map, key);
    const char *text = json_string_value(value);
    if (text == NULL && !json_is_null(value) && r->wrong == NULL) r->wrong = key;
    (void)snprintf(out, size, "%s", text == NULL ? "" : text);
}

static int name_of(struct reading *r, json_t *map, const char *key, int limit, const char *(*name)(int))
{
    const char *text = json_string_value(json_object_get(map, key));
    for (int i = 0; text != NULL && i < limit; i++)
        if (strcmp(text, name(i)) == 0) return i;
    if (r->wrong == NULL) r->wrong = key;
    return 0;
}

static json_t *map_of(struct reading *r, json_t *map, const char *key)
{
    json_t *value = json_object_get(map, key);
    if (!json_is_object(value) && r->wrong == NULL) r->wrong = key;
    return value;
}

/* The list, of at most `max` values; its count is 0 where it is wrong. */
static json_t *list_of(struct reading *r, json_t *map, const char *key, size_t max, size_t *out_count)
{
    json_t *value = json_object_get(map, key);
    bool right = json_is_array(value) && json_array_size(value) <= max;
    if (!right && r->wrong == NULL) r->wrong = key;
    *out_count = right ? json_array_size(value) : 0;
    return value;
}

static const char *state_name(int i)
{
    return tm_job_state_name((enum tm_job_state)i);
}

static const char *cause_name(int i)
{
    return tm_change_cause_name((enum tm_change_cause)i);
}

static const char *instance_name(int i)
{
    return tm_instance_state_name((enum tm_instance_state)i);
}

static const char *seat_name(int i)
{
    return seat_names[i];
}

static void read_job(struct reading *r, json_t *root, struct tm_run_job *job)
{
    json_t *map = map_of(r, root, "job");
    text_of(r, map, "name", job->name, sizeof job->name);
    job->steps = count_of(r, map, "steps");
    job->samples_per_step = count_of(r, map, "samples_per_step");
    job->tokens_per_step = count_of(r, map, "tokens_per_step");
    job->layers = small_of(r, map, "layers");
    if (json_object_get(map, "workers") != NULL) job->workers = small_of(r, map, "workers");
    job->micro_batches = small_of(r, map, "micro_batches");
    job->speed = number_of(r, map, "speed");
    if (json_object_get(map, "gpu") != NULL) text_of(r, map, "gpu", job->gpus[0], sizeof job->gpus[0]);
    text_of(r, map, "command", job->command, sizeof job->command);
}

static void read_steps(struct reading *r, json_t *root, struct tm_run_status *s)
{
    json_t *map = map_of(r, root, "steps");
    s->committed = count_of(r, map, "committed");
    s->durable = count_of(r, map, "durable");
    s->redone = count_of(r, map, "redone");
    s->rolled_back = count_of(r, map, "rolled_back");
    s->steps_s = number_of(r, map, "per_s");
    s->step_s = number_of(r, map, "step_s");
    s->loss = number_of(r, root, "loss");
    json_t *points = list_of(r, root, "loss_curve", TM_STATUS_LOSS_POINTS, &s->point_count);
    for (size_t i = 0; i < s->point_count; i++) {
        json_t *point = json_array_get(points, i);
        s->points[i].step = count_of(r, point, "step");
        s->points[i].loss = number_of(r, point, "loss");
    }
    text_of(r, root, "state_hash", s->state_hash, sizeof s->state_hash);
    text_of(r, root, "weights_hash", s->weights_hash, sizeof s->weights_hash);
}

static int read_layout(struct reading *r, json_t *root, struct tm_run_status *s)
{
    size_t stages = 0;
    size_t seats = 0;
    s->generation = count_of(r, root, "generation");
    s->generations = count_of(r, root, "generations");
    json_t *map = map_of(r, root, "layout");
    s->pipelines = small_of(r, map, "pipelines");
    s->stages = small_of(r, map, "stages");
    s->spares = small_of(r, map, "spares");
    json_t *first = list_of(r, map, "first_layers", TM_STAGES_MAX, &stages);
    json_t *list = list_of(r, map, "seats", TM_MEMBERS_MAX, &seats);
    if (r->wrong == NULL && (stages != s->stages || seats != (size_t)s->pipelines * s->stages)) r->wrong = "layout";
    if (r->wrong != NULL) return 0;
    s->first_layers = tm_calloc(stages + 1, sizeof *s->first_layers);
    s->seats = tm_calloc(seats + 1, sizeof *s->seats);
    if (s->first_layers == NULL || s->seats == NULL) return -(int)TM_ENOMEM;
    for (size_t i = 0; i < stages; i++)
        s->first_layers[i] = (uint32_t)json_integer_value(json_array_get(first, i));
    for (size_t i = 0; i < seats; i++)
        s->seats[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    return 0;
}

static void read_instance(struct reading *r, json_t *map, struct tm_run_instance *instance)
{
    instance->id = count_of(r, map, "id");
    instance->state = (enum tm_instance_state)name_of(r, map, "state", TM_INSTANCE_RELEASED + 1, instance_name);
    instance->pool = json_object_get(map, "pool") != NULL ? small_of(r, map, "pool") % TM_RUN_POOLS_MAX : 0;
    instance->spot = bool_of(r, map, "spot");
    instance->announced = bool_of(r, map, "announced");
    instance->zone = small_of(r, map, "zone");
    if (json_object_get(map, "zone_name") != NULL)
        text_of(r, map, "zone_name", instance->zone_name, sizeof instance->zone_name);
    instance->start_ms = integer_of(r, map, "start_ms");
    instance->end_ms = integer_of(r, map, "end_ms");
    instance->leaves_utc_ms = integer_of(r, map, "leaves_utc_ms");
    instance->price_usd_h = number_of(r, map, "price_usd_h");
    instance->bill_usd = number_of(r, map, "bill_usd");
    instance->worker = bool_of(r, map, "worker");
    instance->drained = bool_of(r, map, "drained");
    instance->seat = (enum tm_seat_kind)name_of(r, map, "seat", TM_SEAT_KEEPS + 1, seat_name);
    instance->pipeline = small_of(r, map, "pipeline");
    instance->stage = small_of(r, map, "stage");
}

static void read_pools(struct reading *r, json_t *root, struct tm_run_status *s)
{
    if (json_object_get(root, "pools") == NULL) return;
    json_t *list = list_of(r, root, "pools", TM_RUN_POOLS_MAX, &s->job.pool_count);
    for (size_t i = 0; i < s->job.pool_count; i++) {
        json_t *map = json_array_get(list, i);
        text_of(r, map, "pool", s->job.pools[i], sizeof s->job.pools[i]);
        if (json_object_get(map, "gpu") != NULL) text_of(r, map, "gpu", s->job.gpus[i], sizeof s->job.gpus[i]);
        s->pools[i].want = small_of(r, map, "want");
        s->pools[i].here = small_of(r, map, "here");
        s->pools[i].price_usd_h = number_of(r, map, "price_usd_h");
        s->pools[i].instance_hours = number_of(r, map, "instance_hours");
        s->pools[i].bill_usd = number_of(r, map, "bill_usd");
    }
}

static int read_fleet(struct reading *r, json_t *root, struct tm_run_status *s)
{
    size_t instances = 0;
    json_t *list = list_of(r, root, "instances", READ_INSTANCES_MAX, &instances);
    s->instances = tm_calloc(instances + 1, sizeof *s->instances);
    if (s->instances == NULL) return -(int)TM_ENOMEM;
    s->instance_count = s->instance_capacity = instances;
    for (size_t i = 0; i < instances; i++)
        read_instance(r, json_array_get(list, i), &s->instances[i]);
    s->here = small_of(r, root, "instances_here");
    s->noticed = small_of(r, root, "instances_noticed");
    s->want_spot = small_of(r, root, "want_spot");
    s->want_on_demand = small_of(r, root, "want_on_demand");
    s->arrivals = count_of(r, root, "arrivals");
    s->losses_announced = count_of(r, root, "losses_announced");
    s->losses_unannounced = count_of(r, root, "losses_unannounced");
    s->worker_losses = count_of(r, root, "worker_losses");
    s->bill_usd = number_of(r, root, "bill_usd");
    s->on_demand_usd = number_of(r, root, "on_demand_usd");
    s->left_s = optional_of(r, root, "left_s");
    s->left_low_s = optional_of(r, root, "left_low_s");
    s->left_high_s = optional_of(r, root, "left_high_s");
    s->deadline_s = number_of(r, root, "deadline_s");
    s->budget_usd = number_of(r, root, "budget_usd");
    s->spot_usd_h = number_of(r, root, "spot_usd_h");
    s->on_demand_usd_h = number_of(r, root, "on_demand_usd_h");
    read_pools(r, root, s);
    return 0;
}

static void read_spread(struct reading *r, json_t *root, const char *key, struct tm_run_spread *spread)
{
    json_t *map = map_of(r, root, key);
    spread->count = count_of(r, map, "count");
    spread->p50_s = number_of(r, map, "p50");
    spread->max_s = number_of(r, map, "max");
    spread->total_s = number_of(r, map, "total");
}

static int read_pauses(struct reading *r, json_t *root, struct tm_run_status *s)
{
    read_spread(r, root, "pause_s", &s->pause);
    read_spread(r, root, "recovery_s", &s->recovery);
    s->waiting_s = number_of(r, root, "waiting_s");
    s->wall_s = number_of(r, root, "wall_s");
    json_t *list = list_of(r, root, "pauses", TM_STATUS_PAUSES_SHOWN, &s->pause_count);
    s->pause_capacity = s->pause_count;
    s->pauses = tm_calloc(s->pause_count + 1, sizeof *s->pauses);
    if (s->pauses == NULL) return -(int)TM_ENOMEM;
    for (size_t i = 0; i < s->pause_count; i++) {
        json_t *map = json_array_get(list, i);
        struct tm_run_pause *pause = &s->pauses[i];
        pause->generation = count_of(r, map, "generation");
        pause->cause = (enum tm_change_cause)name_of(r, map, "cause", TM_CHANGED_BEGIN + 1, cause_name);
        pause->end_utc_ms = integer_of(r, map, "end_utc_ms");
        pause->pause_s = number_of(r, map, "pause_s");
    }
    return 0;
}

static void read_events(struct reading *r, json_t *root, struct tm_run_status *s)
{
    json_t *list = list_of(r, root, "events", TM_STATUS_EVENTS, &s->event_count);
    for (size_t i = 0; i < s->event_count; i++) {
        json_t *map = json_array_get(list, i);
        struct tm_run_event_text *event = &s->events[i];
        event->sequence = count_of(r, map, "sequence");
        event->utc_ms = integer_of(r, map, "utc_ms");
        text_of(r, map, "kind", event->kind, sizeof event->kind);
        text_of(r, map, "text", event->text, sizeof event->text);
    }
}

static int read_all(struct reading *r, json_t *root, struct tm_run_status *s)
{
    read_job(r, root, &s->job);
    s->state = (enum tm_job_state)name_of(r, root, "state", TM_JOB_FAILED + 1, state_name);
    text_of(r, root, "reason", s->reason, sizeof s->reason);
    text_of(r, root, "trouble", s->trouble, sizeof s->trouble);
    s->gave_up = bool_of(r, root, "gave_up");
    s->live = bool_of(r, root, "live");
    s->sequence = count_of(r, root, "sequence");
    s->utc_ms = integer_of(r, root, "utc_ms");
    s->begun_utc_ms = integer_of(r, root, "begun_utc_ms");
    read_steps(r, root, s);
    int rc = read_layout(r, root, s);
    if (rc == 0) rc = read_fleet(r, root, s);
    if (rc == 0) rc = read_pauses(r, root, s);
    read_events(r, root, s);
    return rc;
}

int tm_run_status_read(const char *file, const char *text, size_t length, struct tm_run_status *out, struct tm_error *e)
{
    struct reading reading = {.wrong = NULL};
    json_t *root = NULL;
    int rc = tm_json_load(file, text, length, &root, e);
    if (rc != 0) return rc;
    struct tm_run_status *s = tm_calloc(1, sizeof *s);
    rc = s == NULL ? -(int)TM_ENOMEM : read_all(&reading, root, s);
    json_decref(root);
    if (rc == 0 && reading.wrong == NULL) {
        *out = *s;
        tm_free(s);
        return 0;
    }
    if (s != NULL) tm_run_status_deinit(s);
    tm_free(s);
    if (rc != 0) return tm_error_nomem(e);
    return tm_error_set(e, TM_EINPUT, "%s: \"%s\" is missing, or was not written by this release", file, reading.wrong);
}

bool tm_run_status_is_priced(const struct tm_run_status *status)
{
    return status->bill_usd > 0 || status->on_demand_usd > 0 || status->spot_usd_h > 0 || status->on_demand_usd_h > 0;
}

#include "job/run_report_file.h"

#include "base/doc.h"
#include "base/jsonout.h"
#include "run/run_tap.h"
#include "run/state_folder.h"

#include <math.h>
#include <stdio.h>

enum { REPORT_BYTES_MAX = 64 << 20 };

/* ---- what was predicted ---- */

static void write_one(struct tm_jsonout *json, const char *key, const struct tm_run_expectation *expected)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "time_s", expected->time_s.mean);
    tm_jsonout_number(json, "bill_usd", expected->bill_usd.mean);
    tm_jsonout_number(json, "paused_s", expected->paused_s);
    tm_jsonout_end(json);
}

int tm_run_predictions__save(struct tm_env *env, const char *dir, const struct tm_run_plan *plan, struct tm_error *e)
{
    struct tm_text text;
    struct tm_jsonout json;
    tm_text_init(&text, 65536);
    tm_jsonout_init(&json, &text);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "policy", plan->chosen.policy);
    write_one(&json, "run", &plan->chosen);
    write_one(&json, "restart", &plan->restart);
    write_one(&json, "on_demand", &plan->on_demand);
    tm_jsonout_end(&json);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(env, dir, TM_STATE_PREDICTION, tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

static double number_of(json_t *map, const char *key)
{
    json_t *value = json_object_get(map, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static struct tm_run_predicted read_one(json_t *root, const char *key)
{
    json_t *map = json_object_get(root, key);
    return (struct tm_run_predicted){.time_s = number_of(map, "time_s"),
                                     .bill_usd = number_of(map, "bill_usd"),
                                     .paused_s = number_of(map, "paused_s")};
}

int tm_run_predictions_load(struct tm_env *env, const char *dir, struct tm_run_predictions *out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    json_t *root = NULL;
    tm_state_path(dir, TM_STATE_PREDICTION, path);
    tm_text_init(&text, 65536);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0) rc = tm_json_load(path, tm_text_string(&text), text.length, &root, e);
    if (rc == 0) {
        const char *policy = json_string_value(json_object_get(root, "policy"));
        (void)snprintf(out->policy, sizeof out->policy, "%s", policy == NULL ? "" : policy);
        out->run = read_one(root, "run");
        out->restart = read_one(root, "restart");
        out->on_demand = read_one(root, "on_demand");
    }
    json_decref(root);
    tm_text_deinit(&text);
    return rc;
}

/* ---- the report ---- */

static int take_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    return tm_run_historian_take(context, sequence, event, e);
}

/* What a finished run's summary says; "": nothing. */
static void read_weights_hash(struct tm_env *env, const char *dir, char out[64])
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    json_t *root = NULL;
    tm_state_path(dir, TM_STATE_SUMMARY, path);
    tm_text_init(&text, 65536);
    out[0] = '\0';
    if (env->file_read(env, path, &text, NULL) == 0 &&
        tm_json_load(path, tm_text_string(&text), text.length, &root, NULL) == 0) {
        const char *hash = json_string_value(json_object_get(root, "weights_hash"));
        (void)snprintf(out, 64, "%s", hash == NULL ? "" : hash);
    }
    json_decref(root);
    tm_text_deinit(&text);
}

static int write_report(struct tm_env *env, const char *dir, struct tm_run_historian *historian, const char *path,
                        struct tm_error *e)
{
    struct tm_run_predictions predicted;
    struct tm_text html;
    char weights_hash[64];
    struct tm_run_report report = {.history = tm_run_historian_tell(historian)};
    if (tm_run_predictions_load(env, dir, &predicted, NULL) == 0) {
        report.policy = predicted.policy;
        report.run = &predicted.run;
        report.restart = &predicted.restart;
        report.on_demand = &predicted.on_demand;
    }
    read_weights_hash(env, dir, weights_hash);
    if (weights_hash[0] != '\0') report.weights_hash = weights_hash;
    tm_text_init(&html, REPORT_BYTES_MAX);
    int rc = tm_run_report_html(&report, &html, e);
    if (rc == 0) rc = env->file_write(env, path, html.data, html.length, e);
    tm_text_deinit(&html);
    return rc;
}

int tm_run_report_write(struct tm_env *env, const char *dir, const char *path, struct tm_error *e)
{
    char record[TM_STATE_PATH_MAX];
    char usual[TM_STATE_PATH_MAX];
    struct tm_run_historian *historian = tm_run_historian_create();
    if (historian == NULL) return tm_error_nomem(e);
    tm_state_path(dir, TM_STATE_RECORD, record);
    tm_state_path(dir, TM_STATE_REPORT, usual);
    int rc = tm_run_record_each(record, 0, SIZE_MAX, take_event, historian, e);
    if (rc == 0) rc = write_report(env, dir, historian, path == NULL ? usual : path, e);
    tm_run_historian_destroy(historian);
    return rc;
}

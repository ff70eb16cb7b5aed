#include "base/jsonout.h"
#include "base/number.h"
#include "base/table.h"
#include "cli/commands.h"
#include "sim/cluster_whatif.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const char *const revocation_choices[] = {"sampled", "0", "1", "2", NULL};
static const char *const yes_or_no[] = {"no", "yes", NULL};
static const char *const baselines[] = {"K80", "P100", "V100", NULL};

struct request {
    struct tm_cluster cluster;
    struct tm_cluster baseline;
    struct tm_cluster_model model;
    struct tm_cluster_job job;
};

/* ---- what is asked ---- */

static bool is_named(const char *text, size_t length, const char *name)
{
    return length == strlen(name) && strncasecmp(text, name, length) == 0;
}

/* "K80=4.5,P100=11.8": measured speeds of one worker. */
static int read_speeds(const char *text, const struct tm_cluster *cluster, struct tm_cluster_model *model,
                       struct tm_error *e)
{
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ",");
        const char *equals = memchr(at, '=', length);
        double speed = 0;
        bool known = false;
        int kinds = TM_CLUSTER_GPUS + (int)cluster->other_count;
        for (int g = 0; equals != NULL && g < kinds; g++)
            known = known || is_named(at, (size_t)(equals - at), tm_cluster_gpu_name(cluster, g));
        if (!known || !tm_number_double(equals + 1, length - (size_t)(equals + 1 - at), &speed) || !(speed > 0) ||
            speed > 1e9)
            return tm_error_set(e, TM_EUSAGE,
                                "--speeds: expected steps per second such as K80=4.5,P100=11.8, got \"%.40s\"", text);
        for (int g = 0; g < kinds; g++)
            if (is_named(at, (size_t)(equals - at), tm_cluster_gpu_name(cluster, g))) model->steps_per_s[g] = speed;
        at += length + (at[length] == ',');
    }
    return 0;
}

static int read_model(const struct tm_cli *cli, const struct tm_cluster *cluster, struct tm_cluster_model *model,
                      struct tm_error *e)
{
    const struct tm_cluster_model *known = NULL;
    const char *name = tm_given_text(cli, "model");
    if (name == NULL) return tm_error_set(e, TM_EUSAGE, "give a model: --model resnet32");
    bool measured = tm_given(cli, "speeds");
    int rc = tm_cluster_model_find(name, &known, e);
    if (rc != 0 && !measured) return rc;
    *model = known != NULL
                 ? *known
                 : (struct tm_cluster_model){
                       .name = name, .steps_per_s = {NAN, NAN, NAN}, .ceiling = {INFINITY, INFINITY}, .join_s = 80};
    rc = measured ? read_speeds(tm_given_text(cli, "speeds"), cluster, model, e) : 0;
    double ceiling = 0;
    if (rc == 0) rc = tm_given_number(cli, "ceiling", 1e-6, 1e9, &ceiling, e);
    if (rc == 0 && ceiling > 0) {
        model->ceiling[1] = known != NULL ? ceiling * known->ceiling[1] / known->ceiling[0] : 2 * ceiling;
        model->ceiling[0] = ceiling;
    }
    return rc;
}

static int read_job(const struct tm_cli *cli, struct tm_cluster_job *job, struct tm_error *e)
{
    int revocations = 0;
    int replace = 0;
    int billed = TM_LOST_TO_END;
    int chief = TM_CHIEF_FAILOVER;
    int64_t seed = 1;
    int64_t runs = 2000;
    int64_t steps = 0;
    int64_t hour = 0;
    if (!tm_given(cli, "steps")) return tm_error_set(e, TM_EUSAGE, "give the length of the job: --steps 64000");
    int rc = tm_given_integer(cli, "steps", 1, INT64_C(1000000000000), &steps, e);
    if (rc == 0) rc = tm_given_choice(cli, "revocations", &revocations, e);
    if (rc == 0) rc = tm_given_choice(cli, "replace", &replace, e);
    if (rc == 0) rc = tm_given_choice(cli, "lost-billed", &billed, e);
    if (rc == 0) rc = tm_given_choice(cli, "chief", &chief, e);
    if (rc == 0) rc = tm_given_number(cli, "checkpoint-every", 1, 1e12, &job->checkpoint_every, e);
    if (rc == 0) rc = tm_given_number(cli, "checkpoint-mb", 0, 1e9, &job->checkpoint_mb, e);
    if (rc == 0) rc = tm_given_integer(cli, "runs", 1, TM_CLUSTER_RUNS_MAX, &runs, e);
    if (rc == 0) rc = tm_given_integer(cli, "hour", 0, 23, &hour, e);
    if (rc == 0) rc = tm_given_integer(cli, "seed", 0, INT64_MAX, &seed, e);
    if (rc == 0 && tm_given(cli, "checkpoint-mb") && !tm_given(cli, "checkpoint-every"))
        rc = tm_error_set(e, TM_EUSAGE,
                          "--checkpoint-mb gives the size of checkpoints: give --checkpoint-every STEPS too");
    job->steps = (double)steps;
    job->revocations = revocations - 1; /* "sampled" is -1 */
    job->at_hour = tm_given(cli, "hour");
    job->hour = (int)hour;
    job->replace = replace == 1;
    job->lost_billed = (enum tm_cluster_billing)billed;
    job->chief = (enum tm_cluster_chief)chief;
    job->runs = (int)runs;
    job->seed = (uint64_t)seed;
    return rc;
}

/* GPUs that the study did not have: by the catalogue and what is known of the risk of spot. */
static int know_others(const struct tm_cli *cli, struct tm_cluster *cluster, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_risk risk;
    tm_catalog_init(&catalog);
    tm_risk_init(&risk);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = tm_risk_load(cli->env, &risk, e);
    if (rc == 0) rc = tm_cluster_know(cluster, &catalog, &risk, e);
    tm_risk_deinit(&risk);
    tm_catalog_deinit(&catalog);
    return rc;
}

static int read_request(const struct tm_cli *cli, struct request *request, struct tm_error *e)
{
    const char *workers = tm_given_text(cli, "workers");
    int64_t servers = 0;
    int baseline = TM_CLUSTER_K80;
    if (cli->argument_count > 0) return tm_error_set(e, TM_EUSAGE, "study cluster takes no files; see its options");
    if (workers == NULL) return tm_error_set(e, TM_EUSAGE, "give the cluster: --workers \"4x K80:transient\"");
    int rc = tm_cluster_parse(workers, &request->cluster, e);
    if (rc == 0 && request->cluster.other_count > 0) rc = know_others(cli, &request->cluster, e);
    if (rc == 0) rc = tm_given_integer(cli, "servers", 0, TM_CLUSTER_SERVERS_MAX, &servers, e);
    if (rc == 0 && tm_given(cli, "servers")) request->cluster.servers = (int)servers;
    if (rc == 0) rc = read_model(cli, &request->cluster, &request->model, e);
    if (rc == 0) rc = read_job(cli, &request->job, e);
    if (rc == 0) rc = tm_given_choice(cli, "baseline", &baseline, e);
    if (rc != 0) return rc;
    if (!tm_given(cli, "baseline") && !(request->model.steps_per_s[baseline] > 0))
        baseline = request->cluster.workers[0].gpu;
    request->baseline.count = 1;
    request->baseline.workers[0] = (struct tm_cluster_worker){.gpu = baseline};
    memcpy(request->baseline.others, request->cluster.others, sizeof request->baseline.others);
    request->baseline.other_count = request->cluster.other_count;
    request->job.model = &request->model;
    return 0;
}

/* ---- answers ---- */

struct answer {
    struct tm_cluster_outcome baseline;
    struct tm_cluster_outcome cluster;
    struct tm_cluster_outcome on_demand; /* the same cluster */
    struct tm_cluster_advice advice;
};

static int find_answer(struct request *request, struct answer *answer, struct tm_error *e)
{
    struct tm_cluster_job steady = request->job;
    struct tm_cluster on_demand = request->cluster;
    steady.revocations = 0;
    steady.runs = 1;
    for (size_t i = 0; i < on_demand.count; i++)
        on_demand.workers[i].transient = false;
    int rc = tm_cluster_run(&request->job, &request->cluster, &answer->cluster, e);
    if (rc == 0) rc = tm_cluster_run(&steady, &request->baseline, &answer->baseline, e);
    if (rc == 0) rc = tm_cluster_run(&steady, &on_demand, &answer->on_demand, e);
    if (rc == 0) rc = tm_cluster_advise(&request->job, &request->cluster, &answer->cluster, &answer->advice, e);
    if (rc == 0 && answer->cluster.lost >= 1)
        return tm_error_set(
            e, TM_ENONE,
            "this job never finishes: its workers are preempted first; use --replace yes, or a chief that fails over");
    return rc;
}

static const struct tm_column columns[] = {
    {"CLUSTER", TM_LEFT, 0},  {"PS", TM_RIGHT, 1},       {"STEPS/S", TM_RIGHT, 1},   {"HOURS", TM_RIGHT, 0},
    {"10-90%", TM_RIGHT, 2},  {"COST ($)", TM_RIGHT, 0}, {"10-90%", TM_RIGHT, 3},    {"UPTIME ($)", TM_RIGHT, 2},
    {"SPEEDUP", TM_RIGHT, 0}, {"SAVING", TM_RIGHT, 0},   {"PREEMPTED", TM_RIGHT, 3}, {"NEVER ENDS", TM_RIGHT, 2},
    {"", TM_LEFT, 0},
};

static void add_row(struct tm_table *table, const char *what, int servers, const struct tm_cluster_outcome *o,
                    const struct tm_cluster_outcome *baseline, const char *note)
{
    tm_table_add(table, "%s", what);
    tm_table_add(table, "%d", servers);
    tm_table_add(table, "%.2f", o->steps_per_s);
    tm_table_add(table, "%.3f", o->time_h.mean);
    tm_table_add(table, "%.3f-%.3f", o->time_h.p10, o->time_h.p90);
    tm_table_add(table, "%.3f", o->cost_usd.mean);
    tm_table_add(table, "%.3f-%.3f", o->cost_usd.p10, o->cost_usd.p90);
    tm_table_add(table, "%.3f", o->uptime_usd.mean);
    tm_table_add(table, "%.2fx", baseline->time_h.mean / o->time_h.mean);
    tm_table_add(table, "%.1f%%", 100 * (1 - o->cost_usd.mean / baseline->cost_usd.mean));
    tm_table_add(table, "%.2f", o->revocations);
    tm_table_add(table, "%.1f%%", 100 * o->lost);
    tm_table_add(table, "%s", note);
}

static int put_table(struct tm_cli *cli, const struct request *request, const struct answer *answer, struct tm_error *e)
{
    struct tm_table table;
    struct tm_text names;
    tm_text_init(&names, 1 << 16);
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    const struct tm_cluster_outcome *base = &answer->baseline;
    tm_cluster_print(&request->baseline, &names);
    add_row(&table, tm_text_string(&names), 0, base, base, "the baseline");
    tm_text_clear(&names);
    tm_cluster_print(&request->cluster, &names);
    int servers = request->cluster.servers;
    add_row(&table, tm_text_string(&names), servers, &answer->cluster, base, "");
    add_row(&table, "the same on demand", servers, &answer->on_demand, base, "");
    if (answer->advice.worker.steps_per_s > 0)
        add_row(&table, "and one more worker", servers > 0 ? servers : 1, &answer->advice.worker, base,
                answer->advice.worker_pays ? "worth it: faster, and costs no more" : "");
    if (answer->advice.server.steps_per_s > 0)
        add_row(&table, "and one more server", servers + 1, &answer->advice.server, base,
                answer->advice.server_pays ? "worth it: faster, and costs no more" : "");
    int rc = tm_text_status(&names, e);
    if (rc == 0) rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    tm_text_deinit(&names);
    return rc;
}

/* How long each kind of worker lives, and where that is from. */
static void put_lives(struct tm_cli *cli, const struct tm_cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++) {
        const struct tm_cluster_worker *worker = &cluster->workers[i];
        bool seen = !worker->transient;
        for (size_t k = 0; k < i && !seen; k++)
            seen = cluster->workers[k].gpu == worker->gpu && cluster->workers[k].transient &&
                   strcmp(cluster->workers[k].region, worker->region) == 0;
        if (seen) continue;
        struct tm_cluster_life life;
        tm_cluster_life_of(cluster, i, &life);
        tm_text_printf(&cli->out, "%s%s%s: %.0f%% preempted within 1 h, %.0f%% within 24 h, ",
                       tm_cluster_gpu_name(cluster, worker->gpu), worker->region[0] != '\0' ? "@" : "", worker->region,
                       100 * tm_cluster_lost_by(&life, 1), 100 * tm_cluster_lost_by(&life, 24));
        if (worker->gpu >= TM_CLUSTER_GPUS)
            tm_text_printf(&cli->out, "by what is known of the risk of spot; prices of %s.\n",
                           cluster->others[worker->gpu - TM_CLUSTER_GPUS].instance);
        else
            tm_text_puts(&cli->out, life.of_region              ? "as CM-DARE (2020) found in that region.\n"
                                    : worker->region[0] != '\0' ? "as the study found in all regions; not that one.\n"
                                                                : "as the study found in all regions.\n");
    }
}

static void put_notes(struct tm_cli *cli, const struct request *request, const struct answer *answer)
{
    double sum = tm_cluster_sum_of_speeds(&request->model, &request->cluster);
    double ceiling = tm_cluster_ceiling(&request->model, request->cluster.servers);
    const struct tm_cluster_outcome *o = &answer->cluster;
    tm_text_printf(&cli->out, "\nThe workers alone would make %.2f steps per second", sum);
    if (isfinite(ceiling)) tm_text_printf(&cli->out, "; the parameter servers handle at most %.1f", ceiling);
    tm_text_printf(&cli->out, ".\nRuns with 0, 1, and 2 or more preemptions: %.1f%%, %.1f%%, %.1f%%.\n",
                   100 * o->with_count[0], 100 * o->with_count[1], 100 * o->with_count[2]);
    if (request->job.revocations < 0) put_lives(cli, &request->cluster);
    if (request->job.lost_billed == TM_LOST_TO_END && o->uptime_usd.mean < 0.9999 * o->cost_usd.mean)
        tm_text_printf(
            &cli->out,
            "Preempted workers are paid for to the end, as in the study; paying only for uptime, it is $%.3f.\n",
            o->uptime_usd.mean);
    struct tm_cluster together = request->cluster;
    for (size_t i = 0; i < together.count; i++)
        together.workers[i].region[0] = '\0';
    double near_by = tm_cluster_speed(&request->model, &together, NULL);
    if (near_by > o->steps_per_s * 1.0001)
        tm_text_printf(&cli->out, "In one region the same workers would make %.2f steps per second, %.1f%% more.\n",
                       near_by, 100 * (near_by / o->steps_per_s - 1));
    if (request->job.checkpoint_every > 0)
        tm_text_printf(&cli->out, "A checkpoint of %g MB takes %.1f s.\n", request->job.checkpoint_mb,
                       tm_cluster_checkpoint_s(request->job.checkpoint_mb));
    if (answer->advice.server_pays)
        tm_text_puts(&cli->out, "Add a parameter server: the servers are the bottleneck.\n");
    else if (answer->advice.worker_pays)
        tm_text_puts(&cli->out, "Add a worker: it is faster and costs no more.\n");
}

static void put_spread(struct tm_jsonout *json, const char *key, const struct tm_spread *spread)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "mean", spread->mean);
    tm_jsonout_number(json, "sd", spread->sd);
    tm_jsonout_number(json, "p10", spread->p10);
    tm_jsonout_number(json, "p50", spread->p50);
    tm_jsonout_number(json, "p90", spread->p90);
    tm_jsonout_end(json);
}

/* The members of an outcome, into an object that is open. */
static void put_outcome(struct tm_jsonout *json, const struct tm_cluster_outcome *o,
                        const struct tm_cluster_outcome *baseline)
{
    tm_jsonout_number(json, "steps_per_s", o->steps_per_s);
    put_spread(json, "time_h", &o->time_h);
    put_spread(json, "cost_usd", &o->cost_usd);
    put_spread(json, "cost_uptime_usd", &o->uptime_usd);
    tm_jsonout_number(json, "speedup", baseline->time_h.mean / o->time_h.mean);
    tm_jsonout_number(json, "saving", 1 - o->cost_usd.mean / baseline->cost_usd.mean);
    tm_jsonout_number(json, "revocations", o->revocations);
    tm_jsonout_list(json, "share_with_revocations"); /* 0, 1, 2 and more */
    for (int k = 0; k < 3; k++)
        tm_jsonout_number(json, NULL, o->with_count[k]);
    tm_jsonout_end(json);
    tm_jsonout_number(json, "never_ends", o->lost);
}

static void put_advice(struct tm_jsonout *json, const char *what, const struct tm_cluster_outcome *o, bool pays,
                       const struct tm_cluster_outcome *baseline)
{
    if (!(o->steps_per_s > 0)) return;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "add", what);
    tm_jsonout_bool(json, "pays", pays);
    put_outcome(json, o, baseline);
    tm_jsonout_end(json);
}

static void put_json(struct tm_cli *cli, const struct request *request, const struct answer *answer)
{
    struct tm_jsonout json;
    struct tm_text names;
    tm_text_init(&names, 1 << 16);
    tm_cluster_print(&request->cluster, &names);
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "model", request->model.name);
    tm_jsonout_number(&json, "steps", request->job.steps);
    tm_jsonout_string(&json, "workers", tm_text_string(&names));
    tm_jsonout_integer(&json, "servers", request->cluster.servers);
    tm_jsonout_string(&json, "lost_billed", tm_cluster_billings[request->job.lost_billed]);
    tm_jsonout_number(&json, "sum_of_speeds", tm_cluster_sum_of_speeds(&request->model, &request->cluster));
    tm_jsonout_number(&json, "ceiling", tm_cluster_ceiling(&request->model, request->cluster.servers));
    put_outcome(&json, &answer->cluster, &answer->baseline);
    tm_jsonout_object(&json, "baseline");
    tm_text_clear(&names);
    tm_cluster_print(&request->baseline, &names);
    tm_jsonout_string(&json, "workers", tm_text_string(&names));
    put_outcome(&json, &answer->baseline, &answer->baseline);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "on_demand");
    put_outcome(&json, &answer->on_demand, &answer->baseline);
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "advice");
    put_advice(&json, "worker", &answer->advice.worker, answer->advice.worker_pays, &answer->baseline);
    put_advice(&json, "server", &answer->advice.server, answer->advice.server_pays, &answer->baseline);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    if (names.failed != 0) cli->out.failed = names.failed;
    tm_text_deinit(&names);
}

/* ---- --validate ---- */

static double mean_error(const struct tm_cluster_trial *trials, size_t count, bool fitted, bool share)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double got = fitted ? trials[i].fitted : trials[i].predicted;
        sum += 100 * fabs(share ? got - trials[i].measured : got / trials[i].measured - 1);
    }
    return sum / (double)count;
}

static int put_sizes(struct tm_cli *cli, const struct tm_cluster_trial *trials, size_t count, struct tm_error *e)
{
    static const struct tm_column trial_columns[] = {{"CLUSTER", TM_LEFT, 0},        {"HOURS", TM_RIGHT, 0},
                                                     {"FITTED", TM_RIGHT, 0},        {"ERROR", TM_RIGHT, 0},
                                                     {"SIZE HELD OUT", TM_RIGHT, 0}, {"ERROR", TM_RIGHT, 0}};
    struct tm_table table;
    tm_table_init(&table, trial_columns, sizeof trial_columns / sizeof *trial_columns);
    for (size_t i = 0; i < count; i++) {
        tm_table_add(&table, "%s", trials[i].what);
        tm_table_add(&table, "%.3f", trials[i].measured);
        tm_table_add(&table, "%.3f", trials[i].fitted);
        tm_table_add(&table, "%+.1f%%", 100 * (trials[i].fitted / trials[i].measured - 1));
        tm_table_add(&table, "%.3f", trials[i].predicted);
        tm_table_add(&table, "%+.1f%%", 100 * (trials[i].predicted / trials[i].measured - 1));
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    tm_text_printf(
        &cli->out,
        "Exchange, ceiling and sharpness are fitted to these clusters: mean error %.1f%%. Fitted without the "
        "clusters of the same size: %.1f%%.\n\n",
        mean_error(trials, count, true, false), mean_error(trials, count, false, false));
    return rc;
}

static int put_regions(struct tm_cli *cli, const struct tm_cluster_trial *trials, size_t count, const char *age,
                       struct tm_error *e)
{
    static const struct tm_column trial_columns[] = {{"GPU", TM_LEFT, 0},
                                                     {"REGION", TM_LEFT, 0},
                                                     {"REVOKED", TM_RIGHT, 0},
                                                     {"REGION HELD OUT", TM_RIGHT, 0},
                                                     {"80% INTERVAL", TM_RIGHT, 0}};
    struct tm_table table;
    size_t inside = 0;
    tm_table_init(&table, trial_columns, sizeof trial_columns / sizeof *trial_columns);
    for (size_t i = 0; i < count; i++) {
        inside += trials[i].measured >= trials[i].low && trials[i].measured <= trials[i].high;
        tm_table_add(&table, "%s", trials[i].gpu);
        tm_table_add(&table, "%s", trials[i].what);
        tm_table_add(&table, "%.0f%%", 100 * trials[i].measured);
        tm_table_add(&table, "%.0f%%", 100 * trials[i].predicted);
        tm_table_add(&table, "%.0f-%.0f%%", 100 * trials[i].low, 100 * trials[i].high);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    tm_text_printf(&cli->out,
                   "Revoked within %s, from the other regions: mean error %.0f points, %zu of %zu inside.\n\n", age,
                   mean_error(trials, count, false, true), inside, count);
    return rc;
}

static void put_trials(struct tm_jsonout *json, const char *key, const struct tm_cluster_trial *trials, size_t count)
{
    tm_jsonout_list(json, key);
    for (size_t i = 0; i < count; i++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, trials[i].gpu != NULL ? "region" : "workers", trials[i].what);
        if (trials[i].gpu != NULL) tm_jsonout_string(json, "gpu", trials[i].gpu);
        tm_jsonout_number(json, "measured", trials[i].measured);
        if (trials[i].gpu == NULL) tm_jsonout_number(json, "fitted", trials[i].fitted);
        tm_jsonout_number(json, "predicted", trials[i].predicted);
        if (trials[i].gpu != NULL) tm_jsonout_number(json, "low", trials[i].low);
        if (trials[i].gpu != NULL) tm_jsonout_number(json, "high", trials[i].high);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static int validate(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_cluster_trial sizes[TM_CLUSTER_TRIALS_MAX], hour[TM_CLUSTER_TRIALS_MAX], day[TM_CLUSTER_TRIALS_MAX];
    if (tm_given(cli, "workers") || tm_given(cli, "steps") || tm_given(cli, "model"))
        return tm_error_set(e, TM_EUSAGE,
                            "--validate is about the study's own clusters: give no --workers, --steps or --model");
    size_t clusters = tm_cluster_hold_out_sizes(sizes);
    size_t regions = tm_cluster_hold_out_regions(true, hour);
    (void)tm_cluster_hold_out_regions(false, day);
    if (cli->json) {
        struct tm_jsonout json;
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_number(&json, "fitted_error_percent", mean_error(sizes, clusters, true, false));
        tm_jsonout_number(&json, "held_out_error_percent", mean_error(sizes, clusters, false, false));
        put_trials(&json, "sizes", sizes, clusters);
        put_trials(&json, "regions_1h", hour, regions);
        put_trials(&json, "regions_24h", day, regions);
        tm_jsonout_end(&json);
        return 0;
    }
    int rc = put_sizes(cli, sizes, clusters, e);
    if (rc == 0) rc = put_regions(cli, hour, regions, "1 h", e);
    if (rc == 0) rc = put_regions(cli, day, regions, "24 h", e);
    return rc;
}

static int cmd_cluster(struct tm_cli *cli, struct tm_error *e)
{
    if (tm_given(cli, "validate")) return validate(cli, e);
    struct request *request = tm_arena_alloc(&cli->arena, sizeof *request);
    struct answer answer = {0};
    if (request == NULL) return tm_error_nomem(e);
    int rc = read_request(cli, request, e);
    if (rc == 0) rc = find_answer(request, &answer, e);
    if (rc != 0) return rc;
    if (cli->json) {
        put_json(cli, request, &answer);
        return 0;
    }
    rc = put_table(cli, request, &answer, e);
    if (rc == 0 && !cli->quiet) put_notes(cli, request, &answer);
    return rc;
}

static const struct tm_option options[] = {
    {.name = "workers",
     .value = "LIST",
     .help = "such as \"2x K80:transient, P100:on-demand, V100@us-west1, T4\"; any GPU of the catalogue"},
    {.name = "steps", .value = "N", .help = "steps of the whole cluster"},
    {.name = "model", .value = "NAME", .help = "resnet15, resnet32, shake-small, shake-big; any with --speeds"},
    {.name = "servers", .value = "N", .help = "parameter servers (1; 0 for a single worker)"},
    {.name = "revocations",
     .value = "N",
     .help = "how many transient workers are preempted, at random times; else drawn from their lifetimes",
     .choices = revocation_choices},
    {.name = "hour", .value = "N", .help = "local hour of the day at which the job starts, 0 to 23 (any)"},
    {.name = "replace", .value = "YES", .help = "replace preempted workers (no)", .choices = yes_or_no},
    {.name = "lost-billed",
     .value = "HOW",
     .help = "what a preempted worker costs: to-end (the default), as in the study, or only its uptime",
     .choices = tm_cluster_billings},
    {.name = "chief",
     .value = "NAME",
     .help = "when the chief worker is preempted: another takes over, the job rolls back to its checkpoint, or is lost",
     .choices = tm_cluster_chiefs},
    {.name = "checkpoint-every", .value = "STEPS", .help = "write a checkpoint every STEPS steps (never)"},
    {.name = "checkpoint-mb", .value = "MB", .help = "size of a checkpoint"},
    {.name = "speeds", .value = "LIST", .help = "measured steps per second of one worker: K80=4.5,P100=11.8"},
    {.name = "ceiling", .value = "N", .help = "steps per second that one parameter server can handle"},
    {.name = "baseline",
     .value = "GPU",
     .help = "compare with one on-demand worker with this GPU (K80)",
     .choices = baselines},
    {.name = "validate", .help = "how far off: the study's cluster sizes and regions, each predicted from the others"},
    {.name = "runs", .value = "N", .help = "number of simulated runs (2000)"},
    {.name = "seed", .value = "N", .help = "the same seed gives the same runs (1)"},
    {.name = NULL},
};

const struct tm_command tm_study_subcommands[] = {
    {.name = "cluster",
     .summary = "time and cost of a job on a cluster of transient workers",
     .description =
         "Applies the measurements of the transient-server study to any cluster: workers around parameter servers, "
         "each as fast as it is alone, up to what the servers can handle. Transient workers are preempted at random "
         "ages, as that study found; a replacement starts and joins while the rest train on. Many runs are simulated. "
         "The table has means and 80% ranges, speedup and saving against one on-demand worker, and whether one more "
         "worker or server would be worth it. Prices are those of the study (2019).\n"
         "\n"
         "Regions (K80@us-east1) and --hour change how long workers live, as CM-DARE (2020) found. GPUs that neither "
         "study had need --speeds; prices are the catalogue's, and lifetimes those that tidemill study knows.\n"
         "\n"
         "A preempted worker is paid for to the end of the job, as in the study's tables: its $2.08 for two K80, one "
         "of them preempted, is the whole time at the price of both. If your cloud charges only for uptime, look at "
         "UPTIME; with --lost-billed uptime everything is judged by that.",
     .examples =
         "  tidemill study cluster --workers \"4x K80:transient\" --steps 64000 --model resnet32\n"
         "  tidemill study cluster --workers \"8x V100\" --steps 64000 --model resnet32 --revocations 0\n"
         "  tidemill study cluster --workers \"4x T4@us-central1\" --speeds T4=9 --steps 64000 --model resnet32\n"
         "  tidemill study cluster --workers \"3x K80@us-east1, K80@us-west1\" --steps 64000 --model resnet32\n",
     .options = options,
     .run = cmd_cluster},
    {.name = NULL},
};

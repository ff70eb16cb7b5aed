#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/number.h"
#include "base/suggest.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/knowledge_source.h"
#include "cli/way_words.h"
#include "job/described_fleet.h"
#include "market/catalog.h"
#include "plan/supply.h"
#include "workload/evaluate.h"
#include "workload/observed.h"
#include "workload/probed_links.h"
#include "workload/scaling.h"
#include "workload/shipped_profiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- evaluate ---- */

static void put_errors_json(struct tm_jsonout *json, const char *key, const struct tm_errors *errors,
                            const char *network)
{
    tm_jsonout_object(json, key);
    if (network != NULL) tm_jsonout_string(json, "network", network);
    tm_jsonout_integer(json, "cells", (int64_t)errors->cells);
    bool any = errors->cells > 0;
    tm_jsonout_number(json, "mape_percent", any ? errors->mape_percent : NAN);
    tm_jsonout_number(json, "median_percent", any ? errors->median_percent : NAN);
    tm_jsonout_number(json, "p90_percent", any ? errors->p90_percent : NAN);
    tm_jsonout_number(json, "bias_percent", any ? errors->bias_percent : NAN);
    tm_jsonout_number(json, "inside80_percent", any ? errors->inside80_percent : NAN);
    if (errors->memory_cells > 0) tm_jsonout_number(json, "memory_mape_percent", errors->memory_mape_percent);
    tm_jsonout_end(json);
}

static void put_cell_json(struct tm_jsonout *json, const struct tm_evaluation_cell *cell)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "network", cell->network);
    if (cell->step != NULL && cell->step->gpu[0] != '\0') tm_jsonout_string(json, "gpu", cell->step->gpu);
    if (cell->step != NULL) {
        tm_jsonout_string(json, "precision", tm_precision_names[cell->step->precision]);
        tm_jsonout_integer(json, "micro_batch", cell->step->micro_batch);
        tm_jsonout_bool(json, "recompute", cell->step->recompute != 0);
        tm_jsonout_bool(json, "compile", cell->step->compile != 0);
    }
    tm_jsonout_number(json, "measured_ms", cell->truth_ms);
    tm_jsonout_number(json, "predicted_ms", cell->estimate_ms.mean);
    tm_jsonout_number(json, "p10_ms", cell->estimate_ms.p10);
    tm_jsonout_number(json, "p90_ms", cell->estimate_ms.p90);
    tm_jsonout_number(json, "measured_gib", cell->truth_gib);
    tm_jsonout_number(json, "predicted_gib", cell->predicted_gib);
    tm_jsonout_end(json);
}

/* Nothing of the file was learned: the whole in three figures, and every cell. */
static void print_untrained_json(struct tm_cli *cli, const struct tm_evaluation *evaluation, size_t passed_over)
{
    const struct tm_errors *overall = &evaluation->overall;
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "split", tm_split_names[TM_SPLIT_UNTRAINED]);
    tm_jsonout_object(&json, "overall");
    tm_jsonout_integer(&json, "cells", (int64_t)overall->cells);
    tm_jsonout_number(&json, "mape_percent", overall->mape_percent);
    tm_jsonout_number(&json, "memory_mape_percent", overall->memory_cells > 0 ? overall->memory_mape_percent : NAN);
    tm_jsonout_number(&json, "in80_percent", overall->inside80_percent);
    tm_jsonout_number(&json, "bias_percent", overall->bias_percent);
    tm_jsonout_end(&json);
    tm_jsonout_integer(&json, "passed_over", (int64_t)passed_over);
    tm_jsonout_list(&json, "by");
    for (size_t i = 0; i < evaluation->network_count; i++)
        put_errors_json(&json, NULL, &evaluation->networks[i].errors, evaluation->networks[i].network);
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "cells");
    for (size_t i = 0; i < evaluation->cell_count; i++)
        put_cell_json(&json, &evaluation->cells[i]);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void print_json(struct tm_cli *cli, enum tm_split split, const struct tm_evaluation *evaluation,
                       size_t passed_over)
{
    struct tm_jsonout json;
    if (split == TM_SPLIT_UNTRAINED) {
        print_untrained_json(cli, evaluation, passed_over);
        return;
    }
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "split", tm_split_names[split]);
    put_errors_json(&json, "overall", &evaluation->overall, NULL);
    put_errors_json(&json, "gpu_bound", &evaluation->gpu_bound, NULL);
    if (evaluation->naive.cells > 0) put_errors_json(&json, "naive", &evaluation->naive, NULL);
    tm_jsonout_list(&json, "by");
    for (size_t i = 0; i < evaluation->network_count; i++)
        put_errors_json(&json, NULL, &evaluation->networks[i].errors, evaluation->networks[i].network);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void add_errors(struct tm_table *table, const char *name, const struct tm_errors *errors, bool memory)
{
    if (errors->cells == 0) return;
    tm_table_add(table, "%s", name);
    tm_table_add(table, "%zu", errors->cells);
    tm_table_add(table, "%.1f%%", errors->mape_percent);
    tm_table_add(table, "%.1f%%", errors->median_percent);
    tm_table_add(table, "%.1f%%", errors->p90_percent);
    tm_table_add(table, "%+.1f%%", errors->bias_percent);
    tm_table_add(table, "%.0f%%", errors->inside80_percent);
    if (memory && errors->memory_cells > 0) tm_table_add(table, "%.1f%%", errors->memory_mape_percent);
    if (memory && errors->memory_cells == 0) tm_table_add(table, "-");
}

static int print_table(struct tm_cli *cli, const struct tm_evaluation *evaluation, size_t passed_over,
                       struct tm_error *e)
{
    static const struct tm_column columns[] = {{"NETWORK", TM_LEFT, 0}, {"CELLS", TM_RIGHT, 0}, {"MAPE", TM_RIGHT, 0},
                                               {"MEDIAN", TM_RIGHT, 1}, {"P90", TM_RIGHT, 1},   {"BIAS", TM_RIGHT, 2},
                                               {"IN 80%", TM_RIGHT, 0}, {"MEMORY", TM_RIGHT, 0}};
    struct tm_table table;
    bool memory = evaluation->overall.memory_cells > 0;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns - (memory ? 0 : 1));
    for (size_t i = 0; i < evaluation->network_count; i++)
        add_errors(&table, evaluation->networks[i].network, &evaluation->networks[i].errors, memory);
    add_errors(&table, "overall", &evaluation->overall, memory);
    add_errors(&table, "GPU-bound", &evaluation->gpu_bound, memory);
    add_errors(&table, "(naive sum)", &evaluation->naive, memory);
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    if (rc == 0 && passed_over > 0)
        tm_text_printf(&cli->out, "%zu %s a measured time %s passed over.\n", passed_over,
                       passed_over == 1 ? "row without" : "rows without", passed_over == 1 ? "was" : "were");
    tm_table_deinit(&table);
    return rc;
}

static int evaluate(struct tm_cli *cli, const char *path, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_profile profile;
    struct tm_gpu_figures *gpus = NULL;
    struct tm_compute_model known;
    struct tm_profile shipped;
    struct tm_knowledge_names names = {.env = cli->env, .profile = &profile};
    struct tm_evaluation *evaluation = tm_calloc(1, sizeof *evaluation);
    if (evaluation == NULL) return tm_error_nomem(e);
    tm_catalog_init(&catalog);
    tm_profile_init(&profile);
    tm_profile_init(&shipped);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = tm_profile_load(cli->env, path, &profile, e);
    if (rc == 0) rc = tm_shipped_profiles(&shipped, e);
    bool runs = profile.run_count > 0 && profile.step_count == 0;
    int split = runs ? TM_SPLIT_LEAVE_ONE_BANDWIDTH : TM_SPLIT_TWO_BATCHES;
    if (rc == 0) rc = tm_given_choice(cli, "split", &split, e);
    if (rc == 0 && !runs && split == TM_SPLIT_LEAVE_ONE_BANDWIDTH)
        rc = tm_error_set(e, TM_EUSAGE, "--split leave-one-bandwidth is for data-parallel runs, and %s has none", path);
    if (split == TM_SPLIT_UNTRAINED) names.shipped = &shipped;
    if (rc == 0 && !runs) rc = tm_knowledge_step_gpus(&catalog, &profile, path, tm_given_text(cli, "gpu"), &gpus, e);
    if (rc == 0) rc = tm_knowledge_shipped(cli->env, &catalog, &known, e);
    if (rc == 0)
        rc = runs ? tm_evaluate_runs(&profile, (enum tm_split)split, evaluation, e)
                  : tm_evaluate_steps(&profile, (enum tm_split)split, gpus, &known, tm_knowledge_step_model, &names,
                                      evaluation, e);
    if (rc == 0 && names.no_memory) rc = tm_error_nomem(e);
    if (rc == 0 && cli->json)
        print_json(cli, (enum tm_split)split, evaluation, profile.passed_over);
    else if (rc == 0)
        rc = print_table(cli, evaluation, profile.passed_over, e);
    tm_evaluation_deinit(evaluation);
    tm_profile_deinit(&profile);
    tm_profile_deinit(&shipped);
    tm_free(gpus);
    tm_catalog_deinit(&catalog);
    tm_free(evaluation);
    return rc;
}

/* ---- predict ---- */

static bool allows_cloud(const void *context, const char *cloud)
{
    return tm_given_matches(context, "cloud", cloud);
}

static int read_layout(const char *text, struct tm_predict_request *request, struct tm_error *e)
{
    const char *x = strchr(text, 'x');
    int64_t pipelines = 0;
    int64_t stages = 0;
    if (strcmp(text, "best") == 0) return 0;
    if (x == NULL || !tm_number_i64(text, (size_t)(x - text), &pipelines) ||
        !tm_number_i64(x + 1, strlen(x + 1), &stages) || pipelines < 1 || stages < 1 || pipelines > 65536 ||
        stages > 65536)
        return tm_error_set(e, TM_EUSAGE,
                            "--layout: expected PIPELINESxSTAGES or best, got \"%.40s\"; write for example 4x2", text);
    request->pipelines = (int)pipelines;
    request->stages = (int)stages;
    return 0;
}

static void write_shares(struct tm_jsonout *json, const struct tm_prediction *p, const struct tm_described_fleet *fleet)
{
    tm_jsonout_list(json, "shares");
    for (size_t g = 0; p->tensor <= 1 && p->zero == 0 && g < fleet->group_count; g++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "instance", fleet->groups[g].instance);
        tm_jsonout_integer(json, "pipelines", p->group_pipelines[g]);
        tm_jsonout_integer(json, "micro_batches", p->group_micro_batches[g]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

/* `smallest`: what would hold a model that does not fit; NULL: it fits. */
static void print_prediction_json(struct tm_cli *cli, const struct tm_model *model, const struct tm_prediction *p,
                                  const struct tm_described_fleet *fleet, enum tm_precision precision, int batch,
                                  double correction, const char *smallest)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_object(&json, "step_s");
    tm_jsonout_number(&json, "mean", p->step_s.mean);
    tm_jsonout_number(&json, "p10", p->step_s.p10);
    tm_jsonout_number(&json, "p90", p->step_s.p90);
    tm_jsonout_end(&json);
    tm_jsonout_number(&json, "sustained_step_s", p->sustained_s);
    tm_jsonout_number(&json, "samples_per_s", p->samples_per_s);
    tm_jsonout_object(&json, "breakdown");
    tm_jsonout_number(&json, "compute_s", p->compute_s);
    tm_jsonout_number(&json, "exposed_comm_s", p->exposed_comm_s);
    tm_jsonout_number(&json, "bubble_s", p->bubble_s);
    tm_jsonout_number(&json, "optimizer_s", p->optimizer_s);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "layout");
    tm_jsonout_integer(&json, "pipelines", p->pipelines);
    tm_jsonout_integer(&json, "stages", p->stages);
    tm_jsonout_end(&json);
    tm_jsonout_integer(&json, "micro_batch", p->micro_batch);
    tm_jsonout_integer(&json, "micro_batches", p->micro_batches);
    write_shares(&json, p, fleet);
    tm_jsonout_integer(&json, "idle_gpus", p->idle_gpus);
    tm_jsonout_integer(&json, "global_batch", batch);
    tm_jsonout_string(&json, "input", model->input);
    tm_jsonout_string(&json, "precision", tm_precision_names[precision]);
    tm_jsonout_bool(&json, "recompute", p->recompute);
    tm_way_put_json(&json, p);
    if (smallest != NULL) tm_jsonout_string(&json, "smallest_that_fits", smallest[0] != '\0' ? smallest : NULL);
    tm_jsonout_list(&json, "memory_gib");
    for (int s = 0; s < p->stages; s++)
        tm_jsonout_number(&json, NULL, p->memory_gib[s]);
    tm_jsonout_end(&json);
    if (tm_given(cli, "observed")) tm_jsonout_number(&json, "observed_factor", correction);
    tm_jsonout_bool(&json, "fits", p->fits);
    tm_jsonout_string(&json, "limit", p->limit);
    tm_jsonout_object(&json, "usd_per_million_samples");
    tm_jsonout_number(&json, "on_demand", tm_usd_per_million(fleet->on_demand_usd_h, tm_prediction_lasting_rate(p)));
    tm_jsonout_number(&json, "spot", tm_usd_per_million(fleet->spot_usd_h, tm_prediction_lasting_rate(p)));
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

/* Observed steps of the running job, if any, move the prediction. */
static int correct(struct tm_cli *cli, struct tm_prediction *prediction, double *out_factor, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "observed");
    *out_factor = 1;
    if (path == NULL) return 0;
    struct tm_observed observed;
    tm_observed_init(&observed);
    int rc = tm_observed_load(cli->env, path, &observed, e);
    if (rc == 0) *out_factor = tm_observed_correct(&observed, prediction);
    tm_observed_deinit(&observed);
    return rc;
}

/* Does each type's share stand in the prediction? Ways beside data parallel and pipelines have none. */
static bool has_shares(const struct tm_prediction *p, const struct tm_described_fleet *fleet)
{
    return fleet->group_count > 1 && p->tensor <= 1 && p->zero == 0;
}

/* Who gets what, of a fleet of several types. */
static void print_shares(struct tm_text *out, const struct tm_prediction *p, const struct tm_described_fleet *fleet)
{
    for (size_t g = 0; has_shares(p, fleet) && g < fleet->group_count; g++) {
        int pipelines = p->group_pipelines[g];
        double each = pipelines > 0 ? (double)p->group_micro_batches[g] / pipelines : 0;
        tm_text_printf(out, "  %-12s %d micro-batches for %s: %d pipeline%s, %.4g each\n", g == 0 ? "shares" : "",
                       p->group_micro_batches[g], fleet->groups[g].instance, pipelines, pipelines == 1 ? "" : "s",
                       each);
    }
}

static void print_prediction(struct tm_cli *cli, const struct tm_model *model, const struct tm_prediction *p,
                             const struct tm_described_fleet *fleet, enum tm_precision precision, int batch)
{
    struct tm_text *out = &cli->out;
    tm_term_put(&cli->term, out, TM_BOLD, model->name);
    for (size_t g = 0; g < fleet->group_count; g++)
        tm_text_printf(out, "%s%d x %s (%s)", g == 0 ? " on " : " + ", fleet->groups[g].instances,
                       fleet->groups[g].instance, fleet->groups[g].gpu.name);
    tm_text_printf(out, ", %s, global batch %d\n\n", tm_precision_names[precision], batch);
    tm_text_printf(out, "  input        %s\n", model->input);
    tm_text_printf(out, "  layout       %d pipelines x %d stages, %d micro-batches of %d, activations %s\n",
                   p->pipelines, p->stages, p->micro_batches, p->micro_batch, p->recompute ? "recomputed" : "kept");
    print_shares(out, p, fleet);
    tm_text_puts(out, "  parallel     ");
    tm_way_put_words(out, p);
    tm_text_puts(out, tm_way_needs_own_engine(p) ? "; needs an engine of your own\n" : "\n");
    if (p->idle_gpus > 0)
        tm_text_printf(out, "  idle         %d of %d GPUs: %s\n", p->idle_gpus,
                       p->idle_gpus + p->pipelines * p->stages * (p->tensor > 1 ? p->tensor : 1),
                       tm_given(cli, "layout") ? "the layout leaves them out"
                                               : "no layout that was tried is faster with them");
    tm_text_printf(out, "  step         %.4g s (80%%: %.4g - %.4g)\n", p->step_s.mean, p->step_s.p10, p->step_s.p90);
    if (p->sustained_s > 1.02 * p->step_s.mean)
        tm_text_printf(out, "  in the end   %.4g s, once the links' burst is used up (%s)\n", p->sustained_s,
                       "they send more than their baseline");
    tm_text_printf(out, "  throughput   %.4g samples/s\n", p->samples_per_s);
    tm_text_printf(out,
                   "  of a step    compute %.0f%%, exposed communication %.0f%%, bubble %.0f%%, optimizer %.0f%%\n",
                   100 * p->compute_s / p->step_s.mean, 100 * p->exposed_comm_s / p->step_s.mean,
                   100 * p->bubble_s / p->step_s.mean, 100 * p->optimizer_s / p->step_s.mean);
    tm_text_printf(out, "  limited by   %s\n", p->limit);
    tm_text_puts(out, "  memory       ");
    for (int s = 0; s < p->stages && s < 8; s++)
        tm_text_printf(out, "%s%.1f", s > 0 ? ", " : "", p->memory_gib[s]);
    tm_text_printf(out, "%s of %.0f GiB a GPU\n", p->stages > 8 ? ", ..." : "", p->memory_limit_gib);
    if (!isnan(fleet->on_demand_usd_h))
        tm_text_printf(out, "  on-demand    $%.2f/h, $%.4g per million samples\n", fleet->on_demand_usd_h,
                       tm_usd_per_million(fleet->on_demand_usd_h, tm_prediction_lasting_rate(p)));
    if (!isnan(fleet->spot_usd_h))
        tm_text_printf(out, "  spot         $%.2f/h, $%.4g per million samples\n", fleet->spot_usd_h,
                       tm_usd_per_million(fleet->spot_usd_h, tm_prediction_lasting_rate(p)));
}

/* Probed links of the granted instances, if any, instead of what the catalogue says. */
static int use_links(struct tm_cli *cli, struct tm_described_fleet *fleet, struct tm_comm_model *comm,
                     struct tm_error *e)
{
    const char *path = tm_given_text(cli, "links");
    struct tm_probed_links links;
    if (path == NULL) return 0;
    int rc = tm_probed_links_load(cli->env, path, &links, e);
    if (rc == 0) tm_probed_links_use(&links, fleet->groups, fleet->group_count, comm);
    return rc;
}

/* Fleet, batch and layout as asked for. */
static int read_request(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                        struct tm_described_fleet *fleet, struct tm_predict_request *request, struct tm_error *e)
{
    int64_t batch = model->global_batch;
    int64_t micro_batch = model->micro_batch;
    int rc = tm_described_fleet_parse(catalog, tm_given_text(cli, "fleet"), allows_cloud, cli, fleet, e);
    if (rc != 0) return tm_error_wrap(e, rc, "--fleet");
    rc = tm_given_integer(cli, "batch", 1, 1 << 30, &batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "micro-batch", 1, 1 << 30, &micro_batch, e);
    if (rc == 0 && tm_given(cli, "layout")) rc = read_layout(tm_given_text(cli, "layout"), request, e);
    if (micro_batch > batch && !tm_given(cli, "micro-batch")) micro_batch = 0;
    if (batch == 0) batch = tm_described_fleet_batch(fleet);
    request->groups = fleet->groups;
    request->group_count = fleet->group_count;
    request->batch = (int)batch;
    request->micro_batch = (int)micro_batch;
    return rc;
}

struct tm_knowledge_source tm_cmd_source(const struct tm_cli *cli)
{
    return (struct tm_knowledge_source){.profile = tm_given_text(cli, "profile"),
                                        .profile_gpu = tm_given_text(cli, "profile-gpu"),
                                        .model = tm_given_text(cli, "model"),
                                        .network = tm_given_text(cli, "network")};
}

/* Beside data parallel and pipelines; a layout that was asked for is one of those. */
static int read_ways(struct tm_cli *cli, struct tm_predict_request *request, struct tm_error *e)
{
    request->ways = TM_WAY_SHARDED | TM_WAY_TENSOR;
    int rc = tm_given_ways(cli, &request->ways, e);
    if (rc == 0 && tm_given(cli, "parallel") && strcmp(tm_given_text(cli, "parallel"), "any") != 0 &&
        request->ways != 0 && request->stages > 0)
        return tm_error_set(e, TM_EUSAGE, "--parallel %s finds its own layout; leave --layout out",
                            tm_given_text(cli, "parallel"));
    return rc;
}

/* Rates that nobody publishes, and accelerators that nobody has measured. */
static void print_assumed_of(struct tm_cli *cli, const struct tm_predict_request *request,
                             const struct tm_instance_type *type)
{
    struct tm_network network = tm_network_of(request->model->layers, request->model->layer_count);
    const char *maker = tm_plan_maker(type);
    if (type->network_assumed)
        tm_text_printf(&cli->out, "  network      that of %s is not known: %g Gbit/s is taken, which any cloud gives\n",
                       type->name, type->network_gbps);
    if (strcmp(maker, "nvidia") != 0)
        tm_text_printf(&cli->out, "  accelerator  nobody has measured a %s for us: this is a GPU with the same peaks\n",
                       type->gpu);
    else if (request->measured_count == 0 &&
             !tm_compute_is_measured(request->compute, &network, type->gpu, request->precision))
        tm_text_printf(&cli->out,
                       "  accelerator  of such a network no step on %s GPUs is known: a common GPU of their "
                       "figures, in a wider interval\n",
                       type->gpu);
}

static void print_assumed(struct tm_cli *cli, const struct tm_catalog *catalog,
                          const struct tm_predict_request *request, const struct tm_described_fleet *fleet)
{
    for (size_t g = 0; g < fleet->group_count; g++)
        for (size_t i = 0; i < catalog->instance_count; i++) {
            if (strcmp(catalog->instances[i].name, fleet->names[g]) != 0) continue;
            print_assumed_of(cli, request, &catalog->instances[i]);
            break;
        }
}

/* What makes convolutions faster, and nobody asked for. */
static void print_hint(struct tm_cli *cli, const struct tm_model *model, enum tm_precision precision)
{
    const char *named = tm_given_text(cli, "model");
    if (model->channels_last || tm_precision_value_bytes(precision) >= 4) return;
    if (named == NULL || strpbrk(named, "/.,;") != NULL) return; /* names that ship take the key */
    if (model->layer_count == 0 || model->layers[0].kind != TM_LAYER_conv) return;
    tm_text_printf(&cli->out,
                   "  hint         values laid out channels last make convolutions in %s faster: --model "
                   "%s,channels_last=1\n",
                   tm_precision_names[precision], model->name);
}

static int predict_on(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                      struct tm_knowledge *knowledge, struct tm_error *e)
{
    struct tm_described_fleet fleet;
    struct tm_prediction prediction = {.fits = false};
    struct tm_predict_request request = {.model = model, .burst = true};
    double correction = 1;
    struct tm_knowledge_source source = tm_cmd_source(cli);
    int asked = tm_knowledge_precision(&source, knowledge, model, cli->settings.precision);
    int rc = read_request(cli, catalog, model, &fleet, &request, e);
    if (rc == 0) rc = tm_given_choice(cli, "precision", &asked, e);
    if (rc == 0) rc = read_ways(cli, &request, e);
    request.precision = rc == 0 ? tm_described_fleet_precision(&fleet, asked) : TM_FP32;
    if (rc == 0) rc = tm_knowledge_learn(cli->env, &source, catalog, model, (int)request.precision, knowledge, e);
    if (rc == 0) tm_described_fleet_knowledge(&fleet, knowledge, &request);
    if (rc == 0) rc = use_links(cli, &fleet, &knowledge->comm, e);
    if (rc == 0) rc = tm_predict(&request, &prediction, e);
    if (rc == 0) rc = correct(cli, &prediction, &correction, e);
    char smallest[192] = "";
    if (rc == -(int)TM_ENONE)
        tm_described_fleet_smallest(catalog, &request, allows_cloud, cli, smallest, sizeof smallest);
    if (rc == -(int)TM_ENONE && !cli->json && smallest[0] != '\0') {
        char text[sizeof e->text];
        (void)snprintf(text, sizeof text, "%s", e->text);
        return tm_error_set(e, TM_ENONE, "%s; the smallest that holds it: %s", text, smallest);
    }
    if (rc == -(int)TM_ENONE && cli->json) { /* the document says that and why it does not fit */
        print_prediction_json(cli, model, &prediction, &fleet, request.precision, request.batch, correction, smallest);
        cli->exit_status = tm_code_exit_status(TM_ENONE);
        rc = 0;
    } else if (rc == 0 && cli->json) {
        print_prediction_json(cli, model, &prediction, &fleet, request.precision, request.batch, correction, NULL);
    } else if (rc == 0) {
        print_prediction(cli, model, &prediction, &fleet, request.precision, request.batch);
        print_assumed(cli, catalog, &request, &fleet);
        print_hint(cli, model, request.precision);
        if (tm_given(cli, "observed"))
            tm_text_printf(&cli->out, "  observed     the job's own steps changed the prediction by %+.1f%%\n",
                           100 * (correction - 1));
    }
    return rc;
}

static int predict_fleet(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_knowledge knowledge;
    struct tm_knowledge_source source = tm_cmd_source(cli);
    bool workers = tm_given(cli, "workers");
    bool list = tm_given(cli, "model") && strcmp(tm_given_text(cli, "model"), "list") == 0;
    if (!list && (!(tm_given(cli, "model") || tm_given(cli, "profile")) || !(tm_given(cli, "fleet") || workers)))
        return tm_error_set(e, TM_EUSAGE,
                            "give a model and a fleet: tidemill predict --model gpt2-124m --fleet \"8x p3.2xlarge\", "
                            "or --profile FILE --workers 4 --mbit 1000");
    tm_catalog_init(&catalog);
    tm_model_init(&model);
    tm_knowledge_init(&knowledge);
    int rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) tm_catalog_assume_network(&catalog);
    if (rc == 0) rc = tm_knowledge_read(cli->env, &source, &knowledge, e);
    if (rc == 0 && workers) rc = tm_predict_workers(cli, &catalog, &knowledge, e);
    if (rc == 0 && !workers) rc = tm_knowledge_model(cli->env, &source, &knowledge, &model, e);
    if (rc == 0 && !workers) rc = predict_on(cli, &catalog, &model, &knowledge, e);
    tm_knowledge_deinit(&knowledge);
    tm_model_deinit(&model);
    tm_catalog_deinit(&catalog);
    return rc;
}

/* ---- scaling ---- */

static void put_fitted(struct tm_jsonout *json, const char *key, double value, double error)
{
    tm_jsonout_object(json, key);
    tm_jsonout_number(json, "value", value);
    tm_jsonout_number(json, "error", error);
    tm_jsonout_end(json);
}

static void print_scaling_json(struct tm_cli *cli, const struct tm_scaling_fit *fit, size_t points)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_integer(&json, "points", (int64_t)points);
    put_fitted(&json, "a", fit->a, fit->a_error);
    put_fitted(&json, "b", fit->b, fit->b_error);
    put_fitted(&json, "c", fit->c, fit->c_error);
    tm_jsonout_object(&json, "physical");
    tm_jsonout_number(&json, "work_s", fit->work_s);
    tm_jsonout_number(&json, "exchange_s", fit->exchange_s);
    tm_jsonout_number(&json, "latency_s", fit->latency_s);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "error_percent");
    tm_jsonout_number(&json, "logistic", fit->logistic_percent);
    tm_jsonout_number(&json, "deepvm_estimate", fit->estimate_percent);
    tm_jsonout_number(&json, "physical", fit->physical_percent);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int fit_scaling(struct tm_cli *cli, const char *path, struct tm_error *e)
{
    struct tm_scaling_data data;
    struct tm_scaling_fit fit;
    tm_scaling_data_init(&data);
    int rc = tm_scaling_data_load(cli->env, path, &data, e);
    if (rc == 0) rc = tm_scaling_fit(&data, &fit, e);
    if (rc == 0 && cli->json) {
        print_scaling_json(cli, &fit, data.count);
    } else if (rc == 0) {
        tm_text_printf(&cli->out,
                       "DeepVM's speed-up curve S(n) = c / (1 + exp(-a (n - b))), %zu measurements\n"
                       "  a = %.6g +- %.2g\n  b = %.6g +- %.2g\n  c = %.6g +- %.2g\n"
                       "Time T(n) = (work + exchange 2 (n - 1) / n + latency (n - 1)) / n\n"
                       "  work = %.4g s, exchange = %.4g s, latency = %.4g s\n"
                       "Mean error in speed-up: logistic %.1f%%, DeepVM's estimate from it %.1f%%, ours %.1f%%\n",
                       data.count, fit.a, fit.a_error, fit.b, fit.b_error, fit.c, fit.c_error, fit.work_s,
                       fit.exchange_s, fit.latency_s, fit.logistic_percent, fit.estimate_percent, fit.physical_percent);
    }
    tm_scaling_data_deinit(&data);
    return rc;
}

int tm_cmd_predict(struct tm_cli *cli, struct tm_error *e)
{
    const char *path = tm_given_text(cli, "evaluate");
    if (cli->argument_count > 0) return tm_error_set(e, TM_EUSAGE, "predict takes no arguments; see its options");
    if (tm_given(cli, "fit-scaling")) return fit_scaling(cli, tm_given_text(cli, "fit-scaling"), e);
    return path != NULL ? evaluate(cli, path, e) : predict_fleet(cli, e);
}

const struct tm_option tm_predict_options[] = {
    {.name = "model",
     .value = "NAME",
     .help = "a shipped model, a model file, or a formula such as llama:layers=32,hidden=4096"},
    {.name = "fleet",
     .value = "LIST",
     .help = "instances, for example \"8x p3.2xlarge\" or \"4x g5.xlarge, 2x g4dn.xlarge\""},
    {.name = "batch", .value = "N", .help = "global batch (the model's own, or 8 per GPU)"},
    {.name = "micro-batch",
     .value = "N",
     .help = "samples that go through a pipeline at once (the model's own, or the best power of 2)"},
    {.name = "layout", .value = "DxP", .help = "D pipelines of P stages, or best"},
    {.name = "parallel",
     .value = "NAME",
     .help =
         "ways to try: data parallel and pipelines (data), sharded data parallel, too (sharded), tensor parallel, too "
         "(tensor), or any (without --layout)",
     .choices = tm_way_choices},
    {.name = "precision", .value = "NAME", .help = "number format of training", .choices = tm_precision_names},
    {.name = "profile",
     .value = "FILE",
     .help = "profile of this job from tidemill profile, instead of --model; or measured steps to learn from"},
    {.name = "network", .value = "NAME", .help = "which network of the profile, if it has several"},
    {.name = "workers",
     .value = "N,...",
     .help = "instead of a fleet: number of data-parallel workers, each like the one profiled"},
    {.name = "mbit", .value = "RATE,...", .help = "with --workers: bandwidth of each worker's link, in Mbit/s"},
    {.name = "per-host", .value = "N", .help = "with --workers: how many share one machine's processors (1)"},
    {.name = "profile-gpu", .value = "NAME", .help = "GPU of --profile, if the file does not say"},
    {.name = "observed",
     .value = "FILE",
     .help = "step times of the running job, in seconds, to correct the prediction"},
    {.name = "links",
     .value = "FILE",
     .help = "probed links between the instances: CSV with mbit, and optionally latency_ms"},
    {.name = "cloud", .value = "NAME", .help = "cloud of the instance types, if several clouds use the name"},
    {.name = "evaluate", .value = "FILE", .help = "hold back parts of a profile, predict them, and show the errors"},
    {.name = "split", .value = "NAME", .help = "what is held back", .choices = tm_split_names},
    {.name = "fit-scaling", .value = "FILE", .help = "fit DeepVM's speed-up curve, and ours, to CSV of nodes,seconds"},
    {.name = "gpu", .value = "NAME", .help = "GPU of --evaluate's profile, if the file does not say"},
    {.name = NULL},
};

/* predict --profile FILE --workers 1,2,4 --mbit 100,1000: a table of iterations. */
#include "base/jsonout.h"
#include "base/number.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/knowledge_source.h"
#include "job/replica_job.h"
#include "workload/probed_links.h"

#include <math.h>
#include <string.h>

enum { ASKED_MAX = 64, LIST_MAX = 32 };

/* One row of the answer. */
struct cell {
    int workers;
    double mbit; /* NaN: one worker needs no link */
    struct tm_replica_prediction prediction;
};

struct asked {
    struct tm_replica_job job;
    int workers[LIST_MAX];
    size_t worker_count;
    double mbit[LIST_MAX];
    size_t mbit_count;
    int64_t batch; /* global; 0: each worker as profiled */
    struct cell cells[ASKED_MAX];
    size_t count;
};

/* Numbers separated by commas. */
static int read_list(struct tm_cli *cli, const char *option, double max, double *out, size_t *out_count,
                     struct tm_error *e)
{
    const char *text = tm_given_text(cli, option);
    *out_count = 0;
    for (const char *at = text; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        double number = 0;
        if (!tm_number_double(at, length, &number) || !(number > 0) || number > max)
            return tm_error_set(e, TM_EUSAGE, "--%s: expected numbers above 0 such as 100,1000, got \"%.40s\"", option,
                                at);
        if (*out_count == LIST_MAX) return tm_error_set(e, TM_ELIMIT, "--%s: more than %d", option, LIST_MAX);
        out[(*out_count)++] = number;
        at += length + (at[length] == ',');
    }
    return 0;
}

static int read_workers(struct tm_cli *cli, struct asked *asked, struct tm_error *e)
{
    double numbers[LIST_MAX];
    int rc = read_list(cli, "workers", TM_REPLICA_WORKERS_MAX, numbers, &asked->worker_count, e);
    for (size_t i = 0; rc == 0 && i < asked->worker_count; i++) {
        asked->workers[i] = (int)numbers[i];
        if (asked->workers[i] != numbers[i])
            rc = tm_error_set(e, TM_EUSAGE, "--workers: expected whole numbers such as 2,4");
    }
    if (rc == 0 && asked->worker_count == 0) rc = tm_error_set(e, TM_EUSAGE, "--workers: empty; write for example 2,4");
    return rc;
}

/* Links as given or as probed. */
static int read_links(struct tm_cli *cli, struct asked *asked, struct tm_error *e)
{
    bool several = false;
    int rc = read_list(cli, "mbit", 1e9, asked->mbit, &asked->mbit_count, e);
    for (size_t i = 0; i < asked->worker_count; i++)
        several = several || asked->workers[i] > 1;
    if (rc == 0 && tm_given(cli, "links")) {
        struct tm_probed_links links;
        if (asked->mbit_count > 0)
            return tm_error_set(e, TM_EUSAGE, "--mbit and --links both set the bandwidth; give one of them");
        rc = tm_probed_links_load(cli->env, tm_given_text(cli, "links"), &links, e);
        if (rc != 0) return rc;
        asked->mbit[0] = links.rate_bit_s / 1e6;
        asked->mbit_count = 1;
        tm_comm_probed(links.latency_ms, links.spread, &asked->job.comm);
    }
    if (rc == 0 && several && asked->mbit_count == 0)
        rc = tm_error_set(e, TM_EUSAGE,
                          "give the bandwidth between the workers: --mbit 1000, or --links FILE from tidemill probe");
    return rc;
}

static int read_job(struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_knowledge *knowledge,
                    struct asked *asked, struct tm_error *e)
{
    struct tm_knowledge_source source = tm_cmd_source(cli);
    int precision = TM_PRECISION_MIXED;
    int64_t micro_batch = 0;
    int64_t per_host = 1;
    if (source.profile == NULL)
        return tm_error_set(e, TM_EUSAGE, "--workers needs a --profile of the job (tidemill profile)");
    int rc = tm_given_choice(cli, "precision", &precision, e);
    if (rc == 0) rc = tm_given_integer(cli, "batch", 1, 1 << 30, &asked->batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "micro-batch", 1, 1 << 30, &micro_batch, e);
    if (rc == 0) rc = tm_given_integer(cli, "per-host", 1, 1024, &per_host, e);
    if (rc == 0) rc = tm_replica_job_init(cli->env, &source, catalog, precision, knowledge, &asked->job, e);
    asked->job.request.batch = (int)micro_batch;
    asked->job.request.per_host = (int)per_host;
    return rc;
}

static int predict_cells(struct asked *asked, struct tm_error *e)
{
    for (size_t w = 0; w < asked->worker_count; w++) {
        size_t links = asked->workers[w] > 1 ? asked->mbit_count : 1;
        for (size_t m = 0; m < links; m++) {
            struct tm_replica_request request = asked->job.request;
            struct cell cell = {.workers = asked->workers[w], .mbit = asked->workers[w] > 1 ? asked->mbit[m] : NAN};
            if (asked->count == ASKED_MAX)
                return tm_error_set(e, TM_ELIMIT, "more than %d rows; use fewer workers or bandwidths", ASKED_MAX);
            request.workers = cell.workers;
            request.rate_bit_s = cell.mbit * 1e6;
            int rc = asked->batch > 0 ? tm_replica_share_batch(asked->batch, &request, e) : 0;
            if (rc != 0) return tm_error_wrap(e, rc, "--batch");
            rc = tm_replica_predict(&request, &cell.prediction, e);
            if (rc != 0) return rc;
            asked->cells[asked->count++] = cell;
        }
    }
    return 0;
}

static void print_json(struct tm_cli *cli, const struct asked *asked)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "network", asked->job.request.network);
    tm_jsonout_string(&json, "device", asked->job.request.gpu);
    tm_jsonout_string(&json, "precision", tm_precision_names[asked->job.request.precision]);
    tm_jsonout_list(&json, "predictions");
    for (size_t i = 0; i < asked->count; i++) {
        const struct cell *cell = &asked->cells[i];
        const struct tm_replica_prediction *p = &cell->prediction;
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "workers", cell->workers);
        tm_jsonout_number(&json, "mbit", cell->mbit);
        tm_jsonout_integer(&json, "micro_batch", p->batch);
        tm_jsonout_integer(&json, "micro_batches", p->micro_batches);
        tm_jsonout_bool(&json, "batch_profiled", p->profiled);
        tm_jsonout_object(&json, "step_ms");
        tm_jsonout_number(&json, "mean", p->step_ms.mean);
        tm_jsonout_number(&json, "p10", p->step_ms.p10);
        tm_jsonout_number(&json, "p90", p->step_ms.p90);
        tm_jsonout_end(&json);
        tm_jsonout_number(&json, "samples_per_s", p->samples_per_s);
        tm_jsonout_object(&json, "breakdown");
        tm_jsonout_number(&json, "compute_ms", p->compute_ms);
        tm_jsonout_number(&json, "exposed_comm_ms", p->exposed_ms);
        tm_jsonout_number(&json, "optimizer_ms", p->optimizer_ms);
        tm_jsonout_number(&json, "data_ms", p->data_ms);
        tm_jsonout_number(&json, "other_ms", p->other_ms);
        tm_jsonout_end(&json);
        tm_jsonout_integer(&json, "buckets", (int64_t)p->buckets);
        tm_jsonout_number(&json, "gradient_bytes", p->grad_bytes);
        tm_jsonout_number(&json, "crowding", p->crowding);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int print_table(struct tm_cli *cli, const struct asked *asked, struct tm_error *e)
{
    static const struct tm_column columns[] = {{"WORKERS", TM_RIGHT, 0},
                                               {"LINK (Mbit/s)", TM_RIGHT, 0},
                                               {"BATCH", TM_RIGHT, 1},
                                               {"STEP (ms)", TM_RIGHT, 0},
                                               {"80%", TM_LEFT, 2},
                                               {"COMPUTE", TM_RIGHT, 0},
                                               {"COMMUNICATION", TM_RIGHT, 0},
                                               {"REST", TM_RIGHT, 2},
                                               {"SAMPLES/S", TM_RIGHT, 0}};
    struct tm_table table;
    tm_term_put(&cli->term, &cli->out, TM_BOLD, asked->job.request.network);
    tm_text_printf(&cli->out, " on workers like the one profiled (%s, %s)\n\n", asked->job.request.gpu,
                   tm_precision_names[asked->job.request.precision]);
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < asked->count; i++) {
        const struct cell *cell = &asked->cells[i];
        const struct tm_replica_prediction *p = &cell->prediction;
        double mean = p->step_ms.mean;
        tm_table_add(&table, "%d", cell->workers);
        if (isnan(cell->mbit))
            tm_table_add(&table, "-");
        else
            tm_table_add(&table, "%.4g", cell->mbit);
        tm_table_add(&table, "%lld%s", (long long)cell->workers * p->micro_batches * p->batch, p->profiled ? "" : "*");
        tm_table_add(&table, "%.4g", mean);
        tm_table_add(&table, "%.4g - %.4g", p->step_ms.p10, p->step_ms.p90);
        tm_table_add(&table, "%.0f%%", 100 * p->compute_ms / mean);
        tm_table_add(&table, "%.0f%%", 100 * p->exposed_ms / mean);
        tm_table_add(&table, "%.0f%%", 100 * (p->optimizer_ms + p->data_ms + p->other_ms) / mean);
        tm_table_add(&table, "%.4g", p->samples_per_s);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    bool moved = false;
    for (size_t i = 0; i < asked->count; i++)
        moved = moved || !asked->cells[i].prediction.profiled;
    if (moved) tm_text_puts(&cli->out, "\n* a batch that was not profiled\n");
    if (asked->count > 0 && asked->cells[asked->count - 1].prediction.crowding > 1)
        tm_text_printf(&cli->out, "\nWorkers that share a machine's processors: %.2g times slower\n",
                       asked->cells[asked->count - 1].prediction.crowding);
    return rc;
}

int tm_predict_workers(struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_knowledge *knowledge,
                       struct tm_error *e)
{
    struct asked *asked = tm_arena_alloc(&cli->arena, sizeof *asked);
    if (asked == NULL) return tm_error_nomem(e);
    *asked = (struct asked){.count = 0};
    if (tm_given(cli, "fleet") || tm_given(cli, "layout"))
        return tm_error_set(e, TM_EUSAGE, "--workers are like the one profiled: leave out --fleet and --layout");
    int rc = read_workers(cli, asked, e);
    if (rc == 0) rc = read_job(cli, catalog, knowledge, asked, e);
    if (rc == 0) rc = read_links(cli, asked, e);
    if (rc == 0) rc = predict_cells(asked, e);
    if (rc == 0 && cli->json)
        print_json(cli, asked);
    else if (rc == 0)
        rc = print_table(cli, asked, e);
    tm_replica_job_deinit(&asked->job);
    return rc;
}

#include "base/address.h"
#include "base/jsonout.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/commands.h"
#include "wire/probe.h"
#include "wire/tls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINKS_BYTES_MAX = 1 << 20 };

const struct tm_option tm_probe_options[] = {
    {.name = "serve",
     .value = "ADDRESS",
     .help = "answer probes on ADDRESS (host:port; port 0 picks one) until stopped"},
    {.name = "tls",
     .value = "DIR",
     .help = "certificates of the job, the same on all machines; needed except on loopback"},
    {.name = "make-credential", .value = "DIR", .help = "make such certificates, to copy to all machines"},
    {.name = "output",
     .letter = 'o',
     .value = "FILE",
     .help = "write the links as CSV, for predict and its option links"},
    {.name = "duration", .value = "DURATION", .help = "length of each test (1s)"},
    {.name = "streams", .value = "N", .help = "streams of the test with several streams (4)"},
    {.name = NULL},
};

/* ---- serving ---- */

static void say_bound(void *context, const char *address)
{
    struct tm_cli *cli = context;
    if (cli->json)
        (void)printf("{\"address\": \"%s\"}\n", address);
    else
        (void)printf("answering probes on %s\n", address);
    (void)fflush(stdout); /* whoever started this waits for the line */
}

static int serve(struct tm_cli *cli, struct tm_tls *tls, struct tm_error *e)
{
    static atomic_bool never;
    struct tm_probe_server server = {
        .address = tm_given_text(cli, "serve"), .tls = tls, .bound = say_bound, .context = cli, .stop = &never};
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "--serve only answers probes; leave it out to probe peers");
    return tm_probe_serve(cli->env, &server, e);
}

/* ---- probing ---- */

struct probe {
    struct tm_cli *cli;
    struct tm_probe_request request;
    struct tm_probe_report report;
    struct tm_progress bar;
};

static void show_progress(void *context, const char *what, double share)
{
    struct probe *probe = context;
    (void)what;
    tm_progress_update(&probe->bar, (int64_t)(share * 1000));
}

static const char *name_of(const struct probe *probe, int machine)
{
    return machine < 0 ? "here" : probe->request.peers[machine];
}

static void put_figure(struct tm_text *out, double figure)
{
    if (!isnan(figure)) tm_text_printf(out, "%.6g", figure);
}

/* As workload/probed_links.h reads them. */
static int write_links(const struct probe *probe, const char *path, struct tm_error *e)
{
    struct tm_cli *cli = probe->cli;
    struct tm_text text;
    tm_text_init(&text, LINKS_BYTES_MAX);
    tm_text_puts(&text, "from,to,mbit,latency_ms,both_mbit,streams_mbit,together_mbit\n");
    for (size_t i = 0; i < probe->report.link_count; i++) {
        const struct tm_probe_link *link = &probe->report.links[i];
        const double figures[] = {link->rate / 1e6, link->latency_ms, link->both / 1e6, link->streams / 1e6,
                                  link->together / 1e6};
        tm_text_printf(&text, "%s,%s", name_of(probe, link->from), name_of(probe, link->to));
        for (size_t k = 0; k < sizeof figures / sizeof *figures; k++) {
            tm_text_putc(&text, ',');
            put_figure(&text, figures[k]);
        }
        tm_text_putc(&text, '\n');
    }
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = cli->env->file_write(cli->env, path, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    return rc;
}

static void print_json(const struct probe *probe)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &probe->cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "links");
    for (size_t i = 0; i < probe->report.link_count; i++) {
        const struct tm_probe_link *link = &probe->report.links[i];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "from", name_of(probe, link->from));
        tm_jsonout_string(&json, "to", name_of(probe, link->to));
        tm_jsonout_number(&json, "latency_ms", link->latency_ms);
        tm_jsonout_number(&json, "mbit", link->rate / 1e6);
        tm_jsonout_number(&json, "both_mbit", link->both / 1e6);
        tm_jsonout_number(&json, "streams_mbit", link->streams / 1e6);
        tm_jsonout_number(&json, "together_mbit", link->together / 1e6);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "messages");
    for (size_t p = 0; p < probe->request.peer_count; p++) {
        for (size_t s = 0; s < TM_PROBE_SIZES; s++) {
            if (isnan(probe->report.size_ms[p][s])) continue;
            tm_jsonout_object(&json, NULL);
            tm_jsonout_string(&json, "to", probe->request.peers[p]);
            tm_jsonout_integer(&json, "bytes", (int64_t)tm_probe_sizes[s]);
            tm_jsonout_number(&json, "ms", probe->report.size_ms[p][s]);
            tm_jsonout_end(&json);
        }
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void add_rate(struct tm_table *table, double bits_s)
{
    if (isnan(bits_s))
        tm_table_add(table, "-");
    else
        tm_table_add(table, bits_s < 1e9 ? "%.4g" : "%.0f", bits_s / 1e6);
}

static int print_links(const struct probe *probe, struct tm_error *e)
{
    char streams[32];
    (void)snprintf(streams, sizeof streams, "%d STREAMS", probe->request.streams);
    const struct tm_column columns[] = {{"FROM", TM_LEFT, 0},          {"TO", TM_LEFT, 0},
                                        {"LATENCY (ms)", TM_RIGHT, 0}, {"ONE WAY (Mbit/s)", TM_RIGHT, 0},
                                        {"BOTH WAYS", TM_RIGHT, 0},    {streams, TM_RIGHT, 1},
                                        {"ALL AT ONCE", TM_RIGHT, 0}};
    struct tm_table table;
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < probe->report.link_count; i++) {
        const struct tm_probe_link *link = &probe->report.links[i];
        tm_table_add(&table, "%s", name_of(probe, link->from));
        tm_table_add(&table, "%s", name_of(probe, link->to));
        tm_table_add(&table, "%.3g", link->latency_ms);
        add_rate(&table, link->rate);
        add_rate(&table, link->both);
        add_rate(&table, link->streams);
        add_rate(&table, link->together);
    }
    int rc = tm_table_print(&table, &probe->cli->term, &probe->cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static int print_sizes(const struct probe *probe, struct tm_error *e)
{
    static const struct tm_column columns[] = {
        {"MESSAGE", TM_RIGHT, 0}, {"TO", TM_LEFT, 0}, {"THERE AND BACK (ms)", TM_RIGHT, 0}, {"Mbit/s", TM_RIGHT, 0}};
    struct tm_table table;
    char size[TM_UNITS_TEXT_MAX];
    tm_text_putc(&probe->cli->out, '\n');
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t p = 0; p < probe->request.peer_count; p++) {
        for (size_t s = 0; s < TM_PROBE_SIZES; s++) {
            double ms = probe->report.size_ms[p][s];
            if (isnan(ms)) continue; /* would have taken too long */
            tm_table_add(&table, "%s", tm_unit_print(TM_UNIT_BYTES, (int64_t)tm_probe_sizes[s], size));
            tm_table_add(&table, "%s", probe->request.peers[p]);
            tm_table_add(&table, "%.3g", ms);
            add_rate(&table, (double)tm_probe_sizes[s] * 8 / ms * 1e3);
        }
    }
    int rc = tm_table_print(&table, &probe->cli->term, &probe->cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

/* How much of a link is left when all use theirs. */
static void print_loss(const struct probe *probe, const char *path)
{
    double alone = 0;
    double together = 0;
    for (size_t i = 0; i < probe->report.link_count; i++) {
        const struct tm_probe_link *link = &probe->report.links[i];
        if (isnan(link->together)) continue;
        alone += link->rate;
        together += link->together;
    }
    struct tm_text *out = &probe->cli->out;
    if (alone > 0)
        tm_text_printf(out, "\nWith all links busy, a link has %.0f%% of its bandwidth alone.\n",
                       100 * together / alone);
    if (path != NULL)
        tm_text_printf(out,
                       "Written to %s. Next:\n  tidemill predict --profile job.tmprofile --workers %zu --links %s\n",
                       path, probe->request.peer_count + 1, path);
}

static int run_probe(struct probe *probe, struct tm_error *e)
{
    struct tm_cli *cli = probe->cli;
    const char *path = tm_given_text(cli, "output");
    tm_progress_start(&probe->bar, cli->env, tm_term_detect(cli->env, 2, TM_COLOR_AUTO), "probing", 1000);
    int rc = tm_probe_run(cli->env, &probe->request, &probe->report, e);
    tm_progress_finish(&probe->bar);
    if (rc == 0 && path != NULL) rc = write_links(probe, path, e);
    if (rc != 0) return rc;
    if (cli->json) {
        print_json(probe);
        return 0;
    }
    rc = print_links(probe, e);
    if (rc == 0) rc = print_sizes(probe, e);
    if (rc == 0) print_loss(probe, path);
    return rc;
}

static int probe_peers(struct tm_cli *cli, struct tm_tls *tls, struct tm_error *e)
{
    int64_t duration_ms = 1000;
    int64_t streams = 4;
    if (cli->argument_count == 0)
        return tm_error_set(
            e, TM_EUSAGE,
            "give the peers to probe: tidemill probe HOST:PORT..., where tidemill probe --serve is running");
    for (size_t i = 0; i < cli->argument_count; i++) {
        if (strpbrk(cli->arguments[i], ",\"\n") != NULL || strrchr(cli->arguments[i], ':') == NULL)
            return tm_error_set(e, TM_EUSAGE, "expected HOST:PORT, got \"%.60s\"", cli->arguments[i]);
        char host[TM_ADDRESS_MAX];
        char port[TM_PORT_MAX];
        int rc = tm_address_split(cli->arguments[i], host, port, e);
        if (rc != 0) return rc;
    }
    int rc = tm_given_duration(cli, "duration", &duration_ms, e);
    if (rc == 0) rc = tm_given_integer(cli, "streams", 1, TM_PROBE_STREAMS_MAX, &streams, e);
    if (rc == 0 && (duration_ms < 50 || duration_ms > 30000))
        rc = tm_error_set(e, TM_EUSAGE, "--duration: expected from 50ms to 30s");
    if (rc != 0) return rc;
    struct probe *probe = tm_arena_alloc(&cli->arena, sizeof *probe);
    if (probe == NULL) return tm_error_nomem(e);
    *probe = (struct probe){.cli = cli,
                            .request = {.peers = cli->arguments,
                                        .peer_count = cli->argument_count,
                                        .tls = tls,
                                        .duration_ms = duration_ms,
                                        .streams = (int)streams,
                                        .progress = cli->quiet ? NULL : show_progress}};
    probe->request.context = probe;
    return run_probe(probe, e);
}

static int make_credential(struct tm_cli *cli, const char *folder, struct tm_error *e)
{
    int rc = tm_tls_make_job(cli->env, folder, e);
    if (rc == 0 && !cli->json)
        tm_text_printf(&cli->out,
                       "Made %s. Copy it to every machine, keep it secret, and then:\n"
                       "  tidemill probe --serve 0.0.0.0:7070 --tls %s     # on all machines but one\n"
                       "  tidemill probe HOST:7070... --tls %s             # on that one\n",
                       folder, folder, folder);
    return rc;
}

int tm_cmd_probe(struct tm_cli *cli, struct tm_error *e)
{
    const char *folder = tm_given_text(cli, "tls");
    struct tm_tls *tls = NULL;
    if (tm_given(cli, "make-credential")) return make_credential(cli, tm_given_text(cli, "make-credential"), e);
    int rc = folder != NULL ? tm_tls_load(cli->env, folder, &tls, e) : 0;
    if (rc == 0) rc = tm_given(cli, "serve") ? serve(cli, tls, e) : probe_peers(cli, tls, e);
    tm_tls_destroy(tls);
    return rc;
}

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/cloud_accounts.h"
#include "cli/commands.h"
#include "cli/web_tape.h"
#include "cloud/rented.h"
#include "market/catalog.h"
#include "store/copy_store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const emit_names[] = {"policy", NULL};

static const struct tm_option list_options[] = {
    {.name = "job", .value = "NAME", .help = "only what was rented for the job of this name"},
    TM_TAPE_OPTIONS,
    {.name = NULL},
};
static const struct tm_option clean_options[] = {
    {.name = "job", .value = "NAME", .help = "only what was rented for the job of this name"},
    {.name = "yes", .letter = 'y', .help = "do not ask"},
    TM_TAPE_OPTIONS,
    {.name = NULL},
};
static const struct tm_option check_options[] = {
    {.name = "image", .value = "IMAGE", .help = "the image to rent with (the cloud's newest for GPUs)"},
    {.name = "bucket",
     .value = "PLACE",
     .help = "try whether copies can be kept there: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX"},
    {.name = "emit",
     .value = "WHAT",
     .help = "print the least permissions, as the cloud's own tools take them",
     .choices = emit_names},
    TM_TAPE_OPTIONS,
    {.name = NULL},
};

/* ---- list ---- */

/* Those of one cloud, behind what is there. */
static int find_in(struct tm_cli *cli, const struct tm_cloud_kind *kind, const struct tm_catalog *catalog,
                   struct tm_rented_list *out, struct tm_error *e)
{
    struct tm_rented_list found = {.items = NULL};
    const char *job = tm_given_text(cli, "job");
    int rc = kind->find(cli->env, catalog, &found, e);
    for (size_t i = 0; rc == 0 && i < found.count; i++) {
        found.items[i].cloud = kind->name;
        if (job != NULL && strcmp(found.items[i].job, job) != 0) continue;
        rc = tm_grow((void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items, SIZE_MAX / 2);
        if (rc != 0) rc = tm_error_nomem(e);
        if (rc == 0) out->items[out->count++] = found.items[i];
    }
    tm_rented_list_deinit(&found);
    return rc;
}

/* Is this cloud to be asked? The one that was named, else all that are set up; AWS where none is, which says what to
 * do. */
static bool is_asked(struct tm_cli *cli, const struct tm_cloud_kind *kind)
{
    if (cli->argument_count > 0) return strcmp(kind->name, cli->arguments[0]) == 0;
    if (tm_cloud_kind_is_set(cli->env, kind)) return true;
    bool any = false;
    for (size_t i = 0; tm_cloud_kind_at(i) != NULL; i++)
        any = any || tm_cloud_kind_is_set(cli->env, tm_cloud_kind_at(i));
    return !any && kind == tm_cloud_kind_at(0);
}

/* All of them, or those of the cloud or the job. */
static int find(struct tm_cli *cli, struct tm_rented_list *out, struct tm_error *e)
{
    struct tm_catalog catalog;
    const struct tm_cloud_kind *kind = NULL;
    if (cli->argument_count > 1)
        return tm_error_set(e, TM_EUSAGE, "one cloud is expected, got \"%.100s\", too", cli->arguments[1]);
    int rc = cli->argument_count > 0 ? tm_cloud_kind_find(cli->arguments[0], &kind, e) : 0;
    if (rc != 0) return rc;
    tm_catalog_init(&catalog);
    rc = tm_catalog_load(cli->env, &catalog, e);
    for (size_t i = 0; rc == 0 && (kind = tm_cloud_kind_at(i)) != NULL; i++)
        if (is_asked(cli, kind)) rc = find_in(cli, kind, &catalog, out, e);
    tm_catalog_deinit(&catalog);
    return rc;
}

/* Ends them, cloud by cloud. */
static int end_all(struct tm_cli *cli, const struct tm_rented_list *list, size_t *out_ended, struct tm_error *e)
{
    int failed = 0;
    for (size_t at = 0; at < list->count;) { /* what fails in one cloud is no reason to leave another */
        struct tm_rented_list part = {.items = &list->items[at]};
        const struct tm_cloud_kind *kind = NULL;
        size_t ended = 0;
        while (at + part.count < list->count && list->items[at + part.count].cloud == list->items[at].cloud)
            part.count++;
        int rc = tm_cloud_kind_find(list->items[at].cloud, &kind, e);
        if (rc == 0) rc = kind->end(cli->env, &part, &ended, failed == 0 ? e : NULL);
        if (failed == 0) failed = rc;
        *out_ended += ended;
        at += part.count;
    }
    return failed;
}

static void print_json(const struct tm_rented_list *list, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "instances");
    for (size_t i = 0; i < list->count; i++) {
        const struct tm_rented *r = &list->items[i];
        char since[TM_CALENDAR_TEXT_MAX];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "id", r->id);
        tm_jsonout_string(&json, "cloud", r->cloud);
        tm_jsonout_string(&json, "region", r->region);
        tm_jsonout_string(&json, "job", r->job);
        tm_jsonout_string(&json, "state", r->state);
        tm_jsonout_string(&json, "since", r->since_ms == 0 ? NULL : tm_calendar_print(r->since_ms, since));
        tm_jsonout_number(&json, "price_usd_h", r->price_usd_h);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static int print_table(struct tm_cli *cli, const struct tm_rented_list *list, struct tm_error *e)
{
    static const struct tm_column columns[] = {{"instance", TM_LEFT, 0}, {"region", TM_LEFT, 0}, {"job", TM_LEFT, 0},
                                               {"type", TM_LEFT, 1},     {"market", TM_LEFT, 2}, {"state", TM_LEFT, 0},
                                               {"since", TM_LEFT, 1},    {"$/h", TM_RIGHT, 0}};
    struct tm_table table;
    if (list->count == 0) {
        tm_text_puts(&cli->out, "nothing that Tidemill rented is running, in any region of");
        const char *between = " ";
        for (size_t i = 0; tm_cloud_kind_at(i) != NULL; i++) {
            if (!is_asked(cli, tm_cloud_kind_at(i))) continue;
            tm_text_printf(&cli->out, "%s%s", between, tm_cloud_kind_at(i)->people);
            between = " or ";
        }
        tm_text_putc(&cli->out, '\n');
        return 0;
    }
    tm_table_init(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < list->count; i++) {
        const struct tm_rented *r = &list->items[i];
        char since[TM_CALENDAR_TEXT_MAX];
        tm_table_add(&table, "%s", r->id);
        tm_table_add(&table, "%s", r->region);
        tm_table_add(&table, "%s", r->job);
        tm_table_add(&table, "%s", r->type);
        tm_table_add(&table, "%s", r->spot ? "spot" : "on-demand");
        tm_table_add(&table, "%s", r->state);
        tm_table_add(&table, "%s", r->since_ms == 0 ? "" : tm_calendar_print(r->since_ms, since));
        if (isnan(r->price_usd_h))
            tm_table_add(&table, "not known");
        else
            tm_table_add(&table, "%.3f", r->price_usd_h);
    }
    int rc = tm_table_print(&table, &cli->term, &cli->out, e);
    tm_table_deinit(&table);
    return rc;
}

static int run_list(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_rented_list list = {.items = NULL};
    int rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = find(cli, &list, e);
    if (rc == 0 && cli->json) print_json(&list, &cli->out);
    if (rc == 0 && !cli->json) rc = print_table(cli, &list, e);
    tm_rented_list_deinit(&list);
    return rc;
}

/* ---- clean ---- */

static int confirm(const struct tm_cli *cli, const struct tm_rented_list *list, struct tm_error *e)
{
    char answer[16] = "";
    if (tm_given(cli, "yes") || list->count == 0) return 0;
    if (!isatty(STDIN_FILENO))
        return tm_error_set(e, TM_EUSAGE, "%zu instances would be ended; say so with -y", list->count);
    (void)fprintf(stderr, "End %zu instances? [y/N] ", list->count);
    if (fgets(answer, sizeof answer, stdin) == NULL || (answer[0] != 'y' && answer[0] != 'Y'))
        return tm_error_set(e, TM_ECANCELED, "not confirmed: nothing was changed");
    return 0;
}

/* What costs nothing, and should not stay either. */
static int clear_beside(struct tm_cli *cli, struct tm_error *e)
{
    int removed = 0;
    int left = 0;
    if (!is_asked(cli, tm_cloud_kind_at(0))) return 0; /* AWS alone has such */
    int rc = tm_rented_clear_aws(cli->env, tm_given_text(cli, "job"), &removed, &left, e);
    if (rc == 0 && removed > 0) tm_log(TM_LOG_INFO, "%d security groups and launch templates were removed", removed);
    if (rc == 0 && left > 0)
        tm_log(TM_LOG_WARN,
               "%d security groups or launch templates stay until their instances have ended; run this "
               "again in some minutes",
               left);
    return rc;
}

static int run_clean(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_rented_list list = {.items = NULL};
    struct tm_rented_list left = {.items = NULL};
    struct tm_jsonout json;
    size_t ended = 0;
    int rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = find(cli, &list, e);
    if (rc == 0) rc = confirm(cli, &list, e);
    if (rc == 0) rc = end_all(cli, &list, &ended, e);
    if (rc == 0) rc = find(cli, &left, e); /* what the cloud says counts, not what it answered */
    if (rc == 0) rc = clear_beside(cli, e);
    if (rc == 0 && cli->json) {
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "ended", (int64_t)ended);
        tm_jsonout_integer(&json, "left", (int64_t)left.count);
        tm_jsonout_end(&json);
    } else if (rc == 0) {
        tm_text_printf(&cli->out, "%zu ended, %zu left\n", ended, left.count);
    }
    if (rc == 0 && left.count > 0) cli->exit_status = 1;
    tm_rented_list_deinit(&left);
    tm_rented_list_deinit(&list);
    return rc;
}

/* ---- check ---- */

static void check_bucket(struct tm_cli *cli, const struct tm_cloud_kind *kind, struct tm_aws_checks *checks)
{
    const char *place = tm_given_text(cli, "bucket");
    struct tm_copy_store *store = NULL;
    struct tm_error e = {.text = ""};
    struct tm_aws_check_line *line = &checks->lines[checks->count++];
    *line = (struct tm_aws_check_line){.name = "bucket", .result = TM_CHECK_UNKNOWN};
    (void)snprintf(line->what, sizeof line->what, "not tried; give --bucket %s://BUCKET/PREFIX",
                   strcmp(kind->name, "gcp") == 0     ? "gs"
                   : strcmp(kind->name, "azure") == 0 ? "az"
                                                      : "s3");
    if (place == NULL) return;
    int rc = tm_copy_store_open(cli->env, place, 0, &store, &e);
    if (rc == 0) {
        rc = store->check(store, &e);
        store->close(store);
    }
    line->result = rc == 0 ? TM_CHECK_GOOD : TM_CHECK_BAD;
    (void)snprintf(line->what, sizeof line->what, "%.390s", rc == 0 ? place : e.text);
}

static void checks_json(const struct tm_cloud_kind *kind, const struct tm_aws_checks *checks, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "cloud", kind->name);
    tm_jsonout_list(&json, "checks");
    for (size_t i = 0; i < checks->count; i++) {
        const struct tm_aws_check_line *line = &checks->lines[i];
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "name", line->name);
        if (line->result == TM_CHECK_UNKNOWN)
            tm_jsonout_null(&json, "ok");
        else
            tm_jsonout_bool(&json, "ok", line->result == TM_CHECK_GOOD);
        tm_jsonout_string(&json, "what", line->what);
        tm_jsonout_string(&json, "fix", line->fix[0] == '\0' ? NULL : line->fix);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

static void checks_text(const struct tm_aws_checks *checks, struct tm_text *out)
{
    static const char *const words[] = {"ok", "FAILS", "?"};
    for (size_t i = 0; i < checks->count; i++) {
        const struct tm_aws_check_line *line = &checks->lines[i];
        tm_text_printf(out, "%-5s  %-14s %s\n", words[line->result], line->name, line->what);
        if (line->fix[0] != '\0') tm_text_printf(out, "%22sfix: %s\n", "", line->fix);
    }
}

static int run_check(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_aws_checks checks = {.count = 0};
    const struct tm_cloud_kind *kind = tm_cloud_kind_at(0);
    const char *image = tm_given_text(cli, "image");
    if (cli->argument_count > 1) return tm_error_set(e, TM_EUSAGE, "one cloud at a time is checked");
    int rc = cli->argument_count == 1 ? tm_cloud_kind_find(cli->arguments[0], &kind, e) : 0;
    if (rc != 0) return rc;
    if (tm_given(cli, "emit")) {
        tm_text_puts(&cli->out, kind->policy());
        return 0;
    }
    rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = kind->check(cli->env, image, &checks, e);
    if (rc != 0) return rc;
    check_bucket(cli, kind, &checks);
    if (cli->json)
        checks_json(kind, &checks, &cli->out);
    else
        checks_text(&checks, &cli->out);
    for (size_t i = 0; i < checks.count; i++)
        if (checks.lines[i].result == TM_CHECK_BAD) cli->exit_status = 1;
    return 0;
}

const struct tm_command tm_cloud_subcommands[] = {
    {
        .name = "list",
        .summary = "what Tidemill rented and still costs, in every region",
        .arguments = "[aws|gcp|azure]",
        .description =
            "Finds instances by their tag or label alone (tidemill:job), with no state folder at hand. Without a "
            "cloud, all that are set up on this machine are asked.",
        .examples = "  tidemill cloud list\n"
                    "  tidemill cloud list gcp\n",
        .options = list_options,
        .run = run_list,
        .words = tm_cloud_kind_names,
    },
    {
        .name = "clean",
        .summary = "end what Tidemill rented and still costs",
        .arguments = "[aws|gcp|azure]",
        .description = "Ends every instance that cloud list shows, then asks the cloud what is left. Exit status 1 if "
                       "something is.",
        .examples = "  tidemill cloud clean -y\n",
        .options = clean_options,
        .run = run_clean,
        .words = tm_cloud_kind_names,
    },
    {
        .name = "check",
        .summary = "what of an account works, without renting",
        .arguments = "[aws|gcp|azure]",
        .description = "Asks for credentials, permissions (a dry run), an image, the network, quotas and, with "
                       "--bucket, the place for copies; each line says what to do where it does not work. Exit status "
                       "1 if something does not.",
        .examples = "  tidemill cloud check aws --bucket s3://my-bucket/my-job\n"
                    "  tidemill cloud check aws --emit policy > policy.json\n"
                    "  tidemill cloud check gcp --emit policy > role.yaml\n",
        .options = check_options,
        .run = run_check,
        .words = tm_cloud_kind_names,
    },
    {.name = NULL},
};

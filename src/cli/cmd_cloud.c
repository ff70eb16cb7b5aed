#include "base/alloc.h"
#include "base/calendar.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/cloud_accounts.h"
#include "cli/commands.h"
#include "cli/web_tape.h"
#include "cloud/rented.h"
#include "job/check_needs.h"
#include "job/detach.h"
#include "job/job_file.h"
#include "market/catalog.h"
#include "store/copy_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    {.name = "for",
     .value = "JOB.yaml",
     .help = "hold quotas against what this job wants; its image and bucket are tried"},
    {.name = "emit",
     .value = "WHAT",
     .help = "print the least permissions, as the cloud's own tools take them",
     .choices = emit_names},
    TM_TAPE_OPTIONS,
    {.name = NULL},
};

/* ---- list ---- */

enum { CLOUDS_MAX = 8 };

/* What was found, and what could not be asked. */
struct found {
    struct tm_rented_list list;
    bool doubtful[CLOUDS_MAX]; /* by place in the table: something of this cloud could not be asked */
    bool any_doubt;
};

/* Those of one cloud, behind what is there. */
/* Regions answer in any order: the same list has the same one. */
static int by_place_and_age(const void *a, const void *b)
{
    const struct tm_rented *x = a;
    const struct tm_rented *y = b;
    int order = strcmp(x->region, y->region);
    if (order == 0) order = (x->since_ms > y->since_ms) - (x->since_ms < y->since_ms);
    return order != 0 ? order : strcmp(x->id, y->id);
}

static int find_in(struct tm_cli *cli, const struct tm_cloud_kind *kind, const struct tm_catalog *catalog,
                   struct tm_rented_list *out, int *out_unasked, struct tm_error *e)
{
    struct tm_rented_list found = {.items = NULL};
    const char *job = tm_given_text(cli, "job");
    int rc = kind->find(cli->env, catalog, &found, e);
    if (rc == 0 && found.count > 1) qsort(found.items, found.count, sizeof *found.items, by_place_and_age);
    for (size_t i = 0; rc == 0 && i < found.count; i++) {
        found.items[i].cloud = kind->name;
        if (job != NULL && strcmp(found.items[i].job, job) != 0) continue;
        rc = tm_grow((void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items, SIZE_MAX / 2);
        if (rc != 0) rc = tm_error_nomem(e);
        if (rc == 0) out->items[out->count++] = found.items[i];
    }
    *out_unasked = rc == 0 ? found.unasked : 0;
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

/* Every cloud that is to be asked; one that cannot be is told, and is no reason to leave another. An error: none
 * could be. */
static int find_each(struct tm_cli *cli, const struct tm_catalog *catalog, struct found *out, struct tm_error *e)
{
    struct tm_error whys[CLOUDS_MAX];
    int rcs[CLOUDS_MAX] = {0};
    int asked = 0;
    int failed = 0;
    const struct tm_cloud_kind *kind = NULL;
    for (size_t i = 0; i < CLOUDS_MAX && (kind = tm_cloud_kind_at(i)) != NULL; i++) {
        int unasked = 0;
        if (!is_asked(cli, kind)) continue;
        rcs[i] = find_in(cli, kind, catalog, &out->list, &unasked, &whys[i]);
        if (rcs[i] == -(int)TM_ENOMEM) return tm_error_nomem(e);
        asked++;
        failed += rcs[i] != 0;
        out->doubtful[i] = rcs[i] != 0 || unasked > 0;
        out->any_doubt = out->any_doubt || out->doubtful[i];
    }
    int rc = 0;
    for (size_t i = 0; i < CLOUDS_MAX; i++) {
        if (rcs[i] == 0) continue;
        if (failed == asked && rc == 0) { /* the first is the error */
            rc = rcs[i];
            *e = whys[i];
        } else {
            tm_log(TM_LOG_ERROR, "%s could not be asked, and something may still cost there: %s",
                   tm_cloud_kind_at(i)->people, whys[i].text);
        }
    }
    return rc;
}

/* All of them, or those of the cloud or the job. */
static int find(struct tm_cli *cli, struct found *out, struct tm_error *e)
{
    struct tm_catalog catalog;
    const struct tm_cloud_kind *kind = NULL;
    if (cli->argument_count > 1)
        return tm_error_set(e, TM_EUSAGE, "one cloud is expected, got \"%.100s\", too", cli->arguments[1]);
    int rc = cli->argument_count > 0 ? tm_cloud_kind_find(cli->arguments[0], &kind, e) : 0;
    if (rc != 0) return rc;
    tm_catalog_init(&catalog);
    rc = tm_catalog_load(cli->env, &catalog, e);
    if (rc == 0) rc = find_each(cli, &catalog, out, e);
    tm_catalog_deinit(&catalog);
    return rc;
}

/* Ends them, cloud by cloud; how many have ended. */
static size_t end_all(struct tm_cli *cli, struct tm_rented_list *list)
{
    size_t ended = 0;
    for (size_t at = 0; at < list->count;) { /* what fails in one cloud is no reason to leave another */
        struct tm_rented_list part = {.items = &list->items[at]};
        const struct tm_cloud_kind *kind = NULL;
        struct tm_error own = {.text = ""};
        while (at + part.count < list->count && list->items[at + part.count].cloud == list->items[at].cloud)
            part.count++;
        int rc = tm_cloud_kind_find(list->items[at].cloud, &kind, &own);
        if (rc == 0) rc = kind->end(cli->env, &part, &own);
        if (rc != 0) tm_log(TM_LOG_ERROR, "%s: not all was ended: %s", list->items[at].cloud, own.text);
        at += part.count;
    }
    for (size_t i = 0; i < list->count; i++)
        ended += list->items[i].fate == TM_RENTED_ENDED;
    return ended;
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

static int print_table(struct tm_cli *cli, const struct tm_rented_list *list, bool doubt, struct tm_error *e)
{
    static const struct tm_column columns[] = {{"instance", TM_LEFT, 0}, {"region", TM_LEFT, 0}, {"job", TM_LEFT, 0},
                                               {"type", TM_LEFT, 1},     {"market", TM_LEFT, 2}, {"state", TM_LEFT, 0},
                                               {"since", TM_LEFT, 1},    {"$/h", TM_RIGHT, 0}};
    struct tm_table table;
    if (list->count == 0) {
        tm_text_puts(&cli->out, doubt ? "nothing that Tidemill rented was found where it could be asked, of"
                                      : "nothing that Tidemill rented is running, in any region of");
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
    struct found found = {.any_doubt = false};
    int rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = find(cli, &found, e);
    if (rc == 0 && cli->json) print_json(&found.list, &cli->out);
    if (rc == 0 && !cli->json) rc = print_table(cli, &found.list, found.any_doubt, e);
    if (rc == 0 && found.any_doubt) cli->exit_status = 1;
    tm_rented_list_deinit(&found.list);
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

/* What costs nothing, and should not stay either: groups, templates, firewall rules. False: not all could be asked
 * for. */
static bool clear_beside(struct tm_cli *cli, bool wait)
{
    bool good = true;
    const struct tm_cloud_kind *kind = NULL;
    for (size_t i = 0; (kind = tm_cloud_kind_at(i)) != NULL; i++) {
        struct tm_rented_beside beside = {.removed = 0};
        struct tm_error own = {.text = ""};
        if (kind->clear == NULL || !is_asked(cli, kind)) continue;
        int rc = kind->clear(cli->env, tm_given_text(cli, "job"), wait, &beside, &own);
        if (rc != 0) tm_log(TM_LOG_ERROR, "%s: what is beside instances was not removed: %s", kind->people, own.text);
        good = good && rc == 0 && beside.unasked == 0;
        if (beside.removed > 0)
            tm_log(TM_LOG_INFO, "%s: %d groups, templates or firewall rules were removed", kind->people,
                   beside.removed);
        if (beside.left > 0)
            tm_log(TM_LOG_WARN,
                   "%s: %d groups, templates or firewall rules stay until their instances have ended; run this again "
                   "in some minutes",
                   kind->people, beside.left);
    }
    return good;
}

static bool holds(const struct tm_rented_list *list, const struct tm_rented *r)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].cloud == r->cloud && strcmp(list->items[i].id, r->id) == 0 &&
            strcmp(list->items[i].region, r->region) == 0)
            return true;
    return false;
}

/* How many are left: what the cloud says counts, not what it answered before; but where it does not say any more, what
 * it did not take back. */
static size_t count_left(const struct tm_rented_list *before, const struct found *after)
{
    size_t left = after->list.count;
    for (size_t i = 0; after->any_doubt && i < before->count; i++) {
        const struct tm_rented *r = &before->items[i];
        bool doubtful = false;
        for (size_t k = 0; k < CLOUDS_MAX && tm_cloud_kind_at(k) != NULL; k++)
            doubtful = doubtful || (after->doubtful[k] && strcmp(tm_cloud_kind_at(k)->name, r->cloud) == 0);
        left += doubtful && r->fate == TM_RENTED_THERE && !holds(&after->list, r);
    }
    return left;
}

static int run_clean(struct tm_cli *cli, struct tm_error *e)
{
    struct found found = {.any_doubt = false};
    struct found after = {.any_doubt = false};
    struct tm_error own = {.text = ""};
    struct tm_jsonout json;
    int rc = tm_cmd_open_tape(cli, e);
    if (rc == 0) rc = find(cli, &found, e);
    if (rc == 0) rc = confirm(cli, &found.list, e);
    if (rc != 0) {
        tm_rented_list_deinit(&found.list);
        return rc;
    }
    size_t ended = end_all(cli, &found.list);
    if (find(cli, &after, &own) != 0) { /* then what was not taken back is left */
        tm_log(TM_LOG_ERROR, "what is left could not be asked for: %s", own.text);
        after.any_doubt = true;
        memset(after.doubtful, true, sizeof after.doubtful);
    }
    size_t left = count_left(&found.list, &after);
    bool cleared = clear_beside(cli, left == 0);
    if (cli->json) {
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_integer(&json, "ended", (int64_t)ended);
        tm_jsonout_integer(&json, "left", (int64_t)left);
        tm_jsonout_end(&json);
    } else {
        tm_text_printf(&cli->out, "%zu ended, %zu left\n", ended, left);
    }
    if (left > 0 || found.any_doubt || after.any_doubt || !cleared) cli->exit_status = 1;
    tm_rented_list_deinit(&after.list);
    tm_rented_list_deinit(&found.list);
    return 0;
}

/* ---- check ---- */

/* How each cloud's places for copies are written, and what to do where one does not work. */
static const struct {
    const char *cloud;
    const char *scheme;
    const char *fix;
} buckets[] = {
    {"aws", "s3", "create it (aws s3 mb s3://BUCKET), and allow what `tidemill cloud check aws --emit policy` prints"},
    {"gcp", "gs", "create it (gcloud storage buckets create gs://BUCKET), and give the role Storage Object User on it"},
    {"azure", "az",
     "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, and create it (az storage container create -n NAME); without a "
     "key, give the role Storage Blob Data Contributor"}};

static void check_bucket(struct tm_cli *cli, const struct tm_cloud_kind *kind, const char *place,
                         struct tm_cloud_checks *checks)
{
    struct tm_copy_store *store = NULL;
    struct tm_error e = {.text = ""};
    struct tm_cloud_check *line = tm_cloud_checks_add(checks, "bucket", TM_CHECK_UNKNOWN);
    size_t of = 0;
    while (of + 1 < sizeof buckets / sizeof *buckets && strcmp(buckets[of].cloud, kind->name) != 0)
        of++;
    size_t length = strlen(buckets[of].scheme);
    bool own =
        place != NULL && strncmp(place, buckets[of].scheme, length) == 0 && strncmp(place + length, "://", 3) == 0;
    (void)snprintf(line->what, sizeof line->what, "not tried; give --bucket %s://BUCKET/PREFIX", buckets[of].scheme);
    if (place == NULL || (!own && cli->argument_count == 0 && !tm_given(cli, "for")))
        return; /* it is another cloud's */
    int rc = tm_copy_store_open(cli->env, place, 0, &store, &e);
    if (rc == 0) {
        rc = store->check(store, &e);
        store->close(store);
    }
    line->result = rc == 0 ? TM_CHECK_GOOD : TM_CHECK_BAD;
    (void)snprintf(line->what, sizeof line->what, "%.390s", rc == 0 ? place : e.text);
    if (rc != 0) (void)snprintf(line->fix, sizeof line->fix, "%s", buckets[of].fix);
}

static void checks_json(const struct tm_cloud_kind *kind, const struct tm_cloud_checks *checks, struct tm_jsonout *json)
{
    for (size_t i = 0; i < checks->count; i++) {
        const struct tm_cloud_check *line = &checks->lines[i];
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "cloud", kind->name);
        tm_jsonout_string(json, "name", line->name);
        if (line->result == TM_CHECK_UNKNOWN)
            tm_jsonout_null(json, "ok");
        else
            tm_jsonout_bool(json, "ok", line->result == TM_CHECK_GOOD);
        tm_jsonout_string(json, "what", line->what);
        tm_jsonout_string(json, "fix", line->fix[0] == '\0' ? NULL : line->fix);
        tm_jsonout_end(json);
    }
}

static void checks_text(const struct tm_cloud_checks *checks, struct tm_text *out)
{
    static const char *const words[] = {"ok", "FAILS", "?"};
    for (size_t i = 0; i < checks->count; i++) {
        const struct tm_cloud_check *line = &checks->lines[i];
        tm_text_printf(out, "%-5s  %-14s %s\n", words[line->result], line->name, line->what);
        if (line->fix[0] != '\0') tm_text_printf(out, "%22sfix: %s\n", "", line->fix);
    }
}

/* With --for, what the job wants; options say more. */
static int check(struct tm_cli *cli, const struct tm_cloud_kind *kind, const struct tm_job *job,
                 struct tm_cloud_checks *checks, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_check_needs needs = {.count = 0};
    const char *image = tm_given_text(cli, "image");
    const char *bucket = tm_given_text(cli, "bucket");
    tm_catalog_init(&catalog);
    int rc = job != NULL ? tm_catalog_load(cli->env, &catalog, e) : 0;
    if (rc == 0 && job != NULL) tm_job_check_needs(job, &catalog, &needs);
    if (bucket == NULL && job != NULL && job->copies != NULL && strstr(job->copies, "://") != NULL)
        bucket = job->copies;
    const struct tm_check_request request = {.image = image != NULL ? image : needs.image,
                                             .region = needs.region,
                                             .needs = needs.list,
                                             .need_count = needs.count};
    if (rc == 0) rc = kind->check(cli->env, &request, checks, e);
    if (rc == 0) check_bucket(cli, kind, bucket, checks);
    if (rc == 0 && job != NULL) tm_detach_name_rights(job, checks);
    tm_catalog_deinit(&catalog);
    return rc;
}

static int check_for(struct tm_cli *cli, const struct tm_cloud_kind *kind, struct tm_cloud_checks *checks,
                     struct tm_error *e)
{
    struct tm_run_settings settings;
    const char *path = tm_given_text(cli, "for");
    if (path == NULL) return check(cli, kind, NULL, checks, e);
    tm_run_settings_init(&settings);
    int rc = tm_job_file_load(cli->env, path, &settings, e);
    const char *cloud = rc == 0 ? tm_job_cloud_names[settings.job.cloud] : "";
    if (rc == 0 && strcmp(cloud, kind->name) != 0)
        rc = tm_error_set(e, TM_EUSAGE, "%s runs on cloud %s; check that, or write cloud: %s", path, cloud, kind->name);
    if (rc == 0) rc = check(cli, kind, &settings.job, checks, e);
    tm_run_settings_deinit(&settings);
    return rc;
}

/* The cloud that was named, or that the job of --for runs on; NULL: all that are set up. */
static int choose(struct tm_cli *cli, const struct tm_cloud_kind **out, struct tm_error *e)
{
    struct tm_run_settings settings;
    const char *path = tm_given_text(cli, "for");
    if (cli->argument_count > 1) return tm_error_set(e, TM_EUSAGE, "one cloud at a time is checked");
    if (cli->argument_count == 1) return tm_cloud_kind_find(cli->arguments[0], out, e);
    if (path == NULL) return 0;
    tm_run_settings_init(&settings);
    int rc = tm_job_file_load(cli->env, path, &settings, e);
    if (rc == 0) rc = tm_cloud_kind_find(tm_job_cloud_names[settings.job.cloud], out, e);
    if (rc != 0) rc = tm_error_wrap(e, rc, "%s", path);
    tm_run_settings_deinit(&settings);
    return rc;
}

/* One cloud's lines, as they are printed. */
static int print_check(struct tm_cli *cli, const struct tm_cloud_kind *kind, bool alone, struct tm_jsonout *json,
                       struct tm_error *e)
{
    struct tm_cloud_checks checks = {.count = 0};
    int rc = check_for(cli, kind, &checks, e);
    if (rc != 0) return rc;
    if (cli->json)
        checks_json(kind, &checks, json);
    else if (!alone)
        tm_text_printf(&cli->out, "%s%s\n", cli->out.length > 0 ? "\n" : "", kind->people);
    if (!cli->json) checks_text(&checks, &cli->out);
    for (size_t i = 0; i < checks.count; i++)
        if (checks.lines[i].result == TM_CHECK_BAD) cli->exit_status = 1;
    return 0;
}

static int run_check(struct tm_cli *cli, struct tm_error *e)
{
    struct tm_jsonout json;
    const struct tm_cloud_kind *only = NULL;
    const struct tm_cloud_kind *kind = NULL;
    int asked = 0;
    int rc = choose(cli, &only, e);
    if (rc != 0) return rc;
    for (size_t i = 0; only == NULL && tm_cloud_kind_at(i) != NULL; i++)
        if (is_asked(cli, tm_cloud_kind_at(i)) && asked++ == 0) kind = tm_cloud_kind_at(i);
    if (asked == 1 || tm_given(cli, "emit")) only = only != NULL ? only : kind;
    if (tm_given(cli, "emit")) {
        tm_text_puts(&cli->out, (only != NULL ? only : tm_cloud_kind_at(0))->policy());
        return 0;
    }
    if (only == NULL && tm_given(cli, "image"))
        return tm_error_set(e, TM_EUSAGE, "--image: of which cloud? several are set up here; name one");
    rc = tm_cmd_open_tape(cli, e);
    tm_jsonout_init(&json, &cli->out);
    if (cli->json) {
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "cloud", only != NULL ? only->name : NULL);
        tm_jsonout_list(&json, "checks");
    }
    for (size_t i = 0; rc == 0 && (kind = tm_cloud_kind_at(i)) != NULL; i++)
        if (only != NULL ? kind == only : is_asked(cli, kind)) rc = print_check(cli, kind, only != NULL, &json, e);
    if (cli->json) {
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    return rc;
}

const struct tm_command tm_cloud_subcommands[] = {
    {
        .name = "list",
        .summary = "what Tidemill rented and still costs, in every region",
        .arguments = "[aws|gcp|azure]",
        .description =
            "Finds instances by their tag or label alone (tidemill:job), with no state folder at hand. Without a "
            "cloud, all that are set up on this machine are asked. What was found is shown; exit status 1 if a region "
            "or a "
            "cloud could not be asked, which is told with the fix.",
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
        .description =
            "Ends every instance that cloud list shows, then asks the cloud what is left. What cannot be ended is "
            "told with why, and is no reason to leave the rest. Exit status 1 if something is left, or if a "
            "region or a cloud could not be asked.",
        .examples = "  tidemill cloud clean -y\n",
        .options = clean_options,
        .run = run_clean,
        .words = tm_cloud_kind_names,
    },
    {
        .name = "check",
        .summary = "what of an account works, without renting",
        .arguments = "[aws|gcp|azure]",
        .description =
            "Asks for credentials, permissions (dry runs), an image, the network, quotas and, with "
            "--bucket, the place for copies; each line says what to do where it does not work. Without a "
            "cloud, that of the job (--for), or all that are set up on this machine are checked. Exit status "
            "1 if something does not work.",
        .examples = "  tidemill cloud check aws --bucket s3://my-bucket/my-job\n"
                    "  tidemill cloud check aws --emit policy > policy.json\n"
                    "  tidemill cloud check gcp --emit policy > role.yaml\n",
        .options = check_options,
        .run = run_check,
        .words = tm_cloud_kind_names,
    },
    {.name = NULL},
};

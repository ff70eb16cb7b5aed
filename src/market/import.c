#include "market/import.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/paths.h"
#include "market/import_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OWN_FILE "catalog.tmcat"
#define DAMAGED  ".damaged"

enum { REPORT_BYTES_MAX = 1 << 20 };

const char *const tm_import_formats[] = {"auto", "skypilot", "advisor", "prices", NULL};

void tm_import_report_init(struct tm_import_report *report)
{
    *report = (struct tm_import_report){0};
    tm_arena_init(&report->arena, REPORT_BYTES_MAX);
}

void tm_import_report_deinit(struct tm_import_report *report)
{
    tm_arena_deinit(&report->arena);
}

void tm_import__issue(struct tm_import *import, int line, bool rejected, const char *format, ...)
{
    struct tm_import_report *report = import->report;
    if (rejected)
        report->rejected++;
    else
        report->warned++;
    if (report->issue_count == TM_IMPORT_ISSUES_MAX) return;
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = tm_arena_strdup(&report->arena, text);
    char *file = tm_arena_strdup(&report->arena, import->file);
    if (copy == NULL || file == NULL) return; /* the count above still tells */
    report->issues[report->issue_count++] =
        (struct tm_import_issue){.file = file, .line = line, .rejected = rejected, .text = copy};
}

/* Without the place, which the issue names itself. */
static const char *words_of(const struct tm_import *import, int line, const struct tm_error *error)
{
    char place[600];
    int length = snprintf(place, sizeof place, "%.500s:%d: ", import->file, line);
    bool placed = strncmp(error->text, place, (size_t)length) == 0;
    return error->text + (placed ? length : 0);
}

/* Notes a row that could not even be read as CSV. */
static void note_bad_row(struct tm_import *import, int line, const struct tm_error *error)
{
    tm_import__issue(import, line, true, "%s", words_of(import, line, error));
}

/* "YYYY-MM-DD" or "YYYY-MM" in the file name, else the newest day in the file where that is known, else today. */
static void find_as_of(const struct tm_import *import, char as_of[TM_CALENDAR_TEXT_MAX])
{
    int64_t time_ms = 0;
    char day[TM_CALENDAR_TEXT_MAX];
    if (import->options->as_of != NULL) {
        (void)snprintf(as_of, TM_CALENDAR_TEXT_MAX, "%s", import->options->as_of);
        return;
    }
    const char *name = tm_path_base(import->file);
    const char *best = NULL;
    for (const char *at = name; *at != '\0'; at++) {
        if (strlen(at) >= 10 && tm_calendar_parse(at, 10, &time_ms)) best = at;
    }
    if (best != NULL) {
        (void)snprintf(as_of, TM_CALENDAR_TEXT_MAX, "%.10s", best);
        return;
    }
    for (const char *at = name; *at != '\0'; at++) {
        (void)snprintf(day, sizeof day, "%.7s-01", at);
        if (strlen(at) < 7 || !tm_calendar_parse(day, 10, &time_ms)) continue;
        (void)snprintf(as_of, TM_CALENDAR_TEXT_MAX, "%.10s", day);
        return;
    }
    tm_calendar_print_day(import->newest_ms != 0 ? import->newest_ms : import->env->now_ms(import->env), as_of);
}

int tm_import__source(struct tm_import *import, const char *what, struct tm_error *e)
{
    char as_of[TM_CALENDAR_TEXT_MAX];
    char name[160];
    char text[256];
    find_as_of(import, as_of);
    char plain[160]; /* a file's name may hold anything, a table may not */
    (void)snprintf(plain, sizeof plain, "%.140s", tm_path_base(import->file));
    for (char *c = plain; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    }
    (void)snprintf(name, sizeof name, "import:%.140s", plain);
    (void)snprintf(text, sizeof text, "imported from %.140s (%s)", plain, what);
    for (size_t i = 0; i < import->user->source_count; i++) { /* files of one name, of two dates: two sources */
        const struct tm_source *other = &import->user->sources[i];
        if (strcmp(other->name, name) != 0 || strcmp(other->as_of, as_of) == 0) continue;
        (void)snprintf(name, sizeof name, "import:%.100s@%s", plain, as_of);
        break;
    }
    return tm_catalog__add_source(import->user, name, as_of, text, &import->source, e);
}

int tm_import__each_row(struct tm_import *import, struct tm_csv *csv,
                        int (*take)(struct tm_import *, const struct tm_csv *, void *, struct tm_error *),
                        void *context, struct tm_error *e)
{
    for (;;) {
        struct tm_error row_error;
        int rc = tm_csv_next(csv, &row_error);
        if (rc == 0) return 0;
        import->report->rows++;
        if (rc < 0) {
            note_bad_row(import, csv->line, &row_error);
            continue;
        }
        rc = take(import, csv, context, e);
        if (rc != 0) return rc;
    }
}

/* ---- which reader ---- */

enum file_kind { FILE_UNKNOWN, FILE_SKYPILOT, FILE_NETWORK, FILE_GPUS, FILE_ADVISOR, FILE_PRICES };

static enum file_kind kind_of_header(const struct tm_csv *csv)
{
    if (tm_csv_find(csv, "InstanceType") >= 0 && tm_csv_find(csv, "Region") >= 0) return FILE_SKYPILOT;
    if (tm_csv_find(csv, "instance_type") >= 0 && tm_csv_find(csv, "network_gbps") >= 0) return FILE_NETWORK;
    if (tm_csv_find(csv, "name") >= 0 && tm_csv_find(csv, "fp32_tflops") >= 0) return FILE_GPUS;
    if (tm_csv_find(csv, "availability_zone") >= 0 && tm_csv_find(csv, "instance_type") >= 0) return FILE_PRICES;
    return FILE_UNKNOWN;
}

static int detect(const struct tm_import *import, enum file_kind *out, struct tm_error *e)
{
    *out = FILE_UNKNOWN;
    if (import->text[strspn(import->text, " \t\r\n")] == '{') {
        *out = FILE_ADVISOR;
        return 0;
    }
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, import->file, import->text, import->length);
    int rc = tm_csv_next(csv, e);
    if (rc == 1) *out = kind_of_header(csv);
    tm_free(csv);
    return rc < 0 ? rc : 0;
}

/* SkyPilot's files come with tables of GPUs and networks beside them, which are taken under its name too. */
static bool is_allowed(enum tm_import_format format, enum file_kind kind)
{
    switch (format) {
    case TM_IMPORT_SKYPILOT:
        return kind == FILE_SKYPILOT || kind == FILE_NETWORK || kind == FILE_GPUS;
    case TM_IMPORT_ADVISOR:
        return kind == FILE_ADVISOR;
    case TM_IMPORT_PRICES:
        return kind == FILE_PRICES;
    default:
        return kind != FILE_UNKNOWN;
    }
}

static int wrong_kind(const struct tm_import *import, struct tm_error *e)
{
    static const char *const expected[] = {
        [TM_IMPORT_AUTO] = "a SkyPilot catalogue (CSV), Spot Advisor data (JSON) or a price history (CSV)",
        [TM_IMPORT_SKYPILOT] = "SkyPilot's CSV with a header (InstanceType, AcceleratorName, Price, Region, ...)",
        [TM_IMPORT_ADVISOR] = "the Spot Advisor's JSON (spot_advisor, instance_types, ranges)",
        [TM_IMPORT_PRICES] = "CSV with a header (timestamp,availability_zone,instance_type,spot_usd_h)",
    };
    return tm_error_set(e, TM_EINPUT, "%s:1: expected %s", import->file, expected[import->options->format]);
}

static int import_text(struct tm_import *import, struct tm_error *e)
{
    enum file_kind kind = FILE_UNKNOWN;
    int rc = detect(import, &kind, e);
    if (rc != 0) return rc;
    if (!is_allowed(import->options->format, kind)) return wrong_kind(import, e);
    switch (kind) {
    case FILE_SKYPILOT:
        return tm_import__skypilot(import, e);
    case FILE_NETWORK:
        return tm_import__network(import, e);
    case FILE_GPUS:
        return tm_import__gpus(import, e);
    case FILE_ADVISOR:
        return tm_import__advisor(import, e);
    default:
        return tm_import__prices(import, e);
    }
}

static int import_file(struct tm_import *import, const char *path, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_IMPORT_BYTES_MAX);
    int rc = tm_content_read(import->env, path, &text, e);
    if (rc == 0) {
        size_t bom = text.length >= 3 && memcmp(text.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        import->file = path;
        import->text = tm_text_string(&text) + bom;
        import->length = text.length - bom;
        import->newest_ms = 0;
        rc = import_text(import, e);
        import->report->files++;
    }
    tm_text_deinit(&text);
    return rc;
}

/* ---- the user's own ---- */

static void note_lost(void *context, int line, const struct tm_error *error)
{
    struct tm_import *import = context;
    tm_import__issue(import, line, false, "row of your imported catalogue skipped: %s", words_of(import, line, error));
}

/* A damaged catalogue must not keep the user from importing: what can be read of it stays, and the file is kept. */
static int salvage(struct tm_import *import, const char *path, struct tm_error *e)
{
    struct tm_error damage = {0};
    struct tm_text text;
    tm_catalog_deinit(import->user);
    tm_catalog_init(import->user);
    tm_text_init(&text, TM_CATALOG_BYTES_MAX);
    import->file = path;
    import->damaged = true;
    int rc = tm_content_read(import->env, path, &text, &damage);
    if (rc == 0)
        rc = tm_catalog__salvage(import->user, path, tm_text_string(&text), text.length, note_lost, import, &damage);
    if (rc == -(int)TM_EINPUT) { /* nothing in it is of use */
        tm_import__issue(import, 0, false, "skipped: %s", damage.text);
        rc = 0;
    }
    tm_text_deinit(&text);
    if (rc != 0) return tm_error_set(e, damage.code, "%s", damage.text);
    tm_import__issue(import, 0, false, "damaged; kept as %s%s", tm_path_base(path), DAMAGED);
    return 0;
}

static int read_own(struct tm_import *import, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_error here = {0};
    tm_arena_init(&arena, 1 << 16);
    int rc = tm_catalog__parse_imported(import->env, import->user, true, &here);
    if (rc == -(int)TM_EINPUT) {
        const char *path = tm_path(import->env, TM_PATH_DATA, OWN_FILE, &arena, &here);
        rc = path == NULL ? -(int)here.code : salvage(import, path, &here);
    }
    tm_arena_deinit(&arena);
    return rc == 0 ? 0 : tm_error_set(e, here.code, "%s", here.text);
}

static int save(struct tm_env *env, const char *name, struct tm_text *text, struct tm_error *e)
{
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 16);
    int rc = tm_text_status(text, e);
    struct tm_error no_path = {0};
    const char *path = rc == 0 ? tm_path(env, TM_PATH_DATA, name, &arena, &no_path) : NULL;
    if (rc == 0 && path == NULL) rc = tm_error_set(e, no_path.code, "%s", no_path.text);
    if (rc == 0) rc = env->file_write(env, path, tm_text_string(text), text->length, e);
    tm_arena_deinit(&arena);
    return rc;
}

static int keep_damaged(struct tm_env *env, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_text text;
    tm_arena_init(&arena, 1 << 16);
    tm_text_init(&text, TM_CATALOG_BYTES_MAX);
    const char *path = tm_path(env, TM_PATH_DATA, OWN_FILE, &arena, e);
    int rc = path == NULL ? -(int)TM_ENOMEM : env->file_read(env, path, &text, e);
    if (rc == 0) rc = save(env, OWN_FILE DAMAGED, &text, e);
    tm_text_deinit(&text);
    tm_arena_deinit(&arena);
    return rc;
}

/* What every later command will read must be readable before it takes the old file's place. */
static int read_back(const struct tm_text *text, struct tm_error *e)
{
    struct tm_catalog catalog;
    struct tm_error here = {0};
    tm_catalog_init(&catalog);
    int rc = tm_text_status(text, e);
    if (rc == 0 && tm_catalog_parse(&catalog, "new " OWN_FILE, text->data, text->length, true, &here) != 0)
        rc = here.code == TM_ENOMEM
                 ? tm_error_nomem(e)
                 : tm_error_set(e, TM_EINPUT, "nothing was imported: the result would not read back: %s", here.text);
    tm_catalog_deinit(&catalog);
    return rc;
}

/* The history goes first: it is read only through the prices that the catalogue, written last, names. */
static int save_all(struct tm_import *import, struct tm_error *e)
{
    struct tm_text history;
    struct tm_text catalog;
    tm_text_init(&history, TM_PRICE_HISTORY_BYTES_MAX);
    tm_text_init(&catalog, TM_CATALOG_BYTES_MAX); /* what is written can be read again */
    tm_catalog__print(import->user, &catalog);
    int rc = read_back(&catalog, e);
    if (rc == 0 && import->history_changed) {
        rc = tm_price_history__sort(import->history, e);
        if (rc == 0) tm_price_history__print(import->history, &history);
        if (rc == 0) rc = save(import->env, "spot-prices.csv", &history, e);
    }
    if (rc == 0 && import->damaged) rc = keep_damaged(import->env, e);
    if (rc == 0) rc = save(import->env, OWN_FILE, &catalog, e);
    tm_text_deinit(&history);
    tm_text_deinit(&catalog);
    return rc;
}

static int import_all(struct tm_import *import, const char *const *paths, size_t path_count, struct tm_error *e)
{
    struct tm_import_report *report = import->report;
    int rc = read_own(import, e);
    for (size_t i = 0; rc == 0 && i < path_count; i++)
        rc = import_file(import, paths[i], e);
    if (rc != 0) return rc;
    if (import->options->strict && report->rejected > 0)
        return tm_error_set(e, TM_EINPUT, "%zu bad rows; nothing was imported (--strict)", report->rejected);
    if (report->kept == 0) return tm_error_set(e, TM_EINPUT, "no row could be used; nothing was imported");
    report->offers = import->user->offer_count;
    report->bands = import->user->band_count;
    rc = save_all(import, e);
    report->prices = import->history->count;
    return rc;
}

int tm_import_files(struct tm_env *env, const struct tm_import_options *options, const char *const *paths,
                    size_t path_count, struct tm_import_report *report, struct tm_error *e)
{
    struct tm_catalog user;
    struct tm_catalog shipped;
    struct tm_price_history history;
    tm_catalog_init(&user);
    tm_catalog_init(&shipped);
    tm_price_history_init(&history);
    struct tm_import import = {.env = env,
                               .options = options,
                               .report = report,
                               .user = &user,
                               .shipped = options->known != NULL ? options->known : &shipped,
                               .history = &history};
    int rc = options->known != NULL ? 0 : tm_catalog_load_shipped(&shipped, e);
    if (rc == 0) rc = import_all(&import, paths, path_count, e);
    tm_price_history_deinit(&history);
    tm_catalog_deinit(&shipped);
    tm_catalog_deinit(&user);
    return rc;
}

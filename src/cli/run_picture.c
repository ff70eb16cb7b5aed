#include "cli/run_picture.h"

#include "base/alloc.h"
#include "base/plot.h"
#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAR_LEAST = 10, BAR_MOST = 40, SPARK_MOST = 60, WIDTH_USUAL = 100, CELL_MAX = 32, LINE_MAX_BYTES = 8192 };

/* Where lines go: each is put together in `line`, then cut and ended. */
struct page {
    const struct tm_run_status *status;
    const struct tm_term *term;
    struct tm_text *out;
    struct tm_text line;
    size_t lines;
};

/* Columns that coloured text takes. */
static size_t visible_columns(const char *text)
{
    size_t columns = 0;
    char one[8];
    while (*text != '\0') {
        if (*text == '\033') {
            const char *end = strchr(text, 'm');
            text = end == NULL ? text + strlen(text) : end + 1;
            continue;
        }
        size_t length = 1;
        while ((text[length] & 0xC0) == 0x80 && length < sizeof one - 1)
            length++;
        memcpy(one, text, length);
        one[length] = '\0';
        columns += tm_term_columns(one);
        text += length;
    }
    return columns;
}

/* Appends coloured text cut to `columns`; colours end where it ends. */
static void put_cut(const struct tm_term *term, struct tm_text *out, const char *text, size_t columns)
{
    size_t taken = 0;
    bool coloured = false;
    size_t all = visible_columns(text);
    size_t room = all <= columns ? columns : columns - 1;
    char one[8];
    while (*text != '\0') {
        size_t length = 1;
        if (*text == '\033') {
            const char *end = strchr(text, 'm');
            length = end == NULL ? strlen(text) : (size_t)(end - text) + 1;
            coloured = length > 4 || memcmp(text, "\033[0m", 4) != 0;
            tm_text_append(out, text, length);
            text += length;
            continue;
        }
        while ((text[length] & 0xC0) == 0x80 && length < sizeof one - 1)
            length++;
        memcpy(one, text, length);
        one[length] = '\0';
        taken += tm_term_columns(one);
        if (taken > room) break;
        tm_text_append(out, text, length);
        text += length;
    }
    if (coloured) tm_text_puts(out, "\033[0m");
    if (all > columns && columns > 0) tm_text_puts(out, term->utf8 ? "…" : "~");
}

static void end_line(struct page *page)
{
    while (page->line.length > 0 && page->line.data[page->line.length - 1] == ' ')
        page->line.data[--page->line.length] = '\0';
    const char *text = tm_text_string(&page->line);
    if (page->term->width > 0)
        put_cut(page->term, page->out, text, (size_t)page->term->width);
    else
        tm_text_puts(page->out, text);
    tm_text_putc(page->out, '\n');
    tm_text_clear(&page->line);
    page->lines++;
}

static void put(struct page *page, enum tm_color color, const char *text)
{
    tm_term_put(page->term, &page->line, color, text);
}

static size_t width_of(const struct page *page)
{
    return page->term->width > 0 ? (size_t)page->term->width : WIDTH_USUAL;
}

static const char *duration(double seconds, char buffer[TM_UNITS_TEXT_MAX])
{
    double ms = seconds >= 10 ? floor(seconds) * 1000 : floor(seconds * 10) * 100;
    if (!(ms > 0)) return "0s";
    return tm_unit_print(TM_UNIT_DURATION, ms < 9e15 ? (int64_t)ms : INT64_MAX, buffer);
}

static const char *money(double usd, char buffer[TM_UNITS_TEXT_MAX])
{
    return tm_unit_print(TM_UNIT_MONEY, usd > 0 && usd < 1e12 ? (int64_t)(usd * 1e6 + 0.5) : 0, buffer);
}

/* 15104 as "15.1k". */
static void put_large(struct tm_text *out, double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    tm_text_printf(out, value >= 100 ? "%.0f%s" : "%.3g%s", value, units[unit]);
}

/* ---- how far it is ---- */

static enum tm_color color_of_state(enum tm_job_state state)
{
    switch (state) {
    case TM_JOB_TRAINING:
    case TM_JOB_FINISHED:
        return TM_CYAN;
    case TM_JOB_FAILED:
        return TM_RED;
    default:
        return TM_YELLOW;
    }
}

static void put_title(struct page *page, const struct tm_picture_options *options)
{
    const struct tm_run_status *s = page->status;
    char text[TM_UNITS_TEXT_MAX];
    put(page, TM_BOLD, s->job.name[0] != '\0' ? s->job.name : "a run");
    tm_text_puts(&page->line, "  ");
    put(page, color_of_state(s->state), tm_job_state_name(s->state));
    if (s->generation != 0) tm_text_printf(&page->line, "  generation %" PRIu32, (uint32_t)s->generation);
    tm_text_printf(&page->line, "  %s real time", duration(s->wall_s, text));
    if (s->job.speed != 1) tm_text_printf(&page->line, ", %s in the cloud", duration(s->wall_s * s->job.speed, text));
    end_line(page);
    if (s->trouble[0] != '\0') {
        put(page, TM_RED, s->trouble);
        end_line(page);
    }
    if (options->note != NULL && options->note[0] != '\0') {
        put(page, TM_YELLOW, options->note);
        end_line(page);
    } else if (s->reason[0] != '\0') {
        bool ends = s->state == TM_JOB_FAILED || s->state == TM_JOB_STOPPING || s->state == TM_JOB_STOPPED;
        put(page, TM_YELLOW, ends ? "" : "waiting for "); /* else it says why */
        put(page, TM_YELLOW, s->reason);
        end_line(page);
    }
}

static void put_bar(struct page *page, double share, size_t cells)
{
    size_t full = (size_t)(share * (double)cells);
    for (size_t i = 0; i < cells; i++)
        tm_text_puts(&page->line, page->term->utf8 ? (i < full ? "█" : "░") : (i < full ? "#" : "."));
}

static bool still_goes(const struct tm_run_status *s)
{
    return s->state != TM_JOB_FINISHED && s->state != TM_JOB_FAILED && s->state != TM_JOB_STOPPED;
}

static void put_pace(const struct tm_run_status *s, struct tm_text *out)
{
    char text[TM_UNITS_TEXT_MAX];
    if (!still_goes(s)) return;
    tm_text_printf(out, "%.3g steps/s", s->steps_s);
    if (s->job.tokens_per_step > 0) {
        tm_text_puts(out, "  ");
        put_large(out, s->steps_s * (double)s->job.tokens_per_step);
        tm_text_puts(out, " tokens/s");
    }
    if (s->steps_s > 0 && s->job.steps > s->committed)
        tm_text_printf(out, "  %s left", duration((double)(s->job.steps - s->committed) / s->steps_s, text));
}

static void put_progress(struct page *page)
{
    const struct tm_run_status *s = page->status;
    struct tm_text pace;
    tm_text_init(&pace, 256);
    put_pace(s, &pace);
    tm_text_printf(&page->line, "step %" PRIu64, s->committed);
    if (s->job.steps > 0) {
        double share = (double)s->committed / (double)s->job.steps;
        if (share > 1) share = 1;
        tm_text_printf(&page->line, " of %" PRIu64 "  %3.0f%% ", s->job.steps, floor(share * 100));
        size_t used = visible_columns(tm_text_string(&page->line)) + visible_columns(tm_text_string(&pace)) + 2;
        size_t room = width_of(page) > used ? width_of(page) - used : 0;
        put_bar(page, share, room < BAR_LEAST ? BAR_LEAST : room > BAR_MOST ? BAR_MOST : room);
    }
    tm_text_printf(&page->line, "  %s", tm_text_string(&pace));
    end_line(page);
    tm_text_deinit(&pace);
}

/* From the lowest loss at the bottom: what is learned late is seen as well. */
static void put_loss(struct page *page)
{
    const struct tm_run_status *s = page->status;
    double values[TM_STATUS_LOSS_POINTS];
    double low = INFINITY;
    double high = -INFINITY;
    if (isnan(s->loss)) return;
    for (size_t i = 0; i < s->point_count; i++) {
        low = fmin(low, s->points[i].loss);
        high = fmax(high, s->points[i].loss);
    }
    for (size_t i = 0; i < s->point_count; i++)
        values[i] = s->points[i].loss - low + (high - low) / 16;
    tm_text_printf(&page->line, "loss %.4f  ", s->loss);
    size_t used = visible_columns(tm_text_string(&page->line));
    size_t room = width_of(page) > used ? width_of(page) - used : 1;
    struct tm_text spark;
    tm_text_init(&spark, 4096);
    tm_plot_sparkline(page->term, &spark, values, s->point_count, room < SPARK_MOST ? room : SPARK_MOST);
    put(page, TM_CYAN, tm_text_string(&spark));
    tm_text_deinit(&spark);
    end_line(page);
}

static void put_bill(struct page *page)
{
    const struct tm_run_status *s = page->status;
    char text[TM_UNITS_TEXT_MAX];
    if (s->instance_count == 0 || !tm_run_status_is_priced(s)) return;
    tm_text_printf(&page->line, "cost %s", money(s->bill_usd, text));
    if (s->on_demand_usd > 0)
        tm_text_printf(&page->line, ", on-demand %s: %.0f%% %s", money(s->on_demand_usd, text),
                       fabs(1 - s->bill_usd / s->on_demand_usd) * 100,
                       s->bill_usd > s->on_demand_usd ? "more" : "less");
    if (!isnan(s->spot_usd_h)) tm_text_printf(&page->line, "  (spot %s/h", money(s->spot_usd_h, text));
    if (!isnan(s->spot_usd_h) && !isnan(s->on_demand_usd_h))
        tm_text_printf(&page->line, ", on-demand %s/h", money(s->on_demand_usd_h, text));
    if (!isnan(s->spot_usd_h)) tm_text_putc(&page->line, ')');
    end_line(page);
}

/* ---- fleet and layout ---- */

static const struct tm_run_instance *instance_of(const struct tm_run_status *s, uint64_t id)
{
    for (size_t i = 0; i < s->instance_count; i++)
        if (s->instances[i].id == id) return &s->instances[i];
    return NULL;
}

/* "[12]", "[5! 28s]", "[7x]", "[ ]"; and its colour. */
static enum tm_color cell_of(const struct tm_run_status *s, uint64_t id, char out[CELL_MAX])
{
    const struct tm_run_instance *instance = instance_of(s, id);
    if (instance != NULL && instance->seat == TM_SEAT_NONE && !instance->worker && tm_run_instance_is_here(instance)) {
        (void)snprintf(out, CELL_MAX, "[%" PRIu64 "...]", id); /* its worker has yet to come */
        return TM_DIM;
    }
    if (id == 0 || instance == NULL || !tm_run_instance_is_here(instance) || !instance->worker) {
        if (id == 0)
            (void)snprintf(out, CELL_MAX, "[ ]");
        else
            (void)snprintf(out, CELL_MAX, "[%" PRIu64 "x]", id);
        return still_goes(s) ? TM_RED : TM_DIM;
    }
    if (instance->state == TM_INSTANCE_NOTICED) {
        double left_s = (double)(instance->leaves_utc_ms - s->utc_ms) / 1000;
        (void)snprintf(out, CELL_MAX, "[%" PRIu64 "! %.0fs]", id, left_s > 0 ? ceil(left_s) : 0);
        return TM_YELLOW;
    }
    (void)snprintf(out, CELL_MAX, "[%" PRIu64 "%s]", id, instance->spot ? "" : "*");
    return TM_CYAN;
}

static void put_padded(struct page *page, enum tm_color color, const char *text, size_t width)
{
    size_t used = tm_term_columns(text);
    put(page, color, text);
    if (used < width) tm_text_fill(&page->line, ' ', width - used);
}

static void stage_title(const struct tm_run_status *s, uint32_t stage, char out[CELL_MAX])
{
    uint32_t first = s->first_layers[stage];
    uint32_t end = stage + 1 < s->stages ? s->first_layers[stage + 1] : s->job.layers;
    if (end <= first + 1)
        (void)snprintf(out, CELL_MAX, "%u", first);
    else
        (void)snprintf(out, CELL_MAX, "%u-%u", first, end - 1);
}

/* Cells one after another, in as many lines as they need. */
/* `workers` of each instance, where `ids` are those of workers; else 1. */
static void put_cells(struct page *page, const char *title, const uint64_t *ids, size_t count, uint32_t workers)
{
    char cell[CELL_MAX];
    put_padded(page, TM_DIM, title, 12);
    for (size_t i = 0; i < count; i++) {
        enum tm_color color = cell_of(page->status, tm_instance_of_worker(ids[i], workers), cell);
        if (visible_columns(tm_text_string(&page->line)) + strlen(cell) + 1 > width_of(page)) {
            end_line(page);
            put_padded(page, TM_DIM, "", 12);
        }
        put(page, color, cell);
        tm_text_putc(&page->line, ' ');
    }
    end_line(page);
}

static void put_grid(struct page *page, size_t rows)
{
    const struct tm_run_status *s = page->status;
    char cell[CELL_MAX];
    size_t widest = 0;
    for (size_t i = 0; i < (size_t)s->pipelines * s->stages; i++) {
        (void)cell_of(s, tm_instance_of_worker(s->seats[i], s->job.workers), cell);
        if (strlen(cell) > widest) widest = strlen(cell);
    }
    for (uint32_t stage = 0; stage < s->stages; stage++) {
        stage_title(s, stage, cell);
        if (strlen(cell) > widest) widest = strlen(cell);
    }
    put_padded(page, TM_DIM, "layers", 12);
    for (uint32_t stage = 0; stage < s->stages; stage++) {
        stage_title(s, stage, cell);
        put_padded(page, TM_DIM, cell, widest + 1);
    }
    end_line(page);
    for (uint32_t p = 0; p < s->pipelines; p++) {
        char title[CELL_MAX];
        if (rows > 0 && p + 1 >= rows && p + 1 < s->pipelines) {
            tm_text_printf(&page->line, "            and %u more pipelines", s->pipelines - p);
            end_line(page);
            return;
        }
        (void)snprintf(title, sizeof title, "pipeline %u", p);
        put_padded(page, TM_DIM, title, 12);
        for (uint32_t stage = 0; stage < s->stages; stage++) {
            uint64_t worker = s->seats[(size_t)p * s->stages + stage];
            enum tm_color color = cell_of(s, tm_instance_of_worker(worker, s->job.workers), cell);
            put_padded(page, color, cell, widest + 1);
        }
        end_line(page);
    }
}

/* Those without a seat in the layout that are here: spares, and newcomers whose turn comes. */
static void put_others(struct page *page, enum tm_seat_kind seat, const char *title)
{
    const struct tm_run_status *s = page->status;
    uint64_t *ids = tm_calloc(s->instance_count + 1, sizeof *ids);
    size_t count = 0;
    for (size_t i = 0; ids != NULL && i < s->instance_count; i++)
        if (tm_run_instance_is_here(&s->instances[i]) && s->instances[i].seat == seat)
            ids[count++] = s->instances[i].id;
    if (count > 0) put_cells(page, title, ids, count, 1);
    tm_free(ids);
}

static void put_fleet(struct page *page, size_t rows)
{
    const struct tm_run_status *s = page->status;
    if (!still_goes(s)) {
        tm_text_printf(&page->line, "layouts     %" PRIu64 ", the last %u x %u; step %" PRIu64 " is durable",
                       s->generations, s->pipelines, s->stages, s->durable);
        end_line(page);
        return;
    }
    if (s->pipelines > 0) {
        tm_text_printf(&page->line, "%u pipeline%s of %u stage%s", s->pipelines, s->pipelines == 1 ? "" : "s",
                       s->stages, s->stages == 1 ? "" : "s");
        if (s->spares > 0) tm_text_printf(&page->line, ", %u spare%s", s->spares, s->spares == 1 ? "" : "s");
        if (s->durable > 0) tm_text_printf(&page->line, "; step %" PRIu64 " is durable", s->durable);
        end_line(page);
        if (s->stages == 1)
            put_cells(page, "pipelines", s->seats, s->pipelines, s->job.workers);
        else
            put_grid(page, rows);
    }
    put_others(page, TM_SEAT_SPARE, "spares");
    put_others(page, TM_SEAT_KEEPS, "keep copies");
    put_others(page, TM_SEAT_NONE, "joining");
}

/* With those that keep copies. */
static uint32_t wanted(const struct tm_run_status *s)
{
    uint32_t count = 0;
    for (size_t i = 0; i < s->job.pool_count; i++)
        count += s->pools[i].want;
    return s->job.pool_count > 0 ? count : s->want_spot + s->want_on_demand;
}

static void put_counts(struct page *page)
{
    const struct tm_run_status *s = page->status;
    char text[TM_UNITS_TEXT_MAX];
    tm_text_printf(&page->line, "instances   %u running", s->here);
    if (s->noticed > 0) tm_text_printf(&page->line, ", %u with a notice", s->noticed);
    if (still_goes(s) && wanted(s) > 0) tm_text_printf(&page->line, ", %u wanted", wanted(s));
    tm_text_printf(&page->line, "; %" PRIu64 " arrived, %" PRIu64 " preempted with notice, %" PRIu64 " without",
                   s->arrivals, s->losses_announced, s->losses_unannounced);
    end_line(page);
    if (s->pause.count + s->redone + s->rolled_back == 0 && s->waiting_s < 0.05) return;
    tm_text_printf(&page->line, "migrations  %" PRIu64, s->pause.count);
    if (s->pause.count > 0)
        tm_text_printf(&page->line, ": median %.2fs, longest %.2fs, %.2fs in total", s->pause.p50_s, s->pause.max_s,
                       s->pause.total_s);
    if (s->waiting_s >= 0.05)
        tm_text_printf(&page->line, "; idle for %s, waiting for instances", duration(s->waiting_s, text));
    tm_text_printf(&page->line, "; %" PRIu64 " redone, %" PRIu64 " rolled back", s->redone, s->rolled_back);
    end_line(page);
}

/* ---- events ---- */

void tm_run_put_when(const struct tm_run_status *s, int64_t utc_ms, struct tm_text *out)
{
    double since_s = (double)(utc_ms - s->begun_utc_ms) / 1000;
    tm_text_printf(out, "%8.1fs", since_s);
}

static void put_events(struct page *page, size_t most)
{
    const struct tm_run_status *s = page->status;
    size_t from = s->event_count > most ? s->event_count - most : 0;
    for (size_t i = from; i < s->event_count; i++) {
        struct tm_text when;
        tm_text_init(&when, 64);
        tm_run_put_when(s, s->events[i].utc_ms, &when);
        put(page, TM_DIM, tm_text_string(&when));
        tm_text_printf(&page->line, "  %s", s->events[i].text);
        tm_text_deinit(&when);
        end_line(page);
    }
}

void tm_run_picture(const struct tm_run_status *status, const struct tm_term *term,
                    const struct tm_picture_options *options, struct tm_text *out)
{
    enum { AROUND = 12 }; /* lines beside pipelines and events */
    struct page page = {.status = status, .term = term, .out = out};
    tm_text_init(&page.line, LINE_MAX_BYTES);
    size_t pipelines = options->rows == 0 ? 0 : options->rows > AROUND + 6 ? options->rows - AROUND - 4 : 2;
    put_title(&page, options);
    put_progress(&page);
    put_loss(&page);
    put_bill(&page);
    put_fleet(&page, pipelines);
    put_counts(&page);
    size_t left = options->rows == 0               ? options->events
                  : options->rows > page.lines + 1 ? options->rows - page.lines - 1
                                                   : 0;
    if (left > options->events) left = options->events;
    if (left > 0 && status->event_count > 0) {
        end_line(&page);
        put_events(&page, left);
    }
    if (page.line.failed != 0 && out->failed == 0) out->failed = page.line.failed;
    tm_text_deinit(&page.line);
}

void tm_run_progress_line(const struct tm_run_status *s, struct tm_text *out)
{
    char text[TM_UNITS_TEXT_MAX];
    tm_text_printf(out, "%s: step %" PRIu64, tm_job_state_name(s->state), s->committed);
    if (s->job.steps > 0) tm_text_printf(out, " of %" PRIu64, s->job.steps);
    if (!isnan(s->loss)) tm_text_printf(out, ", loss %.4f", s->loss);
    tm_text_printf(out, ", %.3g steps/s", s->steps_s);
    if (s->pipelines > 0) tm_text_printf(out, ", %ux%u", s->pipelines, s->stages);
    tm_text_printf(out, ", %u instance%s", s->here, s->here == 1 ? "" : "s");
    if (s->instance_count > 0 && tm_run_status_is_priced(s)) tm_text_printf(out, ", cost %s", money(s->bill_usd, text));
    if (s->on_demand_usd > 0) tm_text_printf(out, " (on-demand %s)", money(s->on_demand_usd, text));
    if (s->trouble[0] != '\0') tm_text_printf(out, "; %s", s->trouble);
}

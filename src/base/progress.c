#include "base/progress.h"

#include "base/units.h"

#include <stdio.h>

enum { BAR_CELLS = 30, SILENT_NS = 1000000000, REDRAW_NS = 100000000 };

void tm_progress_start(struct tm_progress *progress, struct tm_env *env, struct tm_term term, const char *label,
                       int64_t total)
{
    *progress = (struct tm_progress){
        .env = env, .term = term, .label = label, .total = total, .started_ns = env->monotonic_ns(env)};
}

static void emit(struct tm_progress *progress, const struct tm_text *text)
{
    if (text->failed != 0) return;
    if (progress->write != NULL)
        progress->write(progress->write_context, tm_text_string(text), text->length);
    else
        (void)fwrite(tm_text_string(text), 1, text->length, stderr);
}

static void draw(struct tm_progress *progress, int64_t done, int64_t elapsed_ns)
{
    double share = progress->total > 0 ? (double)done / (double)progress->total : 0;
    if (share > 1) share = 1;
    struct tm_text line;
    tm_text_init(&line, 1024);
    tm_text_printf(&line, "\r%s ", progress->label);
    for (int i = 0; i < BAR_CELLS; i++) {
        bool full = i < (int)(share * BAR_CELLS);
        tm_text_puts(&line, progress->term.utf8 ? (full ? "█" : "░") : (full ? "#" : "."));
    }
    tm_text_printf(&line, " %3d%%", (int)(share * 100));
    if (share > 0.01) {
        char left[TM_UNITS_TEXT_MAX];
        int64_t left_ms = (int64_t)((double)elapsed_ns * (1 - share) / share / 1e6);
        tm_text_printf(&line, "  %s left", tm_unit_print(TM_UNIT_DURATION, left_ms, left));
    }
    tm_text_puts(&line, "\033[K");
    emit(progress, &line);
    tm_text_deinit(&line);
}

void tm_progress_update(struct tm_progress *progress, int64_t done)
{
    if (!progress->term.is_terminal) return;
    int64_t now = progress->env->monotonic_ns(progress->env);
    if (now - progress->started_ns < SILENT_NS) return;
    if (progress->drawn_ns != 0 && now - progress->drawn_ns < REDRAW_NS) return;
    progress->drawn_ns = now;
    draw(progress, done, now - progress->started_ns);
}

void tm_progress_finish(struct tm_progress *progress)
{
    if (progress->drawn_ns == 0) return;
    struct tm_text line;
    tm_text_init(&line, 16);
    tm_text_puts(&line, "\r\033[K");
    emit(progress, &line);
    tm_text_deinit(&line);
    progress->drawn_ns = 0;
}

#include "cli/run_summary.h"

#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *duration(double seconds, char buffer[TM_UNITS_TEXT_MAX])
{
    double ms = seconds >= 10 ? round(seconds) * 1000 : round(seconds * 10) * 100;
    if (!(ms > 0)) return "0s";
    return tm_unit_print(TM_UNIT_DURATION, ms < 9e15 ? (int64_t)ms : INT64_MAX, buffer);
}

static const char *money(double usd, char buffer[TM_UNITS_TEXT_MAX])
{
    return tm_unit_print(TM_UNIT_MONEY, usd > 0 && usd < 1e12 ? (int64_t)(usd * 1e6 + 0.5) : 0, buffer);
}

static void put_title(const struct tm_term *term, struct tm_text *out, const char *title)
{
    tm_text_puts(out, "  ");
    tm_term_put(term, out, TM_DIM, title);
    tm_text_fill(out, ' ', 11 - strlen(title));
}

/* What the worker wrote last, line by line as it wrote it. */
static void put_output(const struct tm_run_status *s, const char *dir, const struct tm_term *term, struct tm_text *out)
{
    for (size_t i = 0; i < s->output.count; i++) {
        put_title(term, out, i == 0 ? "its output" : "");
        tm_text_printf(out, "%s\n", s->output.text[i]);
    }
    if (s->output_file[0] == '\0') return;
    put_title(term, out, "all of it");
    tm_text_printf(out, "%s/%s\n", dir, s->output_file);
}

static void put_head(const struct tm_run_status *s, const char *dir, const struct tm_term *term, struct tm_text *out)
{
    bool good = s->state == TM_JOB_FINISHED || s->state == TM_JOB_STOPPED;
    tm_term_put(term, out, TM_BOLD, s->job.name);
    tm_text_puts(out, " ");
    tm_term_put(term, out, good ? TM_CYAN : TM_RED, tm_job_state_name(s->state));
    tm_text_printf(out, ": step %" PRIu64 " of %" PRIu64, s->committed, s->job.steps);
    if (!isnan(s->loss)) tm_text_printf(out, ", loss %.4f", s->loss);
    tm_text_putc(out, '\n');
    if (s->reason[0] != '\0') {
        put_title(term, out, "why");
        tm_text_printf(out, "%s\n", s->reason);
    }
    if (s->state == TM_JOB_FAILED) put_output(s, dir, term, out);
}

static void put_time_and_bill(const struct tm_run_status *s, const struct tm_run_predictions *predicted,
                              const struct tm_term *term, struct tm_text *out)
{
    char text[TM_UNITS_TEXT_MAX];
    bool whole = predicted != NULL && s->state == TM_JOB_FINISHED; /* a part cannot be compared */
    put_title(term, out, "time");
    tm_text_puts(out, duration(s->wall_s, text));
    if (s->job.speed != 1) tm_text_printf(out, ", %s in the cloud", duration(s->wall_s * s->job.speed, text));
    if (whole && predicted->run.time_s > 0)
        tm_text_printf(out, "; predicted %s", duration(predicted->run.time_s, text));
    tm_text_putc(out, '\n');
    if (!tm_run_status_is_priced(s)) return;
    put_title(term, out, "cost");
    tm_text_puts(out, money(s->bill_usd, text));
    if (whole && predicted->run.bill_usd > 0)
        tm_text_printf(out, "; predicted %s", money(predicted->run.bill_usd, text));
    if (s->on_demand_usd > 0)
        tm_text_printf(out, "; the same instance-seconds on-demand %s: %.0f%% %s", money(s->on_demand_usd, text),
                       fabs(1 - s->bill_usd / s->on_demand_usd) * 100,
                       s->bill_usd > s->on_demand_usd ? "more" : "less");
    tm_text_putc(out, '\n');
}

static void put_changes(const struct tm_run_status *s, const struct tm_term *term, struct tm_text *out)
{
    char text[TM_UNITS_TEXT_MAX];
    put_title(term, out, "instances");
    tm_text_printf(out, "%" PRIu64 " arrived, %" PRIu64 " preempted with notice, %" PRIu64 " without\n", s->arrivals,
                   s->losses_announced, s->losses_unannounced);
    put_title(term, out, "migrations");
    tm_text_printf(out, "%" PRIu64, s->pause.count);
    if (s->pause.count > 0)
        tm_text_printf(out, ": median %.2fs, longest %.2fs, %.2fs in total", s->pause.p50_s, s->pause.max_s,
                       s->pause.total_s);
    if (s->recovery.count > 0)
        tm_text_printf(out, "; %" PRIu64 " unplanned: median %.2fs, longest %.2fs", s->recovery.count,
                       s->recovery.p50_s, s->recovery.max_s);
    if (s->waiting_s >= 0.05) tm_text_printf(out, "; idle for %s, waiting for instances", duration(s->waiting_s, text));
    tm_text_putc(out, '\n');
    put_title(term, out, "work");
    tm_text_printf(out, "%" PRIu64 " generation%s; %" PRIu64 " step%s redone, %" PRIu64 " rolled back\n",
                   s->generations, s->generations == 1 ? "" : "s", s->redone, s->redone == 1 ? "" : "s",
                   s->rolled_back);
    bool weights = s->weights_hash[0] != '\0';
    if (!weights && s->state_hash[0] == '\0') return;
    put_title(term, out, weights ? "weights" : "state");
    tm_text_printf(out, "%s\n", weights ? s->weights_hash : s->state_hash);
}

void tm_run_summary_print(const struct tm_run_status *s, const struct tm_run_predictions *predicted, const char *dir,
                          const struct tm_term *term, struct tm_text *out)
{
    bool goes_on = s->state != TM_JOB_FINISHED && (s->state != TM_JOB_FAILED || s->durable > 0);
    put_head(s, dir, term, out);
    put_time_and_bill(s, predicted, term, out);
    put_changes(s, term, out);
    put_title(term, out, "report");
    tm_text_printf(out, "%s/report.html\n", dir);
    tm_text_puts(out, "Next:\n");
    if (goes_on)
        tm_text_printf(out, "  tidemill run --resume --state %s\n", dir);
    else if (s->weights_hash[0] != '\0' && !isnan(s->loss)) /* the paced engine trains nothing */
        tm_text_printf(out, "  tidemill generate %s/result\n", dir);
    tm_text_printf(out, "  tidemill events --state %s\n", dir);
    tm_text_printf(out, "  tidemill status --state %s --json\n", dir);
}

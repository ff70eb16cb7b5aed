/* The document: cards, the comparison with what was predicted, and tables. Pictures are run_report_lanes.c's. */
#include "run/run_report_internal.h"

#include <inttypes.h>

#define DOT   " \xc2\xb7 "
#define TIMES "\xc3\x97"

/* ---- cards ---- */

static void open_card(struct tm_text *out, const char *title)
{
    tm_text_printf(out, "<div class=card><span>%s</span><b>", title);
}

static void put_cards(struct tm_text *out, const struct tm_run_status *s)
{
    tm_text_puts(out, "<div class=cards>");
    open_card(out, "cost");
    tm_html_usd(out, s->bill_usd);
    tm_text_puts(out, "</b><small>the same instance-seconds on-demand: ");
    tm_html_usd(out, s->on_demand_usd);
    if (s->on_demand_usd > 0) {
        tm_text_puts(out, ", ");
        tm_html_percent(out, s->on_demand_usd - s->bill_usd, s->on_demand_usd, 0);
        tm_text_puts(out, " less");
    }
    tm_text_puts(out, "</small></div>");
    open_card(out, "time");
    tm_html_duration(out, s->wall_s);
    tm_text_puts(out, "</b><small>real time");
    if (s->job.speed != 1) {
        tm_text_puts(out, "; ");
        tm_html_duration(out, s->wall_s * s->job.speed);
        tm_text_puts(out, " in the cloud");
    }
    tm_text_puts(out, "</small></div>");
    open_card(out, "steps committed");
    tm_html_number(out, (double)s->committed, 0);
    tm_text_puts(out, "</b><small>");
    if (s->job.steps > 0) tm_text_printf(out, "of %" PRIu64 DOT, s->job.steps);
    tm_text_printf(out, "%" PRIu64 " redone" DOT "%" PRIu64 " rolled back</small></div>", s->redone, s->rolled_back);
    open_card(out, "migrating");
    tm_html_number(out, s->pause.total_s, 2);
    tm_text_printf(out, " s</b><small>%" PRIu64 " migration%s", s->pause.count, s->pause.count == 1 ? "" : "s");
    if (s->pause.count > 0) {
        tm_text_puts(out, ", median ");
        tm_html_number(out, s->pause.p50_s, 2);
        tm_text_puts(out, " s, longest ");
        tm_html_number(out, s->pause.max_s, 2);
        tm_text_puts(out, " s");
    }
    tm_text_puts(out, "</small></div></div>\n");
}

/* Where there is a choice of them. */
static void put_pools(struct tm_text *out, const struct tm_run_status *s)
{
    if (s->job.pool_count == 0) return;
    tm_text_puts(out, "<h2>Pools</h2><table><tr><th>pool<th>instance-hours<th>cost</tr>\n");
    for (size_t i = 0; i < s->job.pool_count; i++) {
        tm_text_puts(out, "<tr><td>");
        tm_html_escape(out, s->job.pools[i]);
        tm_text_puts(out, "<td>");
        tm_html_number(out, s->pools[i].instance_hours, 2);
        tm_text_puts(out, "<td>");
        tm_html_usd(out, s->pools[i].bill_usd);
        tm_text_puts(out, "</tr>\n");
    }
    tm_text_puts(out, "</table>\n");
}

static void put_sentence(struct tm_text *out, const struct tm_run_status *s, const char *weights_hash)
{
    tm_text_printf(out,
                   "<p>%" PRIu64 " instance%s arrived; %" PRIu64 " %s preempted with notice and %" PRIu64
                   " without. %" PRIu64 " generation%s trained. ",
                   s->arrivals, s->arrivals == 1 ? "" : "s", s->losses_announced,
                   s->losses_announced == 1 ? "was" : "were", s->losses_unannounced, s->generations,
                   s->generations == 1 ? "" : "s");
    if (s->recovery.count > 0) {
        tm_text_printf(out, "%" PRIu64 " of the pauses %s unplanned recover%s, median ", s->recovery.count,
                       s->recovery.count == 1 ? "was an" : "were", s->recovery.count == 1 ? "y" : "ies");
        tm_html_number(out, s->recovery.p50_s, 2);
        tm_text_puts(out, " s. ");
    }
    if (s->waiting_s >= 0.05) {
        tm_text_puts(out, "For ");
        tm_html_duration(out, s->waiting_s);
        tm_text_puts(out, " there were too few instances to train. ");
    }
    if (!isnan(s->loss)) {
        tm_text_puts(out, "The last loss is ");
        tm_html_number(out, s->loss, 4);
        tm_text_puts(out, ". ");
    }
    if (weights_hash != NULL) {
        tm_text_puts(out, "Hash of the weights: <code>");
        tm_html_escape(out, weights_hash);
        tm_text_puts(out, "</code>");
    } else if (s->state_hash[0] != '\0') {
        tm_text_printf(out, "Hash of the state: <code>%s</code>", s->state_hash);
    }
    tm_text_puts(out, "</p>\n");
}

/* ---- against what was predicted ---- */

static void put_difference(struct tm_text *out, double got, double predicted)
{
    tm_text_puts(out, "</td><td>");
    if (got > predicted) tm_text_putc(out, '+');
    tm_html_percent(out, got - predicted, predicted, 1);
    tm_text_puts(out, "</td>");
}

static void put_row(struct tm_text *out, const char *name, const struct tm_run_predicted *row,
                    const struct tm_run_predicted *against, const char *class)
{
    tm_text_printf(out, "<tr%s><th>%s</th><td>", class, name);
    tm_html_duration(out, row->time_s);
    if (against != NULL)
        put_difference(out, row->time_s, against->time_s);
    else
        tm_text_puts(out, "</td><td></td>");
    tm_text_puts(out, "<td>");
    tm_html_usd(out, row->bill_usd);
    if (against != NULL)
        put_difference(out, row->bill_usd, against->bill_usd);
    else
        tm_text_puts(out, "</td><td></td>");
    tm_text_puts(out, "<td>");
    tm_html_duration(out, row->paused_s);
    tm_text_puts(out, "</td></tr>\n");
}

static void put_predictions(struct tm_text *out, const struct tm_run_report *report)
{
    const struct tm_run_status *s = report->history->status;
    if (report->run == NULL) return;
    struct tm_run_predicted got = {
        .time_s = s->wall_s * s->job.speed, .bill_usd = s->bill_usd, .paused_s = s->pause.total_s * s->job.speed};
    tm_text_puts(
        out, "<article class=flow><h2>What was predicted</h2>\n"
             "<p class=note>By simulation before the run, with the same policy, the same trace and the migration costs "
             "known then. Times are in the cloud's time. Differences are between the prediction and the run.</p>\n"
             "<div "
             "class=scroll><table><thead><tr><th></th><th>time</th><th></th><th>cost</th><th></th><th>migrating</th></"
             "tr></thead><tbody>");
    put_row(out, "predicted", report->run, NULL, "");
    put_row(out, "this run", &got, report->run, " class=won");
    if (report->restart != NULL) put_row(out, "predicted: checkpoint-restart", report->restart, NULL, "");
    if (report->on_demand != NULL) put_row(out, "predicted: a full on-demand fleet", report->on_demand, NULL, "");
    tm_text_puts(out, "</tbody></table></div></article>\n");
}

/* ---- tables ---- */

/* Pauses by what caused them. */
static void put_causes(struct tm_text *out, const struct tm_run_history *history)
{
    const struct tm_run_status *s = history->status;
    if (s->pause_count == 0) return;
    tm_text_puts(out, "<div class=scroll><table><thead><tr><th>cause of the pause</th><th>how often</th><th>mean "
                      "(s)</th><th>longest (s)</th><th>total (s)</th></tr></thead><tbody>");
    for (int cause = TM_CHANGED_NONE; cause <= TM_CHANGED_BEGIN; cause++) {
        size_t count = 0;
        double sum_s = 0;
        double max_s = 0;
        for (size_t i = 0; i < s->pause_count; i++) {
            if (s->pauses[i].cause != (enum tm_change_cause)cause) continue;
            count++;
            sum_s += s->pauses[i].pause_s;
            max_s = fmax(max_s, s->pauses[i].pause_s);
        }
        if (count == 0) continue;
        tm_text_printf(out, "<tr><th>%s</th><td>%zu</td><td>", tm_run__cause_words((enum tm_change_cause)cause), count);
        tm_html_number(out, sum_s / (double)count, 3);
        tm_text_puts(out, "</td><td>");
        tm_html_number(out, max_s, 3);
        tm_text_puts(out, "</td><td>");
        tm_html_number(out, sum_s, 3);
        tm_text_puts(out, "</td></tr>\n");
    }
    tm_text_puts(out, "</tbody></table></div>\n");
}

static void put_events(struct tm_text *out, const struct tm_run_history *history)
{
    tm_text_puts(out, "<details><summary>Every event</summary>\n<div class=scroll><table class=words><thead><tr>"
                      "<th>time (s)</th><th>kind</th><th>what happened</th></tr></thead><tbody>");
    for (size_t i = 0; i < history->event_count; i++) {
        const struct tm_history_event *event = &history->events[i];
        tm_text_puts(out, "<tr><th>");
        tm_html_number(out, event->time_s, 2);
        tm_text_printf(out, "</th><td>%s</td><td>", event->kind);
        tm_html_escape(out, event->text);
        tm_text_puts(out, "</td></tr>\n");
    }
    tm_text_puts(out, "</tbody></table></div>");
    if (history->events_left_out > 0)
        tm_text_printf(out, "<p class=note>%zu more are in the record; tidemill events prints them.</p>",
                       history->events_left_out);
    tm_text_puts(out, "</details>\n");
}

int tm_run_report_html(const struct tm_run_report *report, struct tm_text *out, struct tm_error *e)
{
    const struct tm_run_history *history = report->history;
    const struct tm_run_status *s = history->status;
    char title[TM_STATUS_NAME_MAX + 32];
    (void)snprintf(title, sizeof title, "%s: %s", s->job.name[0] != '\0' ? s->job.name : "a run",
                   tm_job_state_name(s->state));
    tm_html_begin(out, title);
    if (s->job.command[0] != '\0')
        tm_html_command(out, s->job.command);
    else
        tm_text_puts(out, "</header>\n");
    put_cards(out, s);
    put_sentence(out, s, report->weights_hash);
    put_predictions(out, report);
    put_pools(out, s);
    tm_run__timeline(out, history);
    put_causes(out, history);
    tm_text_puts(out, "</article>\n");
    tm_run__loss_curve(out, history);
    tm_run__instances(out, history);
    put_events(out, history);
    tm_html_end(out);
    return tm_text_status(out, e);
}

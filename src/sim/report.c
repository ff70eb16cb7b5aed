#include "sim/report_internal.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* All timelines together, in columns: some 100 bytes each. */
enum { COLUMNS_ALL = 14400, COLUMNS_LEAST = 60, COLUMNS_MOST = 480 };

const char *const tm_report__cause_names[TM_REPORT_CAUSES] = {"training", "migrating", "rollback",
                                                              "idle: too few instances", "start"};

/* ---- judging ---- */

bool tm_report__is_bound(const struct tm_report_run *run)
{
    const struct tm_policy_info *info = tm_policy_find(run->policy);
    if (strncasecmp(run->policy, "ideal", 5) == 0) return true;
    return info != NULL && (info->knows == TM_KNOWS_NEXT || info->knows == TM_KNOWS_ALL);
}

bool tm_report__is_on_demand(const struct tm_report_run *run)
{
    const struct tm_policy_info *info = tm_policy_find(run->policy);
    return info != NULL && info->on_demand;
}

double tm_report__stall_of(const struct tm_report_run *run, enum tm_sim_cause cause)
{
    const struct tm_sim_pauses *pauses = &run->result->pauses;
    double by_cause[TM_REPORT_CAUSES] = {0, pauses->migrate_s, pauses->rollback_s, pauses->idle_s, pauses->start_s};
    return tm_html_is_plain(by_cause[cause]) && by_cause[cause] > 0 ? by_cause[cause] : 0;
}

double tm_report__until_s(const struct tm_report_run *run)
{
    return isfinite(run->result->finished_at_s) ? run->result->finished_at_s : run->result->wall_s;
}

double tm_report__stall_s(const struct tm_report_run *run)
{
    double sum = 0;
    for (int cause = TM_SIM_NONE + 1; cause < TM_REPORT_CAUSES; cause++)
        sum += tm_report__stall_of(run, (enum tm_sim_cause)cause);
    return sum;
}

static double or_zero(double value)
{
    return isfinite(value) ? value : 0;
}

/* What can be run first, bounds last; on-demand, which loses nothing, apart from spot where samples decide. */
static int class_of(const struct tm_report_group *group, const struct tm_report_run *run)
{
    if (tm_report__is_bound(run)) return 2;
    return tm_report__is_on_demand(run) && !group->finite ? 1 : 0;
}

/* Whether a goes before b. With an end: who finished, in time, for less money, sooner. */
static bool goes_before(const struct tm_report_group *group, const struct tm_report_run *a,
                        const struct tm_report_run *b)
{
    if (class_of(group, a) != class_of(group, b)) return class_of(group, a) < class_of(group, b);
    if (group->finite) {
        bool a_done = isfinite(a->result->finished_at_s), b_done = isfinite(b->result->finished_at_s);
        if (a_done != b_done) return a_done;
        if (a->result->deadline_met != b->result->deadline_met) return a->result->deadline_met;
        double a_usd = or_zero(a->result->bill_usd), b_usd = or_zero(b->result->bill_usd);
        if (a_done && (a_usd < b_usd || b_usd < a_usd)) return a_usd < b_usd;
        if (a_done) return a->result->finished_at_s < b->result->finished_at_s;
    }
    return or_zero(a->result->samples) > or_zero(b->result->samples);
}

/* Of a class that can win, has trained, and is as good as the winner but for what sums of doubles may lose. */
static bool is_as_good(const struct tm_report_group *group, const struct tm_report_run *run,
                       const struct tm_report_run *winner)
{
    if (!(or_zero(run->result->samples) > 0) || class_of(group, run) == 2 ||
        class_of(group, run) != class_of(group, winner))
        return false;
    double mine = or_zero(group->finite ? run->result->bill_usd : run->result->samples);
    double theirs = or_zero(group->finite ? winner->result->bill_usd : winner->result->samples);
    bool both_done = isfinite(run->result->finished_at_s) == isfinite(winner->result->finished_at_s) &&
                     run->result->deadline_met == winner->result->deadline_met;
    return (!group->finite || both_done) && fabs(mine - theirs) <= 1e-5 * fabs(theirs);
}

static void rank(struct tm_report_group *group)
{
    for (size_t i = 1; i < group->count; i++) {
        const struct tm_report_run *run = group->runs[i];
        size_t at = i;
        for (; at > 0 && goes_before(group, run, group->runs[at - 1]); at--)
            group->runs[at] = group->runs[at - 1];
        group->runs[at] = run;
    }
    group->won = 0;
    while (group->won < group->count && is_as_good(group, group->runs[group->won], group->runs[0]))
        group->won++;
    group->next = group->ideal = TM_REPORT_NONE;
    if (group->count > 1 && class_of(group, group->runs[1]) == class_of(group, group->runs[0])) group->next = 1;
    for (size_t i = group->count; i-- > 0;)
        if (strcasecmp(group->runs[i]->policy, "ideal") == 0) group->ideal = (int)i;
}

/* ---- the view ---- */

static void measure_log(struct tm_report_group *group, const struct tm_sim_log *log, double *used_s)
{
    for (size_t i = 0; log != NULL && i < log->count; i++) {
        const struct tm_sim_interval *interval = &log->intervals[i];
        double end_s = interval->time_s + interval->duration_s;
        double work_s = interval->duration_s - (interval->cause == TM_SIM_NONE ? 0 : interval->pause_s);
        double rate = work_s > 0 ? interval->samples / work_s : 0;
        if (tm_html_is_plain(end_s)) group->end_s = fmax(group->end_s, end_s);
        if (tm_html_is_plain(rate) && interval->cause != TM_SIM_IDLE) group->rate_max = fmax(group->rate_max, rate);
        if (interval->after > group->instances_max) group->instances_max = interval->after;
        if (interval->stages > 0 && interval->stages <= TM_LAYOUT_STAGES_MAX && interval->duration_s > 0 &&
            tm_html_is_plain(interval->duration_s))
            used_s[interval->stages] += interval->duration_s;
    }
}

/* Colours in order of depth; where there are more depths than colours, for those used longest. */
static void choose_colors(struct tm_report_group *group, const double *used_s)
{
    int depths = 0, color = 0;
    for (int stages = 0; stages <= TM_LAYOUT_STAGES_MAX; stages++)
        depths += used_s[stages] > 0;
    for (int stages = 0; stages <= TM_LAYOUT_STAGES_MAX; stages++) {
        int longer = 0;
        for (int other = 0; other <= TM_LAYOUT_STAGES_MAX; other++)
            longer += used_s[other] > used_s[stages] || (used_s[other] >= used_s[stages] && other < stages);
        group->color_of[stages] = !(used_s[stages] > 0)       ? TM_REPORT_NONE
                                  : longer < TM_REPORT_COLORS ? color++
                                                              : TM_REPORT_COLORS;
    }
    group->more_depths = depths > TM_REPORT_COLORS;
}

static void measure(struct tm_report_group *group)
{
    double used_s[TM_LAYOUT_STAGES_MAX + 1] = {0};
    for (size_t i = 0; i < group->count; i++) {
        measure_log(group, group->runs[i]->log, used_s);
        if (isfinite(group->runs[i]->result->finished_at_s)) group->finite = true;
    }
    choose_colors(group, used_s);
}

static bool is_of(const struct tm_report_group *group, const struct tm_report_run *run)
{
    const char *note = run->note != NULL ? run->note : "";
    return strcmp(group->model, run->model) == 0 && strcmp(group->trace, run->trace) == 0 &&
           strcmp(group->note, note) == 0;
}

/* Groups with their first run and count, then the order filled group by group. */
static void group_runs(struct tm_report_view *view)
{
    const struct tm_report *report = view->report;
    for (size_t i = 0; i < report->run_count; i++) {
        const struct tm_report_run *run = &report->runs[i];
        size_t g = 0;
        while (g < view->group_count && !is_of(&view->groups[g], run))
            g++;
        if (g == view->group_count)
            view->groups[view->group_count++] = (struct tm_report_group){
                .model = run->model, .trace = run->trace, .note = run->note != NULL ? run->note : ""};
        view->groups[g].count++;
        if (or_zero(run->result->bill_usd) > 0) view->priced = true;
    }
    const struct tm_report_run **next = view->order;
    for (size_t g = 0; g < view->group_count; g++) {
        struct tm_report_group *group = &view->groups[g];
        group->runs = next;
        for (size_t i = 0; i < report->run_count; i++)
            if (is_of(group, &report->runs[i])) *next++ = &report->runs[i];
        measure(group);
        rank(group);
    }
}

static int make_view(struct tm_report_view *view, const struct tm_report *report, struct tm_error *e)
{
    if (report->run_count > TM_REPORT_RUNS_MAX)
        return tm_error_set(e, TM_ELIMIT, "a report shows at most %d runs, not %zu; simulate fewer at once",
                            (int)TM_REPORT_RUNS_MAX, report->run_count);
    *view = (struct tm_report_view){.report = report};
    view->order = tm_calloc(report->run_count + 1, sizeof(struct tm_report_run *));
    view->groups = tm_calloc(report->run_count + 1, sizeof *view->groups);
    if (view->order == NULL || view->groups == NULL) {
        tm_free(view->order);
        tm_free(view->groups);
        return tm_error_nomem(e);
    }
    size_t each = COLUMNS_ALL / (report->run_count + 1);
    view->column_max = each < COLUMNS_LEAST ? COLUMNS_LEAST : each > COLUMNS_MOST ? COLUMNS_MOST : each;
    group_runs(view);
    return 0;
}

/* ---- the document ---- */

static int put_group(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                     struct tm_error *e)
{
    tm_text_printf(out, "<article id=g%zu><h2>", (size_t)(group - view->groups));
    tm_html_escape(out, group->model);
    tm_text_puts(out, " <span class=on>on</span> ");
    tm_html_escape(out, group->trace);
    tm_text_puts(out, group->note[0] != '\0' ? " <span class=on>" : "");
    tm_html_escape(out, group->note);
    tm_text_puts(out, group->note[0] != '\0' ? "</span></h2>\n" : "</h2>\n");
    tm_report__cards(out, view, group);
    if (or_zero(group->runs[0]->result->samples) <= 0)
        tm_text_puts(out, "<p>Nothing was trained: there were never enough instances for a layout.</p>\n");
    tm_report__bars(out, view, group);
    tm_report__table(out, view, group);
    int rc = tm_report__timelines(out, view, group, e);
    tm_text_puts(out, "</article>\n");
    return rc;
}

static void put_fans(struct tm_text *out, const struct tm_report *report)
{
    if (report->fan_count == 0) return;
    tm_text_puts(out, "<article class=fans><h2>Forecasts compared with what happened</h2>\n"
                      "<ul class=legend><li><i class=truth></i>instances available</li><li><i class=median></i>median "
                      "of the forecast</li><li><i class=band></i>80% band (10th to 90th percentile)</li></ul>\n");
    for (size_t i = 0; i < report->fan_count; i++)
        tm_report__fan(out, &report->fans[i]);
    tm_text_puts(out, "</article>\n");
}

int tm_report_html(const struct tm_report *report, struct tm_text *out, struct tm_error *e)
{
    struct tm_report_view view;
    int rc = make_view(&view, report, e);
    if (rc != 0) return rc;
    tm_html_begin(out, report->title);
    tm_html_command(out, report->command);
    if (view.group_count > 1) tm_report__overview(out, &view);
    for (size_t g = 0; rc == 0 && g < view.group_count; g++)
        rc = put_group(out, &view, &view.groups[g], e);
    put_fans(out, report);
    tm_report__policies(out, &view);
    tm_html_end(out);
    tm_free(view.order);
    tm_free(view.groups);
    return rc != 0 ? rc : tm_text_status(out, e);
}

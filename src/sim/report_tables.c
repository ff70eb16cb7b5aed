/* Tables of the report: all groups in one view, the figures of one group, and what each policy may know. */
#include "sim/report_internal.h"

#include <math.h>
#include <string.h>

#define DASH "\xe2\x80\x93"

enum { POLICIES_MAX = 32 };

/* ---- one view of all groups ---- */

/* Policies in the order in which they first appear. */
struct policies {
    const char *names[POLICIES_MAX];
    double sum[POLICIES_MAX];
    size_t values[POLICIES_MAX];
    size_t wins[POLICIES_MAX];
    size_t count;
};

static size_t find_policy(const struct policies *policies, const char *name)
{
    size_t i = 0;
    while (i < policies->count && strcmp(policies->names[i], name) != 0)
        i++;
    return i;
}

static void collect_policies(const struct tm_report *report, struct policies *policies)
{
    *policies = (struct policies){.count = 0};
    for (size_t i = 0; i < report->run_count; i++) {
        size_t at = find_policy(policies, report->runs[i].policy);
        if (at == policies->count && at < POLICIES_MAX) policies->names[policies->count++] = report->runs[i].policy;
    }
}

static void overview_cell(struct tm_text *out, const struct tm_report_group *group, struct policies *policies,
                          size_t policy, bool by_bill)
{
    size_t i = 0;
    while (i < group->count && strcmp(group->runs[i]->policy, policies->names[policy]) != 0)
        i++;
    if (i == group->count) {
        tm_text_puts(out, "<td></td>");
        return;
    }
    const struct tm_report_run *run = group->runs[i];
    double value = by_bill ? run->result->bill_usd : run->fraction_of_ideal;
    if (isfinite(value)) {
        policies->sum[policy] += value;
        policies->values[policy]++;
    }
    if (i < group->won) policies->wins[policy]++;
    const char *kind = i < group->won ? " class=won" : tm_report__is_bound(run) ? " class=bnd" : "";
    if (by_bill) {
        tm_text_printf(out, "<td%s>", kind);
        tm_html_usd(out, value);
        if (!isfinite(run->result->finished_at_s)) tm_text_puts(out, "<br><small>not finished</small>");
    } else {
        double heat = isfinite(value) ? pow(fmin(1, fmax(0, value)), 4) : 0; /* most of the scale for the best */
        tm_text_printf(out, "<td%s style=\"background:rgba(86,180,233,%.2f)\">", kind, heat * 0.6);
        tm_html_percent(out, value, 1, 1);
    }
    tm_text_puts(out, "</td>");
}

static void overview_sums(struct tm_text *out, const struct policies *policies, bool by_bill, size_t groups)
{
    tm_text_puts(out, "<tr class=sum><th colspan=2>mean</th>");
    for (size_t p = 0; p < policies->count; p++) {
        double mean = policies->values[p] > 0 ? policies->sum[p] / (double)policies->values[p] : NAN;
        tm_text_puts(out, "<td>");
        if (by_bill)
            tm_html_usd(out, mean);
        else
            tm_html_percent(out, mean, 1, 1);
        tm_text_puts(out, "</td>");
    }
    tm_text_puts(out, "</tr>\n<tr><th colspan=2>best, or as good as the best</th>");
    for (size_t p = 0; p < policies->count; p++) {
        if (policies->wins[p] > 0)
            tm_text_printf(out, "<td>%zu of %zu</td>", policies->wins[p], groups);
        else
            tm_text_puts(out, "<td>" DASH "</td>");
    }
    tm_text_puts(out, "</tr>");
}

void tm_report__overview(struct tm_text *out, const struct tm_report_view *view)
{
    bool by_bill = false;
    for (size_t g = 0; g < view->group_count; g++)
        by_bill = by_bill || view->groups[g].finite;
    struct policies policies;
    collect_policies(view->report, &policies);
    tm_text_printf(out, "<h2>Overview: %s</h2>\n", by_bill ? "cost" : "samples, as a share of ideal");
    tm_text_puts(out, "<div class=scroll><table class=overview><thead><tr><th>model</th><th>trace</th>");
    for (size_t p = 0; p < policies.count; p++) {
        tm_text_puts(out, "<th class=r>");
        tm_html_escape(out, policies.names[p]);
        tm_text_puts(out, "</th>");
    }
    tm_text_puts(out, "</tr></thead><tbody>\n");
    for (size_t g = 0; g < view->group_count; g++) {
        const struct tm_report_group *group = &view->groups[g];
        tm_text_puts(out, "<tr><th>");
        tm_html_escape(out, group->model);
        tm_text_printf(out, "</th><th><a href=\"#g%zu\">", g);
        tm_html_escape(out, group->trace);
        tm_text_puts(out, "</a> <small>");
        tm_html_escape(out, group->note);
        tm_text_puts(out, "</small></th>");
        for (size_t p = 0; p < policies.count; p++)
            overview_cell(out, group, &policies, p, by_bill);
        tm_text_puts(out, "</tr>\n");
    }
    overview_sums(out, &policies, by_bill, view->group_count);
    tm_text_puts(out, "</tbody></table></div>\n<p class=note>Bold: the best policy that can be run.");
    if (policies.count == POLICIES_MAX) tm_text_printf(out, " The first %d policies.", (int)POLICIES_MAX);
    tm_text_puts(out, "</p>\n");
}

/* ---- the figures of one group ---- */

struct column {
    const char *head;
    const char *unit;
    void (*put)(struct tm_text *out, const struct tm_report_run *run);
    enum { ALWAYS, OF_SAMPLES, OF_JOBS, OF_DEADLINES, OF_BILLS } shown;
};

#define PUT(name, statement)                                                                                           \
    static void name(struct tm_text *out, const struct tm_report_run *run)                                             \
    {                                                                                                                  \
        statement;                                                                                                     \
    }

static double training_rate(const struct tm_report_run *run)
{
    double trained_s = tm_report__until_s(run) - tm_report__stall_s(run);
    return trained_s > 0 ? run->result->samples / trained_s : NAN;
}

PUT(put_samples, tm_html_number(out, run->result->samples, 0))
PUT(put_fraction, tm_html_percent(out, run->fraction_of_ideal, 1, 1))
PUT(put_rate, tm_html_short(out, run->result->samples_per_s))
PUT(put_training_rate, tm_html_short(out, training_rate(run)))
PUT(put_migrate, tm_html_number(out, run->result->pauses.migrate_s, 0))
PUT(put_rollback, tm_html_number(out, run->result->pauses.rollback_s, 0))
PUT(put_idle, tm_html_number(out, run->result->pauses.idle_s, 0))
PUT(put_start, tm_html_number(out, run->result->pauses.start_s, 0))
PUT(put_changes, tm_html_number(out, run->result->reconfigurations, 0))
PUT(put_hours, tm_html_number(out, run->result->instance_hours, 1))
PUT(put_bill, tm_html_number(out, run->result->bill_usd, 2))
PUT(put_million, tm_html_short(out, run->result->usd_per_million_samples))
PUT(put_finished, tm_html_number(out, run->result->finished_at_s / 3600, 2))
PUT(put_deadline, tm_text_puts(out, run->result->deadline_met ? "yes" : "no"))
PUT(put_decision, tm_html_number(out, run->result->decision_us_mean, 0))
PUT(put_decision_max, tm_html_number(out, run->result->decision_us_max, 0))

static const struct column columns[] = {
    {"samples", "", put_samples, ALWAYS},
    {"of ideal", "", put_fraction, OF_SAMPLES},
    {"mean throughput", "samples/s", put_rate, ALWAYS},
    {"throughput while training", "samples/s", put_training_rate, ALWAYS},
    {"migrating", "s", put_migrate, ALWAYS},
    {"rollback", "s", put_rollback, ALWAYS},
    {"idle", "s", put_idle, ALWAYS},
    {"start", "s", put_start, ALWAYS},
    {"migrations", "", put_changes, ALWAYS},
    {"instances", "h", put_hours, ALWAYS},
    {"cost", "$", put_bill, OF_BILLS},
    {"per million samples", "$", put_million, OF_BILLS},
    {"finished at", "h", put_finished, OF_JOBS},
    {"deadline met", "", put_deadline, OF_DEADLINES},
    {"decision, mean", "\xc2\xb5s", put_decision, ALWAYS},
    {"decision, longest", "\xc2\xb5s", put_decision_max, ALWAYS},
};

static bool is_shown(const struct column *column, const struct tm_report_view *view,
                     const struct tm_report_group *group)
{
    switch (column->shown) {
    case ALWAYS:
        return true;
    case OF_SAMPLES:
        return !group->finite;
    case OF_JOBS:
        return group->finite;
    case OF_DEADLINES:
        return view->report->deadline_s > 0;
    case OF_BILLS:
        return view->priced;
    }
    return true;
}

void tm_report__table(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group)
{
    size_t count = sizeof columns / sizeof *columns;
    tm_text_puts(out, "<div class=scroll><table><thead><tr><th>policy</th>");
    for (size_t c = 0; c < count; c++)
        if (is_shown(&columns[c], view, group))
            tm_text_printf(out, "<th class=r>%s<br><small>%s</small></th>", columns[c].head,
                           columns[c].unit[0] != '\0' ? columns[c].unit : "&nbsp;");
    tm_text_puts(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < group->count; i++) {
        const struct tm_report_run *run = group->runs[i];
        const char *kind = i < group->won ? " class=won" : tm_report__is_bound(run) ? " class=bnd" : "";
        tm_text_printf(out, "<tr%s><th>", kind);
        tm_html_escape(out, run->policy);
        tm_text_puts(out, "</th>");
        for (size_t c = 0; c < count; c++) {
            if (!is_shown(&columns[c], view, group)) continue;
            tm_text_puts(out, "<td>");
            columns[c].put(out, run);
            tm_text_puts(out, "</td>");
        }
        tm_text_puts(out, "</tr>\n");
    }
    tm_text_puts(out, "</tbody></table></div>\n");
}

/* ---- what a policy may know ---- */

static const char *knowledge_of(const struct tm_policy_info *info)
{
    switch (info->knows) {
    case TM_KNOWS_PAST:
        return "the past and a forecast; decides before the current event is known";
    case TM_KNOWS_EVENT:
        return info->forecast >= 0 ? "the past, preemptions announced so far, and a forecast" : "the past";
    case TM_KNOWS_NEXT:
        return "the true next intervals: a bound";
    case TM_KNOWS_ALL:
        return "the whole trace: a bound";
    }
    return DASH;
}

void tm_report__policies(struct tm_text *out, const struct tm_report_view *view)
{
    struct policies policies;
    collect_policies(view->report, &policies);
    if (policies.count == 0) return;
    tm_text_puts(out, "<h2>What each policy does, and what it may know</h2>\n<div class=scroll><table class=words>"
                      "<thead><tr><th>policy</th><th>does</th><th>knows</th></tr></thead><tbody>\n");
    for (size_t p = 0; p < policies.count; p++) {
        const struct tm_policy_info *info = tm_policy_find(policies.names[p]);
        if (info == NULL) continue;
        tm_text_puts(out, "<tr><th>");
        tm_html_escape(out, info->name);
        tm_text_puts(out, "</th><td>");
        tm_html_escape(out, info->summary);
        tm_text_printf(out, "</td><td>%s</td></tr>\n", knowledge_of(info));
    }
    tm_text_puts(out, "</tbody></table></div>\n");
}

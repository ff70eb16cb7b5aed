#include "api/dashboard_internal.h"
#include "base/embed.h"

/* The sources under web/ are what is served: modules that browsers read as they are, so nothing is built. Those under
 * web/vendor are as their makers publish them (scripts/update-uplot). */
TM_EMBED(tm_web_index, "../web/index.html");
TM_EMBED(tm_web_style, "../web/style.css");
TM_EMBED(tm_web_icon, "../web/icon.svg");
TM_EMBED(tm_web_app, "../web/app.js");
TM_EMBED(tm_web_api, "../web/api.js");
TM_EMBED(tm_web_format, "../web/format.js");
TM_EMBED(tm_web_dom, "../web/dom.js");
TM_EMBED(tm_web_chart, "../web/chart.js");
TM_EMBED(tm_web_lanes, "../web/lanes.js");
TM_EMBED(tm_web_jobs, "../web/jobs.js");
TM_EMBED(tm_web_job, "../web/job.js");
TM_EMBED(tm_web_layout, "../web/layout.js");
TM_EMBED(tm_web_steer, "../web/steer.js");
TM_EMBED(tm_web_plan, "../web/plan.js");
TM_EMBED(tm_web_uplot, "../web/vendor/uPlot.iife.min.js");
TM_EMBED(tm_web_uplot_style, "../web/vendor/uPlot.min.css");
TM_EMBED(tm_web_uplot_license, "../web/vendor/uPlot.LICENSE");

#define JS  "text/javascript; charset=utf-8"
#define CSS "text/css; charset=utf-8"

bool tm_web__find(struct tm_slice path, const char **out_type, const char **out_begin, size_t *out_length)
{
    static const struct {
        const char *path;
        const char *type;
        const char *begin;
        const char *end;
    } files[] = {
        {"/", "text/html; charset=utf-8", tm_web_index_begin, tm_web_index_end},
        {"/style.css", CSS, tm_web_style_begin, tm_web_style_end},
        {"/icon.svg", "image/svg+xml", tm_web_icon_begin, tm_web_icon_end},
        {"/app.js", JS, tm_web_app_begin, tm_web_app_end},
        {"/api.js", JS, tm_web_api_begin, tm_web_api_end},
        {"/format.js", JS, tm_web_format_begin, tm_web_format_end},
        {"/dom.js", JS, tm_web_dom_begin, tm_web_dom_end},
        {"/chart.js", JS, tm_web_chart_begin, tm_web_chart_end},
        {"/lanes.js", JS, tm_web_lanes_begin, tm_web_lanes_end},
        {"/jobs.js", JS, tm_web_jobs_begin, tm_web_jobs_end},
        {"/job.js", JS, tm_web_job_begin, tm_web_job_end},
        {"/layout.js", JS, tm_web_layout_begin, tm_web_layout_end},
        {"/steer.js", JS, tm_web_steer_begin, tm_web_steer_end},
        {"/plan.js", JS, tm_web_plan_begin, tm_web_plan_end},
        {"/vendor/uPlot.iife.min.js", JS, tm_web_uplot_begin, tm_web_uplot_end},
        {"/vendor/uPlot.min.css", CSS, tm_web_uplot_style_begin, tm_web_uplot_style_end},
        {"/vendor/uPlot.LICENSE", "text/plain; charset=utf-8", tm_web_uplot_license_begin, tm_web_uplot_license_end},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (!tm_slice_is(path, files[i].path)) continue;
        *out_type = files[i].type;
        *out_begin = files[i].begin;
        *out_length = (size_t)(files[i].end - files[i].begin);
        return true;
    }
    return false;
}

#include "sim/report.h"

int tm_report_html(const struct tm_report *report, struct tm_text *out, struct tm_error *e)
{
    tm_text_printf(out, "<!doctype html>\n<p>%zu runs</p>\n", report->run_count);
    return tm_text_status(out, e);
}

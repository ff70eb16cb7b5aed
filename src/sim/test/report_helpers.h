/* Helpers of the report's tests: runs made by hand, and a check that a document is one. */
#ifndef TM_SIM_TEST_REPORT_HELPERS_H
#define TM_SIM_TEST_REPORT_HELPERS_H

#include "base/random.h"
#include "base/test/harness.h"
#include "sim/report_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_MAX = 16, DEPTH_MAX = 64 };

static inline bool is_one_of(const char *name, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

/* Every element that is opened is closed, in order; attributes hold no '<'. Ours closes all but the void ones. */
static inline void assert_nested(const char *html)
{
    static const char *const voids[] = {"meta", "br", "!doctype", NULL};
    char open[DEPTH_MAX][TAG_MAX];
    int depth = 0;
    for (const char *s = strchr(html, '<'); s != NULL; s = strchr(s, '<')) {
        const char *begin = s;
        bool closes = s[1] == '/';
        s += closes ? 2 : 1;
        char name[TAG_MAX] = "";
        size_t length = 0;
        while ((isalnum((unsigned char)*s) || *s == '!') && length + 1 < TAG_MAX)
            name[length++] = *s++;
        assert_row(length > 0, "a stray < at: %.40s", begin);
        const char *end = strchr(s, '>');
        assert_row(end != NULL, "an element without end: %.40s", begin);
        assert_row(memchr(s, '<', (size_t)(end - s)) == NULL, "< within an element: %.40s", begin);
        bool empty = end[-1] == '/' || is_one_of(name, voids);
        if (closes) {
            assert_row(depth > 0 && strcmp(open[depth - 1], name) == 0, "%.40s closes %s", begin,
                       depth > 0 ? open[depth - 1] : "nothing");
            depth--;
        } else if (!empty) {
            assert_row(depth < DEPTH_MAX, "too deep at %.40s", begin);
            memcpy(open[depth++], name, TAG_MAX);
        }
        s = end;
        if (!closes && strcmp(name, "style") == 0) s = strstr(s, "</style>");
        if (!closes && strcmp(name, "script") == 0) s = strstr(s, "</script>");
    }
    assert_row(depth == 0, "%s is not closed", depth > 0 ? open[depth - 1] : "");
}

/* What stands before the style and after it: what this report says. */
static inline const char *body_of(const struct tm_text *html)
{
    const char *body = strstr(tm_text_string(html), "<body>");
    assert_non_null(body);
    return body;
}

/* One document, of itself alone, without a number that is none. */
static inline void assert_document(const struct tm_text *html)
{
    static const char *const never[] = {"nan",  "inf\"", "inf ",   "inf%", "-inf",
                                        "inf<", "http:", "https:", "src=", NULL};
    const char *text = tm_text_string(html);
    assert_int_equal(strncmp(text, "<!doctype html>", 15), 0);
    assert_nested(text);
    for (size_t i = 0; never[i] != NULL; i++) {
        const char *found = strstr(body_of(html), never[i]);
        assert_row(found == NULL, "\"%s\" in: %.60s", never[i], found == NULL ? "" : found - 20);
    }
    assert_null(strstr(text, "url("));
    assert_null(strstr(text, "@import"));
}

/* ---- runs by hand ---- */

struct test_run {
    struct tm_sim_result result;
    struct tm_sim_log log;
};

/* Random layouts and pauses over so many minutes; what is summed up agrees with the log. */
static inline void make_run(struct test_run *run, size_t count, uint64_t seed)
{
    struct tm_random random = tm_random_make(seed, 0);
    memset(run, 0, sizeof *run);
    run->result.finished_at_s = NAN;
    run->result.wall_s = 60.0 * (double)count;
    run->log.intervals = tm_calloc(count + 1, sizeof *run->log.intervals);
    assert_non_null(run->log.intervals);
    run->log.count = count;
    for (size_t i = 0; i < count; i++) {
        struct tm_sim_interval *interval = &run->log.intervals[i];
        interval->time_s = 60.0 * (double)i;
        interval->duration_s = 60;
        interval->after = (int)tm_random_below(&random, 40);
        interval->stages = interval->after == 0 ? 0 : 1 + (int)tm_random_below(&random, (uint64_t)interval->after);
        interval->pipelines = interval->stages == 0 ? 0 : interval->after / interval->stages;
        interval->cause = interval->stages == 0 ? TM_SIM_IDLE
                          : i == 0              ? TM_SIM_START
                                                : (enum tm_sim_cause)tm_random_below(&random, 3);
        interval->pause_s = interval->cause == TM_SIM_NONE ? 0 : 60 * tm_random_unit(&random);
        interval->samples = interval->stages == 0 ? 0 : (60 - interval->pause_s) * interval->pipelines;
        run->result.samples += interval->samples;
        run->result.pauses.idle_s += interval->cause == TM_SIM_IDLE ? 60 : 0;
        run->result.pauses.start_s += interval->cause == TM_SIM_START ? interval->pause_s : 0;
        run->result.pauses.migrate_s += interval->cause == TM_SIM_MIGRATE ? interval->pause_s : 0;
        run->result.pauses.rollback_s += interval->cause == TM_SIM_ROLLBACK ? interval->pause_s : 0;
    }
    run->result.samples_per_s = run->result.samples / fmax(1, run->result.wall_s);
    run->result.bill_usd = 0.01 * (double)count;
    run->result.usd_per_million_samples = run->result.bill_usd / fmax(1, run->result.samples) * 1e6;
}

#endif

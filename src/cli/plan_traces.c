#include "cli/plan_traces.h"

#include <string.h>
#include <strings.h>

void tm_given_traces_init(struct tm_given_traces *given)
{
    memset(given, 0, sizeof *given);
}

void tm_given_traces_deinit(struct tm_given_traces *given)
{
    for (size_t i = 0; i < given->known.count; i++)
        tm_trace_deinit(&given->traces[i]);
    memset(given, 0, sizeof *given);
}

/* ---- reading ---- */

static const char *find_region(const struct tm_catalog *catalog, const char *name)
{
    for (size_t i = 0; i < catalog->offer_count; i++) {
        if (strcasecmp(catalog->offers[i].region, name) == 0) return catalog->offers[i].region;
    }
    return NULL;
}

/* As the catalogue has it, where a GPU has other names. */
static const char *usual_type(const struct tm_catalog *catalog, const char *type)
{
    const struct tm_gpu *gpu = tm_catalog_gpu(catalog, type);
    return gpu != NULL ? gpu->name : type;
}

/* [REGION/]TYPE, or "any". */
static int read_place(struct tm_cli *cli, const struct tm_catalog *catalog, const char *text, size_t length,
                      struct tm_plan_trace *out, struct tm_error *e)
{
    const char *type = tm_arena_printf(&cli->arena, "%.*s", (int)length, text);
    if (type == NULL) return tm_error_nomem(e);
    const char *slash = strchr(type, '/');
    if (slash != NULL) {
        const char *region = tm_arena_printf(&cli->arena, "%.*s", (int)(slash - type), type);
        if (region == NULL) return tm_error_nomem(e);
        out->region = find_region(catalog, region);
        if (out->region == NULL)
            return tm_error_set(e, TM_EUSAGE, "--trace %.80s: the catalogue has no region %.60s", text, region);
        type = slash + 1;
    }
    if (strcasecmp(type, "any") == 0) return 0;
    out->type = usual_type(catalog, type);
    if (tm_plan_trace_type_is_known(catalog, out->type)) return 0;
    return tm_error_set(e, TM_EUSAGE,
                        "--trace %.80s: there is no file of that name, and the catalogue has no instance type or GPU "
                        "%.60s; write FILE, TYPE=FILE, REGION/TYPE=FILE or any=FILE",
                        text, type);
}

/* What the trace's own header says. */
static void take_header(const struct tm_catalog *catalog, const struct tm_trace *trace, struct tm_plan_trace *out)
{
    const char *type = trace->instance[0] != '\0' ? usual_type(catalog, trace->instance) : NULL;
    if (type == NULL || !tm_plan_trace_type_is_known(catalog, type)) return;
    out->type = type;
    out->region = tm_plan_trace_region(catalog, trace);
}

int tm_given_traces_add(struct tm_cli *cli, const struct tm_catalog *catalog, const char *text, bool for_all,
                        struct tm_given_traces *given, struct tm_error *e)
{
    struct tm_plan_trace place = {.name = text};
    const char *equals = strchr(text, '=');
    bool placed = equals != NULL && !cli->env->file_exists(cli->env, text);
    if (given->known.count == TM_PLAN_TRACES_MAX)
        return tm_error_set(e, TM_ELIMIT, "--trace: at most %d traces", TM_PLAN_TRACES_MAX);
    int rc = placed ? read_place(cli, catalog, text, (size_t)(equals - text), &place, e) : 0;
    if (rc != 0) return rc;
    struct tm_trace *trace = &given->traces[given->known.count];
    if (placed) place.name = equals + 1;
    tm_trace_init(trace);
    rc = tm_trace_load(cli->env, place.name, NULL, trace, e);
    if (rc != 0) {
        tm_trace_deinit(trace);
        return rc;
    }
    if (!placed && !for_all) take_header(catalog, trace, &place);
    place.trace = trace;
    place.losses = tm_expect_trace(trace);
    place.outage_s = place.losses.replace_s;
    given->known.list[given->known.count++] = place;
    return 0;
}

bool tm_given_traces_cover_all(const struct tm_given_traces *given)
{
    for (size_t i = 0; i < given->known.count; i++) {
        if (given->known.list[i].type == NULL && given->known.list[i].region == NULL) return true;
    }
    return false;
}

/* ---- words ---- */

void tm_given_traces_words(const struct tm_given_traces *given, struct tm_text *out)
{
    for (size_t i = 0; i < given->known.count; i++) {
        const struct tm_plan_trace *trace = &given->known.list[i];
        tm_text_printf(out, "%strace %s", i > 0 ? ", " : "", trace->name);
        if (trace->type == NULL && trace->trace->instance[0] != '\0')
            tm_text_printf(out, ", which is of %s, for every type", trace->trace->instance);
        else if (trace->type == NULL)
            tm_text_printf(out, ", which does not say of what it is, for every type");
        else
            tm_text_printf(out, " for %s", trace->type);
        if (trace->region != NULL) tm_text_printf(out, " in %s", trace->region);
    }
    if (!tm_given_traces_cover_all(given))
        tm_text_printf(out, "; everything else by what is known of the risk of spot");
}

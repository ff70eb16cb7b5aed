#include "job/described_fleet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { INSTANCES_MAX = 100000, SAMPLES_A_GPU = 8 };

struct allowing {
    bool (*allows)(const void *context, const char *cloud);
    const void *context;
};

static int add_group(const struct tm_catalog *catalog, const char *text, size_t length, const struct allowing *allowing,
                     struct tm_described_fleet *fleet, struct tm_error *e)
{
    char part[128];
    char name[64];
    int instances = 0;
    (void)snprintf(part, sizeof part, "%.*s", (int)(length < sizeof part ? length : sizeof part - 1), text);
    bool read = sscanf(part, " %d x %63s", &instances, name) == 2 || /* NOLINT(cert-err34-c): checked below */
                sscanf(part, " %dx%63s", &instances, name) == 2;     /* NOLINT(cert-err34-c) */
    if (!read)
        return tm_error_set(e, TM_EUSAGE, "expected COUNTx TYPE, got \"%.60s\"; write for example \"8x p3.2xlarge\"",
                            part);
    if (instances < 1 || instances > INSTANCES_MAX)
        return tm_error_set(e, TM_EUSAGE, "expected from 1 to %d of %s", INSTANCES_MAX, name);
    if (fleet->group_count == TM_FLEET_GROUPS_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d instance types", TM_FLEET_GROUPS_MAX);
    const struct tm_instance_type *instance = NULL;
    int rc = tm_knowledge_instance(catalog, name, allowing->allows, allowing->context, &instance, e);
    if (rc != 0) return rc;
    struct tm_fleet_group *group = &fleet->groups[fleet->group_count];
    if (instance->gpus < 1) return tm_error_set(e, TM_EUSAGE, "%s has no GPU", instance->name);
    rc = tm_knowledge__group(catalog, instance, group, e);
    if (rc != 0) return rc;
    (void)snprintf(fleet->names[fleet->group_count], sizeof fleet->names[0], "%s", instance->name);
    group->instance = fleet->names[fleet->group_count];
    group->instances = instances;
    fleet->on_demand_usd_h += instances * tm_catalog_cheapest(catalog, instance, TM_PRICE_ON_DEMAND);
    fleet->spot_usd_h += instances * tm_catalog_cheapest(catalog, instance, TM_PRICE_SPOT);
    fleet->group_count++;
    return 0;
}

/* Is COUNTx TYPE[:MARKET] of a type that the catalogue has? */
static bool names_type(const struct tm_catalog *catalog, const char *text, size_t length)
{
    const char *name = memchr(text, 'x', length);
    const char *end = text + length;
    if (name == NULL) return false;
    name += 1 + strspn(name + 1, " ");
    for (size_t i = 0; i < catalog->instance_count; i++) {
        size_t known = strlen(catalog->instances[i].name);
        if (name >= end || known > (size_t)(end - name) || strncasecmp(catalog->instances[i].name, name, known) != 0)
            continue;
        size_t behind = strspn(name + known, " ");
        if (name + known + behind >= end || name[known] == ':') return true;
    }
    return false;
}

size_t tm_described_fleet_part(const struct tm_catalog *catalog, const char *text)
{
    size_t length = strcspn(text, ",");
    for (size_t i = 1; i < length; i++) {
        if (text[i] == '+' && text[i - 1] == ' ') length = i;
    }
    size_t shortest = strcspn(text, ",+");
    for (size_t part = length; part > shortest; part--) {
        if ((part == length || text[part] == '+') && names_type(catalog, text, part)) return part;
    }
    return shortest;
}

int tm_described_fleet_parse(const struct tm_catalog *catalog, const char *text,
                             bool (*allows)(const void *context, const char *cloud), const void *context,
                             struct tm_described_fleet *out, struct tm_error *e)
{
    const struct allowing allowing = {allows, context};
    *out = (struct tm_described_fleet){.group_count = 0};
    for (const char *at = text; *at != '\0';) {
        size_t length = tm_described_fleet_part(catalog, at);
        int rc = add_group(catalog, at, length, &allowing, out, e);
        if (rc != 0) return rc;
        at += length + (at[length] != '\0');
    }
    if (out->group_count > 0) return 0;
    return tm_error_set(e, TM_EUSAGE, "empty; write for example \"8x p3.2xlarge\"");
}

enum tm_precision tm_described_fleet_precision(const struct tm_described_fleet *fleet, int asked)
{
    static const enum tm_precision order[] = {TM_BF16, TM_FP16};
    if (asked != TM_PRECISION_MIXED) return (enum tm_precision)asked;
    for (size_t p = 0; p < sizeof order / sizeof *order; p++) {
        bool all = true;
        for (size_t g = 0; g < fleet->group_count; g++)
            all = all && fleet->groups[g].gpu.flops[order[p]] > 0;
        if (all) return order[p];
    }
    return TM_FP32;
}

int64_t tm_described_fleet_batch(const struct tm_described_fleet *fleet)
{
    int64_t batch = 0;
    for (size_t g = 0; g < fleet->group_count; g++)
        batch += SAMPLES_A_GPU * (int64_t)fleet->groups[g].instances * fleet->groups[g].gpus_per_node;
    return batch;
}

void tm_described_fleet_knowledge(const struct tm_described_fleet *fleet, const struct tm_knowledge *knowledge,
                                  struct tm_predict_request *out)
{
    bool same_gpu = strcmp(knowledge->gpu, fleet->groups[0].gpu.name) == 0; /* else they say little here */
    out->compute = &knowledge->compute;
    out->comm = &knowledge->comm;
    out->measured_batches = knowledge->batches;
    out->measured_ms = knowledge->ms;
    out->measured_count = same_gpu ? knowledge->count : 0;
    out->gradients = knowledge->gradients;
    out->gradient_count = knowledge->gradient_count;
}

double tm_usd_per_million(double usd_h, double samples_per_s)
{
    return usd_h / 3600 / samples_per_s * 1e6;
}

/* Do instances of a type hold the model, in the layout that is asked for, else in any? */
static bool holds(const struct tm_predict_request *like, const struct tm_fleet_group *group)
{
    struct tm_prediction prediction;
    struct tm_predict_request request = *like;
    request.groups = group;
    request.group_count = 1;
    request.measured_count = 0;
    request.gradient_count = 0;
    return group->gpu.flops[like->precision] > 0 && tm_predict(&request, &prediction, NULL) == 0;
}

void tm_described_fleet_smallest(const struct tm_catalog *catalog, const struct tm_predict_request *request,
                                 bool (*allows)(const void *context, const char *cloud), const void *context, char *out,
                                 size_t size)
{
    const struct tm_instance_type *best = NULL;
    double best_gib = INFINITY;
    double best_usd_h = INFINITY;
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *type = &catalog->instances[i];
        struct tm_fleet_group group;
        if (type->gpus < 1 || !(type->network_gbps > 0) || (allows != NULL && !allows(context, type->cloud))) continue;
        if (strncmp(type->gpu, "Trainium", 8) == 0 || tm_knowledge__group(catalog, type, &group, NULL) != 0) continue;
        double gib = type->gpus * group.gpu.memory_gib;
        double usd_h = tm_catalog_cheapest(catalog, type, TM_PRICE_ON_DEMAND);
        if (isnan(usd_h) || gib > best_gib || (gib == best_gib && usd_h >= best_usd_h)) continue;
        if (!holds(request, &group)) continue;
        best = type;
        best_gib = gib;
        best_usd_h = usd_h;
    }
    struct tm_fleet_group more = request->groups[0];
    bool enough = false;
    for (int n = 2 * more.instances; request->group_count == 1 && !enough && n <= 64; n *= 2) {
        more.instances = n;
        enough = holds(request, &more);
    }
    (void)snprintf(out, size, "%s%s%s", best != NULL ? "1x " : "", best != NULL ? best->name : "",
                   best != NULL && enough ? ", or " : "");
    size_t used = strlen(out);
    if (enough) (void)snprintf(out + used, size - used, "%dx %s", more.instances, more.instance);
}

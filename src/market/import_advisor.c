/* The AWS Spot Advisor's feed: {"ranges": [...], "instance_types": {...}, "spot_advisor": {REGION: {"Linux": {TYPE:
 * {"r": band, "s": saving in percent}}}}}. Linux rows are taken. */
#include "market/import_internal.h"

#include "base/csv.h"
#include "base/doc.h"

#include <stdio.h>
#include <string.h>

/* Line of a type of a region in the text; jansson does not keep it. 0: not found. */
static int line_of(const struct tm_import *import, const char *region, const char *type)
{
    char quoted[2][128];
    (void)snprintf(quoted[0], sizeof quoted[0], "\"%.100s\"", region);
    (void)snprintf(quoted[1], sizeof quoted[1], "\"%.100s\"", type);
    const char *end = import->text + import->length;
    const char *at = memmem(import->text, import->length, "\"spot_advisor\"", 14);
    for (size_t i = 0; at != NULL && i < 2; i++)
        at = memmem(at, (size_t)(end - at), quoted[i], strlen(quoted[i]));
    int line = at != NULL ? 1 : 0;
    for (const char *c = import->text; at != NULL && c < at; c++)
        line += *c == '\n';
    return line;
}

static int take_type(struct tm_import *import, const char *region, const char *type, const json_t *figures,
                     struct tm_error *e)
{
    const json_t *band = json_object_get(figures, "r");
    const json_t *saving = json_object_get(figures, "s");
    import->report->rows++;
    if (!json_is_integer(band) || json_integer_value(band) < 0 || json_integer_value(band) > 4 ||
        !json_is_number(saving) || !(json_number_value(saving) >= -1000 && json_number_value(saving) <= 100)) {
        tm_import__issue(import, line_of(import, region, type), true,
                         "%s in %s: expected r from 0 to 4 and s of at most 100", type, region);
        return 0;
    }
    struct tm_slice names[2] = {{type, strlen(type)}, {region, strlen(region)}};
    if (names[0].length - 1 > 99 || names[1].length - 1 > 99 || !tm_slice_is_plain(names[0]) ||
        !tm_slice_is_plain(names[1])) {
        tm_import__issue(import, line_of(import, region, type), true, "empty, long or unprintable name in region %.40s",
                         region);
        return 0;
    }
    struct tm_band row = {
        .cloud = tm_catalog__string(import->user, "aws", 3),
        .region = tm_catalog__string(import->user, region, strlen(region)),
        .instance = tm_catalog__string(import->user, type, strlen(type)),
        .band = (int)json_integer_value(band),
        .saving_percent = json_number_value(saving),
        .source = import->source,
    };
    if (row.cloud == NULL || row.region == NULL || row.instance == NULL) return tm_error_nomem(e);
    import->report->kept++;
    return tm_catalog__add_band(import->user, &row, e);
}

static int take_regions(struct tm_import *import, json_t *root, struct tm_error *e)
{
    json_t *regions = json_object_get(root, "spot_advisor");
    if (!json_is_object(regions))
        return tm_error_set(e, TM_EINPUT, "%s: spot_advisor: expected a map of regions", import->file);
    const char *region;
    json_t *systems;
    json_object_foreach(regions, region, systems)
    {
        const char *type;
        json_t *figures;
        json_object_foreach(json_object_get(systems, "Linux"), type, figures)
        {
            int rc = take_type(import, region, type, figures, e);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

int tm_import__advisor(struct tm_import *import, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = tm_import__source(import, "AWS Spot Advisor", e);
    if (rc == 0) rc = tm_json_load(import->file, import->text, import->length, &root, e);
    if (rc != 0) return rc;
    rc = take_regions(import, root, e);
    json_decref(root);
    return rc;
}

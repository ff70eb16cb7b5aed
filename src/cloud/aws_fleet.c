/* One VM from several places or types: CreateFleet, instant, of capacity 1. One VM has one ticket, so a fleet is never
 * larger; what AWS is left to choose is the type and the zone, by price and capacity. */
#include "base/log.h"
#include "cloud/aws_beside.h"
#include "cloud/aws_internal.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 64 << 20 };

/* ---- what may serve ---- */

/* AWS refuses the same place twice. */
static void add_override(struct tm_aws__cloud *c, int pool, const char *zone, struct tm_aws__override *out,
                         size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(c->shared.pools[out[i].pool].type, c->shared.pools[pool].type) == 0 &&
            strcmp(out[i].zone, zone) == 0)
            return;
    if (*count < TM_AWS_OVERRIDES_MAX) out[(*count)++] = (struct tm_aws__override){.pool = pool, .zone = zone};
}

static void add_overrides(struct tm_aws__cloud *c, int pool, struct tm_aws__override *out, size_t *count)
{
    const struct tm_aws__zones *zones = &c->zones[pool];
    const struct tm_cloud_pool *about = &c->shared.pools[pool];
    if (about->kind != TM_INSTANCE_SPOT || strstr(about->zone, "-az") != NULL) return; /* overrides name zones */
    if (c->options.subnet != NULL || tm_aws__is_zone(about->zone) || zones->count == 0) {
        bool named = c->options.subnet == NULL && tm_aws__is_zone(about->zone);
        add_override(c, pool, named ? about->zone : "", out, count);
        return;
    }
    for (int i = 0; i < zones->count; i++)
        add_override(c, pool, zones->names[i], out, count);
}

size_t tm_aws__list_overrides(struct tm_aws__cloud *c, size_t at, int64_t now_ms,
                              struct tm_aws__override out[TM_AWS_OVERRIDES_MAX])
{
    int own = c->shared.vms.instances[at].pool;
    size_t count = 0;
    add_overrides(c, own, out, &count);
    for (int i = 0; count > 0 && i < c->options.common.pool_count; i++)
        if (i != own && tm_vms__may_ask(&c->shared.vms, i, now_ms)) add_overrides(c, i, out, &count);
    return count;
}

void tm_aws__make_fleet(struct tm_aws__cloud *c, size_t at, const struct tm_aws__override *overrides, size_t count,
                        struct tm_ec2_call *call)
{
    static const char config[] = "LaunchTemplateConfigs.1";
    char name[96];
    tm_ec2__init(call, c->aws, NULL, "CreateFleet");
    tm_ec2__put(call, "ClientToken", c->shared.vms.vms[at].token);
    tm_ec2__put(call, "Type", "instant");
    tm_ec2__put(call, "TargetCapacitySpecification.TotalTargetCapacity", "1");
    tm_ec2__put(call, "TargetCapacitySpecification.DefaultTargetCapacityType", "spot");
    tm_ec2__put(call, "SpotOptions.AllocationStrategy", "price-capacity-optimized");
    (void)snprintf(name, sizeof name, "%s.LaunchTemplateSpecification.LaunchTemplateName", config);
    tm_ec2__put(call, name, c->shared.vms.vms[at].token);
    (void)snprintf(name, sizeof name, "%s.LaunchTemplateSpecification.Version", config);
    tm_ec2__put(call, name, "1");
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "%s.Overrides.%zu.InstanceType", config, i + 1);
        tm_ec2__put(call, name, c->shared.pools[overrides[i].pool].type);
        (void)snprintf(name, sizeof name, "%s.Overrides.%zu.%s", config, i + 1,
                       c->options.subnet != NULL ? "SubnetId" : "AvailabilityZone");
        const char *place = c->options.subnet != NULL ? c->options.subnet : overrides[i].zone;
        if (place[0] != '\0') tm_ec2__put(call, name, place);
    }
}

void tm_aws__make_drop_template(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call)
{
    tm_ec2__init(call, c->aws, NULL, "DeleteLaunchTemplate");
    tm_ec2__put(call, "LaunchTemplateName", c->shared.vms.vms[at].token);
}

/* ---- what AWS says ---- */

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text);
}

static bool read_fleet_vm(const struct tm_xml *root, struct tm_vm__row *row)
{
    const struct tm_xml *item = tm_xml_child(root, "fleetInstanceSet/item");
    const char *zone = tm_xml_text(item, "availabilityZone");
    *row = (struct tm_vm__row){.pool = -1};
    if (zone[0] == '\0') zone = tm_xml_text(item, "launchTemplateAndOverrides/overrides/availabilityZone");
    copy(row->id, sizeof row->id, tm_xml_text(item, "instanceIds/item"));
    copy(row->type, sizeof row->type, tm_xml_text(item, "instanceType"));
    copy(row->zone, sizeof row->zone, zone);
    return row->id[0] != '\0';
}

/* How many of this pool's places an answer names as refused, and why. */
static int count_refusals(const struct tm_xml *root, const struct tm_cloud_pool *pool, char code[64])
{
    int count = 0;
    const struct tm_xml *one = tm_xml_child(root, "errorSet/item");
    for (; one != NULL; one = tm_xml_again(one)) {
        const char *type = tm_xml_text(one, "launchTemplateAndOverrides/overrides/instanceType");
        const char *zone = tm_xml_text(one, "launchTemplateAndOverrides/overrides/availabilityZone");
        bool here = strncmp(zone, pool->zone, strlen(pool->zone)) == 0;
        if (strcmp(type, pool->type) != 0 || !here) continue;
        copy(code, 64, tm_xml_text(one, "errorCode"));
        count++;
    }
    return count;
}

/* Refusals stand beside success, too. A pool that was refused wherever it was asked waits, and that is a fact; one that
 * has places that were not refused may be asked again. */
static int take_refusals(struct tm_aws__cloud *c, const struct tm_xml *root, int own, int64_t now_ms,
                         struct tm_error *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < c->options.common.pool_count; i++) {
        char code[64] = "";
        int asked = c->options.subnet != NULL || c->zones[i].count == 0 ? 1 : c->zones[i].count;
        int refused = c->shared.pools[i].kind == TM_INSTANCE_SPOT ? count_refusals(root, &c->shared.pools[i], code) : 0;
        bool told = refused == c->zones[i].refused;
        c->zones[i].refused = refused;
        if (refused == 0) continue;
        if (!told)
            tm_log(TM_LOG_WARN, "AWS: %d of %d places of %s have none now (%s)", refused, asked,
                   c->shared.pools[i].name, code);
        if (refused >= asked && i != own) rc = tm_vms__pool_refused(&c->shared.vms, i, code, now_ms, e);
    }
    return rc;
}

int tm_aws__take_fleet(struct tm_aws__cloud *c, size_t at, const struct tm_xml *root, int64_t now_ms,
                       struct tm_error *e)
{
    struct tm_vm__row row;
    if (read_fleet_vm(root, &row)) {
        tm_vms__rented(&c->shared.vms, at, &row, now_ms);
        return take_refusals(c, root, -1, now_ms, e);
    }
    const struct tm_xml *why = tm_xml_child(root, "errorSet/item");
    const char *code = tm_xml_text(why, "errorCode");
    const char *words = tm_xml_text(why, "errorMessage");
    int rc = take_refusals(c, root, c->shared.vms.instances[at].pool, now_ms, e);
    if (rc != 0) return rc;
    /* AWS keeps an empty fleet by its token, as it keeps one with a VM */
    return tm_vms__denied(&c->shared.vms, at, code[0] != '\0' ? code : "UnfulfillableCapacity",
                          words[0] != '\0' ? words : "a fleet without an instance", now_ms, e);
}

/* ---- where types are offered ---- */

static void take_offering(struct tm_aws__cloud *c, const char *type, const char *zone)
{
    for (int i = 0; i < c->options.common.pool_count; i++) {
        struct tm_aws__zones *zones = &c->zones[i];
        const struct tm_cloud_pool *pool = &c->shared.pools[i];
        bool open = pool->kind == TM_INSTANCE_SPOT && !tm_aws__is_zone(pool->zone) && strstr(pool->zone, "-az") == NULL;
        if (!open || strcmp(pool->type, type) != 0 || zones->count == TM_AWS_ZONES_MAX) continue;
        copy(zones->names[zones->count++], sizeof zones->names[0], zone);
    }
}

int tm_aws__find_zones(struct tm_aws__cloud *c, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    char name[32];
    int types = 0;
    tm_ec2__init(&call, c->aws, NULL, "DescribeInstanceTypeOfferings");
    tm_ec2__put(&call, "LocationType", "availability-zone");
    tm_ec2__put(&call, "Filter.1.Name", "instance-type");
    for (int i = 0; i < c->options.common.pool_count; i++) {
        if (c->shared.pools[i].kind != TM_INSTANCE_SPOT || tm_aws__is_zone(c->shared.pools[i].zone)) continue;
        (void)snprintf(name, sizeof name, "Filter.1.Value.%d", ++types);
        tm_ec2__put(&call, name, c->shared.pools[i].type);
    }
    tm_arena_init(&arena, ARENA_MAX);
    int rc = types > 0 && c->options.subnet == NULL ? tm_ec2__ask(&call, c->shared.web, &arena, &root, code, e) : 0;
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "instanceTypeOfferingSet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one))
        take_offering(c, tm_xml_text(one, "instanceType"), tm_xml_text(one, "location"));
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "asking which zones offer the instance types");
}

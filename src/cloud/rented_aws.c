#include "base/alloc.h"
#include "base/calendar.h"
#include "cloud/aws_beside.h"
#include "cloud/rented.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    REGIONS_MAX = 64,
    AT_ONCE = 16,
    ITEMS_MAX = 1 << 20,
    ARENA_MAX = 256 << 20,
    IDS_EACH = 100,
    CLEAR_TRIES = 36,
    CLEAR_MS = 5000
};

struct search {
    struct tm_env *env;
    struct tm_aws *aws;
    struct tm_web *web;
    const struct tm_catalog *catalog;
    struct tm_rented_list *out;
    char regions[REGIONS_MAX][40];
    size_t region_count;
};

void tm_rented_list_deinit(struct tm_rented_list *list)
{
    tm_free(list->items);
    *list = (struct tm_rented_list){.items = NULL};
}

static int open_search(struct tm_env *env, struct search *s, struct tm_error *e)
{
    *s = (struct search){.env = env};
    int rc = tm_aws_create(env, NULL, &s->aws, e);
    if (rc == 0) rc = tm_web_create(env, &s->web, e);
    return rc;
}

static void close_search(struct search *s)
{
    tm_web_destroy(s->web);
    tm_aws_destroy(s->aws);
}

/* Accounts are of one part of AWS: China's, the American government's, or the rest of the world's. */
static bool is_same_part(const char *a, const char *b)
{
    static const char *const parts[] = {"cn-", "us-gov-", "us-iso", "eu-isoe-", "eusc-"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t length = strlen(parts[i]);
        if ((strncmp(a, parts[i], length) == 0) != (strncmp(b, parts[i], length) == 0)) return false;
    }
    return true;
}

static int find_regions(struct search *s, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    tm_ec2__init(&call, s->aws, NULL, "DescribeRegions");
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, s->web, &arena, &root, code, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "regionInfo/item") : NULL;
    for (; one != NULL && s->region_count < REGIONS_MAX; one = tm_xml_again(one))
        if (is_same_part(tm_xml_text(one, "regionName"), tm_aws_region(s->aws)))
            (void)snprintf(s->regions[s->region_count++], sizeof s->regions[0], "%s", tm_xml_text(one, "regionName"));
    if (one != NULL) rc = tm_error_set(e, TM_ELIMIT, "AWS names more than %d regions", REGIONS_MAX);
    if (rc == 0 && s->region_count == 0) rc = tm_error_set(e, TM_EINPUT, "AWS names no regions of this account");
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc;
}

/* ---- one instance ---- */

static double price_of(const struct tm_catalog *catalog, const struct tm_rented *r, const char *zone)
{
    double found = NAN;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        if (strcmp(type->cloud, "aws") != 0 || strcmp(type->name, r->type) != 0) continue;
        if (strcmp(offer->region, r->region) != 0) continue;
        if (offer->zone[0] != '\0' && zone[0] != '\0' && strcmp(offer->zone, zone) != 0) continue;
        double price = r->spot ? offer->spot_usd_h : offer->on_demand_usd_h;
        if (isnan(found) && price > 0) found = price;
    }
    return found;
}

static const char *tag_of(const struct tm_xml *instance, const char *name)
{
    const struct tm_xml *tag = tm_xml_child(instance, "tagSet/item");
    for (; tag != NULL; tag = tm_xml_again(tag))
        if (strcmp(tm_xml_text(tag, "key"), name) == 0) return tm_xml_text(tag, "value");
    return "";
}

static int add_instance(struct search *s, const char *region, const struct tm_xml *x, struct tm_error *e)
{
    struct tm_rented_list *list = s->out;
    struct tm_rented r = {.spot = strcmp(tm_xml_text(x, "instanceLifecycle"), "spot") == 0};
    const char *launched = tm_xml_text(x, "launchTime");
    (void)snprintf(r.id, sizeof r.id, "%s", tm_xml_text(x, "instanceId"));
    (void)snprintf(r.region, sizeof r.region, "%s", region);
    (void)snprintf(r.type, sizeof r.type, "%s", tm_xml_text(x, "instanceType"));
    (void)snprintf(r.job, sizeof r.job, "%s", tag_of(x, TM_RENTED_TAG));
    (void)snprintf(r.state, sizeof r.state, "%s", tm_xml_text(x, "instanceState/name"));
    if (!tm_calendar_parse(launched, strlen(launched), &r.since_ms)) r.since_ms = 0;
    r.price_usd_h = price_of(s->catalog, &r, tm_xml_text(x, "placement/availabilityZone"));
    if (r.id[0] == '\0') return 0;
    int rc = tm_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof r, ITEMS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    list->items[list->count++] = r;
    return 0;
}

/* ---- all regions ---- */

struct page {
    struct tm_ec2_call call;
    struct tm_web_call *begun;
    const char *region;
    char next[1024]; /* where the page begins; "": at the first */
};

static int begin_page(struct search *s, struct page *p, struct tm_error *e)
{
    static const char *const states[] = {"pending", "running", "stopping", "stopped"};
    char name[32];
    tm_ec2__init(&p->call, s->aws, p->region, "DescribeInstances");
    tm_ec2__put(&p->call, "Filter.1.Name", "tag-key");
    tm_ec2__put(&p->call, "Filter.1.Value.1", TM_RENTED_TAG);
    tm_ec2__put(&p->call, "Filter.2.Name", "instance-state-name");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        (void)snprintf(name, sizeof name, "Filter.2.Value.%zu", i + 1);
        tm_ec2__put(&p->call, name, states[i]);
    }
    tm_ec2__put(&p->call, "MaxResults", "1000");
    if (p->next[0] != '\0') tm_ec2__put(&p->call, "NextToken", p->next);
    return tm_ec2__begin(&p->call, s->web, &p->begun, e);
}

static int take_page(struct search *s, struct page *p, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_web_answer answer;
    char code[128];
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_web_end(p->begun, &answer, e);
    p->begun = NULL;
    rc = tm_ec2__take(&p->call, rc, &answer, &arena, &root, code, e);
    tm_ec2__deinit(&p->call);
    if (rc != 0) rc = tm_error_wrap(e, rc, "region %s", p->region);
    const struct tm_xml *reservation = rc == 0 ? tm_xml_child(root, "reservationSet/item") : NULL;
    for (; rc == 0 && reservation != NULL; reservation = tm_xml_again(reservation)) {
        const struct tm_xml *one = tm_xml_child(reservation, "instancesSet/item");
        for (; rc == 0 && one != NULL; one = tm_xml_again(one))
            rc = add_instance(s, p->region, one, e);
    }
    (void)snprintf(p->next, sizeof p->next, "%s", rc == 0 ? tm_xml_text(root, "nextToken") : "");
    tm_arena_deinit(&arena);
    return rc;
}

/* Regions side by side; the pages of one follow each other. */
static int ask_regions(struct search *s, struct tm_error *e)
{
    struct page *pages = tm_calloc(AT_ONCE, sizeof *pages);
    size_t begun = 0;
    size_t ended = 0;
    int rc = pages == NULL ? tm_error_nomem(e) : 0;
    while (rc == 0 && ended < s->region_count) {
        for (size_t i = 0; rc == 0 && i < AT_ONCE; i++) {
            struct page *p = &pages[i];
            if (p->begun == NULL && p->next[0] == '\0' && begun < s->region_count)
                p->region = s->regions[begun++];
            else if (p->begun != NULL || p->next[0] == '\0')
                continue;
            rc = begin_page(s, p, e);
        }
        if (rc == 0) rc = tm_web_step_wait(s->web, e);
        for (size_t i = 0; rc == 0 && i < AT_ONCE; i++) {
            if (pages[i].begun == NULL || !tm_web_is_done(pages[i].begun)) continue;
            rc = take_page(s, &pages[i], e);
            ended += rc == 0 && pages[i].next[0] == '\0';
        }
    }
    for (size_t i = 0; pages != NULL && i < AT_ONCE; i++)
        if (pages[i].begun != NULL) {
            struct tm_web_answer answer;
            if (tm_web_end(pages[i].begun, &answer, NULL) == 0) tm_web_answer_deinit(&answer);
            tm_ec2__deinit(&pages[i].call);
        }
    tm_free(pages);
    return rc;
}

int tm_rented_find_aws(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e)
{
    struct search s;
    struct tm_rented_list list = {.items = NULL};
    int rc = open_search(env, &s, e);
    s.catalog = catalog;
    s.out = &list;
    if (rc == 0) rc = find_regions(&s, e);
    if (rc == 0) rc = ask_regions(&s, e);
    close_search(&s);
    if (rc == 0)
        *out = list;
    else
        tm_rented_list_deinit(&list);
    return rc;
}

/* ---- ending ---- */

/* Those from `at` on that are in its region, at most so many; how many that are. */
static size_t same_region(const struct tm_rented_list *list, size_t at)
{
    size_t count = 1;
    while (at + count < list->count && count < IDS_EACH &&
           strcmp(list->items[at + count].region, list->items[at].region) == 0)
        count++;
    return count;
}

static int end_some(struct search *s, const struct tm_rented *items, size_t count, char code[128], struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_ec2__init(&call, s->aws, items->region, "TerminateInstances");
    for (size_t i = 0; i < count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "InstanceId.%zu", i + 1);
        tm_ec2__put(&call, name, items[i].id);
    }
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, s->web, &arena, &root, code, e);
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc;
}

/* One that is not there fails all of a call: then each for itself. */
static int end_each(struct search *s, const struct tm_rented *items, size_t count, size_t *ended, struct tm_error *e)
{
    char code[128];
    int rc = end_some(s, items, count, code, e);
    if (rc == 0) *ended += count;
    if (rc == 0 || strcmp(code, "InvalidInstanceID.NotFound") != 0) return rc;
    for (size_t i = 0; i < count; i++) {
        rc = end_some(s, &items[i], 1, code, e);
        if (rc == 0) ++*ended;
        if (rc != 0 && strcmp(code, "InvalidInstanceID.NotFound") != 0) return rc;
    }
    return 0;
}

int tm_rented_end_aws(struct tm_env *env, const struct tm_rented_list *list, size_t *out_ended, struct tm_error *e)
{
    struct search s;
    size_t ended = 0;
    int failed = 0;
    int rc = open_search(env, &s, e);
    for (size_t at = 0; rc == 0 && at < list->count;) { /* what fails in one region is no reason to leave another */
        size_t count = same_region(list, at);
        int one = end_each(&s, &list->items[at], count, &ended, failed == 0 ? e : NULL);
        if (failed == 0) failed = one;
        at += count;
    }
    close_search(&s);
    *out_ended = ended;
    return rc != 0 ? rc : failed;
}

/* ---- beside instances ---- */

int tm_rented_clear_aws(struct tm_env *env, const char *job, int *out_removed, int *out_left, struct tm_error *e)
{
    struct search s;
    int removed = 0;
    int left = 0;
    int rc = open_search(env, &s, e);
    if (rc == 0) rc = find_regions(&s, e);
    for (size_t i = 0; rc == 0 && i < s.region_count; i++) {
        const struct tm_aws__place place = {.env = env, .aws = s.aws, .web = s.web, .region = s.regions[i]};
        struct tm_aws__beside one = {.removed = 0};
        for (int again = 0; rc == 0 && again < CLEAR_TRIES; again++) {
            rc = tm_aws__remove_beside(&place, TM_RENTED_TAG, job, &one, e);
            removed += one.removed;
            if (rc != 0 || one.left == 0) break;
            env->sleep_ms(env, again < 5 ? CLEAR_MS / 5 : CLEAR_MS);
        }
        if (rc != 0) rc = tm_error_wrap(e, rc, "region %s", s.regions[i]);
        left += one.left;
    }
    close_search(&s);
    *out_removed = removed;
    *out_left = left;
    return rc;
}

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/log.h"
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

/* Kinds of what is found. */
enum { VM, VOLUME };

struct search {
    struct tm_env *env;
    struct tm_aws *aws;
    struct tm_web *web;
    const struct tm_catalog *catalog;
    struct tm_rented_list *out;
    char regions[REGIONS_MAX][40];
    size_t region_count;
    size_t refused_count; /* regions that refused to say what runs there */
};

void tm_rented_list_deinit(struct tm_rented_list *list)
{
    tm_free(list->items);
    *list = (struct tm_rented_list){.items = NULL};
}

static int open_search(struct tm_env *env, struct search *s, struct tm_error *e)
{
    *s = (struct search){.env = env};
    int rc = tm_aws_create_anywhere(env, &s->aws, e);
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

/* Who may not ask which regions there are still asks in its own. */
static int find_regions(struct search *s, int *unasked, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    tm_ec2__init(&call, s->aws, NULL, "DescribeRegions");
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, s->web, &arena, &root, code, &own);
    if (rc != 0 && e != NULL) *e = own;
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "regionInfo/item") : NULL;
    if (strcmp(code, "UnauthorizedOperation") == 0) {
        tm_log(TM_LOG_ERROR, "AWS: only region %s is asked, something may still cost in others: %s; %s",
               tm_aws_region(s->aws), own.text, tm_aws__advice(code));
        (void)snprintf(s->regions[s->region_count++], sizeof s->regions[0], "%s", tm_aws_region(s->aws));
        ++*unasked;
        rc = 0;
    }
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

static int add(struct search *s, const struct tm_rented *r, struct tm_error *e)
{
    struct tm_rented_list *list = s->out;
    if (r->id[0] == '\0') return 0;
    int rc = tm_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *r, ITEMS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    list->items[list->count++] = *r;
    return 0;
}

static int add_instance(struct search *s, const char *region, const struct tm_xml *x, struct tm_error *e)
{
    struct tm_rented r = {.spot = strcmp(tm_xml_text(x, "instanceLifecycle"), "spot") == 0};
    const char *launched = tm_xml_text(x, "launchTime");
    (void)snprintf(r.id, sizeof r.id, "%s", tm_xml_text(x, "instanceId"));
    (void)snprintf(r.region, sizeof r.region, "%s", region);
    (void)snprintf(r.type, sizeof r.type, "%s", tm_xml_text(x, "instanceType"));
    (void)snprintf(r.job, sizeof r.job, "%s", tag_of(x, TM_RENTED_TAG));
    (void)snprintf(r.state, sizeof r.state, "%s", tm_xml_text(x, "instanceState/name"));
    if (!tm_calendar_parse(launched, strlen(launched), &r.since_ms)) r.since_ms = 0;
    r.price_usd_h = price_of(s->catalog, &r, tm_xml_text(x, "placement/availabilityZone"));
    return add(s, &r, e);
}

/* One that no instance has. What it costs is not in the catalogue. */
static int add_volume(struct search *s, const char *region, const struct tm_xml *x, struct tm_error *e)
{
    struct tm_rented r = {.kind = VOLUME, .state = "volume", .price_usd_h = NAN};
    const char *made = tm_xml_text(x, "createTime");
    (void)snprintf(r.id, sizeof r.id, "%s", tm_xml_text(x, "volumeId"));
    (void)snprintf(r.region, sizeof r.region, "%s", region);
    (void)snprintf(r.type, sizeof r.type, "%s %s GB", tm_xml_text(x, "volumeType"), tm_xml_text(x, "size"));
    (void)snprintf(r.job, sizeof r.job, "%s", tag_of(x, TM_RENTED_TAG));
    if (!tm_calendar_parse(made, strlen(made), &r.since_ms)) r.since_ms = 0;
    return add(s, &r, e);
}

/* ---- all regions ---- */

/* What is asked of a region, one after the other. */
static const struct {
    const char *action;
    const char *filter; /* beside the tag */
    const char *values[4];
    const char *most; /* on a page */
} lists[] = {
    [VM] = {"DescribeInstances", "instance-state-name", {"pending", "running", "stopping", "stopped"}, "1000"},
    [VOLUME] = {"DescribeVolumes", "status", {"available"}, "500"},
};

struct page {
    struct tm_ec2_call call;
    struct tm_web_call *begun;
    const char *region;
    int kind;
    bool more;       /* of this region */
    char next[1024]; /* where the page begins; "": at the first */
};

static int begin_page(struct search *s, struct page *p, struct tm_error *e)
{
    char name[32];
    tm_ec2__init(&p->call, s->aws, p->region, lists[p->kind].action);
    tm_ec2__put(&p->call, "Filter.1.Name", "tag-key");
    tm_ec2__put(&p->call, "Filter.1.Value.1", TM_RENTED_TAG);
    tm_ec2__put(&p->call, "Filter.2.Name", lists[p->kind].filter);
    for (size_t i = 0; i < sizeof lists->values / sizeof *lists->values && lists[p->kind].values[i] != NULL; i++) {
        (void)snprintf(name, sizeof name, "Filter.2.Value.%zu", i + 1);
        tm_ec2__put(&p->call, name, lists[p->kind].values[i]);
    }
    tm_ec2__put(&p->call, "MaxResults", lists[p->kind].most);
    if (p->next[0] != '\0') tm_ec2__put(&p->call, "NextToken", p->next);
    return tm_ec2__begin(&p->call, s->web, &p->begun, e);
}

static int take_instances(struct search *s, const char *region, const struct tm_xml *root, struct tm_error *e)
{
    int rc = 0;
    const struct tm_xml *reservation = tm_xml_child(root, "reservationSet/item");
    for (; rc == 0 && reservation != NULL; reservation = tm_xml_again(reservation)) {
        const struct tm_xml *one = tm_xml_child(reservation, "instancesSet/item");
        for (; rc == 0 && one != NULL; one = tm_xml_again(one))
            rc = add_instance(s, region, one, e);
    }
    return rc;
}

static int take_volumes(struct search *s, const char *region, const struct tm_xml *root, struct tm_error *e)
{
    int rc = 0;
    const struct tm_xml *one = tm_xml_child(root, "volumeSet/item");
    for (; rc == 0 && one != NULL; one = tm_xml_again(one))
        rc = add_volume(s, region, one, e);
    return rc;
}

static int take_page(struct search *s, struct page *p, char code[128], struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_web_answer answer;
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_web_end(p->begun, &answer, e);
    p->begun = NULL;
    rc = tm_ec2__take(&p->call, rc, &answer, &arena, &root, code, e);
    tm_ec2__deinit(&p->call);
    if (rc == 0) rc = p->kind == VM ? take_instances(s, p->region, root, e) : take_volumes(s, p->region, root, e);
    (void)snprintf(p->next, sizeof p->next, "%s", rc == 0 ? tm_xml_text(root, "nextToken") : "");
    tm_arena_deinit(&arena);
    return rc;
}

static const char *advice_of(const char *code)
{
    const char *advice = tm_aws__advice(code);
    return advice[0] != '\0' ? advice : code[0] != '\0' ? "look there by hand" : "check the network, and try again";
}

static void give_up_page(struct page *p)
{
    struct tm_web_answer answer;
    if (p->begun == NULL) return;
    if (tm_web_end(p->begun, &answer, NULL) == 0) tm_web_answer_deinit(&answer);
    tm_ec2__deinit(&p->call);
}

/* A page that came, or did not: a region that refuses is no reason to leave the others unasked. One that does not say
 * what runs there is not asked for volumes. */
static int end_page(struct search *s, struct page *p, struct tm_error *first, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    char code[128];
    int rc = take_page(s, p, code, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    bool ended = p->next[0] == '\0';
    p->more = !ended || (rc == 0 && p->kind == VM);
    if (rc != 0) {
        s->out->unasked++;
        if (p->kind == VM && s->refused_count++ == 0) *first = own;
        tm_log(TM_LOG_ERROR, "AWS: region %s could not be asked%s, and something may still cost there: %s; %s",
               p->region, p->kind == VOLUME ? " for volumes" : "", own.text, advice_of(code));
    }
    if (ended) p->kind = VOLUME;
    return 0;
}

/* Regions side by side; what is asked of one follows each other. */
static int ask_regions(struct search *s, struct tm_error *e)
{
    struct page *pages = tm_calloc(AT_ONCE, sizeof *pages);
    struct tm_error first = {.text = ""};
    size_t begun = 0;
    size_t ended = 0;
    int rc = pages == NULL ? tm_error_nomem(e) : 0;
    while (rc == 0 && ended < s->region_count) {
        for (size_t i = 0; rc == 0 && i < AT_ONCE; i++) {
            struct page *p = &pages[i];
            if (p->begun != NULL || (!p->more && begun == s->region_count)) continue;
            if (!p->more) *p = (struct page){.region = s->regions[begun++]};
            rc = begin_page(s, p, e);
        }
        if (rc == 0) rc = tm_web_step_wait(s->web, e);
        for (size_t i = 0; rc == 0 && i < AT_ONCE; i++) {
            if (pages[i].begun == NULL || !tm_web_is_done(pages[i].begun)) continue;
            rc = end_page(s, &pages[i], &first, e);
            ended += rc == 0 && !pages[i].more;
        }
    }
    for (size_t i = 0; pages != NULL && i < AT_ONCE; i++)
        give_up_page(&pages[i]);
    tm_free(pages);
    if (rc != 0 || s->refused_count < s->region_count) return rc;
    return tm_error_set(e, first.code, "no region of AWS could be asked: %s", first.text);
}

int tm_rented_find_aws(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out,
                       struct tm_error *e)
{
    struct search s;
    struct tm_rented_list list = {.items = NULL};
    int unasked = 0;
    int rc = open_search(env, &s, e);
    s.catalog = catalog;
    s.out = &list;
    if (rc == 0) rc = find_regions(&s, &unasked, e);
    if (rc == 0) rc = ask_regions(&s, e);
    close_search(&s);
    list.unasked += unasked;
    if (rc == 0)
        *out = list;
    else
        tm_rented_list_deinit(&list);
    return rc;
}

/* ---- ending ---- */

/* One call: some of a region, from this place of the list on. */
struct ending {
    struct tm_ec2_call call;
    struct tm_web_call *begun;
    size_t at;
    size_t count;
};

struct span {
    size_t at;
    size_t count;
};

/* What is still to be ended; room for each instance alone, and for calls of many before that. */
struct spans {
    struct span *list;
    size_t next;
    size_t count;
};

/* Instances from `at` on that are in its region, at most so many; how many that are. Volumes go one by one. */
static size_t same_region(const struct tm_rented_list *list, size_t at)
{
    size_t count = 1;
    if (list->items[at].kind == VOLUME) return 1;
    while (at + count < list->count && count < IDS_EACH && list->items[at + count].kind == VM &&
           strcmp(list->items[at + count].region, list->items[at].region) == 0)
        count++;
    return count;
}

static int begin_end(struct search *s, const struct tm_rented_list *list, struct ending *p, struct tm_error *e)
{
    const struct tm_rented *first = &list->items[p->at];
    bool volume = first->kind == VOLUME;
    tm_ec2__init(&p->call, s->aws, first->region, volume ? "DeleteVolume" : "TerminateInstances");
    if (volume) tm_ec2__put(&p->call, "VolumeId", first->id);
    for (size_t i = 0; !volume && i < p->count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "InstanceId.%zu", i + 1);
        tm_ec2__put(&p->call, name, list->items[p->at + i].id);
    }
    int rc = tm_ec2__begin(&p->call, s->web, &p->begun, e);
    if (rc != 0) tm_ec2__deinit(&p->call);
    return rc;
}

/* One that is refused fails all of a call: then each for itself. */
static void take_end(struct ending *p, struct tm_rented_list *list, struct spans *spans)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_web_answer answer;
    struct tm_error own = {.text = ""};
    char code[128];
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_web_end(p->begun, &answer, &own);
    p->begun = NULL;
    rc = tm_ec2__take(&p->call, rc, &answer, &arena, &root, code, &own);
    tm_ec2__deinit(&p->call);
    tm_arena_deinit(&arena);
    bool gone = strcmp(code, "InvalidInstanceID.NotFound") == 0 || strcmp(code, "InvalidVolume.NotFound") == 0;
    if (rc != 0 && code[0] != '\0' && p->count > 1) {
        for (size_t i = 0; i < p->count; i++)
            spans->list[spans->count++] = (struct span){p->at + i, 1};
        return;
    }
    for (size_t i = 0; i < p->count && (rc == 0 || gone); i++)
        list->items[p->at + i].fate = gone ? TM_RENTED_GONE : TM_RENTED_ENDED;
    if (rc == 0 || gone) return;
    const struct tm_rented *r = &list->items[p->at];
    if (p->count == 1)
        tm_log(TM_LOG_ERROR, "AWS: %s in %s is not ended: %s; %s", r->id, r->region, own.text, advice_of(code));
    else
        tm_log(TM_LOG_ERROR, "AWS: %zu instances in %s (%s, ...) are not ended: %s; %s", p->count, r->region, r->id,
               own.text, advice_of(code));
}

static int end_spans(struct search *s, struct tm_rented_list *list, struct spans *spans, struct ending *endings,
                     struct tm_error *e)
{
    size_t busy = 0;
    int rc = 0;
    while (rc == 0 && (busy > 0 || spans->next < spans->count)) {
        for (size_t i = 0; rc == 0 && i < AT_ONCE && spans->next < spans->count; i++) {
            if (endings[i].begun != NULL) continue;
            const struct span span = spans->list[spans->next++];
            endings[i].at = span.at;
            endings[i].count = span.count;
            rc = begin_end(s, list, &endings[i], e);
            busy += rc == 0;
        }
        if (rc == 0) rc = tm_web_step_wait(s->web, e);
        for (size_t i = 0; rc == 0 && i < AT_ONCE; i++) {
            if (endings[i].begun == NULL || !tm_web_is_done(endings[i].begun)) continue;
            take_end(&endings[i], list, spans);
            busy--;
        }
    }
    for (size_t i = 0; i < AT_ONCE; i++)
        if (endings[i].begun != NULL) {
            struct tm_web_answer answer;
            if (tm_web_end(endings[i].begun, &answer, NULL) == 0) tm_web_answer_deinit(&answer);
            tm_ec2__deinit(&endings[i].call);
        }
    return rc;
}

int tm_rented_end_aws(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e)
{
    struct search s;
    struct spans spans = {.list = tm_calloc(list->count * 2 + 1, sizeof *spans.list)};
    struct ending *endings = tm_calloc(AT_ONCE, sizeof *endings);
    int rc = open_search(env, &s, e);
    if (rc == 0 && (spans.list == NULL || endings == NULL)) rc = tm_error_nomem(e);
    for (size_t at = 0; rc == 0 && at < list->count; at += spans.list[spans.count++].count)
        spans.list[spans.count] = (struct span){at, same_region(list, at)};
    if (rc == 0) rc = end_spans(&s, list, &spans, endings, e);
    tm_free(endings);
    tm_free(spans.list);
    close_search(&s);
    return rc;
}

/* ---- beside instances ---- */

/* In one region. A group goes when its instances have ended for good. */
static int clear_region(struct search *s, const char *region, const char *job, bool wait, struct tm_rented_beside *sum,
                        struct tm_error *e)
{
    const struct tm_aws__place place = {.env = s->env, .aws = s->aws, .web = s->web, .region = region};
    struct tm_aws__beside one = {.removed = 0};
    int rc = 0;
    for (int again = 0; rc == 0 && again < (wait ? CLEAR_TRIES : 1); again++) {
        if (again > 0) s->env->sleep_ms(s->env, again <= 5 ? CLEAR_MS / 5 : CLEAR_MS);
        rc = tm_aws__remove_beside(&place, TM_RENTED_TAG, job, &one, e);
        if (rc == 0) sum->removed += one.removed;
        if (one.left == 0) break;
    }
    sum->left += one.left;
    return rc;
}

int tm_rented_clear_aws(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out,
                        struct tm_error *e)
{
    struct search s;
    struct tm_rented_beside sum = {.removed = 0};
    int rc = open_search(env, &s, e);
    if (rc == 0) rc = find_regions(&s, &sum.unasked, e);
    for (size_t i = 0; rc == 0 && i < s.region_count; i++) {
        struct tm_error own = {.text = ""};
        int one = clear_region(&s, s.regions[i], job, wait, &sum, &own);
        if (one == -(int)TM_ENOMEM) rc = tm_error_nomem(e);
        if (one == 0 || rc != 0) continue;
        sum.unasked++;
        tm_log(TM_LOG_ERROR, "AWS: groups and templates in region %s could not be asked for: %s", s.regions[i],
               own.text);
    }
    close_search(&s);
    *out = sum;
    return rc;
}

#include "policy/best_path.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>

enum { WAYS_MAX = 1 << 20, PLACES_MAX = 1 << 24, NOTHING = -1 };

/* Where a way has led to after some steps. */
struct way {
    double samples;
    double left_ms; /* of a migration under way; 0: none */
    int layout;
    int before; /* its place before the last step */
    int next;   /* another one to the same layout; NOTHING: none */
};

/* Ways that are still worth keeping: for each layout a list. */
struct ways {
    struct way *list; /* owned */
    size_t count;
    size_t capacity;
    int *first; /* owned; [layouts] */
};

/* The layout of one way at one step, and the place before it: enough to walk back. */
struct place {
    int layout;
    int before;
};

struct search {
    const struct tm_layouts *layouts;
    struct tm_migrations *migrations;
    struct ways now;
    struct ways next;
    int *ranked; /* owned: ways of `now`, the richest first */
    size_t ranked_capacity;
    struct place *places; /* owned */
    size_t place_count;
    size_t place_capacity;
};

/* ---- keeping ---- */

static void clear(struct ways *ways, size_t layouts)
{
    ways->count = 0;
    for (size_t i = 0; i < layouts; i++)
        ways->first[i] = NOTHING;
}

/* Is there a way to the same layout with as many samples and as little left? */
static bool is_beaten(const struct ways *ways, int layout, double samples, double left_ms)
{
    if (ways->list == NULL) return false;
    for (int i = ways->first[layout]; i != NOTHING; i = ways->list[i].next)
        if (ways->list[i].samples >= samples && ways->list[i].left_ms <= left_ms) return true;
    return false;
}

static int keep(struct ways *ways, struct way way, struct tm_error *e)
{
    if (is_beaten(ways, way.layout, way.samples, way.left_ms)) return 0;
    for (int *link = &ways->first[way.layout]; *link != NOTHING;) {
        assert(ways->list != NULL);
        struct way *other = &ways->list[*link];
        if (other->samples <= way.samples && other->left_ms >= way.left_ms)
            *link = other->next;
        else
            link = &other->next;
    }
    int rc = tm_grow((void **)&ways->list, &ways->capacity, ways->count + 1, sizeof *ways->list, WAYS_MAX);
    if (rc == -TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "too many possible layouts; simulate less time");
    if (rc != 0) return tm_error_nomem(e);
    way.next = ways->first[way.layout];
    ways->first[way.layout] = (int)ways->count;
    ways->list[ways->count++] = way;
    return 0;
}

/* ---- one step ---- */

/* The richest first: what they lead to rules out most of the others. */
static int rank_ways(struct search *search, size_t *count, struct tm_error *e)
{
    struct ways *now = &search->now;
    if (tm_grow((void **)&search->ranked, &search->ranked_capacity, now->count, sizeof *search->ranked, WAYS_MAX) != 0)
        return tm_error_nomem(e);
    *count = 0;
    for (size_t layout = 0; layout < search->layouts->count; layout++) {
        for (int i = now->first[layout]; i != NOTHING; i = now->list[i].next) {
            size_t place = (*count)++;
            for (; place > 0 && now->list[search->ranked[place - 1]].samples < now->list[i].samples; place--)
                search->ranked[place] = search->ranked[place - 1];
            search->ranked[place] = i;
        }
    }
    return 0;
}

/* Where `way` leads to when it pauses for cost_ms in this step. */
static struct way led_to(const struct search *search, struct way way, int to, double cost_ms, double duration_s)
{
    double work_s = duration_s - cost_ms / 1000;
    way.layout = to;
    way.left_ms = work_s < 0 ? -work_s * 1000 : 0;
    if (work_s > 0) way.samples += search->layouts->list[to].samples_per_s * work_s;
    return way;
}

static int follow(struct search *search, const struct way *way, const struct tm_ahead *step, struct tm_error *e)
{
    for (int to = 0; to < (int)search->layouts->count; to++) {
        if (search->layouts->list[to].instances > step->after) continue;
        double least_ms = tm_migrations_least_ms(search->migrations, way->layout, step->lost, to);
        struct way at_best = led_to(search, *way, to, least_ms, step->duration_s);
        if (is_beaten(&search->next, to, at_best.samples, at_best.left_ms)) continue;
        double cost_ms = tm_migrations_ms(search->migrations, step->before, way->layout, step->lost, to);
        if (isnan(cost_ms)) return tm_error_nomem(e);
        if (way->left_ms > 0)
            cost_ms = cost_ms > 0 ? cost_ms + tm_migrations_restart_ms(search->migrations, to) : way->left_ms;
        int rc = keep(&search->next, led_to(search, *way, to, cost_ms, step->duration_s), e);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Notes down where the ways of `next` are now, so that they can be walked back. */
static int note_places(struct search *search, struct tm_error *e)
{
    struct ways *next = &search->next;
    for (size_t layout = 0; layout < search->layouts->count; layout++) {
        for (int i = next->first[layout]; i != NOTHING; i = next->list[i].next) {
            int rc = tm_grow((void **)&search->places, &search->place_capacity, search->place_count + 1,
                             sizeof *search->places, PLACES_MAX);
            if (rc == -TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "too many possible layouts; simulate less time");
            if (rc != 0) return tm_error_nomem(e);
            search->places[search->place_count] = (struct place){(int)layout, next->list[i].before};
            next->list[i].before = (int)search->place_count++;
        }
    }
    return 0;
}

static int advance(struct search *search, const struct tm_ahead *step, struct tm_error *e)
{
    size_t count = 0;
    int rc = rank_ways(search, &count, e);
    clear(&search->next, search->layouts->count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct way *way = &search->now.list[search->ranked[i]];
        if (search->layouts->list[way->layout].instances <= step->before) rc = follow(search, way, step, e);
    }
    if (rc == 0) rc = note_places(search, e);
    struct ways swap = search->now;
    search->now = search->next;
    search->next = swap;
    return rc;
}

/* ---- all of them ---- */

static void walk_back(const struct search *search, size_t count, int *path, double *samples)
{
    const struct way *best = NULL;
    for (size_t layout = 0; layout < search->layouts->count; layout++) {
        for (int i = search->now.first[layout]; i != NOTHING; i = search->now.list[i].next)
            if (best == NULL || search->now.list[i].samples > best->samples) best = &search->now.list[i];
    }
    assert(best != NULL);
    if (samples != NULL) *samples = best->samples;
    int place = best->before;
    for (size_t i = count; i-- > 0; place = search->places[place].before)
        path[i] = search->places[place].layout;
}

int tm_best__path(const struct tm_layouts *layouts, struct tm_migrations *migrations, struct tm_standing start,
                  const struct tm_ahead *steps, size_t count, int *path, double *samples, struct tm_error *e)
{
    assert(count > 0);
    struct search search = {.layouts = layouts, .migrations = migrations};
    search.now.first = tm_calloc(layouts->count, sizeof(int));
    search.next.first = tm_calloc(layouts->count, sizeof(int));
    int rc = search.now.first == NULL || search.next.first == NULL ? tm_error_nomem(e) : 0;
    if (rc == 0) {
        clear(&search.now, layouts->count);
        rc = keep(&search.now, (struct way){0, start.migrating_ms, start.layout, NOTHING, NOTHING}, e);
    }
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = advance(&search, &steps[i], e);
    if (rc == 0) walk_back(&search, count, path, samples);
    tm_free(search.now.list);
    tm_free(search.now.first);
    tm_free(search.next.list);
    tm_free(search.next.first);
    tm_free(search.ranked);
    tm_free(search.places);
    return rc;
}

#include "layout/migrate.h"

#include "base/alloc.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { LONG_ROW = 1024 /* entries; in closed form they are not kept */, ROWS_MAX = 1 << 20, MEASURED_COUNTED_MAX = 48 };

static const double rounding = 1 - 1e-9; /* a mean of equal costs may come out a little below them */

struct row {
    int fleet;
    int from;
    int lost;
    double *ms; /* owned */
};

/* An old stage that has layers of a new one. */
struct near {
    int stage;
    double shared; /* parameters it has already */
    double missing_ms;
};

/* For each stage of a new cut: the old stages near it, the one that shares most first, then by number; and the same in
 * the old cut's order. */
struct nearness {
    struct near *list;    /* owned */
    struct near *ordered; /* owned */
    int *first;           /* owned; [new stages + 1]; of both */
    double *whole_ms;     /* owned; [new stages]: all of it is missing */
    double least_ms;      /* of a move with every place's closest survivor at hand */
};

struct tm_migrations {
    const struct tm_layouts *layouts;
    const struct tm_cost *cost;
    double *stage_ms;          /* [stages][stage]: one transfer of that stage's state */
    double *largest_ms;        /* [stages]: of its largest stage */
    struct nearness *nearness; /* [old stages][new stages], made when first asked for */
    struct row *rows;          /* hash table, open addressing; its size is a power of two */
    size_t row_count;
    size_t row_slots;
};

/* ---- one outcome, paper ---- */

static double transfer_ms(const struct tm_migrations *m, double bytes)
{
    if (m->cost->kind == TM_COST_PAPER) return tm_cost__transfer_ms(&m->cost->paper, bytes);
    return bytes <= 0 ? 0 : m->cost->measured.link_latency_ms + bytes * 8e3 / m->cost->measured.link_bit_s;
}

static double stage_ms(const struct tm_migrations *m, int stages, int stage)
{
    return m->stage_ms[stages * TM_LAYOUT_STAGES_MAX + stage];
}

static int fewest(const struct tm_survivors *survivors)
{
    int least = survivors->left[0];
    for (int s = 1; s < survivors->stages; s++)
        if (survivors->left[s] < least) least = survivors->left[s];
    return least;
}

/* Parcae's rule: short stages are copied at the same time, stages without a survivor one after the other; its last
 * stage counts as lost already with one survivor (that one is the pinned backup). */
static double paper_between_ms(const struct tm_migrations *m, const struct tm_survivors *survivors, int pipelines)
{
    double largest = 0, lost = 0;
    int stages = survivors->stages;
    for (int s = 0; s < stages; s++) {
        int left = survivors->left[s];
        if (left >= pipelines) continue;
        double ms = stage_ms(m, stages, s);
        if (ms > largest) largest = ms;
        if (left == 0 || (s == stages - 1 && left == 1)) lost += ms;
    }
    return largest > lost ? largest : lost;
}

static const struct nearness *nearness_of(const struct tm_migrations *m, int old_stages, int new_stages)
{
    return &m->nearness[old_stages * (m->layouts->stages_max + 1) + new_stages];
}

static void insert_near(struct near *list, int first, int *count, struct near near)
{
    int place = *count;
    for (; place > first && list[place - 1].shared < near.shared; place--)
        list[place] = list[place - 1];
    list[place] = near;
    (*count)++;
}

static int measure_nearness(struct tm_migrations *m, int old_stages, int new_stages)
{
    const struct tm_cut *old = &m->layouts->cuts[old_stages], *cut = &m->layouts->cuts[new_stages];
    const double *before = m->layouts->layer_params_before;
    struct nearness *nearness = &m->nearness[old_stages * (m->layouts->stages_max + 1) + new_stages];
    nearness->list = tm_calloc((size_t)old_stages + (size_t)new_stages, sizeof *nearness->list);
    nearness->ordered = tm_calloc((size_t)old_stages + (size_t)new_stages, sizeof *nearness->ordered);
    nearness->first = tm_calloc((size_t)new_stages + 1, sizeof *nearness->first);
    nearness->whole_ms = tm_calloc((size_t)new_stages, sizeof *nearness->whole_ms);
    if (nearness->list == NULL || nearness->ordered == NULL || nearness->first == NULL || nearness->whole_ms == NULL)
        return -(int)TM_ENOMEM;
    int count = 0;
    for (int j = 0; j < new_stages; j++) {
        nearness->first[j] = count;
        nearness->whole_ms[j] = transfer_ms(m, cut->params[j] * m->layouts->bytes_per_param);
        for (int s = 0; s < old_stages; s++) {
            int from = old->first[s] > cut->first[j] ? old->first[s] : cut->first[j];
            int to = old->first[s + 1] < cut->first[j + 1] ? old->first[s + 1] : cut->first[j + 1];
            if (to <= from || !(before[to] > before[from])) continue;
            double shared = before[to] - before[from];
            double missing_ms = transfer_ms(m, (cut->params[j] - shared) * m->layouts->bytes_per_param);
            nearness->ordered[count] = (struct near){s, shared, missing_ms};
            insert_near(nearness->list, nearness->first[j], &count, nearness->ordered[count]);
        }
    }
    nearness->first[new_stages] = count;
    for (int j = 0; j < new_stages; j++) {
        bool any = nearness->first[j] < nearness->first[j + 1];
        double ms = any ? nearness->list[nearness->first[j]].missing_ms : nearness->whole_ms[j];
        if (ms > nearness->least_ms) nearness->least_ms = ms;
    }
    return 0;
}

/* All cuts that the table will be asked for. */
static int measure_all_nearness(struct tm_migrations *m)
{
    int rc = 0, most = m->layouts->stages_max;
    for (int old = 1; rc == 0 && old <= most; old++)
        for (int cut = 1; rc == 0 && cut <= most; cut++)
            if (m->layouts->cuts[old].stages > 0 && m->layouts->cuts[cut].stages > 0)
                rc = measure_nearness(m, old, cut);
    return rc;
}

/* Which survivors are free still, while new stages take them in order. */
struct pool {
    const struct tm_survivors *survivors;
    int taken[TM_LAYOUT_STAGES_MAX];
    int level;    /* of the lowest pipeline that has a free survivor ... */
    int position; /* ... and no free one of that pipeline stands before this stage */
};

/* The free survivor of the lowest pipeline, then of the lowest stage; -1: none is left. */
static int lowest_free(struct pool *pool)
{
    const struct tm_survivors *survivors = pool->survivors;
    for (int empty_rounds = 0; empty_rounds < 2; empty_rounds++) {
        for (; pool->position < survivors->stages; pool->position++) {
            int s = pool->position;
            if (pool->taken[s] <= pool->level && pool->taken[s] < survivors->left[s]) return s;
        }
        int next = -1;
        for (int s = 0; s < survivors->stages; s++)
            if (pool->taken[s] < survivors->left[s] && (next < 0 || pool->taken[s] < next)) next = pool->taken[s];
        if (next < 0) return -1;
        pool->level = next;
        pool->position = 0;
    }
    return -1;
}

/* The free survivor that shares most with new stage `j`; among equals the one of the lowest pipeline, then of the
 * lowest stage. NULL: none that shares is free. */
static const struct near *closest(const struct nearness *nearness, const struct pool *pool, int j)
{
    const struct near *best = NULL;
    for (int i = nearness->first[j]; i < nearness->first[j + 1]; i++) {
        const struct near *near = &nearness->list[i];
        if (best != NULL && near->shared < best->shared) break;
        if (pool->taken[near->stage] >= pool->survivors->left[near->stage]) continue;
        if (best == NULL || pool->taken[near->stage] < pool->taken[best->stage]) best = near;
    }
    return best;
}

/* Parcae's rule: each new stage in turn takes the closest free survivor. Its code keeps only what the last of them
 * lacks (an assignment where a sum was meant), and so do we. */
static double paper_new_cut_ms(const struct tm_migrations *m, const struct tm_survivors *survivors, int stages)
{
    const struct nearness *nearness = nearness_of(m, survivors->stages, stages);
    struct pool pool = {.survivors = survivors};
    double missing_ms = transfer_ms(m, 0);
    for (int j = 0; j < stages; j++) {
        const struct near *near = closest(nearness, &pool, j);
        int s = near != NULL ? near->stage : lowest_free(&pool);
        if (s < 0) break;
        pool.taken[s]++;
        missing_ms = near != NULL ? near->missing_ms : nearness->whole_ms[j];
    }
    return missing_ms;
}

/* ---- one outcome, measured: every byte counts ---- */

/* Same cut: each replica that lacks its state pulls it from all survivors of the stage at once; a stage without any is
 * read from the copy set, all such stages sharing the store. */
static double full_between_ms(const struct tm_migrations *m, const struct tm_survivors *survivors, int pipelines)
{
    double slowest = 0, from_store = 0;
    for (int s = 0; s < survivors->stages; s++) {
        int left = survivors->left[s], lacking = pipelines - left;
        if (lacking <= 0) continue;
        double bytes = tm_layouts_stage_bytes(m->layouts, survivors->stages, s);
        if (left == 0) {
            from_store += bytes;
            if (pipelines == 1) continue;
            left = 1;
            lacking--;
        }
        double share = lacking > left ? (double)lacking / left : 1;
        double ms = transfer_ms(m, bytes * share);
        if (ms > slowest) slowest = ms;
    }
    if (from_store > 0) slowest += from_store * 8e3 / m->cost->measured.store_bit_s;
    return slowest;
}

/* Another cut: each of the stages x pipelines new places takes the closest free survivor or, failing that, an empty
 * one. A place receives what it lacks; what an old stage has to give is spread over its survivors. The slowest of all
 * ends counts; layers that nobody has come from the copy set. Pipeline by pipeline, so that one pass tells what each
 * number of them costs. */
struct moving {
    const struct nearness *nearness;
    const struct tm_cut *cut;
    struct pool pool;
    double given[TM_LAYOUT_STAGES_MAX];     /* by one survivor of each old stage */
    double share[2 * TM_LAYOUT_STAGES_MAX]; /* of each near one, by one survivor; 0 where there is none */
    double worst;                           /* the most that one end receives or gives, in parameters */
    double from_store;
    int pipelines; /* that have their places */
};

static void begin_moving(struct moving *moving, const struct tm_migrations *m, const struct tm_survivors *survivors,
                         int stages)
{
    const struct nearness *nearness = nearness_of(m, survivors->stages, stages);
    moving->nearness = nearness;
    moving->cut = &m->layouts->cuts[stages];
    moving->pool.survivors = survivors;
    moving->worst = moving->from_store = 0;
    moving->pipelines = 0;
    for (int s = 0; s < survivors->stages; s++) {
        moving->pool.taken[s] = 0;
        moving->given[s] = 0;
    }
    for (int i = 0; i < nearness->first[stages]; i++) {
        int left = survivors->left[nearness->ordered[i].stage];
        double shared = nearness->ordered[i].shared;
        moving->share[i] = left > 0 ? shared / left : 0;
        if (left == 0) moving->from_store += shared;
    }
}

static void move_pipeline(struct moving *moving)
{
    const struct nearness *nearness = moving->nearness;
    double worst = moving->worst;
    for (int j = 0; j < moving->cut->stages; j++) {
        const struct near *own = closest(nearness, &moving->pool, j);
        int own_stage = own != NULL ? own->stage : -1;
        if (own != NULL) moving->pool.taken[own_stage]++;
        double missing = moving->cut->params[j] - (own != NULL ? own->shared : 0);
        if (missing > worst) worst = missing;
        for (int i = nearness->first[j]; i < nearness->first[j + 1]; i++) {
            int s = nearness->ordered[i].stage;
            if (s == own_stage) continue;
            double given = moving->given[s] + moving->share[i];
            moving->given[s] = given;
            if (given > worst) worst = given;
        }
    }
    moving->worst = worst;
    moving->pipelines++;
}

static double moved_ms(const struct tm_migrations *m, struct moving *moving, int pipelines)
{
    while (moving->pipelines < pipelines)
        move_pipeline(moving);
    double bytes_per_param = m->layouts->bytes_per_param, ms = transfer_ms(m, moving->worst * bytes_per_param);
    if (!(moving->from_store > 0)) return ms;
    return ms + moving->from_store * bytes_per_param * 8e3 / m->cost->measured.store_bit_s;
}

static double full_new_cut_ms(const struct tm_migrations *m, const struct tm_survivors *survivors, int stages,
                              int pipelines)
{
    struct moving moving;
    begin_moving(&moving, m, survivors, stages);
    return moved_ms(m, &moving, pipelines);
}

/* ---- one outcome ---- */

/* Every stage has the replicas it needs: only groups are formed anew. */
static double within_stages_ms(const struct tm_migrations *m, int to)
{
    const struct tm_layout *target = &m->layouts->list[to];
    if (m->cost->kind == TM_COST_MEASURED) return tm_cost_restart_ms(m->cost, m->layouts, to, false);
    return tm_cost__group_ms(&m->cost->paper.group_remove, target->pipelines, target->stages) +
           m->cost->paper.process_ms;
}

/* Cost with the same cut. */
static double same_cut_ms(const struct tm_migrations *m, const struct tm_survivors *survivors, int from, int lost,
                          int to)
{
    const struct tm_layout *old = &m->layouts->list[from], *target = &m->layouts->list[to];
    if (from == to && lost == 0) return 0;
    bool paper = m->cost->kind == TM_COST_PAPER;
    if (from == to && !paper && fewest(survivors) >= old->pipelines) return 0; /* spares alone are lost */
    if (fewest(survivors) >= target->pipelines) return within_stages_ms(m, to);
    double move =
        paper ? paper_between_ms(m, survivors, target->pipelines) : full_between_ms(m, survivors, target->pipelines);
    return move + tm_cost_restart_ms(m->cost, m->layouts, to, target->instances > old->instances - lost);
}

/* What comes on top of the transfer when the cut changes. */
static double new_cut_rest_ms(const struct tm_migrations *m, int from, int lost, int to)
{
    const struct tm_layout *old = &m->layouts->list[from], *target = &m->layouts->list[to];
    double ms = tm_cost_restart_ms(m->cost, m->layouts, to, target->instances > old->instances - lost);
    if (m->cost->kind == TM_COST_PAPER && target->pipelines > 1) ms += m->largest_ms[target->stages];
    return ms;
}

static double from_pause_ms(const struct tm_migrations *m, int to)
{
    const struct tm_layout *target = &m->layouts->list[to];
    double ms = tm_cost_restart_ms(m->cost, m->layouts, to, true);
    if (m->cost->kind == TM_COST_PAPER)
        return ms + transfer_ms(m, 0) + (target->pipelines > 1 ? m->largest_ms[target->stages] : 0);
    double bytes = 0;
    for (int s = 0; s < target->stages; s++)
        bytes += tm_layouts_stage_bytes(m->layouts, target->stages, s);
    return ms + m->cost->measured.link_latency_ms + bytes * 8e3 / m->cost->measured.store_bit_s;
}

double tm_migration__ms(struct tm_migrations *m, int from, const struct tm_survivors *survivors, int lost, int to)
{
    const struct tm_layout *old = &m->layouts->list[from], *target = &m->layouts->list[to];
    if (target->instances == 0) return 0;
    if (old->instances == 0) return from_pause_ms(m, to);
    if (old->stages == target->stages) return same_cut_ms(m, survivors, from, lost, to);
    double move = m->cost->kind == TM_COST_PAPER ? paper_new_cut_ms(m, survivors, target->stages)
                                                 : full_new_cut_ms(m, survivors, target->stages, target->pipelines);
    return move + new_cut_rest_ms(m, from, lost, to);
}

/* ---- rows ---- */

struct row_sum {
    struct tm_migrations *m;
    double *ms;
    int from;
    int lost;
    int stages_first; /* of the targets */
    int stages_last;
    struct tm_blocks blocks; /* that are lost */
};

/* Targets of the same cut. */
static void add_same_cut(struct row_sum *sum, const struct tm_survivors *survivors)
{
    const struct tm_layouts *layouts = sum->m->layouts;
    int end = layouts->first_of[survivors->stages + 1];
    for (int to = layouts->first_of[survivors->stages]; to < end; to++)
        sum->ms[to] += survivors->probability * same_cut_ms(sum->m, survivors, sum->from, sum->lost, to);
}

/* Targets of another cut: their numbers of pipelines ascend. */
static void add_new_cut(struct row_sum *sum, const struct tm_survivors *survivors, int stages)
{
    struct tm_migrations *m = sum->m;
    const struct tm_layouts *layouts = m->layouts;
    int first = layouts->first_of[stages], end = layouts->first_of[stages + 1];
    if (first == end) return;
    if (m->cost->kind == TM_COST_PAPER) {
        double move = paper_new_cut_ms(m, survivors, stages);
        for (int to = first; to < end; to++)
            sum->ms[to] += survivors->probability * move;
        return;
    }
    struct moving moving;
    begin_moving(&moving, m, survivors, stages);
    for (int to = first; to < end; to++)
        sum->ms[to] += survivors->probability * moved_ms(m, &moving, layouts->list[to].pipelines);
}

static void add_outcome(void *context, const struct tm_survivors *of_blocks)
{
    struct row_sum *sum = context;
    struct tm_survivors survivors;
    tm_losses__expand(&sum->blocks, of_blocks, sum->m->layouts->list[sum->from].stages, &survivors);
    for (int stages = sum->stages_first; stages <= sum->stages_last; stages++)
        if (stages == survivors.stages)
            add_same_cut(sum, &survivors);
        else
            add_new_cut(sum, &survivors, stages);
}

static struct tm_blocks blocks_of(const struct tm_migrations *m, const struct tm_layout *old, int fleet, int lost)
{
    return tm_losses__blocks(old->pipelines, old->stages, fleet - old->instances, lost, m->layouts->workers_each);
}

/* Targets of so many stages, over all that a loss may leave; of all stages at once where outcomes are drawn and drawing
 * costs more than they do. */
static void fill_stages(struct tm_migrations *m, const struct row *row, int stages)
{
    const struct tm_layouts *layouts = m->layouts;
    const struct tm_layout *old = &layouts->list[row->from];
    struct tm_blocks blocks = blocks_of(m, old, row->fleet, row->lost);
    bool alone = m->cost->kind == TM_COST_MEASURED ||
                 tm_losses__are_few(blocks.pipelines, blocks.stages, blocks.spares, blocks.lost);
    struct row_sum sum = {.m = m, .ms = row->ms, .from = row->from, .lost = row->lost, .blocks = blocks};
    sum.stages_first = alone ? stages : layouts->stages_min;
    sum.stages_last = alone ? stages : layouts->stages_max;
    int first = layouts->first_of[sum.stages_first], end = layouts->first_of[sum.stages_last + 1];
    for (int to = first; to < end; to++)
        row->ms[to] = 0;
    (void)tm_losses__each(blocks.pipelines, blocks.stages, blocks.spares, blocks.lost, add_outcome, &sum);
    for (int to = first; to < end; to++)
        if (layouts->list[to].stages != old->stages) row->ms[to] += new_cut_rest_ms(m, row->from, row->lost, to);
}

/* ---- rows of large fleets ----
 * Where every stage surely keeps enough replicas, what moves to a new cut is the same whoever goes, and with the same
 * cut only the largest stage that falls short counts: closed forms, no ways to count. */

/* The most places of a new cut that one old stage can have to fill. */
static int places_per_stage(const struct tm_layouts *layouts, int stages)
{
    return layouts->stages_max / stages + 2;
}

/* With measured costs the forms are exact only for the loss in the middle; small fleets, where a single replica more or
 * less makes a difference, are counted. */
static bool plenty_left(const struct tm_migrations *m, const struct tm_layout *old, int fleet, int lost)
{
    if (m->cost->kind == TM_COST_MEASURED && fleet <= MEASURED_COUNTED_MAX) return false;
    return old->pipelines - lost >= 2 && old->pipelines - lost >= places_per_stage(m->layouts, old->stages);
}

/* Of what is lost together the stage that takes longest to copy, from the longest of these. */
static void sort_stages(const struct tm_migrations *m, int stages, int depth, double *ms)
{
    for (int i = 0; i < stages / depth; i++) {
        double value = 0;
        for (int s = i * depth; s < (i + 1) * depth; s++)
            value = fmax(value, stage_ms(m, stages, s));
        int j = i;
        for (; j > 0 && ms[j - 1] < value; j--)
            ms[j] = ms[j - 1];
        ms[j] = value;
    }
}

/* The same cut: groups are formed anew, and the largest stage that falls short is copied. */
static double same_cut_with_plenty_ms(const struct tm_migrations *m, int fleet, int from, int lost, int to)
{
    const struct tm_layout *old = &m->layouts->list[from];
    int pipelines = m->layouts->list[to].pipelines;
    double ms[TM_LAYOUT_STAGES_MAX] = {0}, kept[TM_LAYOUT_STAGES_MAX + 1];
    bool falls_short = pipelines > old->pipelines - lost;
    struct tm_survivors survivors = {.stages = old->stages};
    for (int s = 0; s < old->stages; s++)
        survivors.left[s] = falls_short ? old->pipelines : old->pipelines - lost;
    if (!falls_short || pipelines > old->pipelines) return same_cut_ms(m, &survivors, from, lost, to);
    struct tm_blocks blocks = blocks_of(m, old, fleet, lost);
    sort_stages(m, old->stages, blocks.depth, ms);
    tm_losses__kept(blocks.pipelines, blocks.stages, blocks.spares, blocks.lost,
                    (pipelines + blocks.width - 1) / blocks.width, kept);
    double restart =
        tm_cost_restart_ms(m->cost, m->layouts, to, m->layouts->list[to].instances > old->instances - lost);
    double moved = 0;
    for (int s = 0; s < blocks.stages; s++)
        moved += (kept[s] - kept[s + 1]) * (ms[s] + restart);
    return moved + kept[blocks.stages] * same_cut_ms(m, &survivors, from, lost, to);
}

/* As many replicas left of each stage as the mean. */
static struct tm_survivors even_survivors(const struct tm_layout *old, int lost)
{
    struct tm_survivors survivors = {.stages = old->stages};
    for (int s = 0; s < old->stages; s++)
        survivors.left[s] = old->pipelines - (lost + s) / old->stages;
    return survivors;
}

static double with_plenty_ms(const struct tm_migrations *m, int fleet, int from, int lost, int to)
{
    const struct tm_layout *old = &m->layouts->list[from], *target = &m->layouts->list[to];
    if (target->instances == 0) return 0;
    if (old->stages == target->stages) return same_cut_with_plenty_ms(m, fleet, from, lost, to);
    struct tm_survivors survivors = even_survivors(old, lost);
    double move = m->cost->kind == TM_COST_PAPER ? paper_new_cut_ms(m, &survivors, target->stages)
                                                 : full_new_cut_ms(m, &survivors, target->stages, target->pipelines);
    return move + new_cut_rest_ms(m, from, lost, to);
}

/* Targets of one other cut, from `first` to before `end`: their numbers of pipelines ascend. With paper costs what
 * moves is the same for any number of them. */
static void fill_new_cut_with_plenty(struct tm_migrations *m, const struct row *row, int first, int end)
{
    const struct tm_layouts *layouts = m->layouts;
    int stages = layouts->list[first].stages;
    bool paper = m->cost->kind == TM_COST_PAPER;
    struct tm_survivors survivors = even_survivors(&layouts->list[row->from], row->lost);
    struct moving moving;
    double move = paper ? paper_new_cut_ms(m, &survivors, stages) : 0;
    if (!paper) begin_moving(&moving, m, &survivors, stages);
    for (int to = first; to < end; to++) {
        if (!paper) move = moved_ms(m, &moving, layouts->list[to].pipelines);
        row->ms[to] = move + new_cut_rest_ms(m, row->from, row->lost, to);
    }
}

static void fill_row_with_plenty(struct tm_migrations *m, const struct row *row)
{
    const struct tm_layouts *layouts = m->layouts;
    const struct tm_layout *old = &layouts->list[row->from];
    for (int stages = layouts->stages_min; stages <= layouts->stages_max; stages++) {
        int first = layouts->first_of[stages], end = layouts->first_of[stages + 1];
        if (first < end && stages != old->stages) fill_new_cut_with_plenty(m, row, first, end);
        for (int to = first; to < end && stages == old->stages; to++)
            row->ms[to] = same_cut_with_plenty_ms(m, row->fleet, row->from, row->lost, to);
    }
}

/* What is cheap is filled in at once, the rest (NaN until then) when it is asked for. */
static void begin_row(struct tm_migrations *m, const struct row *row)
{
    const struct tm_layouts *layouts = m->layouts;
    const struct tm_layout *old = &layouts->list[row->from];
    for (size_t to = 1; to < layouts->count; to++)
        row->ms[to] = old->instances == 0 ? from_pause_ms(m, (int)to) : NAN;
    if (old->instances > 0 && plenty_left(m, old, row->fleet, row->lost)) fill_row_with_plenty(m, row);
}

static size_t slot_of(const struct tm_migrations *m, int fleet, int from, int lost)
{
    uint64_t key = ((uint64_t)fleet << 40) ^ ((uint64_t)from << 16) ^ (uint64_t)lost;
    size_t slot = (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & (m->row_slots - 1);
    while (m->rows[slot].ms != NULL &&
           (m->rows[slot].fleet != fleet || m->rows[slot].from != from || m->rows[slot].lost != lost))
        slot = (slot + 1) & (m->row_slots - 1);
    return slot;
}

static bool make_room(struct tm_migrations *m)
{
    if (m->row_count * 2 < m->row_slots) return true;
    size_t old_slots = m->row_slots, slots = old_slots == 0 ? 1024 : old_slots * 2;
    if (slots > ROWS_MAX) return false;
    struct row *old = m->rows, *rows = tm_calloc(slots, sizeof *rows);
    if (rows == NULL) return false;
    m->rows = rows;
    m->row_slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].ms != NULL) m->rows[slot_of(m, old[i].fleet, old[i].from, old[i].lost)] = old[i];
    tm_free(old);
    return true;
}

static struct row *row_of(struct tm_migrations *m, int fleet, int from, int lost)
{
    const struct tm_layout *old = &m->layouts->list[from];
    assert(fleet >= old->instances && lost >= 0 && lost <= fleet);
    if (old->instances == 0) fleet = lost = 0;
    if (!make_room(m)) return NULL;
    size_t slot = slot_of(m, fleet, from, lost);
    if (m->rows[slot].ms != NULL) return &m->rows[slot];
    struct row row = {fleet, from, lost, tm_calloc(m->layouts->count, sizeof(double))};
    if (row.ms == NULL) return NULL;
    begin_row(m, &row);
    m->rows[slot] = row;
    m->row_count++;
    return &m->rows[slot];
}

const double *tm_migrations_row(struct tm_migrations *m, int fleet, int from, int lost)
{
    struct row *row = row_of(m, fleet, from, lost);
    for (size_t to = 1; row != NULL && to < m->layouts->count; to++)
        if (isnan(row->ms[to])) fill_stages(m, row, m->layouts->list[to].stages);
    return row != NULL ? row->ms : NULL;
}

double tm_migrations_ms(struct tm_migrations *m, int fleet, int from, int lost, int to)
{
    const struct tm_layout *old = &m->layouts->list[from];
    if (m->layouts->count > LONG_ROW && old->instances > 0 && plenty_left(m, old, fleet, lost))
        return with_plenty_ms(m, fleet, from, lost, to);
    struct row *row = row_of(m, fleet, from, lost);
    if (row == NULL) return NAN;
    if (isnan(row->ms[to])) fill_stages(m, row, m->layouts->list[to].stages);
    return row->ms[to];
}

double tm_migrations_least_ms(const struct tm_migrations *m, int from, int lost, int to)
{
    const struct tm_layout *old = &m->layouts->list[from], *target = &m->layouts->list[to];
    bool spares_may_go = from == to && m->cost->kind == TM_COST_MEASURED;
    if (target->instances == 0 || (from == to && lost == 0) || spares_may_go) return 0;
    if (old->instances == 0) return from_pause_ms(m, to);
    if (old->stages != target->stages) {
        double rest_ms = new_cut_rest_ms(m, from, lost, to);
        if (m->cost->kind == TM_COST_PAPER) return rest_ms;
        return rest_ms + nearness_of(m, old->stages, target->stages)->least_ms * rounding;
    }
    double restart = tm_cost_restart_ms(m->cost, m->layouts, to, target->instances > old->instances - lost);
    if (target->pipelines > old->pipelines) return restart;
    double within = within_stages_ms(m, to);
    return within < restart ? within : restart;
}

double tm_migrations_restart_ms(const struct tm_migrations *m, int to)
{
    return tm_cost_restart_ms(m->cost, m->layouts, to, false);
}

double tm_migrations_largest_ms(const struct tm_migrations *m, int stages)
{
    return m->largest_ms[stages];
}

size_t tm_migrations__count(const struct tm_migrations *m)
{
    return m->row_count;
}

size_t tm_migrations_bytes(const struct tm_migrations *m)
{
    return m->row_count * m->layouts->count * sizeof(double) + m->row_slots * sizeof *m->rows;
}

/* ---- life ---- */

static void measure_stages(struct tm_migrations *m)
{
    for (int stages = 1; stages <= m->layouts->stages_max; stages++) {
        for (int s = 0; s < m->layouts->cuts[stages].stages; s++) {
            double ms = transfer_ms(m, tm_layouts_stage_bytes(m->layouts, stages, s));
            m->stage_ms[stages * TM_LAYOUT_STAGES_MAX + s] = ms;
            if (ms > m->largest_ms[stages]) m->largest_ms[stages] = ms;
        }
    }
}

int tm_migrations_create(const struct tm_layouts *layouts, const struct tm_cost *cost, struct tm_migrations **out,
                         struct tm_error *e)
{
    struct tm_migrations *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    m->layouts = layouts;
    m->cost = cost;
    size_t cuts = (size_t)layouts->stages_max + 1;
    m->stage_ms = tm_calloc(cuts * TM_LAYOUT_STAGES_MAX, sizeof *m->stage_ms);
    m->largest_ms = tm_calloc(cuts, sizeof *m->largest_ms);
    m->nearness = tm_calloc(cuts * cuts, sizeof *m->nearness);
    if (m->stage_ms == NULL || m->largest_ms == NULL || m->nearness == NULL || measure_all_nearness(m) != 0) {
        tm_migrations_destroy(m);
        return tm_error_nomem(e);
    }
    measure_stages(m);
    *out = m;
    return 0;
}

void tm_migrations_destroy(struct tm_migrations *m)
{
    if (m == NULL) return;
    for (size_t i = 0; i < m->row_slots; i++)
        tm_free(m->rows[i].ms);
    size_t cuts = (size_t)m->layouts->stages_max + 1;
    for (size_t i = 0; m->nearness != NULL && i < cuts * cuts; i++) {
        tm_free(m->nearness[i].list);
        tm_free(m->nearness[i].ordered);
        tm_free(m->nearness[i].first);
        tm_free(m->nearness[i].whole_ms);
    }
    tm_free(m->nearness);
    tm_free(m->rows);
    tm_free(m->stage_ms);
    tm_free(m->largest_ms);
    tm_free(m);
}

#include "sim/cluster_internal.h"

#include "base/alloc.h"
#include "base/number.h"
#include "base/random.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Exchange with the servers that does not hide behind computing, and how sharply the ceiling bends the sum: fitted to
 * the clusters of the study's two tables, with the ceilings. */
static const double exchange_s = 0.004;
static const double sharpness = 7;
static const double round_trips_per_step = 3;

/* Prices of the study (Google, early 2019): rates in its code, or implied by its bills; on-demand P100 and V100 are
 * list prices of GPU and machine. Start-up: its measurements of requests right after a revocation. Hazards: its shares
 * of VMs revoked within 1, 3, 6, 12 and 24 hours (K80 128, P100 42, V100 66 VMs; 6 hours between its 5 and 7). Within
 * the first hour, K80s of its clusters were lost late: 6 of 256 in runs of half an hour, 12 of 128 in runs of an hour,
 * at 70% and 53% of those on average, as their delays tell. A layout of 1.55 makes that most likely; 1.65,
 * as good as that (1.2 to 1.9 are within half a unit of log-likelihood), suits the tables best. The others' losses are
 * taken to come evenly. */
const struct tm_cluster_gpu_facts tm_cluster__gpus[TM_CLUSTER_GPUS] = {
    {"K80", 0.2556, 0.723, 70.3, {0.0812, 0.0354, 0.0120, 0.0048, 0.0171, 0.0171}, 1.65},
    {"P100", 0.551, 1.84, 67.3, {0.0492, 0, 0.0443, 0.0098, 0.0026, 0.0026}, 1},
    {"V100", 0.861, 2.86, 70.9, {0.3188, 0.0319, 0, 0, 0.0038, 0.0038}, 1},
};
static const double server_usd_h = 0.143; /* a parameter server, always on demand */

/* Speeds: resnet32 from the study's runs on one server; the others from CM-DARE, V100 in the ratio of resnet32.
 * Ceilings: fitted to CM-DARE's clusters of 1 to 8 workers with one and two servers; resnet32 with one to the study's.
 */
const struct tm_cluster_model tm_cluster__models[] = {
    {"resnet15", {9.45, 24.6, 30.0}, {98, 276}, 75.6, 0, 0},
    {"resnet32", {4.5456, 11.8125, 14.430}, {41, 77}, 78.7, 0, 0},
    {"shake-small", {2.55, 6.90, 8.43}, {27.6, 35.4}, 89.1, 0, 0},
    {"shake-big", {0.71, 2.03, 2.48}, {6.1, 6.5}, 90.8, 0, 0},
    {.name = NULL},
};

const char *const tm_cluster_chiefs[] = {"failover", "restart", "fatal", NULL};
const char *const tm_cluster_billings[] = {"to-end", "uptime", NULL};

int tm_cluster_model_find(const char *name, const struct tm_cluster_model **out, struct tm_error *e)
{
    char names[128] = "";
    size_t used = 0;
    for (const struct tm_cluster_model *model = tm_cluster__models; model->name != NULL; model++) {
        if (strcasecmp(model->name, name) == 0) {
            *out = model;
            return 0;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", model->name);
    }
    return tm_error_set(e, TM_EUSAGE, "no measured throughput of \"%.40s\": there is %s; or give --speeds", name,
                        names);
}

/* ---- clusters in words ---- */

struct cursor {
    const char *at;
};

static void skip_blanks(struct cursor *cursor)
{
    while (*cursor->at == ' ')
        cursor->at++;
}

static size_t word_length(const char *at)
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '-' || at[length] == '.')
        length++;
    return length;
}

static bool take_word(struct cursor *cursor, const char *word)
{
    size_t length = word_length(cursor->at);
    if (length != strlen(word) || strncasecmp(cursor->at, word, length) != 0) return false;
    cursor->at += length;
    return true;
}

/* "4x " before a GPU; 1 without it. */
static int take_count(struct cursor *cursor, int64_t *out, struct tm_error *e)
{
    size_t digits = strspn(cursor->at, "0123456789");
    *out = 1;
    if (digits == 0) return 0;
    const char *x = cursor->at + digits;
    while (*x == ' ')
        x++;
    if (*x != 'x' && *x != 'X')
        return tm_error_set(e, TM_EUSAGE, "workers: expected \"4x K80\", got \"%.40s\"", cursor->at);
    if (!tm_number_i64(cursor->at, digits, out) || *out < 1 || *out > TM_CLUSTER_WORKERS_MAX)
        return tm_error_set(e, TM_EUSAGE, "workers: expected 1 to %d of one kind", TM_CLUSTER_WORKERS_MAX);
    cursor->at = x + 1;
    skip_blanks(cursor);
    return 0;
}

/* A GPU that the study did not have: one entry for each of them and region. */
static int find_other(struct tm_cluster *cluster, const char *name, size_t length, struct tm_cluster_worker *worker,
                      struct tm_error *e)
{
    size_t at = 0;
    while (at < cluster->other_count &&
           (strncasecmp(cluster->others[at].name, name, length) != 0 || cluster->others[at].name[length] != '\0' ||
            strcmp(cluster->others[at].region, worker->region) != 0))
        at++;
    if (at == TM_CLUSTER_OTHERS_MAX)
        return tm_error_set(e, TM_EUSAGE, "workers: at most %d kinds beside K80, P100 and V100", TM_CLUSTER_OTHERS_MAX);
    struct tm_cluster_other *other = &cluster->others[at];
    if (at == cluster->other_count) {
        *other = (struct tm_cluster_other){0};
        memcpy(other->name, name, length);
        memcpy(other->region, worker->region, sizeof other->region);
        cluster->other_count++;
    }
    worker->gpu = TM_CLUSTER_GPUS + (int)at;
    return 0;
}

static int take_worker(struct cursor *cursor, struct tm_cluster *cluster, struct tm_cluster_worker *out,
                       struct tm_error *e)
{
    *out = (struct tm_cluster_worker){.gpu = TM_CLUSTER_GPUS, .transient = true};
    for (int g = 0; g < TM_CLUSTER_GPUS; g++) {
        if (!take_word(cursor, tm_cluster__gpus[g].name)) continue;
        out->gpu = g;
        break;
    }
    const char *other = cursor->at;
    size_t other_length = out->gpu == TM_CLUSTER_GPUS ? word_length(cursor->at) : 0;
    if (out->gpu == TM_CLUSTER_GPUS && (other_length == 0 || other_length >= sizeof cluster->others->name))
        return tm_error_set(e, TM_EUSAGE, "workers: expected a GPU such as K80, V100 or T4, got \"%.20s\"", cursor->at);
    cursor->at += other_length;
    if (*cursor->at == ':') {
        cursor->at++;
        bool on_demand = take_word(cursor, "on-demand") || take_word(cursor, "od");
        if (!on_demand && !take_word(cursor, "transient") && !take_word(cursor, "spot"))
            return tm_error_set(e, TM_EUSAGE, "workers: expected :transient or :on-demand, got \":%.20s\"", cursor->at);
        out->transient = !on_demand;
    }
    if (*cursor->at == '@') {
        size_t length = word_length(++cursor->at);
        if (length == 0 || length >= sizeof out->region)
            return tm_error_set(e, TM_EUSAGE, "workers: expected a region after @, such as us-west1");
        memcpy(out->region, cursor->at, length);
        out->region[length] = '\0';
        cursor->at += length;
    }
    skip_blanks(cursor);
    return other_length > 0 ? find_other(cluster, other, other_length, out, e) : 0;
}

int tm_cluster_parse(const char *text, struct tm_cluster *out, struct tm_error *e)
{
    struct cursor cursor = {text};
    size_t count = 0;
    out->other_count = 0;
    skip_blanks(&cursor);
    do {
        int64_t copies;
        struct tm_cluster_worker worker;
        int rc = take_count(&cursor, &copies, e);
        if (rc == 0) rc = take_worker(&cursor, out, &worker, e);
        if (rc != 0) return rc;
        if (count + (size_t)copies > TM_CLUSTER_WORKERS_MAX)
            return tm_error_set(e, TM_EUSAGE, "workers: at most %d", TM_CLUSTER_WORKERS_MAX);
        for (int64_t i = 0; i < copies; i++)
            out->workers[count++] = worker;
        if (*cursor.at != ',') break;
        cursor.at++;
        skip_blanks(&cursor);
    } while (true);
    if (*cursor.at != '\0') return tm_error_set(e, TM_EUSAGE, "workers: expected a comma, got \"%.20s\"", cursor.at);
    out->count = count;
    out->servers = count > 1 ? 1 : 0;
    return 0;
}

static bool is_same(const struct tm_cluster_worker *a, const struct tm_cluster_worker *b)
{
    return a->gpu == b->gpu && a->transient == b->transient && strcmp(a->region, b->region) == 0;
}

void tm_cluster_print(const struct tm_cluster *cluster, struct tm_text *out)
{
    for (size_t i = 0; i < cluster->count;) {
        const struct tm_cluster_worker *worker = &cluster->workers[i];
        size_t same = i;
        while (same < cluster->count && is_same(worker, &cluster->workers[same]))
            same++;
        tm_text_printf(out, "%s%zux %s:%s", i > 0 ? ", " : "", same - i, tm_cluster_gpu_name(cluster, worker->gpu),
                       worker->transient ? "transient" : "on-demand");
        if (worker->region[0] != '\0') tm_text_printf(out, "@%s", worker->region);
        i = same;
    }
}

/* ---- speed ---- */

double tm_cluster_ceiling(const struct tm_cluster_model *model, int servers)
{
    if (servers <= 0 || isinf(model->ceiling[0])) return INFINITY;
    double growth = fmax(1, model->ceiling[1] / model->ceiling[0]);
    return model->ceiling[0] * pow(growth, log2(servers));
}

/* Typical round trips between Google's regions, by the first two parts of their names. */
double tm_cluster__round_trip_s(const char *a, const char *b)
{
    static const char *const places[] = {"us-east", "us-central", "us-west", "europe", "asia"};
    static const double ms[5][5] = {{0, 32, 65, 95, 180},
                                    {32, 0, 36, 105, 150},
                                    {65, 36, 0, 140, 120},
                                    {95, 105, 140, 0, 250},
                                    {180, 150, 120, 250, 0}};
    int at[2] = {-1, -1};
    if (a[0] == '\0' || b[0] == '\0' || strcmp(a, b) == 0) return 0;
    for (int p = 0; p < 5; p++) {
        if (strncmp(a, places[p], strlen(places[p])) == 0) at[0] = p;
        if (strncmp(b, places[p], strlen(places[p])) == 0) at[1] = p;
    }
    if (at[0] < 0 || at[1] < 0) return 0.1;
    return at[0] == at[1] ? 0.01 : ms[at[0]][at[1]] / 1000;
}

static double worker_speed(const struct tm_cluster_model *model, const struct tm_cluster *cluster, size_t i)
{
    const struct tm_cluster_worker *worker = &cluster->workers[i];
    double alone = model->steps_per_s[worker->gpu];
    if (cluster->servers == 0) return alone;
    double trip_s = tm_cluster__round_trip_s(cluster->workers[0].region, worker->region);
    double exchange = model->exchange_s > 0 ? model->exchange_s : exchange_s;
    return 1 / (1 / alone + exchange + round_trips_per_step * trip_s);
}

double tm_cluster_speed(const struct tm_cluster_model *model, const struct tm_cluster *cluster, const bool *present)
{
    double sum = 0;
    for (size_t i = 0; i < cluster->count; i++)
        if (present == NULL || present[i]) sum += worker_speed(model, cluster, i);
    double ceiling = tm_cluster_ceiling(model, cluster->servers);
    if (!(sum > 0) || isinf(ceiling)) return sum;
    double sharp = model->sharpness > 0 ? model->sharpness : sharpness;
    return sum * pow(1 + pow(sum / ceiling, sharp), -1 / sharp);
}

double tm_cluster_sum_of_speeds(const struct tm_cluster_model *model, const struct tm_cluster *cluster)
{
    double sum = 0;
    for (size_t i = 0; i < cluster->count; i++)
        sum += model->steps_per_s[cluster->workers[i].gpu];
    return sum;
}

double tm_cluster__replacement_s(double overhead_s, double remaining_steps, double v0, double v1)
{
    return overhead_s + (remaining_steps - overhead_s * v0) / v1;
}

/* 6.3 MB took 3.1 s and 204 MB 6.6 s in the study: a floor of storage latency and a rate. */
double tm_cluster_checkpoint_s(double megabytes)
{
    return 2.99 + 0.0177 * megabytes;
}

/* ---- one run ---- */

struct slot {
    bool present;
    double up_since_h; /* billed from here */
    double lost_at_h;
    double joins_at_h; /* infinite: not awaited */
};

struct run {
    const struct tm_cluster_job *job;
    const struct tm_cluster *cluster;
    const struct tm_cluster_life *lives; /* of each worker */
    struct tm_random random;
    struct slot slots[TM_CLUSTER_WORKERS_MAX];
    bool present[TM_CLUSTER_WORKERS_MAX];
    size_t chief;
    double now_h;
    double done;
    double uptime_usd; /* of workers, so far */
    int revocations;
};

static double draw_loss_h(struct run *run, size_t i, double now_h)
{
    const struct tm_cluster_worker *worker = &run->cluster->workers[i];
    if (!worker->transient || run->job->revocations >= 0) return INFINITY;
    int hour = run->job->at_hour ? (run->job->hour + (int)fmin(now_h, 1e6)) % TM_HOURS : -1;
    return now_h + tm_cluster__age_at(&run->lives[i], hour, tm_random_exponential(&run->random, 1));
}

/* So many transient workers, chosen at random, are lost before the job would end without losses. */
static void draw_given_losses(struct run *run, double end_h)
{
    size_t left = 0;
    for (size_t i = 0; i < run->cluster->count; i++)
        left += run->cluster->workers[i].transient;
    int wanted = run->job->revocations;
    for (size_t i = 0; i < run->cluster->count && wanted > 0; i++) {
        const struct tm_cluster_worker *worker = &run->cluster->workers[i];
        if (!worker->transient) continue;
        if (tm_random_below(&run->random, left--) >= (uint64_t)wanted) continue;
        const struct tm_cluster_life *life = &run->lives[i];
        double before_end = tm_cluster_lost_by(life, end_h);
        double share = tm_random_unit(&run->random);
        run->slots[i].lost_at_h =
            before_end > 0 ? fmin(end_h, tm_cluster__age_at(life, -1, -log(1 - share * before_end))) : share * end_h;
        wanted--;
    }
}

static void start(struct run *run)
{
    run->now_h = 0;
    run->done = 0;
    run->uptime_usd = 0;
    run->revocations = 0;
    run->chief = 0;
    for (size_t i = 0; i < run->cluster->count; i++) {
        run->slots[i] = (struct slot){.present = true, .joins_at_h = INFINITY};
        run->slots[i].lost_at_h = draw_loss_h(run, i, 0);
        run->present[i] = true;
    }
}

static double rate_usd_h(const struct run *run, size_t i)
{
    const struct tm_cluster_worker *worker = &run->cluster->workers[i];
    const struct tm_cluster_gpu_facts *gpu = tm_cluster__facts(run->cluster, worker->gpu);
    return worker->transient ? gpu->transient_usd_h : gpu->on_demand_usd_h;
}

static void bill(struct run *run, size_t i)
{
    run->uptime_usd += (run->now_h - run->slots[i].up_since_h) * rate_usd_h(run, i);
}

/* All places of the cluster from the start to the end, whoever held them and for how long. */
static double to_end_usd(const struct run *run)
{
    double rates = 0;
    for (size_t i = 0; i < run->cluster->count; i++)
        rates += rate_usd_h(run, i);
    return rates * run->now_h;
}

/* False: the job is lost with it. */
static bool lose(struct run *run, size_t i)
{
    struct slot *slot = &run->slots[i];
    bill(run, i);
    slot->present = run->present[i] = false;
    slot->lost_at_h = INFINITY;
    run->revocations++;
    if (run->job->replace) {
        double up_h = run->now_h + tm_cluster__facts(run->cluster, run->cluster->workers[i].gpu)->startup_s / 3600;
        slot->up_since_h = up_h;
        slot->joins_at_h = up_h + run->job->model->join_s / 3600;
    }
    if (i != run->chief) return true;
    if (run->job->chief == TM_CHIEF_FATAL) return false;
    if (run->job->chief == TM_CHIEF_RESTART)
        run->done = run->job->checkpoint_every > 0
                        ? floor(run->done / run->job->checkpoint_every) * run->job->checkpoint_every
                        : 0;
    for (size_t k = 0; k < run->cluster->count; k++)
        if (run->present[k]) run->chief = k;
    return true;
}

static void join(struct run *run, size_t i)
{
    struct slot *slot = &run->slots[i];
    bool alone = true;
    for (size_t k = 0; k < run->cluster->count; k++)
        alone = alone && !run->present[k];
    slot->present = run->present[i] = true;
    slot->joins_at_h = INFINITY;
    slot->lost_at_h = draw_loss_h(run, i, slot->up_since_h);
    if (slot->lost_at_h < run->now_h) slot->lost_at_h = run->now_h;
    if (alone) run->chief = i;
}

/* Steps an hour, with the stalls of checkpoints. */
static double pace_h(const struct run *run)
{
    double speed = tm_cluster_speed(run->job->model, run->cluster, run->present);
    if (!(speed > 0)) return 0;
    double stall_s = run->job->checkpoint_every > 0
                         ? tm_cluster_checkpoint_s(run->job->checkpoint_mb) / run->job->checkpoint_every
                         : 0;
    return 3600 / (1 / speed + stall_s);
}

/* Runs the job to its end; false: it never ends. */
static bool run_once(struct run *run)
{
    size_t events_max = 1000 * (run->cluster->count + 1); /* a job that loses workers faster than it steps */
    for (size_t event = 0; event < events_max; event++) {
        double pace = pace_h(run);
        double end_h = pace > 0 ? run->now_h + (run->job->steps - run->done) / pace : INFINITY;
        double next_h = INFINITY;
        size_t who = 0;
        for (size_t i = 0; i < run->cluster->count; i++) {
            double at_h = fmin(run->slots[i].lost_at_h, run->slots[i].joins_at_h);
            if (at_h >= next_h) continue;
            next_h = at_h;
            who = i;
        }
        if (isinf(end_h) && isinf(next_h)) return false;
        double to_h = fmin(end_h, next_h);
        run->done += pace * (to_h - run->now_h);
        run->now_h = to_h;
        if (end_h <= next_h) {
            for (size_t i = 0; i < run->cluster->count; i++)
                if (run->slots[i].present) bill(run, i);
            return true;
        }
        if (run->slots[who].present && !lose(run, who)) return false;
        if (!isinf(run->slots[who].joins_at_h) && run->slots[who].joins_at_h <= run->now_h) join(run, who);
    }
    return false;
}

/* ---- many runs ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct tm_spread spread_of(double *values, size_t count)
{
    struct tm_spread spread = {NAN, NAN, NAN, NAN, NAN};
    if (count == 0) return spread;
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    spread.mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - spread.mean) * (values[i] - spread.mean);
    spread.sd = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;
    qsort(values, count, sizeof *values, by_value);
    spread.p10 = values[(count - 1) / 10];
    spread.p50 = values[(count - 1) / 2];
    spread.p90 = values[(count - 1) * 9 / 10];
    return spread;
}

static int check(const struct tm_cluster_job *job, const struct tm_cluster *cluster, struct tm_error *e)
{
    int transient = 0;
    for (size_t i = 0; i < cluster->count; i++) {
        transient += cluster->workers[i].transient;
        if (!(job->model->steps_per_s[cluster->workers[i].gpu] > 0))
            return tm_error_set(e, TM_EUSAGE,
                                "the throughput of one worker with a %s is not known: give --speeds %s=STEPS_A_SECOND",
                                tm_cluster_gpu_name(cluster, cluster->workers[i].gpu),
                                tm_cluster_gpu_name(cluster, cluster->workers[i].gpu));
    }
    if (cluster->count == 0) return tm_error_set(e, TM_EUSAGE, "a cluster needs at least one worker");
    if (cluster->count > 1 && cluster->servers < 1)
        return tm_error_set(e, TM_EUSAGE, "several workers need a parameter server: --servers 1");
    if (job->revocations > transient)
        return tm_error_set(e, TM_EUSAGE, "%d preemptions of %d transient workers", job->revocations, transient);
    if (!(job->steps > 0)) return tm_error_set(e, TM_EUSAGE, "a job needs steps");
    return 0;
}

/* `values` has a column of `runs` for each of time, bill, and bill for uptime. */
static void summarise(double *values, size_t finished, int runs, struct tm_cluster_outcome *out)
{
    out->time_h = spread_of(values, finished);
    out->cost_usd = spread_of(values + runs, finished);
    out->uptime_usd = spread_of(values + 2 * (ptrdiff_t)runs, finished);
    out->lost = 1 - (double)finished / runs;
    out->revocations /= runs;
    for (int k = 0; k < 3; k++)
        out->with_count[k] /= runs;
}

int tm_cluster_run(const struct tm_cluster_job *job, const struct tm_cluster *cluster, struct tm_cluster_outcome *out,
                   struct tm_error *e)
{
    int rc = check(job, cluster, e);
    if (rc != 0) return rc;
    int runs = job->runs < 1 ? 1 : job->runs > TM_CLUSTER_RUNS_MAX ? TM_CLUSTER_RUNS_MAX : job->runs;
    struct run *run = tm_calloc(1, sizeof *run);
    double *values = tm_alloc(3 * (size_t)runs * sizeof *values);
    struct tm_cluster_life *lives = tm_alloc(cluster->count * sizeof *lives);
    if (run == NULL || values == NULL || lives == NULL) {
        tm_free(run);
        tm_free(values);
        tm_free(lives);
        return tm_error_nomem(e);
    }
    for (size_t i = 0; i < cluster->count; i++)
        tm_cluster_life_of(cluster, i, &lives[i]);
    *out = (struct tm_cluster_outcome){.steps_per_s = tm_cluster_speed(job->model, cluster, NULL)};
    size_t finished = 0;
    double undisturbed_h = job->steps / out->steps_per_s / 3600;
    for (int r = 0; r < runs; r++) {
        *run = (struct run){
            .job = job, .cluster = cluster, .lives = lives, .random = tm_random_make(job->seed, (uint64_t)r)};
        start(run);
        if (job->revocations > 0) draw_given_losses(run, undisturbed_h);
        bool ended = run_once(run);
        out->revocations += run->revocations;
        out->with_count[run->revocations < 2 ? run->revocations : 2]++;
        if (!ended) continue;
        values[finished] = run->now_h;
        double servers_usd = run->now_h * cluster->servers * server_usd_h;
        double uptime_usd = run->uptime_usd + servers_usd;
        values[(size_t)runs + finished] =
            job->lost_billed == TM_LOST_UPTIME ? uptime_usd : to_end_usd(run) + servers_usd;
        values[2 * (size_t)runs + finished] = uptime_usd;
        finished++;
    }
    summarise(values, finished, runs, out);
    tm_free(run);
    tm_free(values);
    tm_free(lives);
    return 0;
}

static bool pays(const struct tm_cluster_outcome *now, const struct tm_cluster_outcome *then)
{
    return then->time_h.mean < 0.99 * now->time_h.mean && then->cost_usd.mean <= now->cost_usd.mean &&
           then->lost <= now->lost + 0.01;
}

int tm_cluster_advise(const struct tm_cluster_job *job, const struct tm_cluster *cluster,
                      const struct tm_cluster_outcome *now, struct tm_cluster_advice *out, struct tm_error *e)
{
    struct tm_cluster *more = tm_alloc(sizeof *more);
    if (more == NULL) return tm_error_nomem(e);
    *out = (struct tm_cluster_advice){0};
    *more = *cluster;
    int rc = 0;
    if (more->count < TM_CLUSTER_WORKERS_MAX) {
        more->workers[more->count++] = cluster->workers[cluster->count - 1];
        if (more->servers == 0) more->servers = 1;
        rc = tm_cluster_run(job, more, &out->worker, e);
        out->worker_pays = rc == 0 && pays(now, &out->worker);
    }
    *more = *cluster;
    if (rc == 0 && cluster->servers > 0 && more->servers < TM_CLUSTER_SERVERS_MAX) {
        more->servers++;
        rc = tm_cluster_run(job, more, &out->server, e);
        out->server_pays = rc == 0 && pays(now, &out->server);
    }
    tm_free(more);
    return rc;
}

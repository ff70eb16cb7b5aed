/* The cloud of the simulated cluster: it reports as the real driver does (run/cloud_link.h), over the same network, and
 * does what it is told when it can. */
#include "sim.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

enum { REPORT_MS = 250, INSTANCES_KEPT = 8 /* for when faults stop */, RENT_BOUND_MS = 90000 };

double cloud_bill_microusd(const struct sim *sim, const struct node *node)
{
    int64_t end_ms = node->end_ms != 0 ? node->end_ms : sim_utc(sim);
    return (double)(end_ms - node->start_ms) * (double)node->price_microusd_h / 3.6e6;
}

static void describe(const struct sim *sim, const struct node *node, Tmw__Instance *out)
{
    tmw__instance__init(out);
    out->id = tm_instance_of_worker(node->id, sim->workers);
    out->start_ms = node->start_ms;
    out->end_ms = node->end_ms;
    out->price_microusd_h = node->price_microusd_h;
    out->spot = node->spot;
    out->pool = sim->pool_count > 0 ? node->pool : !node->spot;
    out->released = node->released;
    out->announced = node->announced;
    if (node->announced && node->up && node->notice_end_ms > sim->now_ms)
        out->notice_left_ms = node->notice_end_ms - sim->now_ms;
    out->zone = 1 + (sim->pool_count > 0 ? node->pool : (uint32_t)(out->id % 3));
    out->bill_microusd = (uint64_t)cloud_bill_microusd(sim, node);
}

static void report(struct sim *sim, struct tm_outbox *out)
{
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    Tmw__Instance instances[INSTANCES_MAX];
    Tmw__Instance *list[INSTANCES_MAX];
    Tmw__PoolReport pools[POOLS_MAX];
    Tmw__PoolReport *pool_list[POOLS_MAX];
    double bill[2] = {0, 0};
    for (size_t i = 1; i < sim->node_count; i += sim->workers) {
        const struct node *node = &sim->instances[i];
        describe(sim, node, &instances[i]);
        if (!node->forgotten) list[body.n_instances++] = &instances[i];
        bill[0] += cloud_bill_microusd(sim, node);
        if (!node->spot) bill[1] += cloud_bill_microusd(sim, node);
    }
    body.instances = list;
    body.now_ms = sim_utc(sim);
    body.utc_ms = sim_utc(sim);
    body.speed = 1;
    body.spot_offered = -1;
    body.spot_microusd_h = 1000000;
    body.on_demand_microusd_h = 3000000;
    body.bill_microusd = (uint64_t)bill[0];
    body.on_demand_bill_microusd = (uint64_t)bill[1];
    body.pools = pool_list;
    body.n_pools = pools_report(sim, pools, pool_list);
    tm_cloud_link_report(&sim->cloud, sim->now_ms, &body, out);
}

static void cloud_tick(struct sim *sim, struct event *event)
{
    if (event->a != sim->cloud.self.incarnation) return;
    sim_schedule(sim, sim->now_ms + REPORT_MS, cloud_tick, event->a, 0, 0, 0, NULL, 0);
    if (sim->cloud_paused_ms > sim->now_ms) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    if (tm_cloud_link_due(&sim->cloud, sim->now_ms, &out)) report(sim, &out);
    sim_memory_back(sim);
    sim_cloud_actions(sim, &out);
    tm_outbox_deinit(&out);
}

/* ---- carrying out orders ---- */

static size_t here(const struct sim *sim, bool spot)
{
    size_t count = 0;
    for (size_t i = 1; i < sim->node_count; i += sim->workers)
        count += sim->instances[i].up && sim->instances[i].spot == spot;
    return count;
}

static void give_back(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (!node->up) return;
    node->released = true;
    sim_trace(sim, "instance %llu is given back", (unsigned long long)node->id);
    sim_instance_gone(sim, node);
}

static void grant(struct sim *sim, struct event *event)
{
    bool spot = event->a != 0;
    sim->granting[spot]--;
    const struct tm_cloud_order *order = &sim->cloud.order;
    size_t want = spot ? order->want_spot : order->want_on_demand;
    if (!order->given || order->stop || here(sim, spot) >= want) return; /* not wanted any more */
    struct node *node = sim_add_instance(sim);
    if (node == NULL) return;
    node->spot = spot;
    node->anchor = !spot;
    sim_alike(sim, node);
}

/* Some come at once, some late, and spot ones only while there are some. */
static void rent(struct sim *sim, bool spot, size_t want)
{
    while (here(sim, spot) + sim->granting[spot] < want) {
        if (spot && here(sim, spot) + sim->granting[spot] >= sim->supply) return;
        size_t coming = sim->granting[0] + sim->granting[1] + INSTANCES_KEPT;
        if (sim->node_count + coming * sim->workers >= INSTANCES_MAX) return;
        int64_t delay_ms = 300 + (int64_t)sim_below(sim, 2000);
        if (!sim->faults.over && sim_unit(sim) < 0.2) delay_ms += (int64_t)sim_below(sim, 30000);
        sim->granting[spot]++;
        sim_schedule(sim, sim->now_ms + delay_ms, grant, spot, 0, 0, 0, NULL, 0);
    }
}

static void carry_out(struct sim *sim)
{
    const struct tm_cloud_order *order = &sim->cloud.order;
    if (!order->given) return;
    if (order->stop) {
        for (size_t i = 1; !sim->stop_machines_stay && i < sim->node_count; i += sim->workers) {
            struct event now = {.a = i};
            give_back(sim, &now);
        }
        return;
    }
    if (sim->cloud_passive) return;
    for (size_t i = 0; i < order->release_count; i++) {
        uint64_t first = tm_worker_of_instance(order->release[i], 0, sim->workers);
        if (first >= sim->node_count || sim->instances[first].giving_back) continue;
        for (uint64_t n = first; n < sim_next(sim, first); n++)
            sim->instances[n].giving_back = true;
        check_release(sim, first);
        sim_schedule(sim, sim->now_ms + (int64_t)sim_below(sim, 2000), give_back, first, 0, 0, 0, NULL, 0);
    }
    if (sim->pool_count > 0) {
        pools_rent(sim);
    } else {
        rent(sim, true, order->want_spot);
        rent(sim, false, order->want_on_demand);
    }
}

void cloud_receive(struct sim *sim, const tm_message *message, struct tm_outbox *out)
{
    if (sim->cloud_paused_ms > sim->now_ms) return;
    if (tm_cloud_link_receive(&sim->cloud, sim->now_ms, message, out)) carry_out(sim);
}

static bool off(const struct sim *sim, const struct tm_coordinator_view *view)
{
    if (sim->pool_count > 0) return pools_off(sim, view);
    return here(sim, true) != view->want_spot || here(sim, false) != view->want_on_demand;
}

static void fail_rent(struct sim *sim, const struct tm_coordinator_view *view)
{
    if (sim->pool_count > 0)
        pools_fail_rent(sim, view);
    else
        sim_fail(sim, "rent: %zu spot and %zu on-demand instances are here for long, %u and %u are wanted",
                 here(sim, true), here(sim, false), view->want_spot, view->want_on_demand);
}

/* Once faults are over, there is what is wanted within a bound. */
void cloud_check(struct sim *sim)
{
    const struct tm_cloud_order *order = &sim->cloud.order;
    bool asked = sim->faults.over && !sim->cloud_passive && order->given && !order->stop && !sim->finished &&
                 !sim->stopped && sim->coordinator != NULL && !sim->coordinator_options.resume;
    struct tm_coordinator_view view = {.want_spot = 0};
    if (sim->coordinator != NULL) view = tm_coordinator_look(sim->coordinator);
    pools_check(sim, &view);
    bool full = sim->node_count + INSTANCES_KEPT * (size_t)sim->workers >= INSTANCES_MAX;
    if (!asked || view.state != TM_JOB_TRAINING || full || !off(sim, &view)) sim->rent_off_ms = sim->now_ms;
    if (sim->now_ms - sim->rent_off_ms > RENT_BOUND_MS) fail_rent(sim, &view);
}

/* Its program died, and is another one now: of what had ended it knows the bill alone. */
void cloud_start(struct sim *sim)
{
    for (size_t i = 1; i < sim->node_count; i++)
        sim->instances[i].forgotten = sim->instances[i].end_ms != 0;
    struct tm_cloud_link_options options = {
        .job = 42, .incarnation = tm_random_u64(&sim->random) | 1, .token = sim_token, .report_ms = REPORT_MS};
    tm_cloud_link_init(&sim->cloud, &options);
    sim_schedule(sim, sim->now_ms, cloud_tick, options.incarnation, 0, 0, 0, NULL, 0);
}

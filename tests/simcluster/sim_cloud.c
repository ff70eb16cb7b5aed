/* The cloud of the simulated cluster: it reports as the real driver does (run/cloud_link.h), over the same network, and
 * does what it is told when it can. */
#include "sim.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

enum { REPORT_MS = 250 };

double cloud_bill_microusd(const struct sim *sim, const struct node *node)
{
    int64_t end_ms = node->end_ms != 0 ? node->end_ms : sim_utc(sim);
    return (double)(end_ms - node->start_ms) * (double)node->price_microusd_h / 3.6e6;
}

static void describe(const struct sim *sim, const struct node *node, Tmw__Instance *out)
{
    tmw__instance__init(out);
    out->id = node->id;
    out->start_ms = node->start_ms;
    out->end_ms = node->end_ms;
    out->price_microusd_h = node->price_microusd_h;
    out->spot = node->spot;
    out->released = node->released;
    out->bill_microusd = (uint64_t)cloud_bill_microusd(sim, node);
}

static void report(struct sim *sim, struct tm_outbox *out)
{
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    Tmw__Instance instances[NODES_MAX];
    Tmw__Instance *list[NODES_MAX];
    double bill[2] = {0, 0};
    for (size_t i = 1; i < sim->node_count; i++) {
        const struct node *node = &sim->nodes[i];
        describe(sim, node, &instances[i]);
        list[body.n_instances++] = &instances[i];
        bill[0] += cloud_bill_microusd(sim, node);
        if (!node->spot) bill[1] += cloud_bill_microusd(sim, node);
    }
    body.instances = list;
    body.now_ms = sim_utc(sim);
    body.utc_ms = sim_utc(sim);
    body.speed = 1;
    body.spot_offered = -1;
    body.bill_microusd = (uint64_t)bill[0];
    body.on_demand_bill_microusd = (uint64_t)bill[1];
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

static void give_back(struct sim *sim, struct node *node)
{
    if (!node->up) return;
    node->released = true;
    sim_instance_gone(sim, node);
}

void cloud_receive(struct sim *sim, const tm_message *message, struct tm_outbox *out)
{
    if (sim->cloud_paused_ms > sim->now_ms) return;
    if (!tm_cloud_link_receive(&sim->cloud, sim->now_ms, message, out)) return;
    for (size_t i = 1; sim->cloud.order.stop && !sim->stop_machines_stay && i < sim->node_count; i++)
        give_back(sim, &sim->nodes[i]);
}

void cloud_start(struct sim *sim)
{
    struct tm_cloud_link_options options = {
        .job = 42, .incarnation = tm_random_u64(&sim->random) | 1, .token = sim_token, .report_ms = REPORT_MS};
    tm_cloud_link_init(&sim->cloud, &options);
    sim_schedule(sim, sim->now_ms, cloud_tick, options.incarnation, 0, 0, 0, NULL, 0);
}

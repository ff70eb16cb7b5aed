#include "workload/memory.h"
#include "workload/predict.h"

#include "workload/test/workload_helpers.h"

static struct tm_compute_model compute;
static struct tm_comm_model comm;

static struct tm_fleet_group group_of(const char *instance, struct tm_gpu_figures gpu, int instances, int gpus_per_node,
                                      double bit_s)
{
    return (struct tm_fleet_group){.instance = instance,
                                   .gpu = gpu,
                                   .instances = instances,
                                   .gpus_per_node = gpus_per_node,
                                   .network_bit_s = bit_s};
}

/* A request for the best layout; the caller may say more. */
static struct tm_predict_request request_of(const struct tm_model *model, const struct tm_fleet_group *groups,
                                            size_t group_count, int batch)
{
    compute = tm_compute_prior();
    comm = tm_comm_gpus();
    return (struct tm_predict_request){.model = model,
                                       .groups = groups,
                                       .group_count = group_count,
                                       .precision = TM_FP16,
                                       .batch = batch,
                                       .compute = &compute,
                                       .comm = &comm};
}

static struct tm_prediction predict(const struct tm_predict_request *request)
{
    struct tm_prediction out;
    struct tm_error e = {0};
    int rc = tm_predict(request, &out, &e);
    assert_row(rc == 0, "%s, %dx%d: %s", request->model->name, request->pipelines, request->stages, e.text);
    return out;
}

/* What waiting for the slowest of the workers adds; it is a part of compute_s. */
static double wait_of(const struct tm_prediction *p)
{
    double share = 0.02 * sqrt(2 * log((double)p->pipelines * p->stages));
    return p->step_s.mean * share / (1 + share);
}

static double sum_of_parts(const struct tm_prediction *p)
{
    return p->compute_s + p->exposed_comm_s + p->bubble_s + p->optimizer_s;
}

/* ---- times ---- */

static void check_parts(const char *row, const struct tm_predict_request *request, const struct tm_prediction *p)
{
    assert_row(close_to(sum_of_parts(p), p->step_s.mean, 1e-9), "%s: parts of %g s, mean %g s", row, sum_of_parts(p),
               p->step_s.mean);
    assert_row(p->step_s.p10 < p->step_s.mean && p->step_s.mean < p->step_s.p90, "%s", row);
    assert_row(close_to(p->samples_per_s, request->batch / p->step_s.mean, 1e-9), "%s", row);
    assert_row(p->compute_s > 0 && p->exposed_comm_s >= 0 && p->bubble_s >= 0 && p->optimizer_s > 0, "%s", row);
    assert_row((p->bubble_s > 0) == (p->stages > 1), "%s: bubble of %g s", row, p->bubble_s);
    /* The bubble has a turn of each other stage: none is longer than the longest. */
    double turns_s = p->compute_s - wait_of(p) + p->exposed_comm_s;
    assert_row(p->bubble_s * p->micro_batches <= turns_s * (p->stages - 1) * (1 + 1e-9), "%s: bubble of %g s", row,
               p->bubble_s);
    assert_row(p->fits && strcmp(p->limit, "memory") != 0, "%s", row);
    for (int s = 0; s < p->stages; s++)
        assert_row(p->memory_gib[s] > 0 && p->memory_gib[s] <= p->memory_limit_gib, "%s: stage %d", row, s);
}

static void test_parts_add_up(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int instances, gpus_per_node, batch, micro_batch, pipelines, stages, micro_batches;
    } rows[] = {
        {"resnet50", 1, 1, 64, 16, 1, 1, 4},  {"resnet50", 8, 1, 512, 64, 8, 1, 1}, {"gpt2-124m", 4, 1, 32, 2, 2, 2, 8},
        {"gpt2-355m", 2, 4, 64, 1, 2, 4, 32}, {"vgg19", 1, 8, 256, 8, 8, 1, 4},     {"gpt2-124m", 7, 1, 30, 4, 3, 2, 3},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        model_from(rows[i].model, &model);
        struct tm_fleet_group group = group_of("v", v100(), rows[i].instances, rows[i].gpus_per_node, 1e10);
        struct tm_predict_request request = request_of(&model, &group, 1, rows[i].batch);
        request.micro_batch = rows[i].micro_batch;
        request.pipelines = rows[i].pipelines;
        request.stages = rows[i].stages;
        struct tm_prediction p = predict(&request);
        check_parts(rows[i].model, &request, &p);
        assert_row(p.pipelines == rows[i].pipelines && p.stages == rows[i].stages, "%s: %dx%d", rows[i].model,
                   p.pipelines, p.stages);
        assert_row(p.micro_batch == rows[i].micro_batch && p.micro_batches == rows[i].micro_batches,
                   "%s: %d micro-batches of %d", rows[i].model, p.micro_batches, p.micro_batch);
        tm_model_deinit(&model);
    }
}

/* Stages wait for their links: four transfers of a micro-batch in the middle of a pipeline, two at its ends. */
static void test_links_between_stages(void **state)
{
    (void)state;
    struct tm_model model;
    model_from("gpt:layers=16,hidden=1024", &model);
    struct tm_fleet_group group = group_of("v", v100(), 4, 1, 1e9);
    struct tm_predict_request request = request_of(&model, &group, 1, 64);
    request.micro_batch = 1;
    request.pipelines = 1;
    for (int stages = 2; stages <= 4; stages++) {
        group.network_bit_s = 1e9;
        request.stages = stages;
        struct tm_prediction slow = predict(&request);
        group.network_bit_s = 1e15;
        struct tm_prediction fast = predict(&request);
        double transfers = stages == 2 ? 2 : 4;
        double each_s = 1024 * 1024 * 2 * 8 / 1e9 / 0.88; /* a sample's activations in 16 bits at 88% of the rate */
        double wait_s = slow.step_s.mean - fast.step_s.mean;
        double want_s = transfers * each_s * slow.micro_batches;
        assert_row(wait_s > 0.97 * want_s && wait_s < 1.15 * want_s, "%d stages wait %g s, want %g", stages, wait_s,
                   want_s);
    }
    tm_model_deinit(&model);
}

/* A link gives its burst for a while, and its baseline on average. */
static void test_bursts(void **state)
{
    (void)state;
    struct tm_model model;
    model_from("vgg19", &model);
    struct tm_fleet_group group = group_of("v", v100(), 8, 1, 2.5e9);
    struct tm_predict_request request = request_of(&model, &group, 1, 256);
    request.micro_batch = 32;
    request.pipelines = 8;
    request.stages = 1;
    struct tm_prediction slow = predict(&request);
    group.burst_bit_s = 1e10;
    struct tm_prediction sustained = predict(&request);
    request.burst = true;
    struct tm_prediction burst = predict(&request);
    double drain_s = 143667240.0 * 4 * 2 * 7 / 8 * 8 / 2.5e9; /* under autocast gradients have 4 bytes */
    assert_true(burst.step_s.mean < sustained.step_s.mean && sustained.step_s.mean <= slow.step_s.mean);
    assert_true(close_to(sustained.step_s.mean, drain_s, 1e-6) && close_to(burst.sustained_s, drain_s, 1e-6));
    assert_true(close_to(sum_of_parts(&sustained), sustained.step_s.mean, 1e-9));
    model.narrow_gradients = true;
    struct tm_prediction narrow = predict(&request);
    assert_true(close_to(narrow.sustained_s, drain_s / 2, 1e-6) && narrow.step_s.mean < burst.step_s.mean);
    model.narrow_gradients = false;
    request.pipelines = request.stages = 0; /* a layout for the time after the burst: fewer exchange less */
    struct tm_prediction chosen = predict(&request);
    assert_true(chosen.sustained_s < 0.7 * burst.sustained_s && chosen.pipelines < 8);
    request.pipelines = 8;
    request.stages = 1;
    request.batch = 8 * 32 * 64; /* much to compute between two exchanges: the average is low */
    request.burst = false;
    sustained = predict(&request);
    assert_true(close_to(sustained.sustained_s, sustained.step_s.mean, 1e-12) && sustained.step_s.mean > 2 * drain_s);
    tm_model_deinit(&model);
}

/* ---- other ways to train in parallel ---- */

/* Weights, gradients and moments have 16 bytes a parameter, of which ZeRO shares out 8, 12 and all. */
static void test_memory_of_sharded_state(void **state)
{
    (void)state;
    static const double bytes[] = {16, 8 + 8.0 / 8, 4 + 12.0 / 8, 16.0 / 8};
    struct tm_model model;
    model_from("gpt:layers=24,hidden=2048", &model);
    struct tm_footprint footprint = tm_footprint_of(&model, 0, model.layer_count);
    for (int zero = 0; zero <= 3; zero++) {
        struct tm_memory_use use = {
            .precision = TM_FP32, .optimizer_states = 2, .in_flight = 1, .micro_batches = 1, .zero = zero, .shards = 8};
        double want = bytes[zero] * footprint.params / (1 << 30);
        double gib =
            tm_memory_gib(&footprint, &use); /* no samples: the state alone, and a layer or two that are whole */
        assert_row(gib >= want && gib < want + 2.6, "ZeRO %d: %g GiB, want %g", zero, gib, want);
        use.tensor = 4;
        assert_row(tm_memory_gib(&footprint, &use) < gib / 3.5, "ZeRO %d: four hold it together", zero);
    }
    tm_model_deinit(&model);
}

/* What does not fit as it is does so where replicas share out their state, or GPUs compute together; a way of the
 * user's own engine is taken only where it is faster or needed, and never without being asked for. */
static void test_ways(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int instances, gpus_per_node, batch, micro_batch;
        unsigned ways;
        bool fits, special;
    } rows[] = {
        {"gpt:layers=1,hidden=8192,vocab=1024", 1, 8, 8, 1, 0, true, false},
        {"gpt:layers=1,hidden=16384,heads=128,vocab=1024", 1, 8, 8, 1, 0, false, false},
        {"gpt:layers=1,hidden=16384,heads=128,vocab=1024", 1, 8, 8, 1, TM_WAY_SHARDED | TM_WAY_TENSOR, true, true},
        {"gpt:layers=1,hidden=16384,heads=128,vocab=1024", 1, 8, 8, 1, TM_WAY_TENSOR, true, true},
        {"resnet50", 8, 1, 512, 64, TM_WAY_SHARDED | TM_WAY_TENSOR, true, false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        struct tm_prediction p;
        model_from(rows[i].model, &model);
        struct tm_fleet_group group = group_of("v", v100(), rows[i].instances, rows[i].gpus_per_node, 1e10);
        struct tm_predict_request request = request_of(&model, &group, 1, rows[i].batch);
        request.micro_batch = rows[i].micro_batch;
        request.ways = rows[i].ways;
        int rc = tm_predict(&request, &p, NULL);
        assert_row((rc == 0) == rows[i].fits, "row %zu: %d", i, rc);
        assert_row((p.zero > 0 || p.tensor > 1) == rows[i].special, "row %zu: ZeRO %d, tensor %d", i, p.zero, p.tensor);
        if (rc == 0) assert_row(close_to(sum_of_parts(&p), p.step_s.mean, 1e-9), "row %zu", i);
        tm_model_deinit(&model);
    }
}

/* On one GPU with one micro-batch the step is that of the compute model; the optimizer is a part of it. */
/* An instance more, behind slow links, is left out where it would make a step slower, and that is said. (A way that
 * needs no engine of the user's own is taken though another is up to 10% faster.) */
static void test_more_instances_are_never_slower(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2-1.5b", "gpt2-124m", "vgg19", "llama:layers=16,hidden=2048,ctx=1024"};
    static const double rates_bit_s[] = {1e9, 1e10, 1e11};
    for (size_t i = 0; i < TM_COUNT(models) * TM_COUNT(rates_bit_s); i++) {
        struct tm_model model;
        model_from(models[i / TM_COUNT(rates_bit_s)], &model);
        double best = 0;
        bool idle = false;
        for (int instances = 1; instances <= 5; instances++) {
            double rate_bit_s = rates_bit_s[i % TM_COUNT(rates_bit_s)];
            struct tm_fleet_group group = group_of("v", v100(), instances, 4, rate_bit_s);
            struct tm_predict_request request = request_of(&model, &group, 1, 64);
            request.ways = TM_WAY_SHARDED | TM_WAY_TENSOR;
            struct tm_prediction p = predict(&request);
            int used = p.pipelines * p.stages * (p.tensor > 1 ? p.tensor : 1);
            assert_row(p.idle_gpus == 4 * instances - used && p.idle_gpus >= 0, "%s: %d idle", model.name, p.idle_gpus);
            assert_row(p.samples_per_s >= best / 1.1, "%s, %d at %g: %g samples/s, %g with fewer", model.name,
                       instances, rate_bit_s, p.samples_per_s, best);
            best = fmax(best, p.samples_per_s);
            idle = idle || p.idle_gpus > 0;
        }
        assert_row(idle || rates_bit_s[i % TM_COUNT(rates_bit_s)] > 1e9, "%s: all at work", model.name);
        tm_model_deinit(&model);
    }
}

/* Weights that are shared out inside an instance need not be gathered over slow links; of two types the smaller GPU has
 * to hold its share, and the slower one sets the pace. */
static void test_groups_that_share_out(void **state)
{
    (void)state;
    struct tm_model model;
    model_from("gpt:layers=1,hidden=12288,heads=96,vocab=1024", &model);
    struct tm_fleet_group groups[2] = {group_of("v", v100(), 2, 8, 2e10), group_of("w", v100(), 1, 8, 2e10)};
    struct tm_predict_request request = request_of(&model, groups, 1, 2048);
    request.ways = TM_WAY_SHARDED;
    struct tm_prediction hybrid = predict(&request);
    assert_row(hybrid.zero == 3 && hybrid.pipelines == 16 && hybrid.shards == 8, "zero %d, %dx%d, shards %d",
               hybrid.zero, hybrid.pipelines, hybrid.stages, hybrid.shards);
    groups[0].network_bit_s = 1e13;
    struct tm_prediction all = predict(&request);
    assert_true(all.zero > 0 && all.samples_per_s > hybrid.samples_per_s);
    groups[0].network_bit_s = 2e10;
    groups[1].gpu.memory_gib = 4;
    request.group_count = 2;
    assert_int_equal(tm_predict(&request, &all, NULL), -(int)TM_ENONE);
    groups[1].gpu.memory_gib = 16;
    struct tm_prediction mixed = predict(&request);
    assert_true(mixed.zero > 0 && mixed.pipelines == 24 && mixed.fits);
    groups[1].network_bit_s = 1e9;
    struct tm_prediction slow = predict(&request);
    assert_true(slow.samples_per_s < mixed.samples_per_s);
    tm_model_deinit(&model);
}

static void test_one_gpu_is_the_compute_model(void **state)
{
    (void)state;
    static const char *const names[] = {"resnet50", "vgg19", "gpt2-124m", "gpt2-355m", "mobilenet_v2", "vit_b_16"};
    for (size_t i = 0; i < TM_COUNT(names); i++) {
        struct tm_model model;
        struct tm_compute__curve curve;
        model_from(names[i], &model);
        struct tm_fleet_group group = group_of("h", h200(), 1, 1, 1e10);
        struct tm_predict_request request = request_of(&model, &group, 1, 8);
        request.micro_batch = 8;
        request.pipelines = 1;
        request.stages = 1;
        struct tm_prediction p = predict(&request);
        struct tm_network network = tm_network_of(model.layers, model.layer_count);
        assert_int_equal(tm_compute__curve(&compute, &network, &group.gpu, TM_FP16, &curve, NULL), 0);
        struct tm_estimate step = tm_compute__step_ms(&curve, 8);
        assert_row(close_to(p.step_s.mean * 1e3, step.mean, 1e-9), "%s: %g ms, want %g", names[i], p.step_s.mean * 1e3,
                   step.mean);
        assert_row(close_to(p.step_s.p90 * 1e3, step.p90, 1e-6) && close_to(p.step_s.p10 * 1e3, step.p10, 1e-6), "%s",
                   names[i]);
        assert_row(p.exposed_comm_s == 0 && p.bubble_s == 0 && p.optimizer_s < p.compute_s, "%s", names[i]);
        tm_model_deinit(&model);
    }
}

/* The user's own measurements of the model move the prediction to them. */
static void test_measured_steps(void **state)
{
    (void)state;
    static const double factors[] = {0.7, 1.0, 1.4};
    struct tm_model model;
    model_from("resnet50", &model);
    struct tm_fleet_group group = group_of("h", h200(), 1, 1, 1e10);
    struct tm_predict_request request = request_of(&model, &group, 1, 256);
    request.micro_batch = 256;
    struct tm_prediction before = predict(&request);
    for (size_t i = 0; i < TM_COUNT(factors); i++) {
        int batches[] = {128, 512};
        double ms[2];
        for (size_t k = 0; k < 2; k++) {
            request.measured_count = 0;
            request.batch = batches[k];
            request.micro_batch = batches[k];
            ms[k] = predict(&request).step_s.mean * 1e3 * factors[i];
        }
        request.batch = 256;
        request.micro_batch = 256;
        request.measured_batches = batches;
        request.measured_ms = ms;
        request.measured_count = 2;
        struct tm_prediction after = predict(&request);
        double moved = after.step_s.mean / before.step_s.mean;
        assert_row(close_to(moved, factors[i], 0.05), "factor %g: moved by %g", factors[i], moved);
        assert_row(after.step_s.p90 / after.step_s.mean < before.step_s.p90 / before.step_s.mean, "%g", factors[i]);
        ms[0] = -1;
        assert_int_equal(tm_predict(&request, &after, NULL), -(int)TM_EINPUT);
    }
    tm_model_deinit(&model);
}

/* ---- choosing ---- */

/* Every layout of the fleet, with every power of two as micro-batch, is at most as fast as the one that was chosen. */
static void check_best(const char *row, struct tm_predict_request *request, int gpus, double slack)
{
    struct tm_prediction best = predict(request);
    check_parts(row, request, &best);
    for (int stages = 1; stages <= gpus && stages <= (int)request->model->layer_count; stages++) {
        for (int pipelines = 1; pipelines * stages <= gpus; pipelines++) {
            for (int micro = 1; micro <= request->batch; micro *= 2) {
                struct tm_predict_request one = *request;
                struct tm_prediction p;
                one.stages = stages;
                one.pipelines = pipelines;
                one.micro_batch = micro;
                int rc = tm_predict(&one, &p, NULL);
                assert_row(rc == 0 || rc == -(int)TM_ENONE || rc == -(int)TM_EINPUT, "%s", row);
                assert_row(rc != 0 || p.samples_per_s <= best.samples_per_s * (1 + slack),
                           "%s: %dx%d with micro-batches of %d gives %g samples/s, chosen was %dx%d with %d and %g",
                           row, pipelines, stages, micro, p.samples_per_s, best.pipelines, best.stages,
                           best.micro_batch, best.samples_per_s);
            }
        }
    }
}

static void test_best_layout_by_brute_force(void **state)
{
    (void)state;
    static const struct {
        const char *row;
        const char *model;
        int instances, gpus_per_node, batch;
        double bit_s;
    } rows[] = {
        {"fast links", "gpt:layers=4,hidden=512,ctx=512", 6, 1, 32, 1e11},
        {"cloud links", "gpt:layers=4,hidden=512,ctx=512", 4, 1, 16, 1e10},
        {"slow links", "gpt:layers=4,hidden=512,ctx=512", 4, 1, 16, 1e8},
        {"one node", "gpt:layers=4,hidden=512,ctx=512", 1, 8, 32, 1e10},
        {"must be cut", "gpt:layers=24,hidden=2048", 8, 1, 16, 1e11},
        {"images", "vgg19", 5, 1, 64, 2.5e10},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        model_from(rows[i].model, &model);
        struct tm_fleet_group group = group_of("v", v100(), rows[i].instances, rows[i].gpus_per_node, rows[i].bit_s);
        struct tm_predict_request request = request_of(&model, &group, 1, rows[i].batch);
        check_best(rows[i].row, &request, rows[i].instances * rows[i].gpus_per_node, 1e-9);
        tm_model_deinit(&model);
    }
}

/* Either of pipelines and stages may be left open. */
static void test_half_a_layout(void **state)
{
    (void)state;
    struct tm_model model;
    model_from("gpt2-124m", &model);
    struct tm_fleet_group group = group_of("v", v100(), 8, 1, 1e10);
    struct tm_predict_request request = request_of(&model, &group, 1, 64);
    request.stages = 4;
    struct tm_prediction p = predict(&request);
    assert_true(p.stages == 4 && p.pipelines <= 2);
    check_parts("stages", &request, &p);
    request.stages = 0;
    request.pipelines = 3;
    p = predict(&request);
    assert_true(p.pipelines == 3 && p.stages <= 2);
    check_parts("pipelines", &request, &p);
    tm_model_deinit(&model);
}

/* ---- memory ---- */

static void test_too_large(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int instances;
        bool fits;
    } rows[] = {{"gpt2-355m", 1, true},  {"gpt2-1.5b", 1, false}, {"gpt2-1.5b", 4, true},
                {"gpt3-6.7b", 1, false}, {"gpt3-6.7b", 4, false}, {"gpt3-6.7b", 32, true}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_model model;
        struct tm_prediction p;
        struct tm_error e = {0};
        model_from(rows[i].model, &model);
        struct tm_fleet_group group = group_of("v", v100(), rows[i].instances, 1, 1e11);
        struct tm_predict_request request = request_of(&model, &group, 1, 32);
        int rc = tm_predict(&request, &p, &e);
        assert_row(rc == (rows[i].fits ? 0 : -(int)TM_ENONE), "%s on %d: %d %s", rows[i].model, rows[i].instances, rc,
                   e.text);
        assert_row(p.fits == rows[i].fits && p.memory_limit_gib == 15.77, "%s on %d", rows[i].model, rows[i].instances);
        double largest = 0;
        for (int s = 0; s < p.stages; s++)
            largest = fmax(largest, p.memory_gib[s]);
        assert_row((largest <= 16) == rows[i].fits, "%s on %d: %g GiB", rows[i].model, rows[i].instances, largest);
        assert_row((strcmp(p.limit, "memory") == 0) != rows[i].fits, "%s on %d", rows[i].model, rows[i].instances);
        if (!rows[i].fits) assert_error_has(e, "does not fit: a stage needs ");
        tm_model_deinit(&model);
    }
}

/* Adam's states, weight and gradient in 4 bytes each: 16 bytes a parameter are the least there is. */
static void test_memory_of_the_state(void **state)
{
    (void)state;
    struct tm_model model;
    model_from("gpt2-1.5b", &model);
    double params = tm_model_totals(&model).params;
    struct tm_fleet_group group = group_of("h", h200(), 4, 1, 1e11);
    struct tm_predict_request request = request_of(&model, &group, 1, 4);
    request.micro_batch = 1;
    for (int stages = 1; stages <= 4; stages++) {
        request.pipelines = 1;
        request.stages = stages;
        struct tm_prediction p = predict(&request);
        double sum = 0;
        for (int s = 0; s < stages; s++)
            sum += p.memory_gib[s];
        assert_row(sum > params * 16 / (1 << 30) && sum < params * 16 / (1 << 30) + 60, "%d stages: %g GiB", stages,
                   sum);
    }
    tm_model_deinit(&model);
}

/* What does not fit with all activations kept is computed again, for a third more work. */
static void test_recompute(void **state)
{
    (void)state;
    struct tm_model model;
    struct tm_prediction kept = {0};
    bool any = false;
    model_from("gpt2-355m", &model);
    struct tm_fleet_group group = group_of("v", v100(), 1, 1, 1e10);
    for (int micro = 1; micro <= 32; micro++) {
        struct tm_predict_request request = request_of(&model, &group, 1, 32);
        struct tm_prediction p;
        request.micro_batch = micro;
        int rc = tm_predict(&request, &p, NULL);
        if (rc == 0 && !p.recompute) {
            assert_row(!any, "micro-batch %d: kept, after a smaller one was recomputed", micro);
            kept = p;
        }
        if (rc == 0 && p.recompute) {
            assert_row(kept.fits, "not even one sample is kept");
            any = true;
            group.gpu.memory_gib = 1000; /* the same with room for all */
            struct tm_prediction roomy = predict(&request);
            group.gpu.memory_gib = 16;
            double longer = p.compute_s / roomy.compute_s; /* a forward pass of the blocks more, of three */
            assert_row(!roomy.recompute && longer > 1.15 && longer < 4.0 / 3, "micro-batch %d: %g times", micro,
                       longer);
            assert_row(p.memory_gib[0] <= 15 && roomy.memory_gib[0] > 15, "micro-batch %d", micro);
        }
    }
    assert_true(any);
    tm_model_deinit(&model);
}

/* ---- fleets ---- */

/* Two kinds of GPU: faster than the slower half alone, and the work is shared so that both finish together. */
static void test_mixed_fleet(void **state)
{
    (void)state;
    struct tm_model model;
    model_from("resnet50", &model);
    const struct tm_fleet_group groups[] = {group_of("fast", h200(), 2, 1, 1e11), group_of("slow", v100(), 2, 1, 1e11)};
    struct tm_predict_request request = request_of(&model, groups, 2, 4096);
    request.micro_batch = 32;
    request.stages = 1;
    struct tm_prediction both = predict(&request);
    check_parts("mixed", &request, &both);
    assert_int_equal(both.pipelines, 4);
    assert_true(both.memory_limit_gib == 15.77);
    request.group_count = 1;
    struct tm_prediction fast = predict(&request);
    request.groups = &groups[1];
    struct tm_prediction slow = predict(&request);
    assert_true(both.samples_per_s > fast.samples_per_s && fast.samples_per_s > slow.samples_per_s);
    assert_row(both.samples_per_s > 0.9 * (fast.samples_per_s + slow.samples_per_s), "%g of %g + %g",
               both.samples_per_s, fast.samples_per_s, slow.samples_per_s);
    assert_true(both.samples_per_s < 1.01 * (fast.samples_per_s + slow.samples_per_s));
    tm_model_deinit(&model);
}

/* A pipeline lies within one group: 3 + 3 GPUs hold two pipelines of 2 stages, and none of 4. */
static void test_pipelines_do_not_span_groups(void **state)
{
    (void)state;
    struct tm_model model;
    struct tm_prediction p;
    struct tm_error e = {0};
    model_from("gpt2-124m", &model);
    const struct tm_fleet_group groups[] = {group_of("a", h200(), 3, 1, 1e10), group_of("b", v100(), 3, 1, 1e10)};
    struct tm_predict_request request = request_of(&model, groups, 2, 16);
    request.stages = 2;
    assert_true(predict(&request).pipelines <= 2);
    request.pipelines = 3;
    assert_int_equal(tm_predict(&request, &p, &e), -(int)TM_EINPUT);
    assert_error_has(e, "a pipeline cannot span several instance types");
    request.pipelines = 1;
    request.stages = 4;
    assert_int_equal(tm_predict(&request, &p, &e), -(int)TM_EINPUT);
    tm_model_deinit(&model);
}

static void test_faster_links_are_never_slower(void **state)
{
    (void)state;
    static const struct {
        int pipelines, stages;
    } rows[] = {{8, 1}, {4, 2}, {2, 4}, {1, 8}};
    struct tm_model model;
    model_from("gpt2-124m", &model);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double before = 0;
        for (double rate = 1e7; rate < 1e13; rate *= 10) {
            struct tm_fleet_group group = group_of("v", v100(), 8, 1, rate);
            struct tm_predict_request request = request_of(&model, &group, 1, 64);
            request.micro_batch = 1;
            request.pipelines = rows[i].pipelines;
            request.stages = rows[i].stages;
            struct tm_prediction p = predict(&request);
            assert_row(p.samples_per_s >= before, "%dx%d at %g bit/s", rows[i].pipelines, rows[i].stages, rate);
            if (rate == 1e7) assert_row(strcmp(p.limit, "communication") == 0, "row %zu: %s", i, p.limit);
            before = p.samples_per_s;
        }
    }
    tm_model_deinit(&model);
}

/* ---- what is refused ---- */

static void test_wrong_requests(void **state)
{
    (void)state;
    static const struct {
        int instances, gpus_per_node, batch, micro_batch, pipelines, stages;
        double bit_s;
        enum tm_precision precision;
        enum tm_code code;
        const char *says;
    } rows[] = {
        {4, 1, 0, 0, 0, 0, 1e10, TM_FP16, TM_EINPUT, "the global batch must be 1 or more"},
        {4, 1, -8, 0, 0, 0, 1e10, TM_FP16, TM_EINPUT, "the global batch must be 1 or more"},
        {4, 1, 8, 9, 0, 0, 1e10, TM_FP16, TM_EINPUT, "the micro-batch must be from 1 to the global batch of 8"},
        {4, 1, 8, -1, 0, 0, 1e10, TM_FP16, TM_EINPUT, "the micro-batch must be from 1"},
        {64, 1, 8, 1, 1, 20, 1e10, TM_FP16, TM_EINPUT, "20 stages, but vgg19 has 19 layers"},
        {64, 1, 8, 1, 0, 20, 1e10, TM_FP16, TM_EINPUT, "20 stages, but vgg19 has 19 layers"},
        {4, 1, 8, 1, 3, 2, 1e10, TM_FP16, TM_EINPUT, "3x2 needs 6 GPUs, the fleet has 4"},
        {4, 1, 8, 1, 0, 5, 1e10, TM_FP16, TM_EINPUT, "no layout can use this fleet:"},
        {0, 1, 8, 1, 0, 0, 1e10, TM_FP16, TM_EINPUT, "v: needs at least one instance with a GPU"},
        {1, 0, 8, 1, 0, 0, 1e10, TM_FP16, TM_EINPUT, "v: needs at least one instance with a GPU"},
        {1, 1, 8, 1, 0, 0, 0, TM_FP16, TM_EINPUT, "v: its network bandwidth is not known"},
        {1, 1, 8, 1, 0, 0, NAN, TM_FP16, TM_EINPUT, "v: its network bandwidth is not known"},
        {4, 1, 8, 1, 0, 0, 1e10, TM_BF16, TM_EINPUT, "V100 has no bf16 mode"},
        {65537, 1, 8, 1, 0, 0, 1e10, TM_FP16, TM_ELIMIT, "more than 65536 GPUs"},
        {1 << 30, 8, 8, 1, 0, 0, 1e10, TM_FP16, TM_ELIMIT, "more than 65536 GPUs"},
    };
    struct tm_model model;
    model_from("vgg19", &model);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_prediction p;
        struct tm_error e = {0};
        struct tm_fleet_group group = group_of("v", v100(), rows[i].instances, rows[i].gpus_per_node, rows[i].bit_s);
        struct tm_predict_request request = request_of(&model, &group, 1, rows[i].batch);
        request.micro_batch = rows[i].micro_batch;
        request.pipelines = rows[i].pipelines;
        request.stages = rows[i].stages;
        request.precision = rows[i].precision;
        int rc = tm_predict(&request, &p, &e);
        assert_row(rc == -(int)rows[i].code, "row %zu (%s): %d %s", i, rows[i].says, rc, e.text);
        assert_row(strstr(e.text, rows[i].says) != NULL, "row %zu: \"%s\" does not hold \"%s\"", i, e.text,
                   rows[i].says);
    }
    tm_model_deinit(&model);
}

static void test_wrong_number_of_groups(void **state)
{
    (void)state;
    struct tm_model model;
    struct tm_prediction p;
    struct tm_fleet_group groups[TM_FLEET_GROUPS_MAX + 1];
    model_from("vgg19", &model);
    for (size_t g = 0; g < TM_COUNT(groups); g++)
        groups[g] = group_of("v", v100(), 1, 1, 1e10);
    for (size_t count = 0; count < TM_COUNT(groups) + 1; count++) {
        struct tm_predict_request request = request_of(&model, groups, count, 64);
        request.pipelines = (int)count;
        request.stages = 1;
        int rc = tm_predict(&request, &p, NULL);
        bool good = count >= 1 && count <= TM_FLEET_GROUPS_MAX;
        assert_row(rc == (good ? 0 : -(int)TM_EINPUT), "%zu groups: %d", count, rc);
        assert_row(!good || p.pipelines == (int)count, "%zu groups: %d pipelines", count, p.pipelines);
    }
    tm_model_deinit(&model);
}

/* The largest figures that may come in: a batch of 2^30 of a model that takes no memory. */
static void test_largest_batch(void **state)
{
    (void)state;
    struct tm_model model;
    struct tm_prediction p;
    tm_model_init(&model);
    assert_int_equal(parse_model("tidemill-model 1\nname: air\nname,kind,params,forward_flops,traffic_values,"
                                 "saved_values,output_values,ops,tied\n",
                                 &model, NULL),
                     -(int)TM_EINPUT);
    assert_int_equal(parse_model("tidemill-model 1\nname: air\nname,kind,params,forward_flops,traffic_values,"
                                 "saved_values,output_values,ops,tied\na,conv,0,1,0,0,0,1,\nb,conv,0,0,0,0,0,0,\n",
                                 &model, NULL),
                     0);
    struct tm_fleet_group group = group_of("v", v100(), 2, 1, 1e10);
    struct tm_predict_request request = request_of(&model, &group, 1, 1 << 30);
    p = predict(&request);
    assert_true(p.fits && isfinite(p.step_s.mean) && p.step_s.mean > 0);
    tm_model_deinit(&model);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct tm_model model;
    struct tm_prediction p;
    model_from("vgg19", &model);
    struct tm_fleet_group group = group_of("v", v100(), 4, 1, 1e10);
    struct tm_predict_request request = request_of(&model, &group, 1, 64);
    TM_FAIL_EACH_ALLOC(rc = tm_predict(&request, &p, NULL));
    tm_model_deinit(&model);
}

/* Gradients that are ready early hide behind the backward pass; those that come at its end cannot. */
static void test_measured_gradients(void **state)
{
    (void)state;
    static const struct tm_comm_bucket early[] = {{4.6e7, 0.01}, {5e6, 1}}, late[] = {{5e6, 0.1}, {4.6e7, 1}};
    struct tm_model model;
    model_from("resnet50", &model);
    model.narrow_gradients = true; /* as many bytes as those that were measured */
    struct tm_fleet_group group = group_of("v", v100(), 4, 1, 1e10);
    struct tm_predict_request request = request_of(&model, &group, 1, 128);
    request.micro_batch = 32;
    request.pipelines = 4;
    request.stages = 1;
    double layers_s = predict(&request).exposed_comm_s;
    request.gradients = late;
    request.gradient_count = TM_COUNT(late);
    double late_s = predict(&request).exposed_comm_s;
    request.gradients = early;
    double early_s = predict(&request).exposed_comm_s;
    assert_row(early_s < layers_s && layers_s < late_s, "exposed: early %g, by layers %g, late %g s", early_s, layers_s,
               late_s);
    request.pipelines = 2;
    request.stages = 2;
    double cut_s = predict(&request).exposed_comm_s;
    request.gradient_count = 0;
    assert_true(predict(&request).exposed_comm_s ==
                cut_s); /* measured for the whole model: stages go by their layers */
    tm_model_deinit(&model);
}

/* One row, and the same row many times, teach the same. */
static void test_one_row_and_duplicates(void **state)
{
    (void)state;
    static const int one[] = {16}, same[] = {16, 16, 16, 16};
    static const double one_ms[] = {80}, same_ms[] = {80, 80, 80, 80};
    struct tm_model model;
    model_from("resnet50", &model);
    struct tm_fleet_group group = group_of("v", v100(), 1, 1, 1e10);
    struct tm_predict_request request = request_of(&model, &group, 1, 32);
    request.micro_batch = 32;
    request.measured_batches = one;
    request.measured_ms = one_ms;
    request.measured_count = 1;
    double alone_s = predict(&request).step_s.mean;
    request.measured_batches = same;
    request.measured_ms = same_ms;
    request.measured_count = 4;
    double often_s = predict(&request).step_s.mean;
    assert_row(alone_s > 0 && close_to(alone_s, often_s, 0.05), "one row: %g s, four times: %g s", alone_s, often_s);
    tm_model_deinit(&model);
}

TM_TEST_MAIN(TM_TEST(test_parts_add_up), TM_TEST(test_links_between_stages), TM_TEST(test_bursts),
             TM_TEST(test_memory_of_sharded_state), TM_TEST(test_ways), TM_TEST(test_measured_gradients),
             TM_TEST(test_one_row_and_duplicates), TM_TEST(test_more_instances_are_never_slower),
             TM_TEST(test_groups_that_share_out), TM_TEST(test_one_gpu_is_the_compute_model),
             TM_TEST(test_measured_steps), TM_TEST(test_best_layout_by_brute_force), TM_TEST(test_half_a_layout),
             TM_TEST(test_too_large), TM_TEST(test_memory_of_the_state), TM_TEST(test_recompute),
             TM_TEST(test_mixed_fleet), TM_TEST(test_pipelines_do_not_span_groups),
             TM_TEST(test_faster_links_are_never_slower), TM_TEST(test_wrong_requests),
             TM_TEST(test_wrong_number_of_groups), TM_TEST(test_largest_batch), TM_TEST(test_failing_allocations))

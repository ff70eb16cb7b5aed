#include "workload/evaluate.h"

#include "workload/shipped_profiles.h"
#include "workload/test/workload_helpers.h"

/* Names in the shared profile carry the context behind the model's name: gpt2-124m-1024. */
static bool look_up_shipped(void *context, const struct tm_profile_step *step, struct tm_model *model)
{
    (void)context;
    char name[128];
    (void)snprintf(name, sizeof name, "%.60s", step->network);
    char *tail = strstr(name, "-1024");
    if (tail != NULL) (void)snprintf(tail, 40, ",attention=plain"); /* as it was measured */
    return tm_model_load(tm_env_real(), name, model, NULL) == 0;
}

static int evaluate_steps(const struct tm_profile *profile, enum tm_split split, const struct tm_gpu_figures *gpu,
                          tm_model_lookup_f lookup, void *context, struct tm_evaluation *out, struct tm_error *e)
{
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpus[256];
    assert_true(profile->step_count <= TM_COUNT(gpus));
    for (size_t i = 0; i < profile->step_count; i++)
        gpus[i] = *gpu;
    return tm_evaluate_steps(profile, split, gpus, &prior, lookup, context, out, e);
}

static void profile_of(const char *text, struct tm_profile *profile)
{
    struct tm_error e = {0};
    tm_profile_init(profile);
    int rc = parse_profile(text, profile, &e);
    assert_row(rc == 0, "%s", e.text);
}

/* ---- the shared measurements ---- */

static void check_sums(const char *name, const struct tm_evaluation *evaluation)
{
    size_t cells = 0;
    for (size_t i = 0; i < evaluation->network_count; i++)
        cells += evaluation->networks[i].errors.cells;
    const struct tm_errors *all = &evaluation->overall;
    assert_row(cells == all->cells, "%s: %zu cells by network, %zu in all", name, cells, all->cells);
    assert_row(evaluation->gpu_bound.cells <= cells, "%s", name);
    assert_row(all->median_percent <= all->p90_percent && fabs(all->bias_percent) <= all->mape_percent, "%s", name);
}

static void test_shared_steps(void **state)
{
    (void)state;
    static const struct {
        enum tm_split split;
        size_t cells;
        double mape;
        double gpu_bound_mape;
    } rows[] = {
        {TM_SPLIT_TWO_BATCHES, 107 - 2 * 14, 8, 5}, /* 7 networks at 2 precisions */
        {TM_SPLIT_LEAVE_ONE_NETWORK, 107, 25, 25},
    };
    struct tm_profile profile;
    struct tm_gpu_figures gpu = h200();
    skip_without(H200_STEPS);
    profile_from(H200_STEPS, &profile);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const char *name = tm_split_names[rows[i].split];
        struct tm_evaluation out;
        struct tm_error e = {0};
        int rc = evaluate_steps(&profile, rows[i].split, &gpu, look_up_shipped, NULL, &out, &e);
        assert_row(rc == 0, "%s: %s", name, e.text);
        check_sums(name, &out);
        assert_row(out.overall.cells == rows[i].cells, "%s: %zu cells", name, out.overall.cells);
        assert_row(out.network_count == 7, "%s: %zu networks", name, out.network_count);
        assert_row(out.overall.mape_percent <= rows[i].mape, "%s: %.1f%%", name, out.overall.mape_percent);
        assert_row(out.gpu_bound.mape_percent <= rows[i].gpu_bound_mape, "%s: GPU-bound %.1f%%", name,
                   out.gpu_bound.mape_percent);
        double inside = out.overall.inside80_percent;
        assert_row(inside >= 70 && inside <= 93, "%s: %.0f%% inside 80%%", name, inside);
        assert_row(out.naive.cells == 0, "%s", name);
        tm_evaluation_deinit(&out);
    }
    tm_profile_deinit(&profile);
}

/* ---- transformers as they are trained today ---- */

/* By the model that the profile names. */
static bool look_up_named(void *context, const struct tm_profile_step *step, struct tm_model *model)
{
    char spec[256];
    (void)snprintf(spec, sizeof spec, "%s%s", tm_profile_model_name(context, step->network),
                   step->compile != 0 ? ";compile=1" : "");
    return tm_model_load(tm_env_real(), spec, model, NULL) == 0;
}

/* All steps of the shipped profiles that were measured on the H200. */
static void shipped_steps(struct tm_profile *profile)
{
    struct tm_error e = {0};
    size_t kept = 0;
    tm_profile_init(profile);
    int rc = tm_shipped_profiles(profile, &e);
    assert_row(rc == 0, "%s", e.text);
    for (size_t i = 0; i < profile->step_count; i++) {
        if (strcmp(profile->steps[i].gpu, "H200") == 0) profile->steps[kept++] = profile->steps[i];
    }
    assert_true(kept >= 157 && kept < profile->step_count);
    profile->step_count = kept;
}

static bool is_transformer(const char *network)
{
    return strncmp(network, "gpt-", 4) == 0 || strncmp(network, "llama-", 6) == 0;
}

/* Each network of the shipped profile is predicted from all others: what a user's own network will see. Step times,
 * memory and intervals of decoders with fused attention. */
static void test_networks_left_out(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_gpu_figures gpu = h200();
    struct tm_evaluation out;
    struct tm_error e = {0};
    double off = 0, memory_off = 0, inside = 0, cells = 0;
    shipped_steps(&profile);
    int rc = evaluate_steps(&profile, TM_SPLIT_LEAVE_ONE_NETWORK, &gpu, look_up_named, &profile, &out, &e);
    assert_row(rc == 0, "%s", e.text);
    for (size_t i = 0; i < out.cell_count; i++) {
        const struct tm_evaluation_cell *cell = &out.cells[i];
        if (!is_transformer(cell->network)) continue;
        cells++;
        off += fabs(cell->estimate_ms.mean / cell->truth_ms - 1);
        memory_off += fabs(cell->predicted_gib / cell->truth_gib - 1);
        inside += cell->truth_ms >= cell->estimate_ms.p10 && cell->truth_ms <= cell->estimate_ms.p90;
    }
    print_message("networks left out: %.0f cells, step %.1f%%, memory %.1f%%, inside %.0f%%\n", cells,
                  100 * off / cells, 100 * memory_off / cells, 100 * inside / cells);
    assert_true(cells == 58);
    assert_row(off / cells < 0.08, "step time off by %.1f%%", 100 * off / cells);
    assert_row(memory_off / cells < 0.03, "memory off by %.1f%%", 100 * memory_off / cells);
    assert_row(inside / cells >= 0.70 && inside / cells <= 0.90, "%.0f%% inside", 100 * inside / cells);
    tm_evaluation_deinit(&out);
    tm_profile_deinit(&profile);
}

/* The sizes of a transformer instead of a name; nothing of the file is learned. */
static void test_untrained(void **state)
{
    (void)state;
    static const char text[] =
        "family,layers,hidden,heads,kv_heads,ffn,ctx,vocab,precision,recompute,compile,micro_batch,"
        "fwd_ms,bwd_ms,opt_ms,peak_gib\n"
        "gpt,12,768,12,12,3072,1024,50257,bf16,0,0,16,27.03,41.07,1.28,14.51\n"
        "gpt,12,768,12,12,3072,1024,50257,bf16,1,0,4,16.16,31.71,2.55,3.61\n"
        "llama,8,4096,32,32,11008,4096,32000,bf16,0,1,4,100.82,213.70,16.08,43.90\n"
        "llama,8,4096,32,8,14336,4096,32000,bf16,0,0,4,100.82,213.70,16.08,\n";
    struct tm_profile profile;
    struct tm_gpu_figures gpu = h200();
    struct tm_evaluation out;
    struct tm_error e = {0};
    profile_of(text, &profile);
    assert_string_equal(profile.steps[0].network, "gpt-12x768-1024");
    assert_ptr_equal(profile.steps[1].network, profile.steps[0].network);
    assert_string_equal(profile.steps[3].network, "llama-8x4096-4096-v2"); /* others have its name */
    assert_true(profile.steps[1].recompute == 1 && profile.steps[2].compile == 1 && profile.steps[0].compile == 0);
    int rc = evaluate_steps(&profile, TM_SPLIT_UNTRAINED, &gpu, look_up_named, &profile, &out, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_true(out.cell_count == 4 && out.overall.cells == 4 && out.network_count == 3);
    assert_true(out.overall.memory_cells == 3 && out.overall.memory_mape_percent < 5);
    assert_true(isnan(out.cells[3].truth_gib) && out.cells[3].predicted_gib > 40);
    assert_true(out.cells[1].step->recompute == 1);
    tm_evaluation_deinit(&out);
    tm_profile_deinit(&profile);
}

static void test_shared_runs(void **state)
{
    (void)state;
    static const enum tm_split splits[] = {TM_SPLIT_LEAVE_ONE_BANDWIDTH, TM_SPLIT_LEAVE_ONE_NETWORK};
    struct tm_profile profile;
    skip_without(DDP_GRID);
    profile_from(DDP_GRID, &profile);
    for (size_t i = 0; i < TM_COUNT(splits); i++) {
        const char *name = tm_split_names[splits[i]];
        struct tm_evaluation out;
        struct tm_error e = {0};
        int rc = tm_evaluate_runs(&profile, splits[i], &out, &e);
        assert_row(rc == 0, "%s: %s", name, e.text);
        check_sums(name, &out);
        assert_row(out.overall.cells == 47 && out.naive.cells == 47, "%s: %zu cells", name, out.overall.cells);
        assert_row(out.overall.mape_percent <= 5, "%s: %.1f%%", name, out.overall.mape_percent);
        assert_row(out.overall.mape_percent < out.naive.mape_percent, "%s: no better than %.1f%%", name,
                   out.naive.mape_percent);
        double inside = out.overall.inside80_percent;
        assert_row(inside >= 70 && inside <= 93, "%s: %.0f%% inside 80%%", name, inside);
        assert_row(out.gpu_bound.cells == 0, "%s", name);
        tm_evaluation_deinit(&out);
    }
    tm_profile_deinit(&profile);
}

/* ---- made-up profiles ---- */

#define STEPS "network,precision,micro_batch,fwd_ms,bwd_ms,opt_ms,params,train_gflop_per_sample\n"
#define RUNS  "world,mbit,model,batch,grad_bytes,iter_ms_median,compute_ms_mean\n"

/* Three groups of two networks, not in order of batch. Of a at bf16, 13 ms is 1.3 times the smallest batch, 12.9 is
 * not; of a at fp32 there is one cell, which is smallest and largest; of b the largest of three is the slow one. */
static const char small_text[] = STEPS "a,bf16,4,4,8.9,0,25e6,24\n"
                                       "a,bf16,1,4,5,1,25e6,24\n"
                                       "b,bf16,2,4,5,1,25e6,24\n"
                                       "a,bf16,16,5,7,1,25e6,24\n"
                                       "a,fp32,8,10,20,1,25e6,24\n"
                                       "b,bf16,64,20,40,1,25e6,24\n"
                                       "a,bf16,64,10,30,1,25e6,24\n"
                                       "b,bf16,8,4,5,1,25e6,24\n"
                                       "a,bf16,32,6,15,1,25e6,24\n";

/* Knows `a` only; of others the totals in the profile are used. */
static bool look_up_a(void *context, const struct tm_profile_step *step, struct tm_model *model)
{
    (*(int *)context)++;
    return strcmp(step->network, "a") == 0 && tm_model_load(tm_env_real(), "resnet50", model, NULL) == 0;
}

static bool look_up_nothing(void *context, const struct tm_profile_step *step, struct tm_model *model)
{
    (void)context;
    (void)step;
    (void)model;
    return false;
}

static void test_counts(void **state)
{
    (void)state;
    static const struct {
        enum tm_split split;
        size_t cells;
        size_t gpu_bound;
        size_t of_a;
        size_t of_b;
    } rows[] = {
        {TM_SPLIT_TWO_BATCHES, 4, 2, 3, 1},       /* a: 4, 16 and 32 at bf16, of which 16 and 32 are slow; b: 8 */
        {TM_SPLIT_LEAVE_ONE_NETWORK, 9, 4, 6, 3}, /* and the two largest */
    };
    struct tm_profile profile;
    struct tm_gpu_figures gpu = h200();
    profile_of(small_text, &profile);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_evaluation out;
        struct tm_error e = {0};
        int asked = 0;
        int rc = evaluate_steps(&profile, rows[i].split, &gpu, look_up_a, &asked, &out, &e);
        assert_row(rc == 0, "%s: %s", tm_split_names[rows[i].split], e.text);
        assert_row(asked > 0, "nobody asked for the layers");
        check_sums(tm_split_names[rows[i].split], &out);
        assert_row(out.overall.cells == rows[i].cells && out.gpu_bound.cells == rows[i].gpu_bound,
                   "%s: %zu cells, %zu GPU-bound", tm_split_names[rows[i].split], out.overall.cells,
                   out.gpu_bound.cells);
        assert_int_equal(out.network_count, 2);
        assert_string_equal(out.networks[0].network, "a");
        assert_row(out.networks[0].errors.cells == rows[i].of_a && out.networks[1].errors.cells == rows[i].of_b,
                   "%s: %zu and %zu", tm_split_names[rows[i].split], out.networks[0].errors.cells,
                   out.networks[1].errors.cells);
        tm_evaluation_deinit(&out);
    }
    tm_profile_deinit(&profile);
}

/* Where each group has its smallest and its largest batch only, there is nothing left to predict. */
static void test_nothing_held_back(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_gpu_figures gpu = h200();
    struct tm_evaluation out;
    profile_of(STEPS "a,bf16,1,1,2,0,1e6,1\na,bf16,8,2,3,0,1e6,1\nb,bf16,4,1,1,0,1e6,1\n", &profile);
    assert_int_equal(evaluate_steps(&profile, TM_SPLIT_TWO_BATCHES, &gpu, look_up_nothing, NULL, &out, NULL), 0);
    assert_true(out.overall.cells == 0 && out.network_count == 0 && out.overall.mape_percent == 0);
    tm_evaluation_deinit(&out);
    tm_profile_deinit(&profile);
}

/* A profile that the model of time itself has made is predicted well. */
static void test_own_profile(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    struct tm_network network = tm_network__of_totals(25e6, 24);
    struct tm_compute__curve curve;
    struct tm_profile profile;
    struct tm_evaluation out;
    struct tm_text text;
    assert_int_equal(tm_compute__curve(&prior, &network, &gpu, TM_BF16, &curve, NULL), 0);
    tm_text_init(&text, 1 << 16);
    tm_text_puts(&text, STEPS);
    for (int batch = 1; batch <= 2048; batch *= 2)
        for (int n = 0; n < 3; n++)
            tm_text_printf(&text, "n%d,bf16,%d,%.17g,1e-9,0,25e6,24\n", n, batch,
                           tm_compute__step_ms(&curve, batch).mean);
    profile_of(tm_text_string(&text), &profile);
    tm_text_deinit(&text);
    for (int split = TM_SPLIT_TWO_BATCHES; split <= TM_SPLIT_LEAVE_ONE_NETWORK; split++) {
        int rc = evaluate_steps(&profile, (enum tm_split)split, &gpu, look_up_nothing, NULL, &out, NULL);
        assert_row(rc == 0, "%s", tm_split_names[split]);
        assert_row(out.overall.p90_percent < 0.1, "%s: %g%%", tm_split_names[split], out.overall.p90_percent);
        assert_row(out.overall.inside80_percent == 100, "%s", tm_split_names[split]);
        assert_row(out.network_count == 3, "%s", tm_split_names[split]);
        tm_evaluation_deinit(&out);
    }
    tm_profile_deinit(&profile);
}

static void test_runs_by_hand(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_evaluation out;
    /* By hand: 30 + 80, 30 + 8 and 40 + 80 ms, so that the naive sums lie 10% above, 5% below and right on. */
    profile_of(RUNS "2,100,a,8,1e6,100,30\n2,1000,a,8,1e6,40,30\n2,100,b,8,1e6,120,40\n", &profile);
    assert_int_equal(tm_evaluate_runs(&profile, TM_SPLIT_LEAVE_ONE_NETWORK, &out, NULL), 0);
    check_sums("runs", &out);
    assert_true(out.overall.cells == 3 && out.network_count == 2);
    assert_true(fabs(out.naive.mape_percent - 5) < 1e-9 && fabs(out.naive.bias_percent - 5.0 / 3) < 1e-9);
    assert_true(fabs(out.naive.median_percent - 5) < 1e-9 && fabs(out.naive.p90_percent - 10) < 1e-9);
    tm_evaluation_deinit(&out);
    assert_int_equal(tm_evaluate_runs(&profile, TM_SPLIT_LEAVE_ONE_BANDWIDTH, &out, NULL), 0);
    assert_true(out.overall.cells == 3);
    tm_evaluation_deinit(&out);
    assert_int_equal(tm_evaluate_runs(&profile, TM_SPLIT_UNTRAINED, &out, NULL), 0);
    assert_true(out.overall.cells == 3 && out.cell_count == 3 && out.cells[0].step == NULL);
    tm_evaluation_deinit(&out);
    tm_profile_deinit(&profile);
}

/* ---- what is refused ---- */

static void test_wrong_splits(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_gpu_figures gpu = h200();
    struct tm_evaluation out;
    struct tm_error e = {0};
    profile_of(small_text, &profile);
    assert_int_equal(evaluate_steps(&profile, TM_SPLIT_LEAVE_ONE_BANDWIDTH, &gpu, look_up_nothing, NULL, &out, &e),
                     -(int)TM_EUSAGE);
    assert_error_has(e, "two-batches, leave-one-network or untrained");
    assert_int_equal(tm_evaluate_runs(&profile, TM_SPLIT_LEAVE_ONE_NETWORK, &out, &e), -(int)TM_EINPUT);
    assert_error_has(e, "no data-parallel runs");
    tm_profile_deinit(&profile);
    profile_of(RUNS "2,100,a,8,1e6,100,30\n", &profile);
    assert_int_equal(tm_evaluate_runs(&profile, TM_SPLIT_TWO_BATCHES, &out, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "leave-one-bandwidth, leave-one-network or untrained");
    assert_int_equal(evaluate_steps(&profile, TM_SPLIT_TWO_BATCHES, &gpu, look_up_nothing, NULL, &out, &e),
                     -(int)TM_EINPUT);
    assert_error_has(e, "no steps");
    tm_profile_deinit(&profile);
    assert_string_equal(tm_split_names[TM_SPLIT_LEAVE_ONE_BANDWIDTH], "leave-one-bandwidth");
    assert_null(tm_split_names[TM_SPLIT_UNTRAINED + 1]);
}

static void test_what_cannot_be_predicted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {STEPS "odd,fp32,1,1,1,1,,24\n", "network odd: no such model, and the profile has no params"},
        {STEPS "odd,fp32,1,1,1,1,1e6,\n", "network odd: no such model"},
        {STEPS "odd,fp32,1,1,1,1,1e6,1\nnew,bf16,1,1,1,1,1e6,1\n", "network new: V100 has no bf16 mode"},
    };
    struct tm_gpu_figures gpu = v100();
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        for (int split = TM_SPLIT_TWO_BATCHES; split <= TM_SPLIT_LEAVE_ONE_NETWORK; split++) {
            struct tm_profile profile;
            struct tm_evaluation out;
            struct tm_error e = {0};
            profile_of(rows[i].text, &profile);
            int rc = evaluate_steps(&profile, (enum tm_split)split, &gpu, look_up_nothing, NULL, &out, &e);
            assert_row(rc == -(int)TM_EINPUT && strstr(e.text, rows[i].says) != NULL, "\"%s\": %d %s", rows[i].text, rc,
                       e.text);
            tm_profile_deinit(&profile);
        }
    }
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct tm_profile steps;
    struct tm_profile runs;
    struct tm_evaluation out;
    struct tm_gpu_figures gpu = h200();
    profile_of(small_text, &steps);
    profile_of(RUNS "2,100,a,8,1e6,100,30\n2,1000,b,8,1e6,40,30\n", &runs);
    static const enum tm_split splits[] = {TM_SPLIT_TWO_BATCHES, TM_SPLIT_LEAVE_ONE_NETWORK, TM_SPLIT_UNTRAINED};
    for (size_t i = 0; i < TM_COUNT(splits); i++) {
        TM_FAIL_EACH_ALLOC(rc = evaluate_steps(&steps, splits[i], &gpu, look_up_nothing, NULL, &out, NULL);
                           if (rc == 0) tm_evaluation_deinit(&out));
    }
    TM_FAIL_EACH_ALLOC(rc = tm_evaluate_runs(&runs, TM_SPLIT_LEAVE_ONE_BANDWIDTH, &out, NULL);
                       if (rc == 0) tm_evaluation_deinit(&out));
    tm_profile_deinit(&steps);
    tm_profile_deinit(&runs);
}

TM_TEST_MAIN(TM_TEST(test_shared_steps), TM_TEST(test_networks_left_out), TM_TEST(test_untrained),
             TM_TEST(test_shared_runs), TM_TEST(test_counts), TM_TEST(test_nothing_held_back),
             TM_TEST(test_own_profile), TM_TEST(test_runs_by_hand), TM_TEST(test_wrong_splits),
             TM_TEST(test_what_cannot_be_predicted), TM_TEST(test_failing_allocations))

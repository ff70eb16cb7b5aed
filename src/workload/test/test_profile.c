#include "workload/profile.h"

#include "base/env_virtual.h"
#include "workload/test/workload_helpers.h"

#define HEAD  "tidemill-profile 1\n"
#define STEPS "[step]\nnetwork,precision,micro_batch,forward_ms,backward_ms,optimizer_ms\n"
#define RUNS  "[run]\nnetwork,world,mbit,batch,grad_bytes,iter_ms,compute_ms\n"

/* All that our own form can say, with columns in another order, and tables twice. */
static const char whole_text[] =
    HEAD "# words\nsource: H200, \"eager\", 2024\n\n[step]\n"
         "network,gpu,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,peak_gib,step_ms_p10,params,"
         "train_gflop_per_sample\n"
         "resnet50,H200,bf16,4,9.5,10.25,1.25,0.5,18,25557032,24.299\n"
         "vgg19,,fp32,1,2,3,,,,,\n"
         "[run]\niter_ms,network,world,mbit,batch,grad_bytes,iter_ms_std,compute_ms,compute_ms_std,all_reduce_ms\n"
         "127.5,cnns,2,100,8,1229992,3.5,33.75,3.625,103\n"
         "[step]\nmicro_batch,network,precision,forward_ms,backward_ms,optimizer_ms,colour\n8,alone,tf32,1,2,3,red\n";

static void test_own_form(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_error e = {0};
    tm_profile_init(&profile);
    int rc = parse_profile(whole_text, &profile, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_string_equal(profile.source, "H200, \"eager\", 2024");
    assert_int_equal(profile.step_count, 3);
    assert_int_equal(profile.run_count, 1);
    const struct tm_profile_step *s = &profile.steps[0];
    assert_string_equal(s->network, "resnet50");
    assert_string_equal(s->gpu, "H200");
    assert_true(s->precision == TM_BF16 && s->micro_batch == 4);
    assert_true(s->forward_ms == 9.5 && s->backward_ms == 10.25 && s->optimizer_ms == 1.25);
    assert_true(s->peak_gib == 0.5 && s->step_ms_p10 == 18);
    assert_true(s->params == 25557032 && s->train_gflop_per_sample == 24.299);
    assert_true(tm_profile_step_ms(s) == 21);
    const struct tm_profile_run *r = &profile.runs[0];
    assert_string_equal(r->network, "cnns");
    assert_true(r->world == 2 && r->mbit == 100 && r->batch == 8 && r->grad_bytes == 1229992);
    assert_true(r->iter_ms == 127.5 && r->iter_ms_std == 3.5 && r->compute_ms == 33.75);
    assert_true(r->compute_ms_std == 3.625 && r->all_reduce_ms == 103);
    assert_true(profile.steps[2].precision == TM_TF32 && profile.steps[2].micro_batch == 8);
    tm_profile_deinit(&profile);
    assert_int_equal(profile.step_count, 0);
    tm_profile_deinit(&profile);
}

/* Optional columns that are missing or empty; the time of the optimizer is then 0, all else unknown. */
static void test_optional_columns(void **state)
{
    (void)state;
    static const char *const texts[] = {
        HEAD STEPS "a,fp16,1,2,3,\n",
        HEAD STEPS "a,fp16,1,2,3\n", /* a short row is one with empty fields */
        HEAD "[step]\nnetwork,gpu,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,peak_gib,step_ms_p10,"
             "params,train_gflop_per_sample\na,,fp16,1,2,3,,,,,\n",
        "network,precision,micro_batch,fwd_ms,bwd_ms,opt_ms\na,fp16,1,2,3,\n",
    };
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_profile profile;
        struct tm_error e = {0};
        tm_profile_init(&profile);
        int rc = parse_profile(texts[i], &profile, &e);
        assert_row(rc == 0, "\"%s\": %s", texts[i], e.text);
        const struct tm_profile_step *s = &profile.steps[0];
        assert_row(s->gpu[0] == '\0' && s->optimizer_ms == 0 && tm_profile_step_ms(s) == 5, "\"%s\"", texts[i]);
        assert_row(isnan(s->peak_gib) && isnan(s->step_ms_p10), "\"%s\"", texts[i]);
        assert_row(isnan(s->params) && isnan(s->train_gflop_per_sample), "\"%s\"", texts[i]);
        tm_profile_deinit(&profile);
    }
    struct tm_profile profile;
    tm_profile_init(&profile);
    assert_int_equal(parse_profile(HEAD RUNS "a,2,100,8,1000,5,3\n", &profile, NULL), 0);
    const struct tm_profile_run *r = &profile.runs[0];
    assert_true(isnan(r->iter_ms_std) && isnan(r->compute_ms_std) && isnan(r->all_reduce_ms));
    tm_profile_deinit(&profile);
}

/* The two CSV forms of other people, headers as in their files. */
static void test_foreign_forms(void **state)
{
    (void)state;
    struct tm_profile profile;
    tm_profile_init(&profile);
    assert_int_equal(parse_profile("network,params,precision,micro_batch,fwd_ms,bwd_ms,opt_ms,peak_gib,"
                                   "train_gflop_per_sample,step_ms_p10\r\n"
                                   "resnet50,25557032,bf16,1,9.179,10.198,1.273,0.49,24.299,19.315\r\n",
                                   &profile, NULL),
                     0);
    assert_int_equal(parse_profile("world,mbit,model,batch,params,grad_bytes,iters,iter_ms_mean,iter_ms_std,"
                                   "iter_ms_median,iter_ms_min,iter_ms_max,compute_ms_mean,compute_ms_std,"
                                   "flat_allreduce_ms_median,foreign_cores\n"
                                   "2,100,cnns,8,307498,1229992,20,127.24,3.65,127.12,120.72,135.77,33.77,3.66,103.01,"
                                   "-0.004\n",
                                   &profile, NULL),
                     0); /* a second file adds to the first */
    assert_true(profile.step_count == 1 && profile.run_count == 1);
    const struct tm_profile_step *s = &profile.steps[0];
    assert_true(s->forward_ms == 9.179 && s->backward_ms == 10.198 && s->optimizer_ms == 1.273);
    assert_true(s->peak_gib == 0.49 && s->params == 25557032 && s->step_ms_p10 == 19.315);
    const struct tm_profile_run *r = &profile.runs[0];
    assert_string_equal(r->network, "cnns");
    assert_true(r->iter_ms == 127.12 && r->compute_ms == 33.77 && r->all_reduce_ms == 103.01); /* medians */
    assert_true(r->iter_ms_std == 3.65 && r->compute_ms_std == 3.66 && r->grad_bytes == 1229992);
    tm_profile_deinit(&profile);
}

static const struct {
    const char *text;
    const char *says;
} bad_files[] = {
    {"", "p: file is empty"},
    {"# nothing\n", "p: file is empty"},
    {"nonsense\n", "p:1: first line: expected \"tidemill-profile 1\""},
    {"world,batch\n", "p:1: first line: expected"},
    {HEAD, "p: no rows in the profile"},
    {HEAD STEPS, "p: no rows in the profile"},
    {"network,micro_batch\n", "p:1: precision: expected a column of this name"},
    {"network,precision,micro_batch,fwd_ms,opt_ms\n", "p:1: backward_ms: expected a column of this name"},
    {"world,mbit\n", "p:1: network: expected a column of this name"},
    {HEAD "words\n", "p:2: line: expected source: TEXT, [network], [step], [layer], [run] or [gradient]"},
    {HEAD "\"source: a\"\n", "p:2: line: expected source: TEXT"},
    {HEAD "source: a\001b\n", "p:2: source: expected a line of text"},
    {HEAD "source: a,\"b\nc\"\n", "p:2: source: expected a line of text"},
    {HEAD "[steps]\n", "p:2: table: expected [network], [step], [layer], [run] or [gradient]"},
    {HEAD "[step]\nnetwork,precision\n", "p:3: micro_batch: expected a column of this name"},
    {HEAD "[run]\n\nnetwork,world,mbit,batch,grad_bytes,iter_ms\n", "p:4: compute_ms: expected a column"},
    {HEAD STEPS ",fp32,1,1,1,1\n", "p:4: network: expected a name"},
    {HEAD STEPS "\"a,b\",fp32,1,1,1,1\n", "p:4: network: expected a name, without commas"},
    {HEAD STEPS "\"#\",fp32,1,1,1,1\n", "p:4: network: expected a name"},
    {HEAD STEPS "a\002,fp32,1,1,1,1\n", "p:4: network: expected a name"},
    {HEAD STEPS "a,fp64,1,1,1,1\n", "p:4: precision: expected fp32, tf32, fp16, bf16 or fp8"},
    {HEAD STEPS "a,mixed,1,1,1,1\n", "p:4: precision: expected"},
    {HEAD STEPS "a,fp32,0,1,1,1\n", "p:4: micro_batch: expected a whole number of 1 or more"},
    {HEAD STEPS "a,fp32,1.5,1,1,1\n", "p:4: micro_batch: expected a whole number"},
    {HEAD STEPS "a,fp32,1,,1,1\n", "p:4: forward_ms: expected a number above 0"},
    {HEAD STEPS "a,fp32,1,0,1,1\n", "p:4: forward_ms: expected a number above 0"},
    {HEAD STEPS "a,fp32,1,1,1,1\na,fp32,1,1,x,1\n", "p:5: backward_ms: expected a number above 0"},
    {HEAD STEPS "a,fp32,1,1,1,-1\n", "p:4: optimizer_ms: expected a number of 0 or more"},
    {HEAD STEPS "a,fp32,1,1e16,1,1\n", "p:4: forward_ms: expected a number"},
    {HEAD RUNS "a,0,1,1,1,1,1\n", "p:4: world: expected a whole number of 1 or more"},
    {HEAD RUNS "a,2,0,1,1,1,1\n", "p:4: mbit: expected a number above 0"},
    {HEAD RUNS "a,2,1,9999999999,1,1,1\n", "p:4: batch: expected a whole number"},
    {HEAD RUNS "a,2,1,1,inf,1,1\n", "p:4: grad_bytes: expected a number above 0"},
    {HEAD RUNS "a,2,1,1,1,-3,1\n", "p:4: iter_ms: expected a number above 0"},
    {HEAD RUNS "a,2,1,1,1,1\n", "p:4: compute_ms: expected a number above 0"},
    {HEAD RUNS "a,2,1,1,1,\"1\n", "p:4: quoted field has no closing"},
    {"world,mbit,model,batch,grad_bytes,iter_ms_median,compute_ms_mean,iter_ms_std\n2,1,a,1,1,1,1,x\n",
     "p:2: iter_ms_std: expected a number of 0 or more"},
    {"network,gpu,precision,micro_batch,fwd_ms,bwd_ms,opt_ms,peak_gib\na,\"x\"\"\",bf16,1,1,1,1,1\n",
     "p:2: gpu: expected a name"},
    {HEAD "[network]\nnetwork,optimizer_states\na,\n", "p:4: optimizer_states: expected a whole number from 0 to 16"},
    {HEAD "[network]\nnetwork,optimizer_states\na,17\n", "p:4: optimizer_states: expected a whole number from 0"},
    {HEAD "[layer]\nnetwork,name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops\n"
          "a,x,lstm,1,1,1,1,1,1\n",
     "p:4: kind: expected conv, depthwise, matmul, block, embedding or norm"},
    {HEAD "[layer]\nnetwork,name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops\n"
          "a,x,norm,-1,1,1,1,1,1\n",
     "p:4: params: expected a number of 0 or more"},
    {HEAD "[step]\nnetwork,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,cores\na,fp32,1,1,1,1,0\n",
     "p:4: cores: expected a whole number of 1 or more"},
    {"network,gpu,precision,micro_batch,fwd_ms,bwd_ms,opt_ms,peak_gib\na,,bf16,1,1,1,1,much\n",
     "p:2: peak_gib: expected a number of 0 or more"},
};

/* Line and column are named, and nothing of a bad file stays. */
/* Sizes beside a name, formats and flags in other letters, whole steps instead of passes. */
static void test_other_peoples_columns(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_error e = {0};
    tm_profile_init(&profile);
    int rc =
        parse_profile("# mine\r\nstep_ms,network,family,layers,hidden,ctx,vocab,precision,micro_batch,recompute\r\n"
                      "30,my-net,GPT,12,768,1024,50257,BF16,4,True\r\n"
                      "\"60\",resnet50,,,,,,tf32,8,false\r\n",
                      &profile, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_int_equal(profile.step_count, 2);
    const struct tm_profile_step *s = profile.steps;
    assert_string_equal(s[0].network, "gpt-12x768-1024");
    assert_true(s[0].precision == TM_BF16 && s[0].recompute == 1);
    assert_true(s[0].forward_ms == 10 && s[0].backward_ms == 20 && tm_profile_step_ms(&s[0]) == 30);
    assert_string_equal(s[1].network, "resnet50");
    assert_true(s[1].recompute == 0 && tm_profile_step_ms(&s[1]) == 60);
    assert_int_equal(profile.network_count, 1);
    assert_string_equal(profile.networks[0].model, "gpt:layers=12;hidden=768;ctx=1024;vocab=50257");
    tm_profile_deinit(&profile);
}

#define SIZED                                                                                                          \
    "family,layers,hidden,heads,kv_heads,ffn,ctx,vocab,params,precision,recompute,compile,micro_batch,fwd_ms,bwd_ms\n"

/* What one row of sizes is taken as; errors name line and column. */
static void test_rows_of_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says; /* its formula, or the error */
    } rows[] = {
        {SIZED "llama,16,2048,32,8,8192,2048,128256,1235814400,bf16,0,0,4,10,20\n",
         "llama:layers=16;hidden=2048;heads=32;kv_heads=8;ffn=8192;ctx=2048;vocab=128256;tied=1"},
        {SIZED "llama,16,2048,32,8,8192,2048,128256,1498482688,bf16,0,0,4,10,20\n",
         "llama:layers=16;hidden=2048;heads=32;kv_heads=8;ffn=8192;ctx=2048;vocab=128256"},
        {SIZED "qwen3,28,1024,16,8,3072,2048,151936,596049920,bfloat16,no,YES,4.0,10,20\n",
         "llama:layers=28;hidden=1024;heads=16;kv_heads=8;ffn=3072;ctx=2048;vocab=151936;tied=1;head_dim=128"},
        {SIZED "GPT,12.0,768,12,0,,1024,50304,,torch.bfloat16,0,0,4,10,20\n",
         "gpt:layers=12;hidden=768;heads=12;ctx=1024;vocab=50304"},
        {SIZED "gemma,18,2048,8,1,16384,1024,256000,,bf16,0,0,1,10,20\n",
         "llama:layers=18;hidden=2048;heads=8;kv_heads=1;ffn=16384;ctx=1024;vocab=256000;tied=1"},
        {"FAMILY,Layers,hidden_size,SEQ_LEN,experts,active,lora,tied,head_dim,attention,precision,batch,step_ms\n"
         "mixtral,32,4096,4096,8,2,16,no,128,sdpa,bf16,1,10\n",
         "llama:layers=32;hidden=4096;head_dim=128;ctx=4096;experts=8;active=2;lora=16;tied=0;attention=fused"},
        {"family,layers,hidden,ctx,attention,precision,batch,step_ms\ngpt2,12,768,1024,eager,fp16,1,10\n",
         "gpt:layers=12;hidden=768;ctx=1024;attention=plain"},
        {"family,layers,hidden,ctx,precision,batch,step_ms\nvit,12,768,577,bf16,1,10\n",
         "vit:layers=12;hidden=768;ctx=577"},
        {"family,layers,hidden,precision,batch,step_ms\ngpt,12,768,bf16,1,10\n",
         "p:2: ctx: expected the tokens of a sample"},
        {"family,layers,hidden,ctx,precision,batch,step_ms\nmoe,12,768,1024,bf16,1,10\n", "p:2: experts: expected"},
        {"family,layers,hidden,ctx,precision,batch,step_ms\nrwkv,12,768,1024,bf16,1,10\n",
         "p:2: family: expected gpt (gpt2, mpt, opt, pythia), llama (mistral"},
        {"family,layers,hidden,ctx,precision,batch,step_ms\nvit,12,768,500,bf16,1,10\n",
         "p:2: model formula: ctx=500 of an image is no square"},
        {"family,layers,hidden,heads,ctx,precision,batch,step_ms\ngpt,12,768,11,500,bf16,1,10\n",
         "p:2: model formula: hidden=768 is not a multiple of heads=11"},
        {"family,layers,hidden,ctx,attention,precision,batch,step_ms\ngpt2,12,768,1024,linear,fp16,1,10\n",
         "p:2: attention: expected fused (sdpa, flash) or plain"},
        {SIZED "gpt,12.5,768,12,0,,1024,50304,,bf16,0,0,4,10,20\n", "p:2: layers: expected a whole number"},
        {SIZED "gpt,12,768,12,0,,1024,50304,,bf16,maybe,0,4,10,20\n", "p:2: recompute: expected 0 or 1"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_profile profile;
        struct tm_error e = {0};
        tm_profile_init(&profile);
        int rc = parse_profile(rows[i].text, &profile, &e);
        const char *said = rc == 0 ? profile.networks[0].model : e.text;
        assert_row(strstr(said, rows[i].says) != NULL && (rc != 0 || strcmp(said, rows[i].says) == 0),
                   "\"%s\": \"%s\" is not \"%s\"", rows[i].text, said, rows[i].says);
        tm_profile_deinit(&profile);
    }
}

/* Steps that ran out of memory are passed over and counted; a file of nothing else is refused. */
static void test_rows_without_a_time(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_error e = {0};
    tm_profile_init(&profile);
    int rc = parse_profile(SIZED "gpt,12,768,12,12,3072,1024,50304,,bf16,0,0,4,10,20\n"
                                 "gpt,12,768,12,12,3072,1024,50304,,bf16,0,0,512,nan,nan\n"
                                 "gpt,12,768,12,12,3072,1024,50304,,bf16,0,0,1024,,\n"
                                 "gpt,12,768,12,12,3072,1024,50304,,bf16,0,0,2048,OOM,\n",
                           &profile, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_int_equal(profile.step_count, 1);
    assert_int_equal(profile.passed_over, 3);
    rc = parse_profile(SIZED "gpt,12,768,12,12,3072,1024,50304,,bf16,0,0,4,oom,\n", &profile, &e);
    assert_int_equal(rc, -(int)TM_EINPUT);
    assert_non_null(strstr(e.text, "no row has a measured time"));
    assert_int_equal(profile.passed_over, 3);
    tm_profile_deinit(&profile);
}

static void test_bad_files_name_the_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < TM_COUNT(bad_files); i++) {
        struct tm_profile profile;
        struct tm_error e = {0};
        tm_profile_init(&profile);
        int rc = parse_profile(bad_files[i].text, &profile, &e);
        assert_row(rc == -(int)TM_EINPUT, "\"%s\": %d %s", bad_files[i].text, rc, e.text);
        assert_row(strstr(e.text, bad_files[i].says) != NULL, "\"%s\": \"%s\" does not hold \"%s\"", bad_files[i].text,
                   e.text, bad_files[i].says);
        assert_row(profile.step_count == 0 && profile.run_count == 0, "\"%s\": rows stayed", bad_files[i].text);
        assert_row(profile.source[0] == '\0', "\"%s\": its source stayed", bad_files[i].text);
        tm_profile_deinit(&profile);
    }
}

static void test_bad_file_leaves_what_was_there(void **state)
{
    (void)state;
    struct tm_profile profile;
    tm_profile_init(&profile);
    assert_int_equal(parse_profile(whole_text, &profile, NULL), 0);
    assert_int_equal(parse_profile(HEAD "source: b\n" STEPS "a,fp32,1,1,1,1\na,fp32,1,1,x,1\n", &profile, NULL),
                     -(int)TM_EINPUT);
    assert_int_equal(profile.step_count, 3);
    assert_int_equal(profile.run_count, 1);
    assert_string_equal(profile.source, "H200, \"eager\", 2024");
    tm_profile_deinit(&profile);
}

/* What is printed parses, and prints the same again. */
static void check_round_trip(const char *name, const struct tm_profile *profile)
{
    struct tm_profile again;
    struct tm_text first;
    struct tm_text second;
    struct tm_error e = {0};
    tm_text_init(&first, 1 << 22);
    tm_text_init(&second, 1 << 22);
    tm_profile_init(&again);
    tm_profile_print(profile, &first);
    int rc = parse_profile(tm_text_string(&first), &again, &e);
    assert_row(rc == 0, "%s: %s", name, e.text);
    tm_profile_print(&again, &second);
    assert_row_string(name, tm_text_string(&second), tm_text_string(&first));
    assert_row(again.step_count == profile->step_count && again.run_count == profile->run_count, "%s", name);
    tm_profile_deinit(&again);
    tm_text_deinit(&first);
    tm_text_deinit(&second);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        whole_text,
        HEAD STEPS "a,fp8,1,0.1,1e-300,1e15\n",
        HEAD "source: x,\"y\",z\r\n" RUNS "a,2,0.5,8,1000,5,3\nb,1,1e9,1,1,1,1\n",
        "network,precision,micro_batch,fwd_ms,bwd_ms,opt_ms\na b,fp16,1,2,3,\n",
    };
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_profile profile;
        struct tm_error e = {0};
        tm_profile_init(&profile);
        int rc = parse_profile(texts[i], &profile, &e);
        assert_row(rc == 0, "\"%s\": %s", texts[i], e.text);
        check_round_trip(texts[i], &profile);
        tm_profile_deinit(&profile);
    }
}

static void test_shared_files(void **state)
{
    (void)state;
    struct tm_profile profile;
    skip_without(H200_STEPS);
    skip_without(DDP_GRID);
    profile_from(H200_STEPS, &profile);
    assert_true(profile.step_count == 107 && profile.run_count == 0);
    for (size_t i = 0; i < profile.step_count; i++)
        assert_row(profile.steps[i].step_ms_p10 > 0
                       ? profile.steps[i].step_ms_p10 < 1.1 * tm_profile_step_ms(&profile.steps[i])
                       : isnan(profile.steps[i].step_ms_p10),
                   "row %zu: p10 lies far above the median", i + 2);
    check_round_trip(H200_STEPS, &profile);
    tm_profile_deinit(&profile);
    profile_from(DDP_GRID, &profile);
    assert_true(profile.step_count == 0 && profile.run_count == 47);
    check_round_trip(DDP_GRID, &profile);
    tm_profile_deinit(&profile);
}

static void test_load(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_profile profile;
    struct tm_error e = {0};
    tm_profile_init(&profile);
    assert_int_equal(env->file_write(env, "/p.csv", whole_text, strlen(whole_text), NULL), 0);
    assert_int_equal(tm_profile_load(env, "/p.csv", &profile, &e), 0);
    assert_int_equal(profile.step_count, 3);
    assert_int_equal(tm_profile_load(env, "/q.csv", &profile, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "/q.csv");
    assert_int_equal(env->file_write(env, "/bad", "x\n", 2, NULL), 0);
    assert_int_equal(tm_profile_load(env, "/bad", &profile, &e), -(int)TM_EINPUT);
    assert_error_has(e, "/bad:1: first line");
    assert_int_equal(profile.step_count, 3);
    tm_profile_deinit(&profile);
    tm_env_virtual_destroy(env);
}

static int parse_once(const char *text)
{
    struct tm_profile profile;
    tm_profile_init(&profile);
    int rc = parse_profile(text, &profile, NULL);
    tm_profile_deinit(&profile);
    return rc;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct tm_text many;
    tm_text_init(&many, 1 << 20);
    tm_text_puts(&many, HEAD STEPS);
    for (int i = 0; i < 200; i++) /* more than one chunk of the arena, and arrays that grow */
        tm_text_printf(&many, "network-with-a-rather-long-name-%d,fp32,1,2,3,4\n", i);
    assert_int_equal(tm_text_status(&many, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = parse_once(whole_text));
    TM_FAIL_EACH_ALLOC(rc = parse_once(tm_text_string(&many)));
    tm_text_deinit(&many);
}

#define GRADIENTS "[gradient]\nnetwork,bytes,ready\n"

static void test_gradients(void **state)
{
    (void)state;
    struct tm_profile profile, again;
    struct tm_error e = {0};
    struct tm_text text;
    tm_profile_init(&profile);
    tm_profile_init(&again);
    tm_text_init(&text, 1 << 16);
    assert_int_equal(parse_profile(HEAD GRADIENTS "mlp,4096,0.25\nmlp,8192,1\n", &profile, &e), 0);
    assert_int_equal(profile.gradient_count, 2);
    assert_string_equal(profile.gradients[1].network, "mlp");
    assert_true(profile.gradients[0].bytes == 4096 && profile.gradients[0].ready == 0.25);
    tm_profile_print(&profile, &text);
    assert_int_equal(parse_profile(tm_text_string(&text), &again, &e), 0);
    assert_true(again.gradient_count == 2 && again.gradients[1].bytes == 8192 && again.gradients[1].ready == 1);
    static const char *const bad[] = {"mlp,0,0.5\n", "mlp,1,1.5\n", "mlp,1,-0.1\n",
                                      "mlp,1,\n",    ",1,0.5\n",    "mlp,x,0.5\n"};
    for (size_t i = 0; i < TM_COUNT(bad); i++) {
        tm_text_clear(&text);
        tm_text_printf(&text, HEAD GRADIENTS "%s", bad[i]);
        assert_row(parse_profile(tm_text_string(&text), &profile, &e) == -(int)TM_EINPUT, "row %zu", i);
        assert_row(profile.gradient_count == 2 && strstr(e.text, ":4:") != NULL, "row %zu: %s", i, e.text);
    }
    tm_text_deinit(&text);
    tm_profile_deinit(&again);
    tm_profile_deinit(&profile);
}

/* ---- networks and layers: what a profiler writes ---- */

static const char job_text[] =
    HEAD "source: torch on cpu\n[network]\nnetwork,optimizer_states,input\nnet,1,64 tokens\n[step]\n"
         "network,gpu,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,data_ms,other_ms,step_ms_p90,"
         "iterations,micro_batches,busy_cores,cores,overhead_percent\n"
         "net,cpu,fp32,8,10,20,5,1,2,80,40,2,0.5,2,0.25\n"
         "[layer]\nnetwork,name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied,"
         "forward_ms,backward_ms\n"
         "net,in,embedding,1000,0,640,64,640,1,out,0.5,\n"
         "net,h.0,block,3000,1e6,900,300,640,10,,5,11\n"
         "net,out,matmul,0,2e6,700,640,320,2,in,4.5,9\n"
         "[gradient]\nnetwork,bytes,ready\nnet,12000,0.5\nnet,4000,1\n";

static void test_profiled_job(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_model model;
    struct tm_error e = {0};
    const char *network = NULL;
    tm_profile_init(&profile);
    tm_model_init(&model);
    assert_row(parse_profile(job_text, &profile, &e) == 0, "%s", e.text);
    const struct tm_profile_step *s = &profile.steps[0];
    assert_true(s->data_ms == 1 && s->other_ms == 2 && s->step_ms_p90 == 80 && s->iterations == 40);
    assert_true(s->micro_batches == 2 && s->busy_cores == 0.5 && s->cores == 2 && s->overhead_percent == 0.25);
    assert_true(tm_profile__whole_step_ms(s) == 2 * 30 + 5 + 1 + 2);
    assert_true(profile.layer_count == 3 && profile.layers[0].forward_ms == 0.5);
    assert_true(isnan(profile.layers[0].backward_ms) && profile.layers[1].backward_ms == 11);
    check_round_trip("a profiled job", &profile);
    assert_int_equal(tm_profile_choose(&profile, "p", NULL, &network, &e), 0);
    assert_string_equal(network, "net");
    assert_row(tm_profile_model(&profile, "p", network, &model, &e) == 0, "%s", e.text);
    assert_string_equal(model.name, "net");
    assert_string_equal(model.input, "64 tokens");
    assert_true(model.optimizer_states == 1 && model.layer_count == 3);
    assert_true(model.layers[0].tied == 2 && model.layers[2].tied == 0 && model.layers[1].tied == -1);
    assert_true(model.layers[1].kind == TM_LAYER_block && model.layers[1].forward_flops == 1e6);
    assert_true(tm_model_totals(&model).params == 4000);
    assert_int_equal(tm_profile_choose(&profile, "p", "nett", &network, &e), -(int)TM_EINPUT);
    assert_error_has(e, "p: it has no layers of \"nett\"");
    tm_model_deinit(&model);
    tm_profile_deinit(&profile);
}

static void test_profiles_without_a_choice(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {HEAD STEPS "a,fp32,1,1,1,1\n", "p: it has no table [layer]: give --model,"},
        {HEAD "[layer]\nnetwork,name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops\n"
              "a,x,norm,1,1,1,1,1,1\nb,x,norm,1,1,1,1,1,1\n",
         "p: it has layers of several networks; choose one with --network"},
        {HEAD "[layer]\nnetwork,name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied\n"
              "a,x,norm,1,1,1,1,1,1,y\n",
         "p: layer x is tied to y, which is not another layer"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_profile profile;
        struct tm_model model;
        struct tm_error e = {0};
        const char *network = NULL;
        tm_profile_init(&profile);
        tm_model_init(&model);
        assert_row(parse_profile(rows[i].text, &profile, &e) == 0, "row %zu: %s", i, e.text);
        int rc = tm_profile_choose(&profile, "p", NULL, &network, &e);
        if (rc == 0) rc = tm_profile_model(&profile, "p", network, &model, &e);
        assert_row(rc == -(int)TM_EINPUT && strstr(e.text, rows[i].says) != NULL, "row %zu: %s", i, e.text);
        tm_model_deinit(&model);
        tm_profile_deinit(&profile);
    }
}

static int update_with(struct tm_env *env, const char *text, struct tm_profile *profile, struct tm_error *e)
{
    assert_int_equal(env->file_write(env, "/p", text, strlen(text), NULL), 0);
    return tm_profile_update(env, "/p", profile, e);
}

/* Another batch of the same network is kept beside; the same batch, and its layers and gradients, are replaced. */
static void test_update(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_profile profile;
    struct tm_error e = {0};
    tm_profile_init(&profile);
    assert_int_equal(update_with(env, job_text, &profile, &e), 0);
    assert_int_equal(update_with(env, job_text, &profile, &e), 0);
    assert_true(profile.step_count == 1 && profile.layer_count == 3 && profile.gradient_count == 2);
    assert_int_equal(update_with(env, HEAD STEPS "net,fp32,16,1,1,1\nnet,fp32,16,2,2,2\n", &profile, &e), 0);
    assert_true(profile.step_count == 3 && profile.layer_count == 3 && profile.network_count == 1);
    assert_int_equal(update_with(env, HEAD STEPS "net,fp32,16,3,3,3\nother,fp32,16,2,2,2\n", &profile, &e), 0);
    assert_true(profile.step_count == 3 && profile.steps[0].micro_batch == 8 && profile.steps[1].forward_ms == 3);
    assert_int_equal(update_with(env, HEAD GRADIENTS "net,7,1\n" RUNS "a,2,1,1,1,1,1\n", &profile, &e), 0);
    assert_true(profile.gradient_count == 1 && profile.gradients[0].bytes == 7 && profile.run_count == 1);
    assert_int_equal(update_with(env, HEAD RUNS "a,2,1,1,1,5,1\na,2,2,1,1,1,1\n", &profile, &e), 0);
    assert_true(profile.run_count == 2 && profile.runs[0].iter_ms == 5);
    assert_int_equal(update_with(env, HEAD RUNS "a,2,x,1,1,5,1\n", &profile, &e), -(int)TM_EINPUT);
    assert_true(profile.run_count == 2 && profile.gradient_count == 1);
    tm_profile_deinit(&profile);
    tm_env_virtual_destroy(env);
}

static int model_once(void)
{
    struct tm_profile profile;
    struct tm_model model;
    tm_profile_init(&profile);
    tm_model_init(&model);
    int rc = parse_profile(job_text, &profile, NULL);
    if (rc == 0) rc = tm_profile_model(&profile, "p", "net", &model, NULL);
    tm_model_deinit(&model);
    tm_profile_deinit(&profile);
    return rc;
}

static void test_failing_allocations_of_models(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = model_once());
}

TM_TEST_MAIN(TM_TEST(test_profiled_job), TM_TEST(test_profiles_without_a_choice), TM_TEST(test_update),
             TM_TEST(test_failing_allocations_of_models), TM_TEST(test_own_form), TM_TEST(test_gradients),
             TM_TEST(test_optional_columns), TM_TEST(test_foreign_forms), TM_TEST(test_other_peoples_columns),
             TM_TEST(test_rows_of_sizes), TM_TEST(test_rows_without_a_time), TM_TEST(test_bad_files_name_the_place),
             TM_TEST(test_bad_file_leaves_what_was_there), TM_TEST(test_round_trip), TM_TEST(test_shared_files),
             TM_TEST(test_load), TM_TEST(test_failing_allocations))

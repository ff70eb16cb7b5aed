/* A plan as a job file: the user's own document, with the fleet that was chosen. */
#include "plan/emit.h"

#include "base/test/harness.h"

#include <math.h>
#include <string.h>

static const struct tm_instance_type gpu = {.name = "g4dn.xlarge", .cloud = "aws"};
static const struct tm_instance_type small = {.name = "c5.xlarge", .cloud = "aws"};
static const struct tm_offer gpu_offer = {
    .region = "us-east-1", .zone = "us-east-1a", .spot_usd_h = 0.2104, .on_demand_usd_h = 0.526, .band = -1};
static const struct tm_offer small_offer = {
    .region = "us-east-1", .zone = "", .spot_usd_h = NAN, .on_demand_usd_h = 0.17, .band = -1};

static int emit(const char *yaml, const char *trace, const struct tm_emit_key *keys, size_t key_count,
                struct tm_text *out)
{
    struct tm_plan_request *request = tm_calloc(1, sizeof *request);
    struct tm_plan_answer *answer = tm_calloc(1, sizeof *answer);
    struct tm_job job;
    int rc = request == NULL || answer == NULL ? -(int)TM_ENOMEM : 0;
    tm_job_init(&job);
    if (rc == 0 && yaml != NULL) rc = tm_job_parse("job.yaml", yaml, strlen(yaml), &job, NULL);
    if (rc == 0) {
        *request = (struct tm_plan_request){
            .supply = {.batch = 64, .loss_per_s = NAN, .default_loss_per_s = 1 / 86400.0},
            .job = {.samples = 1000, .burst_share = 0.5, .burst_size = 0.25, .outage_s = 900, .replace_s = 90.5}};
        answer->fleet.parts[0] = (struct tm_plan_part){&gpu, &gpu_offer, 4, 2};
        answer->fleet.part_count = 1;
        answer->fleet.anchor = (struct tm_plan_anchor_kind){&small, &small_offer};
        answer->fleet.anchor_instances = 1;
        answer->prediction.micro_batch = 12;
        struct tm_emit what = {.request = request,
                               .answer = answer,
                               .job = yaml != NULL ? &job : NULL,
                               .file = "job.yaml",
                               .trace = trace,
                               .keys = keys,
                               .key_count = key_count};
        rc = tm_emit_job(&what, out, NULL);
        if (rc == 0) rc = tm_text_status(out, NULL);
    }
    tm_job_deinit(&job);
    tm_free(request);
    tm_free(answer);
    return rc;
}

/* A fleet of two types is written as choices that train together; with on-demand instances among them it is not. */
static void mixed_types_are_choices(void **state)
{
    (void)state;
    struct tm_plan_request *request = tm_calloc(1, sizeof *request);
    struct tm_plan_answer *answer = tm_calloc(1, sizeof *answer);
    assert_true(request != NULL && answer != NULL);
    *request = (struct tm_plan_request){.supply = {.batch = 64, .loss_per_s = NAN, .default_loss_per_s = 1 / 86400.0},
                                        .job = {.samples = 1000, .burst_share = 0.5, .outage_s = 900, .replace_s = 90}};
    answer->fleet.parts[0] = (struct tm_plan_part){&gpu, &gpu_offer, 4, 0};
    answer->fleet.parts[1] = (struct tm_plan_part){&small, &gpu_offer, 2, 0};
    answer->fleet.part_count = 2;
    answer->prediction.micro_batch = 4;
    struct tm_emit what = {.request = request, .answer = answer, .file = "job.yaml"};
    for (int on_demand = 0; on_demand < 2; on_demand++) {
        struct tm_text out;
        tm_text_init(&out, 1 << 16);
        answer->fleet.parts[1].on_demand = on_demand;
        assert_int_equal(tm_emit_job(&what, &out, NULL), 0);
        assert_true((strstr(tm_text_string(&out), "across_types: true") != NULL) == (on_demand == 0));
        assert_true((strstr(tm_text_string(&out), "rent: all") != NULL) == (on_demand == 0));
        assert_true((strstr(tm_text_string(&out), "market: spot, limit: 4") != NULL) == (on_demand == 0));
        assert_true((strstr(tm_text_string(&out), "market: spot, count: 4") != NULL) == (on_demand == 1));
        tm_text_deinit(&out);
    }
    tm_free(request);
    tm_free(answer);
}

#define POOLS                                                                                                          \
    "  pools:\n"                                                                                                       \
    "    - {instance: g4dn.xlarge, cloud: aws, region: us-east-1, zone: us-east-1a, market: spot, count: 4, role: "    \
    "trains, price: 0.2104, mean_life: 24h}\n"                                                                         \
    "    - {instance: g4dn.xlarge, cloud: aws, region: us-east-1, zone: us-east-1a, market: on-demand, count: 2, "     \
    "role: trains, price: 0.526}\n"                                                                                    \
    "    - {instance: c5.xlarge, cloud: aws, region: us-east-1, market: on-demand, count: 1, role: keeps copies, "     \
    "price: 0.17}\n"                                                                                                   \
    "  losses: {bursts: 0.5, burst_size: 0.25, outage: 15m, replace: 90500ms}\n"

static void keeps_what_the_user_gave(void **state)
{
    static const struct tm_emit_key keys[] = {{.key = "deadline", .text = "6h"},
                                              {.key = "quotas"},
                                              {.map = "quotas", .key = "aws", .text = "8"},
                                              {.map = "resources", .key = "region", .text = "a,b", .list = true}};
    static const struct {
        const char *yaml;
        size_t keys;
        const char *text;
    } rows[] = {
        {"name: a\nsteps: 16\nbatch: 64\nmicro_batch: 32\noptimizer: {lr: 0.1}\nrun: x y\n"
         "fleet: {limit: 9, speed: 60, trace: z.csv, on_demand: 1}\nanchors: 1x m5.large\n",
         0,
         "name: a\nsteps: 16\nbatch: 64\nmicro_batch: 32\noptimizer:\n  lr: 0.1\nrun: x y\nfleet:\n  speed: "
         "60\n" POOLS},
        {"samples: 1000\ndeadline: 1h\nquotas: {V100: 1}\n", 4,
         "samples: 1000\ndeadline: 6h\nquotas:\n  aws: 8\nresources:\n  region: [a, b]\nbatch: 64\nsteps: "
         "16\nmicro_batch: 8\nfleet:\n" POOLS},
        {"anchors: none\nrestart_time: 5m\nsteps: 16\nbatch: 64\nmicro_batch: 8\n", 0,
         "anchors: none\nrestart_time: 5m\nsteps: 16\nbatch: 64\nmicro_batch: 8\nfleet:\n" POOLS},
        {NULL, 1, "name: tidemill\ndeadline: 6h\nbatch: 64\nsteps: 16\nmicro_batch: 8\nfleet:\n" POOLS},
    };
    struct tm_text text;
    (void)state;
    tm_text_init(&text, 1 << 16);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_job back;
        struct tm_error e = {0};
        tm_text_clear(&text);
        assert_int_equal(emit(rows[i].yaml, NULL, keys, rows[i].keys, &text), 0);
        const char *body = strchr(tm_text_string(&text), '\n') + 1; /* behind the heading */
        assert_row_string("a job", body, rows[i].text);
        tm_job_init(&back);
        assert_row(tm_job_parse("back.yaml", tm_text_string(&text), text.length, &back, &e) == 0, "%s", e.text);
        assert_true(back.steps == 16 && back.batch == 64 && back.fleet.pools.count == 3);
        assert_true(tm_job_fleet_is_drawn(&back.fleet));
        assert_row(tm_job_fleet_settle(&back.fleet, "back.yaml", &e) == 0, "%s", e.text);
        tm_job_deinit(&back);
    }
    tm_text_deinit(&text);
}

static void names_the_trace_it_was_judged_by(void **state)
{
    struct tm_text text;
    (void)state;
    tm_text_init(&text, 1 << 16);
    assert_int_equal(emit("fleet: {losses: {mean_life: 1h}}\n", "hadp", NULL, 0, &text), 0);
    assert_non_null(strstr(tm_text_string(&text), "  trace: hadp\n"));
    assert_null(strstr(tm_text_string(&text), "losses"));
    assert_null(strstr(tm_text_string(&text), "mean_life"));
    tm_text_deinit(&text);
}

static void without_memory(void **state)
{
    static const struct tm_emit_key key = {.map = "resources", .key = "region", .text = "a,b", .list = true};
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_text text;
        tm_text_init(&text, 1 << 16);
        rc = emit("name: a\nsteps: 16\n", NULL, &key, 1, &text);
        tm_text_deinit(&text);
    });
}

TM_TEST_MAIN(TM_TEST(mixed_types_are_choices), TM_TEST(keeps_what_the_user_gave),
             TM_TEST(names_the_trace_it_was_judged_by), TM_TEST(without_memory))

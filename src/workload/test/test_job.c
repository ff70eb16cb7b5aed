/* Job files: what is read, what is refused and in which words. */
#include "workload/job.h"

#include "base/test/harness.h"

#include <math.h>
#include <string.h>

static int parse(const char *text, struct tm_job *job, struct tm_error *e)
{
    tm_job_init(job);
    return tm_job_parse("job.yaml", text, strlen(text), job, e);
}

static void test_reads_a_plan(void **state)
{
    (void)state;
    static const char text[] =
        "name: bert\nmodel: bert-large\nsamples: 20000000\nbatch: 256\ndeadline: 1d\n"
        "budget: $50.25\nmax_hourly: 3\nprobability: 0.9\nnum_nodes: 8\n"
        "resources:\n  infra: aws/us-east-1\n  accelerators: [V100, 'A100:8']\n  use_spot: true\n"
        "quotas: {V100: 16, 'us-east-1:on-demand': 2}\n"
        "envs: {A: 1, B: two}\nsetup: |\n  one\n  two\nrun: train\n";
    struct tm_job job;
    struct tm_error e = {0};
    assert_row(parse(text, &job, &e) == 0, "%s", e.text);
    assert_string_equal(job.name, "bert");
    assert_string_equal(job.model, "bert-large");
    assert_true(job.samples == 20000000 && job.batch == 256 && job.num_instances == 8);
    assert_true(job.deadline_ms == 86400000 && job.budget_usd_millionths == 50250000);
    assert_true(job.max_hourly_usd_millionths == 3000000 && job.probability == 0.9);
    assert_true(job.resources.infra.count == 1 && job.resources.accelerators.count == 2);
    assert_string_equal(job.resources.accelerators.items[1], "A100:8");
    assert_string_equal(job.resources.use_spot, "true");
    assert_true(job.quotas.count == 2 && job.envs.count == 2);
    assert_string_equal(job.quotas.items[1].name, "us-east-1:on-demand");
    assert_string_equal(job.envs.items[1].text, "two");
    assert_string_equal(job.setup, "one\ntwo\n");
    tm_job_deinit(&job);
}

/* A training job reads too: its network, also as a formula, and all that the built-in engine needs. */
static void test_reads_a_training_job(void **state)
{
    (void)state;
    static const char text[] = "model:\n  gpt: {layers: 4, hidden: 128, heads: 4, ctx: 64, dropout: 0.1}\n"
                               "data: kjv-new-testament\nbatch: 24\nmicro_batch: 2\nsteps: 300\n"
                               "optimizer: {lr: 0.1}\nschedule: {warmup: 2}\ndeterminism: fast\nmemory: 1GB\n"
                               "checkpoint: {dir: x, every: 3}\n";
    struct tm_job job;
    struct tm_error e = {0};
    assert_row(parse(text, &job, &e) == 0, "%s", e.text);
    assert_string_equal(job.model, "gpt:layers=4,hidden=128,heads=4,ctx=64,vocab=256");
    assert_true(job.steps == 300 && job.micro_batch == 2);
    assert_true(job.gpt.layers == 4 && job.gpt.hidden == 128 && job.gpt.ctx == 64 && job.gpt.dropout == 0.1);
    assert_true(job.optimizer.lr == 0.1 && isnan(job.optimizer.clip) && job.schedule.warmup == 2);
    assert_true(job.memory == 1000000000 && job.checkpoint.every == 3);
    assert_string_equal(job.checkpoint.dir, "x");
    assert_true(tm_job_says(&job, "model.gpt.ctx") && tm_job_says(&job, "checkpoint"));
    assert_true(!tm_job_says(&job, "seed") && !tm_job_says(&job, "steps.more") && !tm_job_says(&job, "mod"));
    assert_int_equal(tm_job_wrong(&job, "model.gpt.ctx", &e, "too many: %d", 64), -(int)TM_EINPUT);
    assert_string_equal(e.text, "job.yaml:2:48: model.gpt.ctx: too many: 64");
    assert_int_equal(tm_job_wrong(&job, "seed", &e, "none"), -(int)TM_EINPUT);
    assert_string_equal(e.text, "job.yaml: seed: none");
    tm_job_deinit(&job);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"modle: x\n", "job.yaml:1:8: modle: unknown key; did you mean \"model\"?"},
        {"deadline: soon\n", "deadline: expected duration, got \"soon\"; write for example 24h"},
        {"batch: 0\n", "batch: expected whole number from 1 to 1073741824, got \"0\""},
        {"deadline: 0s\n", "job.yaml:1:11: deadline: must be more than 0, got \"0s\"; write for example 24h, or leave"},
        {"budget: 0\n", "budget: must be more than 0"},
        {"max_hourly: $0\n", "max_hourly: must be more than 0"},
        {"checkpoint_time: 0s\n", "checkpoint_time: must be more than 0"},
        {"fleet: {pools: []}\n", "job.yaml:1:16: fleet.pools: the list is empty; write at least one item"},
        {"fleet: {losses: {mean_life: 0s}}\n", "fleet.losses.mean_life: must be at least 1s, got \"0s\""},
        {"fleet: {pools: [{instance: a, count: 1, mean_life: 0s}]}\n", "fleet.pools[1].mean_life: must be at least 1s"},
        {"resources: {clod: aws}\n", "resources.clod: unknown key"},
        {"resources: {use_spot: maybe}\n", "use_spot: expected true or false, got \"maybe\""},
        {"quotas: 3\n", "quotas: expected a map of names and values"},
        {"quotas: {V100: many}\n", "quotas.V100: expected how many instances, or vCPUs (64vcpus), got \"many\""},
        {"quotas: {V100: -1}\n", "quotas.V100: expected how many instances"},
        {"envs: {A: [1]}\n", "envs.A: expected a string or a number"},
        {"model: {bert: {}}\n", "model: expected a name, or gpt with its sizes"},
        {"model: {gpt: {layers: [1]}}\n", "model.gpt.layers: expected whole number from 1 to 100000, got a list"},
        {"- 1\n", "expected a map of keys and values"},
        {"probability: 2\n", "probability: expected"},
        {"name: a\ndeterminism: exact\n", "job.yaml:2:14: determinism: expected one of bitwise, fast, got \"exact\""},
        {"determinism: bitwize\n", "did you mean bitwise?"},
        {"run: a\noptimizer: {lr: abc}\n", "job.yaml:2:17: optimizer.lr: expected number"},
        {"run: a\noptimizer: 7\n", "optimizer: expected map, got \"7\""},
        {"run: a\nschedule: {warmup: -3}\n", "job.yaml:2:20: schedule.warmup: expected whole number from 0 to"},
        {"run: a\nmemory: lots\n", "memory: expected size in bytes, got \"lots\"; write for example 4GB"},
        {"run: a\noptimizer: {rl: 1}\n", "job.yaml:2:17: optimizer.rl: unknown key; did you mean \"lr\"?"},
        {"checkpoint: {every: 5}\n", "key \"checkpoint.dir\" is missing"},
        {"model: {gpt: {layer: 4}}\n", "model.gpt.layer: unknown key; did you mean \"layers\"?"},
        {"determinism: [fast]\n", "determinism: expected one of bitwise, fast"},
        {"precision: fp17\n", "job.yaml:1:12: precision: expected one of fp32"},
        {"objective: cheap\n", "objective: expected one of cheapest, fastest, pareto"},
        {"market: sport\n", "market: expected one of mixed, spot, on-demand"},
        {"envs: {A=B: 1}\n", "job.yaml:1: envs: \"A=B\" is not a valid variable name;"},
        {"max_failures: -1\n", "max_failures: expected"},
        {"fleet: {pods: {namespace: My_Space}}\n", "job.yaml:1:27: fleet.pods.namespace: \"My_Space\" cannot be the "
                                                   "name of a namespace: write at most 63 letters"},
        {"fleet: {pods: {namespace: a.b}}\n", "fleet.pods.namespace: \"a.b\" cannot be"},
        {"fleet: {pods: {namespace: ''}}\n", "fleet.pods.namespace: \"\" cannot be"},
        {"fleet: {pods: {service_account: a b}}\n", "job.yaml:1:33: fleet.pods.service_account: \"a b\" cannot be"},
        {"fleet: {pods: {priority: High}}\n", "fleet.pods.priority: \"High\" cannot be the name of a priority class"},
        {"fleet: {pods: {image: 'https://x/y'}}\n", "fleet.pods.image: \"https://x/y\" cannot be the name of an image"},
        {"fleet: {pods: {image: 'a b'}}\n", "write it as for docker pull"},
        {"fleet: {pods: {gpu: gpu}}\n", "fleet.pods.gpu: \"gpu\" cannot be the name of a resource: write DOMAIN/NAME"},
        {"fleet: {pods: {cpu: 4 cores}}\n", "fleet.pods.cpu: expected processors, such as 4 or 500m, got \"4 cores\""},
        {"fleet: {pods: {memory: 16GB}}\n", "fleet.pods.memory: expected memory, such as 16Gi or 500M, got \"16GB\""},
        {"fleet: {pods: {memory: '0'}}\n", "fleet.pods.memory: expected memory"},
        {"fleet: {pods: {node_selector: [a=b, nothing]}}\n",
         "fleet.pods.node_selector: expected NAME=VALUE, a label of nodes, such as"},
        {"fleet: {pods: {node_selector: ['/a=b']}}\n", "got \"/a=b\""},
        {"fleet: {pods: {node_selector: [a=-b]}}\n", "got \"a=-b\""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_job job;
        struct tm_error e = {0};
        assert_row(parse(rows[i].text, &job, &e) == -(int)TM_EINPUT, "%s", rows[i].text);
        assert_row(strstr(e.text, rows[i].says) != NULL, "%s: \"%s\" does not hold \"%s\"", rows[i].text, e.text,
                   rows[i].says);
        tm_job_deinit(&job);
    }
}

/* What Kubernetes takes of pods is taken. */
static void test_pods(void **state)
{
    (void)state;
    static const char *const words[] = {
        "namespace: ml-1",
        "image: tidemill",
        "image: 'reg.io:5000/a/b_c:0.1'",
        "image: 'a@sha256:0123'",
        "service_account: a.b",
        "gpu: amd.com/gpu",
        "cpu: 4",
        "cpu: 0.5",
        "cpu: 500m",
        "memory: 16Gi",
        "memory: 1e9",
        "memory: 2E-1",
        "priority: system-x",
        "node_selector: a=",
        "node_selector: [a.b/c_d=E.f-1, x=y]",
    };
    for (size_t i = 0; i < TM_COUNT(words); i++) {
        char text[200];
        struct tm_job job;
        struct tm_error e = {0};
        (void)snprintf(text, sizeof text, "fleet: {pods: {%s}}\n", words[i]);
        assert_row(parse(text, &job, &e) == 0, "%s: %s", text, e.text);
        tm_job_deinit(&job);
    }
}

/* A task of SkyPilot's managed jobs is a job, with what SkyPilot reads itself; elsewhere that is refused by name. */
static void test_a_task_of_skypilots(void **state)
{
    (void)state;
    static const char task[] = "resources:\n  accelerators: {A100: 8}\n  use_spot: true\n  cpus: 8+\n  memory: 64+\n"
                               "  disk_size: 100\n  image_id: x\n  ports: [80]\n  labels: {a: b}\n"
                               "  job_recovery: {strategy: failover}\n  any_of: [{infra: aws}, {infra: gcp}]\n"
                               "file_mounts: {/a: s3://b}\nconfig: {aws: {vpc: x}}\nvolumes: {/m: v}\nrun: a\n";
    static const char of_sky[] = "cloud: skypilot\nresources: {cpus: 8+}\n";
    struct tm_job job;
    struct tm_error e = {0};
    assert_row(parse(task, &job, &e) == 0, "%s", e.text);
    assert_string_equal(job.resources.use_spot, "true");
    assert_int_equal(tm_job_check_sky(&job, &e), -(int)TM_EINPUT);
    assert_error_has(e, "config: SkyPilot alone reads this key; run it with cloud: skypilot");
    tm_job_deinit(&job);
    assert_row(parse(of_sky, &job, &e) == 0, "%s", e.text);
    assert_int_equal(tm_job_check_sky(&job, &e), 0);
    tm_job_deinit(&job);
}

static int parse_and_drop(void)
{
    struct tm_job job;
    int rc =
        parse("model: {gpt: {layers: 2}}\nquotas: {V100: 1}\nenvs: {A: b}\nresources: {infra: [a, b]}\n", &job, NULL);
    tm_job_deinit(&job);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = parse_and_drop());
}

TM_TEST_MAIN(TM_TEST(test_reads_a_plan), TM_TEST(test_reads_a_training_job), TM_TEST(test_refuses), TM_TEST(test_pods),
             TM_TEST(test_a_task_of_skypilots), TM_TEST(test_without_memory))

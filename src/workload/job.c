#include "workload/job.h"

#include "base/content.h"
#include "base/number.h"
#include "base/precision.h"
#include "base/suggest.h"
#include "workload/job_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ANCHORS_MAX = 64 };

static const struct tm_field resource_fields[] = {
    {.key = "infra",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_resources, infra),
     .example = "aws/us-east-1",
     .doc = "where to rent: CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE; with several, any of them"},
    {.key = "cloud",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_resources, cloud),
     .doc = "clouds that may be used"},
    {.key = "region",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_resources, region),
     .doc = "regions that may be used"},
    {.key = "zone",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_resources, zone),
     .doc = "zones that may be used"},
    {.key = "instance_type",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_resources, instance_type),
     .doc = "instance types that may be used"},
    {.key = "accelerators",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job_resources, accelerators),
     .example = "V100:1",
     .doc = "GPUs that may be used: NAME, or NAME:COUNT of one instance"},
    {.key = "use_spot",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job_resources, use_spot),
     .example = "true",
     .doc = "true: spot only; false: on-demand only; omitted: whichever is best"},
    {.key = NULL},
};

const char *const tm_job_engine_names[] = {"gpt", "paced", "command", NULL};
static const char *const engine_choices[] = {"gpt", "paced", NULL};
const char *const tm_job_cloud_names[] = {"local", "hosts", "slurm",    "kubernetes", "aws",
                                          "azure", "gcp",   "skypilot", "join",       NULL};

/* `envs` and `quotas`, which are maps of the user's own names, are not in it. */
static const struct tm_field job_fields[] = {
    {.key = "name", .type = TM_FIELD_STRING, .offset = offsetof(struct tm_job, name), .doc = "name of the job"},
    {.key = "resources",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job, resources),
     .fields = resource_fields,
     .doc = "what may be rented"},
    {.key = "num_nodes",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, num_instances),
     .min = 1,
     .max = 100000,
     .doc = "number of instances; a plan rents at most this many"},
    {.key = "workdir",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, workdir),
     .doc = "the folder in which setup and run are executed"},
    {.key = "setup",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, setup),
     .doc = "commands that set up a new instance"},
    {.key = "run", .type = TM_FIELD_STRING, .offset = offsetof(struct tm_job, run), .doc = "commands that train"},
    {.key = "model",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, model),
     .example = "gpt2-1.5b",
     .doc = "what is trained: a shipped model, a model file, or a formula such as gpt: or llama:"},
    {.key = "profile",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, profile),
     .example = "job.tmprofile",
     .doc = "a profile of this job (tidemill profile), which plan takes instead of a model"},
    {.key = "network",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, network),
     .example = "resnet50",
     .doc = "which network of the profile, if it has several"},
    {.key = "profile_gpu",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, profile_gpu),
     .example = "V100",
     .doc = "GPU of the profile, if the file does not say"},
    {.key = "data",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, data),
     .doc = "training data: a file or a folder"},
    {.key = "samples",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, samples),
     .min = 1,
     .max = 1e15,
     .example = "5000000",
     .doc = "how many samples to train"},
    {.key = "steps",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, steps),
     .min = 1,
     .max = 1e12,
     .example = "20000",
     .doc = "how many steps to train; samples is steps times batch"},
    {.key = "batch",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, batch),
     .min = 1,
     .max = 1 << 30,
     .example = "256",
     .doc = "global batch: samples of one step"},
    {.key = "micro_batch",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, micro_batch),
     .min = 1,
     .max = 1 << 30,
     .example = "4",
     .doc = "samples that go through a pipeline at once; fixed for the whole job"},
    {.key = "precision",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, precision),
     .example = "bf16",
     .doc = "number format of training"},
    {.key = "layout",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, layout),
     .example = "4x2",
     .doc = "pipelines x stages to start with"},
    {.key = "seed",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, seed),
     .min = 0,
     .max = 9e15,
     .example = "1",
     .doc = "seed of random numbers"},
    {.key = "deadline",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job, deadline_ms),
     .min = 1,
     .example = "24h",
     .doc = "finish within this time"},
    {.key = "budget",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job, budget_usd_millionths),
     .min = 1,
     .example = "50",
     .doc = "most dollars in total"},
    {.key = "max_hourly",
     .type = TM_FIELD_MONEY,
     .offset = offsetof(struct tm_job, max_hourly_usd_millionths),
     .min = 1,
     .example = "12.50",
     .doc = "most dollars per hour"},
    {.key = "max_nodes",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, max_instances),
     .min = 1,
     .max = 100000,
     .example = "32",
     .doc = "most instances; for a plan, the same as num_nodes"},
    {.key = "probability",
     .type = TM_FIELD_NUMBER,
     .offset = offsetof(struct tm_job, probability),
     .min = 0.01,
     .max = 0.9999,
     .example = "0.95",
     .doc = "smallest acceptable probability of meeting the deadline"},
    {.key = "objective",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, objective),
     .example = "cheapest",
     .doc = "cheapest, fastest or pareto"},
    {.key = "market",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, market),
     .example = "mixed",
     .doc = "mixed, spot or on-demand; use_spot is SkyPilot's name for it"},
    {.key = "checkpoint_time",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job, checkpoint_time_ms),
     .min = 1,
     .example = "20s",
     .doc = "how long a checkpoint delays training"},
    {.key = "restart_time",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job, restart_time_ms),
     .example = "1m",
     .doc = "time from a preemption to the next step"},
    {.key = "checkpoint_interval",
     .type = TM_FIELD_DURATION,
     .offset = offsetof(struct tm_job, checkpoint_interval_ms),
     .min = 1,
     .example = "30m",
     .doc = "time between two checkpoints"},
    {.key = "anchors",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job, anchors),
     .example = "1x c5.xlarge",
     .doc = "on-demand instances that hold copies of the state, as COUNTx TYPE; none: copies go to a store"},
    {.key = "copies",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, copies),
     .example = "s3://my-bucket/my-job",
     .doc = "where a run keeps copy sets: a folder, s3://BUCKET/PREFIX or az://CONTAINER/PREFIX; none: in its state "
            "folder"},
    {.key = "engine",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_job, engine),
     .choices = engine_choices,
     .doc = "engine of a run: gpt (built in) or paced (takes as long as training would, but trains nothing)"},
    {.key = "cloud",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_job, cloud),
     .choices = tm_job_cloud_names,
     .doc = "where a run gets its instances: local (processes of this machine that follow a trace), "
            "hosts (machines of yours, over ssh), slurm (one-node jobs in its partitions), kubernetes (pods), "
            "aws (VMs of EC2), azure (VMs of Azure), gcp (VMs of Compute Engine), skypilot (clusters that it rents), "
            "or join (machines that join by "
            "a ticket)"},
    {.key = "hosts",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_job, fleet.hosts),
     .example = "[gpu1, me@gpu2:2222 gpus=4]",
     .doc = "the same as fleet.hosts"},
    {.key = "policy",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, policy),
     .example = "tidemill",
     .doc = "policy that chooses layouts in a run; checkpoint: the whole fleet restarts at each change"},
    {.key = "max_failures",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, max_failures),
     .min = 0,
     .max = 1000,
     .example = "3",
     .doc = "a run fails after this many worker failures without a new step; 0: it never gives up"},
    {.key = "layers",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct tm_job, layers),
     .min = 1,
     .max = 4096,
     .example = "1",
     .doc = "number of layers, the pieces of state that `run` trains"},
    {.key = "optimizer",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job, optimizer),
     .fields = tm_job__optimizer_fields,
     .doc = "of the built-in engine: AdamW's figures"},
    {.key = "schedule",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job, schedule),
     .fields = tm_job__schedule_fields,
     .doc = "of the built-in engine: how the learning rate goes"},
    {.key = "checkpoint",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job, checkpoint),
     .fields = tm_job__checkpoint_fields,
     .doc = "of the built-in engine: where checkpoints go"},
    {.key = "determinism",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_job, determinism),
     .example = "bitwise",
     .doc = "bitwise: the same bits whatever the layout; fast: sums in the order in which they come"},
    {.key = "memory",
     .type = TM_FIELD_BYTES,
     .offset = offsetof(struct tm_job, memory),
     .example = "4GB",
     .doc = "of the built-in engine: bytes that a worker may use"},
    {.key = "fleet",
     .type = TM_FIELD_MAP,
     .offset = offsetof(struct tm_job, fleet),
     .fields = tm_job_fleet_fields,
     .doc = "the instances of a run"},
    {.key = "notify",
     .type = TM_FIELD_MAPS,
     .offset = offsetof(struct tm_job, notify),
     .fields = tm_notify_fields,
     .size = sizeof(struct tm_notify_target),
     .doc = "whom to tell how a run goes"},
    {.key = "log",
     .type = TM_FIELD_MAPS,
     .offset = offsetof(struct tm_job, log),
     .fields = tm_job__log_fields,
     .size = sizeof(struct tm_log_target),
     .doc = "loggers that get the metrics of every committed step, once"},
    {.key = NULL},
};

void tm_job_init(struct tm_job *job)
{
    *job = (struct tm_job){.engine = TM_FLEET_UNSAID,
                           .max_failures = TM_FLEET_UNSAID,
                           .restart_time_ms = TM_FLEET_UNSAID,
                           .optimizer = tm_job__optimizer_unsaid(),
                           .fleet = tm_job_fleet_unsaid()};
    tm_arena_init(&job->arena, 16 << 20);
}

void tm_job_deinit(struct tm_job *job)
{
    tm_arena_deinit(&job->arena);
    *job = (struct tm_job){0};
}

/* The document with keys that may be taken out of it; what is below them is shared. */
static int copy_root(const struct tm_node *root, struct tm_arena *arena, struct tm_node **out, struct tm_error *e)
{
    struct tm_node *copies = tm_arena_alloc(arena, (root->count + 1) * sizeof *copies);
    size_t count = 0;
    if (copies == NULL) return tm_error_nomem(e);
    copies[count++] = *root;
    for (const struct tm_node *at = root->first; at != NULL; at = at->next) {
        copies[count] = *at;
        if (at->next != NULL) copies[count].next = &copies[count + 1];
        count++;
    }
    if (root->first != NULL) copies[0].first = &copies[1];
    *out = copies;
    return 0;
}

/* Takes a key out of the document; NULL: it is not there. */
static struct tm_node *take(struct tm_node *root, const char *key)
{
    struct tm_node **at = &root->first;
    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    struct tm_node *found = *at;
    if (found == NULL) return NULL;
    *at = found->next;
    root->count--;
    return found;
}

/* ---- what SkyPilot reads itself ---- */

static const char *const sky_keys[] = {"config",  "event_callback", "experimental", "file_mounts", "inputs",
                                       "outputs", "secrets",        "volumes",      NULL};
static const char *const sky_resources[] = {"accelerator_args", "any_of",     "autostop",      "cpus",
                                            "disk_size",        "disk_tier",  "image_id",      "job_recovery",
                                            "labels",           "local_disk", "memory",        "network_tier",
                                            "ordered",          "ports",      "spot_recovery", NULL};

static int leave_key(struct tm_job *job, const char *above, struct tm_node *map, const char *key, struct tm_error *e)
{
    char place[512];
    const struct tm_node *found = take(map, key);
    if (found == NULL || job->sky_only != NULL) return 0;
    job->sky_only =
        tm_arena_printf(&job->arena, "%s: %s%s", tm_node_place(job->file, found, place, sizeof place), above, key);
    return job->sky_only != NULL ? 0 : tm_error_nomem(e);
}

static int leave_to_sky(struct tm_job *job, struct tm_node *root, struct tm_error *e)
{
    struct tm_node *copy = NULL;
    struct tm_node *resources = NULL;
    int rc = 0;
    for (size_t i = 0; rc == 0 && sky_keys[i] != NULL; i++)
        rc = leave_key(job, "", root, sky_keys[i], e);
    for (resources = root->first; resources != NULL && strcmp(resources->key, "resources") != 0;)
        resources = resources->next;
    if (rc != 0 || resources == NULL || resources->kind != TM_NODE_MAP) return rc;
    rc = copy_root(resources, &job->arena, &copy, e);
    for (size_t i = 0; rc == 0 && sky_resources[i] != NULL; i++)
        rc = leave_key(job, "resources.", copy, sky_resources[i], e);
    const struct tm_node *gpus = rc == 0 ? copy->first : NULL;
    while (gpus != NULL && strcmp(gpus->key, "accelerators") != 0)
        gpus = gpus->next;
    if (gpus != NULL && gpus->kind == TM_NODE_MAP) rc = leave_key(job, "resources.", copy, "accelerators", e);
    if (rc != 0) return rc;
    resources->first = copy->first;
    resources->count = copy->count;
    return 0;
}

bool tm_job_rents_vms(const struct tm_job *job)
{
    static const char *const clouds[] = {"aws", "gcp", "azure"};
    for (size_t i = 0; i < sizeof clouds / sizeof *clouds; i++)
        if (strcmp(tm_job_cloud_names[job->cloud], clouds[i]) == 0) return true;
    return false;
}

int tm_job_check_sky(const struct tm_job *job, struct tm_error *e)
{
    if (job->sky_only == NULL || strcmp(tm_job_cloud_names[job->cloud], "skypilot") == 0) return 0;
    return tm_error_set(e, TM_EINPUT, "%s: SkyPilot alone reads this key; run it with cloud: skypilot, or leave it out",
                        job->sky_only);
}

static int line_of(const struct tm_node *root, const char *key)
{
    const struct tm_node *at = root->first;
    while (at != NULL && strcmp(at->key, key) != 0)
        at = at->next;
    return at != NULL ? at->line : 0;
}

static const char *const determinism_names[] = {"bitwise", "fast", NULL};

/* A word that others understand later: it must be one of theirs before anything is rented for it. */
static int check_word(const char *file, const struct tm_node *node, const char *const *words, struct tm_error *e)
{
    char place[512];
    char all[128] = "";
    struct tm_suggest suggest = {.word = node->kind == TM_NODE_SCALAR ? node->text : ""};
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcmp(suggest.word, words[i]) == 0) return 0;
        tm_suggest_offer(&suggest, words[i]);
        size_t length = strlen(all);
        (void)snprintf(all + length, sizeof all - length, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    return tm_error_set(e, TM_EINPUT, "%s: %s: expected one of %s, got \"%.40s\"%s%s%s",
                        tm_node_place(file, node, place, sizeof place), node->key, all, suggest.word,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

static int check_words(const char *file, const struct tm_node *root, struct tm_error *e)
{
    static const char *const objectives[] = {"cheapest", "fastest", "pareto", NULL};
    static const char *const markets[] = {"mixed", "spot", "on-demand", NULL};
    const struct {
        const char *key;
        const char *const *words;
    } keys[] = {{"determinism", determinism_names},
                {"precision", tm_precision_names},
                {"objective", objectives},
                {"market", markets}};
    for (const struct tm_node *at = root->first; at != NULL; at = at->next)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            int rc = strcmp(at->key, keys[i].key) == 0 ? check_word(file, at, keys[i].words, e) : 0;
            if (rc != 0) return rc;
        }
    return 0;
}

/* A model that is a map; one that is a name is like any other key. */
static int take_model(const char *file, struct tm_node *root, struct tm_job *job, struct tm_error *e)
{
    const struct tm_node *model = root->first;
    while (model != NULL && strcmp(model->key, "model") != 0)
        model = model->next;
    if (model == NULL || model->kind != TM_NODE_MAP) return 0;
    return tm_job__read_model(file, take(root, "model"), job, e);
}

/* Takes the value of a key that holds a map of the user's own names out of the document. */
static int take_pairs(const char *file, struct tm_node *root, const char *key, struct tm_arena *arena,
                      struct tm_job_pairs *out, struct tm_error *e)
{
    char place[512];
    struct tm_node *map = take(root, key);
    if (map == NULL || map->kind == TM_NODE_NULL) return 0;
    if (map->kind != TM_NODE_MAP)
        return tm_error_set(e, TM_EINPUT, "%s: %s: expected a map of names and values",
                            tm_node_place(file, map, place, sizeof place), key);
    out->items = tm_arena_alloc(arena, (map->count + 1) * sizeof *out->items);
    if (out->items == NULL) return tm_error_nomem(e);
    for (const struct tm_node *child = map->first; child != NULL; child = child->next) {
        if (child->kind != TM_NODE_SCALAR && child->kind != TM_NODE_NULL)
            return tm_error_set(e, TM_EINPUT, "%s: %s.%.100s: expected a string or a number",
                                tm_node_place(file, child, place, sizeof place), key, child->key);
        const char *text = child->kind == TM_NODE_SCALAR ? child->text : "";
        out->items[out->count++] = (struct tm_job_pair){child->key, text, child->line};
    }
    return 0;
}

/* What setenv would not take. */
static int check_envs(const char *file, const struct tm_job_pairs *envs, struct tm_error *e)
{
    for (size_t i = 0; i < envs->count; i++) {
        const char *name = envs->items[i].name;
        if (name[0] == '\0' || strchr(name, '=') != NULL)
            return tm_error_set(e, TM_EINPUT, "%s:%d: envs: \"%.60s\" is not a valid variable name; write NAME: VALUE",
                                file, envs->items[i].line, name);
    }
    return 0;
}

static int check_quotas(const char *file, const struct tm_job_pairs *quotas, struct tm_error *e)
{
    for (size_t i = 0; i < quotas->count; i++) {
        int64_t limit = 0;
        const char *text = quotas->items[i].text;
        const char *vcpus = strstr(text, "vcpu"); /* what follows is checked where it is read */
        if (!tm_number_i64(text, vcpus != NULL ? (size_t)(vcpus - text) : strlen(text), &limit) || limit < 0 ||
            limit > 1000000)
            return tm_error_set(e, TM_EINPUT,
                                "%s:%d: quotas.%.100s: expected how many instances, or vCPUs (64vcpus), got \"%.40s\"",
                                file, quotas->items[i].line, quotas->items[i].name, text);
    }
    return 0;
}

static int check_spot(const char *file, const struct tm_job *job, struct tm_error *e)
{
    const char *text = job->resources.use_spot;
    if (text == NULL || strcmp(text, "true") == 0 || strcmp(text, "false") == 0) return 0;
    return tm_error_set(e, TM_EINPUT, "%s: resources.use_spot: expected true or false, got \"%.40s\"", file, text);
}

static int settle_pools(struct tm_job *job, struct tm_error *e)
{
    char place[512];
    (void)snprintf(place, sizeof place, "%.400s:%d", job->file, job->fleet_line);
    return tm_job_fleet__settle_partitions(&job->fleet, place, e);
}

int tm_job_parse(const char *file, const char *text, size_t length, struct tm_job *job, struct tm_error *e)
{
    struct tm_job fresh;
    struct tm_node *root = NULL;
    struct tm_node *whole = NULL;
    tm_job_init(&fresh);
    fresh.file = tm_arena_strdup(&fresh.arena, file);
    fresh.folder = "";
    fresh.document = tm_arena_strndup(&fresh.arena, text, length);
    int rc = fresh.file == NULL || fresh.document == NULL
                 ? tm_error_nomem(e)
                 : tm_doc_parse_yaml(file, text, length, &fresh.arena, &whole, e);
    fresh.root = whole;
    if (rc == 0) rc = copy_root(whole, &fresh.arena, &root, e);
    if (rc == 0 && root->kind == TM_NODE_MAP) {
        fresh.name_line = line_of(root, "name");
        fresh.policy_line = line_of(root, "policy");
        fresh.fleet_line = line_of(root, "fleet");
        rc = leave_to_sky(&fresh, root, e);
        if (rc == 0) rc = check_words(file, root, e);
        if (rc == 0) rc = take_model(file, root, &fresh, e);
        if (rc == 0) rc = take_pairs(file, root, "envs", &fresh.arena, &fresh.envs, e);
        if (rc == 0) rc = take_pairs(file, root, "quotas", &fresh.arena, &fresh.quotas, e);
        if (rc == 0) rc = check_envs(file, &fresh.envs, e);
        if (rc == 0) rc = check_quotas(file, &fresh.quotas, e);
    }
    if (rc == 0) rc = tm_fields_read(file, root, job_fields, &fresh.arena, &fresh, e);
    if (rc == 0) rc = settle_pools(&fresh, e);
    if (rc == 0) rc = check_spot(file, &fresh, e);
    if (rc == 0) rc = tm_job__check_pods(&fresh, e);
    if (rc == 0) rc = tm_notify_check(&fresh.notify, file, e);
    if (rc == 0) rc = tm_job__log_check(&fresh.log, file, e);
    if (fresh.steps == 0 && fresh.samples > 0 && fresh.batch > 0)
        fresh.steps = (fresh.samples + fresh.batch - 1) / fresh.batch;
    if (fresh.engine == TM_FLEET_UNSAID) fresh.engine = fresh.run != NULL ? TM_JOB_ENGINE_COMMAND : TM_JOB_ENGINE_GPT;
    if (rc != 0) {
        tm_job_deinit(&fresh);
        return rc;
    }
    tm_arena_deinit(&job->arena);
    *job = fresh;
    return 0;
}

/* "": here. NULL: out of memory. */
static const char *folder_of(const char *path, struct tm_arena *arena)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return "";
    return slash == path ? "/" : tm_arena_strndup(arena, path, (size_t)(slash - path));
}

int tm_job_load(struct tm_env *env, const char *path, struct tm_job *job, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_JOB_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_job_parse(path, tm_text_string(&text), text.length, job, e);
    tm_text_deinit(&text);
    if (rc != 0) return rc;
    job->folder = folder_of(path, &job->arena);
    return job->folder == NULL ? tm_error_nomem(e) : 0;
}

bool tm_job_wants_spot(const struct tm_job *job)
{
    if (job->market != NULL) return strcmp(job->market, "spot") == 0;
    return job->resources.use_spot != NULL && strcmp(job->resources.use_spot, "true") == 0;
}

bool tm_job_refuses_anchors(const struct tm_job *job)
{
    return job->anchors.count == 1 && strcmp(job->anchors.items[0], "none") == 0;
}

int tm_job_anchors(const struct tm_job *job, int64_t *out_count, const char **out_type, struct tm_error *e)
{
    *out_count = 0;
    *out_type = NULL;
    for (size_t i = 0; i < job->anchors.count && !tm_job_refuses_anchors(job); i++) {
        char *end = NULL;
        long count = strtol(job->anchors.items[i], &end, 10);
        const char *type = *end == 'x' ? end + 1 + strspn(end + 1, " ") : "";
        if (count < 1 || count > ANCHORS_MAX || type[0] == '\0')
            return tm_job_wrong(
                job, "anchors", e,
                "expected COUNTx TYPE with at most 64, such as \"1x c5.xlarge\", or none, got \"%.40s\"",
                job->anchors.items[i]);
        if (*out_type != NULL && strcasecmp(*out_type, type) != 0)
            return tm_job_wrong(job, "anchors", e, "must be of one instance type, got %.60s and %.60s", *out_type,
                                type);
        *out_count += count;
        *out_type = type;
    }
    return 0;
}

/* ---- what others find wrong ---- */

/* The node of "fleet.limit"; NULL: it is not there. */
static const struct tm_node *find(const struct tm_node *root, const char *key)
{
    size_t length = strcspn(key, ".");
    const struct tm_node *at = root != NULL && root->kind == TM_NODE_MAP ? root->first : NULL;
    while (at != NULL && (strncmp(at->key, key, length) != 0 || at->key[length] != '\0'))
        at = at->next;
    return at != NULL && key[length] == '.' ? find(at, key + length + 1) : at;
}

bool tm_job_says(const struct tm_job *job, const char *key)
{
    return find(job->root, key) != NULL;
}

int tm_job_wrong(const struct tm_job *job, const char *key, struct tm_error *e, const char *format, ...)
{
    char what[512];
    char place[512];
    va_list arguments;
    const struct tm_node *node = find(job->root, key);
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (node == NULL) return tm_error_set(e, TM_EINPUT, "%s: %s: %s", job->file, key, what);
    return tm_error_set(e, TM_EINPUT, "%s: %s: %s", tm_node_place(job->file, node, place, sizeof place), key, what);
}

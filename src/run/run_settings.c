#include "run/run_settings.h"

#include "base/address.h"
#include "base/jsonout.h"
#include "base/suggest.h"
#include "policy/policy.h"
#include "run/state_folder.h"
#include "wire/roster.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SETTINGS_BYTES_MAX = 1 << 20, LIMIT = 6, LIMIT_MAX = 256, ON_DEMAND_START_MS = 90000 };
enum { CHAOS_MEAN_MS = 3000, FAILURES = 3 };
static const double PROBABILITY = 0.95; /* as of a plan */
static const int64_t DRAWN_MS =
    30 * 24 * 3600 * (int64_t)1000; /* of a drawn trace; after its end what there is stays */
enum { DRAWN_LOSSES_MAX = 1 << 18 };

void tm_run_settings_init(struct tm_run_settings *settings)
{
    *settings = (struct tm_run_settings){.chaos = TM_FLEET_UNSAID, .chaos_mean_ms = CHAOS_MEAN_MS};
    tm_job_init(&settings->job);
}

void tm_run_settings_deinit(struct tm_run_settings *settings)
{
    tm_job_deinit(&settings->job);
    *settings = (struct tm_run_settings){0};
}

/* ---- what a job says ---- */

/* "job.yaml:3", or without a line where it stands in none. */
static const char *place_of(const struct tm_run_places *places, int line, char out[TM_STATE_PATH_MAX])
{
    if (line > 0)
        (void)snprintf(out, TM_STATE_PATH_MAX, "%s:%d", places->file, line);
    else
        (void)snprintf(out, TM_STATE_PATH_MAX, "%s", places->file);
    return out;
}

static void fill_losses(struct tm_job_losses *losses)
{
    struct tm_draw_losses usual = tm_draw_losses_usual();
    if (losses->mean_life_ms == 0) losses->mean_life_ms = TM_DRAW_LIFE_MS;
    if (losses->bursts < 0) losses->bursts = usual.burst_share;
    if (!(losses->burst_size > 0)) losses->burst_size = usual.burst_size;
    if (losses->outage_ms < 0) losses->outage_ms = usual.outage_ms;
    if (losses->replace_ms < 0) losses->replace_ms = usual.replace_ms;
}

/* Of the first pool that trains; NULL: not known. */
static const char *cloud_of(const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].role == TM_POOL_TRAINS) return pools[i].cloud;
    return NULL;
}

static void fill_fleet(struct tm_job_fleet *fleet)
{
    if (tm_job_fleet_is_drawn(fleet)) {
        fill_losses(&fleet->losses);
        fleet->trace = "";
    }
    if (fleet->trace == NULL) fleet->trace = "hadp";
    if (!(fleet->speed > 0)) fleet->speed = TM_FLEET_SPEED;
    if (fleet->limit == 0 && !tm_job_fleet_has_choices(fleet)) fleet->limit = LIMIT;
    if (fleet->scaled == TM_FLEET_UNSAID) fleet->scaled = 1;
    if (fleet->on_demand_trains == TM_FLEET_UNSAID) fleet->on_demand_trains = 1;
    if (fleet->workers_min == 0) fleet->workers_min = 1;
    if (fleet->notice_ms == TM_FLEET_UNSAID) fleet->notice_ms = tm_cloud_notice_ms(cloud_of(fleet));
    if (fleet->on_demand_start_ms == TM_FLEET_UNSAID) fleet->on_demand_start_ms = ON_DEMAND_START_MS;
    if (fleet->instance == NULL) fleet->instance = "";
    if (fleet->anchor_instance == NULL) fleet->anchor_instance = "";
    if (fleet->seed == 0) fleet->seed = 1;
}

/* Anchors ("2x c5.xlarge") keep copies and do not train. */
static int take_anchors(struct tm_job *job, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &job->fleet;
    if (fleet->on_demand > 0 || fleet->pools.count > 0 || tm_job_refuses_anchors(job)) return 0;
    int64_t count = 0;
    const char *type = NULL;
    int rc = tm_job_anchors(job, &count, &type, e);
    if (rc != 0 || count == 0) return rc;
    if (fleet->anchor_instance != NULL && strcasecmp(fleet->anchor_instance, type) != 0)
        return tm_job_wrong(job, "anchors", e, "must be of one instance type, got %.60s and %.60s",
                            fleet->anchor_instance, type);
    if (fleet->on_demand_trains == 1)
        return tm_job_wrong(job, "anchors", e,
                            "they keep copies and do not train: leave out fleet.on_demand_trains, or give "
                            "fleet.on_demand instead of anchors");
    fleet->on_demand = count;
    fleet->on_demand_trains = 0;
    fleet->anchor_instance = type;
    return 0;
}

/* A trace that a job file names lies beside it, unless it is one of those that ship. */
static const char *trace_beside(const char *trace, const char *folder, struct tm_arena *arena)
{
    static const char *const shipped[] = {"hadp", "hasp", "ladp", "lasp"};
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
        if (strcmp(trace, shipped[i]) == 0) return trace;
    }
    return trace[0] == '/' || folder[0] == '\0' ? trace : tm_arena_printf(arena, "%s/%s", folder, trace);
}

/* Where each pool is, and its trace. */
static int place_pools(struct tm_job *job, const char *place, struct tm_error *e)
{
    struct tm_job_pool *pools = job->fleet.pools.items;
    for (size_t i = 0; i < job->fleet.pools.count; i++) {
        int rc = tm_job_pool_locate(&pools[i], i + 1, place, &job->arena, e);
        if (rc != 0) return rc;
        if (pools[i].trace == NULL) continue;
        pools[i].trace = trace_beside(pools[i].trace, job->folder, &job->arena);
        if (pools[i].trace == NULL) return tm_error_nomem(e);
    }
    return 0;
}

/* What the pools of the fleet say, and that nothing else says otherwise. */
static int take_pools(struct tm_job *job, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &job->fleet;
    char place[TM_STATE_PATH_MAX];
    struct tm_run_places places = {.file = job->file};
    place_of(&places, job->fleet_line, place);
    if (fleet->trace != NULL && tm_job_losses_said(&fleet->losses))
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.losses and fleet.trace both say when instances are preempted; leave one out",
                            place);
    int rc = place_pools(job, place, e);
    if (rc == 0) rc = tm_job_check_pools(job, e);
    if (rc == 0) rc = tm_job_fleet_settle(fleet, place, e);
    bool none = tm_job_refuses_anchors(job);
    if (rc == 0 && fleet->pools.count > 0 && job->anchors.count > 0 && (!none || fleet->on_demand_trains == 0))
        rc = tm_error_set(e, TM_EINPUT, "%s: fleet.pools and anchors both say which instances keep copies; leave %s",
                          place, none ? "one out" : "anchors out");
    return rc;
}

/* Where no fleet was planned, what the job says of one counts: a type, how many, on demand. What leaves a choice is for
 * `plan`: here it would be replaced without a word. */
static int take_resources(struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job *job = &settings->job;
    struct tm_job_fleet *fleet = &job->fleet;
    const struct tm_strings *types = &job->resources.instance_type;
    const char *use_spot = job->resources.use_spot;
    bool on_demand = (job->market != NULL && strcmp(job->market, "on-demand") == 0) ||
                     (use_spot != NULL && strcmp(use_spot, "false") == 0);
    if (fleet->pools.count == 0 && fleet->limit > LIMIT_MAX)
        return tm_job_wrong(job, "fleet.limit", e, "expected at most %d instances, got %lld; more need fleet.pools",
                            LIMIT_MAX, (long long)fleet->limit);
    int64_t asked = job->num_instances > 0 ? job->num_instances : job->max_instances;
    if (fleet->limit == 0 && asked > 0 && tm_job_fleet_has_choices(fleet)) fleet->limit = asked;
    if (fleet->pools.count > 0) return 0;
    if (fleet->instance == NULL && types->count == 1) fleet->instance = types->items[0];
    if (fleet->instance == NULL && !settings->by_resources &&
        (types->count > 1 || job->resources.accelerators.count > 0))
        return tm_error_set(e, TM_EINPUT,
                            "%s: resources: which instance type? tidemill plan %s --emit job chooses one, or name "
                            "fleet.instance",
                            job->file, job->file);
    if (fleet->limit == 0 && asked > 0) fleet->limit = asked;
    if (on_demand && fleet->on_demand == 0 && (job->anchors.count == 0 || tm_job_refuses_anchors(job))) {
        fleet->on_demand = fleet->limit > 0 ? fleet->limit : LIMIT;
        if (fleet->on_demand_trains == TM_FLEET_UNSAID) fleet->on_demand_trains = 1;
    }
    return 0;
}

int tm_run_settings_settle(struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job *job = &settings->job;
    if (job->fleet.trace != NULL) {
        job->fleet.trace = trace_beside(job->fleet.trace, job->folder, &job->arena);
        if (job->fleet.trace == NULL) return tm_error_nomem(e);
    }
    int rc = take_resources(settings, e);
    if (rc == 0) rc = take_pools(job, e);
    if (rc == 0) rc = take_anchors(job, e);
    if (rc != 0) return rc;
    fill_fleet(&job->fleet);
    if (job->name == NULL) job->name = "job";
    if (job->policy == NULL) job->policy = "tidemill";
    if (job->max_failures == TM_FLEET_UNSAID) job->max_failures = FAILURES;
    if (!(job->probability > 0)) job->probability = PROBABILITY;
    settings->copy_every_ms = (int64_t)((double)job->checkpoint_interval_ms / job->fleet.speed);
    struct tm_run_places places = {job->file, job->name_line, job->policy_line, job->fleet_line};
    return tm_run_settings_check(settings, &places, e);
}

bool tm_run_restarts_all(const struct tm_run_settings *settings)
{
    const struct tm_policy_info *info = tm_policy_find(settings->job.policy);
    return info != NULL && info->checkpoints;
}

/* Those that need the future, or an engine that computes twice, are for simulations alone. */
static int check_policy(const char *name, const char *place, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        if (!info->runs) continue;
        tm_suggest_offer(&suggest, info->name);
        if (strcmp(name, info->name) == 0) return 0;
    }
    if (tm_policy_find(name) != NULL)
        return tm_error_set(e, TM_EINPUT,
                            "%s: policy: \"%s\" can be simulated but not run; use tidemill, parcae, parcae-notice, "
                            "reactive or checkpoint",
                            place, name);
    return tm_error_set(e, TM_EINPUT, "%s: policy: unknown policy \"%.40s\"%s%s%s", place, name,
                        suggest.best != NULL ? "; did you mean " : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "?" : "");
}

/* The state folder is named after the job where nothing else is said. */
static bool is_plain_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '.' || strlen(name) > 60) return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(name);
}

/* "--listen" or "--advertise": a host, or a host and a port. */
static int check_address(const char *option, const char *given, bool told, struct tm_error *e)
{
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (given == NULL) return 0;
    tm_address_of_host(given, "0", address);
    int rc = tm_address_split(address, host, port, e);
    if (rc == 0 && told && tm_host_is_any(host))
        rc = tm_error_set(e, TM_EUSAGE, "%s stands for every address of this machine: give one that instances reach",
                          host);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", option);
}

static bool leaves_machine(const char *given)
{
    char address[TM_ADDRESS_MAX];
    if (given == NULL) return false;
    tm_address_of_host(given, "0", address);
    return !tm_address_is_loopback(address);
}

bool tm_run_settings_tls(const struct tm_run_settings *settings)
{
    return settings->tls || settings->netns || leaves_machine(settings->listen) || leaves_machine(settings->advertise);
}

int tm_run_settings_check(const struct tm_run_settings *settings, const struct tm_run_places *places,
                          struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    char place[TM_STATE_PATH_MAX];
    if (!is_plain_name(settings->job.name))
        return tm_error_set(e, TM_EINPUT,
                            "%s: name: to run, a job needs a name of 1 to 60 letters, digits, - and _, not \"%.60s\"",
                            place_of(places, places->name_line, place), settings->job.name);
    place_of(places, places->fleet_line, place);
    bool known = fleet->limit > 0; /* else as many as the traces of the pools have */
    int64_t each = tm_job_fleet_workers_each(fleet);
    if (each > 1 && tm_job_fleet_workers_max(fleet) > TM_MEMBERS_MAX)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.workers: %lld instances of %lld workers are more than %d; write fewer", place,
                            (long long)fleet->limit, (long long)each, TM_MEMBERS_MAX);
    if (known && fleet->workers_min > tm_job_fleet_workers_max(fleet))
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.workers_min: at least %lld workers, but at most %lld instances; raise fleet.limit or --limit",
            place, (long long)fleet->workers_min, (long long)fleet->limit);
    if (known &&
        (fleet->on_demand > fleet->limit || (fleet->on_demand == fleet->limit && fleet->on_demand_trains == 0)))
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.on_demand: %lld instances, but at most %lld in total; raise fleet.limit or --limit", place,
            (long long)fleet->on_demand, (long long)fleet->limit);
    if (known && fleet->on_demand_trains == 0 && fleet->workers_min > (fleet->limit - fleet->on_demand) * each)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.workers_min: at least %lld workers, but of %lld instances %lld only hold "
                            "copies; raise fleet.limit or --limit",
                            place, (long long)fleet->workers_min, (long long)fleet->limit, (long long)fleet->on_demand);
    if (fleet->to_ms != 0 && fleet->to_ms <= fleet->from_ms)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.to: must be after fleet.from", place);
    if (fleet->stages_max > 0 && fleet->stages_min > fleet->stages_max)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.stages_min: must not be greater than fleet.stages_max", place);
    if (settings->link_bit_s != 0 && !settings->netns)
        return tm_error_set(e, TM_EUSAGE, "--link limits the links of network namespaces: give --netns too");
    int rc = check_address("--listen", settings->listen, false, e);
    if (rc == 0) rc = check_address("--advertise", settings->advertise, true, e);
    if (rc != 0) return rc;
    return check_policy(settings->job.policy, place_of(places, places->policy_line, place), e);
}

/* ---- run.yaml ---- */

#define AT(name) .offset = offsetof(struct tm_run_settings, name)

struct extra { /* what has no place of its own in the struct */
    struct tm_run_settings settings;
    const char *number;
};

static const struct tm_field fields[] = {
    {.key = "name", .type = TM_FIELD_STRING, AT(job.name), .required = true},
    {.key = "job", .type = TM_FIELD_STRING, .offset = offsetof(struct extra, number), .required = true},
    {.key = "folder", .type = TM_FIELD_STRING, AT(job.folder), .required = true},
    {.key = "brought", .type = TM_FIELD_STRING, AT(brought)},
    {.key = "engine", .type = TM_FIELD_CHOICE, AT(job.engine), .choices = tm_job_engine_names, .required = true},
    {.key = "data", .type = TM_FIELD_STRING, AT(job.data)}, /* of a machine that was handed it */
    {.key = "cloud", .type = TM_FIELD_CHOICE, AT(job.cloud), .choices = tm_job_cloud_names},
    {.key = "policy", .type = TM_FIELD_STRING, AT(job.policy), .required = true},
    {.key = "fleet", .type = TM_FIELD_MAP, AT(job.fleet), .fields = tm_job_fleet_fields, .required = true},
    {.key = "copy_every", .type = TM_FIELD_DURATION, AT(copy_every_ms)},
    {.key = "max_failures", .type = TM_FIELD_INTEGER, AT(job.max_failures), .min = 0, .max = 1000},
    {.key = "deadline", .type = TM_FIELD_DURATION, AT(job.deadline_ms)},
    {.key = "budget", .type = TM_FIELD_MONEY, AT(job.budget_usd_millionths)},
    {.key = "probability", .type = TM_FIELD_NUMBER, AT(job.probability), .min = 0.01, .max = 0.9999},
    {.key = "step_core_s", .type = TM_FIELD_NUMBER, AT(step_core_s), .min = 0, .max = 1e9},
    {.key = "cores", .type = TM_FIELD_INTEGER, AT(cores), .min = 0, .max = 1 << 20},
    {.key = "no_losses", .type = TM_FIELD_BOOL, AT(no_losses)},
    {.key = "netns", .type = TM_FIELD_BOOL, AT(netns)},
    {.key = "link", .type = TM_FIELD_RATE, AT(link_bit_s)},
    {.key = "listen", .type = TM_FIELD_STRING, AT(listen)},
    {.key = "advertise", .type = TM_FIELD_STRING, AT(advertise)},
    {.key = "tls", .type = TM_FIELD_BOOL, AT(tls)},
    {.key = "chaos", .type = TM_FIELD_INTEGER, AT(chaos), .min = 0, .max = 9e15},
    {.key = "chaos_mean", .type = TM_FIELD_DURATION, AT(chaos_mean_ms)},
    {.key = "chaos_kinds", .type = TM_FIELD_INTEGER, AT(chaos_kinds), .min = 0, .max = 1 << 16},
    {.key = NULL}};

static void put_ms(struct tm_jsonout *json, const char *key, int64_t ms)
{
    char text[32];
    if (ms < 0) return;
    (void)snprintf(text, sizeof text, "%lldms", (long long)ms);
    tm_jsonout_string(json, key, text);
}

static void put_usd(struct tm_jsonout *json, const char *key, int64_t millionths)
{
    if (millionths >= 0) tm_jsonout_number(json, key, (double)millionths / 1e6);
}

static void put_text(struct tm_jsonout *json, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0') tm_jsonout_string(json, key, text);
}

static void print_pools(struct tm_jsonout *json, const struct tm_job_fleet *fleet)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    if (count == 0) return;
    tm_jsonout_list(json, "pools");
    for (size_t i = 0; i < count; i++) {
        tm_jsonout_object(json, NULL);
        put_text(json, "instance", pools[i].instance);
        put_text(json, "cloud", pools[i].cloud);
        put_text(json, "region", pools[i].region);
        put_text(json, "zone", pools[i].zone);
        tm_jsonout_string(json, "market", tm_pool_market_names[pools[i].market]);
        if (pools[i].count > 0) tm_jsonout_integer(json, "count", pools[i].count);
        tm_jsonout_string(json, "role", tm_pool_role_names[pools[i].role]);
        put_usd(json, "price", pools[i].usd_h_millionths);
        if (pools[i].mean_life_ms > 0) put_ms(json, "mean_life", pools[i].mean_life_ms);
        if (pools[i].limit > 0) tm_jsonout_integer(json, "limit", pools[i].limit);
        put_text(json, "trace", pools[i].trace);
        if (pools[i].from_ms > 0) put_ms(json, "from", pools[i].from_ms);
        if (pools[i].start_ms >= 0) put_ms(json, "start", pools[i].start_ms);
        if (pools[i].notice_ms >= 0) put_ms(json, "notice", pools[i].notice_ms);
        if (pools[i].throughput > 0) tm_jsonout_number(json, "throughput", pools[i].throughput);
        put_text(json, "partition", pools[i].partition);
        if (pools[i].time_limit_ms > 0) put_ms(json, "time_limit", pools[i].time_limit_ms);
        put_text(json, "sbatch", pools[i].sbatch);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void print_losses(struct tm_jsonout *json, const struct tm_job_losses *losses)
{
    tm_jsonout_object(json, "losses");
    put_ms(json, "mean_life", losses->mean_life_ms);
    tm_jsonout_number(json, "bursts", losses->bursts);
    tm_jsonout_number(json, "burst_size", losses->burst_size);
    put_ms(json, "outage", losses->outage_ms);
    put_ms(json, "replace", losses->replace_ms);
    tm_jsonout_end(json);
}

static void print_hosts(struct tm_jsonout *json, const struct tm_strings *hosts)
{
    if (hosts->count == 0) return;
    tm_jsonout_list(json, "hosts");
    for (size_t i = 0; i < hosts->count; i++)
        tm_jsonout_string(json, NULL, hosts->items[i]);
    tm_jsonout_end(json);
}

static void print_slurm(struct tm_jsonout *json, const struct tm_job_slurm *slurm)
{
    if (slurm->rest == NULL) return;
    tm_jsonout_object(json, "slurm");
    put_text(json, "rest", slurm->rest);
    put_text(json, "token_file", slurm->token_file);
    tm_jsonout_end(json);
}

static void print_pods(struct tm_jsonout *json, const struct tm_job_pods *pods)
{
    if (pods->image == NULL) return;
    tm_jsonout_object(json, "pods");
    put_text(json, "image", pods->image);
    put_text(json, "namespace", pods->space);
    put_text(json, "context", pods->context);
    put_text(json, "service_account", pods->account);
    put_text(json, "priority", pods->priority);
    tm_jsonout_string(json, "spot", tm_pods_spot_names[pods->spot]);
    tm_jsonout_integer(json, "gpus", pods->gpus);
    put_text(json, "gpu", pods->gpu);
    put_text(json, "cpu", pods->cpu);
    put_text(json, "memory", pods->memory);
    if (pods->selector.count > 0) {
        tm_jsonout_list(json, "node_selector");
        for (size_t i = 0; i < pods->selector.count; i++)
            tm_jsonout_string(json, NULL, pods->selector.items[i]);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

/* `account`: its key. */
static void print_coordinator_vm(struct tm_jsonout *json, const struct tm_job_coordinator_vm *c, const char *account)
{
    put_text(json, "coordinator", c->type);
    put_text(json, account, c->account);
    put_usd(json, "coordinator_price", c->usd_h_millionths);
    put_text(json, "reached_from", c->reached_from);
}

static void print_aws(struct tm_jsonout *json, const struct tm_job_aws *aws)
{
    tm_jsonout_object(json, "aws");
    put_text(json, "image", aws->image);
    put_text(json, "subnet", aws->subnet);
    put_text(json, "security_group", aws->security_group);
    put_text(json, "instance_profile", aws->instance_profile);
    print_coordinator_vm(json, &aws->coordinator, "coordinator_profile");
    if (aws->disk > 0) tm_jsonout_integer(json, "disk", aws->disk);
    if (aws->silence_ms > 0) put_ms(json, "silence", aws->silence_ms);
    if (aws->life_ms > 0) put_ms(json, "life", aws->life_ms);
    if (aws->start_ms > 0) put_ms(json, "start", aws->start_ms);
    tm_jsonout_end(json);
}

static void print_azure(struct tm_jsonout *json, const struct tm_job_azure *azure)
{
    tm_jsonout_object(json, "azure");
    put_text(json, "location", azure->location);
    put_text(json, "resource_group", azure->resource_group);
    put_text(json, "image", azure->image);
    put_text(json, "subnet", azure->subnet);
    put_text(json, "security_group", azure->security_group);
    put_text(json, "identity", azure->identity);
    if (azure->public_ip) tm_jsonout_bool(json, "public_ip", true);
    print_coordinator_vm(json, &azure->coordinator, "coordinator_identity");
    if (azure->disk > 0) tm_jsonout_integer(json, "disk", azure->disk);
    if (azure->silence_ms > 0) put_ms(json, "silence", azure->silence_ms);
    if (azure->life_ms > 0) put_ms(json, "life", azure->life_ms);
    if (azure->start_ms > 0) put_ms(json, "start", azure->start_ms);
    tm_jsonout_end(json);
}

static void print_gcp(struct tm_jsonout *json, const struct tm_job_gcp *gcp)
{
    tm_jsonout_object(json, "gcp");
    put_text(json, "image", gcp->image);
    put_text(json, "network", gcp->network);
    put_text(json, "subnetwork", gcp->subnetwork);
    put_text(json, "service_account", gcp->service_account);
    print_coordinator_vm(json, &gcp->coordinator, "coordinator_account");
    if (gcp->disk > 0) tm_jsonout_integer(json, "disk", gcp->disk);
    if (gcp->silence_ms > 0) put_ms(json, "silence", gcp->silence_ms);
    if (gcp->life_ms > 0) put_ms(json, "life", gcp->life_ms);
    if (gcp->start_ms > 0) put_ms(json, "start", gcp->start_ms);
    tm_jsonout_end(json);
}

/* Member by member: bytes between them are nobody's. */
static bool says_azure(const struct tm_job_azure *azure, const struct tm_job_coordinator_vm *unsaid)
{
    bool texts = azure->location != NULL || azure->resource_group != NULL || azure->image != NULL ||
                 azure->subnet != NULL || azure->security_group != NULL || azure->identity != NULL;
    return texts || azure->public_ip || memcmp(&azure->coordinator, unsaid, sizeof *unsaid) != 0 || azure->disk > 0 ||
           azure->silence_ms > 0 || azure->life_ms > 0 || azure->start_ms > 0;
}

static void print_fleet(struct tm_jsonout *json, const struct tm_job_fleet *fleet)
{
    const struct tm_job_fleet unsaid = tm_job_fleet_unsaid();
    tm_jsonout_object(json, "fleet");
    print_hosts(json, &fleet->hosts);
    print_slurm(json, &fleet->slurm);
    print_pods(json, &fleet->pods);
    if (memcmp(&fleet->aws, &unsaid.aws, sizeof fleet->aws) != 0) print_aws(json, &fleet->aws);
    if (says_azure(&fleet->azure, &unsaid.azure.coordinator)) print_azure(json, &fleet->azure);
    if (memcmp(&fleet->gcp, &unsaid.gcp, sizeof fleet->gcp) != 0) print_gcp(json, &fleet->gcp);
    print_pools(json, fleet);
    if (tm_job_fleet_is_drawn(fleet)) print_losses(json, &fleet->losses);
    put_text(json, "trace", fleet->trace);
    put_ms(json, "from", fleet->from_ms);
    put_ms(json, "to", fleet->to_ms);
    tm_jsonout_number(json, "speed", fleet->speed);
    tm_jsonout_integer(json, "limit", fleet->limit);
    if (fleet->workers > 0) tm_jsonout_integer(json, "workers", fleet->workers);
    tm_jsonout_integer(json, "scaled", fleet->scaled);
    tm_jsonout_integer(json, "workers_min", fleet->workers_min);
    if (fleet->memory > 0) tm_jsonout_integer(json, "memory", fleet->memory);
    if (fleet->stages_min > 0) tm_jsonout_integer(json, "stages_min", fleet->stages_min);
    if (fleet->stages_max > 0) tm_jsonout_integer(json, "stages_max", fleet->stages_max);
    tm_jsonout_integer(json, "on_demand", fleet->on_demand);
    tm_jsonout_integer(json, "on_demand_trains", fleet->on_demand_trains);
    put_ms(json, "notice", fleet->notice_ms);
    put_ms(json, "notice_wall", fleet->notice_wall_ms);
    put_ms(json, "hint", fleet->hint_ms);
    put_ms(json, "spot_start", fleet->spot_start_ms);
    put_ms(json, "on_demand_start", fleet->on_demand_start_ms);
    if (fleet->poll_ms > 0) put_ms(json, "poll", fleet->poll_ms);
    put_text(json, "instance", fleet->instance);
    put_usd(json, "spot_price", fleet->spot_usd_h_millionths);
    put_usd(json, "on_demand_price", fleet->on_demand_usd_h_millionths);
    put_text(json, "anchor_instance", fleet->anchor_instance);
    put_usd(json, "anchor_price", fleet->anchor_usd_h_millionths);
    tm_jsonout_integer(json, "seed", fleet->seed);
    if (fleet->rent != TM_RENT_WORTHWHILE) tm_jsonout_string(json, "rent", tm_fleet_rent_names[fleet->rent]);
    if (fleet->across_regions) tm_jsonout_bool(json, "across_regions", true);
    if (fleet->region_gbit_s > 0) tm_jsonout_number(json, "region_gbit_s", fleet->region_gbit_s);
    put_usd(json, "region_usd_gb", fleet->region_usd_gb_millionths);
    if (fleet->across_types) tm_jsonout_bool(json, "across_types", true);
    tm_jsonout_end(json);
}

void tm_run_settings_print(const struct tm_run_settings *settings, struct tm_text *out)
{
    struct tm_jsonout json;
    char text[32];
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "name", settings->job.name);
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)settings->number);
    tm_jsonout_string(&json, "job", text);
    tm_jsonout_string(&json, "folder", settings->job.folder);
    put_text(&json, "brought", settings->brought);
    tm_jsonout_string(&json, "engine", tm_job_engine_names[settings->job.engine]);
    if (settings->job.data != NULL && settings->job.data[0] == '/')
        tm_jsonout_string(&json, "data", settings->job.data);
    tm_jsonout_string(&json, "cloud", tm_job_cloud_names[settings->job.cloud]);
    tm_jsonout_string(&json, "policy", settings->job.policy);
    print_fleet(&json, &settings->job.fleet);
    put_ms(&json, "copy_every", settings->copy_every_ms);
    tm_jsonout_integer(&json, "max_failures", settings->job.max_failures);
    put_ms(&json, "deadline", settings->job.deadline_ms);
    put_usd(&json, "budget", settings->job.budget_usd_millionths);
    tm_jsonout_number(&json, "probability", settings->job.probability);
    tm_jsonout_number(&json, "step_core_s", settings->step_core_s);
    tm_jsonout_integer(&json, "cores", settings->cores);
    tm_jsonout_bool(&json, "no_losses", settings->no_losses);
    tm_jsonout_bool(&json, "netns", settings->netns);
    (void)snprintf(text, sizeof text, "%lldbit/s", (long long)settings->link_bit_s);
    if (settings->link_bit_s > 0) tm_jsonout_string(&json, "link", text);
    put_text(&json, "listen", settings->listen);
    put_text(&json, "advertise", settings->advertise);
    tm_jsonout_bool(&json, "tls", settings->tls);
    if (settings->chaos >= 0) tm_jsonout_integer(&json, "chaos", settings->chaos);
    put_ms(&json, "chaos_mean", settings->chaos_mean_ms);
    tm_jsonout_integer(&json, "chaos_kinds", settings->chaos_kinds);
    tm_jsonout_end(&json);
}

/* 16 hexadecimal digits. */
static bool read_number(const char *text, uint64_t *out)
{
    if (strlen(text) != 16 || strspn(text, "0123456789abcdefABCDEF") != 16) return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

/* What run.yaml says, and nothing else does. */
static void forget_settled(struct tm_job *job)
{
    job->fleet = tm_job_fleet_unsaid();
    job->deadline_ms = 0;
    job->budget_usd_millionths = 0;
    job->probability = PROBABILITY;
    job->max_failures = FAILURES;
}

int tm_run_settings__parse(const char *file, const char *text, size_t length, struct tm_run_settings *settings,
                           struct tm_error *e)
{
    struct extra made = {.number = ""};
    struct tm_node *root = NULL;
    struct tm_job *job = &made.settings.job;
    tm_run_settings_init(&made.settings);
    *job = settings->job;
    forget_settled(job);
    int rc = tm_doc_parse_yaml(file, text, length, &job->arena, &root, e);
    if (rc == 0) rc = tm_fields_read(file, root, fields, &job->arena, &made, e);
    if (rc == 0 && !read_number(made.number, &made.settings.number))
        rc = tm_error_set(e, TM_EINPUT, "%s: job: expected 16 hexadecimal digits, got \"%.40s\"", file, made.number);
    if (rc == 0) fill_fleet(&job->fleet);
    if (rc == 0) rc = tm_run_settings_check(&made.settings, &(struct tm_run_places){.file = file}, e);
    settings->job.arena = job->arena; /* which may have grown */
    if (rc == 0) *settings = made.settings;
    return rc;
}

int tm_run_settings_read(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    tm_state_path(dir, TM_STATE_RUN, path);
    tm_text_init(&text, SETTINGS_BYTES_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0) rc = tm_run_settings__parse(path, tm_text_string(&text), text.length, settings, e);
    tm_text_deinit(&text);
    return rc;
}

int tm_run_settings_load(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_JOB, path);
    int rc = tm_job_load(env, path, &settings->job, e);
    if (rc == 0) rc = tm_run_settings_read(env, dir, settings, e);
    if (rc == 0 && settings->brought != NULL) settings->job.workdir = settings->brought;
    return rc;
}

/* ---- the trace ---- */

struct tm_draw tm_run_draw(const struct tm_job_fleet *fleet, struct tm_draw_pool *pools)
{
    const struct tm_job_losses *losses = &fleet->losses;
    struct tm_draw draw = {.pools = pools,
                           .losses = {.burst_share = losses->bursts,
                                      .burst_size = losses->burst_size,
                                      .outage_ms = losses->outage_ms,
                                      .replace_ms = losses->replace_ms},
                           .seed = (uint64_t)fleet->seed,
                           .draws = 1,
                           .length_ms = DRAWN_MS};
    size_t count = 0;
    const struct tm_job_pool *all = tm_job_fleet_pools(fleet, &count);
    const struct tm_job_pool whole = {.count = fleet->limit, .usd_h_millionths = fleet->spot_usd_h_millionths};
    if (count == 0) all = &whole;
    double per_ms = 0;
    for (size_t i = 0; i < (count > 0 ? count : 1); i++) {
        if (all[i].market != TM_POOL_SPOT || draw.pool_count == TM_DRAW_POOLS_MAX) continue;
        int64_t millionths = all[i].usd_h_millionths >= 0 ? all[i].usd_h_millionths : fleet->spot_usd_h_millionths;
        int64_t life_ms = all[i].mean_life_ms > 0 ? all[i].mean_life_ms : losses->mean_life_ms;
        pools[draw.pool_count++] = (struct tm_draw_pool){
            .count = (int)all[i].count, .price_usd_h = fmax(0, (double)millionths / 1e6), .mean_life_ms = life_ms};
        per_ms += (double)all[i].count / (double)life_ms;
    }
    if (per_ms * (double)DRAWN_MS > DRAWN_LOSSES_MAX) draw.length_ms = (int64_t)(DRAWN_LOSSES_MAX / per_ms);
    return draw;
}

static int make_trace(struct tm_env *env, const struct tm_job_fleet *fleet, struct tm_trace *out, struct tm_error *e)
{
    struct tm_draw_pool pools[TM_DRAW_POOLS_MAX];
    if (!tm_job_fleet_is_drawn(fleet)) return tm_trace_load(env, fleet->trace, NULL, out, e);
    struct tm_draw draw = tm_run_draw(fleet, pools);
    int rc = tm_trace_draw(&draw, out, e);
    if (rc != 0) return tm_error_wrap(e, rc, "fleet.losses");
    (void)snprintf(out->instance, sizeof out->instance, "%s", fleet->instance);
    return 0;
}

/* The prices of the pools count, not those of a trace, which may be another type's; a drawn one has theirs, where they
 * are known. Without spot instances nothing of it happens. */
static void suit_pools(const struct tm_job_fleet *fleet, int64_t spot_max, struct tm_trace *trace)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    bool priced = fleet->spot_usd_h_millionths >= 0;
    for (size_t i = 0; i < count; i++)
        priced = priced && (pools[i].market != TM_POOL_SPOT || pools[i].usd_h_millionths >= 0);
    for (size_t i = 0; priced != tm_job_fleet_is_drawn(fleet) && i < trace->event_count; i++)
        trace->events[i].price_usd_h = NAN;
    if (spot_max > 0) return;
    trace->event_count = 0;
    trace->instances_max = 0;
}

int tm_run_trace(struct tm_env *env, const struct tm_run_settings *settings, struct tm_trace *out, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    int64_t spot_max = tm_job_fleet_spot_max(fleet);
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = make_trace(env, fleet, &trace, e);
    if (rc == 0 && (fleet->pools.count > 0 || tm_job_fleet_is_drawn(fleet))) suit_pools(fleet, spot_max, &trace);
    if (rc == 0 && (fleet->from_ms > 0 || fleet->to_ms > 0)) {
        int64_t to_ms = fleet->to_ms > 0 && fleet->to_ms < trace.end_ms ? fleet->to_ms : trace.end_ms;
        rc = tm_trace_cut(&trace, fleet->from_ms, to_ms, &trace, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "fleet.from, fleet.to");
    }
    if (rc == 0 && fleet->scaled != 0 && spot_max > 0 && trace.instances_max != spot_max)
        rc = tm_trace_scale(&trace, spot_max, &trace, e);
    if (rc == 0 && trace.instances_max < 1 && fleet->on_demand == 0)
        rc = tm_error_set(e, TM_EINPUT, "%s: the trace never has an instance: nothing can be trained", fleet->trace);
    if (rc == 0 && trace.instances_max > spot_max && !settings->no_losses)
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: has up to %lld instances, more than fleet.limit (%lld): raise it, or scale the counts "
                          "(fleet.scaled: 1)",
                          fleet->trace, (long long)trace.instances_max, (long long)spot_max);
    if (rc != 0) {
        tm_trace_deinit(&trace);
        return rc;
    }
    tm_trace_deinit(out);
    *out = trace;
    return 0;
}

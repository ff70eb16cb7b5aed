/* Hosts that one has, as a provider: fleet.hosts or --hosts, reached by ssh (cloud/hosts_cloud.h). */
#include "job/provider.h"

#include "base/address.h"
#include "cloud/hosts_cloud.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct hosts {
    struct tm_host list[TM_HOSTS_MAX];
    size_t count;
};

/* The lines of fleet.hosts as a list. */
static int read_hosts(const struct tm_run_settings *settings, const char *place, struct hosts *out, struct tm_error *e)
{
    const struct tm_strings *lines = &settings->job.fleet.hosts;
    struct tm_text text;
    char where[512];
    if (lines->count == 0)
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.hosts: which hosts? write for example hosts: [gpu1, me@gpu2:2222 gpus=4], or give "
            "--hosts FILE",
            place);
    tm_text_init(&text, 1 << 20);
    for (size_t i = 0; i < lines->count; i++)
        tm_text_printf(&text, "%s\n", lines->items[i]);
    (void)snprintf(where, sizeof where, "%.400s: fleet.hosts", place);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_hosts_parse(where, text.data, text.length, out->list, &out->count, e);
    tm_text_deinit(&text);
    return rc;
}

/* The lines of a text as strings of the job. */
static int take_lines(const char *text, struct tm_job *job, struct tm_error *e)
{
    struct tm_strings lines = {.count = 0};
    size_t room = 1;
    for (const char *at = text; *at != '\0'; at++)
        room += *at == '\n';
    lines.items = tm_arena_alloc(&job->arena, room * sizeof *lines.items);
    if (lines.items == NULL) return tm_error_nomem(e);
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        size_t useful = strcspn(at, "#\n");
        bool empty = strspn(at, " \t\r") >= useful;
        if (!empty && (lines.items[lines.count++] = tm_arena_strndup(&job->arena, at, useful)) == NULL)
            return tm_error_nomem(e);
        at += length + (at[length] != '\0');
    }
    job->fleet.hosts = lines;
    return 0;
}

int tm_provider_read_hosts(struct tm_env *env, const char *path, struct tm_job *job, struct tm_error *e)
{
    struct tm_text text;
    struct tm_arena arena;
    tm_text_init(&text, 1 << 20);
    tm_arena_init(&arena, 1 << 20);
    struct hosts *hosts = tm_arena_alloc(&arena, sizeof *hosts);
    int rc = hosts == NULL ? tm_error_nomem(e) : env->file_read(env, path, &text, e);
    if (rc == 0) rc = tm_hosts_parse(path, text.data, text.length, hosts->list, &hosts->count, e);
    if (rc == 0) rc = take_lines(tm_text_string(&text), job, e);
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
    return rc;
}

int tm_provider_heed_hosts(struct tm_job *job, bool cloud_given, struct tm_error *e)
{
    const char *cloud = tm_job_cloud_names[job->cloud];
    if (job->fleet.hosts.count == 0 || strcmp(cloud, "hosts") == 0) return 0;
    if (cloud_given || tm_job_says(job, "cloud"))
        return tm_error_set(
            e, TM_EUSAGE,
            "hosts are given (--hosts, or hosts in the job file), but the cloud is %s; say cloud hosts, "
            "or leave the hosts out",
            cloud);
    job->cloud = 0;
    while (strcmp(tm_job_cloud_names[job->cloud], "hosts") != 0)
        job->cloud++;
    return 0;
}

static int settle_hosts(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    struct hosts hosts = {.count = 0};
    int64_t slots = 0;
    (void)env;
    if (fleet->pools.count > 0)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: hosts are one pool; leave it out with cloud: hosts", place);
    int rc = read_hosts(settings, place, &hosts, e);
    if (rc != 0) return rc;
    for (size_t i = 0; i < hosts.count; i++)
        slots += hosts.list[i].slots;
    if (fleet->limit == 0 || fleet->limit > slots) fleet->limit = slots;
    if (fleet->instance == NULL || fleet->instance[0] == '\0') fleet->instance = "host";
    if (fleet->spot_usd_h_millionths < 0) fleet->spot_usd_h_millionths = 0; /* they are there anyway */
    if (fleet->on_demand_usd_h_millionths < 0) fleet->on_demand_usd_h_millionths = fleet->spot_usd_h_millionths;
    return 0;
}

static int check_hosts(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    if (settings->job.fleet.on_demand > 0)
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.on_demand: hosts are not rented; leave on_demand and anchors out with cloud: hosts", place);
    return 0;
}

/* Every address (0.0.0.0, [::]) says where to listen, not where one is reached. */
static bool names_one(const char *listen)
{
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (listen == NULL) return false;
    tm_address_of_host(listen, "0", address);
    return tm_address_split(address, host, port, NULL) != 0 || !tm_host_is_any(host);
}

static int ticket(void *context, uint64_t id, const char *host, char out[TM_HOSTS_TICKET_MAX], struct tm_error *e)
{
    const struct tm_provider_request *request = context;
    const struct tm_run_settings *settings = request->settings;
    bool said = settings->advertise != NULL || names_one(settings->listen) || strcmp(host, "none") == 0;
    const struct tm_ticket_for who = {.instance = id, .host = said ? NULL : host};
    static_assert((int)TM_HOSTS_TICKET_MAX >= (int)TM_TICKET_MAX, "a ticket has room");
    return request->ticket(request->office, &who, out, e);
}

static int open_hosts(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                      struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &request->settings->job.fleet;
    struct hosts *hosts = tm_arena_alloc(request->arena, sizeof *hosts);
    const char *name = tm_arena_printf(request->arena, "%016" PRIx64, request->settings->number);
    if (hosts == NULL || name == NULL) return tm_error_nomem(e);
    *hosts = (struct hosts){.count = 0};
    int rc = read_hosts(request->settings, request->dir, hosts, e);
    if (rc != 0) return rc;
    struct tm_hosts_options options = {.hosts = hosts->list,
                                       .host_count = hosts->count,
                                       .limit = (int)fleet->limit,
                                       .ssh = env->variable(env, "TIDEMILL_SSH"),
                                       .program = request->program,
                                       .arguments = "agent --join \"@$TIDEMILL_SLOT/ticket\"",
                                       .state_dir = request->cloud_dir,
                                       .mark = request->mark,
                                       .name = name,
                                       .resumed = request->account->instance > 0,
                                       .id_first = request->account->instance + 1,
                                       .price_usd_h = (double)fleet->spot_usd_h_millionths / 1e6,
                                       .ticket = ticket,
                                       .has_joined = tm_provider__has_joined,
                                       .context = (void *)request};
    return tm_hosts_cloud_create(env, &options, out, e);
}

const struct tm_provider tm_provider__hosts = {.name = "hosts",
                                               .about = "agents are started over ssh on hosts that you have",
                                               .instances_max = TM_HOSTS_INSTANCES_MAX,
                                               .joins = true,
                                               .settle = settle_hosts,
                                               .check = check_hosts,
                                               .open = open_hosts};

#include "job/provider_vms.h"

#include "base/address.h"
#include "base/log.h"
#include "run/state_folder.h"
#include "store/copy_store.h"

#include <arpa/inet.h>
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUTE_MS = 5000 };

/* ---- before anything is rented ---- */

/* The name of a line "NAME:x:NUMBER:..." */
static bool find_name(const char *passwd, const char *number, char out[TM_PROVIDER_OWNER_MAX])
{
    for (const char *at = passwd; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        size_t name = strcspn(at, ":\n");
        size_t second = at[name] == ':' ? strcspn(at + name + 1, ":\n") : 0;
        const char *third = at + name + 1 + second + 1;
        if (at[name] != ':' || at[name + 1 + second] != ':') continue;
        size_t length = strcspn(third, ":\n");
        if (length != strlen(number) || strncmp(third, number, length) != 0) continue;
        (void)snprintf(out, TM_PROVIDER_OWNER_MAX, "%.*s", (int)(name < 60 ? name : 60), at);
        return name > 0;
    }
    return false;
}

void tm_provider_vms_owner(struct tm_env *env, char out[TM_PROVIDER_OWNER_MAX])
{
    static const char *const names[] = {"USER", "LOGNAME"};
    char status[4096] = "";
    char number[24] = "";
    size_t got = 0;
    int64_t size = 0;
    struct tm_text passwd;
    (void)snprintf(out, TM_PROVIDER_OWNER_MAX, "not known");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = env->variable(env, names[i]);
        if (name == NULL || name[0] == '\0') continue;
        (void)snprintf(out, TM_PROVIDER_OWNER_MAX, "%.60s", name);
        return;
    }
    if (env->file_read_at(env, "/proc/self/status", 0, status, sizeof status - 1, &got, &size, NULL) != 0) return;
    status[got] = '\0';
    const char *line = strstr(status, "\nUid:");
    if (line == NULL || sscanf(line + 5, "%20s", number) != 1) return;
    tm_text_init(&passwd, 1 << 20);
    if (env->file_read(env, "/etc/passwd", &passwd, NULL) != 0 || !find_name(tm_text_string(&passwd), number, out))
        (void)snprintf(out, TM_PROVIDER_OWNER_MAX, "uid %s", number);
    tm_text_deinit(&passwd);
}

/* All pools are in one: workers of one layout talk to each other all the time. */
int tm_provider_vms__region(const struct tm_provider__vm_kind *kind, const struct tm_job_fleet *fleet,
                            const char *place, char out[64], struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        char region[64] = "";
        if (pools[i].zone != NULL) kind->region_of(pools[i].zone, region);
        if (pools[i].region != NULL) (void)snprintf(region, sizeof region, "%s", pools[i].region);
        if (pools[i].cloud != NULL && strcmp(pools[i].cloud, kind->cloud) != 0)
            return tm_error_set(e, TM_EINPUT, "%s: fleet.pools[%zu].cloud: %s, but the job runs on cloud %s", place,
                                i + 1, pools[i].cloud, kind->cloud);
        if (out[0] != '\0' && region[0] != '\0' && strcmp(out, region) != 0)
            return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: %s and %s; cloud %s rents in one region at a time",
                                place, out, region, kind->cloud);
        if (region[0] != '\0') (void)snprintf(out, 64, "%s", region);
    }
    return 0;
}

/* "HOST:PORT" of "https://HOST/...". */
static void take_address(const char *origin, char out[TM_ADDRESS_MAX])
{
    const char *host = strstr(origin, "://");
    char given[TM_ADDRESS_MAX];
    host = host != NULL ? host + 3 : origin;
    (void)snprintf(given, sizeof given, "%.*s", (int)strcspn(host, "/"), host);
    tm_address_of_host(given, strncmp(origin, "http://", 7) == 0 ? "80" : "443", out);
}

/* This machine's address on its way there, by a connection that is made and closed; "": there is none. */
static void ask_route(struct tm_env *env, const char *origin, char out[TM_ADDRESS_MAX])
{
    char address[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    int handle = -1;
    out[0] = '\0';
    take_address(origin, address);
    if (env->net_connect(env, address, &handle, NULL) != 0) return;
    bool made = env->net_wait_send(env, handle, ROUTE_MS, NULL) == 0 &&
                env->net_own_address(env, handle, address, NULL) == 0 && !tm_address_is_loopback(address);
    env->net_close(env, handle);
    if (!made || tm_address_split(address, out, port, NULL) != 0) out[0] = '\0';
}

/* 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10. */
static bool is_private(const char *host)
{
    struct in_addr address;
    if (inet_pton(AF_INET, host, &address) != 1) return false;
    uint32_t number = ntohl(address.s_addr), a = number >> 24, b = number >> 16 & 255;
    return a == 10 || (a == 172 && b >= 16 && b < 32) || (a == 192 && b == 168) || (a == 100 && b >= 64 && b < 128);
}

#define SAY_OTHER                                                                                                      \
    "give --advertise ADDRESS, and --listen 0.0.0.0:PORT for ports that its firewall lets in (PORT and PORT + 1)"

/* Where VMs reach this machine. */
static int find_own(const struct tm_provider__vm_kind *kind, struct tm_env *env, struct tm_run_settings *settings,
                    const char *region, struct tm_error *e)
{
    char origin[TM_VM_ORIGIN_MAX];
    char own[TM_ADDRESS_MAX] = "";
    char host[TM_ADDRESS_MAX] = "";
    char port[TM_PORT_MAX];
    if (settings->advertise != NULL) return 0;
    if (settings->listen != NULL) tm_address_of_host(settings->listen, "0", own);
    if (settings->listen != NULL && (tm_address_split(own, host, port, NULL) != 0 || !tm_host_is_any(host))) return 0;
    own[0] = '\0';
    if (kind->origin(env, region[0] != '\0' ? region : NULL, origin, NULL) == 0) ask_route(env, origin, own);
    if (own[0] == '\0') return tm_error_set(e, TM_EUSAGE, "where do VMs reach this machine? " SAY_OTHER);
    settings->advertise = tm_arena_strdup(&settings->job.arena, own);
    if (settings->advertise == NULL) return tm_error_nomem(e);
    bool close = is_private(own);
    tm_log(close ? TM_LOG_WARN : TM_LOG_INFO,
           "VMs are told to reach this machine at %s, as it reaches %s%s; if they cannot, " SAY_OTHER, own, origin,
           close ? ": a private address, for VMs of the same network only" : "");
    return 0;
}

int tm_provider_vms__settle(const struct tm_provider__vm_kind *kind, struct tm_env *env,
                            struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    const struct tm_job *job = &settings->job;
    const struct tm_job_fleet *fleet = &job->fleet;
    char region[64];
    size_t scheme = strlen(kind->scheme);
    if (job->copies == NULL || strncmp(job->copies, kind->scheme, scheme) != 0 ||
        strncmp(job->copies + scheme, "://", 3) != 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: copies: cloud %s needs a bucket, where VMs find the program, too; write for example "
                            "copies: %s://my-bucket/%s",
                            place, kind->cloud, kind->scheme, job->name);
    if (fleet->pools.count == 0 && (fleet->instance == NULL || fleet->instance[0] == '\0'))
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.instance: which instance type? write for example fleet: {instance: %s, "
                            "limit: 4}",
                            place, kind->type);
    if (fleet->pools.count == 0 && fleet->limit == 0)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.limit: how many instances at most? write for example limit: 4",
                            place);
    int rc = tm_provider_vms__region(kind, fleet, place, region, e);
    return rc == 0 ? find_own(kind, env, settings, region, e) : rc;
}

int tm_provider_vms__check(const struct tm_provider__vm_kind *kind, const struct tm_run_settings *settings,
                           const char *place, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    if (settings->job.engine == TM_JOB_ENGINE_COMMAND && settings->job.setup == NULL)
        return tm_error_set(
            e, TM_EINPUT, "%s: setup: a VM is empty: say how it gets what `run` needs (git clone, pip install)", place);
    if (!tm_job_fleet_has_choices(fleet) && tm_job_fleet_keepers(fleet) > 0 &&
        tm_job_fleet_keepers(fleet) < fleet->on_demand)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet: on-demand instances either all train or all keep copies, with cloud %s", place,
                            kind->cloud);
    return 0;
}

/* ---- opening ---- */

/* Two pools for a job that has no choice, or as it has them. */
static int fill_pools(const struct tm_provider_request *request, struct tm_cloud_pool *pools)
{
    const struct tm_job_fleet *fleet = &request->settings->job.fleet;
    size_t count = 0;
    const struct tm_job_pool *planned = tm_job_fleet_pools(fleet, &count);
    if (request->pool_count > 0) {
        memcpy(pools, request->pools, (size_t)request->pool_count * sizeof *pools);
        return request->pool_count;
    }
    for (int kind = 0; kind < 2; kind++) {
        struct tm_cloud_pool *pool = &pools[kind];
        bool on_demand = kind == TM_INSTANCE_ON_DEMAND;
        bool keeps = on_demand && tm_job_fleet_keepers(fleet) > 0 && fleet->anchor_instance[0] != '\0';
        int64_t price = keeps       ? fleet->anchor_usd_h_millionths
                        : on_demand ? fleet->on_demand_usd_h_millionths
                                    : fleet->spot_usd_h_millionths;
        *pool = (struct tm_cloud_pool){.kind = on_demand ? TM_INSTANCE_ON_DEMAND : TM_INSTANCE_SPOT,
                                       .limit = on_demand ? 0 : (int)fleet->limit,
                                       .price_usd_h = price >= 0 ? (double)price / 1e6 : NAN};
        (void)snprintf(pool->name, sizeof pool->name, "%s", on_demand ? "on-demand" : "spot");
        (void)snprintf(pool->type, sizeof pool->type, "%s", keeps ? fleet->anchor_instance : fleet->instance);
        bool first = true;
        for (size_t i = 0; i < count; i++) { /* of one zone, if all are */
            if ((planned[i].market == TM_POOL_ON_DEMAND) != on_demand) continue;
            const char *zone = planned[i].zone != NULL ? planned[i].zone : "";
            bool same = first || strcmp(zone, pool->zone) == 0;
            (void)snprintf(pool->zone, sizeof pool->zone, "%s", same ? zone : "");
            first = false;
        }
    }
    return 2;
}

/* As a shell reads it. */
static void put_quoted(struct tm_text *out, const char *text)
{
    tm_text_putc(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            tm_text_puts(out, "'\\''");
        else
            tm_text_putc(out, *text);
    }
    tm_text_putc(out, '\'');
}

static int print_variables(const struct tm_provider_request *request, const char **out, struct tm_error *e)
{
    const struct tm_job_pairs *envs = &request->settings->job.envs;
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    for (size_t i = 0; i < envs->count; i++) {
        tm_text_printf(&text, "export %s=", envs->items[i].name);
        put_quoted(&text, envs->items[i].text != NULL ? envs->items[i].text : "");
        tm_text_putc(&text, '\n');
    }
    int rc = tm_text_status(&text, e);
    *out = rc == 0 ? tm_arena_strdup(request->arena, tm_text_string(&text)) : NULL;
    tm_text_deinit(&text);
    return rc == 0 && *out == NULL ? tm_error_nomem(e) : rc;
}

/* ---- the Python package ---- */

struct wheels {
    char name[256]; /* "": none so far */
};

static int take_wheel(void *context, const char *name, struct tm_error *e)
{
    struct wheels *found = context;
    size_t length = strlen(name);
    (void)e;
    if (length < sizeof found->name && length > 4 && strncmp(name, "tidemill-", 9) == 0 &&
        strcmp(name + length - 4, ".whl") == 0)
        memcpy(found->name, name, length + 1);
    return 0;
}

int tm_provider_vms__wheel(struct tm_env *env, const char *program, struct tm_arena *arena, const char **out,
                           struct tm_error *e)
{
    static const char *const beside[] = {"", "../wheel/", "../share/tidemill/"};
    const char *slash = strrchr(program, '/');
    int length = slash != NULL ? (int)(slash + 1 - program) : 0;
    const char *said = env->variable(env, "TIDEMILL_WHEEL");
    *out = NULL;
    if (said != NULL && said[0] != '\0') {
        *out = tm_arena_strdup(arena, said);
        return *out == NULL ? tm_error_nomem(e) : 0;
    }
    for (size_t i = 0; *out == NULL && i < sizeof beside / sizeof *beside; i++) {
        struct wheels found = {.name = ""};
        const char *folder = tm_arena_printf(arena, "%.*s%s", length, program, beside[i]);
        if (folder == NULL) return tm_error_nomem(e);
        (void)env->folder_each(env, folder[0] != '\0' ? folder : ".", take_wheel, &found, NULL);
        if (found.name[0] == '\0') continue;
        *out = tm_arena_printf(arena, "%s%s", folder, found.name);
        if (*out == NULL) return tm_error_nomem(e);
    }
    if (*out == NULL)
        tm_log(TM_LOG_WARN,
               "no wheel of the Python package lies beside %s: VMs have it only if setup installs it; make one with "
               "scripts/make-wheel, or say TIDEMILL_WHEEL=FILE.whl",
               program);
    return 0;
}

static int find_bucket(struct tm_env *env, struct tm_provider__vms *vms, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char place[TM_COPY_PLACE_MAX];
    tm_state_path(vms->request->dir, TM_STATE_COPIES, path);
    int rc = tm_copy_store_place(env, path, place, e);
    return rc == 0 ? tm_objects_place(place, vms->bucket, vms->prefix, e) : rc;
}

static int ticket(void *context, uint64_t id, bool on_demand, char out[TM_VM_TICKET_MAX], struct tm_error *e)
{
    static const int64_t usual_ms = 30 * 60000;
    const struct tm_provider__vms *vms = context;
    int64_t start_ms = vms->options.start_ms;
    const struct tm_ticket_for who = {
        .instance = id, .anchor = on_demand, .valid_ms = start_ms > 0 ? start_ms : usual_ms};
    static_assert((int)TM_VM_TICKET_MAX >= (int)TM_TICKET_MAX, "a ticket has room");
    return vms->request->ticket(vms->request->office, &who, out, e);
}

static bool has_joined(void *context, uint64_t id)
{
    const struct tm_provider__vms *vms = context;
    return tm_provider__has_joined((void *)vms->request, id);
}

static void bind_ticket(void *context, uint64_t id, const char *host)
{
    const struct tm_provider__vms *vms = context;
    vms->request->bind(vms->request->office, id, host);
}

/* The firewall of the VM that this runs on, where a coordinator was rented a VM; 0: it was not. */
static uint64_t own_group(struct tm_env *env)
{
    const char *text = env->variable(env, TM_OWN_GROUP);
    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

int tm_provider_vms__fill(const struct tm_provider__vm_kind *kind, struct tm_env *env,
                          const struct tm_provider_request *request, const struct tm_provider__vm_times *times,
                          struct tm_provider__vms **out, struct tm_error *e)
{
    const struct tm_job *job = &request->settings->job;
    const char *variables = NULL, *wheel = NULL;
    struct tm_provider__vms *vms = tm_arena_alloc(request->arena, sizeof *vms);
    if (vms == NULL) return tm_error_nomem(e);
    *vms = (struct tm_provider__vms){.request = request};
    tm_provider_vms_owner(env, vms->owner);
    int rc = tm_provider_vms__region(kind, &job->fleet, request->dir, vms->region, e);
    if (rc == 0) rc = find_bucket(env, vms, e);
    if (rc == 0) rc = print_variables(request, &variables, e);
    if (rc == 0 && job->engine == TM_JOB_ENGINE_COMMAND)
        rc = tm_provider_vms__wheel(env, request->program, request->arena, &wheel, e);
    if (rc != 0) return rc;
    vms->options = (struct tm_vm_options){.pools = vms->pools,
                                          .pool_count = fill_pools(request, vms->pools),
                                          .job = job->name,
                                          .owner = vms->owner,
                                          .run = request->settings->number,
                                          .group = own_group(env),
                                          .bucket = vms->bucket,
                                          .prefix = vms->prefix,
                                          .program = request->program,
                                          .wheel = wheel,
                                          .variables = variables,
                                          .setup = job->setup,
                                          .state_dir = request->cloud_dir,
                                          .log_dir = request->log_dir,
                                          .id_first = request->account->instance + 1,
                                          .account_ms = request->account->time_ms,
                                          .poll_ms = job->fleet.poll_ms,
                                          .silence_ms = times->silence_ms,
                                          .life_ms = times->life_ms,
                                          .start_ms = times->start_ms,
                                          .ticket = ticket,
                                          .has_joined = has_joined,
                                          /* a coordinator's VM is in the network of the others */
                                          .bind = own_group(env) != 0 ? bind_ticket : NULL,
                                          .context = vms};
    *out = vms;
    return 0;
}

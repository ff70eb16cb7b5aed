/* An instance as processes: a group of its own, marked, watched by a handle, and ended as a whole. */
#include "cloud/local_internal.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { OWN_VARIABLES = 8, WORDS_MAX = 1 << 12, DEATH_LIMIT_MS = 10000, VARIABLE_MAX = 192 };

static size_t count_words(const char *const *words)
{
    size_t count = 0;
    while (words != NULL && words[count] != NULL)
        count++;
    return count;
}

static int open_endpoint(struct tm_local__cloud *local, struct tm_local__place *place, struct tm_error *e)
{
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    char gateway[TM_LOCAL_NAME_MAX] = "127.0.0.1";
    if (place->in_netns) tm_local__netns_gateway(local->run, gateway);
    place->known = (struct tm_metadata){.id = instance->id, .version = 1};
    place->known.zone = tm_local__zone(local, place->pool, place->keeper);
    place->known.type = tm_local__type(local, place->pool, place->keeper);
    return tm_metadata_server__open(local->server, gateway, &place->known, instance->metadata, &place->endpoint, e);
}

static void fill_variables(const struct tm_local__cloud *local, const struct tm_cloud_instance *instance,
                           char texts[OWN_VARIABLES][VARIABLE_MAX])
{
    (void)snprintf(texts[0], VARIABLE_MAX, "TIDEMILL_INSTANCE_ID=%" PRIu64, instance->id);
    (void)snprintf(texts[1], VARIABLE_MAX, "TIDEMILL_INSTANCE_KIND=%s", tm_instance_kind__name(instance->kind));
    (void)snprintf(texts[2], VARIABLE_MAX, "TIDEMILL_INSTANCE_ZONE=%s", instance->zone);
    (void)snprintf(texts[3], VARIABLE_MAX, "TIDEMILL_INSTANCE_HOST=%s", instance->host);
    (void)snprintf(texts[4], VARIABLE_MAX, "TIDEMILL_METADATA=%s", instance->metadata);
    (void)snprintf(texts[5], VARIABLE_MAX, "TIDEMILL_CLOUD_MARK=%s", local->run);
    (void)snprintf(texts[6], VARIABLE_MAX, "TIDEMILL_INSTANCE_MARK=%s-%" PRIu64, local->run, instance->id);
    (void)snprintf(texts[7], VARIABLE_MAX, "TIDEMILL_INSTANCE_POOL=%s", local->is[instance->pool].name);
}

/* The command, in its namespace where it has one. `words` has room for four more than the command. */
static void fill_command(const struct tm_local__cloud *local, const struct tm_local__place *place, const char *netns,
                         const char **words)
{
    static const char *const enter[] = {"ip", "netns", "exec"};
    size_t count = 0;
    if (place->in_netns) {
        memcpy(words, enter, sizeof enter);
        words[3] = netns;
        count = 4;
    }
    for (size_t i = 0; local->options.command[i] != NULL; i++)
        words[count++] = local->options.command[i];
    words[count] = NULL;
}

static int start(struct tm_local__cloud *local, struct tm_local__place *place, const char **words,
                 const char **variables, struct tm_error *e)
{
    struct tm_env *env = local->env;
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    char texts[OWN_VARIABLES][VARIABLE_MAX];
    char netns[TM_LOCAL_NAME_MAX];
    char output[1200];
    size_t given = count_words(local->options.variables);
    for (size_t i = 0; i < given; i++)
        variables[i] = local->options.variables[i];
    fill_variables(local, instance, texts);
    for (size_t i = 0; i < OWN_VARIABLES; i++)
        variables[given + i] = texts[i];
    variables[given + OWN_VARIABLES] = NULL;
    tm_local__netns_name(local->run, (size_t)(place - local->places), netns);
    fill_command(local, place, netns, words);
    struct tm_process_options options = {.argv = words, .variables = variables, .group = true};
    if (local->options.log_dir != NULL) {
        (void)snprintf(output, sizeof output, "%.1000s/%" PRIu64 ".log", local->options.log_dir, instance->id);
        options.output = output;
        int rc = env->file_write_private(env, output, "", 0, e); /* makes the folder */
        if (rc != 0) return rc;
    }
    int rc = 0;
    if (local->options.prepare != NULL) rc = local->options.prepare(local->options.context, instance->id, e);
    if (rc == 0) rc = env->process_start_with(env, &options, &instance->pid, e);
    if (rc != 0) return rc;
    rc = env->process_handle(env, instance->pid, &place->handle, e);
    if (rc == 0) rc = env->process_started(env, instance->pid, &place->pid_start, e);
    return rc;
}

int tm_local__start_process(struct tm_local__cloud *local, struct tm_local__place *place, struct tm_error *e)
{
    size_t words_count = count_words(local->options.command) + 5;
    size_t variables_count = count_words(local->options.variables) + OWN_VARIABLES + 1;
    const char **words = tm_calloc(words_count, sizeof *words);
    const char **variables = tm_calloc(variables_count, sizeof *variables);
    int rc = words == NULL || variables == NULL ? tm_error_nomem(e) : 0;
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    (void)snprintf(instance->host, sizeof instance->host, "127.0.0.1");
    if (rc == 0 && local->options.netns) rc = tm_local__netns_add(local, place, e);
    if (rc == 0) rc = open_endpoint(local, place, e);
    if (rc == 0) rc = start(local, place, words, variables, e);
    tm_free(words);
    tm_free(variables);
    int status = 0;
    if (rc != 0) (void)tm_local__stop_process(local, place, false, &status, NULL);
    return rc;
}

int tm_local__stop_process(struct tm_local__cloud *local, struct tm_local__place *place, bool by_itself,
                           int *out_status, struct tm_error *e)
{
    struct tm_env *env = local->env;
    struct tm_cloud_instance *instance = tm_local__instance(local, place);
    char mark[VARIABLE_MAX];
    int ended = 0;
    int rc = 0;
    int status = -1;
    if (instance->pid > 0) {
        /* The group first, while its leader, a zombie at least, keeps its number from being used again. */
        rc = env->process_signal_group(env, instance->pid, SIGKILL, e);
        if (rc == -(int)TM_ENOTFOUND) rc = 0;
        int waited = env->process_wait(env, instance->pid, DEATH_LIMIT_MS, &status, rc == 0 ? e : NULL);
        if (rc == 0) rc = waited;
        (void)snprintf(mark, sizeof mark, "TIDEMILL_INSTANCE_MARK=%s-%" PRIu64, local->run, instance->id);
        int swept = env->process_end_marked(env, mark, &ended, rc == 0 ? e : NULL); /* those that left the group */
        if (rc == 0) rc = swept;
        instance->pid = 0;
    }
    if (place->handle >= 0) env->net_close(env, place->handle);
    place->handle = -1;
    tm_metadata_server__close(local->server, place->endpoint);
    place->endpoint = -1;
    if (place->in_netns) tm_local__netns_remove(local, place);
    *out_status = by_itself ? status : -1;
    return rc;
}

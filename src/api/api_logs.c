#include "api/api_logs.h"

#include "base/alloc.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INSTANCES_MAX = 256, TAIL_BYTES = 256 << 10, ALL_BYTES = 4 << 20 };

struct listing {
    size_t count;
    uint64_t instances[INSTANCES_MAX];
};

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Names of the form worker-N.log; the newest ones, which have the largest numbers. */
static int take_name(void *context, const char *name, struct tm_error *e)
{
    static const char prefix[] = "worker-";
    struct listing *all = context;
    char *end = NULL;
    (void)e;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return 0;
    const char *digits = name + sizeof prefix - 1;
    uint64_t instance = strtoull(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || strcmp(end, ".log") != 0) return 0;
    if (all->count < INSTANCES_MAX) {
        all->instances[all->count++] = instance;
    } else {
        qsort(all->instances, all->count, sizeof all->instances[0], by_number);
        if (instance > all->instances[0]) all->instances[0] = instance;
    }
    return 0;
}

/* Where the last `lines` lines begin. */
static char *last_lines(char *text, size_t length, int64_t lines)
{
    char *at = text + length;
    if (lines == 0) return at;
    if (at > text && at[-1] == '\n') at--;
    while (at > text) {
        if (at[-1] == '\n' && --lines == 0) break;
        at--;
    }
    return at;
}

static void write_lines(char *text, char *end, struct tm_jsonout *json)
{
    while (text < end) {
        char *stop = memchr(text, '\n', (size_t)(end - text));
        if (stop == NULL) stop = end;
        *stop = '\0';
        tm_jsonout_string(json, NULL, text);
        text = stop < end ? stop + 1 : end;
    }
}

/* Its end; what the file has before that is too long to show. A line that is cut there is left out. */
static void write_instance(const struct tm_api_source *source, uint64_t instance, int64_t last, char *buffer,
                           struct tm_jsonout *json)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_env *env = source->env;
    size_t length = 0;
    int64_t size = 0;
    tm_state_output_path(source->dir, instance, path);
    tm_jsonout_object(json, NULL);
    tm_jsonout_integer(json, "instance", (int64_t)instance);
    tm_jsonout_list(json, "lines");
    if (env->file_read_at(env, path, 0, buffer, 0, &length, &size, NULL) == 0) {
        int64_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
        if (env->file_read_at(env, path, from, buffer, TAIL_BYTES, &length, &size, NULL) == 0 && length > 0) {
            char *begin = from > 0 ? memchr(buffer, '\n', length) : buffer;
            begin = begin == NULL ? buffer : begin + (from > 0);
            char *text = last_lines(begin, (size_t)(buffer + length - begin), last);
            write_lines(text, buffer + length, json);
        }
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

bool tm_api__are_logs_here(const struct tm_api_source *source, const struct tm_api_asked *asked)
{
    char path[TM_STATE_PATH_MAX];
    int64_t instance = tm_api__param(asked, "instance");
    if (instance == 0 || source->dir == NULL) return instance == 0;
    tm_state_output_path(source->dir, (uint64_t)instance, path);
    return source->env->file_exists(source->env, path);
}

/* One that has written nothing yet is no mistake, if the status names its instance; nor is what nobody can say. */
static bool is_known(const struct tm_api_source *source, uint64_t worker)
{
    const struct tm_run_status *status = source->tap->status(source->tap);
    bool known = status == NULL;
    for (size_t i = 0; !known && i < status->instance_count; i++)
        known = status->instances[i].id == tm_instance_of_worker(worker, status->job.workers);
    return known;
}

static void refuse_unknown(uint64_t worker, struct tm_api_content *out)
{
    char words[160];
    (void)snprintf(words, sizeof words,
                   "there is no instance %" PRIu64
                   " in this run, and no log of it; leave out instance= for the logs of all",
                   worker);
    tm_api__content_refuse(out, 404, words);
}

void tm_api__write_logs(const struct tm_api_source *source, const struct tm_api_asked *asked,
                        struct tm_api_content *out)
{
    char folder[TM_STATE_PATH_MAX];
    int64_t instance = tm_api__param(asked, "instance");
    int64_t last = tm_api__param(asked, "last");
    struct tm_jsonout json;
    struct listing *all = tm_calloc(1, sizeof *all);
    char *buffer = tm_calloc(1, TAIL_BYTES + 1);
    if (all == NULL || buffer == NULL) {
        tm_api__content_refuse(out, 503, "out of memory; try again");
    } else if (!tm_api__are_logs_here(source, asked) && !is_known(source, (uint64_t)instance)) {
        refuse_unknown((uint64_t)instance, out);
    } else {
        if (instance > 0) all->instances[all->count++] = (uint64_t)instance;
        if (instance == 0 && source->dir != NULL) {
            tm_state_path(source->dir, TM_STATE_LOGS, folder);
            (void)source->env->folder_each(source->env, folder, take_name, all, NULL);
            qsort(all->instances, all->count, sizeof all->instances[0], by_number);
        }
        tm_jsonout_init(&json, &out->body);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_list(&json, "instances");
        for (size_t i = 0; i < all->count && source->dir != NULL; i++)
            write_instance(source, all->instances[i], out->body.length < ALL_BYTES ? last : 0, buffer, &json);
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    tm_free(buffer);
    tm_free(all);
}

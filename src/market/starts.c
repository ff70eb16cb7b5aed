#include "market/starts.h"

#include "base/arena.h"
#include "base/content.h"
#include "base/number.h"
#include "base/paths.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };
static const char header[] = "cloud,place,seen,seconds";
static const char file_name[] = "starts.csv";
static const double weight_max = 20; /* of what was seen before */

/* ---- the file ---- */

/* A word up to a comma or the end of the line. */
static bool take_word(const char **at, const char *end, char out[TM_START_NAME_MAX])
{
    const char *comma = memchr(*at, ',', (size_t)(end - *at));
    size_t length = (size_t)((comma != NULL ? comma : end) - *at);
    if (length >= TM_START_NAME_MAX) return false;
    memcpy(out, *at, length);
    out[length] = '\0';
    *at += length + (comma != NULL);
    return true;
}

static bool take_line(const char *line, size_t length, struct tm_start *out)
{
    const char *end = line + length;
    char words[2][TM_START_NAME_MAX];
    if (!take_word(&line, end, out->cloud) || !take_word(&line, end, out->place)) return false;
    if (!take_word(&line, end, words[0]) || !take_word(&line, end, words[1]) || line != end) return false;
    return tm_number_double(words[0], strlen(words[0]), &out->seen) &&
           tm_number_double(words[1], strlen(words[1]), &out->seconds) && out->seen > 0 && out->seen <= 1e9 &&
           out->seconds >= 0 && out->seconds <= 1e9;
}

int tm_starts__parse(const char *file, const char *text, size_t length, struct tm_start list[TM_STARTS_MAX],
                     size_t *out_count, struct tm_error *e)
{
    size_t count = 0;
    int number = 0;
    for (const char *at = text, *end = text + length; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop != NULL ? stop : end) - at);
        bool told = number == 0 && size == sizeof header - 1 && memcmp(at, header, size) == 0;
        if (!told && size > 0) {
            if (count == TM_STARTS_MAX)
                return tm_error_set(e, TM_ELIMIT, "%s: more than %d places; remove some lines", file, TM_STARTS_MAX);
            if (!take_line(at, size, &list[count++]))
                return tm_error_set(e, TM_EINPUT, "%s:%d: expected %s; remove the line", file, number + 1, header);
        }
        at += size + (stop != NULL);
    }
    *out_count = count;
    return 0;
}

struct starts {
    struct tm_arena arena;
    const char *path; /* NULL: there is no place for it */
    struct tm_start list[TM_STARTS_MAX];
    size_t count;
};

static int load(struct tm_env *env, struct starts *s, struct tm_error *e)
{
    struct tm_text text;
    tm_arena_init(&s->arena, 1 << 16);
    tm_text_init(&text, FILE_BYTES_MAX);
    s->count = 0;
    struct tm_error here = {.code = TM_OK};
    s->path = tm_path(env, TM_PATH_DATA, file_name, &s->arena, &here);
    int rc = s->path == NULL && here.code == TM_ENOMEM ? tm_error_nomem(e) : 0;
    if (s->path != NULL && env->file_exists(env, s->path)) {
        rc = tm_content_read(env, s->path, &text, e);
        if (rc == 0) rc = tm_starts__parse(s->path, tm_text_string(&text), text.length, s->list, &s->count, e);
    }
    tm_text_deinit(&text);
    return rc;
}

static int save(struct tm_env *env, const struct starts *s, struct tm_error *e)
{
    struct tm_text text;
    if (s->path == NULL) return tm_error_set(e, TM_EUSAGE, "there is no data folder: neither HOME nor XDG_DATA_HOME");
    tm_text_init(&text, FILE_BYTES_MAX);
    tm_text_printf(&text, "%s\n", header);
    for (size_t i = 0; i < s->count; i++)
        tm_text_printf(&text, "%s,%s,%.6g,%.6g\n", s->list[i].cloud, s->list[i].place, s->list[i].seen,
                       s->list[i].seconds);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = env->file_write(env, s->path, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    return rc;
}

static struct tm_start *find(struct starts *s, const char *cloud, const char *place)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].cloud, cloud) == 0 && strcmp(s->list[i].place, place) == 0) return &s->list[i];
    return NULL;
}

/* ---- learning, asking ---- */

static void take(struct starts *s, const struct tm_start *wait)
{
    struct tm_start *known = find(s, wait->cloud, wait->place);
    if (known != NULL && wait->at_least && wait->seconds <= known->seconds) return;
    if (known != NULL) {
        double before = fmin(known->seen, weight_max);
        known->seconds = (known->seconds * before + wait->seconds * wait->seen) / (before + wait->seen);
        known->seen = before + wait->seen;
        return;
    }
    if (s->count == TM_STARTS_MAX) memmove(s->list, s->list + 1, --s->count * sizeof *s->list);
    s->list[s->count] = *wait;
    s->list[s->count++].at_least = false;
}

int tm_starts_learn(struct tm_env *env, const struct tm_start *waits, size_t count, struct tm_error *e)
{
    struct starts s;
    int rc = load(env, &s, e);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (waits[i].seen > 0 && strpbrk(waits[i].place, ",\n") == NULL) take(&s, &waits[i]);
    if (rc == 0 && count > 0) rc = save(env, &s, e);
    tm_arena_deinit(&s.arena);
    return rc;
}

int tm_starts_ask(struct tm_env *env, const char *cloud, const char *place, double *out_s, struct tm_error *e)
{
    struct starts s;
    int rc = load(env, &s, e);
    const struct tm_start *known = rc == 0 ? find(&s, cloud, place) : NULL;
    if (rc == 0) *out_s = known != NULL ? known->seconds : NAN;
    tm_arena_deinit(&s.arena);
    return rc;
}

void tm_starts_place(const char *type, const char *zone, char out[TM_START_NAME_MAX])
{
    (void)snprintf(out, TM_START_NAME_MAX, "%.60s/%.60s", type, zone);
}

/* Of all places whose names begin with this; NaN: there are none. */
static double mean_s(const struct starts *s, const char *cloud, const char *place)
{
    double seen = 0, seconds = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct tm_start *start = &s->list[i];
        if (strcmp(start->cloud, cloud) != 0 || strncmp(start->place, place, strlen(place)) != 0) continue;
        seen += start->seen;
        seconds += start->seen * start->seconds;
    }
    return seen > 0 ? seconds / seen : NAN;
}

int tm_starts_ask_type(struct tm_env *env, const char *cloud, const char *type, const char *zone, double *out_s,
                       struct tm_error *e)
{
    struct starts s;
    char place[TM_START_NAME_MAX], anywhere[TM_START_NAME_MAX];
    tm_starts_place(type, zone, place);
    tm_starts_place(type, "", anywhere);
    int rc = load(env, &s, e);
    const struct tm_start *known = rc == 0 ? find(&s, cloud, place) : NULL;
    if (rc == 0) {
        *out_s = known != NULL ? known->seconds : mean_s(&s, cloud, place);
        if (isnan(*out_s)) *out_s = mean_s(&s, cloud, anywhere);
    }
    tm_arena_deinit(&s.arena);
    return rc;
}

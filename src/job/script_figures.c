#include "job/script_figures.h"

#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "job/workdir.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SCRIPT_MAX = 4 << 20, PATH_BYTES = 4096, NUMBER_MAX = 24 };

/* ---- Python, as far as a call goes ---- */

struct cursor {
    const char *at;
    const char *end;
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Of one quote or three. */
static void skip_string(struct cursor *c)
{
    char quote = *c->at;
    bool triple = c->end - c->at >= 3 && c->at[1] == quote && c->at[2] == quote;
    for (c->at += triple ? 3 : 1; c->at < c->end; c->at++) {
        if (*c->at == '\\') {
            c->at += c->at + 1 < c->end;
            continue;
        }
        if (!triple && *c->at == '\n') return; /* it was none */
        if (*c->at != quote) continue;
        if (triple && (c->end - c->at < 3 || c->at[1] != quote || c->at[2] != quote)) continue;
        c->at += triple ? 3 : 1;
        return;
    }
}

static void skip_line(struct cursor *c)
{
    while (c->at < c->end && *c->at != '\n')
        c->at++;
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (isspace((unsigned char)*c->at) || *c->at == '\\' || *c->at == '#')) {
        if (*c->at == '#')
            skip_line(c);
        else
            c->at++;
    }
}

/* One thing: a comment, a string, a word, a sign. */
static void skip_one(struct cursor *c)
{
    if (*c->at == '#')
        skip_line(c);
    else if (*c->at == '"' || *c->at == '\'')
        skip_string(c);
    else if (is_word(*c->at))
        while (c->at < c->end && is_word(*c->at))
            c->at++;
    else
        c->at++;
}

static bool is_named(const char *from, size_t length, const char *name)
{
    return strlen(name) == length && memcmp(from, name, length) == 0;
}

/* To behind the bracket of the next call by that name that is not a definition. */
static bool find_call(struct cursor *c)
{
    bool defines = false;
    while (c->at < c->end) {
        const char *from = c->at;
        skip_one(c);
        size_t length = (size_t)(c->at - from);
        if (!is_word(*from)) continue;
        bool named = (is_named(from, length, "init") || is_named(from, length, "Accelerator")) && !defines;
        defines = is_named(from, length, "def") || is_named(from, length, "class");
        if (!named) continue;
        skip_blanks(c);
        if (c->at == c->end || *c->at != '(') continue;
        c->at++;
        return true;
    }
    return false;
}

/* To the comma or bracket that ends a value. Returns where its last word ends, before blanks and comments. */
static const char *skip_value(struct cursor *c)
{
    int depth = 0;
    const char *last = c->at;
    while (c->at < c->end) {
        const char *from = c->at;
        if (depth == 0 && (*from == ',' || *from == ')')) break;
        depth += strchr("([{", *from) != NULL;
        depth -= strchr(")]}", *from) != NULL;
        skip_one(c);
        if (*from != '#' && !isspace((unsigned char)*from)) last = c->at;
    }
    return last;
}

/* 1000 or 1_000. */
static int64_t plain_number(const char *from, size_t length, int64_t unsaid)
{
    char digits[NUMBER_MAX];
    int64_t number = 0;
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        if (from[i] == '_') continue;
        if (count == sizeof digits) return unsaid;
        digits[count++] = from[i];
    }
    return tm_number_i64(digits, count, &number) && number >= 0 ? number : unsaid;
}

static void take(struct tm_script_figures *out, const char *key, size_t key_length, const char *value, size_t length)
{
    if (is_named(key, key_length, "steps")) out->steps = plain_number(value, length, 0);
    if (is_named(key, key_length, "batch")) out->batch = plain_number(value, length, 0);
    if (is_named(key, key_length, "micro_batch")) out->micro_batch = plain_number(value, length, 0);
    if (is_named(key, key_length, "seed")) out->seed = plain_number(value, length, -1);
    if (!is_named(key, key_length, "determinism") || length < 3 || length - 2 >= sizeof out->determinism) return;
    if (strchr("'\"", value[0]) != NULL)
        (void)snprintf(out->determinism, sizeof out->determinism, "%.*s", (int)length - 2, value + 1);
}

static void read_call(struct cursor *c, struct tm_script_figures *out)
{
    while (c->at < c->end && *c->at != ')') {
        skip_blanks(c);
        const char *key = c->at;
        while (c->at < c->end && is_word(*c->at))
            c->at++;
        size_t key_length = (size_t)(c->at - key);
        skip_blanks(c);
        if (key_length > 0 && c->end - c->at > 1 && c->at[0] == '=' && c->at[1] != '=') {
            c->at++;
            skip_blanks(c);
            const char *value = c->at;
            const char *last = skip_value(c);
            take(out, key, key_length, value, (size_t)(last - value));
        } else {
            (void)skip_value(c);
        }
        if (c->at < c->end && *c->at == ',') c->at++;
    }
}

bool tm_script_figures__read(const char *text, size_t length, struct tm_script_figures *out)
{
    struct cursor c = {text, text + length};
    bool any = false;
    while (find_call(&c)) {
        struct tm_script_figures found = {.seed = -1};
        read_call(&c, &found);
        bool both = found.steps > 0 && found.batch > 0;
        if (!both && (any || (found.steps <= 0 && found.batch <= 0))) continue;
        *out = found;
        any = true;
        if (both) return true;
    }
    return any;
}

int tm_script_figures_of(struct tm_env *env, const char *path, struct tm_script_figures *out, bool *found,
                         struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, SCRIPT_MAX);
    int rc = env->file_read(env, path, &text, NULL);
    *found = rc == 0 && tm_script_figures__read(tm_text_string(&text), text.length, out);
    tm_text_deinit(&text);
    return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
}

/* The file that python -m runs for a module of that folder: a.b is a/b.py, or a/b/__main__.py where b is a package. */
static bool find_module(struct tm_env *env, const char *folder, const char *module, size_t length, char out[PATH_BYTES])
{
    static const char *const ends[] = {".py", "/__main__.py"};
    bool here = folder == NULL || folder[0] == '\0';
    if (length == 0 || length >= PATH_BYTES / 2 || memchr(module, '/', length) != NULL) return false;
    int stem = snprintf(out, PATH_BYTES, "%.2000s%s", here ? "" : folder, here ? "" : "/");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        (void)snprintf(out + stem, PATH_BYTES - (size_t)stem, "%.*s%s", (int)length, module, ends[i]);
        for (size_t at = 0; at < length; at++)
            if (out[(size_t)stem + at] == '.') out[(size_t)stem + at] = '/';
        if (env->file_exists(env, out)) return true;
    }
    return false;
}

int tm_script_figures_of_module(struct tm_env *env, const char *folder, const char *module,
                                struct tm_script_figures *out, bool *found, struct tm_error *e)
{
    char path[PATH_BYTES];
    *found = false;
    if (!find_module(env, folder, module, strlen(module), path)) return 0;
    return tm_script_figures_of(env, path, out, found, e);
}

/* ---- the job ---- */

/* The first word of the command that ends in .py, or names a module of the folder behind -m. */
static bool find_script(struct tm_env *env, const struct tm_job *job, const char *folder, char out[PATH_BYTES])
{
    static const char between[] = " \t\n\"';&|()";
    bool module = false;
    for (const char *at = job->run; *at != '\0';) {
        at += strspn(at, between);
        size_t length = strcspn(at, between);
        bool script = length > 3 && memcmp(at + length - 3, ".py", 3) == 0;
        if (module && find_module(env, folder, at, length, out)) return true;
        if (script && length < PATH_BYTES / 2) {
            bool whole = at[0] == '/' || folder == NULL || folder[0] == '\0';
            (void)snprintf(out, PATH_BYTES, "%.2000s%s%.*s", whole ? "" : folder, whole ? "" : "/", (int)length, at);
            return true;
        }
        module = is_named(at, length, "-m") || is_named(at, length, "--module");
        at += length;
    }
    return false;
}

/* The file with lines more, which a map in YAML's own layout may have at its end. */
static void put_document(const struct tm_job *job, const char *script, const struct tm_script_figures *figures,
                         struct tm_text *out)
{
    tm_text_printf(out, "%s\n# of %s, as its call of init has them\n", job->document, script);
    if (job->steps < 1 && !tm_job_says(job, "samples")) tm_text_printf(out, "steps: %" PRId64 "\n", figures->steps);
    if (job->batch < 1) tm_text_printf(out, "batch: %" PRId64 "\n", figures->batch);
    if (figures->micro_batch > 0 && !tm_job_says(job, "micro_batch"))
        tm_text_printf(out, "micro_batch: %" PRId64 "\n", figures->micro_batch);
    if (figures->seed >= 0 && !tm_job_says(job, "seed")) tm_text_printf(out, "seed: %" PRId64 "\n", figures->seed);
    if (figures->determinism[0] != '\0' && !tm_job_says(job, "determinism"))
        tm_text_printf(out, "determinism: %s\n", figures->determinism);
}

static int read_again(struct tm_job *job, const char *script, const struct tm_script_figures *figures,
                      struct tm_error *e)
{
    struct tm_text text;
    struct tm_job fresh;
    struct tm_error own = {.text = ""};
    tm_text_init(&text, TM_JOB_BYTES_MAX + (1 << 16));
    tm_job_init(&fresh);
    put_document(job, script, figures, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_job_parse(job->file, tm_text_string(&text), text.length, &fresh, &own);
    tm_text_deinit(&text);
    if (rc == -(int)TM_ENOMEM || rc == 0) fresh.folder = rc == 0 ? tm_arena_strdup(&fresh.arena, job->folder) : NULL;
    if (rc != 0 || fresh.folder == NULL) { /* another layout: what is missing is said by whoever needs it */
        tm_job_deinit(&fresh);
        return rc == -(int)TM_ENOMEM || rc == 0 ? tm_error_nomem(e) : 0;
    }
    tm_log(TM_LOG_INFO,
           "%s: what it leaves out is taken from %s: steps %" PRId64 ", batch %" PRId64 ", micro_batch %" PRId64,
           job->file, script, fresh.steps, fresh.batch, fresh.micro_batch > 0 ? fresh.micro_batch : fresh.batch);
    tm_job_deinit(job);
    *job = fresh;
    return 0;
}

int tm_script_figures__fill(struct tm_env *env, struct tm_job *job, struct tm_error *e)
{
    char script[PATH_BYTES];
    struct tm_script_figures figures;
    bool found = false;
    bool said = job->steps > 0 && job->batch > 0 && tm_job_says(job, "micro_batch");
    if (job->run == NULL || said) return 0;
    const char *folder = tm_workdir__find(job, &job->arena);
    if (folder == NULL && job->workdir != NULL) return tm_error_nomem(e);
    if (!find_script(env, job, folder, script)) return 0;
    int rc = tm_script_figures_of(env, script, &figures, &found, e);
    if (rc != 0 || !found) return rc;
    bool enough =
        (job->steps > 0 || figures.steps > 0 || tm_job_says(job, "samples")) && (job->batch > 0 || figures.batch > 0);
    bool divides = figures.micro_batch > 0 && job->batch % figures.micro_batch == 0;
    bool more = job->steps < 1 || job->batch < 1 || divides;
    return enough && more ? read_again(job, script, &figures, e) : 0;
}

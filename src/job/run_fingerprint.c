#include "job/run_fingerprint.h"

#include "job/job_engine_internal.h"
#include "wire/fingerprint.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SCRIPT_BYTES_MAX = 1 << 20, PATH_BYTES = 4096, WORD_BYTES = 512 };

/* Only what is text by its name: a command may also name its data, devices and pipes. */
static bool is_script(const char *word)
{
    static const char *const endings[] = {".py", ".sh", ".yaml", ".yml", ".json", ".toml"};
    const char *dot = strrchr(word, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0) return true;
    return false;
}

void tm_run_fingerprint__word(struct tm_env *env, const char *folder, const char *word, struct tm_text *out)
{
    char path[PATH_BYTES];
    char name[WORD_BYTES];
    char hash[33];
    struct tm_text text;
    if (!is_script(word)) return;
    bool from_folder = word[0] != '/' && folder[0] != '\0';
    (void)snprintf(path, sizeof path, "%s%s%s", from_folder ? folder : "", from_folder ? "/" : "", word);
    const char *slash = strrchr(word, '/');
    (void)snprintf(name, sizeof name, "program %.100s", slash == NULL ? word : slash + 1);
    tm_text_init(&text, SCRIPT_BYTES_MAX);
    if (env->file_read(env, path, &text, NULL) == 0)
        tm_fingerprint_line(out, name, tm_hash_print(tm_hash_of(text.data, text.length), hash));
    tm_text_deinit(&text);
}

static void put_scripts(struct tm_env *env, const char *folder, const char *command, struct tm_text *out)
{
    char word[WORD_BYTES];
    for (const char *at = command; *at != '\0';) {
        size_t length = strcspn(at, " \t\n\"';|&<>()");
        if (length > 0 && length < sizeof word) {
            memcpy(word, at, length);
            word[length] = '\0';
            tm_run_fingerprint__word(env, folder, word, out);
        }
        at += length + (at[length] != '\0');
    }
}

static void put_variables(const struct tm_job *job, struct tm_text *out)
{
    char name[WORD_BYTES];
    for (size_t i = 0; i < job->envs.count; i++) {
        (void)snprintf(name, sizeof name, "envs.%.100s", job->envs.items[i].name);
        tm_fingerprint_line(out, name, job->envs.items[i].text);
    }
}

void tm_run_fingerprint__job(struct tm_env *env, const struct tm_job *job, struct tm_text *out)
{
    const char *folder = job->folder;
    char text[PATH_BYTES];
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"steps", job->steps},
                   {"batch", job->batch},
                   {"micro_batch", job->micro_batch},
                   {"seed", job->seed},
                   {"layers", job->layers}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(text, sizeof text, "%" PRId64, numbers[i].value);
        tm_fingerprint_line(out, numbers[i].name, text);
    }
    if (job->determinism != NULL) tm_fingerprint_line(out, "determinism", job->determinism);
    if (job->run == NULL) return;
    tm_fingerprint_line(out, "run", job->run);
    put_variables(job, out);
    bool absolute = job->workdir != NULL && (job->workdir[0] == '/' || folder[0] == '\0');
    (void)snprintf(text, sizeof text, "%s%s%s", absolute ? "" : folder, job->workdir != NULL && !absolute ? "/" : "",
                   job->workdir != NULL ? job->workdir : "");
    put_scripts(env, text, job->run, out);
}

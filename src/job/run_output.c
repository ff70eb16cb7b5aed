#include "job/run_output.h"

#include "base/alloc.h"
#include "base/number.h"
#include "base/term.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1000, TAKE_BYTES = 16 << 10, FILES_MAX = 1 << 16 };

/* One worker's file. */
struct follower {
    uint64_t instance;
    int64_t shown; /* bytes of it */
    char line[LINE_MAX_BYTES];
    size_t length; /* of a line whose end has not come */
    int escape;    /* inside a command to the terminal: 1 behind its ESC, 2 behind its [ */
    bool begins;   /* the next byte begins anew what a carriage return ended */
};

struct tm_run_output {
    struct tm_env *env;
    const char *dir;
    struct follower *files;
    size_t count;
    size_t capacity;
};

static struct follower *find(struct tm_run_output *output, uint64_t instance)
{
    for (size_t i = 0; i < output->count; i++)
        if (output->files[i].instance == instance) return &output->files[i];
    void *array = output->files;
    if (tm_grow(&array, &output->capacity, output->count + 1, sizeof *output->files, FILES_MAX) != 0) return NULL;
    output->files = array;
    output->files[output->count] = (struct follower){.instance = instance};
    return &output->files[output->count++];
}

static void end_line(struct follower *f, struct tm_text *out)
{
    tm_text_printf(out, "[%" PRIu64 "] ", f->instance);
    tm_term_put_safe(out, f->line, f->length);
    tm_text_putc(out, '\n');
    f->length = 0;
    f->begins = false;
}

/* Colours and the like, ESC [ ... letter, are left out. */
static bool in_escape(struct follower *f, char byte)
{
    if (f->escape == 0 && byte != '\033') return false;
    if (f->escape == 0)
        f->escape = 1;
    else if (f->escape == 1)
        f->escape = byte == '[' ? 2 : 0;
    else if (byte >= '@' || byte < ' ')
        f->escape = 0;
    return byte != '\n';
}

/* A progress bar writes over itself: only what stands in the end is shown. */
static void take_byte(struct follower *f, char byte, struct tm_text *out)
{
    if (in_escape(f, byte)) return;
    if (byte == '\n') {
        end_line(f, out);
        return;
    }
    if (byte == '\r') {
        f->begins = true;
        return;
    }
    if (f->begins) f->length = 0;
    f->begins = false;
    if (f->length < sizeof f->line) f->line[f->length++] = byte == '\t' ? ' ' : byte;
}

static void skip(struct tm_run_output *output, struct follower *f, int64_t size, struct tm_text *out)
{
    if (size - f->shown <= TAKE_BYTES) return;
    char path[TM_STATE_PATH_MAX];
    tm_state_output_path(output->dir, f->instance, path);
    if (f->length > 0) end_line(f, out);
    tm_text_printf(out, "[%" PRIu64 "] ... %" PRId64 " bytes omitted; full output: %s\n", f->instance,
                   size - f->shown - TAKE_BYTES, path);
    f->shown = size - TAKE_BYTES;
    f->begins = true; /* the first line is a part of one */
}

/* Nothing is read for its size alone; -1: it cannot be read. */
static int64_t size_of(struct tm_run_output *output, const struct follower *f)
{
    char path[TM_STATE_PATH_MAX];
    size_t length = 0;
    int64_t size = 0;
    tm_state_output_path(output->dir, f->instance, path);
    return output->env->file_read_at(output->env, path, 0, NULL, 0, &length, &size, NULL) == 0 ? size : -1;
}

static void follow(struct tm_run_output *output, struct follower *f, struct tm_text *out)
{
    char path[TM_STATE_PATH_MAX];
    char bytes[4096];
    size_t got = 1;
    int64_t size = size_of(output, f);
    tm_state_output_path(output->dir, f->instance, path);
    if (size < f->shown && size >= 0) f->shown = 0; /* it was begun anew */
    skip(output, f, size, out);
    for (int64_t now = 0; got > 0 && f->shown < size; f->shown += (int64_t)got) {
        if (output->env->file_read_at(output->env, path, f->shown, bytes, sizeof bytes, &got, &now, NULL) != 0) return;
        for (size_t i = 0; i < got; i++)
            take_byte(f, bytes[i], out);
    }
}

/* "worker-N.log" */
static bool read_name(const char *name, uint64_t *out)
{
    int64_t number = 0;
    size_t length = strlen(name);
    if (length < 12 || strncmp(name, "worker-", 7) != 0 || strcmp(name + length - 4, ".log") != 0) return false;
    if (!tm_number_i64(name + 7, length - 11, &number) || number < 1) return false;
    *out = (uint64_t)number;
    return true;
}

static int take_name(void *context, const char *name, struct tm_error *e)
{
    uint64_t instance = 0;
    (void)e;
    if (read_name(name, &instance)) (void)find(context, instance);
    return 0;
}

static void look(struct tm_run_output *output)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(output->dir, TM_STATE_LOGS, path);
    (void)output->env->folder_each(output->env, path, take_name, output, NULL);
}

struct tm_run_output *tm_run_output_create(struct tm_env *env, const char *dir)
{
    struct tm_run_output *output = tm_calloc(1, sizeof *output);
    if (output == NULL) return NULL;
    output->env = env;
    output->dir = dir;
    look(output);
    for (size_t i = 0; i < output->count; i++) {
        int64_t size = size_of(output, &output->files[i]);
        if (size > 0) output->files[i].shown = size;
    }
    return output;
}

void tm_run_output_destroy(struct tm_run_output *output)
{
    if (output == NULL) return;
    tm_free(output->files);
    tm_free(output);
}

void tm_run_output_take(struct tm_run_output *output, bool last, struct tm_text *out)
{
    look(output);
    for (size_t i = 0; i < output->count; i++) {
        follow(output, &output->files[i], out);
        if (last && output->files[i].length > 0) end_line(&output->files[i], out);
    }
}

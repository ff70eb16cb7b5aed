#include "job/torchrun.h"

#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 256, WORDS_MAX = 512 };

int tm_torchrun_nodes(const char *text, int64_t *out_min, int64_t *out_max, struct tm_error *e)
{
    const char *colon = strchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    int64_t least = 0;
    int64_t most = 0;
    bool good = tm_number_i64(text, length, &least);
    most = least;
    if (colon != NULL) good = good && tm_number_i64(colon + 1, strlen(colon + 1), &most);
    if (!good || least < 1 || most < least || most > NODES_MAX)
        return tm_error_set(e, TM_EUSAGE, "--nnodes: expected N or MIN:MAX, from 1 to %d, got \"%.40s\"", NODES_MAX,
                            text);
    *out_min = least;
    *out_max = most;
    return 0;
}

void tm_torchrun_name(const char *from, char out[64])
{
    const char *slash = strrchr(from, '/');
    if (slash != NULL && slash[1] != '\0') from = slash + 1;
    size_t length = strlen(from);
    if (length > 3 && strcmp(from + length - 3, ".py") == 0) length -= 3;
    if (length > 60) length = 60;
    for (size_t i = 0; i < length; i++) {
        char c = from[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        out[i] = good ? c : '-';
    }
    out[length] = '\0';
    if (out[0] == '-' || out[0] == '\0') out[0] = 't';
    if (length == 0) out[1] = '\0';
}

/* One word for a shell, within a text in double quotes of YAML: every byte as it is. */
static void put_word(const char *word, struct tm_text *out)
{
    tm_text_putc(out, '\'');
    for (; *word != '\0'; word++) {
        unsigned char c = (unsigned char)*word;
        if (c == '\'')
            tm_text_puts(out, "'\\\\''");
        else if (c == '"' || c == '\\')
            tm_text_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            tm_text_printf(out, "\\x%02x", c);
        else
            tm_text_putc(out, (char)c);
    }
    tm_text_putc(out, '\'');
}

static void put_command(const struct tm_torchrun *given, struct tm_text *out)
{
    tm_text_puts(out, "run: \"exec");
    if (given->python != NULL) {
        tm_text_putc(out, ' ');
        put_word(given->python, out);
        tm_text_puts(out, given->module ? " -u -m" : " -u");
    }
    for (size_t i = 0; i < given->word_count; i++) {
        tm_text_putc(out, ' ');
        put_word(given->words[i], out);
    }
    tm_text_puts(out, "\"\n");
}

int tm_torchrun_job(const struct tm_torchrun *given, struct tm_text *out, struct tm_error *e)
{
    if (given->word_count == 0)
        return tm_error_set(e, TM_EUSAGE, "which script? tidemill torchrun [options] SCRIPT [ARGS]");
    if (given->word_count > WORDS_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d words for the script", WORDS_MAX);
    if (given->steps < 1 || given->batch < 1)
        return tm_error_set(e, TM_EUSAGE,
                            "give --steps N and --batch N, as the script's tidemill.torch.init(steps=..., batch=...) "
                            "has them: written there as plain numbers they are taken from it");
    tm_text_printf(out, "# made by tidemill torchrun\nname: %s\n", given->name);
    put_command(given, out);
    tm_text_puts(out, "workdir: \"");
    for (const char *at = given->folder; *at != '\0'; at++)
        tm_text_printf(out, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    tm_text_printf(out, "\"\nsteps: %" PRId64 "\nbatch: %" PRId64 "\n", given->steps, given->batch);
    if (given->micro_batch > 0) tm_text_printf(out, "micro_batch: %" PRId64 "\n", given->micro_batch);
    if (given->seed >= 0) tm_text_printf(out, "seed: %" PRId64 "\n", given->seed);
    if (given->determinism != NULL) tm_text_printf(out, "determinism: %s\n", given->determinism);
    if (given->max_restarts >= 0)
        tm_text_printf(out, "max_failures: %" PRId64 "\n", given->max_restarts > 0 ? given->max_restarts : 1);
    tm_text_printf(out, "fleet:\n  limit: %" PRId64 "\n", given->nodes_max);
    if (given->workers > 1) tm_text_printf(out, "  workers: %" PRId64 "\n", given->workers);
    if (given->nodes_min > 1)
        tm_text_printf(out, "  workers_min: %" PRId64 "\n",
                       given->nodes_min * (given->workers > 1 ? given->workers : 1));
    return tm_text_status(out, e);
}

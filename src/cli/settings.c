#include "cli/settings.h"

#include "base/content.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/term.h"
#include "market/catalog.h"
#include "workload/job_notify.h"

enum { SETTINGS_BYTES_MAX = 1 << 20 };

static const char *const color_names[] = {"auto", "always", "never", NULL};
static const char *const log_names[] = {"error", "warning", "info", "debug", NULL};

const struct tm_field tm_settings_fields[] = {
    {.key = "color",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_settings, color),
     .choices = color_names,
     .doc = "colour in tables and plots; auto: on a terminal, unless NO_COLOR is set"},
    {.key = "log",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_settings, log),
     .choices = log_names,
     .doc = "how much to print on standard error"},
    {.key = "precision",
     .type = TM_FIELD_CHOICE,
     .offset = offsetof(struct tm_settings, precision),
     .choices = tm_precision_names,
     .doc = "precision of the TFLOPS and FLOPP that catalog shows"},
    {.key = "clouds",
     .type = TM_FIELD_STRINGS,
     .offset = offsetof(struct tm_settings, clouds),
     .example = "[aws, gcp]",
     .doc = "clouds that catalog shows without --cloud"},
    {.key = "data_dir",
     .type = TM_FIELD_STRING,
     .offset = offsetof(struct tm_settings, data_dir),
     .example = "/srv/tidemill",
     .doc = "folder of imported catalogues"},
    {.key = "notify",
     .type = TM_FIELD_MAPS,
     .offset = offsetof(struct tm_settings, notify),
     .fields = tm_notify_fields,
     .size = sizeof(struct tm_notify_target),
     .example = "[{webhook: \"https://...\", format: slack}]",
     .doc = "whom to tell how runs go, as the key notify of a job file"},
    {.key = NULL},
};

void tm_settings_defaults(struct tm_settings *settings)
{
    *settings = (struct tm_settings){
        .color = TM_COLOR_AUTO, .log = TM_LOG_WARN, .precision = TM_PRECISION_MIXED, .data_dir = "", .path = ""};
}

int tm_settings_parse(const char *file, const char *text, size_t length, struct tm_arena *arena,
                      struct tm_settings *settings, struct tm_error *e)
{
    struct tm_node *root = NULL;
    int rc = tm_doc_parse_yaml(file, text, length, arena, &root, e);
    if (rc != 0) return rc;
    struct tm_settings fresh = *settings;
    rc = tm_fields_read(file, root, tm_settings_fields, arena, &fresh, e);
    if (rc == 0) rc = tm_notify_check(&fresh.notify, file, e);
    if (rc == 0) *settings = fresh;
    return rc;
}

int tm_settings_load(struct tm_env *env, const char *path, struct tm_arena *arena, struct tm_settings *settings,
                     struct tm_error *e)
{
    struct tm_error no_path = {0};
    const char *file = path != NULL ? path : tm_path(env, TM_PATH_CONFIG, "config.yaml", arena, &no_path);
    if (file == NULL && no_path.code == TM_ENOMEM) return tm_error_nomem(e); /* the settings may be there */
    if (file == NULL || (path == NULL && !env->file_exists(env, file))) return 0;
    struct tm_text text;
    tm_text_init(&text, SETTINGS_BYTES_MAX);
    int rc = tm_content_read(env, file, &text, e);
    if (rc == 0) rc = tm_settings_parse(file, tm_text_string(&text), text.length, arena, settings, e);
    if (rc == 0) settings->path = file;
    tm_text_deinit(&text);
    return rc;
}

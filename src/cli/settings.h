/* The user's settings: config.yaml in the settings folder (paths.h), or the file that --config names. */
#ifndef TM_CLI_SETTINGS_H
#define TM_CLI_SETTINGS_H

#include "base/env.h"
#include "base/fields.h"

struct tm_settings {
    int color;                /* enum tm_color_mode */
    int log;                  /* enum tm_log__level */
    int precision;            /* of the catalogue's TFLOPS: enum tm_precision or mixed */
    struct tm_strings clouds; /* show these only; empty: all */
    const char *data_dir;     /* "": by the XDG rules */
    struct tm_maps notify;    /* of struct tm_notify_target: whom to tell of every run */
    const char *path;         /* file they came from; "": none */
};

/* The table the reader, `tidemill config` and the manual use. */
extern const struct tm_field tm_settings_fields[];

void tm_settings_defaults(struct tm_settings *settings);
/* `path` NULL: the usual file, which may be missing. Strings live in the arena. */
int tm_settings_load(struct tm_env *env, const char *path, struct tm_arena *arena, struct tm_settings *settings,
                     struct tm_error *e);
/* The same for text in hand. */
int tm_settings_parse(const char *file, const char *text, size_t length, struct tm_arena *arena,
                      struct tm_settings *settings, struct tm_error *e);

#endif

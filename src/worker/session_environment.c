/* The options of a worker that an agent has started, from the variables that it was given. */
#include <tidemill.h>

#include "base/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int number_of(struct tm_env *env, const char *name, bool needed, uint64_t *out, struct tm_error *e)
{
    const char *text = env->variable(env, name);
    char *end = NULL;
    if (text == NULL || text[0] == '\0')
        return needed ? tm_error_set(e, TM_EUSAGE, "%s is not set: a worker is started by `tidemill agent`", name) : 0;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return tm_error_set(e, TM_EUSAGE, "%s=%s: not a whole number", name, text);
    *out = value;
    return 0;
}

static int text_of(struct tm_env *env, const char *name, bool needed, const char **out, struct tm_error *e)
{
    const char *text = env->variable(env, name);
    if (text != NULL && text[0] != '\0') *out = text;
    if (needed && *out == NULL)
        return tm_error_set(e, TM_EUSAGE, "%s is not set: a worker is started by `tidemill agent`", name);
    return 0;
}

int tidemill_options_from_environment(struct tidemill_options *out, char *error, size_t error_size)
{
    struct tm_env *env = tm_env_real();
    struct tidemill_options options = {.size = sizeof options};
    struct tm_error e;
    uint64_t anchor = 0;
    int rc = text_of(env, "TIDEMILL_COORDINATOR", true, &options.coordinator, &e);
    if (rc == 0) rc = text_of(env, "TIDEMILL_TOKEN_FILE", true, &options.token_file, &e);
    if (rc == 0) rc = number_of(env, "TIDEMILL_JOB", true, &options.job, &e);
    if (rc == 0) rc = number_of(env, "TIDEMILL_INSTANCE_ID", true, &options.instance, &e);
    if (rc == 0) rc = number_of(env, "TIDEMILL_INCARNATION", false, &options.incarnation, &e);
    if (rc == 0) rc = number_of(env, "TIDEMILL_ANCHOR", false, &anchor, &e);
    if (rc == 0) rc = text_of(env, "TIDEMILL_HOST", false, &options.listen, &e);
    if (rc == 0) rc = text_of(env, "TIDEMILL_COPIES", false, &options.copy_folder, &e);
    if (rc == 0) rc = text_of(env, "TIDEMILL_TLS", false, &options.tls_folder, &e);
    if (rc == 0) rc = text_of(env, "TIDEMILL_FINGERPRINT", false, &options.fingerprint, &e);
    options.anchor = anchor != 0;
    if (rc == 0)
        *out = options;
    else if (error != NULL)
        (void)snprintf(error, error_size, "%s", e.text);
    return rc;
}

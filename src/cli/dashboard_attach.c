#include "cli/dashboard_attach.h"

#include "base/address.h"
#include "cli/commands.h"
#include "cli/dashboard_open.h"
#include "wire/tls_page.h"

#include <string.h>

enum { TOKENS_MAX = 1 << 16, TOKEN_LENGTH = 64 };

struct attaching {
    struct tm_dashboard_attach list[TM_DASHBOARD_ATTACHED_MAX];
    size_t count;
    const char *tokens; /* the file's, or the variable's */
};

static bool is_token(const char *text, size_t length)
{
    return length == TOKEN_LENGTH && strspn(text, "0123456789abcdef") >= length;
}

/* The line "HOST:PORT TOKEN", or the only word there is. */
static int find_token(struct tm_cli *cli, const char *tokens, const char *address, const char **out, struct tm_error *e)
{
    const char *found = NULL;
    for (const char *line = tokens; found == NULL && *line != '\0';) {
        size_t length = strcspn(line, "\r\n");
        size_t word = strcspn(line, " \t\r\n");
        size_t gap = strspn(line + word, " \t");
        if (is_token(line, word)) found = line;
        if (word == strlen(address) && strncmp(line, address, word) == 0 && gap > 0 &&
            is_token(line + word + gap, strcspn(line + word + gap, " \t\r\n")))
            found = line + word + gap;
        line += length;
        line += strspn(line, "\r\n");
    }
    if (found == NULL)
        return tm_error_set(e, TM_EUSAGE,
                            "--attach %s: no token of 64 hexadecimal digits for it: give its file with --token, or "
                            "set TIDEMILL_ATTACH_TOKEN",
                            address);
    *out = tm_arena_strndup(&cli->arena, found, TOKEN_LENGTH);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

static int add(struct tm_cli *cli, void *context, const char *value, struct tm_error *e)
{
    static const char plain[] = "http://", secure[] = "https://", pin[] = "sha256=";
    struct attaching *a = context;
    char host[TM_ADDRESS_MAX], port[TM_PORT_MAX];
    if (a->count == TM_DASHBOARD_ATTACHED_MAX)
        return tm_error_set(e, TM_EUSAGE, "--attach: more than %d", TM_DASHBOARD_ATTACHED_MAX);
    struct tm_dashboard_attach one = {.tls = strncmp(value, secure, strlen(secure)) == 0};
    if (!one.tls && strncmp(value, plain, strlen(plain)) != 0)
        return tm_error_set(e, TM_EUSAGE, "--attach %.60s: expected https://HOST:PORT", value);
    const char *rest = value + strlen(one.tls ? secure : plain);
    size_t length = strcspn(rest, "/#");
    const char *fragment = strchr(rest, '#');
    const char *path = rest + length + (rest[length] == '/');
    if (*path != '\0' && *path != '#')
        return tm_error_set(e, TM_EUSAGE, "--attach %.60s: expected https://HOST:PORT without a path", value);
    if (fragment != NULL) {
        bool good = strncmp(fragment + 1, pin, strlen(pin)) == 0 &&
                    tm_tls_read_fingerprint(fragment + 1 + strlen(pin), one.fingerprint);
        if (!good) /* a link with a token would end up in the list of processes */
            return tm_error_set(e, TM_EUSAGE,
                                "--attach: after # comes sha256= and the certificate's fingerprint; a token belongs in "
                                "a file (--token)");
        one.pinned = true;
    }
    const char *given = tm_arena_strndup(&cli->arena, rest, length);
    char *address = tm_arena_alloc(&cli->arena, TM_ADDRESS_MAX);
    if (given == NULL || address == NULL) return tm_error_nomem(e);
    tm_address_of_host(given, one.tls ? "443" : "80", address);
    int rc = tm_address_split(address, host, port, e);
    if (rc == 0) rc = find_token(cli, a->tokens, address, &one.token, e);
    if (rc != 0) return rc;
    one.address = address;
    a->list[a->count++] = one;
    return 0;
}

static int read_tokens(struct tm_cli *cli, const char **out, struct tm_error *e)
{
    const char *file = tm_given_text(cli, "token");
    const char *variable = cli->env->variable(cli->env, "TIDEMILL_ATTACH_TOKEN");
    struct tm_text text;
    *out = variable == NULL ? "" : variable;
    if (file == NULL) return 0;
    tm_text_init(&text, TOKENS_MAX);
    int rc = cli->env->file_read(cli->env, file, &text, e);
    if (rc == 0) {
        *out = tm_arena_strndup(&cli->arena, tm_text_string(&text), text.length);
        if (*out == NULL) rc = tm_error_nomem(e);
    }
    tm_text_deinit(&text);
    return rc;
}

int tm_dashboard_attached(struct tm_cli *cli, const struct tm_dashboard_attach **out, size_t *out_count,
                          struct tm_error *e)
{
    struct attaching *a = tm_arena_alloc(&cli->arena, sizeof *a);
    if (a == NULL) return tm_error_nomem(e);
    a->count = 0;
    int rc = read_tokens(cli, &a->tokens, e);
    if (rc == 0) rc = tm_cmd_each_value(cli, "attach", a, add, e);
    *out = a->list;
    *out_count = rc == 0 ? a->count : 0;
    return rc;
}

/* What a cloud of VMs must find again after a crash: a file for each VM, with the words of the call that rents it until
 * it is answered and then with its id, and one that says when this program began.
 *
 *     tidemill-vm 1 POOL ID       ID "-": not known yet
 *     WORDS                       only then: AWS's form, Azure's JSON
 *
 *     tidemill-begin 1 UTC_MS ACCOUNT_MS */
#include "base/log.h"
#include "base/number.h"
#include "cloud/vm_cloud.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NOTE_MAX = 1 << 20 };

static void path_of(const struct tm_vm_cloud *c, const char *name, char out[TM_VM_PATH_MAX])
{
    (void)snprintf(out, TM_VM_PATH_MAX, "%.1000s/%.100s", c->folder, name);
}

/* Two numbers or words after "tidemill-X 1 ". */
static bool read_head(const char *text, const char *kind, char first[32], char second[TM_VM_ID_MAX])
{
    size_t length = strlen(kind);
    if (strncmp(text, kind, length) != 0 || strncmp(text + length, " 1 ", 3) != 0) return false;
    const char *at = text + length + 3;
    size_t one = strcspn(at, " \n");
    if (at[one] != ' ' || one == 0 || one >= 32) return false;
    size_t two = strcspn(at + one + 1, " \n");
    if (at[one + 1 + two] != '\n' || two == 0 || two >= TM_VM_ID_MAX) return false;
    (void)snprintf(first, 32, "%.*s", (int)one, at);
    (void)snprintf(second, TM_VM_ID_MAX, "%.*s", (int)two, at + one + 1);
    return true;
}

static int read_file(struct tm_vm_cloud *c, const char *name, struct tm_text *out, struct tm_error *e)
{
    char path[TM_VM_PATH_MAX];
    path_of(c, name, path);
    return c->env->file_read(c->env, path, out, e);
}

/* "tm-RUN-RANDOM", and nothing behind it: a program that is killed while it writes leaves a file of a longer name. */
static bool is_token(const char *name)
{
    static const char form[] = "tm-0123456789abcdef-0123456789abcdef";
    for (size_t i = 0; i < sizeof form; i++) {
        bool digit = form[i] >= '0' && form[i] <= 'f' && form[i] != '-' && i >= 3;
        bool good = digit ? strchr("0123456789abcdef", name[i]) != NULL && name[i] != '\0' : name[i] == form[i];
        if (!good) return false;
    }
    return true;
}

static int take_note(void *context, const char *name, struct tm_error *e)
{
    struct tm_vm_cloud *c = context;
    struct tm_text text;
    char pool[32];
    char id[TM_VM_ID_MAX];
    int64_t number = 0;
    if (!is_token(name)) return 0;
    tm_text_init(&text, NOTE_MAX);
    int rc = read_file(c, name, &text, e);
    bool good = rc == 0 && read_head(tm_text_string(&text), "tidemill-vm", pool, id) &&
                tm_number_i64(pool, strlen(pool), &number) && number >= 0 && number < c->options.pool_count;
    if (good) rc = tm_vms__recall(&c->vms, (int)number, name, strcmp(id, "-") == 0 ? "" : id, e);
    if (rc == 0 && !good) tm_log(TM_LOG_WARN, "%s/%s: not a note of a VM; it is passed over", c->folder, name);
    tm_text_deinit(&text);
    return rc;
}

static int note_beginning(struct tm_vm_cloud *c, struct tm_error *e)
{
    char path[TM_VM_PATH_MAX];
    char line[128];
    path_of(c, "begin", path);
    int length = snprintf(line, sizeof line, "tidemill-begin 1 %" PRId64 " %" PRId64 "\n", c->vms.begin_utc_ms,
                          c->options.account_ms);
    return c->env->file_write_private(c->env, path, line, (size_t)length, e);
}

int tm_vm_cloud__read_notes(struct tm_vm_cloud *c, struct tm_error *e)
{
    struct tm_text text;
    char utc[32];
    char account[TM_VM_ID_MAX];
    int64_t utc_ms = 0;
    int64_t account_ms = 0;
    tm_text_init(&text, NOTE_MAX);
    if (read_file(c, "begin", &text, NULL) == 0 && read_head(tm_text_string(&text), "tidemill-begin", utc, account) &&
        tm_number_i64(utc, strlen(utc), &utc_ms) && tm_number_i64(account, strlen(account), &account_ms))
        c->vms.before_utc_ms = utc_ms + c->options.account_ms - account_ms;
    tm_text_deinit(&text);
    int rc = c->env->folder_each(c->env, c->folder, take_note, c, e);
    if (rc == -(int)TM_ENOTFOUND) rc = 0;
    return rc == 0 ? note_beginning(c, e) : rc;
}

int tm_vm_cloud__read_words(struct tm_vm_cloud *c, const char *token, struct tm_text *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, NOTE_MAX);
    int rc = read_file(c, token, &text, e);
    const char *line = rc == 0 ? strchr(tm_text_string(&text), '\n') : NULL;
    if (line != NULL) tm_text_puts(out, line + 1);
    tm_text_deinit(&text);
    if (rc == 0 && out->length == 0) rc = tm_error_set(e, TM_ENOTFOUND, "%s: no words of a call", token);
    return rc == 0 ? tm_text_status(out, e) : rc;
}

int tm_vm_cloud__write_note(struct tm_vm_cloud *c, size_t at, const char *words, struct tm_error *e)
{
    struct tm_text text;
    char path[TM_VM_PATH_MAX];
    struct tm_vm *vm = &c->vms.vms[at];
    if (c->coordinator != NULL) return 0; /* who rents it has written its token down */
    tm_text_init(&text, NOTE_MAX);
    tm_text_printf(&text, "tidemill-vm 1 %d %s\n%s", c->vms.instances[at].pool, vm->id[0] != '\0' ? vm->id : "-",
                   words != NULL ? words : "");
    path_of(c, vm->token, path);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = c->env->file_write_private(c->env, path, text.data, text.length, e);
    tm_text_deinit(&text);
    vm->kept = rc == 0;
    return rc;
}

void tm_vm_cloud__drop_note(struct tm_vm_cloud *c, size_t at)
{
    char path[TM_VM_PATH_MAX];
    struct tm_vm *vm = &c->vms.vms[at];
    vm->dropped = true;
    if (vm->token[0] == '\0' || strchr(vm->token, '/') != NULL) return;
    path_of(c, vm->token, path);
    (void)c->env->file_remove(c->env, path, NULL);
}

/* What is run on a host, by ssh: scripts for any POSIX shell, on its standard input. Each says how it went by a line
 * that begins with TM-, since ssh's own status tells little. */
#include "cloud/hosts_internal.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    SLOT_NAME_BYTES = 112 + TM_HOST_NAME_MAX,
    WORDS_MAX = 40,
    SAID_MAX = 1 << 16,
    SCRIPT_MAX = 1 << 16,
    EXIT_MS = 3000
};

int tm_hosts__hash_program(struct tm_env *env, const char *path, char out[65], struct tm_error *e)
{
    const void *data = NULL;
    size_t length = 0;
    unsigned char hash[32];
    unsigned made = 0;
    int rc = env->file_map(env, path, &data, &length, e);
    if (rc != 0) return rc;
    bool good = EVP_Digest(data, length, hash, &made, EVP_sha256(), NULL) == 1 && made == sizeof hash;
    env->file_unmap(env, data, length);
    if (!good) return tm_error_nomem(e);
    for (size_t i = 0; i < sizeof hash; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
    return 0;
}

/* ---- scripts ---- */

/* Folders that all scripts know: $b the program's, $d the slot's. A home may be shared by hosts. */
static void put_names(const struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot, struct tm_text *out)
{
    tm_text_printf(out,
                   "umask 077\n"
                   "c=${XDG_CACHE_HOME:-$HOME/.cache}/tidemill\n"
                   "b=$c/bin/%s\n"
                   "d=$c/run/%s-$(hostname)-%s-%d\n",
                   c->sha256, c->options.name, slot->host->port[0] != '\0' ? slot->host->port : "22", slot->number);
}

/* The shell's question whether $p is an agent of this slot, by this very program. */
static void put_is_ours(struct tm_text *out)
{
    tm_text_puts(out, "ours() {\n"
                      "  p=$(cat \"$d/pid\" 2>/dev/null)\n"
                      "  tr '\\0' '\\n' 2>/dev/null <\"/proc/${p:-none}/environ\" | grep -qxF \"TIDEMILL_SLOT=$d\" &&\n"
                      "    tr '\\0' '\\n' 2>/dev/null <\"/proc/$p/cmdline\" | grep -qxF \"$b/tidemill\" &&\n"
                      "    [ ! -e \"$d/taken\" ]\n"
                      "}\n");
}

/* Scripts of this slot bear its name among their variables. */
static void put_slot_name(const struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot, char out[SLOT_NAME_BYTES])
{
    (void)snprintf(out, SLOT_NAME_BYTES, "%.80s-%s-%s-%d", c->options.name, slot->host->name,
                   slot->host->port[0] != '\0' ? slot->host->port : "22", slot->number);
}

/* A script whose ssh has ended, with its program or before, may still be at work here: it must not start an agent after
 * we have looked. */
static void put_alone(const struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot, struct tm_text *out)
{
    char name[SLOT_NAME_BYTES];
    put_slot_name(c, slot, name);
    tm_text_printf(out,
                   "marked() {\n"
                   "  for e in $(grep -lF \"$1\" /proc/[0-9]*/environ 2>/dev/null); do\n"
                   "    q=${e#/proc/}; q=${q%%/environ}\n"
                   "    [ $q = $$ ] || ! tr '\\0' '\\n' 2>/dev/null <$e | grep -qxF \"$1\" || echo $q\n"
                   "  done\n"
                   "}\n"
                   "for q in $(marked TIDEMILL_SCRIPT=%s); do kill -s KILL $q 2>/dev/null; done\n",
                   name);
}

/* Ends what runs in the slot, whatever number was written down: all that bears its mark. */
static void put_end(struct tm_text *out)
{
    tm_text_puts(out, "i=0\n"
                      "while m=$(marked \"TIDEMILL_SLOT=$d\") && [ -n \"$m\" ] && [ $i -lt 50 ]; do\n"
                      "  kill -s KILL $m 2>/dev/null\n"
                      "  sleep 0.1; i=$((i+1))\n"
                      "done\n"
                      "rm -rf \"$d\"\n");
}

/* Asked again by whoever resumes: is an agent there that may stay? */
static void put_look(struct tm_text *out)
{
    put_is_ours(out);
    tm_text_puts(out, "ours && echo TM-RUNS\n");
}

static void put_ask(struct tm_text *out)
{
    tm_text_puts(out, "set -- $SSH_CONNECTION\n"
                      "h=none\n"
                      "[ ! -x \"$b/tidemill\" ] || h=$(sha256sum <\"$b/tidemill\" | cut -d' ' -f1)\n"
                      "echo TM-HERE \"${1:-none}\" \"$h\"\n");
}

/* Until the agent $p ends, in its folder. */
static void put_watch(struct tm_text *out)
{
    tm_text_puts(out, "while kill -0 $p 2>/dev/null; do sleep 0.5; done\n"
                      "tail -n 5 log 2>/dev/null\n"
                      "[ ! -e taken ] || echo 143 >status\n"
                      "echo TM-ENDED $(cat status 2>/dev/null || echo 137)\n");
}

/* An agent that an earlier program started gets the new run's ticket, and joins again by it: there are never two. */
static void put_begin(const struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot, struct tm_text *out)
{
    if (slot->keeps) {
        put_is_ours(out);
        tm_text_puts(out, "if cd \"$d\" 2>/dev/null && ours; then\n"
                          "  printf '%s' \"$t\" >ticket.new && mv ticket.new ticket || exit 1\n"
                          "else\n"
                          "  cd /\n");
    }
    put_end(out);
    tm_text_puts(out, "mkdir -p \"$d\" && cd \"$d\" || exit 1\n"
                      "printf '%s' \"$t\" >ticket || exit 1\n"
                      "TIDEMILL_SLOT=$d TMPDIR=$d\n"
                      "export TIDEMILL_SLOT TMPDIR; unset TIDEMILL_SCRIPT\n");
    if (slot->host->gpus) tm_text_printf(out, "CUDA_VISIBLE_DEVICES=%d; export CUDA_VISIBLE_DEVICES\n", slot->number);
    tm_text_printf(out,
                   "setsid sh -c 'trap : TERM; echo $$ >pid; \"$0\" %s; echo $? >status' \"$b/tidemill\" "
                   "</dev/null >log 2>&1 &\n"
                   "i=0; while [ ! -s pid ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i+1)); done\n",
                   c->options.arguments);
    if (slot->keeps) tm_text_puts(out, "fi\n");
}

static int put_start(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_text *out, struct tm_error *e)
{
    char ticket[TM_HOSTS_TICKET_MAX];
    int rc = c->options.ticket(c->options.context, slot->id, slot->here, ticket, e);
    if (rc != 0) return rc;
    tm_text_printf(out, "t=%s\n", ticket);
    put_begin(c, slot, out);
    tm_text_puts(out, "p=$(cat pid) || exit 1\n"
                      "echo TM-STARTED $p\n");
    put_watch(out);
    return 0;
}

/* To an agent that was started before, over a new connection; one that does not run any more has ended. */
static void put_return(struct tm_text *out)
{
    tm_text_puts(out, "cd \"$d\" 2>/dev/null || { echo TM-ENDED 137; exit; }\n"
                      "p=$(cat pid 2>/dev/null)\n"
                      "if tr '\\0' '\\n' 2>/dev/null </proc/$p/environ | grep -qxF \"TIDEMILL_SLOT=$d\"; then\n"
                      "  echo TM-BACK\n"
                      "else\n"
                      "  p=none\n"
                      "fi\n");
    put_watch(out);
}

static int put_script(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_text *out, struct tm_error *e)
{
    put_names(c, slot, out);
    if (slot->doing != TM_HOSTS_ASKING) put_alone(c, slot, out);
    if (slot->doing == TM_HOSTS_LOOKING) put_look(out);
    if (slot->doing == TM_HOSTS_LOOKING || slot->doing == TM_HOSTS_ASKING) put_ask(out);
    if (slot->doing == TM_HOSTS_STARTING) {
        int rc = put_start(c, slot, out, e);
        if (rc != 0) return rc;
    }
    if (slot->doing == TM_HOSTS_RETURNING) put_return(out);
    if (slot->doing == TM_HOSTS_ENDING) {
        put_end(out);
        tm_text_puts(out, "echo TM-CLEAN\n");
    }
    return tm_text_status(out, e);
}

/* ---- ssh ---- */

static size_t put_options(const struct tm_hosts__cloud *c, const struct tm_hosts__slot *slot, const char *control,
                          const char *words[])
{
    size_t count = 0;
    words[count++] = c->options.ssh != NULL ? c->options.ssh : "ssh";
    static const char *const options[] = {"BatchMode=yes",         "ConnectTimeout=10",  "ServerAliveInterval=5",
                                          "ServerAliveCountMax=3", "ControlMaster=auto", "ControlPersist=60",
                                          "ForwardAgent=no",       "ForwardX11=no",      "LogLevel=ERROR"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        words[count++] = "-o";
        words[count++] = options[i];
    }
    words[count++] = "-o";
    words[count++] = control;
    words[count++] = "-T";
    if (slot->host->port[0] != '\0') {
        words[count++] = "-p";
        words[count++] = slot->host->port;
    }
    return count;
}

void tm_hosts__script_path(const struct tm_hosts__cloud *c, size_t slot, char out[TM_HOSTS_PATH_BYTES])
{
    (void)snprintf(out, TM_HOSTS_PATH_BYTES, "%.3900s/slot-%zu.sh", c->options.state_dir, slot);
}

/* The program itself is what ssh reads while it is brought along; else a script that is for its owner alone. */
static int make_input(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, char path[TM_HOSTS_PATH_BYTES],
                      struct tm_error *e)
{
    struct tm_text script;
    if (slot->doing == TM_HOSTS_BRINGING) {
        (void)snprintf(path, TM_HOSTS_PATH_BYTES, "%s", c->options.program);
        return 0;
    }
    tm_hosts__script_path(c, (size_t)(slot - c->slots), path);
    tm_text_init(&script, SCRIPT_MAX);
    int rc = put_script(c, slot, &script, e);
    if (rc == 0) rc = c->env->file_write_private(c->env, path, script.data, script.length, e);
    tm_text_deinit(&script);
    return rc;
}

int tm_hosts__run(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, struct tm_error *e)
{
    char path[TM_HOSTS_PATH_BYTES];
    char control[128];
    char bring[512];
    char name[SLOT_NAME_BYTES];
    char script[SLOT_NAME_BYTES + 64];
    const char *words[WORDS_MAX] = {"/bin/sh", "-c", "exec \"$@\" <\"$0\"", path};
    const char *variables[] = {c->options.mark, NULL};
    int rc = make_input(c, slot, path, e);
    if (rc != 0) return rc;
    (void)snprintf(control, sizeof control, "ControlPath=%s/%%C", c->sockets);
    size_t count = 4 + put_options(c, slot, control, words + 4);
    words[count++] = slot->host->name;
    (void)snprintf(/* the login shell may be csh or fish */
                   bring, sizeof bring,
                   "exec sh -c 'umask 077; b=${XDG_CACHE_HOME:-$HOME/.cache}/tidemill/bin/%s; mkdir -p \"$b\" && cat "
                   ">\"$b/new.$$\" && "
                   "chmod 700 \"$b/new.$$\" && mv \"$b/new.$$\" \"$b/tidemill\" && echo TM-BROUGHT'",
                   c->sha256);
    put_slot_name(c, slot, name);
    (void)snprintf(script, sizeof script, "exec env TIDEMILL_SCRIPT=%s sh -s", name);
    words[count++] = slot->doing == TM_HOSTS_BRINGING ? bring : script;
    words[count] = NULL;
    struct tm_process_options options = {
        .argv = words, .variables = variables, .group = true, .captured = &slot->output};
    tm_text_deinit(&slot->said);
    tm_text_init(&slot->said, SAID_MAX);
    slot->output = -1;
    rc = c->env->process_start_with(c->env, &options, &slot->pid, e);
    if (rc != 0) slot->pid = 0;
    if (rc == 0) rc = c->env->process_handle(c->env, slot->pid, &slot->handle, e);
    if (rc != 0) tm_hosts__stop(c, slot);
    return rc;
}

void tm_hosts__hear(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot)
{
    char buffer[4096];
    for (int i = 0; slot->output >= 0 && i < 16; i++) {
        size_t got = 0;
        int rc = c->env->net_receive(c->env, slot->output, buffer, sizeof buffer, &got, NULL);
        if (rc == -(int)TM_EBUSY) return;
        if (rc != 0 || got == 0) {
            c->env->net_close(c->env, slot->output);
            slot->output = -1;
        } else if (slot->said.length + got < SAID_MAX) {
            tm_text_append(&slot->said, buffer, got);
        }
    }
}

static void forget(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot)
{
    if (slot->handle >= 0) c->env->net_close(c->env, slot->handle);
    if (slot->output >= 0) c->env->net_close(c->env, slot->output);
    slot->handle = slot->output = -1;
    slot->pid = 0;
}

bool tm_hosts__has_ended(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot, int *out_status)
{
    if (slot->pid == 0 || c->env->process_wait(c->env, slot->pid, 0, out_status, NULL) != 0) return false;
    tm_hosts__hear(c, slot);
    forget(c, slot);
    return true;
}

void tm_hosts__stop(struct tm_hosts__cloud *c, struct tm_hosts__slot *slot)
{
    int status = 0;
    if (slot->pid > 0) {
        (void)c->env->process_signal_group(c->env, slot->pid, SIGKILL, NULL);
        (void)c->env->process_wait(c->env, slot->pid, EXIT_MS, &status, NULL);
    }
    forget(c, slot);
}

bool tm_hosts__said(const struct tm_hosts__slot *slot, const char *word, char *out, size_t size)
{
    const char *text = slot->said.length > 0 ? tm_text_string((struct tm_text *)&slot->said) : "";
    size_t length = strlen(word);
    for (const char *at = text; *at != '\0';) {
        size_t line = strcspn(at, "\n");
        if (at[line] == '\n' && line >= length && memcmp(at, word, length) == 0 &&
            (line == length || at[length] == ' ')) {
            size_t from = line == length ? length : length + 1;
            (void)snprintf(out, size, "%.*s", (int)(line - from), at + from);
            return true;
        }
        at += line + (at[line] != '\0');
    }
    return false;
}

/* ---- the folder of its sockets ---- */

static const char sockets_name[] = "/tmp/tidemill-ssh-";

static void sockets_file(const struct tm_hosts__cloud *c, char out[TM_HOSTS_PATH_BYTES])
{
    (void)snprintf(out, TM_HOSTS_PATH_BYTES, "%.3900s/sockets", c->options.state_dir);
}

struct sockets {
    struct tm_env *env;
    const char *folder;
};

static int remove_socket(void *context, const char *name, struct tm_error *e)
{
    const struct sockets *sockets = context;
    char path[512];
    (void)snprintf(path, sizeof path, "%.200s/%.255s", sockets->folder, name);
    return sockets->env->file_remove(sockets->env, path, e);
}

static void remove_sockets(struct tm_env *env, const char *folder)
{
    struct sockets sockets = {.env = env, .folder = folder};
    (void)env->folder_each(env, folder, remove_socket, &sockets, NULL);
    (void)env->file_remove(env, folder, NULL);
}

void tm_hosts__close_sockets(struct tm_hosts__cloud *c)
{
    char control[128];
    (void)snprintf(control, sizeof control, "ControlPath=%s/%%C", c->sockets);
    for (size_t i = 0; i < c->slot_count; i++) {
        const char *words[WORDS_MAX] = {NULL};
        int pid = 0;
        int status = 0;
        int output = -1;
        if (c->slots[i].number != 0) continue; /* one of each host */
        size_t count = put_options(c, &c->slots[i], control, words);
        words[count++] = "-O";
        words[count++] = "exit";
        words[count++] = c->slots[i].host->name;
        words[count] = NULL;
        struct tm_process_options options = {.argv = words, .group = true, .captured = &output};
        if (c->env->process_start_with(c->env, &options, &pid, NULL) != 0) continue;
        if (c->env->process_wait(c->env, pid, EXIT_MS, &status, NULL) != 0) {
            (void)c->env->process_signal_group(c->env, pid, SIGKILL, NULL);
            (void)c->env->process_wait(c->env, pid, EXIT_MS, &status, NULL);
        }
        if (output >= 0) c->env->net_close(c->env, output);
    }
    char file[TM_HOSTS_PATH_BYTES];
    sockets_file(c, file);
    remove_sockets(c->env, c->sockets);
    (void)c->env->file_remove(c->env, file, NULL);
}

/* Of a program that was killed: its connections have lost the mark by which all else is found, and would stay for a
 * minute. */
static void remove_sockets_before(struct tm_hosts__cloud *c, const char *file)
{
    struct tm_text text;
    tm_text_init(&text, 256);
    if (c->env->file_read(c->env, file, &text, NULL) == 0) {
        const char *folder = tm_text_string(&text);
        size_t name = sizeof sockets_name - 1;
        bool ours = strncmp(folder, sockets_name, name) == 0 && strlen(folder) == name + 16;
        if (ours && strspn(folder + name, "0123456789abcdef") == 16) {
            (void)snprintf(c->sockets, sizeof c->sockets, "%s", folder);
            tm_hosts__close_sockets(c);
        }
    }
    tm_text_deinit(&text);
}

int tm_hosts__make_sockets(struct tm_hosts__cloud *c, struct tm_error *e)
{
    char file[TM_HOSTS_PATH_BYTES];
    sockets_file(c, file);
    if (c->env->file_exists(c->env, file)) remove_sockets_before(c, file);
    int length = snprintf(c->sockets, sizeof c->sockets, "%s%016" PRIx64, sockets_name, c->env->random_u64(c->env));
    int rc = c->env->file_write_private(c->env, file, c->sockets, (size_t)length, e);
    if (rc == 0) rc = c->env->folder_make(c->env, c->sockets, e);
    if (rc != 0) c->sockets[0] = '\0';
    return rc;
}

#include "api/dashboard_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_MS = 120000, WORDS_MAX = 12 };

static void free_child(struct tm_dashboard *d, struct tm_dashboard_child *child)
{
    int status = 0;
    if (child->number == 0) return;
    if (child->pid > 0) {
        (void)d->env->process_signal_group(d->env, child->pid, SIGKILL, NULL);
        (void)d->env->process_wait(d->env, child->pid, 5000, &status, NULL);
    }
    (void)d->env->file_remove(d->env, child->input, NULL);
    (void)d->env->file_remove(d->env, child->output, NULL);
    if (child->report[0] != '\0') (void)d->env->file_remove(d->env, child->report, NULL);
    child->number = 0;
}

static struct tm_dashboard_child *place(struct tm_dashboard *d)
{
    int64_t now_ms = tm_dashboard__now_ms(d);
    for (size_t i = 0; i < TM_DASHBOARD_CHILDREN; i++) {
        struct tm_dashboard_child *child = &d->children[i];
        if (child->number != 0 && child->pid <= 0 && now_ms > child->until_ms) free_child(d, child); /* nobody came */
        if (child->number == 0) return child;
    }
    return NULL;
}

uint64_t tm_dashboard__start(struct tm_dashboard *d, const char *const *words, bool report, struct tm_slice input,
                             struct tm_error *e)
{
    const char *argv[WORDS_MAX] = {d->options.program};
    size_t count = 1;
    struct tm_dashboard_child *child = place(d);
    if (child == NULL) {
        (void)tm_error_set(e, TM_EBUSY, "too many plans and simulations at once; try again");
        return 0;
    }
    uint64_t number = ++d->child_number;
    int self = d->env->process_self(d->env);
    (void)snprintf(child->input, sizeof child->input, "%.4000s/.dashboard-%d-%" PRIu64 ".yaml", d->options.root, self,
                   number);
    (void)snprintf(child->output, sizeof child->output, "%.4000s/.dashboard-%d-%" PRIu64 ".out", d->options.root, self,
                   number);
    child->report[0] = '\0';
    if (report)
        (void)snprintf(child->report, sizeof child->report, "%.4000s/.dashboard-%d-%" PRIu64 ".html", d->options.root,
                       self, number);
    for (; *words != NULL && count < WORDS_MAX - 4; words++)
        argv[count++] = *words;
    if (report) argv[count++] = "--report";
    if (report) argv[count++] = child->report;
    argv[count++] = child->input;
    argv[count] = NULL;
    struct tm_process_options options = {
        .argv = argv, .group = true, .folder = d->options.root, .output = child->output};
    int rc = d->env->file_write_private(d->env, child->input, input.at, input.length, e);
    if (rc == 0) rc = d->env->process_start_with(d->env, &options, &child->pid, e);
    if (rc != 0) {
        (void)d->env->file_remove(d->env, child->input, NULL);
        return 0;
    }
    child->number = number;
    child->until_ms = tm_dashboard__now_ms(d) + LONGEST_MS;
    return number;
}

int tm_dashboard__resume(struct tm_dashboard *d, const struct tm_dashboard_job *job, struct tm_error *e)
{
    char log[TM_STATE_PATH_MAX + 16];
    char logs[TM_STATE_PATH_MAX];
    int pid = 0;
    tm_state_path(job->dir, TM_STATE_LOGS, logs);
    (void)snprintf(log, sizeof log, "%s/resumed.log", logs);
    const char *const argv[] = {d->options.program, "run", "--resume", "--state", job->dir, "-y", NULL};
    struct tm_process_options options = {.argv = argv, .group = true, .output = log};
    return d->env->process_start_with(d->env, &options, &pid, e);
}

void tm_dashboard__step_children(struct tm_dashboard *d)
{
    int64_t now_ms = tm_dashboard__now_ms(d);
    for (size_t i = 0; i < TM_DASHBOARD_CHILDREN; i++) {
        struct tm_dashboard_child *child = &d->children[i];
        if (child->number == 0 || child->pid <= 0) continue;
        int rc = d->env->process_wait(d->env, child->pid, 0, &child->exit_status, NULL);
        if (rc == -(int)TM_ETIMEOUT && now_ms <= child->until_ms) continue;
        if (rc == -(int)TM_ETIMEOUT) {
            free_child(d, child);
        } else {
            child->pid = -1;
            child->until_ms = now_ms + LONGEST_MS; /* to be fetched */
        }
        d->version++;
    }
}

/* The document begins a line with its brace; what stands before is for people. */
static const char *find_document(const char *text)
{
    if (text[0] == '{') return text;
    const char *at = strstr(text, "\n{");
    return at == NULL ? NULL : at + 1;
}

/* Whoever asked gave a file without a name: the one that it has here says nothing to him. */
static void put_words(const struct tm_dashboard_child *child, const char *words, struct tm_text *out)
{
    for (const char *at = strstr(words, child->input); at != NULL; at = strstr(words, child->input)) {
        tm_text_append(out, words, (size_t)(at - words));
        tm_text_puts(out, "job file");
        words = at + strlen(child->input);
    }
    tm_text_puts(out, words);
}

static void refuse(const struct tm_dashboard_child *child, struct tm_text *said, struct tm_api_content *out)
{
    struct tm_text words;
    while (said->length > 0 && said->data[said->length - 1] == '\n')
        said->data[--said->length] = '\0';
    tm_text_init(&words, TM_API_RESPONSE_MAX);
    put_words(child, tm_text_string(said), &words);
    tm_api__content_refuse(out, 422, words.length == 0 ? "it ended without a word" : tm_text_string(&words));
    tm_text_deinit(&words);
}

bool tm_dashboard__child_result(struct tm_dashboard *d, uint64_t number, struct tm_api_content *out)
{
    struct tm_dashboard_child *child = NULL;
    struct tm_text text;
    for (size_t i = 0; i < TM_DASHBOARD_CHILDREN; i++)
        if (d->children[i].number == number) child = &d->children[i];
    if (child == NULL) {
        tm_api__content_refuse(out, 503, "it took too long, and was ended");
        return true;
    }
    if (child->pid > 0) return false;
    tm_text_init(&text, TM_API_RESPONSE_MAX);
    int rc = d->env->file_read(d->env, child->output, &text, NULL);
    const char *document = child->report[0] != '\0' ? "" : find_document(tm_text_string(&text));
    if (rc == 0 && child->exit_status == 0 && child->report[0] != '\0') {
        if (d->env->file_read(d->env, child->report, &out->body, NULL) != 0)
            tm_api__content_refuse(out, 503, "its report cannot be read");
    } else if (rc == 0 && child->exit_status == 0 && document != NULL) {
        put_words(child, document, &out->body);
    } else {
        refuse(child, &text, out);
    }
    tm_text_deinit(&text);
    free_child(d, child);
    return true;
}

void tm_dashboard__end_children(struct tm_dashboard *d)
{
    for (size_t i = 0; i < TM_DASHBOARD_CHILDREN; i++)
        free_child(d, &d->children[i]);
}

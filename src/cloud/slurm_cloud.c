#include "cloud/slurm_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "cloud/slurm_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SUBMIT_LIMIT_MS = 60000,
    ASK_LIMIT_MS = 20000,
    END_LIMIT_MS = 60000,
    POLL_MS = 30000,
    NOTICE_MS = 30000,
    JOB_NAME_MAX = 96,
    OPTION_MAX = 1200,
    OPTIONS_MAX = 10,
    LIST_MAX = 8192,
    HANDLES_MAX = 16
};

struct slurm {
    struct tm_cloud cloud; /* first */
    struct tm_env *env;
    struct tm_slurm_options options;
    struct tm_cloud_pool pools[TM_SLURM_POOLS_MAX]; /* as others see them */
    int pool_count;
    int64_t start_ns;
    char name[JOB_NAME_MAX]; /* of all jobs */
    char script[OPTION_MAX];
    struct tm_slurm__jobs jobs;
    struct tm_slurm__rest *rest; /* NULL: commands are used */
    struct tm_tool__process process;
    struct tm_slurm__answer answer;   /* of a process */
    struct tm_slurm__command command; /* that is on its way */
    /* words of the command */
    const char *words[TM_SLURM_WORDS_MAX + 1];
    size_t word_count;
    char texts[OPTIONS_MAX][OPTION_MAX];
    size_t text_count;
    char tool[OPTION_MAX];
    char list[LIST_MAX];
};

static struct slurm *slurm_of(const struct tm_cloud *cloud)
{
    return cloud->self;
}

static int64_t time_ms(const struct slurm *s)
{
    return (s->env->monotonic_ns(s->env) - s->start_ns) / 1000000;
}

/* ---- words of commands ---- */

static void word(struct slurm *s, const char *text)
{
    if (s->word_count < TM_SLURM_WORDS_MAX) s->words[s->word_count++] = text;
    s->words[s->word_count] = NULL;
}

static void begin(struct slurm *s, const char *tool)
{
    const char *folder = s->options.tools;
    s->word_count = s->text_count = 0;
    (void)snprintf(s->tool, sizeof s->tool, "%.1000s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "",
                   tool);
    word(s, s->tool);
}

__attribute__((format(printf, 2, 3))) static void option(struct slurm *s, const char *format, ...)
{
    va_list arguments;
    if (s->text_count == OPTIONS_MAX) return;
    char *text = s->texts[s->text_count++];
    va_start(arguments, format);
    (void)vsnprintf(text, OPTION_MAX, format, arguments);
    va_end(arguments);
    word(s, text);
}

/* Variables of a job that this program may run in itself; they would speak for the new one. */
static void without_our_own(struct slurm *s)
{
    static const char *const names[] = {"SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU",    "SLURM_MEM_PER_GPU",
                                        "SLURM_MEM_PER_NODE",  "SLURM_NTASKS",         "SLURM_NPROCS",
                                        "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_NODE"};
    s->word_count = s->text_count = 0;
    word(s, "env");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        word(s, "-u");
        word(s, names[i]);
    }
    const char *folder = s->options.tools;
    (void)snprintf(s->tool, sizeof s->tool, "%.1000s%ssbatch", folder != NULL ? folder : "", folder != NULL ? "/" : "");
    word(s, s->tool);
}

static void further_words(struct slurm *s, const struct tm_slurm_pool *pool)
{
    static const char blanks[] = " \t\n";
    (void)snprintf(s->list, sizeof s->list, "%s", pool->words != NULL ? pool->words : "");
    for (char *at = s->list + strspn(s->list, blanks); *at != '\0';) {
        size_t length = strcspn(at, blanks);
        word(s, at);
        at += length;
        if (*at == '\0') break;
        *at++ = '\0';
        at += strspn(at, blanks);
    }
}

static void comment_of(const struct slurm *s, const struct tm_cloud_instance *instance, char out[TM_SLURM_COMMENT_MAX])
{
    struct tm_slurm__tag tag = s->jobs.tag;
    tag.instance = instance->id;
    tm_slurm__print_tag(&tag, out);
}

static void submit_words(struct slurm *s, size_t at)
{
    const struct tm_cloud_instance *instance = &s->jobs.instances[at];
    const struct tm_slurm_pool *pool = &s->options.pools[s->jobs.jobs[at].pool];
    char comment[TM_SLURM_COMMENT_MAX];
    char limit[TM_SLURM_WORD_MAX];
    comment_of(s, instance, comment);
    without_our_own(s);
    word(s, "--parsable");
    word(s, "--nodes=1");
    word(s, "--ntasks=1");
    word(s, "--exclusive");
    word(s, "--no-requeue");
    word(s, "--open-mode=append");
    option(s, "--job-name=%s", s->name);
    option(s, "--comment=%s", comment);
    option(s, "--partition=%s", pool->partition);
    word(s, "--output=/dev/null"); /* the script says where, once it knows what the node sees */
    tm_slurm__print_duration(pool->time_limit_ms, limit);
    if (pool->time_limit_ms > 0) option(s, "--time=%s", limit);
    further_words(s, pool);
    word(s, s->script);
}

static void query_words(struct slurm *s)
{
    begin(s, "squeue");
    word(s, "--noheader");
    word(s, "--me");
    word(s, "--states=all");
    word(s, "--sort=i");
    option(s, "--name=%s", s->name);
    option(s, "--Format=%s", TM_SLURM_QUEUE_FORMAT);
}

static void cancel_words(struct slurm *s, const struct tm_slurm__command *command)
{
    begin(s, "scancel");
    size_t length = 0;
    for (size_t i = 0; i < command->cancel_count; i++) {
        char *at = s->list + length;
        length += (size_t)snprintf(at, sizeof s->list - length, "%" PRId64, command->cancel[i]) + 1;
        word(s, at);
    }
}

static void nodes_words(struct slurm *s)
{
    size_t length = 0;
    s->list[0] = '\0';
    for (size_t i = 0; i < s->jobs.instance_count; i++) {
        const struct tm_slurm__job *job = &s->jobs.jobs[i];
        size_t need = strlen(job->node) + 2;
        if (job->step != TM_SLURM_HERE || job->node[0] == '\0' || length + need > sizeof s->list) continue;
        length += (size_t)snprintf(s->list + length, sizeof s->list - length, "%s%s", length > 0 ? "," : "", job->node);
    }
    begin(s, "sinfo");
    word(s, "--noheader");
    word(s, "--Node");
    word(s, "--nodes");
    word(s, s->list);
    word(s, "--format=%N|%T");
}

/* ---- the batch script ---- */

/* For the shell, whatever is in it. */
static void quote(struct tm_text *out, const char *text)
{
    tm_text_putc(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            tm_text_puts(out, "'\\''");
        else
            tm_text_putc(out, *text);
    }
    tm_text_putc(out, '\'');
}

static void quote_all(struct tm_text *out, const char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        if (i > 0) tm_text_putc(out, ' ');
        quote(out, words[i]);
    }
}

/* A node sees the folder if it sees this file, which is there for nothing else. */
static void mark_path(const struct slurm *s, char out[OPTION_MAX])
{
    (void)snprintf(out, OPTION_MAX, "%.1000s/slurm-%016" PRIx64, s->options.script_dir, s->options.run);
}

/* What a job is now, by its number: its script writes that once it runs, and reads it whenever its agent has ended. */
static void number_path(const struct slurm *s, const char *job, char out[OPTION_MAX])
{
    (void)snprintf(out, OPTION_MAX, "%.1000s/slurm-job-%.40s", s->options.script_dir, job);
}

static void number_path_of(const struct slurm *s, int64_t job, char out[OPTION_MAX])
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, job);
    number_path(s, text, out);
}

/* Where the folder is seen a job is told which instance it is, and becomes another one when a program that takes over
 * says so: its agent ends by itself then, and the node is not waited for twice. */
static void put_number(const struct slurm *s, struct tm_text *out)
{
    char path[OPTION_MAX];
    number_path(s, "", path);
    tm_text_puts(out, "    file=");
    quote(out, path);
    tm_text_puts(out, "$SLURM_JOB_ID\n    echo \"$1\" > \"$file\"\n    export TIDEMILL_INSTANCE_FILE=$file\n");
}

/* Its arguments are set in it: slurmrestd 22.05 does not live through a job that has some. */
static void put_script(const struct slurm *s, size_t at, const char *ticket, struct tm_text *out)
{
    const struct tm_cloud_instance *instance = &s->jobs.instances[at];
    const struct tm_slurm__pool *pool = &s->jobs.pools[s->jobs.jobs[at].pool];
    static const char head[] =
        "node=$(scontrol --oneliner show node \"$SLURMD_NODENAME\" | sed -n 's/.* NodeAddr=\\([^ ]*\\) .*/\\1/p')\n"
        "export TIDEMILL_INSTANCE_ID=\"$1\" TIDEMILL_INSTANCE_KIND=\"$2\" TIDEMILL_INSTANCE_ZONE=\"$3\"\n"
        "export TIDEMILL_INSTANCE_HOST=\"${node:-$SLURMD_NODENAME}\"\n";
    char mark[OPTION_MAX];
    mark_path(s, mark);
    tm_text_puts(out,
                 "#!/bin/bash\n# One instance of a Tidemill job: ID, market, partition, time left after SIGTERM.\n");
    tm_text_printf(out, "set -- %" PRIu64 " %s ", instance->id, tm_instance_kind__name(instance->kind));
    quote(out, pool->partition);
    tm_text_printf(out, " %" PRId64 "s\n", pool->notice_ms / 1000);
    tm_text_puts(out, head);
    tm_text_puts(out, "if [ -e ");
    quote(out, mark);
    tm_text_puts(out, " ]; then\n    log_dir=");
    quote(out, s->options.log_dir);
    tm_text_puts(out, " stays=1\n");
    put_number(s, out);
    tm_text_puts(out, "    set -- \"$4\" ");
    quote_all(out, s->options.command);
    tm_text_puts(out, "\nelse\n");
    if (ticket == NULL) tm_text_puts(out, "    echo 'this node does not see the state folder' >&2; exit 1\n");
    if (ticket != NULL) {
        tm_text_puts(
            out, "    file= log=${TMPDIR:-/tmp}/tidemill-slurm-$SLURM_JOB_ID.log stays=\n    export TIDEMILL_TICKET=");
        quote(out, ticket);
        tm_text_puts(out, "\n    set -- \"$4\" ");
        quote_all(out, s->options.join);
        tm_text_puts(out, "\n    [ -x \"$2\" ] || set -- \"$1\" tidemill \"${@:3}\"\n");
    }
    /* A step, because a preemption is announced to steps only. */
    tm_text_puts(out, "fi\nleft=$1\nshift\n"
                      "while :; do\n"
                      "    [ -z \"$stays\" ] || log=$log_dir/$TIDEMILL_INSTANCE_ID.log\n"
                      "    srun --ntasks=1 --kill-on-bad-exit=1 \"$@\" --notice-left \"$left\" >> \"$log\" 2>&1\n"
                      "    status=$?\n"
                      "    [ -n \"$file\" ] && read -r next < \"$file\" || break\n"
                      "    [ \"$next\" != \"$TIDEMILL_INSTANCE_ID\" ] || break\n"
                      "    export TIDEMILL_INSTANCE_ID=$next\n"
                      "done\n"
                      "[ -z \"$file\" ] || rm -f \"$file\"\n"
                      "[ -n \"$stays\" ] || [ $status -ne 0 ] || rm -f \"$log\"\nexit $status\n");
}

/* Anew before each job, with a ticket of its own. */
static int make_script(struct slurm *s, size_t at, struct tm_text *out, struct tm_error *e)
{
    const struct tm_cloud_instance *instance = &s->jobs.instances[at];
    char ticket[TM_SLURM_TICKET_MAX] = "";
    bool joins = s->options.join != NULL && s->options.ticket != NULL;
    int rc = 0;
    if (joins) rc = s->options.ticket(s->options.ticket_context, instance->id, instance->kind, ticket, e);
    if (rc != 0) return rc;
    put_script(s, at, joins ? ticket : NULL, out);
    return tm_text_status(out, e);
}

/* Folders, and what says that a node sees them. */
static int prepare_folders(struct slurm *s, struct tm_error *e)
{
    char path[OPTION_MAX];
    (void)snprintf(s->script, sizeof s->script, "%.1000s/slurm-instance.sh", s->options.script_dir);
    (void)snprintf(path, sizeof path, "%.1000s/slurm.log", s->options.log_dir);
    int rc = s->env->file_write_private(s->env, path, "", 0, e);
    mark_path(s, path);
    return rc == 0 ? s->env->file_write_private(s->env, path, "", 0, e) : rc;
}

/* A job of this cloud that sees the folder has said so. */
static bool hears(void *context, int64_t job)
{
    const struct slurm *s = context;
    char path[OPTION_MAX];
    number_path_of(s, job, path);
    return s->env->file_exists(s->env, path);
}

static int tell_number(const struct slurm *s, size_t at, struct tm_error *e)
{
    char path[OPTION_MAX];
    char line[32];
    number_path_of(s, s->jobs.jobs[at].number, path);
    int length = snprintf(line, sizeof line, "%" PRIu64 "\n", s->jobs.instances[at].id);
    return s->env->file_write_private(s->env, path, line, (size_t)length, e);
}

static int prepare_all(struct slurm *s, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->jobs.instance_count; i++) {
        struct tm_slurm__job *job = &s->jobs.jobs[i];
        if (job->prepared || job->step == TM_SLURM_GONE) continue;
        if (s->options.prepare != NULL) rc = s->options.prepare(s->options.context, s->jobs.instances[i].id, e);
        if (rc == 0 && job->renamed) rc = tell_number(s, i, e);
        job->prepared = rc == 0;
    }
    return rc;
}

/* A script that was killed could not do it. */
static void remove_numbers(const struct slurm *s)
{
    char path[OPTION_MAX];
    for (size_t i = 0; i < s->jobs.instance_count; i++) {
        struct tm_slurm__job *job = &s->jobs.jobs[i];
        if (!job->over || job->tidied) continue;
        job->tidied = true;
        number_path_of(s, job->number, path);
        if (job->number != 0) (void)s->env->file_remove(s->env, path, NULL);
    }
}

static int submit_by_rest(struct slurm *s, size_t at, const char *script, struct tm_error *e)
{
    const struct tm_slurm_pool *pool = &s->options.pools[s->jobs.jobs[at].pool];
    char comment[TM_SLURM_COMMENT_MAX];
    comment_of(s, &s->jobs.instances[at], comment);
    return tm_slurm_rest__submit(s->rest,
                                 (struct tm_slurm__rest_job){.name = s->name,
                                                             .comment = comment,
                                                             .partition = pool->partition,
                                                             .script = script,
                                                             .folder = s->options.script_dir,
                                                             .time_limit_ms = pool->time_limit_ms,
                                                             .words = pool->words},
                                 e);
}

static int submit_by_sbatch(struct slurm *s, size_t at, const struct tm_text *script, struct tm_error *e)
{
    submit_words(s, at);
    int rc = s->env->file_write_private(s->env, s->script, tm_text_string(script), script->length, e);
    return rc == 0 ? tm_tool_process__start(&s->process, s->env, s->words, SUBMIT_LIMIT_MS, e) : rc;
}

static int submit(struct slurm *s, size_t at, struct tm_error *e)
{
    struct tm_text script;
    tm_text_init(&script, 1 << 16);
    int rc = prepare_all(s, e);
    if (rc == 0) rc = make_script(s, at, &script, e);
    if (rc == 0)
        rc = s->rest != NULL ? submit_by_rest(s, at, tm_text_string(&script), e) : submit_by_sbatch(s, at, &script, e);
    if (script.data != NULL) memset(script.data, 0, script.length); /* the ticket */
    tm_text_deinit(&script);
    return rc;
}

static void add_number(struct slurm *s, int64_t number)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, number);
    tm_slurm_rest__add(s->rest, text);
}

static int ask_by_rest(struct slurm *s, const struct tm_slurm__command *command, struct tm_error *e)
{
    for (size_t i = 0; i < command->cancel_count; i++)
        add_number(s, command->cancel[i]);
    for (size_t i = 0; i < s->jobs.instance_count; i++) {
        const struct tm_slurm__job *job = &s->jobs.jobs[i];
        if (command->kind == TM_SLURM_QUERY && !command->whole && !job->over && job->number != 0)
            add_number(s, job->number);
        if (command->kind == TM_SLURM_NODES && job->step == TM_SLURM_HERE && job->node[0] != '\0')
            tm_slurm_rest__add(s->rest, job->node);
    }
    return tm_slurm_rest__begin(s->rest, command->kind, e);
}

static int ask_by_tools(struct slurm *s, const struct tm_slurm__command *command, struct tm_error *e)
{
    if (command->kind == TM_SLURM_QUERY)
        query_words(s);
    else if (command->kind == TM_SLURM_CANCEL)
        cancel_words(s, command);
    else
        nodes_words(s);
    return tm_tool_process__start(&s->process, s->env, s->words, ASK_LIMIT_MS, e);
}

static int start_command(struct slurm *s, struct tm_error *e)
{
    bool due = false;
    int rc = tm_slurm_jobs__next(&s->jobs, time_ms(s), &s->command, &due, e);
    if (rc != 0 || !due) return rc;
    if (s->command.kind == TM_SLURM_SUBMIT)
        rc = submit(s, s->command.at, e);
    else
        rc = s->rest != NULL ? ask_by_rest(s, &s->command, e) : ask_by_tools(s, &s->command, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "Slurm");
}

static bool is_busy(const struct slurm *s)
{
    return s->rest != NULL ? tm_slurm_rest__is_busy(s->rest) : s->process.pid != 0;
}

/* The answer to what is on its way; NULL: not yet. */
static int take_answer(struct slurm *s, struct tm_slurm__answer **out, struct tm_error *e)
{
    int status = 0;
    *out = NULL;
    if (s->rest != NULL) {
        (void)tm_slurm_rest__step(s->rest, out);
        return 0;
    }
    if (!tm_tool_process__step(&s->process, s->env, &status)) return 0;
    const char *text = tm_text_string(&s->process.text);
    if (status != 0) tm_debug(TM_DEBUG_CLOUD, "slurm: %s: status %d: %.200s", s->tool, status, text);
    *out = &s->answer;
    return tm_slurm_answer__read(&s->answer, s->command.kind, status, text, s->process.text.length, e);
}

static int advance(struct slurm *s, struct tm_error *e)
{
    for (;;) {
        struct tm_slurm__answer *answer = NULL;
        int rc = tm_slurm_jobs__tick(&s->jobs, time_ms(s), e);
        if (rc == 0 && !is_busy(s)) rc = start_command(s, e);
        if (rc != 0 || !is_busy(s)) return rc;
        rc = take_answer(s, &answer, e);
        if (rc != 0 || answer == NULL) return rc;
        rc = tm_slurm_jobs__answer(&s->jobs, time_ms(s), &s->command, answer, e);
        if (rc == 0) rc = prepare_all(s, e);
        if (rc != 0) return rc;
        remove_numbers(s);
    }
}

/* ---- the interface ---- */

static const struct tm_cloud_pool *slurm_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = slurm_of(cloud)->pool_count;
    return slurm_of(cloud)->pools;
}

/* Partitions of a pool, in their order, each up to its limit. */
static int slurm_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    struct slurm *s = slurm_of(cloud);
    if (pool < 0 || pool >= s->pool_count) return tm_error_set(e, TM_EUSAGE, "there is no pool %d", pool);
    for (size_t i = 0; i < s->jobs.pool_count; i++) {
        if (s->jobs.pools[i].shown != pool) continue;
        int share = count < s->jobs.pools[i].limit ? count : s->jobs.pools[i].limit;
        tm_slurm_jobs__want(&s->jobs, i, share, time_ms(s));
        count -= share;
    }
    return 0;
}

static int slurm_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    struct slurm *s = slurm_of(cloud);
    return tm_slurm_jobs__release(&s->jobs, id, time_ms(s), e);
}

static const struct tm_cloud_instance *slurm_instances(struct tm_cloud *cloud, size_t *out_count)
{
    *out_count = slurm_of(cloud)->jobs.instance_count;
    return slurm_of(cloud)->jobs.instances;
}

static size_t slurm_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct slurm *s = slurm_of(cloud);
    int own[2];
    int64_t due_ms = tm_slurm_jobs__due_ms(&s->jobs);
    int64_t now = time_ms(s);
    size_t count = 0;
    *out_wait_ms = due_ms == INT64_MAX ? INT64_MAX : due_ms > now ? due_ms - now : 0;
    if (s->rest != NULL && is_busy(s)) { /* the next command waits for this one */
        count = tm_slurm_rest__watch(s->rest, handles, max, out_wait_ms);
    } else if (is_busy(s)) {
        count = tm_tool_process__watch(&s->process, own);
        if (count > max) count = max;
        memcpy(handles, own, count * sizeof *own);
        int64_t left_ms = s->process.deadline_ms - s->env->monotonic_ns(s->env) / 1000000;
        *out_wait_ms = left_ms > 0 ? left_ms : 0;
    }
    if (s->jobs.event_first < s->jobs.event_count) *out_wait_ms = 0;
    return count;
}

static int slurm_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct slurm *s = slurm_of(cloud);
    struct tm_env *env = s->env;
    int64_t end_ms = time_ms(s) + timeout_ms;
    for (;;) {
        int handles[HANDLES_MAX];
        bool ready[HANDLES_MAX];
        int64_t wait_ms = 0;
        if (tm_slurm_jobs__event(&s->jobs, out)) return 0;
        int rc = advance(s, e);
        if (rc != 0) return rc;
        if (tm_slurm_jobs__event(&s->jobs, out)) return 0;
        int64_t left_ms = end_ms - time_ms(s);
        if (left_ms <= 0) return tm_error_set(e, TM_ETIMEOUT, "nothing happened");
        size_t count = slurm_watch(cloud, handles, HANDLES_MAX, &wait_ms);
        rc = env->net_wait(env, handles, count, wait_ms < left_ms ? wait_ms : left_ms, ready, e);
        if (rc != 0 && rc != -(int)TM_ETIMEOUT) return rc;
    }
}

static double slurm_price_usd_h(struct tm_cloud *cloud, int pool)
{
    return slurm_of(cloud)->pools[pool].price_usd_h;
}

static int64_t slurm_now_ms(struct tm_cloud *cloud)
{
    return time_ms(slurm_of(cloud));
}

static struct tm_cloud_bill slurm_bill(struct tm_cloud *cloud)
{
    struct slurm *s = slurm_of(cloud);
    return tm_slurm_jobs__bill(&s->jobs, time_ms(s));
}

/* ---- life ---- */

static void free_all(struct slurm *s)
{
    tm_tool_process__stop(&s->process, s->env);
    tm_text_deinit(&s->process.text);
    tm_slurm_rest__close(s->rest);
    tm_slurm_answer__deinit(&s->answer);
    tm_slurm_jobs__deinit(&s->jobs);
    tm_free(s);
}

/* Nothing stays: what was asked for is cancelled, and looked for until it is gone. */
static int slurm_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct slurm *s = slurm_of(cloud);
    struct tm_cloud_event event;
    int64_t end_ms = time_ms(s) + END_LIMIT_MS;
    int rc = 0;
    tm_slurm_jobs__end_all(&s->jobs, time_ms(s));
    while (rc == 0 && tm_slurm_jobs__left(&s->jobs) > 0 && time_ms(s) < end_ms) {
        int handles[HANDLES_MAX];
        bool ready[HANDLES_MAX];
        int64_t wait_ms = 0;
        rc = slurm_next(cloud, 0, &event, e);
        if (rc == -(int)TM_ETIMEOUT) rc = 0;
        if (rc != 0 || tm_slurm_jobs__left(&s->jobs) == 0) break; /* nothing would wake us */
        size_t count = slurm_watch(cloud, handles, HANDLES_MAX, &wait_ms);
        int64_t left_ms = end_ms - time_ms(s);
        (void)s->env->net_wait(s->env, handles, count, wait_ms < left_ms ? wait_ms : left_ms, ready, NULL);
    }
    if (rc == 0 && tm_slurm_jobs__left(&s->jobs) > 0)
        rc = tm_error_set(e, TM_EPEER,
                          "%zu jobs of Slurm may still be there; look with squeue --me --name=%s, and end "
                          "them with scancel --me --name=%s",
                          tm_slurm_jobs__left(&s->jobs), s->name, s->name);
    free_all(s);
    return rc;
}

static const struct tm_cloud functions = {
    .learns_start = true,
    .pools = slurm_pools,
    .want = slurm_want,
    .release = slurm_release,
    .instances = slurm_instances,
    .next = slurm_next,
    .watch = slurm_watch,
    .price_usd_h = slurm_price_usd_h,
    .now_ms = slurm_now_ms,
    .bill = slurm_bill,
    .destroy = slurm_destroy,
};

/* Waits for what was started: only before anything runs. */
static int wait_for_process(struct tm_tool__process *process, struct tm_env *env)
{
    int status = 0;
    while (!tm_tool_process__step(process, env, &status)) {
        int handles[2];
        bool ready[2];
        size_t count = tm_tool_process__watch(process, handles);
        int64_t left_ms = process->deadline_ms - env->monotonic_ns(env) / 1000000;
        (void)env->net_wait(env, handles, count, left_ms > 0 ? left_ms : 0, ready, NULL);
    }
    return status;
}

static int ask(struct slurm *s, int *out_status, struct tm_error *e)
{
    int rc = tm_tool_process__start(&s->process, s->env, s->words, ASK_LIMIT_MS, e);
    if (rc != 0) return tm_error_wrap(e, rc, "cloud slurm needs Slurm's commands; run it on a login node");
    *out_status = wait_for_process(&s->process, s->env);
    return 0;
}

/* What scontrol says of all partitions: it stays in the process's text. */
static int ask_scontrol(struct slurm *s, struct tm_error *e)
{
    int status = 0;
    char words[TM_SLURM_SAID_MAX];
    begin(s, "scontrol");
    word(s, "--oneliner");
    word(s, "show");
    word(s, "partition");
    int rc = ask(s, &status, e);
    tm_slurm__in_one_line(tm_text_string(&s->process.text), s->process.text.length, words);
    if (rc == 0 && status != 0)
        rc = tm_error_set(e, TM_EPEER, "Slurm does not answer: %s", status < 0 ? "scontrol took too long" : words);
    return rc;
}

static int look_at_partition(struct slurm *s, size_t at, struct tm_error *e)
{
    const struct tm_slurm_pool *given = &s->options.pools[at];
    struct tm_slurm__partition found;
    bool there = s->rest == NULL && tm_slurm__read_partition(tm_text_string(&s->process.text), s->process.text.length,
                                                             given->partition, &found);
    if (s->rest != NULL) {
        int rc = tm_slurm_rest__ask_partition(s->rest, given->partition, &found, e);
        if (rc == 0) rc = tm_slurm_rest__check_words(given->words, e);
        if (rc != 0 && rc != -(int)TM_ENOTFOUND) return tm_error_wrap(e, rc, "partition %s", given->partition);
        there = rc == 0;
    }
    if (!there) return tm_error_set(e, TM_EINPUT, "Slurm has no partition %s here; sinfo lists them", given->partition);
    if (found.time_max_ms >= 0 && given->time_limit_ms > found.time_max_ms)
        return tm_error_set(e, TM_EINPUT, "partition %s: its jobs run for at most %lld minutes; lower time_limit",
                            given->partition, (long long)found.time_max_ms / 60000);
    if (!found.up) tm_log(TM_LOG_WARN, "partition %s is not up: its jobs wait", given->partition);
    int64_t grace_ms = found.grace_ms > 0 ? found.grace_ms : NOTICE_MS;
    s->jobs.pools[at] = (struct tm_slurm__pool){.partition = given->partition,
                                                .kind = given->kind,
                                                .shown = s->options.choices ? (int)at : (int)given->kind,
                                                .limit = given->limit,
                                                .price_usd_h = given->price_usd_h,
                                                .notice_ms = given->notice_ms >= 0 ? given->notice_ms : grace_ms};
    return 0;
}

/* Where slurmrestd does not answer, commands may. */
static int find_way(struct slurm *s, struct tm_error *e)
{
    struct tm_error why = {.text = ""};
    if (s->options.rest == NULL) return ask_scontrol(s, e);
    int rc = tm_slurm_rest__open(s->env, s->options.rest, s->options.token_file, &s->rest, &why);
    if (rc == 0) return 0;
    if (rc != -(int)TM_EPEER) return tm_error_set(e, (enum tm_code) - rc, "%s", why.text);
    rc = ask_scontrol(s, e);
    if (rc != 0) return tm_error_set(e, TM_EPEER, "%.500s; nor do Slurm's commands", why.text);
    tm_log(TM_LOG_WARN, "%s; Slurm's commands are used", why.text);
    return 0;
}

static int look_at_partitions(struct slurm *s, struct tm_error *e)
{
    int rc = find_way(s, e);
    for (size_t i = 0; rc == 0 && i < s->options.pool_count; i++)
        rc = look_at_partition(s, i, e);
    if (rc == 0) s->jobs.pool_count = s->options.pool_count;
    return rc;
}

static void fill_pools(struct slurm *s)
{
    tm_cloud_pools__plain(s->pools);
    s->pool_count = s->options.choices ? (int)s->options.pool_count : TM_INSTANCE_KINDS;
    for (size_t i = s->options.pool_count; i-- > 0;) {
        const struct tm_slurm_pool *given = &s->options.pools[i];
        struct tm_cloud_pool *pool = &s->pools[s->options.choices ? i : (size_t)given->kind];
        if (s->options.choices) {
            *pool = (struct tm_cloud_pool){.kind = given->kind};
            (void)snprintf(pool->name, sizeof pool->name, "%s", given->partition);
        }
        (void)snprintf(pool->type, sizeof pool->type, "%s", given->partition);
        (void)snprintf(pool->zone, sizeof pool->zone, "%s", given->partition);
        pool->limit += given->limit;
        pool->price_usd_h = given->price_usd_h;
    }
}

/* FNV-1a: the same folder has the same name, whoever asks. */
static void name_jobs(struct slurm *s)
{
    uint64_t hash = 0xcbf29ce484222325U;
    for (const char *at = s->options.folder; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3U;
    (void)snprintf(s->jobs.tag.folder, sizeof s->jobs.tag.folder, "%016" PRIx64, hash);
    (void)snprintf(s->name, sizeof s->name, "tidemill-%s", s->jobs.tag.folder);
}

int tm_slurm_cloud_create(struct tm_env *env, const struct tm_slurm_options *options, struct tm_cloud **out,
                          struct tm_error *e)
{
    if (options->pool_count == 0 || options->pool_count > TM_SLURM_POOLS_MAX)
        return tm_error_set(e, TM_EUSAGE, "cloud slurm: expected 1 to %d partitions", TM_SLURM_POOLS_MAX);
    struct slurm *s = tm_calloc(1, sizeof *s);
    if (s == NULL) return tm_error_nomem(e);
    s->cloud = functions;
    s->cloud.self = s;
    s->env = env;
    s->options = *options;
    s->start_ns = env->monotonic_ns(env);
    tm_text_init(&s->process.text, TM_SLURM_TEXT_MAX);
    tm_slurm_jobs__init(&s->jobs);
    s->jobs.hears = hears;
    s->jobs.context = s;
    s->jobs.tag.run = options->run;
    s->jobs.tag.instance = options->id_last;
    s->jobs.poll_max_ms = options->poll_ms > 0 ? options->poll_ms : POLL_MS;
    name_jobs(s);
    fill_pools(s);
    int rc = look_at_partitions(s, e);
    if (rc == 0) rc = prepare_folders(s, e);
    if (rc != 0) {
        free_all(s);
        return rc;
    }
    *out = &s->cloud;
    return 0;
}

bool tm_slurm_own_address(struct tm_env *env, char *out, size_t size)
{
    const char *node = env->variable(env, "SLURMD_NODENAME");
    if (node == NULL || node[0] == '\0') return false;
    const char *const words[] = {"scontrol", "--oneliner", "show", "node", node, NULL};
    struct tm_tool__process process = {.pid = 0};
    char address[TM_SLURM_WORD_MAX];
    tm_text_init(&process.text, TM_SLURM_TEXT_MAX);
    bool found = tm_tool_process__start(&process, env, words, ASK_LIMIT_MS, NULL) == 0 &&
                 wait_for_process(&process, env) == 0 &&
                 tm_slurm__read_address(tm_text_string(&process.text), process.text.length, node, address);
    tm_text_deinit(&process.text);
    if (found) (void)snprintf(out, size, "%s", address);
    return found;
}

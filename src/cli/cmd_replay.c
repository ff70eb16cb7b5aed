#include "base/calendar.h"
#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "run/decide_again.h"
#include "run/run_tap.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdio.h>

const struct tm_option tm_replay_command_options[] = {
    {.name = "state", .value = "DIR|NAME", .help = "which run (the only one)"},
    {.name = "policy", .value = "NAME", .help = "ask this policy instead of the one that decided"},
    {.name = NULL},
};

static int take_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    return tm_decide_again_take(context, sequence, event, e);
}

static const char *change_word(enum tm_change change)
{
    static const char *const words[] = {[TM_CHANGE_MIGRATE] = "migration",
                                        [TM_CHANGE_ROLLBACK] = "rollback",
                                        [TM_CHANGE_FREE] = "free",
                                        [TM_CHANGE_TIMED] = "timed"};
    return words[change];
}

/* ---- JSON ---- */

static void write_decision(struct tm_jsonout *json, const char *key, const struct tm_decision *decision,
                           const struct tm_layout *layout)
{
    tm_jsonout_object(json, key);
    tm_jsonout_integer(json, "pipelines", layout->pipelines);
    tm_jsonout_integer(json, "stages", layout->stages);
    tm_jsonout_string(json, "change", change_word(decision->change));
    tm_jsonout_integer(json, "want_spot", decision->want_spot);
    tm_jsonout_integer(json, "want_on_demand", decision->want_on_demand);
    tm_jsonout_bool(json, "copy", decision->copy);
    tm_jsonout_bool(json, "stop", decision->stop);
    tm_jsonout_string(json, "why", tm_why_words(decision->why));
    tm_jsonout_end(json);
}

static void write_first(struct tm_jsonout *json, const struct tm_decided_again *result, const char *policy)
{
    const struct tm_decided_otherwise *first = &result->first;
    const struct tm_facts *facts = &first->facts;
    if (result->different == 0) {
        tm_jsonout_null(json, "first_difference");
        return;
    }
    tm_jsonout_object(json, "first_difference");
    tm_jsonout_integer(json, "index", (int64_t)first->index);
    tm_jsonout_integer(json, "sequence", (int64_t)first->sequence);
    tm_jsonout_integer(json, "utc_ms", first->utc_ms);
    tm_jsonout_number(json, "time_s", facts->now_s);
    tm_jsonout_string(json, "policy", first->policy);
    tm_jsonout_string(json, "with", policy == NULL ? first->policy : policy);
    tm_jsonout_string(json, "figure", first->figure);
    tm_jsonout_object(json, "facts");
    tm_jsonout_integer(json, "before", facts->before);
    tm_jsonout_integer(json, "lost", facts->lost);
    tm_jsonout_integer(json, "after", facts->after);
    tm_jsonout_integer(json, "pipelines", first->standing.pipelines);
    tm_jsonout_integer(json, "stages", first->standing.stages);
    tm_jsonout_number(json, "samples_left", facts->progress.samples_left);
    tm_jsonout_number(json, "bill_usd", facts->limits.bill_usd);
    if (facts->limits.has_deadline) tm_jsonout_number(json, "seconds_left", facts->limits.seconds_left);
    tm_jsonout_end(json);
    write_decision(json, "decided", &first->was, &first->was_layout);
    write_decision(json, "would_decide", &first->would, &first->would_layout);
    tm_jsonout_end(json);
}

static void write_result(struct tm_cli *cli, const struct tm_decided_again *result, const char *policy)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_integer(&json, "decisions", (int64_t)result->decisions);
    tm_jsonout_integer(&json, "different", (int64_t)result->different);
    write_first(&json, result, policy);
    if (result->shared_otherwise > 0) {
        tm_jsonout_integer(&json, "generations", (int64_t)result->generations);
        tm_jsonout_integer(&json, "shared_otherwise", (int64_t)result->shared_otherwise);
    }
    tm_jsonout_end(&json);
}

/* ---- for people ---- */

static void say_decision(struct tm_text *out, const char *who, const struct tm_decision *decision,
                         const struct tm_layout *layout)
{
    tm_text_printf(out, "  %-14s ", who);
    if (layout->pipelines > 0)
        tm_text_printf(out, "%dx%d", layout->pipelines, layout->stages);
    else
        tm_text_puts(out, "pause");
    if (decision->rents)
        tm_text_printf(out, ", %d spot and %d on-demand instances", decision->want_spot, decision->want_on_demand);
    tm_text_printf(out, ", %s", change_word(decision->change));
    if (decision->copy) tm_text_puts(out, ", copy now");
    if (decision->stop) tm_text_puts(out, ", stop");
    tm_text_printf(out, " (%s)\n", tm_why_words(decision->why));
}

static void say_result(struct tm_cli *cli, const struct tm_decided_again *result, const char *policy)
{
    const struct tm_decided_otherwise *first = &result->first;
    struct tm_text *out = &cli->out;
    tm_text_printf(out, "%" PRIu64 " decisions, %" PRIu64 " different\n", result->decisions, result->different);
    if (result->shared_otherwise == 0 && result->generations > 0)
        tm_text_printf(out, "%" PRIu64 " generations, each shared out again as it was\n", result->generations);
    if (result->shared_otherwise > 0)
        tm_text_printf(out, "%" PRIu64 " of %" PRIu64 " generations share out micro-batches otherwise\n",
                       result->shared_otherwise, result->generations);
    if (result->unknown > 0)
        tm_text_printf(out, "%" PRIu64 " more could not be judged: the record lacks what came before them\n",
                       result->unknown);
    if (result->different == 0) return;
    char when[TM_CALENDAR_TEXT_MAX];
    (void)tm_calendar_print(first->utc_ms / 1000 * 1000, when);
    tm_text_printf(out, "\nthe first: decision %" PRIu64 ", %.10s %.8s UTC, event %" PRIu64 " (%s differs)\n",
                   first->index, when, when + 11, first->sequence, first->figure);
    tm_text_printf(out, "  %-14s %d instances, %d gone, now %d; layout %dx%d; cost $%.4f\n", "facts",
                   first->facts.before, first->facts.lost, first->facts.after, first->standing.pipelines,
                   first->standing.stages, first->facts.limits.bill_usd);
    say_decision(out, first->policy, &first->was, &first->was_layout);
    say_decision(out, policy == NULL ? "now" : policy, &first->would, &first->would_layout);
}

int tm_cmd_replay(struct tm_cli *cli, struct tm_error *e)
{
    const char *policy = tm_given_text(cli, "policy");
    const struct tm_policy_info *other = policy == NULL ? NULL : tm_policy_find(policy);
    struct tm_decide_again *again = NULL;
    const char *dir = NULL;
    char path[TM_STATE_PATH_MAX];
    if (policy != NULL && other == NULL)
        return tm_error_set(e, TM_EUSAGE, "--policy: unknown policy \"%s\"; tidemill simulate --help names them",
                            policy);
    int rc = tm_run_folder(cli, &dir, e);
    if (rc == 0) rc = tm_decide_again_create(other, &again, e);
    if (rc != 0) return rc;
    tm_state_path(dir, TM_STATE_RECORD, path);
    rc = tm_run_record_each(path, 0, SIZE_MAX, take_event, again, e);
    const struct tm_decided_again *result = tm_decide_again_result(again);
    if (rc == 0 && result->policies == 0)
        rc = tm_error_set(
            e, TM_EINPUT,
            "%s: this record has no decisions: the run ended before its first, or an older release wrote it", path);
    if (rc == 0 && cli->json) write_result(cli, result, policy);
    if (rc == 0 && !cli->json) say_result(cli, result, policy);
    if (rc == 0 && other == NULL && result->different + result->shared_otherwise > 0) cli->exit_status = 1;
    tm_decide_again_destroy(again);
    return rc;
}

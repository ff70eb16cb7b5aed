#include "plan/emit_internal.h"

#include "base/units.h"
#include "base/yaml_print.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* ---- YAML ---- */

/* Letters, digits and what stands inside names; nothing that YAML could take for a number, a truth value or syntax. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
    if (!isalpha((unsigned char)text[0]) && text[0] != '/') return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("-_./", *at) == NULL) return false;
    }
    return true;
}

/* A text as a YAML scalar: plain where that is safe, else in double quotes. */
static void yaml_text(const char *text, struct tm_text *out)
{
    if (is_plain(text)) {
        tm_text_puts(out, text);
        return;
    }
    tm_yaml_print_quoted(text, out);
}

static void put_key(struct tm_text *out, const char *key, const char *text)
{
    tm_text_printf(out, "%s: ", key);
    yaml_text(text, out);
    tm_text_putc(out, '\n');
}

/* Several lines as a block, one as a scalar. */
static void put_script(struct tm_text *out, const char *key, const char *text)
{
    bool block = strchr(text, '\n') != NULL;
    for (const char *at = text; *at != '\0' && block; at++)
        block = *at == '\n' || ((unsigned char)*at >= 32 && *at != 127);
    if (!block || text[0] == ' ' || text[0] == '\n') {
        put_key(out, key, text);
        return;
    }
    size_t length = strlen(text);
    tm_text_printf(out, "%s: |%s\n", key, text[length - 1] == '\n' ? "" : "-");
    for (const char *at = text; *at != '\0';) {
        size_t line = strcspn(at, "\n");
        if (line > 0) tm_text_printf(out, "  %.*s", (int)line, at);
        tm_text_putc(out, '\n');
        at += line + (at[line] == '\n');
    }
}

static void put_envs(struct tm_text *out, const struct tm_job *job)
{
    if (job == NULL || job->envs.count == 0) return;
    tm_text_puts(out, "envs:\n");
    for (size_t i = 0; i < job->envs.count; i++) {
        tm_text_puts(out, "  ");
        yaml_text(job->envs.items[i].name, out);
        tm_text_puts(out, ": ");
        yaml_text(job->envs.items[i].text, out);
        tm_text_putc(out, '\n');
    }
}

static const char *name_of(const struct tm_emit *emit)
{
    return emit->job != NULL && emit->job->name != NULL ? emit->job->name : "tidemill";
}

/* The fleet in words, as comments. */
void tm_emit__heading(const struct tm_emit *emit, struct tm_text *out)
{
    const struct tm_expectation *expectation = &emit->answer->expectation;
    char time[TM_UNITS_TEXT_MAX];
    (void)tm_unit_print(TM_UNIT_DURATION, (int64_t)(expectation->time_s.mean * 1000), time);
    tm_text_printf(out, "# tidemill plan: about %s and $%.2f; $%.2f an hour\n", time, expectation->cost_usd.mean,
                   expectation->usd_h);
}

/* ---- SkyPilot ---- */

static int kind_instances(const struct tm_plan_part *part, bool spot)
{
    return spot ? part->spot : part->on_demand;
}

bool tm_emit_skypilot_has(const struct tm_instance_type *instance)
{
    static const char *const retired[] = {"p2.", "p3.", "g3.", "g3s."};
    for (size_t i = 0; strcmp(instance->cloud, "aws") == 0 && i < sizeof retired / sizeof *retired; i++) {
        if (strncmp(instance->name, retired[i], strlen(retired[i])) == 0) return false;
    }
    return true;
}

/* An instance type says which GPUs it has, in SkyPilot's own names and counts. On GCP a host may carry several kinds:
 * there ours is "HOST+COUNTxGPU". */
static void put_machine(const struct tm_instance_type *instance, struct tm_text *out)
{
    const char *plus = strcmp(instance->cloud, "gcp") == 0 ? strchr(instance->name, '+') : NULL;
    struct tm_text host;
    tm_text_init(&host, 1024);
    tm_text_append(&host, instance->name, plus == NULL ? strlen(instance->name) : (size_t)(plus - instance->name));
    tm_text_puts(out, "  instance_type: ");
    yaml_text(tm_text_string(&host), out);
    tm_text_putc(out, '\n');
    if (plus != NULL) tm_text_printf(out, "  accelerators: \"%s:%g\"\n", instance->gpu, instance->gpus);
    tm_text_deinit(&host);
}

static const char *job_file(const struct tm_emit *emit)
{
    const char *at = emit->file;
    while (at != NULL && *at != '\0' && (unsigned char)*at >= 32 && *at != 127)
        at++;
    return at == NULL || *at != '\0' ? "job.yaml" : emit->file;
}

static void put_setup(const struct tm_job *job, struct tm_text *out)
{
    struct tm_text script;
    tm_text_init(&script, 1 << 20);
    tm_text_puts(&script, "./tidemill --version || exit 1\n");
    if (job != NULL && job->setup != NULL) tm_text_puts(&script, job->setup);
    put_script(out, "setup", tm_text_string(&script));
    tm_text_deinit(&script);
}

/* A word of a shell's line. */
static void put_word(struct tm_text *out, const char *word)
{
    if (is_plain(word)) {
        tm_text_puts(out, word);
        return;
    }
    tm_text_putc(out, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            tm_text_puts(out, "'\\''");
        else
            tm_text_putc(out, *word);
    }
    tm_text_putc(out, '\'');
}

/* Every node has an agent, which joins by a ticket of its own: a secret that is given at launch. */
static void write_agent(const char *cloud, bool spot, struct tm_text *out)
{
    bool announces = strcmp(cloud, "aws") == 0 || strcmp(cloud, "gcp") == 0 || strcmp(cloud, "azure") == 0;
    tm_text_puts(out, "set -- $TIDEMILL_TICKETS\n"
                      "shift \"$SKYPILOT_NODE_RANK\" || { echo 'more nodes than tickets'; exit 1; }\n"
                      "export TIDEMILL_TICKET=${1:?a ticket for each node: --secret TIDEMILL_TICKETS}\n"
                      "unset TIDEMILL_TICKETS\n"
                      "here=$(echo \"$SKYPILOT_NODE_IPS\" | sed -n \"$((SKYPILOT_NODE_RANK + 1))p\")\n"
                      "exec ./tidemill agent --host \"$here\"");
    if (spot && announces) tm_text_printf(out, " --notice %s", cloud);
    tm_text_putc(out, '\n');
}

/* One cluster: instances of one type, spot or on demand, over the zones of the region. */
static void put_cluster(const struct tm_emit *emit, size_t first, bool spot, size_t number, struct tm_text *out)
{
    const struct tm_plan_fleet *fleet = &emit->answer->fleet;
    const struct tm_plan_part *part = &fleet->parts[first];
    const struct tm_job *job = emit->job;
    int instances = 0;
    for (size_t i = first; i < fleet->part_count; i++)
        instances += fleet->parts[i].instance == part->instance ? kind_instances(&fleet->parts[i], spot) : 0;
    if (number > 0) tm_text_puts(out, "---\n");
    struct tm_text name;
    tm_text_init(&name, 1024);
    tm_text_printf(&name, "%.200s", name_of(emit));
    if (number > 0) tm_text_printf(&name, "-%zu", number + 1);
    put_key(out, "name", tm_text_string(&name));
    tm_text_deinit(&name);
    tm_text_printf(out, "num_nodes: %d\nresources:\n  infra: %s/%s\n", instances, part->instance->cloud,
                   part->offer->region);
    put_machine(part->instance, out);
    tm_text_printf(out, "  use_spot: %s\n", spot ? "true" : "false");
    put_envs(out, job);
    tm_text_puts(out, "secrets:\n  TIDEMILL_TICKETS: null\nworkdir: .\n");
    put_setup(job, out);
    struct tm_text script;
    tm_text_init(&script, 1 << 16);
    write_agent(part->instance->cloud, spot, &script);
    put_script(out, "run", tm_text_string(&script));
    tm_text_deinit(&script);
}

void tm_emit_skypilot(const struct tm_emit *emit, struct tm_text *out)
{
    const struct tm_plan_fleet *fleet = &emit->answer->fleet;
    size_t number = 0;
    tm_emit__heading(emit, out);
    int instances = tm_plan_spot_instances(fleet) + tm_plan_on_demand_instances(fleet);
    tm_text_puts(
        out,
        "# `tidemill run` with --cloud skypilot rents, replaces and takes down clusters itself. By hand, with a run "
        "on a machine (HOST) that\n# the nodes reach, in the folder of the job file, which goes along:\n"
        "#   cp \"$(command -v tidemill)\" .\n"
        "#   tidemill run ");
    put_word(out, job_file(emit));
    tm_text_printf(
        out,
        " -y --cloud join --listen 0.0.0.0:7070 --advertise HOST --limit %d\n"
        "# and, for each cluster below, with as many tickets as it has nodes (COUNT):\n"
        "#   sky launch TASK.yaml --secret TIDEMILL_TICKETS=\"$(tidemill ticket --count COUNT --valid 24h)\"\n",
        instances);
    for (size_t i = 0; i < fleet->part_count; i++) {
        for (int spot = 1; spot >= 0; spot--) {
            bool first = kind_instances(&fleet->parts[i], spot != 0) > 0;
            for (size_t k = 0; k < i; k++) /* zones of one type go together */
                first = first && !(fleet->parts[k].instance == fleet->parts[i].instance &&
                                   kind_instances(&fleet->parts[k], spot != 0) > 0);
            if (first) put_cluster(emit, i, spot != 0, number++, out);
        }
    }
    if (number > 1) tm_text_printf(out, "# %zu clusters: launch each document as a cluster of its own\n", number);
    if (fleet->anchor_instances > 0)
        tm_text_printf(out,
                       "# the plan also has %d x %s on demand in %s that only keep copies of the state. Do not launch "
                       "them by hand, "
                       "they would train: run the job of plan --emit job with --cloud skypilot\n",
                       fleet->anchor_instances, fleet->anchor.instance->name, fleet->anchor.offer->region);
}

#include "api/metrics.h"

#include "base/number.h"

#include <math.h>
#include <string.h>

/* What is not known is left out: Prometheus then shows a gap, not a wrong number. */
static void put_value(struct tm_text *out, const char *name, const char *labels, double value)
{
    char buffer[TM_NUMBER_TEXT_MAX];
    if (!isfinite(value)) return;
    tm_text_printf(out, "%s%s %s\n", name, labels, tm_number_print(value, buffer));
}

static void put_head(struct tm_text *out, const char *name, const char *type, const char *help)
{
    tm_text_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct tm_text *out, const char *name, const char *type, const char *help, double value)
{
    if (!isfinite(value)) return;
    put_head(out, name, type, help);
    put_value(out, name, "", value);
}

static void put_label_value(struct tm_text *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') tm_text_putc(out, '\\');
        tm_text_putc(out, *text);
    }
}

static void put_state(const struct tm_run_status *s, struct tm_text *out)
{
    put_head(out, "tidemill_job_info", "gauge", "The job and its settings; the value is always 1.");
    tm_text_puts(out, "tidemill_job_info{job=\"");
    put_label_value(out, s->job.name);
    tm_text_puts(out, "\"} 1\n");
    put_head(out, "tidemill_job_state", "gauge", "1 for the state the job is in, 0 for the others.");
    for (int state = TM_JOB_STARTING; state <= TM_JOB_FAILED; state++)
        tm_text_printf(out, "tidemill_job_state{state=\"%s\"} %d\n", tm_job_state_name((enum tm_job_state)state),
                       s->state == (enum tm_job_state)state);
}

static void put_steps(const struct tm_run_status *s, struct tm_text *out)
{
    put_one(out, "tidemill_steps", "gauge", "Steps of the job.", (double)s->job.steps);
    put_one(out, "tidemill_step_committed", "gauge", "The newest committed step.", (double)s->committed);
    put_one(out, "tidemill_step_durable", "gauge", "The step of the newest complete copy set.", (double)s->durable);
    put_one(out, "tidemill_steps_redone_total", "counter", "Steps whose work was done more than once.",
            (double)s->redone);
    put_one(out, "tidemill_steps_rolled_back_total", "counter", "Committed steps that were rolled back and redone.",
            (double)s->rolled_back);
    put_one(out, "tidemill_samples_committed", "gauge", "Samples in committed steps.",
            (double)(s->committed * s->job.samples_per_step));
    put_one(out, "tidemill_step_seconds", "gauge", "Step time of the newest step.", s->step_s);
    put_one(out, "tidemill_steps_per_second", "gauge", "Steps committed per second, over the last ten.", s->steps_s);
    if (s->job.tokens_per_step > 0)
        put_one(out, "tidemill_tokens_per_second", "gauge", "Tokens in committed steps.",
                s->steps_s * (double)s->job.tokens_per_step);
    put_one(out, "tidemill_training_loss", "gauge", "The newest training loss reported by the engine.", s->loss);
}

static void put_fleet(const struct tm_run_status *s, struct tm_text *out)
{
    put_one(out, "tidemill_generation", "gauge", "The number of the generation.", (double)(uint32_t)s->generation);
    put_one(out, "tidemill_generations_total", "counter", "Generations that started.", (double)s->generations);
    put_one(out, "tidemill_layout_pipelines", "gauge", "Pipelines of the layout.", s->pipelines);
    put_one(out, "tidemill_layout_stages", "gauge", "Stages of each pipeline.", s->stages);
    put_head(out, "tidemill_instances", "gauge", "Instances running now.");
    put_value(out, "tidemill_instances", "{state=\"running\"}", s->here - s->noticed);
    put_value(out, "tidemill_instances", "{state=\"noticed\"}", s->noticed);
    put_one(out, "tidemill_arrivals_total", "counter", "Instances that arrived.", (double)s->arrivals);
    put_head(out, "tidemill_losses_total", "counter", "Instances that were preempted.");
    put_value(out, "tidemill_losses_total", "{announced=\"true\"}", (double)s->losses_announced);
    put_value(out, "tidemill_losses_total", "{announced=\"false\"}", (double)s->losses_unannounced);
    put_one(out, "tidemill_worker_losses_total", "counter", "Worker processes that were lost.",
            (double)s->worker_losses);
}

static void put_pool(const struct tm_run_status *s, size_t i, const char *name, double value, struct tm_text *out)
{
    char text[TM_NUMBER_TEXT_MAX];
    tm_text_printf(out, "%s{pool=\"", name);
    put_label_value(out, s->job.pools[i]);
    tm_text_printf(out, "\"} %s\n", tm_number_print(value, text));
}

/* Without a choice of them they are named, and have no values. */
static void put_pools(const struct tm_run_status *s, struct tm_text *out)
{
    put_head(out, "tidemill_pool_instances", "gauge", "Instances of a pool running now.");
    for (size_t i = 0; i < s->job.pool_count; i++)
        put_pool(s, i, "tidemill_pool_instances", s->pools[i].here, out);
    put_head(out, "tidemill_pool_instance_hours", "gauge", "Instance-hours of a pool so far.");
    for (size_t i = 0; i < s->job.pool_count; i++)
        put_pool(s, i, "tidemill_pool_instance_hours", s->pools[i].instance_hours, out);
    put_head(out, "tidemill_pool_bill_dollars", "gauge", "Cost of a pool so far.");
    for (size_t i = 0; i < s->job.pool_count; i++)
        put_pool(s, i, "tidemill_pool_bill_dollars", s->pools[i].bill_usd, out);
}

void tm_metrics__write(const struct tm_run_status *s, struct tm_text *out)
{
    put_state(s, out);
    put_steps(s, out);
    put_fleet(s, out);
    put_pools(s, out);
    put_one(out, "tidemill_bill_dollars", "gauge", "Cost so far.", s->bill_usd);
    put_one(out, "tidemill_on_demand_dollars", "gauge", "Cost of the same instance-seconds on-demand.",
            s->on_demand_usd);
    put_one(out, "tidemill_spot_price_dollars_per_hour", "gauge", "The price of a spot instance now.", s->spot_usd_h);
    put_one(out, "tidemill_pauses_total", "counter", "Pauses for a change of generation.", (double)s->pause.count);
    put_one(out, "tidemill_pause_seconds_total", "counter", "Length of these pauses.", s->pause.total_s);
    put_one(out, "tidemill_recoveries_total", "counter", "Unplanned pauses.", (double)s->recovery.count);
    put_one(out, "tidemill_recovery_seconds_total", "counter", "Length of the unplanned pauses.", s->recovery.total_s);
    put_one(out, "tidemill_waiting_seconds_total", "counter", "Time without enough workers.", s->waiting_s);
    put_one(out, "tidemill_wall_seconds", "gauge", "Time since the run began.", s->wall_s);
}

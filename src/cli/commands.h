/* One row a command: see cmd_*.c. */
#ifndef TM_CLI_COMMANDS_H
#define TM_CLI_COMMANDS_H

#include "cli/command.h"
#include "market/catalog.h"
#include "market/trace.h"

extern const struct tm_option tm_catalog_list_options[];
extern const struct tm_command tm_catalog_subcommands[];
int tm_cmd_catalog_list(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_command tm_cloud_subcommands[];
/* For commands with the same filters: does --gpu allow an instance, by any name of its GPU ("none" for none), with
 * their number (T4:4) or without? Is every word of --cloud, --region, --zone, --instance and --gpu in the catalogue?
 * One that is not is an error with a suggestion. And where nothing is left: which of them nothing in the catalogue
 * has, alone or together; no text if that is not the reason. */
bool tm_filter_gpu_matches(const struct tm_cli *cli, const struct tm_catalog *catalog,
                           const struct tm_instance_type *instance);
int tm_filter_check(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_error *e);
void tm_filter_why_none(const struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_text *out);

extern const struct tm_command tm_trace_subcommands[];
/* For commands that read traces: --format applies, warnings go to the log. `trace` must be initialised. */
int tm_cmd_load_trace(struct tm_cli *cli, const char *path, struct tm_trace *trace, struct tm_error *e);
/* A duration option for which 0 has no meaning; *out_ms is left alone where it was not given. */
int tm_given_time_span(const struct tm_cli *cli, const char *name, int64_t *out_ms, struct tm_error *e);

extern const struct tm_option tm_forecast_options[];
int tm_cmd_forecast(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_study_options[];
int tm_cmd_study(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_command tm_study_subcommands[];

extern const struct tm_option tm_simulate_options[];
int tm_cmd_simulate(struct tm_cli *cli, struct tm_error *e);
int tm_cmd_simulate_gang(struct tm_cli *cli, struct tm_error *e); /* with --work or --gang */
/* Calls `add` for each value of an option, which may be given often or with commas. A formula (gpt:a=1,b=2) is one. */
int tm_cmd_each_value(struct tm_cli *cli, const char *name, void *context,
                      int (*add)(struct tm_cli *cli, void *context, const char *value, struct tm_error *e),
                      struct tm_error *e);

extern const struct tm_option tm_predict_options[];
int tm_cmd_predict(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_plan_options[];
int tm_cmd_plan(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_profile_options[];
int tm_cmd_profile(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_probe_options[];
int tm_cmd_probe(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_train_command_options[];
extern const struct tm_option tm_generate_command_options[];
int tm_cmd_train(struct tm_cli *cli, struct tm_error *e);
int tm_cmd_generate(struct tm_cli *cli, struct tm_error *e);
int tm_cmd_verify(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_run_command_options[];
int tm_cmd_run(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_agent_command_options[];
int tm_cmd_agent(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_coordinator_command_options[];
int tm_cmd_coordinator(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_worker_command_options[];
int tm_cmd_worker(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_dashboard_command_options[];
int tm_cmd_dashboard(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_status_command_options[];
extern const struct tm_option tm_attach_command_options[];
extern const struct tm_option tm_result_command_options[];
int tm_cmd_status(struct tm_cli *cli, struct tm_error *e);
int tm_status_follow(struct tm_cli *cli, const char *dir, struct tm_error *e); /* until nobody runs it any more */
int tm_cmd_attach(struct tm_cli *cli, struct tm_error *e);
int tm_cmd_result(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_events_command_options[];
int tm_cmd_events(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_logs_command_options[];
int tm_cmd_logs(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_replay_command_options[];
int tm_cmd_replay(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_stop_command_options[];
int tm_cmd_stop(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_set_command_options[];
int tm_cmd_set(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_drain_command_options[];
int tm_cmd_drain(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_copy_command_options[];
int tm_cmd_copy(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_torchrun_command_options[];
int tm_cmd_torchrun(struct tm_cli *cli, struct tm_error *e);
extern const struct tm_option tm_ticket_command_options[];
int tm_cmd_ticket(struct tm_cli *cli, struct tm_error *e);

extern const struct tm_option tm_report_command_options[];
int tm_cmd_report(struct tm_cli *cli, struct tm_error *e);

int tm_cmd_help(struct tm_cli *cli, struct tm_error *e);
int tm_cmd_config(struct tm_cli *cli, struct tm_error *e);
int tm_cmd_completion(struct tm_cli *cli, struct tm_error *e);
extern const char *const tm_completion_shells[];

/* trace record (cmd_trace_record.c) */
extern const struct tm_option tm_trace_record_options[];
int tm_cmd_trace_record(struct tm_cli *cli, struct tm_error *e);

#endif

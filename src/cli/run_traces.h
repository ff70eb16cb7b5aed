/* OpenTelemetry traces of a run that this program runs, where the variables of its convention say where to. */
#ifndef TM_CLI_RUN_TRACES_H
#define TM_CLI_RUN_TRACES_H

#include "cli/command.h"

struct tm_run_traces;

/* OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces after it; headers of
 * OTEL_EXPORTER_OTLP_TRACES_HEADERS or OTEL_EXPORTER_OTLP_HEADERS; OTEL_SERVICE_NAME and
 * OTEL_RESOURCE_ATTRIBUTES. `resumed`: what ended before is not sent again. NULL: none is set, OTEL_SDK_DISABLED is
 * true, or memory is out. The caller owns the result; `dir` is borrowed. */
struct tm_run_traces *tm_run_traces_open(struct tm_cli *cli, const char *dir, bool resumed);
/* Looks at the run's events now and then, and sends spans that have ended; never waits. NULL is allowed, here and
 * below. */
void tm_run_traces_step(struct tm_run_traces *traces);
/* The run has ended: what its record has more, and a little patience until it is sent. */
void tm_run_traces_finish(struct tm_run_traces *traces);
void tm_run_traces_close(struct tm_run_traces *traces);

#endif

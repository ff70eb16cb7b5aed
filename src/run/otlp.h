/* A run as a trace, for OpenTelemetry: one span for the run, one for each generation that trained, and one for each
 * change from one to the next, made from the run's events as they come. A span is told once it has ended.
 *
 * Numbers of trace and spans follow from the job and its events alone, so whoever tells the same again tells the same.
 */
#ifndef TM_RUN_OTLP_H
#define TM_RUN_OTLP_H

#include "base/doc.h"
#include "base/text.h"

#include <stdint.h>

struct tm_otlp;

/* The caller owns the result; NULL: out of memory. `attributes` of the resource, in the form of
 * OTEL_RESOURCE_ATTRIBUTES, are borrowed; NULL: none. `service` is copied; NULL: as `attributes` have it, else
 * "tidemill". */
struct tm_otlp *tm_otlp_create(const char *service, const char *attributes);
void tm_otlp_destroy(struct tm_otlp *otlp); /* NULL is allowed */

/* One event, as GET /v1/events has it. -TM_ENOMEM. What is no event is passed over. */
int tm_otlp_take(struct tm_otlp *otlp, json_t *event);
/* Up to which event all is told: ask for those after it. */
uint64_t tm_otlp_sequence(const struct tm_otlp *otlp);

/* How many spans have ended and are not written yet. */
size_t tm_otlp_count(const struct tm_otlp *otlp);
/* Appends them as one request of OTLP (JSON), and forgets them. */
void tm_otlp_write(struct tm_otlp *otlp, struct tm_text *out);

/* "name=value,name=value", as the variables of OpenTelemetry have it: blanks around both do not count, and values are
 * percent-encoded. Pairs that are none, or have control characters, are passed over. What `each` returns, if not 0,
 * ends it. `list` may be NULL. */
int tm_otlp_pairs(const char *list, int (*each)(void *context, const char *name, const char *value), void *context);

#endif

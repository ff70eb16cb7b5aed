/* What the API's answers look like: a table of shapes by name, written as schemas of the OpenAPI document.
 *
 * A shape is a line of text, so that a reader sees an answer at a glance:
 *     job:s loss:n? seats:[i] gpu?:s layout:{pipelines:i stages:i} chosen:Answer *
 * Keys with their types: s text, i whole number, n number, b true or false; [T] a list; {...} an object; a capital
 * letter begins the name of another shape. T? may be null; key?:T may be missing; * at the end: there may be
 * more keys than these. */
#ifndef TM_API_API_SCHEMA_H
#define TM_API_API_SCHEMA_H

#include "base/jsonout.h"

/* The shape as a JSON schema, as the value of `key`. Its text must be well formed. */
void tm_api__schema_write(const char *key, const char *shape, struct tm_jsonout *json);
/* All of the table: "schemas", under the components of the document. */
void tm_api__schemas_write(struct tm_jsonout *json);

#endif

/* Asking for credentials: one plain request, or one program, waited for. Nothing of what they say is logged. */
#ifndef TM_WEB_PLAIN_H
#define TM_WEB_PLAIN_H

#include "web/web.h"

/* The answer to a request without credentials of its own: for metadata and token services. Over plain http it never
 * goes through a proxy. `header`: lines "Name: value\n". `body` NULL: none. */
int tm_web_plain__ask(struct tm_env *env, const char *method, const char *url, const char *header, const char *body,
                      int64_t deadline_ms, struct tm_web_answer *out, struct tm_error *e);
/* What a program writes to its standard output, within the limit; a status that is not 0 is an error. */
int tm_web_process__ask(struct tm_env *env, const char *const *argv, int64_t limit_ms, struct tm_text *out,
                        struct tm_error *e);

#endif

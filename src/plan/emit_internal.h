/* What the two forms of a plan share. */
#ifndef TM_PLAN_EMIT_INTERNAL_H
#define TM_PLAN_EMIT_INTERNAL_H

#include "plan/emit.h"

/* The fleet in words, as comments. */
void tm_emit__heading(const struct tm_emit *emit, struct tm_text *out);

#endif

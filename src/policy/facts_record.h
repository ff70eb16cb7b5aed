/* Facts, decisions and a policy's options as exact text (base/figures.h), for the record of a job: what is read back is
 * the same to the last bit, so it can be decided again. What policies that know the future are given (facts.ahead) is
 * not part of it: they decide no running job. */
#ifndef TM_POLICY_FACTS_RECORD_H
#define TM_POLICY_FACTS_RECORD_H

#include "base/text.h"
#include "policy/policy.h"

void tm_facts_record(const struct tm_facts *facts, struct tm_text *out);
/* -TM_EINPUT: no such text, or facts that no fleet of these layouts can have. */
int tm_facts_recall(const char *text, size_t length, const struct tm_layouts *layouts, struct tm_facts *out,
                    struct tm_error *e);

void tm_decision_record(const struct tm_decision *decision, struct tm_text *out);
int tm_decision_recall(const char *text, size_t length, const struct tm_layouts *layouts, struct tm_decision *out,
                       struct tm_error *e);
/* The name of the first figure in which they differ; NULL: they are the same. `acts`: only what is carried out counts,
 * not the reasons and the times that a policy says beside it. */
const char *tm_decision_difference(const struct tm_decision *a, const struct tm_decision *b, bool acts);

/* The arguments of tm_policy_hint. */
void tm_hint_record(int losing, double in_s, struct tm_text *out);
int tm_hint_recall(const char *text, size_t length, int *out_losing, double *out_in_s, struct tm_error *e);

void tm_policy_options_record(const struct tm_policy_options *options, struct tm_text *out);
int tm_policy_options_recall(const char *text, size_t length, struct tm_policy_options *out, struct tm_error *e);

#endif

/* Layouts and costs as exact text (base/figures.h): what a job was decided with, for its record. Read back, they are
 * the same to the last bit, so that the same facts give the same decisions again. */
#ifndef TM_LAYOUT_RECORDED_H
#define TM_LAYOUT_RECORDED_H

#include "layout/cost.h"

void tm_layouts_record(const struct tm_layouts *layouts, struct tm_text *out);
/* -TM_EINPUT: it is no such text. tm_layouts_deinit frees what it fills. */
int tm_layouts_recall(const char *text, size_t length, struct tm_layouts *out, struct tm_error *e);

void tm_cost_record(const struct tm_cost *cost, struct tm_text *out); /* but for its source, which is words */
int tm_cost_recall(const char *text, size_t length, struct tm_cost *out, struct tm_error *e);

#endif

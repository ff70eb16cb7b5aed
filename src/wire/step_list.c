#include "wire/step_list.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

void tm_step_list_clear(struct tm_step_list *list)
{
    tm_step_list_drop_first(list, list->count);
    tm_free(list->entries);
    *list = (struct tm_step_list){.entries = NULL};
}

void tm_step_list_drop_first(struct tm_step_list *list, size_t count)
{
    assert(count <= list->count);
    for (size_t i = 0; i < count; i++)
        tm_free(list->entries[i].metrics);
    if (count > 0) memmove(list->entries, list->entries + count, (list->count - count) * sizeof *list->entries);
    list->count -= count;
}

void tm_step_list_drop_after(struct tm_step_list *list, uint64_t step)
{
    while (list->count > 0 && list->entries[list->count - 1].step > step)
        tm_free(list->entries[--list->count].metrics);
}

struct tm_step_entry *tm_step_list_at(struct tm_step_list *list, uint64_t step)
{
    size_t at = list->count;
    while (at > 0 && list->entries[at - 1].step > step)
        at--;
    if (at > 0 && list->entries[at - 1].step == step) return &list->entries[at - 1];
    if (list->count == TM_STEPS_KEPT) {
        if (at == 0) return NULL;
        tm_step_list_drop_first(list, 1);
        at--;
    }
    void *array = list->entries;
    if (tm_grow(&array, &list->capacity, list->count + 1, sizeof *list->entries, TM_STEPS_KEPT) != 0) return NULL;
    list->entries = array;
    memmove(list->entries + at + 1, list->entries + at, (list->count - at) * sizeof *list->entries);
    list->count++;
    list->entries[at] = (struct tm_step_entry){.step = step};
    return &list->entries[at];
}

void tm_step_entry_set(struct tm_step_entry *entry, const char *name, double value)
{
    size_t length = strnlen(name, TM_STEP_NAME_MAX);
    size_t at = 0;
    while (at < entry->metric_count && strcmp(entry->metrics[at].name, name) != 0)
        at++;
    if (length == 0 || length == TM_STEP_NAME_MAX || at == TM_STEP_METRICS_MAX) return;
    if (at == entry->metric_count) {
        struct tm_step_metric *more = tm_realloc(entry->metrics, (at + 1) * sizeof *more);
        if (more == NULL) return;
        entry->metrics = more;
        entry->metric_count++;
        memcpy(more[at].name, name, length + 1);
    }
    entry->metrics[at].value = value;
}

Tmw__StepLoss *tm_step_entry_write(struct tm_step_entry *entry, struct tm_arena *arena)
{
    size_t count = entry->metric_count;
    Tmw__StepLoss *out = tm_arena_alloc(arena, sizeof *out);
    Tmw__StepMetric *metrics = tm_arena_alloc(arena, (count + 1) * sizeof *metrics);
    Tmw__StepMetric **pointers = tm_arena_alloc(arena, (count + 1) * sizeof(Tmw__StepMetric *));
    if (out == NULL || metrics == NULL || pointers == NULL) return NULL;
    tmw__step_loss__init(out);
    out->step = entry->step;
    out->loss = entry->loss;
    out->unknown = !entry->known;
    for (size_t i = 0; i < count; i++) {
        tmw__step_metric__init(&metrics[i]);
        metrics[i].name = entry->metrics[i].name;
        metrics[i].value = entry->metrics[i].value;
        pointers[i] = &metrics[i];
    }
    out->metrics = pointers;
    out->n_metrics = count;
    return out;
}

void tm_step_list_take(struct tm_step_list *list, const Tmw__StepLoss *told)
{
    struct tm_step_entry *entry = tm_step_list_at(list, told->step);
    if (entry == NULL) return;
    if (!told->unknown) {
        entry->known = true;
        entry->loss = told->loss;
    }
    for (size_t i = 0; i < told->n_metrics; i++)
        tm_step_entry_set(entry, told->metrics[i]->name, told->metrics[i]->value);
}

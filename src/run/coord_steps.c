/* Every committed step in the record, for loggers: each once and in order, whoever is lost.
 *
 * All members tell what they know of a step, and keep it until a heartbeat's answer says that the record has it, which
 * leaves only when that is durable. So a coordinator that is killed is told again. When a generation starts, whoever
 * takes part has reported all it keeps; what nobody knows then was lost with all that did (a member that took its state
 * from others has no losses of theirs): such a step is recorded without its loss. A step that is rolled back and done
 * again is not told again. */
#include "run/coord_internal.h"

#include <stdio.h>

enum { EVERY_MS = 1000, AT_ONCE_MAX = 1024 };

void tm_coord__steps_heard(struct tm_coordinator *c, Tmw__StepLoss *const *steps, size_t count, uint64_t applied)
{
    if (!c->options.log_steps) return;
    for (size_t i = 0; i < count; i++) {
        uint64_t step = steps[i]->step;
        bool wanted = step > c->logged_step && step <= applied && step <= c->options.steps;
        if (wanted) tm_step_list_take(&c->steps_told, steps[i]);
    }
}

/* The first `count` that are kept. */
static void record(struct tm_coordinator *c, size_t count, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__StepsEvent body = TMW__STEPS_EVENT__INIT;
    Tmw__StepLoss *steps[AT_ONCE_MAX];
    struct tm_arena arena;
    tm_arena_init(&arena, TM_MESSAGE_BYTES_MAX);
    for (size_t i = 0; i < count; i++) {
        steps[i] = tm_step_entry_write(&c->steps_told.entries[i], &arena);
        if (steps[i] == NULL) {
            tm_outbox_fail(out, -(int)TM_ENOMEM);
            tm_arena_deinit(&arena);
            return;
        }
    }
    body.steps = steps;
    body.n_steps = count;
    event.body_case = TMW__RECORD_EVENT__BODY_STEPS;
    event.steps = &body;
    tm_coord__record(c, &event, true, out);
    c->logged_step = c->steps_told.entries[count - 1].step;
    tm_step_list_drop_first(&c->steps_told, count);
    tm_arena_deinit(&arena);
}

/* How many steps follow the last one in the record without a gap, up to a step. */
static size_t count_next(const struct tm_coordinator *c, uint64_t up_to)
{
    size_t count = 0;
    while (count < c->steps_told.count && count < AT_ONCE_MAX && c->steps_told.entries[count].step <= up_to &&
           c->steps_told.entries[count].step == c->logged_step + 1 + count)
        count++;
    return count;
}

void tm_coord__steps_tell(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (!c->options.log_steps || c->stuck || !tm_coord__runs(c) || now_ms - c->logged_ms < EVERY_MS) return;
    for (size_t count = count_next(c, c->applied); count > 0; count = count_next(c, c->applied)) {
        c->logged_ms = now_ms;
        record(c, count, out);
    }
}

/* Nobody will tell more of the steps up to this one. */
void tm_coord__steps_tell_all(struct tm_coordinator *c, uint64_t up_to, struct tm_outbox *out)
{
    if (!c->options.log_steps || c->stuck) return;
    while (c->logged_step < up_to) {
        size_t count = count_next(c, up_to);
        if (count > 0) {
            record(c, count, out);
            continue;
        }
        bool far = up_to - c->logged_step > TM_STEPS_KEPT; /* a record that was lost: they are not looked for */
        if (far) c->logged_step = up_to - TM_STEPS_KEPT;
        if (tm_step_list_at(&c->steps_told, c->logged_step + 1) != NULL) continue;
        if (c->steps_told.count == 0) return; /* out of memory: with the next */
        c->logged_step = c->steps_told.entries[0].step - 1;
    }
}

void tm_coord__load_steps(struct tm_coordinator *c, const Tmw__StepsEvent *body)
{
    for (size_t i = 0; i < body->n_steps; i++)
        if (body->steps[i]->step > c->logged_step) c->logged_step = body->steps[i]->step;
}

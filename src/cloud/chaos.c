#include "cloud/chaos.h"

#include "base/random.h"

#include <stdbool.h>

enum { STREAM_CHAOS = 0xC4A05 };

static const bool lasting[] = {
#define TM_FAULT_LASTS(name, text, lasts) (lasts) != 0,
    TM_FAULTS(TM_FAULT_LASTS)
#undef TM_FAULT_LASTS
};

const char *tm_fault_kind_name(enum tm_fault_kind kind)
{
    static const char *const names[] = {
#define TM_FAULT_NAME(name, text, lasts) text,
        TM_FAULTS(TM_FAULT_NAME)
#undef TM_FAULT_NAME
    };
    return names[kind];
}

static enum tm_fault_kind draw_kind(const struct tm_chaos *chaos, struct tm_random *random)
{
    uint64_t sum = 0;
    for (int i = 0; i < TM_FAULT_KINDS; i++)
        sum += chaos->weights[i];
    if (sum == 0) return (enum tm_fault_kind)tm_random_below(random, TM_FAULT_KINDS);
    uint64_t drawn = tm_random_below(random, sum);
    int kind = 0;
    while (drawn >= chaos->weights[kind])
        drawn -= chaos->weights[kind++];
    return (enum tm_fault_kind)kind;
}

struct tm_fault tm_chaos_fault(const struct tm_chaos *chaos, uint64_t number)
{
    enum { DRAWS_EACH = 64 }; /* each fault has draws of its own */
    struct tm_random random = tm_random_make(chaos->seed, STREAM_CHAOS);
    random.position = number * DRAWS_EACH;
    struct tm_fault fault = {.number = number, .pick = tm_random_u64(&random)};
    fault.time_ms = chaos->begin_ms + (int64_t)number * chaos->mean_ms +
                    (int64_t)(tm_random_unit(&random) * (double)chaos->mean_ms);
    double lasts_ms = tm_random_exponential(&random, (double)(chaos->lasting_ms > 0 ? chaos->lasting_ms : 1));
    fault.kind = draw_kind(chaos, &random);
    if (lasting[fault.kind]) fault.lasts_ms = 1 + (int64_t)lasts_ms;
    return fault;
}

uint64_t tm_chaos_first_from(const struct tm_chaos *chaos, int64_t time_ms)
{
    if (time_ms <= chaos->begin_ms) return 0;
    uint64_t number = (uint64_t)((time_ms - chaos->begin_ms) / chaos->mean_ms);
    return tm_chaos_fault(chaos, number).time_ms >= time_ms ? number : number + 1;
}

uint64_t tm_fault_target(const struct tm_fault *fault, uint64_t count)
{
    struct tm_random random = tm_random_make(fault->pick, STREAM_CHAOS);
    return tm_random_below(&random, count);
}

#include "policy/spells.h"

#include <assert.h>
#include <math.h>

void tm_spells_init(struct tm_spells *spells, double memory_s)
{
    *spells = (struct tm_spells){.memory_s = memory_s};
}

void tm_spells_observe(struct tm_spells *spells, double now_s, bool up)
{
    if (spells->known) {
        double passed_s = now_s - spells->now_s;
        assert(passed_s >= 0);
        double keep = exp(-passed_s / spells->memory_s);
        for (int i = 0; i < 2; i++) {
            spells->time_s[i] *= keep;
            spells->ends[i] *= keep;
        }
        /* What has just passed fades while it passes. */
        spells->time_s[spells->up] += spells->memory_s * (1 - keep);
        if (up != spells->up) spells->ends[spells->up] += 1;
    }
    spells->known = true;
    spells->up = up;
    spells->now_s = now_s;
}

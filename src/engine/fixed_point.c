#include "engine/fixed_point.h"

#include <math.h>

enum { SCALE_MAX = 100, ROOM_BITS = 2, NEAR_BITS = 1, FAR_BITS = 6 };

double tm_fixed__limit(int64_t addends)
{
    return floor(2147483647.0 / (double)(addends > 0 ? addends : 1));
}

static int32_t clamp(int scale)
{
    return scale > SCALE_MAX ? SCALE_MAX : scale < -SCALE_MAX ? -SCALE_MAX : scale;
}

int32_t tm_fixed__start(int64_t addends)
{
    int exponent = 0;
    (void)frexp(tm_fixed__limit(addends), &exponent); /* limit >= 2^(exponent - 1) */
    return clamp(exponent - 1);
}

bool tm_fixed__fits(float largest, int32_t scale, int64_t addends)
{
    return ldexp((double)largest, scale) < tm_fixed__limit(addends) - 0.5; /* false for NAN, too */
}

int32_t tm_fixed__best(float largest, int64_t addends)
{
    if (!(largest > 0) || isinf(largest)) return tm_fixed__start(addends);
    int exponent = 0;
    (void)frexp((double)largest, &exponent); /* largest < 2^exponent */
    return clamp(tm_fixed__start(addends) - exponent - ROOM_BITS);
}

int32_t tm_fixed__next(float largest, int32_t scale, int64_t addends)
{
    if (!(largest > 0) || isinf(largest)) return scale;
    double size = ldexp((double)largest, scale);
    double limit = tm_fixed__limit(addends);
    if (size <= ldexp(limit, -NEAR_BITS) && size >= ldexp(limit, -FAR_BITS)) return scale;
    return tm_fixed__best(largest, addends);
}

float tm_fixed__unit(int32_t scale)
{
    return ldexpf(1.0F, scale);
}

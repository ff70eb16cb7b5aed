"""Gradients as integers, so that sums do not depend on how micro-batches are grouped.

The scheme of src/engine/fixed_point.h, in the same numbers: each micro-batch's gradient of a tensor is computed from
zero, multiplied by 2^scale and rounded; integers are added in any order to the same sum.
"""

from __future__ import annotations

import math

_SCALE_MAX, _ROOM_BITS, _NEAR_BITS, _FAR_BITS = 100, 2, 1, 6


def limit(addends: int) -> float:
    """The largest |round(g * 2^scale)| of which `addends` can be added."""
    return math.floor(2147483647.0 / max(1, addends))


def _clamp(scale: int) -> int:
    return max(-_SCALE_MAX, min(_SCALE_MAX, scale))


def start(addends: int) -> int:
    """The scale a tensor starts with: |g| up to 1 fits."""
    return _clamp(math.frexp(limit(addends))[1] - 1)


def fits(largest: float, scale: int, addends: int) -> bool:
    """Does the sum of `addends` gradients, each at most `largest`, fit into 32 bits at this scale?"""
    return math.ldexp(largest, scale) < limit(addends) - 0.5


def best(largest: float, addends: int) -> int:
    """The scale that leaves two bits of room above the largest |g|: for a step that is redone."""
    if not largest > 0 or math.isinf(largest):
        return start(addends)
    return _clamp(start(addends) - math.frexp(largest)[1] - _ROOM_BITS)


def following(largest: float, scale: int, addends: int) -> int:
    """The scale of the next step: as it is while the largest |g| is 1 to 6 bits below the limit, else the best."""
    if not largest > 0 or math.isinf(largest):
        return scale
    size = math.ldexp(largest, scale)
    top = limit(addends)
    if math.ldexp(top, -_FAR_BITS) <= size <= math.ldexp(top, -_NEAR_BITS):
        return scale
    return best(largest, addends)

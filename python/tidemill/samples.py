"""The order of samples: a keyed permutation of the data set for every epoch.

The same functions as src/base/sample_order.c: sample i of a job is item permute(i mod n) of epoch i / n, so every item
is used exactly once per epoch in any layout, and any position in the order is computed directly. libtidemill computes them a hundred
times as fast as Python; a script that runs alone may be without it.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, List, Sequence, Tuple

from tidemill import library
from tidemill.errors import TidemillError

_MASK32 = 0xFFFFFFFF
_ORDER_STREAM = 0x0D3E7000
_ROUNDS = 6


def philox(counter: Sequence[int], key: Tuple[int, int]) -> Tuple[int, int, int, int]:
    """Philox4x32-10: 128 random bits for (counter, key)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = 0xD2511F53 * c0
        p1 = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0 = (k0 + 0x9E3779B9) & _MASK32
        k1 = (k1 + 0xBB67AE85) & _MASK32
    return c0, c1, c2, c3


def _scramble(seed: int, epoch: int, half: int, x: int) -> int:
    mask = (1 << half) - 1
    left, right = x >> half, x & mask
    key = (seed & _MASK32, (seed >> 32) & _MASK32)
    for number in range(_ROUNDS):
        counter = (right & _MASK32, epoch & _MASK32, ((epoch >> 32) & _MASK32) ^ (number << 24), _ORDER_STREAM)
        left, right = right, left ^ (philox(counter, key)[0] & mask)
    return left << half | right


def sample_item(seed: int, count: int, index: int) -> int:
    """The item of the data set at position `index` of the job; count > 0."""
    half = 1
    while half < 32 and (1 << (2 * half)) < count:
        half += 1
    x = index % count
    while True:
        x = _scramble(seed, index // count, half, x)
        if x < count:
            return x


@functools.lru_cache(maxsize=None)
def _library() -> Any:
    try:
        return library.load()
    except TidemillError:
        return None


def micro_batch_items(seed: int, count: int, batch: int, micro_batch: int, step: int, number: int) -> List[int]:
    """The items of micro-batch `number` (from 0) of step `step` (from 1)."""
    first = (step - 1) * batch + number * micro_batch
    lib = _library()
    if lib is None:
        return [sample_item(seed, count, first + j) for j in range(micro_batch)]
    items = (ctypes.c_uint64 * micro_batch)()
    lib.tidemill_sample_items(seed, count, first, micro_batch, items)
    return list(items)


def key_of(seed: int, step: int, number: int, purpose: int) -> int:
    """A 63-bit seed for (seed, step, micro-batch), different for each purpose."""
    counter = (step & _MASK32, (step >> 32) & _MASK32, number & _MASK32, 0x70790000 + purpose)
    bits = philox(counter, (seed & _MASK32, (seed >> 32) & _MASK32))
    return (bits[0] | bits[1] << 32) & 0x7FFFFFFFFFFFFFFF


def keys_of(seed: int, step: int, first: int, count: int, purpose: int) -> List[int]:
    """key_of of the numbers from `first` on."""
    lib = _library()
    if lib is None:
        return [key_of(seed, step, first + j, purpose) for j in range(count)]
    keys = (ctypes.c_uint64 * count)()
    lib.tidemill_sample_keys(seed, step, first, count, purpose, keys)
    return list(keys)

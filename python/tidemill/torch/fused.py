"""A micro-batch's gradients to integers and into the sums, and sums to means, each in one pass over the GPU's memory: kernels by Triton,
which PyTorch's GPU builds bring along. Where there is none (CPU, no Triton) FixedSums does the same with PyTorch's own operations, to
the same bits.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, List, Optional, Sequence

import torch

BLOCK = 1024  # elements of one program; each tensor begins at a multiple of it, so that a program has one scale

_kernels: Any = None


def _make_kernels() -> Any:
    """Compiled at their first calls. None where Triton is missing or does not know this GPU."""
    global triton, tl, rint
    try:
        import triton
        import triton.language as tl
        from triton.language.extra.libdevice import rint
    except ImportError:
        return None

    @triton.jit
    def add_rounded(floats, sums, largest, owners, units, FIRST: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
        program = tl.program_id(0)
        at = program.to(tl.int64) * SIZE + tl.arange(0, SIZE)
        owner = tl.load(owners + program)
        gradient = tl.load(floats + at)
        size = tl.where(gradient == gradient, tl.abs(gradient), float("inf"))  # a maximum would drop NaN
        tl.atomic_max(largest + owner, tl.max(size, axis=0))
        rounded = rint(gradient * tl.load(units + owner)).to(tl.int32)
        if FIRST:
            tl.store(sums + at, rounded)
        else:
            tl.store(sums + at, tl.load(sums + at) + rounded)
        tl.store(floats + at, tl.zeros_like(gradient))  # the next micro-batch starts from zero

    @triton.jit
    def means(sums, floats, owners, units, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
        program = tl.program_id(0)
        at = program.to(tl.int64) * SIZE + tl.arange(0, SIZE)
        tl.store(floats + at, tl.load(sums + at).to(tl.float32) * tl.load(units + tl.load(owners + program)))

    return add_rounded, means


def padded(count: int) -> int:
    """So many elements a tensor of `count` takes in the flat buffers."""
    return -(-count // BLOCK) * BLOCK


class Adder:
    """Adds flat float gradients to flat integer sums."""

    def __init__(self, counts: Sequence[int], device: torch.device) -> None:
        owners: List[int] = []
        for index, count in enumerate(counts):
            owners += [index] * (padded(count) // BLOCK)
        self._owners = torch.tensor(owners, dtype=torch.int32, device=device)
        self._units = torch.zeros(2, len(counts), device=device)

    def set_units(self, units: Sequence[float], back: Sequence[float]) -> None:
        """What each tensor's gradient is multiplied by (powers of two), and what its sums are."""
        self._units.copy_(torch.tensor([units, back], dtype=torch.float32), non_blocking=True)

    def add(self, floats: torch.Tensor, sums: torch.Tensor, largest: torch.Tensor, first: bool) -> None:
        """sums += round(floats * unit), largest = max(largest, |floats|) for each tensor; floats become 0. first: as if the sums were 0."""
        with torch.cuda.device(floats.device):
            _kernels[0][(self._owners.numel(),)](floats, sums, largest, self._owners, self._units[0], FIRST=first, SIZE=BLOCK)

    def give_means(self, sums: torch.Tensor, floats: torch.Tensor) -> None:
        """floats = sums * back, for each tensor."""
        with torch.cuda.device(floats.device):
            _kernels[1][(self._owners.numel(),)](sums, floats, self._owners, self._units[1], SIZE=BLOCK)


def _works(device: torch.device) -> bool:
    """Compiling can fail (no C compiler, an unknown GPU): a small trial against PyTorch's operations tells."""
    count = BLOCK + 7
    try:
        values = torch.linspace(-3.0, 5.0, count, device=device)
        floats, sums = (torch.zeros(padded(count), dtype=kind, device=device) for kind in (torch.float32, torch.int32))
        largest = torch.zeros(1, device=device)
        trial = Adder([count], device)
        back = 2.0 ** -20 / 3
        trial.set_units([2.0 ** 20], [back])
        for first in (True, False):
            floats[:count] = values
            trial.add(floats, sums, largest, first)
        wanted = 2 * (values * 2.0 ** 20).round().to(torch.int32)
        if not bool((sums[:count] == wanted).all()) or float(largest) != 5.0 or bool(floats.any()):
            return False
        trial.give_means(sums, floats)
        means = wanted.to(torch.float32)
        torch._foreach_mul_([means], [back])
        return bool((floats[:count] == means).all())
    except Exception as error:  # noqa: BLE001: whatever a compiler says
        warnings.warn(f"tidemill: sums in one pass are not possible on {device} ({type(error).__name__}): using PyTorch's "
                      "operations, which give the same bits more slowly", stacklevel=2)
        return False


@functools.lru_cache(maxsize=None)
def _usable(device: torch.device) -> bool:
    global _kernels
    if device.type != "cuda" or torch.version.hip:
        return False
    if _kernels is None:
        _kernels = _make_kernels()
    return _kernels is not None and _works(device)


def adder(counts: Sequence[int], device: torch.device) -> Optional[Adder]:
    """None: use PyTorch's operations."""
    return Adder(counts, device) if counts and _usable(device) else None

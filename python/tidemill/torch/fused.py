"""A micro-batch's gradients to integers and into the sums, in one pass over the GPU's memory: a kernel by Triton, which PyTorch's
GPU builds bring along. Where there is none (CPU, no Triton) FixedSums does the same with PyTorch's own operations, to the same bits.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, List, Optional, Sequence

import torch

BLOCK = 1024  # elements of one program; each tensor begins at a multiple of it, so that a program has one scale

_kernel: Any = None


def _make_kernel() -> Any:
    """Compiled at its first call. None where Triton is missing or does not know this GPU."""
    global triton, tl, rint
    try:
        import triton
        import triton.language as tl
        from triton.language.extra.libdevice import rint
    except ImportError:
        return None

    @triton.jit
    def add_rounded(floats, sums, largest, owners, units, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
        program = tl.program_id(0)
        at = program.to(tl.int64) * SIZE + tl.arange(0, SIZE)
        owner = tl.load(owners + program)
        gradient = tl.load(floats + at)
        size = tl.where(gradient == gradient, tl.abs(gradient), float("inf"))  # a maximum would drop NaN
        tl.atomic_max(largest + owner, tl.max(size, axis=0))
        rounded = rint(gradient * tl.load(units + owner)).to(tl.int32)
        tl.store(sums + at, tl.load(sums + at) + rounded)
        tl.store(floats + at, tl.zeros_like(gradient))  # the next micro-batch starts from zero

    return add_rounded


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
        self._units = torch.zeros(len(counts), device=device)

    def set_units(self, units: Sequence[float]) -> None:
        """What each tensor's gradient is multiplied by: powers of two."""
        self._units.copy_(torch.tensor(units, dtype=torch.float32), non_blocking=True)

    def add(self, floats: torch.Tensor, sums: torch.Tensor, largest: torch.Tensor) -> None:
        """sums += round(floats * unit), largest = max(largest, |floats|) for each tensor; floats become 0."""
        with torch.cuda.device(floats.device):
            _kernel[(self._owners.numel(),)](floats, sums, largest, self._owners, self._units, SIZE=BLOCK)


def _works(device: torch.device) -> bool:
    """Compiling can fail (no C compiler, an unknown GPU): a small trial against PyTorch's operations tells."""
    count = BLOCK + 7
    try:
        values = torch.linspace(-3.0, 5.0, count, device=device)
        floats, sums = (torch.zeros(padded(count), dtype=kind, device=device) for kind in (torch.float32, torch.int32))
        largest = torch.zeros(1, device=device)
        floats[:count] = values
        trial = Adder([count], device)
        trial.set_units([2.0 ** 20])
        trial.add(floats, sums, largest)
        wanted = (values * 2.0 ** 20).round().to(torch.int32)
        return bool((sums[:count] == wanted).all()) and float(largest) == 5.0 and not bool(floats.any())
    except Exception as error:  # noqa: BLE001: whatever a compiler says
        warnings.warn(f"tidemill: sums in one pass are not possible on {device} ({type(error).__name__}): using PyTorch's "
                      "operations, which give the same bits more slowly", stacklevel=2)
        return False


@functools.lru_cache(maxsize=None)
def _usable(device: torch.device) -> bool:
    global _kernel
    if device.type != "cuda" or torch.version.hip:
        return False
    if _kernel is None:
        _kernel = _make_kernel()
    return _kernel is not None and _works(device)


def adder(counts: Sequence[int], device: torch.device) -> Optional[Adder]:
    """None: use PyTorch's operations."""
    return Adder(counts, device) if counts and _usable(device) else None

"""What must be the same on every worker, compared with every step.

Workers get the same sums of gradients, so they stay alike as long as they do the same with them, and begin from the same. What
could differ all the same (settings that a hook has changed on one worker alone, a data set whose order depends on the process) is a
number here. The numbers travel with the losses of the step: each with its square and how many workers have said one, which tells
whether all have said the same. A worker that does not know (it has joined since) says nothing.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

_MARKS = 1048573  # marks are below this, so that sums of their squares are exact
_CELLS = 3  # how many workers have said it, their sum, the sum of their squares
NEAR = 1e-4  # relatively: numbers that may differ by rounding
NEAR_SAMPLES = 1e-3  # and means of an item, which libraries decode not quite alike
_BYTES = 1 << 16  # of a tensor, that are looked at
_ELEMENTS = 4096  # of a list
_PIXELS = 1024  # bytes that are taken for an image


def mark_of(*parts: bytes) -> int:
    """A number for these bytes; never 0."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return 1 + value % (_MARKS - 1)


def mark_of_plain(value: Any) -> int:
    """Of what can be written as JSON."""
    return mark_of(json.dumps(value, separators=(",", ":"), sort_keys=True).encode())


class Agreement:
    """The numbers of one worker, and their place in the exchange."""

    def __init__(self, names: List[str]) -> None:
        """names: the same on every worker."""
        self.names = names
        self._said: Dict[str, float] = {}
        self._near: Dict[str, float] = {}
        self.forget()

    @property
    def cells(self) -> int:
        """How many numbers are exchanged."""
        return _CELLS * len(self.names)

    def forget(self) -> None:
        """Nothing is said yet."""
        self._said, self._near = {}, {}

    def say(self, name: str, value: Optional[float], near: float = 0.0) -> None:
        """What it is here; None: this worker does not know. near: how far it may be off, relatively; 0: it is a mark."""
        if value is None or not math.isfinite(value):
            self._said.pop(name, None)
            return
        self._said[name] = float(value) if near else float(int(value) % _MARKS)
        if near:
            self._near[name] = near

    def put(self, cells: torch.Tensor) -> None:
        """Into this worker's share of the exchange."""
        rows = [[1.0, self._said[name], self._said[name] ** 2] if name in self._said else [0.0] * _CELLS for name in self.names]
        cells.copy_(torch.tensor(rows, dtype=cells.dtype).reshape(-1))

    def heard(self, cells: torch.Tensor) -> Dict[str, float]:
        """What all have said, by name."""
        return {name: total / count for name, (count, total, _) in zip(self.names, cells.view(-1, _CELLS).tolist()) if count}

    def odd(self, cells: torch.Tensor) -> Iterator[str]:
        """Of what all have said: the names of those that are not the same."""
        for name, (count, total, squares) in zip(self.names, cells.view(-1, _CELLS).tolist()):
            if count < 2:
                continue
            mean = total / count
            if name in self._near:  # the variance, and how large it may be
                if squares / count - mean * mean > self._near[name] ** 2 * squares / count:
                    yield name
            elif squares != count * mean * mean:  # exact, since marks are small
                yield name


# ---- items of a data set, as numbers ----


class Print:
    """An item as two numbers: one of what is exact in it, one of its floats and images, which may differ a little from machine to machine."""

    def __init__(self, item: Any, exact: bool) -> None:
        """exact: floats belong to the first, too."""
        self._exact, self._mark, self._size, self._weight = exact, 0, 0.0, 0
        self._room = _ELEMENTS
        self._add(item)

    @property
    def numbers(self) -> Tuple[int, float]:
        """Both."""
        return 1 + self._mark % (_MARKS - 1), self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Print) and self.numbers == other.numbers

    def _bytes(self, data: bytes) -> None:
        self._mark = zlib.crc32(data, self._mark)

    def _float(self, size: float) -> None:
        self._weight += 1
        if math.isfinite(size):
            self._size += size / self._weight  # so that an exchange of two is seen

    def _tensor(self, tensor: torch.Tensor) -> None:
        flat = tensor.detach()
        flat = (flat.coalesce().values() if flat.layout == torch.sparse_coo else flat).reshape(-1)
        self._bytes(repr(tuple(tensor.shape)).encode())
        most = max(1, _BYTES // max(1, flat.element_size()))
        some = flat[:: max(1, -(-flat.numel() // most))].cpu().contiguous()
        inexact = some.is_floating_point() or some.is_complex() or (some.dtype == torch.uint8 and flat.numel() >= _PIXELS)
        if inexact and not self._exact:
            self._float(float(some.abs().double().mean()) if some.numel() else 0.0)
        elif some.numel():
            self._bytes(some.view(torch.uint8).numpy().tobytes())

    def _add(self, item: Any) -> None:
        self._room -= 1
        if self._room < 0 or item is None:
            return
        if isinstance(item, torch.Tensor):
            if item.layout in (torch.strided, torch.sparse_coo) and item.device.type != "meta" and not item.is_quantized:
                self._tensor(item)
        elif isinstance(item, float) and not self._exact:
            self._float(abs(item))
        elif isinstance(item, (bool, int, float, complex)):
            self._bytes(repr(item).encode())
        elif isinstance(item, str):
            if not item.startswith(("/", "file:")):  # the place of a file is each machine's own
                self._bytes(item.encode(errors="replace"))
        elif isinstance(item, (bytes, bytearray)):
            self._bytes(bytes(item[:_BYTES]))
        elif isinstance(item, Mapping):
            for key in list(item):
                self._add(key)
                self._add(item[key])
        elif isinstance(item, (list, tuple)):
            for one in item:
                self._add(one)
        elif hasattr(item, "__array_interface__") or hasattr(item, "__array__"):  # of NumPy, PIL and others
            self._array(item)

    def _array(self, item: Any) -> None:
        import numpy

        array = numpy.asarray(item)
        if array.dtype == object:
            self._add(array.reshape(-1)[:_ELEMENTS].tolist())
        elif array.dtype.kind in "biufc":
            self._tensor(torch.from_numpy(numpy.ascontiguousarray(array).copy()))
        else:
            self._bytes(array.tobytes()[:_BYTES])


def print_of(item: Any, exact: bool) -> Optional[Print]:
    """None: of its kind nothing is known."""
    try:
        return Print(item, exact)
    except Exception:  # noqa: BLE001  # an item of an unusual kind is no reason to end a job
        return None


__all__ = ["NEAR", "NEAR_SAMPLES", "Agreement", "Print", "mark_of", "mark_of_plain", "print_of"]

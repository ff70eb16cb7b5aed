"""Values as bytes: what is no tensor as text, and a tensor's place in memory."""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import torch

from tidemill.errors import UsageError


# ---- notes: what is not a tensor, as text that is the same wherever it is written ----


def to_plain(value: Any, where: str) -> Any:
    """Converts to JSON types, with tags where Python has more."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return {"#tensor": [str(value.dtype)[6:], value.item()]}
    if isinstance(value, list):
        return [to_plain(v, where) for v in value]
    if isinstance(value, tuple):
        return {"#tuple": [to_plain(v, where) for v in value]}
    if isinstance(value, dict):
        kind = "#counter" if isinstance(value, Counter) else "#dict"
        items = [[to_plain(k, where), to_plain(v, where)] for k, v in value.items()]
        return {kind: sorted(items, key=lambda item: json.dumps(item[0]))}
    raise UsageError(f"{where} keeps a {type(value).__name__}, which cannot be part of the job's state: use numbers, "
                     "texts, lists and maps of them")


def from_plain(value: Any) -> Any:
    """What `to_plain` was given."""
    if isinstance(value, list):
        return [from_plain(v) for v in value]
    if isinstance(value, dict):
        kind, content = next(iter(value.items()))
        if kind == "#tuple":
            return tuple(from_plain(v) for v in content)
        if kind == "#tensor":
            return torch.tensor(content[1], dtype=getattr(torch, content[0]))
        table = {from_plain(k): from_plain(v) for k, v in content}
        return Counter(table) if kind == "#counter" else table
    return value


@dataclass
class Slot:
    """A tensor's place in a layer."""

    name: str
    dtype: torch.dtype
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Of the tensor, gaps of its strides included."""
        extent = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride)) if all(self.shape) else 0
        return extent * torch.empty(0, dtype=self.dtype).element_size()

    def read(self, tensor: Optional[torch.Tensor], address: int) -> None:
        """Writes the tensor's bytes to memory, where there is one."""
        if tensor is None:
            return
        if tensor.device.type != "cpu" or tensor.stride() != self.stride:
            host = torch.empty_strided(self.shape, self.stride, dtype=self.dtype)
            tensor = host.copy_(tensor.detach())
        ctypes.memmove(address + self.offset, tensor.data_ptr(), self.bytes)

    def write(self, tensor: torch.Tensor, address: int) -> None:
        """Reads the tensor's values from memory."""
        host = torch.empty_strided(self.shape, self.stride, dtype=self.dtype)
        ctypes.memmove(host.data_ptr(), address + self.offset, self.bytes)
        with torch.no_grad():
            tensor.copy_(host)


def slot_for(name: str, tensor: torch.Tensor) -> Slot:
    """The place that such a tensor needs."""
    like = torch.empty_like(tensor, device="meta", memory_format=torch.preserve_format)
    return Slot(name, tensor.dtype, tuple(tensor.shape), tuple(like.stride()))


__all__ = ["Slot", "from_plain", "slot_for", "to_plain"]

"""A layer's tensors to plain memory and back, through a bounded buffer.

On a GPU the buffer is pinned and the copies run on a stream of their own, which waits for the last mark (a step that was applied, gradients
that were summed) and for nothing else: what the training has queued since then goes on meanwhile. The buffer has two halves, so that one
is filled while the other is emptied. On the CPU tensors are copied as they are; tests use the buffer there too, to the same bits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import torch

from tidemill.torch.plain import Slot

_BYTES = 256 << 20
_ALIGN = 64

Pair = Tuple[Slot, torch.Tensor]
_Piece = Tuple[torch.Tensor, int]  # bytes of a tensor, and where they are in memory


def buffer_bytes() -> int:
    """TIDEMILL_PINNED_MIB, or 256 MiB."""
    text = os.environ.get("TIDEMILL_PINNED_MIB", "")
    return max(1, int(text)) << 20 if text.isdigit() else _BYTES


def _bytes_of(slot: Slot, tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor, in the order of the slot."""
    tensor = tensor.detach()
    if tensor.stride() != slot.stride:
        tensor = torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype, device=tensor.device).copy_(tensor)
    size = torch.empty(0, dtype=slot.dtype).element_size()
    return torch.as_strided(tensor, (slot.bytes // size,), (1,)).view(torch.uint8)


class Staging:
    """For the tensors of one device."""

    def __init__(self, device: torch.device, size: Optional[int] = None, always: bool = False) -> None:
        """size: of the buffer, in bytes. always: use it on the CPU, too."""
        self._device, self._half = device, max(_ALIGN, (size or buffer_bytes()) // 2 // _ALIGN * _ALIGN)
        self._gpu = device.type == "cuda"
        self._used = self._gpu or always
        self._lock = threading.Lock()
        self._halves: List[torch.Tensor] = []
        self._stream: Any = None
        self._marked: Any = None

    def mark(self) -> None:
        """What is computed by now may be read."""
        if self._gpu:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self._device))
            self._marked = event

    # -- out --

    def read(self, pairs: Sequence[Pair], address: int) -> None:
        """Writes tensors to memory, each at its slot's offset."""
        for slot, tensor in pairs if not self._used else [p for p in pairs if self._is_apart(p[1])]:
            slot.read(tensor, address)
        pairs = [p for p in pairs if self._used and not self._is_apart(p[1])]
        if not pairs:
            return
        with self._lock, self._on_stream():
            self._begin()
            waiting: Any = None
            for number, batch in enumerate(self._batches([(_bytes_of(s, t), address + s.offset) for s, t in pairs if s.bytes])):
                half, at = self._halves[number % 2], 0
                for piece, _ in batch:
                    half[at: at + piece.numel()].copy_(piece, non_blocking=True)
                    at += _round_up(piece.numel())
                event = self._event()
                self._empty(waiting)
                waiting = (half, batch, event)
            self._empty(waiting)

    @staticmethod
    def _empty(waiting: Any) -> None:
        if waiting is None:
            return
        half, batch, event = waiting
        if event is not None:
            event.synchronize()
        at = half.data_ptr()
        for piece, address in batch:
            ctypes.memmove(address, at, piece.numel())
            at += _round_up(piece.numel())

    # -- in --

    def write(self, pairs: Sequence[Pair], address: int) -> None:
        """Reads tensors from memory. They are there when it returns."""
        for slot, tensor in pairs if not self._used else [p for p in pairs if self._is_apart(p[1])]:
            slot.write(tensor, address)
        pairs = [p for p in pairs if self._used and not self._is_apart(p[1])]
        if not pairs:
            return
        if self._gpu:
            torch.cuda.synchronize(self._device)  # what was given up may still read them
        apart = [(s, t, torch.empty_strided(s.shape, s.stride, dtype=s.dtype, device=t.device)) for s, t in pairs
                 if t.stride() != s.stride]
        odd = {id(t): other for _, t, other in apart}
        with self._lock, self._on_stream(), torch.no_grad():
            self._begin()
            events: List[Any] = [None, None]
            pieces = [(_bytes_of(s, odd.get(id(t), t)), address + s.offset) for s, t in pairs if s.bytes]
            for number, batch in enumerate(self._batches(pieces)):
                half, at = self._halves[number % 2], 0
                if events[number % 2] is not None:
                    events[number % 2].synchronize()
                for piece, where in batch:
                    ctypes.memmove(half.data_ptr() + at, where, piece.numel())
                    piece.copy_(half[at: at + piece.numel()], non_blocking=True)
                    at += _round_up(piece.numel())
                events[number % 2] = self._event()
            for _, tensor, other in apart:
                tensor.copy_(other)
            if self._stream is not None:
                self._stream.synchronize()

    # -- inside --

    def _is_apart(self, tensor: torch.Tensor) -> bool:
        """On the CPU though the model is on a GPU: scales, an optimizer's counts."""
        return self._gpu and tensor.device.type == "cpu"

    def _batches(self, pieces: Sequence[_Piece]) -> Iterator[List[_Piece]]:
        """What fits into a half at a time; large ones are cut."""
        batch: List[_Piece] = []
        room = self._half
        for piece, address in pieces:
            at = 0
            while at < piece.numel():
                if room == 0:
                    yield batch
                    batch, room = [], self._half
                count = min(piece.numel() - at, room)
                batch.append((piece[at: at + count], address + at))
                at += count
                room -= min(room, _round_up(count))
        if batch:
            yield batch

    def _begin(self) -> None:
        if not self._halves:
            self._halves = [self._memory(), self._memory()]
        if self._stream is not None:
            if self._marked is not None:
                self._stream.wait_event(self._marked)
            else:
                self._stream.wait_stream(torch.cuda.default_stream(self._device))

    def _memory(self) -> torch.Tensor:
        try:
            return torch.empty(self._half, dtype=torch.uint8, device="cpu", pin_memory=self._gpu)
        except RuntimeError as error:
            warnings.warn(f"tidemill: no pinned memory for snapshots ({error}): they are slower; TIDEMILL_PINNED_MIB says how much is "
                          "used", stacklevel=2)
            return torch.empty(self._half, dtype=torch.uint8, device="cpu")

    def _event(self) -> Any:
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def _on_stream(self) -> Any:
        if not self._gpu:
            return contextlib.nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        return torch.cuda.stream(self._stream)


def _round_up(n: int) -> int:
    return (n + _ALIGN - 1) // _ALIGN * _ALIGN


__all__ = ["Staging", "buffer_bytes"]

"""Numbers on their way from a GPU to the host. Waiting for them where they are computed would leave the GPU without work until the
next kernels are launched; here they are waited for where they are read, and nothing that was launched after them is.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import torch


class Arrival:
    """The values of a tensor as they are when the GPU comes to this point."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._there = tensor
        self._event: Any = None
        if tensor.is_cuda:
            self._there = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
            self._there.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(tensor.device))

    def read(self) -> torch.Tensor:
        """On the CPU."""
        if self._event is not None:
            self._event.synchronize()
        return self._there


class Arrivals:
    """Single numbers, each for a place of a table."""

    def __init__(self) -> None:
        self._open: List[Tuple[torch.Tensor, int, Arrival]] = []

    def put(self, row: torch.Tensor, place: int, number: torch.Tensor) -> None:
        """row[place] has the number after `settle`."""
        number = number.detach().to(torch.float64)
        if number.is_cuda:
            self._open.append((row, place, Arrival(number)))
        else:
            row[place] = number

    def settle(self) -> None:
        """All of them are there."""
        for row, place, arrival in self._open:
            row[place] = arrival.read()
        self._open.clear()

    def forget(self) -> None:
        """What was put since is not wanted any more."""
        self._open.clear()

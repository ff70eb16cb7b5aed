"""Buffers that training changes: running statistics of BatchNorm, merged in the order of micro-batches.

In training mode BatchNorm does not read its running statistics, it only updates them. So each micro-batch updates a
scratch that starts from zero; the scratches of all micro-batches are exchanged and merged, in the order of the
micro-batches, into what one worker alone would have computed. Any other buffer must not change.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tidemill.errors import UsageError
from tidemill.torch.group import Group


def norms_of(model: nn.Module) -> List[Tuple[str, _BatchNorm]]:
    """Those with running statistics; kinds that cannot be merged are refused."""
    found: List[Tuple[str, _BatchNorm]] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise UsageError(f"{name} is a SyncBatchNorm: micro-batches are computed apart here, so there is nothing "
                             "to synchronise; use BatchNorm (its statistics are merged), GroupNorm or LayerNorm")
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            if module.momentum is None:
                raise UsageError(f"{name} is a BatchNorm with momentum=None (a cumulative average), which cannot be "
                                 "merged over workers: give it a momentum, such as 0.1")
            found.append((name, module))
    return found


class RunningStatistics:
    """Watches the buffers of a model for the life of a job."""

    def __init__(self, model: nn.Module, micro_batches: int, by_forward: bool = False) -> None:
        """by_forward: a micro-batch counts from its forward pass alone (pipelines); what runs again in a backward pass
        (activations that were not kept) leaves no trace."""
        self._by_forward = by_forward
        self.model, self._micro_batches = model, micro_batches
        self._norms = norms_of(model)
        self._width = sum(2 * module.num_features + 1 for _, module in self._norms)
        self.table = torch.zeros(micro_batches, self._width)
        self._scratch: Dict[nn.Module, Tuple[torch.Tensor, torch.Tensor]] = {}
        self._real: Dict[nn.Module, Tuple[Any, ...]] = {}
        self._passes: Dict[nn.Module, int] = {}
        self._versions: Dict[str, Tuple[int, int]] = {}
        for _, module in self._norms:
            module.register_forward_pre_hook(self._before)
            module.register_forward_hook(self._after, always_call=True)

    @torch.compiler.disable
    def _before(self, module: Any, _: Any) -> None:
        if not module.training or not (self._active or self._by_forward):
            return
        self._real[module] = tuple(module._buffers[k] for k in ("running_mean", "running_var", "num_batches_tracked"))
        if module not in self._scratch:
            self._scratch[module] = (torch.zeros_like(module.running_mean), torch.zeros_like(module.running_var))
        place = self._scratch[module]
        if self._active:
            self._passes[module] = self._passes.get(module, 0) + 1
        else:
            place = (torch.zeros_like(place[0]), torch.zeros_like(place[1]))
        module._buffers["running_mean"], module._buffers["running_var"] = place
        if module.num_batches_tracked is not None:
            module._buffers["num_batches_tracked"] = module.num_batches_tracked.clone()

    @torch.compiler.disable
    def _after(self, module: Any, *_: Any) -> None:
        if module in self._real:
            mean, var, count = self._real.pop(module)
            module._buffers.update(running_mean=mean, running_var=var, num_batches_tracked=count)

    _active = False

    def renew(self) -> None:
        """A new group: what the old one still does must not change our buffers."""
        self.table = torch.zeros(self._micro_batches, self._width)

    def begin(self) -> None:
        """A step begins."""
        self.table.zero_()
        self._versions = {name: (id(b), b._version) for name, b in self.model.named_buffers()}

    def begin_micro_batch(self) -> None:
        """Scratches start from zero."""
        self._active = True
        self._passes.clear()
        if self._by_forward:
            self._scratch = {}  # the backward pass of another micro-batch may still want to see its own
        for mean, var in self._scratch.values():
            mean.zero_()
            var.zero_()

    def end_micro_batch(self, number: int) -> None:
        """Keeps the statistics of this micro-batch."""
        self._active = False
        self._check()
        at = 0
        for _, module in self._norms:
            n = module.num_features
            if self._passes.get(module):
                mean, var = self._scratch[module]
                self.table[number, at: at + n] = mean
                self.table[number, at + n: at + 2 * n] = var
                self.table[number, at + 2 * n] = self._passes[module]
            at += 2 * n + 1

    def _check(self) -> None:
        for name, buffer in self.model.named_buffers():
            if self._versions.get(name) != (id(buffer), buffer._version):
                raise UsageError(
                    f"the buffer {name} changes while the model trains, and Tidemill cannot merge it over workers: only "
                    "running statistics of BatchNorm are merged. Make it a parameter, compute it from the step, or "
                    "register it with persistent=False and leave it alone in training")

    def exchange(self, group: Group) -> None:
        """Sends the statistics of all micro-batches to every worker: each row comes from one worker, the others add zero."""
        if self._width:
            group.wait(group.all_reduce(self.table))

    def commit(self) -> None:
        """The running statistics become those after all micro-batches, in order."""
        for module, at in self.places():
            rows = self.table[:, at: at + 2 * module.num_features + 1]
            merge(rows, module, module.running_mean, module.running_var, module.num_batches_tracked)

    def places(self) -> Iterator[Tuple[_BatchNorm, int]]:
        """Each BatchNorm, and where its columns begin."""
        at = 0
        for _, module in self._norms:
            yield module, at
            at += 2 * module.num_features + 1


def merge(rows: torch.Tensor, module: _BatchNorm, mean: Any, var: Any, count: Any) -> None:
    """The statistics of all micro-batches into these tensors, in order."""
    n = module.num_features
    keep = 1.0 - float(module.momentum)  # type: ignore[arg-type]
    for row in rows:
        passes = int(row[2 * n])
        if passes:
            mean.mul_(keep**passes).add_(row[:n].to(mean))
            var.mul_(keep**passes).add_(row[n: 2 * n].to(var))
            if count is not None:
                count.add_(passes)

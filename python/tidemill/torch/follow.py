"""Layers that move while they are trained (include/tidemill.h: gradient_bytes, read_gradient, advance_layer).

A worker that is to join takes a version of each layer, and then applies the gradients of the steps that the others do meanwhile. The
bytes of a layer's gradient are notes (what the loop has set, the clip norm, the largest elements), the statistics of BatchNorm of
every micro-batch, and the reduced gradient of every parameter. `advance` makes of a layer's bytes those of the next step, as the job
does when a step is applied, with tensors and an optimizer of its own: the script may do what it likes with its model meanwhile.

Nothing depends on it: layers are compared by hash before they are used, and what differs is fetched as ever. Where a step changes more
than this knows of (attached state, a loss scale, functions given to on_commit), layers move during the change instead.
"""

from __future__ import annotations

import copy
import ctypes
import json
import math
from collections import OrderedDict, defaultdict
from types import SimpleNamespace
from typing import Any, Dict, List

import torch
from torch import nn

from tidemill.torch import fixed_point, guards
from tidemill.torch.buffers import merge
from tidemill.torch.plain import from_plain
from tidemill.torch.state import Layer, ModelState, Param

_HEAD = 8


def _round_up(n: int) -> int:
    return (n + 63) // 64 * 64


def _wrapped() -> None:
    """The scratch optimizer's step, as schedulers look at it."""


_wrapped._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


class _Scratch:
    """A buffer of a shadow."""

    def __init__(self, real: Any) -> None:
        self.name, self.slot, self.owner = real.name, real.slot, real.owner
        like = real.tensor()
        self._tensor = torch.empty_strided(real.slot.shape, real.slot.stride, dtype=real.slot.dtype, device=like.device)

    def tensor(self) -> torch.Tensor:
        """As Buffer.tensor."""
        return self._tensor


class _Shadow(ModelState):
    """One layer of a model with tensors, an optimizer and a schedule of its own."""

    def __init__(self, real: ModelState, layer: Layer) -> None:
        self.params_here: List[Param] = []
        memo: Dict[int, Any] = {}
        for group in real.optimizer.param_groups:
            memo.update({id(p): nn.Parameter(torch.empty(0)) for p in group["params"]})
        for p in layer.params:
            place = torch.empty_strided(p.slot.shape, p.slot.stride, dtype=p.slot.dtype, device=p.tensor.device)
            memo[id(p.tensor)] = nn.Parameter(place, p.tensor.requires_grad)
            self.params_here.append(Param(p.name, memo[id(p.tensor)], p.slot, p.state, p.devices, p.numbers))
        here = {id(p.tensor) for p in layer.params}
        self.optimizer = self._optimizer_of(real.optimizer, memo, here)
        self.scheduler, self._kind = None, None
        if real.scheduler is not None:
            self._kind = type(real.scheduler).__mro__[1]  # under the class whose steps do nothing
            self.scheduler = copy.deepcopy(real.scheduler, {**memo, id(real.optimizer): self.optimizer})
        self.extras = SimpleNamespace(plain={})  # type: ignore[assignment]
        self.layer = self._layer_of(layer)

    @staticmethod
    def _optimizer_of(optimizer: Any, memo: Dict[int, Any], here: Any) -> Any:
        trial = object.__new__(type(optimizer))
        for key, value in optimizer.__dict__.items():
            if key.startswith("_optimizer_"):
                trial.__dict__[key] = OrderedDict()  # hooks
            elif key not in ("step", "zero_grad", "state", "param_groups"):
                trial.__dict__[key] = copy.deepcopy(value, memo)
        trial.__dict__.update(state=defaultdict(dict), step=_wrapped, _opt_called=True)
        trial.__dict__["param_groups"] = [
            {**{k: copy.deepcopy(v) for k, v in group.items() if k != "params"},
             "params": [memo[id(p)] for p in group["params"] if id(p) in here]} for group in optimizer.param_groups]
        guards.own(trial)
        return trial

    def _layer_of(self, real: Layer) -> Layer:
        layer = object.__new__(Layer)
        layer.__dict__.update(real.__dict__)
        layer.owner, layer.params = self, self.params_here
        layer.buffers = [_Scratch(b) for b in real.buffers]  # type: ignore[misc]
        layer.trained = [p for p in layer.params if p.tensor.requires_grad]
        layer.scales = None if real.scales is None else real.scales.clone()
        return layer

    def step_optimizer(self) -> None:
        """By its class: what an instance has for a step is a schedule's, or the loop's."""
        type(self.optimizer).step(self.optimizer)  # type: ignore[call-arg]

    def step_schedule(self) -> None:
        """As the job does."""
        if self._kind is not None:
            self._kind.step(self.scheduler)


class Follow:
    """The three functions, for the model in the user's own loop."""

    def __init__(self, job: Any, state: ModelState, statistics: Any) -> None:
        self._job, self._state, self._statistics = job, state, statistics
        self.advanced = 0  # layers, for tests
        room = len(json.dumps(state.shared_notes()))
        self._notes = [_round_up(2 * room + 64 * len(layer.trained) + 1024) for layer in state.layers]

    @staticmethod
    def possible(job: Any, state: ModelState) -> bool:
        """Does a step change nothing that is not known here?"""
        return job._scale is None and state.extras.only_own() and not state.extras.tensors

    def _norms(self, layer: Layer) -> List[Any]:
        """(module, where it is in the table) of each BatchNorm of the layer."""
        here = {id(b.owner[0]) for b in layer.buffers}
        return [(module, at) for module, at in self._statistics.places() if id(module) in here]

    def _table_bytes(self, layer: Layer) -> int:
        return sum(4 * (2 * module.num_features + 1) for module, _ in self._norms(layer)) * self._job.micro_batches

    def gradient_bytes(self, layer: int) -> int:
        """Of a layer."""
        one = self._state.layers[layer]
        return self._notes[layer] + _round_up(self._table_bytes(one)) + sum(_round_up(p.slot.bytes) for p in one.trained)

    # -- the worker that trains --

    def read_gradient(self, layer: int, address: int, size: int) -> None:
        """The step is held and not applied yet."""
        job, one, sums = self._job, self._state.layers[layer], self._job._sums
        if job._commit_callbacks or job._stop.at or job._settings.updates or sums is None or sums.overflow:
            raise RuntimeError("this step changes more than gradients do")
        notes = {"groups": self._state.shared_notes()["groups"], "clip": job._clip_now(), "epoch": job._schedule_due_next(),
                 "scales": [sums.scale_of(p) for p in one.trained]}
        text = json.dumps(notes).encode()
        if len(text) + _HEAD > self._notes[layer]:
            raise RuntimeError("the notes have grown")
        head = (len(text).to_bytes(_HEAD, "little") + text).ljust(self._notes[layer], b"\0")
        ctypes.memset(address, 0, size)
        ctypes.memmove(address, head, len(head))
        at = address + len(head)
        for module, place in self._norms(one):
            part = self._statistics._table[:, place: place + 2 * module.num_features + 1].contiguous()
            ctypes.memmove(at, part.data_ptr(), part.nbytes)
            at += part.nbytes
        at = address + len(head) + _round_up(self._table_bytes(one))
        for p in one.trained:
            view = sums.view_of(p).detach()
            host = torch.empty_strided(p.slot.shape, p.slot.stride, dtype=view.dtype).copy_(view)
            ctypes.memmove(at, host.data_ptr(), p.slot.bytes)
            at += _round_up(p.slot.bytes)

    # -- the worker that follows --

    def advance(self, layer: int, step: int, norm: float, state: int, gradient: int) -> None:
        """The bytes at `state` become those after the step."""
        real = self._state.layers[layer]
        shadow = _Shadow(self._state, real)
        length = int.from_bytes(ctypes.string_at(gradient, _HEAD), "little")
        notes = json.loads(ctypes.string_at(gradient + _HEAD, length))
        own = shadow.layer
        own.write(state)
        shared = own.read_notes()["shared"]
        shadow.extras.plain = shared["state"]
        if shadow.scheduler is not None and shared["schedule"] is not None:
            shadow.scheduler.load_state_dict(from_plain(shared["schedule"]))
        for group, told in zip(shadow.optimizer.param_groups, notes["groups"]):
            for key, value in from_plain(told).items():
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                else:
                    group[key] = value
        at = gradient + self._notes[layer] + _round_up(self._table_bytes(real))
        self._take_gradients(own, at, self._factor(notes["clip"], norm))
        shadow.step_optimizer()
        if notes["epoch"]:
            shadow.step_schedule()
        if own.scales is not None:
            for index, (largest, scale) in enumerate(notes["scales"]):
                own.scales[index] = fixed_point.following(largest, scale, self._job.micro_batches)
        self._merge(real, own, gradient + self._notes[layer])
        own.write_notes(step, shadow.shared_notes())
        own.read(state)
        self.advanced += 1

    @staticmethod
    def _factor(clip: Any, norm: float) -> float:
        return 1.0 if clip is None else min(1.0, clip / (math.sqrt(norm) + 1e-6))

    def _take_gradients(self, own: Layer, at: int, factor: float) -> None:
        grads = []
        for p in own.trained:
            host = torch.empty_strided(p.slot.shape, p.slot.stride, dtype=p.slot.dtype)
            ctypes.memmove(host.data_ptr(), at, p.slot.bytes)
            at += _round_up(p.slot.bytes)
            grad = host.to(p.tensor.device)
            if factor != 1.0:
                grad.mul_(factor)
            p.tensor.grad = grad
            grads.append(grad)
        value = self._job._clip_value
        if value is not None and grads:
            torch._foreach_clamp_min_(grads, -value)
            torch._foreach_clamp_max_(grads, value)

    def _merge(self, real: Layer, own: Layer, at: int) -> None:
        table = {(id(b.owner[0]), b.owner[1]): b.tensor() for b in own.buffers}
        for module, _ in self._norms(real):
            width = 2 * module.num_features + 1
            rows = torch.empty(self._job.micro_batches, width)
            ctypes.memmove(rows.data_ptr(), at, rows.nbytes)
            at += rows.nbytes
            merge(rows, module, *(table.get((id(module), key)) for key in ("running_mean", "running_var", "num_batches_tracked")))


__all__ = ["Follow"]

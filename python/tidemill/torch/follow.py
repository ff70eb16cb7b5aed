"""Layers that move while they are trained (include/tidemill.h: gradient_bytes, read_gradient, advance_layer).

A worker that is to join takes a version of each layer, and then applies the gradients of the steps that the others do meanwhile. The
bytes of a layer's gradient are notes (what the loop has set, the clip norm, the largest elements), the statistics of BatchNorm of
every micro-batch, and the reduced gradient of every parameter. `advance` makes of a layer's bytes those of the next step, as the job
does when a step is applied, with tensors and an optimizer of its own: the script may do what it likes with its model meanwhile.

Nothing depends on it: layers are compared by hash before they are used, and what differs is fetched as ever. So the layer that has the
script's own state (ModelState.keeper) moves during the change, and so do the others where a function given to on_commit has changed them.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import json
import math
from collections import OrderedDict, defaultdict
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import torch
from torch import nn

from tidemill.torch import fixed_point, guards
from tidemill.torch.buffers import merge
from tidemill.torch.plain import Slot, from_plain, to_plain
from tidemill.torch.staging import Staging
from tidemill.torch.state import Layer, ModelState, Param

_HEAD = 8
_SCALE, _SEEN = "loss scale", "seen"


def _round_up(n: int) -> int:
    return (n + 63) // 64 * 64


def _wrapped() -> None:
    """The scratch optimizer's step, as schedulers look at it."""


_wrapped._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def _gradient_slots(layer: Layer, at: int) -> List[Slot]:
    """The places of its parameters' gradients, from an offset on."""
    out = []
    for p in layer.trained:
        out.append(dataclasses.replace(p.slot, offset=at))
        at += _round_up(p.slot.bytes)
    return out


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

    def __init__(self, real: ModelState, layer: Layer, staging: Staging) -> None:
        self.staging = staging
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
            self._kind = type(real.scheduler)
            if self._kind.__name__ == self._kind.__mro__[1].__name__:  # its steps do nothing, in the script's loop
                self._kind = self._kind.__mro__[1]
            self.scheduler = copy.deepcopy(real.scheduler, {**memo, id(real.optimizer): self.optimizer})
        self.own_state: Dict[str, Any] = {}
        self.extras = SimpleNamespace(plain_parts=lambda: (self.own_state, {}))  # type: ignore[assignment]
        self.keeper = None
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
    """The three functions, for the model in the user's own loop. A pipeline has others for what is asked first."""

    def __init__(self, job: Any, layers: Sequence[Layer]) -> None:
        """layers: as they begin, so that sizes are the same on every worker."""
        self._job = job
        self.advanced = 0  # layers, for tests
        self._stagings: Dict[torch.device, Staging] = {}  # of shadows, beside that of the model
        self._rooms = [_round_up(2 * len(json.dumps(one.owner.shared_notes())) + 80 * len(one.trained) + 1024) for one in layers]

    # -- what there is --

    def state_of(self, layer: int) -> ModelState:
        """The model that the layer is of."""
        found: ModelState = self._job._state
        return found

    def layer_of(self, layer: int) -> Layer:
        """As it is here, or as it would be."""
        return self.state_of(layer).layers[layer]

    def statistics_of(self, layer: int) -> Any:
        """Of BatchNorm."""
        return self._job._statistics

    def gradient_of(self, layer: int, p: Param) -> torch.Tensor:
        """Summed, of the step that is held."""
        view: torch.Tensor = self._job._sums.view_of(p)
        return view

    def scale_of(self, layer: int, p: Param) -> Any:
        """The largest element, the scale, and how many were added; None: floats have none."""
        told = self._job._sums.scale_of(p)
        return None if told is None else [*told, self._job.micro_batches]

    def unused_of(self, one: Layer) -> List[int]:
        """Which of its trained parameters have no gradient in this step, on any worker."""
        unused = getattr(self._job._sums, "unused", ())
        return [index for index, p in enumerate(one.trained) if id(p) in unused]

    def settings_of(self, layer: int) -> Dict[str, Any]:
        """Of the step that is held; an error where no gradients say what it does."""
        job, sums = self._job, self._job._sums
        if job._stop.at or sums is None:
            raise RuntimeError("this step changes more than gradients do")
        return {"clip": job._clip_now(), "value": job._clip_value, "epoch": job._schedule_due_next(), "overflow": sums.overflow}

    # -- sizes --

    def _kept(self, layer: int) -> bool:
        """Only the script knows what a step does to it."""
        return self.state_of(layer).keeper == layer

    def _norms(self, layer: int) -> List[Any]:
        """(module, where it is in the table) of each BatchNorm of the layer."""
        here = {id(b.owner[0]) for b in self.layer_of(layer).buffers}
        return [(module, at) for module, at in self.statistics_of(layer).places() if id(module) in here]

    def _table_bytes(self, layer: int) -> int:
        return sum(4 * (2 * module.num_features + 1) for module, _ in self._norms(layer)) * self._job.micro_batches

    def gradient_bytes(self, layer: int) -> int:
        """Of a layer."""
        if self._kept(layer):
            return 64
        return self._rooms[layer] + _round_up(self._table_bytes(layer)) + sum(
            _round_up(p.slot.bytes) for p in self.layer_of(layer).trained)

    # -- the worker that trains --

    def read_gradient(self, layer: int, address: int, size: int) -> None:
        """The step is held and not applied yet."""
        ctypes.memset(address, 0, size)
        settings = self.settings_of(layer)
        if self._kept(layer):
            return
        one = self.layer_of(layer)
        notes = {**settings, "groups": self.state_of(layer).shared_notes()["groups"],
                 "scales": [self.scale_of(layer, p) for p in one.trained], "unused": self.unused_of(one), "seen": self._job.seen.after()}
        text = json.dumps(notes).encode()
        if len(text) + _HEAD > self._rooms[layer]:
            raise RuntimeError("the notes have grown")
        head = (len(text).to_bytes(_HEAD, "little") + text).ljust(self._rooms[layer], b"\0")
        ctypes.memmove(address, head, len(head))
        at = address + len(head)
        for module, place in self._norms(layer):
            part = self.statistics_of(layer).table[:, place: place + 2 * module.num_features + 1].contiguous()
            ctypes.memmove(at, part.data_ptr(), part.nbytes)
            at += part.nbytes
        at = len(head) + _round_up(self._table_bytes(layer))
        pairs = [(slot, self.gradient_of(layer, p).detach()) for slot, p in zip(_gradient_slots(one, at), one.trained)]
        self.state_of(layer).staging.read(pairs, address)

    # -- the worker that follows --

    def advance(self, layer: int, step: int, norm: float, state: int, gradient: int) -> None:
        """The bytes at `state` become those after the step."""
        if self._kept(layer):
            return  # it will be another, and is fetched in the change
        device = self.state_of(layer).device
        if device not in self._stagings:
            self._stagings[device] = Staging(device)
        shadow = _Shadow(self.state_of(layer), self.layer_of(layer), self._stagings[device])
        length = int.from_bytes(ctypes.string_at(gradient, _HEAD), "little")
        notes = json.loads(ctypes.string_at(gradient + _HEAD, length))
        own = shadow.layer
        own.write(state)
        shared = own.read_notes()["shared"]
        if shadow.scheduler is not None and shared["schedule"] is not None:
            shadow.scheduler.load_state_dict(from_plain(shared["schedule"]))
        for group, told in zip(shadow.optimizer.param_groups, notes["groups"]):
            for key, value in from_plain(told).items():
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                else:
                    group[key] = value
        if not notes["overflow"]:
            at = self._rooms[layer] + _round_up(self._table_bytes(layer))
            self._take_gradients(own, gradient, at, self._factor(notes["clip"], norm, shared["state"]), notes["value"])
            for index in notes["unused"]:
                own.trained[index].tensor.grad = None
            shadow.step_optimizer()
        if notes["epoch"]:
            shadow.step_schedule()
        if own.scales is not None:
            for index, (largest, scale, addends) in enumerate(notes["scales"]):
                own.scales[index] = fixed_point.following(largest, scale, addends)
        self._merge(layer, own, gradient + self._rooms[layer])
        shadow.own_state = self._after(shared["state"], notes["overflow"], notes["seen"])
        own.write_notes(step, shadow.shared_notes())
        shadow.staging.mark()
        own.read(state)
        self.advanced += 1

    def _after(self, state: Dict[str, Any], overflow: bool, seen: Any) -> Dict[str, Any]:
        """Tidemill's own state after the step: the loss scale moves, and other samples were looked at."""
        out = dict(state)
        if _SEEN in out:
            out[_SEEN] = {"#dict": [[key, value] for key, value in seen.items()]}
        if self._job._scale is not None and _SCALE in out:
            told = self._job._scale.following(from_plain(out[_SCALE]), overflow)
            out[_SCALE] = {"#dict": [[key, to_plain(value, _SCALE)] for key, value in told.items()]}
        return out

    def _factor(self, clip: Any, norm: float, state: Dict[str, Any]) -> float:
        scale = 1.0
        if self._job._scale is not None and _SCALE in state:
            scale = float(from_plain(state[_SCALE])["scale"])
        factor = 1.0 if clip is None else min(1.0, clip / (math.sqrt(norm) / scale + 1e-6))
        return factor if scale == 1.0 else factor / scale

    @staticmethod
    def _take_gradients(own: Layer, gradient: int, at: int, factor: float, value: Any) -> None:
        grads = [torch.empty_strided(p.slot.shape, p.slot.stride, dtype=p.slot.dtype, device=p.tensor.device) for p in own.trained]
        own.owner.staging.write(list(zip(_gradient_slots(own, at), grads)), gradient)
        for p, grad in zip(own.trained, grads):
            if factor != 1.0:
                grad.mul_(factor)
            p.tensor.grad = grad
        if value is not None and grads:
            torch._foreach_clamp_min_(grads, -value)
            torch._foreach_clamp_max_(grads, value)

    def _merge(self, layer: int, own: Layer, at: int) -> None:
        table = {(id(b.owner[0]), b.owner[1]): b.tensor() for b in own.buffers}
        for module, _ in self._norms(layer):
            width = 2 * module.num_features + 1
            rows = torch.empty(self._job.micro_batches, width)
            ctypes.memmove(rows.data_ptr(), at, rows.nbytes)
            at += rows.nbytes
            merge(rows, module, *(table.get((id(module), key)) for key in ("running_mean", "running_var", "num_batches_tracked")))


__all__ = ["Follow"]

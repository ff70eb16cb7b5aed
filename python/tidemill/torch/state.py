"""A model, its optimizer and its schedule as Tidemill's layers: byte strings of fixed size.

A layer is 64 bytes (magic, committed step, length of the notes), the notes (JSON, with room kept behind them), then
tensors, each aligned to 64 bytes: parameters, buffers, scales of gradients, and the optimizer's state of these parameters.
What is not a tensor (learning rates, the schedule's counters, numbers that an optimizer keeps) is in the notes.

Tensors stay where the script has put them, on the CPU or a GPU. A layer's bytes are made on request (for a copy, or a peer
that fetches them); nothing is copied when a step is applied.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import struct
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from tidemill.errors import UsageError
from tidemill.torch import guards
from tidemill.torch.extras import Extra, Extras
from tidemill.torch.plain import Slot, from_plain, slot_for, to_plain
from tidemill.torch.staging import Staging

_MAGIC = b"tmtorch1"
_FIXED = 64
_ALIGN = 64
_PARTS = 64  # in how many the parameters are tried, about, where none is large
_SAMPLED = 1 << 18  # elements of a frozen parameter that are compared between workers


def _round_up(n: int) -> int:
    return (n + _ALIGN - 1) // _ALIGN * _ALIGN


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# ---- the layout of a layer ----


@dataclass(eq=False)
class Param:
    """A parameter (counted once however many modules share it) with its optimizer's state."""

    name: str
    tensor: nn.Parameter
    slot: Slot
    state: "OrderedDict[str, Slot]" = field(default_factory=OrderedDict)
    devices: Dict[str, torch.device] = field(default_factory=dict)  # of its state
    numbers: Tuple[str, ...] = ()  # keys of its state that are no tensors
    frozen: bool = False  # never trained: every worker makes it by itself, and it is compared, not moved


@dataclass(eq=False)
class Buffer:
    """A buffer of a module, looked up each time: modules may replace it."""

    name: str
    owner: Tuple[nn.Module, str]
    slot: Slot

    def tensor(self) -> torch.Tensor:
        """As it is now."""
        module, key = self.owner
        return module._buffers[key]  # type: ignore[return-value]


@dataclass
class Unit:
    """A module's own parameters and buffers: what a layer is made of."""

    name: str
    params: List[Param] = field(default_factory=list)
    buffers: List[Buffer] = field(default_factory=list)
    extras: List[Extra] = field(default_factory=list)

    def weight(self) -> int:
        """Bytes, with the optimizer's state."""
        return sum(p.slot.bytes + sum(s.bytes for s in p.state.values()) for p in self.params if not p.frozen) + sum(
            s.slot.bytes for s in (*self.buffers, *self.extras))


def _sample(tensor: torch.Tensor) -> bytes:
    """All bytes of a small tensor, and of a large one those of elements at equal distances: to tell weights apart, not bits."""
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // _SAMPLED)].cpu().contiguous()
    return some.view(torch.uint8).numpy().tobytes() if some.numel() else b""


def _stand_in(optimizer: torch.optim.Optimizer, chosen: Sequence[nn.Parameter],
              shapes: Dict[int, nn.Parameter]) -> Tuple[Any, List[Tuple[nn.Parameter, nn.Parameter]]]:
    """An optimizer of the same class over zeros that shares nothing with the given one; pairs of (parameter, its zeros). Only chosen
    parameters have values and gradients: of the others there are the shapes alone."""
    pairs: List[Tuple[nn.Parameter, nn.Parameter]] = []
    memo: Dict[int, Any] = dict(shapes)
    for param in chosen:
        zeros = nn.Parameter(torch.zeros_like(param, memory_format=torch.preserve_format), param.requires_grad)
        zeros.grad = torch.zeros_like(zeros) if param.requires_grad else None
        memo[id(param)] = zeros
        pairs.append((param, zeros))
    trial = object.__new__(type(optimizer))
    for key, value in optimizer.__dict__.items():
        if key.startswith("_optimizer_"):
            trial.__dict__[key] = OrderedDict()  # hooks
        elif key not in ("step", "zero_grad", "state", "param_groups"):
            try:
                trial.__dict__[key] = copy.deepcopy(value, memo)
            except Exception:  # a lock, a process group: not for copying, and nothing that a step changes
                trial.__dict__[key] = value
    kept = {key: value for key, value in optimizer.state.items() if id(key) not in shapes or memo[id(key)] is not shapes[id(key)]}
    trial.__dict__["state"] = defaultdict(dict, copy.deepcopy(kept, memo))
    trial.__dict__["param_groups"] = copy.deepcopy(optimizer.param_groups, memo)
    guards.own(trial)
    return trial, pairs


def _parts(params: Sequence[nn.Parameter]) -> Iterator[List[nn.Parameter]]:
    """Parameters to try together: as much as the largest one, or a share of all where there are many small ones."""
    room = max([sum(p.numel() for p in params) // _PARTS, *(p.numel() for p in params)], default=0)
    part: List[nn.Parameter] = []
    taken = 0
    for param in params:
        if part and taken + param.numel() > room:
            yield part
            part, taken = [], 0
        part.append(param)
        taken += param.numel()
    if part:
        yield part


def _shape_of(value: Any) -> Any:
    """A tensor as its shape alone, with the device that it was on."""
    if not isinstance(value, torch.Tensor):
        return value
    like = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    like.of_device = value.device  # type: ignore[attr-defined]
    return like


def _try_part(optimizer: torch.optim.Optimizer, part: Sequence[nn.Parameter],
              shapes: Dict[int, nn.Parameter]) -> Dict[nn.Parameter, Dict[str, Any]]:
    trial, pairs = _stand_in(optimizer, part, shapes)
    type(optimizer).step(trial)
    return {param: {key: _shape_of(value) for key, value in trial.state.get(copied, {}).items()} for param, copied in pairs}


def probe_optimizer(optimizer: torch.optim.Optimizer) -> Dict[nn.Parameter, Dict[str, Any]]:
    """What state the optimizer will keep for each parameter, learnt from steps with zero gradients on a stand-in. A few parameters
    at a time: a stand-in of all would need several times the model's memory. Of tensors the shape is kept alone."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    shapes = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in params}
    try:
        found: Dict[nn.Parameter, Dict[str, Any]] = {}
        for part in _parts(params):
            found.update(_try_part(optimizer, part, shapes))
        return found
    except Exception:  # one that steps parameters without a gradient, too
        pass
    try:
        return _try_part(optimizer, params, shapes)
    except Exception as error:
        raise UsageError(
            f"{type(optimizer).__name__} cannot be used: Tidemill has to know the size of its state before the first "
            f"step, and a step with zero gradients on a stand-in failed ({type(error).__name__}: {error}). Optimizers "
            "that need a closure (LBFGS) are not supported; use AdamW, SGD, or another that steps by itself"
        ) from error


class ModelState:
    """The attached model, optimizer and schedule, as layers. An engine of tidemill.session."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any = None,
                 first_scale: Optional[int] = None, extras: Optional[Extras] = None, staging: Optional[Staging] = None) -> None:
        """first_scale: of every gradient, where they are summed as integers; None: they are not. extras: state of the
        script's own. staging: shared with others."""
        guards.check_model(model)
        if next(model.parameters(), None) is not None:
            guards.check_optimizer(optimizer)
        guards.check_scheduler(scheduler, optimizer)
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.first_scale = first_scale
        self.extras = extras or Extras({})
        self.units = self._gather()
        self.units += [Unit(extra.slot.name, extras=[extra]) for extra in self.extras.list]
        self.device = self._one_device()
        self.staging = staging or Staging(self.device)
        self.layers: List["Layer"] = []
        self.keeper: Optional[int] = None  # the layer that has the script's own state
        self.follow: Any = None  # tidemill.torch.follow, where layers can move while they are trained
        self.shards: Any = None  # tidemill.torch.shards, where workers hold different layers
        self.step = 0
        self._committed: Tuple[int, Any] = (-1, None)  # a step, and the notes of its commit
        guards.own(optimizer)
        self.watch = guards.Watch(self)

    # -- what there is --

    def _gather(self) -> List[Unit]:
        expected = probe_optimizer(self.optimizer)
        units: List[Unit] = []
        seen: Set[int] = set()
        for module_name, module in self.model.named_modules():
            unit = Unit(module_name or "(root)")
            for key, param in module._parameters.items():
                if param is None or id(param) in seen:
                    continue
                seen.add(id(param))
                unit.params.append(self._describe(f"{module_name}.{key}".lstrip("."), param, expected))
            for key, tensor in module._buffers.items():
                if tensor is None or key in module._non_persistent_buffers_set or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                name = f"{module_name}.{key}".lstrip(".")
                unit.buffers.append(Buffer(name, (module, key), slot_for(name, tensor)))
            if unit.params or unit.buffers:
                units.append(unit)
        strangers = [p for g in self.optimizer.param_groups for p in g["params"] if id(p) not in seen]
        if strangers:
            raise UsageError(f"the optimizer has {len(strangers)} parameter(s) that the model does not have, the first "
                             f"of shape {tuple(strangers[0].shape)}: attach the model that holds all of them")
        return units

    def _describe(self, name: str, param: nn.Parameter, expected: Dict[nn.Parameter, Dict[str, Any]]) -> Param:
        out = Param(name, param, slot_for(name, param), frozen=param not in expected and not param.requires_grad)
        numbers = []
        for key, value in expected.get(param, {}).items():
            if isinstance(value, torch.Tensor):
                out.state[key] = slot_for(f"{name}:{key}", value)
                out.devices[key] = value.of_device
            else:
                numbers.append(key)
        out.numbers = tuple(numbers)
        return out

    def _one_device(self) -> torch.device:
        devices = {p.device for p in self.model.parameters()}
        devices |= {b.tensor().device for u in self.units for b in u.buffers}
        if len(devices) > 1:
            raise UsageError(f"the model is on several devices ({', '.join(sorted(map(str, devices)))}): move it to one")
        return devices.pop() if devices else torch.device("cpu")

    # -- layers --

    def cut(self, count: int) -> None:
        """Groups units into `count` layers of about equal size, in order. State of the script's own is apart, in the last one: only the
        script knows how a step changes it, so that it cannot be followed (tidemill.torch.follow)."""
        apart = count > 1 and not self.extras.only_own()
        units = [u for u in self.units if not u.extras] if apart else self.units
        most = count - 1 if apart else count
        total = sum(u.weight() for u in units) or 1
        groups: List[List[Unit]] = [[] for _ in range(count)]
        before = 0
        for unit in units:
            middle = before + unit.weight() / 2
            groups[min(most - 1, int(middle * most / total))].append(unit)
            before += unit.weight()
        if apart:
            groups[-1] = [u for u in self.units if u.extras]
        self.keeper = None if self.extras.only_own() else count - 1
        self.make_layers(groups)

    def make_layers(self, groups: Sequence[Sequence[Unit]], first: int = 0) -> None:
        """Makes layers of these units, numbered from `first`."""
        self.layers = [Layer(self, first + number, group) for number, group in enumerate(groups)]

    @property
    def params(self) -> List[Param]:
        """Of all layers, in order."""
        return [p for layer in self.layers for p in layer.params]

    def digest(self) -> str:
        """A digest of the initial state and structure of all layers; it must be equal on every worker."""
        h = hashlib.blake2b(digest_size=8)
        for layer in self.layers:
            h.update(layer.initial)
            h.update(json.dumps([layer.size, layer.names()]).encode())
            for p in layer.frozen:
                h.update(json.dumps([p.name, str(p.slot.dtype), p.slot.shape]).encode())
                h.update(_sample(p.tensor))
        return h.hexdigest()

    # -- notes of all layers --

    def shared_notes(self) -> Any:
        """Schedule and settings of the optimizer, and Tidemill's own state: the same in every layer."""
        schedule = None if self.scheduler is None else to_plain(self.scheduler.state_dict(), "the scheduler")
        groups = []
        for group in self.optimizer.param_groups:
            groups.append(to_plain({k: v for k, v in group.items() if k != "params"}, "the optimizer's settings"))
        return {"schedule": schedule, "groups": groups, "state": self.extras.plain_parts()[0]}

    def whole_notes(self) -> Any:
        """And the script's own state."""
        return {**self.shared_notes(), "state": self.extras.plain}

    def committed_notes(self) -> Any:
        """Of the last commit, here or elsewhere, as the layers have them; None: this worker holds none of that step. The script's own state is under
        "extras", where this worker has it."""
        if self._committed[0] != self.step:
            layer = next((layer for layer in self.layers if layer.step == self.step), None)
            if layer is None:
                return None
            notes = layer.read_notes()["shared"]
            keeper = None if self.keeper is None else self.layers[self.keeper]
            if keeper is not None and keeper.step == self.step:
                notes["extras"] = keeper.read_notes()["extras"]
            self._committed = (self.step, notes)
        return self._committed[1]

    def load_shared_notes(self, notes: Any) -> None:
        """Applies the result of whole_notes."""
        self.extras.load(notes.get("state", {}))
        if self.scheduler is not None and notes["schedule"] is not None:
            self.scheduler.load_state_dict(from_plain(notes["schedule"]))
        for group, saved in zip(self.optimizer.param_groups, notes["groups"]):
            for key, value in from_plain(saved).items():
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                else:
                    group[key] = value

    def _chosen(self, held: Optional[Sequence[int]]) -> List["Layer"]:
        return self.layers if held is None else [self.layers[i] for i in held]

    def commit(self, step: int, held: Optional[Sequence[int]] = None) -> None:
        """After an optimizer step: the layers now have this step's state."""
        self.staging.mark()
        self.extras.commit()
        shared = self.shared_notes()
        told = _json(shared)
        for layer in self._chosen(held):
            layer.write_notes(step, shared, told)
        self.step = step
        self._committed = (step, shared if self.keeper is None else {**shared, "extras": self.extras.plain_parts()[1]})
        self.watch.remember()

    def refresh(self, step: int, held: Optional[Sequence[int]] = None) -> bool:
        """Before a step: layers may have come from other workers and have another step's state. Returns whether they have."""
        layers = self._chosen(held)
        moved = self.step != step
        if moved:
            self._committed = (-1, None)
        if layers and moved:
            notes = layers[0].read_notes()["shared"]
            if self.keeper is not None:
                notes = {**notes, "state": {**notes["state"], **self.layers[self.keeper].read_notes()["extras"]}}
            self.load_shared_notes(notes)
        for layer in layers:
            if layer.step != step:
                raise UsageError(f"layer {layer.number} is of step {layer.step}, expected {step}")
        self.step = step
        if moved:
            self.watch.remember()
        return moved

    # -- the engine's side of tidemill.session --

    def layer_bytes(self, layer: int) -> int:
        if layer >= len(self.layers):
            raise UsageError(f"the coordinator asks for layer {layer}, this worker has {len(self.layers)}: give the "
                             "job as many layers as TIDEMILL_LAYERS says")
        return self.layers[layer].size

    def init_layer(self, layer: int, address: int, size: int) -> None:
        initial = self.layers[layer].initial
        ctypes.memset(address, 0, size)
        ctypes.memmove(address, initial, len(initial))

    def read_layer(self, layer: int, address: int, size: int) -> None:
        self.layers[layer].read(address)

    def write_layer(self, layer: int, address: int, size: int) -> None:
        self.step = -1  # first: what changes from now on is no script's doing
        if self.shards is not None:
            self.shards.hold(self.layers[layer])
        self.layers[layer].write(address)

    def drop_layer(self, layer: int) -> None:
        self.layers[layer].step = -1
        if self.shards is not None:
            self.shards.drop(self.layers[layer])


class Layer:
    """One of Tidemill's layers: where its tensors are, and which bytes they make."""

    def __init__(self, owner: ModelState, number: int, units: Sequence[Unit]) -> None:
        self.owner, self.number, self.units = owner, number, list(units)
        self.params = [p for u in self.units for p in u.params if not p.frozen]
        self.frozen = [p for u in self.units for p in u.params if p.frozen]
        self.buffers = [b for u in self.units for b in u.buffers]
        self.extras = [e for u in self.units for e in u.extras]
        self.trained = [p for p in self.params if p.tensor.requires_grad]
        self.scales: Optional[torch.Tensor] = None
        if owner.first_scale is not None:
            self.scales = torch.full((max(1, len(self.trained)),), owner.first_scale, dtype=torch.int32)
            self._scale_slot = slot_for("scales", self.scales)
        self._place()
        self._own: Any = None  # of its notes, and their text: they seldom change
        self._own_text = ""
        self.step = 0  # committed; -1: this layer is not held
        self.write_notes(0, owner.shared_notes())
        self.initial = self._snapshot()

    def names(self) -> List[str]:
        """What it holds, with kinds and shapes."""
        return [f"{s.name} {s.dtype} {s.shape}" for s in self._slots()]

    def _slots(self) -> Iterator[Slot]:
        yield from (p.slot for p in self.params)
        yield from (b.slot for b in self.buffers)
        yield from (e.slot for e in self.extras)
        if self.scales is not None:
            yield self._scale_slot
        yield from (s for p in self.params for s in p.state.values())

    def _place(self) -> None:
        room = len(json.dumps(self._notes(self.owner.shared_notes())))
        keys = sum(len(key) + 8 for p in self.params for key in (*p.state, *p.numbers))
        self.notes_bytes = _round_up(2 * room + 2 * keys + 64 * len(self.params) + 1024)
        at = _FIXED + self.notes_bytes
        for slot in self._slots():
            slot.offset, at = at, _round_up(at + slot.bytes)
        self.size = at

    def _snapshot(self) -> bytes:
        """All bytes, without the zeros at the end (state that optimizers start with)."""
        whole = bytearray(self.size)
        self.read(ctypes.addressof((ctypes.c_char * self.size).from_buffer(whole)))
        return bytes(whole.rstrip(b"\0"))

    # -- the optimizer's state --

    def _check_kind(self, p: Param, key: str, value: Any) -> None:
        slot = p.state.get(key)
        name = type(self.owner.optimizer).__name__
        if slot is None and key not in p.numbers:
            raise UsageError(f"{name} began to keep {key!r} for {p.name} after its first step: such optimizers are not "
                             "supported")
        if slot is not None and value is not None and (tuple(value.shape) != slot.shape or value.dtype != slot.dtype):
            raise UsageError(f"{name} changed {key!r} of {p.name} from {slot.shape} to {tuple(value.shape)}: such "
                             "optimizers are not supported")

    def _own_notes(self) -> Any:
        """Which parameters have state yet, and the numbers of it."""
        kept = []
        for index, p in enumerate(self.params):
            state = self.owner.optimizer.state.get(p.tensor)
            if not state:
                continue
            for key, value in state.items():
                slot = p.state.get(key)  # after every step: the usual case is looked at here
                if slot is None or (value is not None and (value.shape != slot.shape or value.dtype is not slot.dtype)):
                    self._check_kind(p, key, value)
            numbers = {k: to_plain(state[k], f"the optimizer's state of {p.name}") for k in p.numbers if k in state}
            kept.append([index, sorted(k for k in p.state if state.get(k) is not None), numbers])
        return kept

    # -- bytes --

    def _notes(self, shared: Any) -> Any:
        notes = {"shared": shared, "own": self._own_notes()}
        if self.owner.keeper == self.number:
            notes["extras"] = self.owner.extras.plain_parts()[1]
        return notes

    def write_notes(self, step: int, shared: Any, told: Optional[str] = None) -> None:
        """The layer is of this step, with these settings. told: these, where there is a text of them."""
        notes = self._notes(None)
        if notes["own"] != self._own:
            self._own, self._own_text = notes["own"], _json(notes["own"])
        more = "".join(f',"{key}":{_json(notes[key])}' for key in notes if key not in ("shared", "own"))
        text = f'{{"shared":{_json(shared) if told is None else told},"own":{self._own_text}{more}}}'.encode()
        if len(text) > self.notes_bytes:
            raise UsageError(f"the settings of schedule and optimizer, and the numbers of attached state, have grown to {len(text)} bytes; "
                             f"layer {self.number} has room for {self.notes_bytes}: attach them with all they will have")
        head = struct.pack("<8sQQ", _MAGIC, step, len(text)).ljust(_FIXED, b"\0") + text
        self._head = head.ljust(_FIXED + self.notes_bytes, b"\0")
        self.step = step

    def read_notes(self) -> Any:
        """What write_notes wrote, here or elsewhere."""
        magic, _, length = struct.unpack_from("<8sQQ", self._head)
        if magic != _MAGIC or length > self.notes_bytes:
            raise UsageError(f"layer {self.number} does not hold a PyTorch layer: was this job started by another engine?")
        return json.loads(self._head[_FIXED: _FIXED + length])

    def _content(self) -> Iterator[Tuple[Slot, Optional[torch.Tensor]]]:
        """Each slot with what is in it, in order."""
        states = self.owner.optimizer.state
        yield from ((p.slot, p.tensor) for p in self.params)
        yield from ((b.slot, b.tensor()) for b in self.buffers)
        yield from ((e.slot, e.tensor()) for e in self.extras)
        if self.scales is not None:
            yield self._scale_slot, self.scales
        for p in self.params:
            state = states.get(p.tensor) or {}
            yield from ((slot, state.get(key)) for key, slot in p.state.items())

    def read(self, address: int) -> None:
        """Writes the layer's bytes to memory; gaps between tensors too, for they are part of its hash."""
        ctypes.memmove(address, self._head, len(self._head))
        at, pairs = len(self._head), []
        for slot, tensor in self._content():
            if tensor is None:
                continue
            ctypes.memset(address + at, 0, slot.offset - at)
            pairs.append((slot, tensor))
            at = slot.offset + slot.bytes
        ctypes.memset(address + at, 0, self.size - at)
        self.owner.staging.read(pairs, address)

    def write(self, address: int) -> None:
        """Takes the layer's bytes from memory: tensors get their values, the optimizer its state."""
        self._head = ctypes.string_at(address, _FIXED + self.notes_bytes)
        notes = self.read_notes()
        pairs = [(p.slot, p.tensor) for p in self.params] + [(b.slot, b.tensor()) for b in self.buffers]
        for e in self.extras:
            e.write(address)
        if self.scales is not None:
            pairs.append((self._scale_slot, self.scales))
        self.owner.staging.write([*pairs, *self._places_of_state(notes["own"])], address)
        self.step = struct.unpack_from("<Q", self._head, 8)[0]

    def _places_of_state(self, notes: Any) -> Iterator[Tuple[Slot, torch.Tensor]]:
        """The optimizer's state as the notes say it is; its tensors are still to be filled."""
        states = self.owner.optimizer.state
        known = {index: (tensors, numbers) for index, tensors, numbers in notes}
        for index, p in enumerate(self.params):
            before = states.pop(p.tensor, None) or {}
            if index not in known:
                continue
            tensors, numbers = known[index]
            state: Dict[str, Any] = {}
            for key, slot in p.state.items():
                if key in tensors:
                    place = before.get(key)
                    if place is None:
                        place = torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype, device=p.devices[key])
                    yield slot, place
                    state[key] = place
            state.update({k: from_plain(v) for k, v in numbers.items()})
            states[p.tensor] = state

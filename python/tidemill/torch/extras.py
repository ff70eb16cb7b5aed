"""State of the script's own that is part of the job: averages of weights, counters, loss scales, places in a stream.

Anything with state_dict and load_state_dict will do. Its tensors are slots of the layers, beside the model's; the rest is in
the layers' notes. A commit reads all of it; a worker that gets layers from elsewhere loads it before its next step.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

import torch

from tidemill.errors import UsageError
from tidemill.torch.plain import Slot, from_plain, slot_for, to_plain

_COMPARED = 4 << 20  # elements whose values are compared, at most
_COMPARED_STEPS = 10  # of this process; later, versions alone


def _split(value: Any, path: str, tensors: Dict[str, torch.Tensor]) -> Any:
    """As to_plain, with every tensor put aside under its path."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.device.type == "meta":
            raise UsageError(f"state[{path!r}] is a tensor that cannot be copied as it is ({value.layout}, {value.device}): "
                             "use dense ones")
        tensors[path] = value.detach()
        return {"#slot": path}
    if isinstance(value, list):
        return [_split(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]
    if isinstance(value, tuple):
        return {"#tuple": [_split(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"#dict": [[to_plain(k, path), _split(v, f"{path}.{k}", tensors)] for k, v in value.items()]}
    return to_plain(value, f"state[{path!r}]")


def _join(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """What `_split` was given."""
    if isinstance(value, list):
        return [_join(v, tensors) for v in value]
    if isinstance(value, dict):
        kind, content = next(iter(value.items()))
        if kind == "#slot":
            return tensors[content]
        if kind == "#tuple":
            return tuple(_join(v, tensors) for v in content)
        if kind == "#dict":
            return {from_plain(k): _join(v, tensors) for k, v in content}
    return from_plain(value)


@dataclass(eq=False)
class Extra:
    """A tensor of the script's state, and its place in a layer."""

    owner: "Extras"
    path: str
    slot: Slot

    def tensor(self) -> torch.Tensor:
        """Of the last commit."""
        return self.owner.tensors[self.path]

    def write(self, address: int) -> None:
        """Keeps the bytes until all layers are there."""
        host = torch.empty_strided(self.slot.shape, self.slot.stride, dtype=self.slot.dtype)
        ctypes.memmove(host.data_ptr(), address + self.slot.offset, self.slot.bytes)
        self.owner.arrived[self.path] = host


class Extras:
    """All that was attached with `state={name: thing}`."""

    def __init__(self, things: Mapping[str, Any]) -> None:
        for name, thing in things.items():
            if not isinstance(name, str) or not name or name.startswith("#"):
                raise UsageError(f"attach(state=...): {name!r} is no name: use a text")
            self._check(name, thing)
        self._things = dict(things)
        self._own: Set[str] = set()
        self._apart = tuple(f"{name}." for name, thing in things.items() if getattr(thing, "by_worker", False))  # not compared
        self.tensors: Dict[str, torch.Tensor] = {}
        self.arrived: Dict[str, torch.Tensor] = {}
        self._steps = 0
        self.plain, self.tensors = self._now()
        self.list = [Extra(self, path, slot_for(f"state:{path}", tensor)) for path, tensor in self.tensors.items()]
        self._remember()

    @staticmethod
    def _check(name: str, thing: Any) -> None:
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(thing, method, None)):
                raise UsageError(f"attach(state={{{name!r}: ...}}): a {type(thing).__name__} has no {method}(): what is part "
                                 "of the job's state has state_dict() and load_state_dict(), as torch's modules have")

    def add(self, name: str, thing: Any) -> None:
        """One of Tidemill's own, before the layers are made."""
        self._check(name, thing)
        self._things[name] = thing
        self._own.add(name)
        self.plain, self.tensors = self._now()
        self.list = [Extra(self, path, slot_for(f"state:{path}", tensor)) for path, tensor in self.tensors.items()]
        self._remember()

    def holds(self, thing: Any) -> bool:
        """Was it attached?"""
        return any(own is thing for own in self._things.values())

    def names(self) -> List[str]:
        """Of the script's."""
        return [name for name in self._things if name not in self._own]

    def tells(self, value: float) -> bool:
        """Is the number part of the script's state, as it is now?"""
        return not self.only_own() and f" {json.dumps(value)}" in " " + json.dumps(self.plain_now(), separators=(" ", " "))

    def plain_now(self) -> Dict[str, Any]:
        """Of the script's things."""
        return {name: _split(thing.state_dict(), name, {}) for name, thing in self._things.items() if name not in self._own}

    def compared(self, plain: Mapping[str, Any]) -> Dict[str, Any]:
        """Of what is no tensor: what all workers must have alike."""
        return {name: value for name, value in plain.items() if f"{name}." not in self._apart}

    def changed_tensors(self) -> Dict[str, torch.Tensor]:
        """Those that were written to, or replaced, since the last commit."""
        if self.only_own():
            return {}
        now = self._now()[1]
        return {f"state[{path!r}]": tensor for path, tensor in now.items()
                if self._versions.get(path) != (tensor.data_ptr(), tensor._version) and not path.startswith(self._apart)}

    def things(self, kind: type) -> List[Any]:
        """Those of a kind that were attached."""
        return [thing for thing in self._things.values() if isinstance(thing, kind)]

    def only_own(self) -> bool:
        """Is there nothing of the script's?"""
        return set(self._things) <= self._own

    def plain_parts(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """What is no tensor: of Tidemill's own things, and of the script's."""
        own = {name: value for name, value in self.plain.items() if name in self._own}
        return own, {name: value for name, value in self.plain.items() if name not in self._own}

    def name_of(self, thing: Any) -> str:
        """Under which name."""
        return next(name for name, own in self._things.items() if own is thing)

    def _now(self) -> Tuple[Dict[str, Any], Dict[str, torch.Tensor]]:
        tensors: Dict[str, torch.Tensor] = {}
        plain = {name: _split(thing.state_dict(), name, tensors) for name, thing in self._things.items()}
        return plain, tensors

    def _remember(self) -> None:
        self._versions = {path: (t.data_ptr(), t._version) for path, t in self.tensors.items()}
        self._text = json.dumps(self.plain)
        self._values: Dict[str, torch.Tensor] = {}
        if self._steps < _COMPARED_STEPS:
            room = _COMPARED
            for path, tensor in self.tensors.items():
                if tensor.numel() <= room:
                    room -= tensor.numel()
                    self._values[path] = tensor.clone()

    # -- a step --

    def check(self) -> None:
        """Before a step is applied: nothing has changed since the one before it was committed."""
        if not self._things:
            return
        plain, tensors = self._now()
        odd = self._changed(plain, tensors)
        if odd is not None:
            raise UsageError(
                f"state[{odd!r}] was changed in the job's loop, which runs once per micro-batch and may run again for a step "
                "that was given up: change it in a function that job.on_commit is given, which is called with (step, loss) "
                "once a step, on every worker, after the optimizer")

    def _changed(self, plain: Any, tensors: Mapping[str, torch.Tensor]) -> Optional[str]:
        if json.dumps(plain) != self._text:
            return next((name for name in plain if plain[name] != self.plain.get(name)), next(iter(plain), ""))
        for path, tensor in tensors.items():
            known = self._values.get(path)
            if known is not None:
                same = torch.equal(known, tensor)
            else:
                before = self._versions.get(path)
                same = before == (tensor.data_ptr(), tensor._version) or (
                    before is not None and before[0] != tensor.data_ptr() and torch.equal(self.tensors[path], tensor))
            if not same:
                return path
        return None

    def commit(self) -> None:
        """What there is now belongs to the step that is committed."""
        if not self._things:
            return
        plain, tensors = self._now()
        for extra in self.list:
            tensor = tensors.get(extra.path)
            if tensor is None or tuple(tensor.shape) != extra.slot.shape or tensor.dtype != extra.slot.dtype:
                now = "gone" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"
                raise UsageError(f"state[{extra.path!r}] was {extra.slot.shape} {extra.slot.dtype} when it was attached, and is "
                                 f"{now}: the job's state has a fixed size, so attach it with all that it will have")
        if len(tensors) != len(self.list):
            new = next(path for path in tensors if path not in self.tensors)
            raise UsageError(f"state[{new!r}] is new: the job's state has a fixed size, so attach it with all that it will "
                             "have")
        self.plain, self.tensors = plain, tensors
        self._steps += 1
        self._remember()

    def load(self, plain: Mapping[str, Any]) -> None:
        """Layers came from elsewhere: their notes said this, and their tensors have arrived."""
        if not self._things:
            return
        tensors = {path: self.arrived.get(path, tensor) for path, tensor in self.tensors.items()}
        for name, thing in self._things.items():
            if name not in plain and name in self._own:
                continue  # written by an older version, or without a loss scale
            if name not in plain:
                raise UsageError(f"state[{name!r}] is not part of the job's state, which another script has begun: attach "
                                 "the same things on every worker")
            value = _join(plain[name], {path: tensor.clone() for path, tensor in tensors.items()})
            with torch.no_grad():
                thing.load_state_dict(value)
        self.arrived = {}
        self.plain, self.tensors = self._now()
        self._remember()

    def read(self, plain: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """From a checkpoint."""
        missing = [name for name in self._things if name not in plain]
        if missing:
            raise UsageError(f"the checkpoint has no state[{missing[0]!r}]: it was saved without it")
        self.arrived = dict(tensors)
        self.load(plain)

    def storages(self) -> List[int]:
        """Where its tensors are, and what is kept to compare them with."""
        return [t.untyped_storage().data_ptr() for t in (*self.tensors.values(), *self._values.values())]


__all__ = ["Extra", "Extras"]

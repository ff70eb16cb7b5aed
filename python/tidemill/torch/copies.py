"""Copies of the model that a script keeps beside the attached one, and that change while the job trains: averages of weights (EMA),
teachers, target networks, the best weights so far.

They are looked for among all of Python's objects, after some steps of a process, more and more seldom: modules; lists, tuples and maps with a tensor for each
parameter, or for each that is trained; one flat vector of all. Some elements of what was found are compared a step later, and again after some more. A
copy that is made anew each time is followed by the variable, attribute or closure that has it.
"""

from __future__ import annotations

import gc
import types
from collections import deque
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from tidemill.errors import UsageError
from tidemill.torch.generators import script_frames
from tidemill.torch.guards import WRAPPERS, some_of

_LOOKS = (2, 20, 200, 2000, 20000)  # applied steps of this process
_COMPARES = (1, 8)  # so many steps after a look
_EACH = 256  # elements of a tensor that are compared
_MOST = 4096  # copies that are compared
_LIST_MIN = 4  # tensors that a list must have to be taken for a copy of the model
_FLAT_MIN = 64  # elements of a flat one
_NEAR = 0.5  # relative distance from the weights: what is farther is no average of them (gradients, differences)

Read = Callable[[], Any]


def _is_plain(thing: Any) -> bool:
    """A tensor whose values are here."""
    return type(thing) in (torch.Tensor, nn.Parameter) and thing.device.type != "meta" and thing.layout == torch.strided


class _Likeness:
    """What a copy of the model looks like: of all parameters, or of the trained ones."""

    def __init__(self, params: Sequence[Any]) -> None:
        self.tensors = [p.tensor for p in params]
        self.names = [p.name for p in params]
        self.kinds = [(t.shape, t.dtype) for t in self.tensors]
        self.elements = sum(t.numel() for t in self.tensors)

    def of(self, thing: Any) -> Optional[List[torch.Tensor]]:
        """The tensors of a thing that looks like this, in the order of the parameters."""
        count = len(self.names)
        if isinstance(thing, torch.Tensor):
            same = _is_plain(thing) and thing.dim() == 1 and thing.numel() == self.elements >= _FLAT_MIN and thing.is_floating_point()
            return [thing] if same and not (thing.requires_grad and thing.is_leaf) else None
        if isinstance(thing, (list, tuple, deque)):
            found = list(thing) if len(thing) == count >= _LIST_MIN else []
        elif isinstance(thing, dict):
            found = self._of_map(thing) if len(thing) >= count else []
        elif isinstance(thing, nn.Module):
            found = list(thing.parameters())
        else:
            return None
        alike = len(found) == count and count and all(_is_plain(t) for t in found)
        return found if alike and [(t.shape, t.dtype) for t in found] == self.kinds else None

    def _of_map(self, thing: Dict[Any, Any]) -> List[Any]:
        for start in ("", "module.", "model.", "_orig_mod."):
            if start + self.names[0] in thing:
                return [thing.get(start + name) for name in self.names]
        return list(thing.values()) if len(thing) == len(self.names) >= _LIST_MIN else []


def _samples(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Some elements of all of them, where they are: one row, which is not taken for a flat vector of a small model."""
    return torch.cat([some_of(t, _EACH).reshape(1, -1).float() for t in tensors], dim=1)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Memory that nobody has filled is NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _holders(things: Sequence[Any], frames: Sequence[Any]) -> Dict[int, List[Read]]:
    """By id: where things are kept, so that what is kept there later can be asked for."""
    out: Dict[int, List[Read]] = {id(thing): [] for thing in things}
    for frame in frames:
        for name, value in frame.f_locals.items():
            if id(value) in out:
                out[id(value)].append(lambda frame=frame, name=name: frame.f_locals.get(name))
    for holder in gc.get_referrers(*things):
        if isinstance(holder, types.CellType):
            out[id(holder.cell_contents)].append(lambda holder=holder: holder.cell_contents)
            continue
        table = holder if isinstance(holder, dict) else _attributes_of(holder)
        if isinstance(table, dict) and table is not out:
            for key, value in list(table.items()):
                if id(value) in out:
                    out[id(value)].append(lambda table=table, key=key: table.get(key))
    return out


def _attributes_of(holder: Any) -> Any:
    try:
        return holder.__dict__
    except Exception:  # noqa: BLE001  # it has none, or is a proxy of something that is not there
        return None


class _Copy:
    """One that was found."""

    def __init__(self, name: str, thing: Any, like: Optional[_Likeness], tensors: List[torch.Tensor]) -> None:
        self.name, self._like, self._thing = name, like, thing
        self._before = _samples(tensors)
        self._reads: List[Read] = []

    @property
    def is_like(self) -> bool:
        """The model."""
        return self._like is not None

    @property
    def thing(self) -> Any:
        """As it was found."""
        return self._thing

    def follow(self, reads: List[Read]) -> None:
        """What is in its place later is this copy, too."""
        self._reads = reads[:8]

    def _tensors(self, thing: Any) -> Optional[List[torch.Tensor]]:
        return self._like.of(thing) if self._like is not None else [t for t in thing.parameters() if _is_plain(t)]

    def changed(self, snapshots: Sequence[torch.Tensor]) -> bool:
        """In place; or its place has another now, which is near the weights, and not just those of a step."""
        now = self._tensors(self._thing)
        if now is not None and not _same(_samples(now), self._before):
            return True
        for read in self._reads:
            try:
                thing = read()
            except ValueError:  # an empty cell
                continue
            if thing is self._thing or type(thing) is not type(self._thing):
                continue
            tensors = self._tensors(thing)
            if tensors is not None and self._is_average(_samples(tensors), tensors, snapshots):
                return True
        return False

    def _is_average(self, now: torch.Tensor, tensors: List[torch.Tensor], snapshots: Sequence[torch.Tensor]) -> bool:
        assert self._like is not None
        weights = self._like.tensors if len(tensors) == len(self._like.tensors) else [torch.cat([t.detach().reshape(-1) for t in self._like.tensors])]
        here = _samples(weights).to(now.device)
        if _same(now, self._before) or _same(now, here) or any(_same(now, one.to(now.device)) for one in snapshots if one.shape == now.shape):
            return False
        return bool((now - here).norm() < _NEAR * here.norm())


def _kind_of(kind: type) -> str:
    if kind is torch.Tensor:
        return "tensor"
    for parent, name in ((nn.Module, "module"), (dict, "dict"), (list, "list"), (tuple, "list"), (deque, "list")):
        if issubclass(kind, parent) and (parent in (nn.Module, dict) or kind is parent):
            return name
    return ""


class Copies:
    """Looks for them during the life of a process."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._found: List[_Copy] = []
        self._frozen: List[Tuple[Any, torch.Tensor]] = []
        self._last: List[torch.Tensor] = []  # elements of the weights of the step before a comparison
        self._steps = 0

    def after_step(self, sums: Any) -> None:
        """A step was applied. sums: of gradients, which are like the model and ours."""
        self._steps += 1
        since = [self._steps - look for look in _LOOKS]
        if 0 in since:
            self._look(sums)
        elif any(one in _COMPARES for one in since):
            self._compare()
        if any(one + 1 in _COMPARES for one in since) and self._found:
            self._last = [_samples([p.tensor for p in params]) for params in self._likenesses()]

    def _likenesses(self) -> List[List[Any]]:
        params = [p for unit in self._state.units for p in unit.params]
        trained = [p for p in params if p.tensor.requires_grad]
        return [some for some in (params, trained if len(trained) < len(params) else []) if some]

    def _compare(self) -> None:
        for p, before in self._frozen:
            if not _same(_samples([p.tensor]), before):
                raise UsageError(
                    f"{p.name} is not trained, and changes while the job trains (a teacher or target network that follows the model): "
                    "workers make such weights by themselves, so that one that joins would have others. Keep the network outside of the "
                    "attached model, attach it (attach(..., state={\"target\": target})), and change it in job.on_commit")
        for copy in self._found:
            if copy.changed(self._last):
                raise UsageError(
                    f"{copy.name} and changes while the job trains (an average of weights, a teacher, the best weights so far): such "
                    "state is not part of the job, and a worker that joins would begin it anew. Attach it (attach(..., "
                    "state={NAME: thing}) with state_dict and load_state_dict), and change it in job.on_commit")

    def _look(self, sums: Any) -> None:
        attached = set(self._state.extras.storages())
        frozen = [p for unit in self._state.units for p in unit.params if not p.tensor.requires_grad]
        self._frozen = [(p, _samples([p.tensor])) for p in frozen
                        if p.tensor.numel() and p.tensor.untyped_storage().data_ptr() not in attached]
        params = [p.tensor for unit in self._state.units for p in unit.params]
        places = {p.untyped_storage().data_ptr() for p in params}  # views of the model's own tensors, and our sums
        places |= {*attached, *sums.storages()}
        self._found = []
        for name, thing, like, tensors in self._candidates(params):
            if len(self._found) < _MOST and not any(t.untyped_storage().data_ptr() in places for t in tensors):
                self._found.append(_Copy(name, thing, like, tensors))
        followed = [copy for copy in self._found if copy.is_like]
        if followed:
            places_of = _holders([copy.thing for copy in followed], list(script_frames()))
            for copy in followed:
                copy.follow(places_of[id(copy.thing)])

    def _candidates(self, params: Sequence[torch.Tensor]) -> Iterator[Tuple[str, Any, Optional[_Likeness], List[torch.Tensor]]]:
        likes = [_Likeness(some) for some in self._likenesses()]
        ours = {id(m) for m in self._state.model.modules()}
        moments = {id(value) for kept in self._state.optimizer.state.values() for value in kept.values()}
        beside: List[nn.Module] = []
        found: List[Tuple[str, Any, Optional[_Likeness], List[torch.Tensor]]] = []
        sizes = {len(like.names) for like in likes}
        least = min(sizes, default=0)
        kinds: Dict[type, str] = {}
        for thing in gc.get_objects():  # hundreds of thousands
            kind = type(thing)
            what = kinds.get(kind)
            if what is None:
                what = kinds[kind] = _kind_of(kind)
            if not what or (what == "list" and len(thing) not in sizes) or (what == "dict" and len(thing) < least):
                continue
            if what == "module":
                if id(thing) not in ours and "_parameters" in thing.__dict__:
                    beside.append(thing)
                continue
            for like in likes:
                tensors = like.of(thing) if id(thing) not in moments else None
                if tensors is not None:
                    name = "a flat vector" if what == "tensor" else f"a {kind.__name__} of {len(thing)} tensors"
                    found.append((f"{name} is like the model", thing, like, tensors))
                    break
        yield from self._modules(beside, likes, params)
        yield from found

    def _modules(self, beside: Sequence[nn.Module], likes: Sequence[_Likeness],
                 params: Sequence[torch.Tensor]) -> Iterator[Tuple[str, Any, Optional[_Likeness], List[torch.Tensor]]]:
        """Not those that are parts of others beside."""
        parts: Set[int] = {id(part) for module in beside for part in module.modules() if part is not module}
        for module in beside:
            tensors = [t for t in module.parameters() if _is_plain(t)]
            if id(module) in parts or not tensors:
                continue
            kind = type(module).__name__
            like = next((one for one in likes if one.of(module) is not None), None)
            if like is not None and kind in WRAPPERS and tensors[0] is params[0]:
                raise UsageError(f"the attached model is also wrapped by {kind}: use the plain model in the loop. {WRAPPERS[kind]}")
            yield (f"a {kind} beside the attached one is like the model" if like is not None else f"a {kind} is no part of the attached model"), module, like, tensors


__all__ = ["Copies"]

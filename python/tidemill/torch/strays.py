"""State that a script keeps beside what it attached: found where scripts are known to keep it.

Numbers and tensors that are plain attributes of a module (a counter of forward passes, an average without a buffer), or
buffers of a loss function, are compared after the first micro-batch of a process was given to the loop twice: what is not the
same again is a state of this process, which no other worker has. Schedules that step unattached and optimizers that count in
their own attributes are found when they do it.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any, Dict, Iterator, List, Set, Tuple

import torch
from torch import nn

from tidemill.errors import UsageError
from tidemill.torch.generators import script_frames

_COMPARED = 1 << 20  # elements of tensors, at most
_WHOLE = "the model"
_WATCHED = 64  # micro-batches of this process
_MODULES = 300  # of a model, whose numbers are read with every step
_COUNTED_STEPS = 3  # of an optimizer, of this process
_KNOWN = ("_step_count", "_opt_called")  # numbers that torch's schedulers put on an optimizer

Place = Tuple[str, str]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


class Strays:
    """What the attached model, and the modules in the script's variables, keep beside parameters and buffers."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._own = {id(m) for m in state.model.modules()}
        self._modules: List[Tuple[str, nn.Module]] = [(name or _WHOLE, m) for name, m in state.model.named_modules()]
        self._looked = False
        self._watched = 0
        self._schedules: List[Tuple[Any, int]] = []
        self._steps = 0
        self._numbers: Dict[str, Any] = {}

    # -- modules --

    def look(self) -> None:
        """In the loop: modules of the script that are not attached, such as its loss function."""
        if self._looked:
            return
        self._looked = True
        self._follow_schedules()
        attached = self._state.extras
        for frame in script_frames():
            for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
                if isinstance(value, nn.Module) and id(value) not in self._own and not attached.holds(value):
                    for part, module in value.named_modules():
                        if id(module) not in self._own:
                            self._own.add(id(module))
                            self._modules.append((f"{name}.{part}".rstrip("."), module))

    def watching(self) -> bool:
        """In the first micro-batches of this process, of which this is one."""
        self._watched += 1
        return self._watched <= _WATCHED

    def read(self) -> Dict[Place, Any]:
        """Numbers and tensors as they are now."""
        out: Dict[Place, Any] = {}
        room = _COMPARED
        mine = {id(m) for m in self._state.model.modules()}
        for name, module in self._modules:
            if any(kind.__module__.startswith("torchmetrics") for kind in type(module).__mro__):
                continue  # what is only logged
            things = dict(module.__dict__)
            if id(module) not in mine:
                things.update(module._buffers)
            for key, value in things.items():
                if _is_number(value):
                    out[name, key] = value
                elif type(value) is torch.Tensor and value.device.type != "meta" and value.numel() <= room:
                    room -= value.numel()
                    out[name, key] = value.detach().clone()
        return out

    # -- what functions set --

    @contextlib.contextmanager
    def watched(self, name: str) -> Iterator[None]:
        """Around functions given to job.`name`: numbers of modules that they set are this process's own, and one that comes later has those that it was made with.
        What the model does when it is called there (sizes that it keeps) is none of that."""
        self._hooked += 1
        if self._compiled or (len(self._modules) > _MODULES and self._hooked > _WATCHED):
            yield
            return
        self._ran, before = False, self._numbers_of_model()
        hook = nn.modules.module.register_module_forward_pre_hook(self._runs)
        try:
            yield
        finally:
            hook.remove()
        if not self._ran:
            self._check_set(name, before)

    def _runs(self, *_: Any) -> None:
        self._ran = True

    @property
    def _compiled(self) -> bool:
        """It would be compiled anew for a hook."""
        return any("_orig_mod" in m._modules or getattr(m, "_compiled_call_impl", None) is not None for m in self._state.model.modules())

    def _check_set(self, name: str, before: Dict[Place, Any]) -> None:
        now = self._numbers_of_model()
        odd = next((place for place in now if now[place] != before.get(place, now[place])), None)
        if odd is not None and not self._state.extras.tells(now[odd]):
            raise UsageError(f"the attribute {odd[1]!r} of {odd[0] if odd[0] == _WHOLE else f'the module {odd[0]}'} is set in a function given to job.{name} "
                             f"({before[odd]!r}, then {now[odd]!r}): a worker that joins begins with what the module was made with. Set it in the loop, for every micro-batch, "
                             "as a function of job.committed_step; or attach what keeps it (attach(..., state={NAME: thing})), whose load_state_dict sets it")

    def _numbers_of_model(self) -> Dict[Place, Any]:
        attached = self._state.extras
        return {(name, key): value for name, module in self._modules if not attached.holds(module)
                for key, value in module.__dict__.items() if _is_number(value)}

    _hooked, _ran = 0, False
    @staticmethod
    def differ(now: Dict[Place, Any], before: Dict[Place, Any]) -> List[Place]:
        """Where they do."""
        def same(a: Any, b: Any) -> bool:
            if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
                return (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
                        and a.device == b.device and bool(torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)))
            return type(a) is type(b) and (a == b or (a != a and b != b))

        return [place for place in now if not same(now[place], before.get(place))]

    def probed(self, first: Dict[Place, Any], second: Dict[Place, Any]) -> None:
        """One micro-batch was given to the loop twice."""
        odd = self.differ(second, first)
        if not odd:
            return
        name, key = odd[0]
        was, now = first.get(odd[0]), second[odd[0]]
        where = name if name == _WHOLE else f"the module {name}"
        told = "" if isinstance(now, torch.Tensor) or isinstance(was, torch.Tensor) else f" ({was!r}, then {now!r})"
        raise UsageError(
            f"the attribute {key!r} of {where} has another value each time that a micro-batch is computed{told}: it is a count or "
            "an average that only this process has, and a worker that joins, or a step that is done again, would have another. "
            "Compute it from job.committed_step, or attach what keeps it (attach(..., state={NAME: thing}) with state_dict and "
            "load_state_dict) and change it in job.on_commit")

    # -- schedules --

    def _follow_schedules(self) -> None:
        """Once: schedules of the attached optimizer that are not attached themselves."""
        state = self._state
        kind = torch.optim.lr_scheduler.LRScheduler
        found = [s for s in gc.get_objects()
                 if issubclass(type(s), kind) and getattr(s, "optimizer", None) is state.optimizer]
        known: Set[int] = set()
        for schedule in [state.scheduler, *state.extras.things(kind)]:
            known |= {id(part) for part in _parts(schedule)}
        self._schedules = [(weakref.ref(s), getattr(s, "last_epoch", 0)) for s in found if id(s) not in known]

    def check_schedules(self) -> None:
        """With every commit."""
        for reference, before in self._schedules:
            schedule = reference()
            if schedule is not None and getattr(schedule, "last_epoch", before) != before:
                name = type(schedule).__name__
                raise UsageError(f"a {name} of the attached optimizer steps and is not attached: a worker that joins would begin "
                                 "it anew. Attach it (attach(model, optimizer, scheduler)), and leave its steps to Tidemill; or "
                                 f"attach(..., state={{\"{name}\": scheduler}}) and step it in job.on_commit")

    # -- the optimizer --

    def before_update(self) -> None:
        """An optimizer's own attributes, before its step."""
        self._numbers = {}
        if self._steps < _COUNTED_STEPS:
            self._steps += 1
            self._numbers = {k: v for k, v in self._state.optimizer.__dict__.items() if _is_number(v) and k not in _KNOWN}

    def after_update(self) -> None:
        """After it."""
        for key, before in self._numbers.items():
            now = self._state.optimizer.__dict__.get(key)
            if now != before:
                raise UsageError(
                    f"{type(self._state.optimizer).__name__} counts in its attribute {key!r} ({before!r}, then {now!r}), which is "
                    "neither in its state nor in its parameter groups: a worker that joins would not have it. Keep it in "
                    "self.state[p] or in group[...], as torch's optimizers do")


def _parts(schedule: Any) -> Iterator[Any]:
    """A schedule and those inside it (SequentialLR, ChainedScheduler)."""
    if schedule is None:
        return
    yield schedule
    for part in getattr(schedule, "_schedulers", ()) or ():
        yield from _parts(part)


__all__ = ["Strays"]

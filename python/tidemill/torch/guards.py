"""What a script must not do in Tidemill's loop: refused by name instead of silently training the wrong thing.

A worker that joins, and a step that is redone, know only the attached model, optimizer and schedule. So code that changes
these from elsewhere, or keeps state beside them, is an error. The cost per step is a pass over the parameters' version
counters and the optimizer's settings; in the first steps of a process some of the weights are compared, too.

What cannot be detected: tensors and numbers that the script keeps in an unusual form, late changes through `.data`, and schedule
functions that depend on something other than the step (doc/pytorch.md).
"""

from __future__ import annotations

import functools
import linecache
import math
import sys
import types
import warnings
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from tidemill.errors import UsageError

_FIRST_STEPS = 20  # of this process: the longest that we wait for an update that must be visible
_COMPARED = 4 << 20  # elements that are compared, at most
_SAMPLED, _SAMPLED_EACH = 1 << 18, 1 << 13  # elements of parameters that are compared in the first steps, about, and of each at most
WRAPPERS = {
    "DistributedDataParallel": "Tidemill adds the gradients up by itself",
    "DataParallel": "give each worker one device",
    "FullyShardedDataParallel": "fully_shard(module, mesh=job.mesh) or attach(..., shard=\"full\") shards weights, gradients and the "
                                "optimizer's state",
    "FSDPModule": "tidemill.torch.Pipeline cuts a model by itself",
}
_KEPT_STEP = "_wrapped_by_lr_sched"


def _kinds(thing: Any) -> Set[str]:
    return {kind.__name__ for kind in type(thing).__mro__}


# ---- when a model is attached ----


def check_model(model: nn.Module) -> None:
    """Refuses wrappers that exchange or shard by themselves, and tensors whose bytes are elsewhere."""
    for name, module in model.named_modules():
        for kind in sorted(_kinds(module) & set(WRAPPERS)):
            what = f"its part {name} is" if name else "it is"
            raise UsageError(f"the model cannot be attached: {what} wrapped by {kind}. Attach the plain model without it: "
                             f"{WRAPPERS[kind]}")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        _check_tensor(name, tensor)


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if "UninitializedTensorMixin" in _kinds(tensor):
        raise UsageError(f"{name} has no shape yet (a lazy module): run one batch through the model before attach")
    if tensor.device.type == "meta":
        raise UsageError(f"{name} is on the meta device and has no values: build the model on a real device, or call "
                         "model.to_empty(device=...) and initialise it before attach (reset_parameters of its modules, or a checkpoint; "
                         "init has set the seed). Also with attach(shard=\"full\"): every worker has the whole model at its start, and its "
                         "shard from then on")
    own = getattr(kind, "__torch_dispatch__", None)
    if kind.__name__ == "DTensor" or own not in (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl):
        raise UsageError(f"{name} is a {kind.__name__}, of which this process may hold a part only (fully_shard, tensor "
                         "parallelism): attach the plain model; attach(..., shard=\"full\"), or fully_shard(module, mesh=job.mesh), shards "
                         "it over workers that come and go")
    if tensor.layout != torch.strided:
        raise UsageError(f"{name} is a tensor of layout {tensor.layout}: use dense ones")


_SHELLS = {  # wrappers that add nothing to a step which Tidemill does not do itself: (module, class, where the plain one is)
    "AcceleratedOptimizer": ("accelerate", "optimizer"),
    "LightningOptimizer": ("lightning", "_optimizer"),
    "AcceleratedScheduler": ("accelerate", "scheduler"),
}


def _inside(thing: Any) -> Any:
    package, where = _SHELLS.get(type(thing).__name__, ("", ""))
    if not package or not type(thing).__module__.startswith((package, "pytorch_" + package)):
        return None
    return getattr(thing, where, None)


def plain_optimizer(optimizer: Any) -> Any:
    """Without the shells of Accelerate and Lightning, whose steps then do what the plain one's do: nothing, in the loop."""
    inner = _inside(optimizer)
    if inner is not None and getattr(optimizer, "scaler", None) is not None:
        raise UsageError("the optimizer was prepared by an Accelerator with mixed_precision=\"fp16\", which steps it by a scaler of "
                         "its own: use \"bf16\", or autocast and a GradScaler with attach(..., scaler=scaler)")
    return optimizer if inner is None else plain_optimizer(inner)


def plain_scheduler(scheduler: Any) -> Any:
    """As plain_optimizer. Accelerate's counts steps beside the plain one's: it no longer does."""
    inner = _inside(scheduler)
    if inner is None:
        return scheduler
    scheduler.step = lambda *words, **named: None
    return plain_scheduler(inner)


_SUMS = ("AddBackward0", "SubBackward0")  # whose terms may each be divided
_UNCHANGED = ("ToCopyBackward0", "ViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "CloneBackward0", "AliasBackward0")
_MEANS = ("MeanBackward0", "NllLossBackward0", "NllLoss2DBackward0", "MseLossBackward0", "L1LossBackward0", "SmoothL1LossBackward0",
          "HuberLossBackward0", "BinaryCrossEntropyWithLogitsBackward0", "BinaryCrossEntropyBackward0", "KlDivBackward0")
_TERMS = 16  # of a sum, at most


def _divided(last: Any) -> Optional[Tuple[float, Any]]:
    """By what number an operation divides, and what."""
    kind = type(last).__name__
    if kind not in ("DivBackward0", "MulBackward0"):
        return None
    other = getattr(last, "_saved_other", None)
    if not isinstance(other, torch.Tensor) or other.numel() != 1 or other.device.type != "cpu" or other.requires_grad:
        return None
    value = float(other)
    if not value:
        return None
    return (value if kind == "DivBackward0" else round(1.0 / value, 9)), last.next_functions[0][0]


def _terms(last: Any) -> List[Any]:
    """What a loss is the sum of; numbers have no part in it."""
    open_, out = [last], []
    while open_ and len(out) < _TERMS:
        one = open_.pop()
        kind = type(one).__name__
        if kind in _SUMS or kind in _UNCHANGED:
            open_ += [below for below, _ in one.next_functions if below is not None]
        elif one is not None:
            out.append(one)
    return out + open_


def divided_by(loss: torch.Tensor, micro_batches: int) -> Optional[float]:
    """What the loss, or each term of it, was divided by, where that looks like a number of micro-batches: it is the job's, or a whole
    number that a mean was divided by. (Halves are a part of many losses.)"""
    found = [_divided(term) for term in _terms(loss.grad_fn)]
    if not found or found[0] is None or any(one is None or one[0] != found[0][0] for one in found):
        return None
    by = found[0][0]
    if by == micro_batches:
        return by
    weighed = any(type(term).__name__ == "MulBackward0" for term in _terms(loss.grad_fn))  # 0.1 * loss: a weight
    means = all(type(one[1]).__name__ in _MEANS and getattr(one[1], "_saved_reduction", 1) == 1 for one in found if one is not None)
    return by if means and not weighed and by == int(by) and by > 2 else None


_WEIGHED = ("MulBackward0", "DivBackward0", "StackBackward0", "CatBackward0", "MeanBackward0", "MeanBackward1")  # sums of these may be means


def _is_sum(term: Any) -> bool:
    """Of a loss by sample or by element, and not of a few numbers."""
    kind = type(term).__name__
    if kind in ("SumBackward0", "SumBackward1"):
        sizes, below = getattr(term, "_saved_self_sym_sizes", ()), term.next_functions[0][0]
        return math.prod(map(int, sizes)) > 1 and type(below).__name__ not in _WEIGHED
    return kind in _MEANS and getattr(term, "_saved_reduction", 1) == 2


def is_summed(loss: torch.Tensor) -> bool:
    """Is the loss, but for weights of its other terms, a sum over samples?"""
    whole = False  # a term has no weight
    for term in _terms(loss.grad_fn):
        weighed = False
        for _ in range(_TERMS):
            if type(term).__name__ == "NegBackward0":
                term = term.next_functions[0][0]
            elif type(term).__name__ == "MulBackward0" and _divided(term) is not None:
                term, weighed = term.next_functions[0][0], True
        if not _is_sum(term):
            return False
        whole = whole or not weighed
    return whole


def check_optimizer(optimizer: Any) -> None:
    """Refuses wrappers: the optimizer's own step must change its own parameter groups."""
    kind = type(optimizer)
    if kind.__name__ == "ZeroRedundancyOptimizer":
        raise UsageError("the optimizer is a ZeroRedundancyOptimizer, whose shards no worker that joins could have: attach the plain "
                         "optimizer with attach(..., shard=\"optimizer\"), which shards its state over workers that come and go")
    inner = wrapped_in(optimizer, torch.optim.Optimizer)
    if inner is not None or any(isinstance(getattr(kind, key, None), property) for key in ("param_groups", "state")):
        what = f" around {type(inner).__name__}" if inner is not None else ""
        raise UsageError(f"the optimizer is a {kind.__module__}.{kind.__name__}, a wrapper{what} whose steps Tidemill cannot "
                         "take over: attach the plain torch.optim.Optimizer that it was given")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"attach(model, optimizer): the optimizer is a {kind.__name__}; combine several into one with "
                         "parameter groups")
    step = optimizer.__dict__.get("step")
    if step is not None and not hasattr(step, _KEPT_STEP):
        raise UsageError(f"the step of this {kind.__name__} was replaced by something else ({step!r}): attach an optimizer "
                         "whose own step is used")
    check_hooks(optimizer)


def check_hooks(optimizer: Any) -> None:
    """Refuses hooks on steps: they may keep state that no other worker has."""
    for key in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        for hook in getattr(optimizer, key, None) or ():
            hook = getattr(optimizer, key)[hook]
            if type(getattr(hook, "__self__", None)).__module__.partition(".")[0] == "tidemill":
                continue  # the profiler's
            name = f"register{key[len('_optimizer'):-1]}"
            raise UsageError(f"the optimizer has a hook ({name}: {getattr(hook, '__qualname__', hook)}), whose state would "
                             "not go with the job: use job.after_step for what only looks on, and the optimizer's own step "
                             "for what changes weights")


def check_scheduler(scheduler: Any, optimizer: Any) -> None:
    """Refuses schedules that do not count steps, are of another optimizer, or wrap another schedule."""
    if scheduler is None:
        return
    name = type(scheduler).__name__
    if name == "ReduceLROnPlateau":
        raise UsageError("ReduceLROnPlateau depends on what was measured, not on the step: use a schedule of steps")
    plain = torch.optim.lr_scheduler.LRScheduler
    if not isinstance(scheduler, plain) and wrapped_in(scheduler, plain) is not None:
        raise UsageError(f"the scheduler is a {name}, a wrapper around another one: attach the plain scheduler that it was "
                         "given")
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise UsageError(f"the scheduler ({name}) was made for another optimizer than the attached one: make it with the "
                         "optimizer that is attached")
    for part in [scheduler, *(getattr(scheduler, "_schedulers", None) or ())]:
        for rate in getattr(part, "lr_lambdas", None) or ():  # an object's state is part of the schedule's: a function's is not
            if isinstance(rate, types.FunctionType) and rate(1) != rate(1):
                raise UsageError(f"the function of the scheduler ({type(part).__name__}) gives another rate when it is asked again for the same step: "
                                 "it keeps a count, which a worker that joins would not have. Compute it from the step that it is given")


def _lengths(scheduler: Any, begin: int = 0) -> Iterator[Tuple[str, str, int]]:
    """(schedule, what says so, the step at which it ends) of a schedule and its parts."""
    name = type(scheduler).__name__
    for key in ("T_max", "total_steps", "total_iters"):
        length = getattr(scheduler, key, None)
        if isinstance(length, int):
            yield name, f"{key}={length}", begin + length
    for rate in getattr(scheduler, "lr_lambdas", None) or ():  # get_cosine_schedule_with_warmup and others of Transformers
        length = getattr(rate, "keywords", {}).get("num_training_steps") if isinstance(rate, functools.partial) else None
        if isinstance(length, int):
            yield name, f"num_training_steps={length}", begin + length
    begins = [0, *(getattr(scheduler, "_milestones", None) or ())]
    for number, part in enumerate(getattr(scheduler, "_schedulers", None) or ()):
        yield from _lengths(part, begin + (begins[number] if number < len(begins) else 0))


def warn_of_length(scheduler: Any, steps: int, micro_batches: int) -> None:
    """A schedule with as many steps as the job has micro-batches (epochs * len(loader)) would not come to its end."""
    whole = steps * micro_batches
    for name, what, end in _lengths(scheduler) if micro_batches > 1 and scheduler is not None else ():
        if abs(end - whole) <= max(micro_batches, whole // 50) and end > 1.5 * steps:
            warnings.warn(f"{name}({what}) is as long as the job has micro-batches ({whole} = {steps} steps of {micro_batches}): the attached schedule "
                          "steps once per step of the optimizer, so the job would end long before the schedule does. len(loader) counts "
                          "micro-batches: give the schedule the job's steps (job.steps)", stacklevel=3)
            return


def wrapped_in(thing: Any, kind: type) -> Any:
    """An object of this kind that the thing keeps in its attributes, or in a list or map there."""
    for value in list(getattr(thing, "__dict__", {}).values()):
        found = [value]
        if isinstance(value, (list, tuple)):
            found = list(value)
        elif isinstance(value, dict):
            found = list(value.values())
        for one in found:
            if isinstance(one, kind) and one is not thing:
                return one
    return None


# ---- what must stand still between steps ----


def _settings(optimizer: Any) -> List[Dict[str, Any]]:
    """All settings of the parameter groups; tensors by object and version, to avoid waiting for a GPU."""
    return [{k: (v, v._version) if isinstance(v, torch.Tensor) else v for k, v in group.items() if k != "params"}
            for group in optimizer.param_groups]


def _members(optimizer: Any) -> List[Tuple[int, int]]:
    return [(id(group["params"]), len(group["params"])) for group in optimizer.param_groups]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and a and isinstance(a[0], torch.Tensor):
        return isinstance(b, tuple) and len(a) == len(b) == 2 and a[0] is b[0] and a[1] == b[1]
    return type(a) is type(b) and (a is b or bool(a == b))


class _Places:
    """A module's map of its parameters, or of its parts that have parameters."""

    def __init__(self, table: Any, parts: bool) -> None:
        self._table, self._count, self._parts = table, len(table), parts
        self._things = [(key, thing) for key, thing in table.items()
                        if thing is not None and not (parts and next(thing.parameters(), None) is None)]

    def as_it_was(self) -> bool:
        """Are the same things in it?"""
        table = self._table
        return len(table) == self._count and all(table.get(key) is thing for key, thing in self._things)

    @property
    def gone(self) -> List[Any]:
        """Parameters that are no longer in it."""
        return [] if self._parts else [thing for key, thing in self._things if self._table.get(key) is not thing]


def _structure(model: nn.Module) -> List[_Places]:
    return [_Places(table, parts) for module in model.modules() for table, parts in ((module._parameters, False), (module._modules, True))]


class _Values:
    """Some elements of parameters as they were: what is written through `.data` changes no counter."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._left = _FIRST_STEPS
        self._kept: List[Tuple[int, torch.Tensor]] = []

    def keep(self) -> None:
        """Until the next step, in the first steps of this process."""
        trained = [index for index, tensor in enumerate(self._tensors) if tensor.requires_grad] if self._left > 0 else []
        self._left -= 1
        self._each = max(16, min(_SAMPLED_EACH, _SAMPLED // max(1, len(trained))))
        self._kept = [(index, some_of(self._tensors[index], self._each).clone()) for index in trained]

    def forget(self) -> None:
        """Nobody will ask."""
        self._kept = []

    def changed(self) -> Optional[int]:
        """Which of them has other values now. A GPU is waited for once."""
        kept = [(index, some_of(self._tensors[index], self._each), before) for index, before in self._kept]
        kept = [(index, now, before) for index, now, before in kept if now.device == before.device]
        if not kept:
            return None
        alike = [_equal(now, before) for _, now, before in kept]
        same = torch.stack([one.to(alike[0].device) for one in alike]).tolist()
        return next((index for (index, _, _), one in zip(kept, same) if not one), None)


def some_of(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """Elements from all over a parameter, without a copy."""
    some = tensor.detach()
    while some.numel() > most:
        axis = max(range(some.dim()), key=some.size)
        some = some[(slice(None),) * axis + (slice(None, None, max(2, math.isqrt(some.numel() // most))),)]
    return some


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """NaN is not unlike itself."""
    if a.shape != b.shape:
        return torch.tensor(False)
    return ((a == b) | ((a != a) & (b != b))).all()


class Watch:
    """Watches one model and its optimizer: between steps only a restore may change them."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._params: List[Any] = [p for unit in state.units for p in unit.params]
        self._tensors = [p.tensor for p in self._params]
        self._values = _Values(self._tensors)
        self._buffers: List[Any] = [b for unit in state.units for b in unit.buffers]
        self._moved = False
        self._steps = 0
        self._before: List[Tuple[Any, torch.Tensor]] = []
        self._flags = [t.requires_grad for t in self._tensors]
        self._members = _members(state.optimizer)
        self._optimizer_state = state.optimizer.state
        self._structure = _structure(state.model)
        stepped = {id(p) for group in state.optimizer.param_groups for p in group["params"]}
        self._untrained = [p for p in self._params if not p.tensor.requires_grad and id(p.tensor) in stepped]
        self._follows = False
        self.remember()

    def follow_settings(self) -> None:
        """Settings that are no tensors are looked after by LoopSettings."""
        self._follows = True

    def forget(self) -> None:
        """Gives memory back: it is not asked again before the next `remember`."""
        self._values.forget()

    def remember(self) -> None:
        """Accepts the current state: a step was committed, or state came from another worker."""
        self._versions = self.versions()
        self._known = _settings(self._state.optimizer)
        self._moments = self.moments()
        if self._state.shards is None:  # weights in shards come and go
            self._values.keep()

    def changed_since(self, versions: Sequence[Any], moments: Sequence[Any]) -> Dict[str, torch.Tensor]:
        """By name: what has other versions than these."""
        out: Dict[str, torch.Tensor] = {}
        everything = [*zip((p.name for p in self._params), self._tensors), *((b.name, b.tensor()) for b in self._buffers)]
        for (name, tensor), before, now in zip(everything, versions, self.versions()):
            if before != now:
                out[name] = tensor.detach()
        for p, before, now in zip(self._params, moments, self.moments()):
            if before != now:
                kept = self._optimizer_state[p.tensor] if p.tensor in self._optimizer_state else {}
                out.update({f"the optimizer's {key} of {p.name}": v for key, v in kept.items() if isinstance(v, torch.Tensor)})
        return out

    def versions(self) -> List[Any]:
        """Of parameters and buffers, as they are."""
        now: List[Any] = [t._version for t in self._tensors]
        for buffer in self._buffers:
            tensor = buffer.tensor()
            now.append((id(tensor), tensor._version))
        return now

    def moments(self) -> List[List[Tuple[int, int]]]:
        """What the optimizer keeps of each parameter; with shards it comes and goes."""
        if self._state.shards is not None:
            return []
        states = self._optimizer_state
        return [[(id(v), v._version) for v in states[p].values() if isinstance(v, torch.Tensor)] if p in states else []
                for p in self._tensors]

    def _check_moments(self) -> None:
        if self._state.step < 0 or not self._moments:
            return
        for p, was, now in zip(self._params, self._moments, self.moments()):
            if was != now and (len(now) < len(was) or any(a[0] == b[0] and a[1] != b[1] for a, b in zip(was, now))):
                raise UsageError(
                    f"the optimizer's state of {p.name} was changed outside of its step (momentum that is set to zero, state that is cleared): "
                    "a worker that joins, or a step that is done again, would not have the change. Change it in a function given to "
                    "job.on_commit, which is part of the step")

    def _check_structure(self) -> None:
        """The model still has the parameters that were attached, and no others to train."""
        odd = [row for row in self._structure if not row.as_it_was()]
        if not odd:
            return
        attached, there = {id(t) for t in self._tensors}, dict(self._state.model.named_parameters(remove_duplicate=False))
        new = next((name for name, p in there.items() if p.requires_grad and id(p) not in attached), None)
        found = {id(p) for p in there.values()}
        moved = {id(p) for row in odd for p in row.gone}  # a wrapper around a part leaves its own map alone
        lost = next((p.name for p in self._params if id(p.tensor) not in found or id(p.tensor) in moved), None)
        if new is None and lost is None:
            self._structure = _structure(self._state.model)
            return
        what = f"the parameter {lost} is no longer where it was in the model" if lost is not None else f"the model has a new parameter, {new},"
        raise UsageError(
            f"{what} since attach (a layer that was replaced or added, load_state_dict(assign=True), pruning, a parametrization, weights tied "
            "late): what the forward pass uses would not be what is trained. Do all of that before attach, and before the optimizer is made")

    def check(self) -> None:
        """Before a step is applied: checks that nothing else has changed since the last one."""
        self._check_structure()
        self._check_moments()
        if self._state.optimizer.state is not self._optimizer_state:
            raise UsageError("the optimizer's state was replaced (optimizer.load_state_dict) after attach: begin from a "
                             "checkpoint with attach(..., start=FOLDER)")
        self._check_settings()
        flags = [t.requires_grad for t in self._tensors]
        if flags != self._flags:
            name = next(p.name for p, a, b in zip(self._params, flags, self._flags) if a != b)
            raise UsageError(f"requires_grad of {name} was changed after attach: which parameters are trained is settled "
                             "there. To train a part later, give it a parameter group whose schedule begins with a rate of 0")
        strange = next((p for p in self._untrained if p.tensor.grad is not None), None)
        if strange is not None:
            raise UsageError(f"{strange.name} was not trained when it was attached (requires_grad), and has a gradient now, which is this worker's "
                             "own: which parameters are trained is settled in attach. To train a part later, give it a parameter group whose "
                             "schedule begins with a rate of 0")
        if self._state.step < 0:  # a restore that came meanwhile is none of ours
            return
        now = self.versions()
        index = next((i for i, (a, b) in enumerate(zip(now, self._versions)) if a != b), None)
        if index is None and self._state.shards is None:
            index = self._values.changed()
        if index is not None:
            count = len(self._params)
            what = self._params[index].name if index < count else self._buffers[index - count].name
            raise UsageError(
                f"{'the parameter' if index < count else 'the buffer'} {what} was changed outside of the attached optimizer's "
                "step (by hand, also through .data, by a callback, by load_state_dict after attach, or by a layer such as "
                "nn.Embedding(max_norm=...)): a worker that joins, or a step that is done again, would not have the change. "
                "Load weights before attach, and leave them to the optimizer in the loop; what is done to them once a step, such as "
                "clamping, belongs in a function given to job.on_commit")

    def _check_settings(self) -> None:
        optimizer = self._state.optimizer
        check_hooks(optimizer)
        if _members(optimizer) != self._members:
            raise UsageError("the optimizer's parameter groups were changed after attach (add_param_group): give it all "
                             "parameters before; a part that is trained later gets a schedule that begins with a rate of 0")
        for number, (new, old) in enumerate(zip(_settings(optimizer), self._known)):
            for key in [*old, *(k for k in new if k not in old)]:
                if self._follows and not any(isinstance(v, tuple) and v and isinstance(v[0], torch.Tensor)
                                             for v in (new.get(key), old.get(key))):
                    continue
                if key not in new or key not in old or not _same(new[key], old[key]):
                    raise UsageError(_settings_text(number, key, old.get(key), new.get(key)))

    # -- the first update --

    def before_update(self) -> None:
        """Keeps values to compare: an optimizer that changes nothing would train nothing, and finish."""
        self._before = []
        if self._moved or self._steps >= _FIRST_STEPS:
            return
        self._steps += 1
        room = _COMPARED
        for group in self._state.optimizer.param_groups:
            rate = float(group.get("lr") or 0.0)
            for param in group["params"]:
                if rate > 0.0 and 0 < param.numel() <= room and _must_move(param, rate):
                    room -= param.numel()
                    self._before.append((param, param.detach().clone()))

    def after_update(self) -> None:
        """Checks that parameters with a gradient have changed."""
        if not self._before:
            return
        self._moved = any(not torch.equal(param, before) for param, before in self._before)
        self._before = []
        if not self._moved:
            name = type(self._state.optimizer).__name__
            raise UsageError(f"the step of {name} has changed no parameter though they had gradients and the learning rate "
                             "is not 0: the model would never learn. Attach the plain optimizer that holds the model's own "
                             "parameters, and whose own step changes them")


def _must_move(param: torch.Tensor, rate: float) -> bool:
    """Is the gradient so large that any rule must change a digit of the parameter? (Tiny updates are lost in rounding.)"""
    if param.grad is None or not param.dtype.is_floating_point:
        return False
    gradient, weight = float(param.grad.detach().abs().max()), float(param.detach().abs().max())
    return min(rate, rate * gradient) > 16 * torch.finfo(param.dtype).eps * weight


def _settings_text(number: int, key: str, old: Any, new: Any) -> str:
    def show(value: Any) -> str:
        value = value[0] if isinstance(value, tuple) and value and isinstance(value[0], torch.Tensor) else value
        return "nothing" if value is None else str(float(value)) if isinstance(value, torch.Tensor) else repr(value)

    return (f"{key!r} of the optimizer's parameter group {number} was changed from {show(old)} to {show(new)} outside of the "
            "attached schedule: a counter of the loop is not the job's step once a worker has left or joined. Attach a "
            "schedule instead, such as LambdaLR(optimizer, lambda step: get_lr(step) / base_lr) of "
            "torch.optim.lr_scheduler (attach(model, optimizer, scheduler)), and do not touch param_groups in the loop")


# ---- state beside the model ----


def check_begun(optimizer: Any) -> None:
    """Refuses an optimizer that has stepped: the script has loaded a checkpoint of its own."""
    if not isinstance(optimizer, torch.optim.Optimizer) or optimizer in loaded:
        return
    for state in optimizer.state.values():
        steps = state.get("step", 0)
        if float(steps) > 0 or state.get("momentum_buffer") is not None:
            raise UsageError(
                f"the {type(optimizer).__name__} that is attached has stepped before: the script loads a checkpoint of its own, or trains "
                "before attach. A job goes on by itself from its last committed step, and a worker that began elsewhere would not fit in: "
                "leave the loading out. To begin from other weights load them into the model alone, the same on every worker, before "
                "attach; to begin from another job's checkpoint with its optimizer say attach(..., start=FOLDER) with a folder of job.save")


def check_again(first: torch.Tensor, second: torch.Tensor, share: Sequence[int], tolerance: float) -> None:
    """Losses of the job's first step, computed twice."""
    for number in share:
        was, now = float(first[number]), float(second[number])
        if abs(was - now) > tolerance * max(1.0, abs(was)):
            raise UsageError(
                f"micro-batch {number} of the first step was computed twice, with the same weights, samples and random numbers, and its "
                f"loss was {was:.8g}, then {now:.8g}: the loop keeps something from one micro-batch to the next that the loss depends on "
                "(a counter for a weight of the loss, hidden states, a memory bank, a teacher). A worker that joins, or a step that is "
                "done again, would have another. Compute it from job.committed_step; or attach what keeps it (attach(..., state={NAME: "
                "thing}) with state_dict and load_state_dict) and change it in job.on_commit. Where the computation itself is not the "
                "same twice, and you want that, say try_twice=False to init (or to ElasticTrainer, Accelerator, TidemillStrategy)")


def check_gradients_again(first: Dict[str, float], second: Dict[str, float], tolerance: float) -> None:
    """Sizes of gradients of the job's first step, computed twice: by parameter."""
    whole = max([abs(size) for size in first.values() if math.isfinite(size)], default=0.0)
    for name, was in first.items():
        now = second.get(name, was)
        if math.isfinite(was) and abs(was - now) > tolerance * max(abs(was), 1e-3 * whole):
            raise UsageError(
                f"the first step was computed twice, with the same weights, samples and random numbers, and its losses were the same, but "
                f"the gradient of {name} was not (size {was:.8g}, then {now:.8g}): a hook on gradients (Tensor.register_hook) or a backward "
                "pass of the script's own depends on how often it was called. A worker that joins, or a step that is done again, would have "
                "another. Compute it from job.committed_step. Where the computation itself is not the same twice, and you want that, say "
                "try_twice=False to init (or to ElasticTrainer, Accelerator, TidemillStrategy)")


# ---- what torch offers, and is wrong inside the loop ----

_in_loop: List[Any] = []  # weak references of jobs whose loop runs; more than one only where one was left
loaded: "weakref.WeakSet[Any]" = weakref.WeakSet()  # optimizers whose state import_dcp has read, the same on every worker
_ours: "weakref.WeakSet[Any]" = weakref.WeakSet()  # optimizers that a job steps


def enter(job: Any) -> None:
    """The job's loop begins."""
    _install()
    _in_loop.append(weakref.ref(job))


def leave(job: Any) -> None:
    """The job's loop has ended."""
    _in_loop[:] = [r for r in _in_loop if r() is not None and r() is not job]


def own(optimizer: Any) -> None:
    """A job, or a trial for one, steps this optimizer."""
    _ours.add(optimizer)


def _current() -> Any:
    """The job whose loop runs, or None."""
    for reference in reversed(_in_loop):
        job = reference()
        if job is not None:
            return job
    return None


def _running() -> bool:
    return _current() is not None


def _on_step(optimizer: Any, *_: Any) -> None:
    if optimizer not in _ours and _running():
        raise UsageError(f"another optimizer ({type(optimizer).__name__}) steps inside the job's loop: its weights and state "
                         "are not part of the job, and a worker that joins would not have them. Put all parameters into the "
                         "attached optimizer, as parameter groups")


def _refusing(owner: Any, name: str, text: str, only: Callable[..., bool] = lambda *_: True) -> None:
    before = getattr(owner, name, None)
    if before is None:
        return

    def call(*words: Any, **named: Any) -> Any:
        if _running() and only(*words):
            raise UsageError(text)
        return before(*words, **named)

    call.__name__ = call.__qualname__ = name
    setattr(owner, name, call)


_installed = False


def _install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    from torch.amp.grad_scaler import GradScaler
    from torch.nn.utils import clip_grad
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    from torch.optim.swa_utils import AveragedModel

    register_optimizer_step_pre_hook(_on_step)
    _follow_averages(AveragedModel)
    scaled = ("GradScaler is used in the job's loop and was not attached: say attach(..., scaler=scaler), and its scale becomes "
              "part of the job's state; its calls in the loop may stay")
    for name in ("scale", "unscale_", "step"):
        _refusing(GradScaler, name, scaled, lambda scaler, *_: scaler.is_enabled())
    _follow_clips(clip_grad)
    _watch_backward()


def _follow_averages(kind: Any) -> None:
    """update_parameters of an attached average: once a step, when the weights have moved."""
    before = kind.update_parameters

    def update_parameters(self: Any, model: nn.Module) -> None:
        job = _current()
        if job is None or job._committing:
            before(self, model)
            return
        extras = getattr(job._state, "extras", None)
        if extras is None or not extras.holds(self):
            raise UsageError("torch.optim.swa_utils.AveragedModel is updated in the job's loop and was not attached: say "
                             "attach(..., state={\"ema\": ema}), and it becomes part of the job's state")
        if job._step is None:  # the next micro-batch begins with nothing asked for
            raise UsageError("AveragedModel.update_parameters is called between two steps (job.after_step, a metric), where it would be part of "
                             "neither: call it in the loop, which updates the average once a step, or in a function given to job.on_commit")
        job._settings.updates[extras.name_of(self)] = lambda: before(self, model)

    kind.update_parameters = update_parameters


def _clipping_job() -> Any:
    """The job in whose loop something is clipped, or None."""
    job = _current()
    return None if job is None or job._step is None or not hasattr(job, "_settings") else job


def _take_clip(job: Any, parameters: Any, max_norm: float, kind: float) -> None:
    given = {id(parameters)} if isinstance(parameters, torch.Tensor) else {id(p) for p in parameters}
    trained = {id(p.tensor) for p in job._state.params if p.tensor.requires_grad}
    if kind != 2.0 or not trained <= given or job._clip not in (None, float(max_norm)):
        raise UsageError("clip_grad_norm_ in the job's loop clips the gradient of the whole batch, when the step is applied: "
                         "give it all parameters of the model and the 2-norm, and the same norm as attach(..., clip=MAX_NORM) "
                         "where that is said too")
    job._settings.clip = float(max_norm)


def _last_norm(job: Any) -> torch.Tensor:
    return torch.tensor(0.0 if job.last_norm is None else job.last_norm)


def _follow_clips(module: Any) -> None:
    """clip_grad_norm_ in the loop: the norm of the whole batch is clipped when the step is applied."""
    norm_type: List[float] = [2.0]
    norm_before, clip_before = getattr(module, "_get_total_norm", None), getattr(module, "_clip_grads_with_norm_", None)
    if norm_before is None or clip_before is None:
        _follow_whole_clips(module)
        return

    def total_norm(tensors: Any, kind: float = 2.0, *words: Any, **named: Any) -> Any:
        job = _clipping_job()
        norm_type[0] = float(kind)
        return norm_before(tensors, kind, *words, **named) if job is None else _last_norm(job)

    def clip(parameters: Any, max_norm: float, norm: Any, *words: Any, **named: Any) -> None:
        job = _clipping_job()
        if job is None:
            clip_before(parameters, max_norm, norm, *words, **named)
        else:
            _take_clip(job, parameters, max_norm, norm_type[0])

    module._get_total_norm, module._clip_grads_with_norm_ = total_norm, clip


def _follow_whole_clips(module: Any) -> None:
    """Before torch 2.6 it is one function, which scripts have imported by its name: what it calls is replaced."""
    for cell in module.clip_grad_norm_.__closure__ or ():
        if callable(cell.cell_contents):
            before = cell.cell_contents
            break
    else:
        return

    def clip(parameters: Any, max_norm: float, norm_type: float = 2.0, *words: Any, **named: Any) -> Any:
        job = _clipping_job()
        if job is None:
            return before(parameters, max_norm, norm_type, *words, **named)
        given = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
        _take_clip(job, given, max_norm, float(norm_type))
        return _last_norm(job)

    cell.cell_contents = clip


def _watch_backward() -> None:
    """loss.backward() that was left in the loop, by its line."""
    before = torch.Tensor.backward

    def backward(self: torch.Tensor, *words: Any, **named: Any) -> None:
        before(self, *words, **named)
        job = _current()
        if job is None or job._in_backward or job._step is None or job._sums is None or not job._sums.altered():
            return
        raise UsageError(f"{_line_of_script()}: loss.backward() in the job's loop, outside of job.backward(loss): write "
                         "job.backward(loss) there, once a micro-batch, so that the loss and the gradient are known as this "
                         "micro-batch's")

    torch.Tensor.backward = backward  # type: ignore[method-assign]


def _line_of_script() -> str:
    """The innermost line that is no library's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("torch", "tidemill", "accelerate", "lightning", "pytorch_lightning", "transformers"):
            break
        frame = frame.f_back
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}: `{text}`" if text else f"{frame.f_code.co_filename}:{frame.f_lineno}"


__all__ = ["WRAPPERS", "Watch", "check_again", "check_begun", "check_gradients_again", "check_model", "check_optimizer", "check_scheduler", "divided_by", "enter", "is_summed", "leave", "own",
           "plain_optimizer", "plain_scheduler", "some_of", "warn_of_length"]

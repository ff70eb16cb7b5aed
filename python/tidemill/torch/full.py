"""Fully sharded data parallel (ZeRO-3, as FSDP): a worker keeps weights, gradients and optimizer's state of its own layers only.

As with shards.py a layout of D pipelines of P stages is D replicas of P shards. A unit is a module whose weights are used together (a block
of a transformer). Before its forward pass, and again in the backward pass, those that hold its weights send them to the others of the
pipeline; afterwards they are freed. Its gradients go to their holders as soon as they are there, and over the replicas once a step.
What a worker holds are whole layers, so that they move, are copied and restored as ever, whatever the number of shards.

A round is one micro-batch of every worker of a pipeline: all do the same exchanges in the same order. A worker that has fewer
micro-batches takes part without computing, by the order that the others have; whoever does not know it yet is told.

When a worker is gone nothing is raised in the script's own code, which could not go on: the rest of the micro-batch is computed with zeros
and thrown away. Weights that are not here are NaN: what reads them outside of their unit's forward pass shows at once.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from tidemill.errors import UsageError
from tidemill.session import Work
from tidemill.torch.group import Group, StepCancelled
from tidemill.torch.shards import Shards
from tidemill.torch.state import Layer, ModelState, Param

_END = -1
_IN_FLIGHT = 4  # sums of gradients
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)

_OUTSIDE = ("the model was called outside of the job's micro-batches, where its weights are in shards (attach(shard=\"full\"), "
            "fully_shard): evaluate after the loop, or in job.after_step(FUNCTION, whole=100), when every worker has them all")
_ORDER = ("the parts of the model were not used in the same order in every micro-batch ({}): with weights in shards "
          "(attach(shard=\"full\"), fully_shard) all workers exchange them in one order. Use attach(shard=\"optimizer\"), or shard the "
          "part that varies as one")
_TWICE = ("{} got its gradient in two parts in one backward pass (torch.utils.checkpoint with use_reentrant=True does that): with weights "
          "in shards say use_reentrant=False")


class Unit:
    """Weights that are gathered and freed together."""

    def __init__(self, number: int, name: str, module: nn.Module, keep: bool) -> None:
        self.number, self.name, self.module = number, name, module
        self.keep = keep  # from its forward pass to its backward pass
        self.params: List[Param] = []
        self.buckets: List["Bucket"] = []
        self.begin()

    def begin(self) -> None:
        """A round begins."""
        self.open = self.used = self.reduced = False
        self.fired: Set[int] = set()


class Bucket:
    """The parameters of a unit that are of one kind and held by one stage: they are sent together."""

    def __init__(self, unit: Unit, stage: int, params: List[Param]) -> None:
        self.unit, self.stage, self.params = unit, stage, params
        self.dtype, self.device = params[0].tensor.dtype, params[0].tensor.device
        self.count = sum(p.tensor.numel() for p in params)
        self.flat: Optional[torch.Tensor] = None  # weights that were gathered

    def views(self, flat: torch.Tensor) -> Iterator[Tuple[Param, torch.Tensor]]:
        """Each parameter with its part of the flat tensor."""
        at = 0
        for p in self.params:
            n = p.tensor.numel()
            yield p, torch.as_strided(flat, p.slot.shape, p.slot.stride, at)
            at += n


# ---- which weights are used together ----


def units_in(model: nn.Module) -> Dict[nn.Module, bool]:
    """Where the script does not say: the members of lists of modules, such as blocks of a transformer."""
    found: Dict[nn.Module, bool] = {}

    def walk(module: nn.Module, listed: bool) -> None:
        if listed and not isinstance(module, _CONTAINERS):
            if any(p.requires_grad for p in module.parameters()):
                found.setdefault(module, False)
            return
        for child in module.children():
            walk(child, isinstance(module, _CONTAINERS))

    walk(model, False)
    return found


def _assign(state: ModelState, plan: Mapping[nn.Module, bool]) -> List[Unit]:
    """Parameters to units: the nearest module of the plan around them; what several share is the whole model's."""
    root = Unit(0, "(root)", state.model, True)
    units, of = [root], {id(state.model): root}
    owners: Dict[int, List[Unit]] = {}
    seen: Set[Tuple[int, int]] = set()

    def walk(name: str, module: nn.Module, unit: Unit) -> None:
        if module in plan and module is not state.model:
            if id(module) not in of:
                of[id(module)] = Unit(len(units), name, module, plan[module])
                units.append(of[id(module)])
            unit = of[id(module)]
        if (id(module), unit.number) in seen:
            return
        seen.add((id(module), unit.number))
        for param in module._parameters.values():
            if param is not None and unit not in owners.setdefault(id(param), []):
                owners[id(param)].append(unit)
        for key, child in module.named_children():
            walk(f"{name}.{key}".lstrip("."), child, unit)

    walk("", state.model, root)
    for layer in state.layers:
        for p in layer.trained:
            mine = owners[id(p.tensor)]
            (mine[0] if len(mine) == 1 else root).params.append(p)
    return units


# ---- weights ----


class FullShards(Shards):
    """Which weights are here, and how those of the others come and go."""

    def __init__(self, state: ModelState, plan: Optional[Mapping[nn.Module, bool]], in_backward: Callable[[], bool]) -> None:
        super().__init__(state)
        self.units = _assign(state, units_in(state.model) if plan is None else plan)
        self._in_backward = in_backward
        self._unit_of = {id(p.tensor): (unit, p) for unit in self.units for p in unit.params}
        self._stage_of: Dict[int, int] = {}
        self._layer_of = {id(p): layer for layer in state.layers for p in layer.trained}
        self._here = {id(p) for p in self._layer_of_params()}  # weights in memory of their own
        self._nothing: Dict[Any, torch.Tensor] = {}
        self._flats: Dict[int, Bucket] = {}
        self.replicas: Optional[Group] = None
        self.sums: Any = None
        self.rounds = Rounds(self)
        self.strange = False  # a backward pass that is not the job's
        self._everything = False
        self._check_compiled()
        for unit in self.units:
            self._hook(unit)
        for unit in self.units:
            for p in unit.params:
                p.tensor.register_post_accumulate_grad_hook(self._fired)
        self._bucket()

    def _layer_of_params(self) -> List[Param]:
        return [p for layer in self._state.layers for p in layer.trained]

    def _check_compiled(self) -> None:
        for name, module in self._state.model.named_modules():
            if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
                raise UsageError(f"attach(shard=\"full\"): {name or 'the model'} is compiled, and weights that come and go are not "
                                 "supported there: leave torch.compile out, or use attach(shard=\"optimizer\")")

    # -- which are held --

    def forget_state(self) -> None:
        """As Shards; the weights stay until it is known which are held."""
        for layer in self._state.layers:
            Shards.drop(self, layer)

    def hold(self, layer: Layer) -> None:
        """Weights of the layer are about to come."""
        for p in layer.trained:
            if id(p) not in self._here:
                self._here.add(id(p))
                p.tensor.data = torch.empty_strided(p.slot.shape, p.slot.stride, dtype=p.slot.dtype, device=p.tensor.device)

    def drop(self, layer: Layer) -> None:
        super().drop(layer)
        self._free(layer)

    def _free(self, layer: Layer) -> None:
        for p in layer.trained:
            if id(p) in self._here:
                self._here.discard(id(p))
                self._away(p)

    def _away(self, p: Param) -> None:
        """Every element is NaN, and takes no memory."""
        key = (p.slot.dtype, p.tensor.device)
        if key not in self._nothing:
            self._nothing[key] = torch.full((), float("nan"), dtype=key[0], device=key[1])
        p.tensor.data = self._nothing[key].expand(p.slot.shape)

    def take(self, work: Work) -> None:
        super().take(work)
        self.rounds.abandon()
        for layer in self._state.layers:
            if layer.number not in self.held:
                self._free(layer)

    def renew(self, group: Group, replicas: Group) -> None:
        """A generation begins."""
        self.group, self.replicas = group, replicas
        self._bucket()

    def _bucket(self) -> None:
        """Buckets of all units, for the layers that each stage holds now."""
        for stage in range(len(self._first) - 1):
            for number in range(self._first[stage], self._first[stage + 1]):
                self._stage_of[number] = stage
        for unit in self.units:
            kinds: Dict[Any, List[Param]] = {}
            for p in unit.params:
                kinds.setdefault((self._stage_of[self._layer_of[id(p)].number], str(p.tensor.dtype)), []).append(p)
            unit.buckets = [Bucket(unit, key[0], kinds[key]) for key in sorted(kinds)]

    def holds(self, bucket: Bucket) -> bool:
        """Is this worker one that has it for good?"""
        return bucket.stage == self._stage

    # -- what all workers have --

    def _shared(self, layer: Layer) -> List[torch.Tensor]:
        if self._everything:
            return super()._shared(layer)
        trained = {id(p) for p in layer.trained}
        out: List[torch.Tensor] = [p.tensor for p in layer.params if id(p) not in trained]
        out += [b.tensor() for b in layer.buffers]
        return out if layer.scales is None else [*out, layer.scales]

    def gather_all(self, wanted: bool) -> bool:
        """All weights on every worker, where one of them wants it. StepCancelled, where one is gone."""
        flag = torch.tensor([int(wanted)])
        if self.group is not None:
            self.group.wait(self.group.all_reduce(flag))
        if not int(flag[0]):
            return False
        self._everything = True
        for layer in self._state.layers:
            self.hold(layer)
        try:
            self.gather()
        except StepCancelled:
            self.free_others()
            raise
        return True

    def free_others(self) -> None:
        """Weights that are not held."""
        self._everything = False
        for layer in self._state.layers:
            if layer.number not in self.held:
                self._free(layer)

    def gather_result(self, step: int) -> bool:
        """As Shards: after the loop every worker has all weights."""
        self.rounds.abandon()
        self._everything = True
        for layer in self._state.layers:
            self.hold(layer)
        whole = super().gather_result(step)
        if not whole:
            self.free_others()
        return whole

    # -- hooks --

    def _hook(self, unit: Unit) -> None:
        if unit.number == 0 or not unit.params:  # the root's weights are here for the whole micro-batch
            return

        def before(*_: Any) -> None:
            self.need(unit)
            hooks.append(_saved_by(self))

        def after(module: Any, words: Any, output: Any) -> None:
            with_hooks = hooks.pop() if hooks else None
            if with_hooks is not None:
                with_hooks.__exit__(None, None, None)
            if not torch.is_grad_enabled() or output is None:
                self._after_forward(unit)
                return
            for tensor in tree_leaves(output):
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                    tensor.register_hook(lambda _: self._before_backward(unit))
            self._after_forward(unit)

        hooks: List[Any] = []
        unit.module.register_forward_pre_hook(before, prepend=True)  # before what casts the weights (plan.py)
        unit.module.register_forward_hook(after, always_call=True)

    def _before_backward(self, unit: Unit) -> None:
        if not unit.reduced and self.rounds.active:
            self.need(unit)

    def _after_forward(self, unit: Unit) -> None:
        if self.rounds.active and not unit.keep and not self._in_backward():
            self.release(unit)

    def need(self, unit: Unit) -> None:
        """The weights of a unit, here and now."""
        unit.used = True
        if unit.open:
            return
        if not self.rounds.active:
            if any(id(p) not in self._here for p in unit.params):
                raise UsageError(_OUTSIDE)
            return
        unit.open = True
        if not self.rounds.void:
            try:
                self.rounds.event(2 * unit.number)
                self.fetch(unit)
                return
            except StepCancelled:
                self.rounds.void = True
        for bucket in unit.buckets:
            if not self.holds(bucket):
                self._fill(bucket, torch.zeros(bucket.count, dtype=bucket.dtype, device=bucket.device))

    def fetch(self, unit: Unit) -> None:
        """The exchange itself. Weights arrive in memory of their own, which an abandoned group may still write to."""
        group = self.group
        if group is None or group.size == 1:
            return
        waiting: List[Tuple[Bucket, torch.Tensor, Any]] = []
        with torch.no_grad():
            for bucket in unit.buckets:
                flat = torch.empty(bucket.count, dtype=bucket.dtype, device=bucket.device)
                if self.holds(bucket):
                    for p, view in bucket.views(flat):
                        view.copy_(p.tensor)
                waiting.append((bucket, flat, group.broadcast(flat, bucket.stage)))
            for bucket, flat, work in waiting:
                group.wait(work)
                if not self.holds(bucket):
                    self._fill(bucket, flat)

    def _fill(self, bucket: Bucket, flat: torch.Tensor) -> None:
        bucket.flat = flat
        self._flats[flat.untyped_storage().data_ptr()] = bucket
        for p, view in bucket.views(flat):
            p.tensor.data = view

    def release(self, unit: Unit) -> None:
        """What is not held goes."""
        unit.open = False
        for bucket in unit.buckets:
            if bucket.flat is not None:
                self._flats.pop(bucket.flat.untyped_storage().data_ptr(), None)
                bucket.flat = None
                for p in bucket.params:
                    if id(p) not in self._here:
                        self._away(p)

    # -- tensors that autograd keeps --

    def pack(self, tensor: torch.Tensor) -> Any:
        """A view of gathered weights is kept as its place."""
        bucket = self._flats.get(tensor.untyped_storage().data_ptr())
        if bucket is None or tensor.dtype != bucket.dtype:
            return tensor
        return (bucket, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def unpack(self, kept: Any) -> torch.Tensor:
        """And is looked up when it is used: in the backward pass its unit is here."""
        if isinstance(kept, torch.Tensor):
            return kept
        bucket, shape, stride, offset = kept
        if bucket.flat is None:
            bucket.unit.open = False
            self.need(bucket.unit)
        assert bucket.flat is not None
        return torch.as_strided(bucket.flat, shape, stride, offset)

    # -- gradients --

    def _fired(self, tensor: torch.Tensor) -> None:
        unit, p = self._unit_of[id(tensor)]
        if not self._in_backward():
            self.strange = True
            return
        if not self.rounds.active:
            return
        if unit.reduced:
            raise UsageError(_TWICE.format(p.name))
        unit.fired.add(id(p))
        if len(unit.fired) == len(unit.params):
            self._reduce(unit)

    def _reduce(self, unit: Unit) -> None:
        unit.reduced = True
        if not self.rounds.void:
            try:
                self.rounds.event(2 * unit.number + 1)
                self.give(unit, True)
            except StepCancelled:
                self.rounds.void = True
        for p in unit.params:
            p.tensor.grad = None
        if unit.number:
            self.release(unit)

    def give(self, unit: Unit, real: bool) -> None:
        """The exchange of its gradients, which goes on while others are computed."""
        for bucket in unit.buckets:
            flat = self.sums.packed(bucket) if real else self.sums.zeros(bucket)
            work = None if self.group is None else self.group.reduce(flat, bucket.stage)
            self.rounds.waiting.append((bucket, flat, work))
        self.rounds.settle(_IN_FLIGHT)

    def flush(self) -> None:
        """After a backward pass: units of which not all parameters were used."""
        for unit in self.units:
            if unit.fired and not unit.reduced:
                self._reduce(unit)

    def unused(self) -> Optional[str]:
        """A unit whose forward pass was not called in this micro-batch."""
        return next((u.name for u in self.units[1:] if u.params and not u.used), None)


def _saved_by(shards: FullShards) -> Any:
    """Inside of a checkpoint (torch.utils.checkpoint) its own hooks stay on top: they keep nothing, or what is used soon."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    found = top(True) if top is not None else None
    if found is not None and getattr(found[0], "__self__", None) is not shards:
        return None
    hooks = torch.autograd.graph.saved_tensors_hooks(shards.pack, shards.unpack)
    hooks.__enter__()
    return hooks


# ---- rounds ----


class Rounds:
    """One order of exchanges for all workers of a pipeline."""

    def __init__(self, shards: FullShards) -> None:
        self._shards = shards
        self._plan: Optional[List[int]] = None
        self.active = self.void = False
        self.waiting: List[Tuple[Bucket, torch.Tensor, Any]] = []
        self._seen: List[int] = []
        self._leader, self._told = 0, False

    @property
    def _group(self) -> Optional[Group]:
        group = self._shards.group
        return None if group is None or group.size == 1 else group

    def begin(self, real: bool) -> bool:
        """Begins a round. real: with a micro-batch of this worker. False: nobody has one."""
        self.abandon()
        self._seen = []
        group = self._group
        if group is not None:
            flags = torch.zeros(2, group.size, dtype=torch.int32)
            flags[0, group.rank], flags[1, group.rank] = int(real), int(self._plan is not None)
            group.wait(group.all_reduce(flags))
            if not int(flags[0].sum()):
                return False
            self._leader, self._told = int(flags[0].argmax()), int(flags[1].sum()) < group.size
        elif not real:
            return False
        self.active, self.void = True, False
        for unit in self._shards.units:
            unit.begin()
        return True

    def abandon(self) -> None:
        """Whatever was begun is over."""
        self.active, self.waiting = False, []
        for unit in self._shards.units:
            self._shards.release(unit)

    def event(self, code: int) -> None:
        """This worker comes to an exchange, 2 x unit, or 2 x unit + 1 for gradients."""
        group = self._group
        if group is None:
            return
        at = len(self._seen)
        self._seen.append(code)
        if self._plan is not None and code != (self._plan[at] if at < len(self._plan) else _END):
            raise self._disorder(code)
        if self._told and self._tell(code) != code:
            raise self._disorder(code)

    def _disorder(self, code: int) -> UsageError:
        return UsageError(_ORDER.format("its end" if code == _END else self._shards.units[code // 2].name or "the whole"))

    def _tell(self, code: int) -> int:
        group = self._group
        assert group is not None
        word = torch.tensor([code], dtype=torch.int64)
        group.wait(group.broadcast(word, self._leader))
        return int(word)

    def settle(self, most: int) -> None:
        """Waits until at most so many sums are on their way."""
        while len(self.waiting) > most:
            bucket, flat, work = self.waiting.pop(0)
            if work is not None and self._group is not None:
                self._group.wait(work)
            if self._shards.holds(bucket):
                self._shards.sums.add(bucket, flat)

    def end(self) -> None:
        """The micro-batch is computed. StepCancelled, where a worker is gone."""
        if self.void:
            self.abandon()
            raise StepCancelled("a peer is gone")
        if self._group is not None:
            self.event(_END)
            self._plan = self._seen[:]
        self.settle(0)
        self.abandon()

    def follow(self) -> bool:
        """A round without a micro-batch of this worker's. False: nobody has one."""
        if not self.begin(False):
            return False
        at = 0
        while True:
            code = self._tell(0) if self._told else (self._plan or [])[at]
            at += 1
            self._seen.append(code)
            if code == _END:
                break
            unit = self._shards.units[code // 2]
            if code % 2:
                self._shards.give(unit, False)
            else:
                self._shards.fetch(unit)
                self._shards.release(unit)
        self._plan = self._seen
        self.settle(0)
        self.abandon()
        return True


__all__ = ["Bucket", "FullShards", "Rounds", "Unit", "units_in"]

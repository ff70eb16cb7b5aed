"""Elastic pipelines: a model given as a list of layers, in D pipelines of P stages that change while it runs.

    job = tidemill.torch.init(steps=1000, batch=64, micro_batch=8, seed=1)
    pipeline = tidemill.torch.Pipeline(job, [Embedding, Block, Block, Head], loss=loss_of,
                                       optimizer=lambda layer: torch.optim.AdamW(layer.parameters(), lr=1e-3))
    pipeline.train(dataset)

Each entry of the list is one of Tidemill's layers (the job's `layers` is their number), with its own optimizer and schedule.
A layer takes what the previous one returns: a tensor, or a tuple of tensors. Stages are consecutive layers. Activations and
their gradients go from stage to stage (one forward, one backward); gradients are summed over the replicas of a stage.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from tidemill import samples
from tidemill.errors import UsageError
from tidemill.session import APPLY, Work
from tidemill.torch import fixed_point, guards
from tidemill.torch.buffers import RunningStatistics, norms_of
from tidemill.torch.checkpoint import layer_names, write_index, write_layer
from tidemill.torch.data import MicroBatches
from tidemill.torch.follow import Follow
from tidemill.torch.group import Group, StepCancelled, Stopwatch
from tidemill.torch.job import Job
from tidemill.torch.seeds import seed_all
from tidemill.torch.staging import Staging
from tidemill.torch.state import Layer, ModelState, Param
from tidemill.torch.sums import FixedSums, FloatSums, Redo, TiedSums

_BUILD, _LAYER, _TIE = 3, 4, 5  # purposes of random numbers
_LAYERS_MAX = 4096
_HEADER = 64  # numbers that describe what is sent
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8)

LayerMaker = Callable[[], nn.Module]
Tensors = Tuple[torch.Tensor, ...]


class _Nothing:
    """The optimizer of a layer without parameters."""

    def __init__(self) -> None:
        self.state: Dict[Any, Any] = {}
        self.param_groups: List[Any] = []

    def step(self) -> None:
        pass


@dataclass(frozen=True)
class Tie:
    """A weight that two layers share: (layer, name of the parameter in it), twice."""

    first: Tuple[int, str]
    second: Tuple[int, str]


class _Stack:
    """All layers of the job; those that this worker does not hold take no memory if they can be created again."""

    def __init__(self, job: Job, makers: Sequence[Union[nn.Module, LayerMaker]], optimizer: Any, scheduler: Any,
                 ties: Sequence[Tie], tie_std: float, device: torch.device, compiled: Optional[Dict[str, Any]]) -> None:
        self._compiled = compiled
        self._job, self._makers, self._optimizer, self._scheduler = job, makers, optimizer, scheduler
        self._ties, self._tie_std, self._device = ties, tie_std, device
        self.staging = Staging(device)
        self._states: Dict[int, ModelState] = {}
        self._statistics: Dict[int, RunningStatistics] = {}
        self._sizes: List[int] = []
        self.husks: List[ModelState] = []
        self.follow: Any = None
        self.names: List[List[Tuple[str, int, int]]] = []
        digest = hashlib.blake2b(digest_size=8)
        for number in range(len(makers)):
            state = self._build(number)
            self._sizes.append(state.layers[0].size)
            self.names.append(layer_names(state.layers[0], f"layers.{number}."))
            digest.update(state.digest().encode())
            if isinstance(makers[number], nn.Module):
                self._states[number] = state
                state = self._build(number, state)
            self.husks.append(_husk(state))
        self.digest = digest.hexdigest()

    def _build(self, number: int, like: Optional[ModelState] = None) -> ModelState:
        """like: a copy of that one. The script's functions are not called for it: what they give is what is trained."""
        scale = fixed_point.start(2 * self._job.micro_batches) if self._job.bitwise else None
        if like is not None:
            module, optimizer, scheduler = copy.deepcopy((like.model, like.optimizer, like.scheduler))
        else:
            module, optimizer, scheduler = self._make(number)
        state = ModelState(module, optimizer, scheduler, scale, staging=self.staging)
        state.make_layers([state.units], number)
        return state

    def _make(self, number: int) -> Tuple[nn.Module, Any, Any]:
        """A layer with its optimizer and scheduler."""
        maker = self._makers[number]
        module = maker
        if not isinstance(maker, nn.Module):
            torch.manual_seed(samples.key_of(self._job.seed, 0, number, _BUILD))
            module = maker()
        assert isinstance(module, nn.Module)
        norms_of(module)
        self._begin_alike(number, module)
        module.to(self._device)
        has_params = next(module.parameters(), None) is not None
        optimizer = self._optimizer(module) if has_params else _Nothing()
        scheduler = self._scheduler(optimizer) if has_params and self._scheduler is not None else None
        return module, optimizer, scheduler

    def _begin_alike(self, number: int, module: nn.Module) -> None:
        """Both ends of a tie start with the same values: those of the first, or drawn for the tie."""
        for index, tie in enumerate(self._ties):
            for layer, name in (tie.first, tie.second):
                if layer != number:
                    continue
                weight = self._weight(layer, module, name)
                with torch.no_grad():
                    weight.copy_(self._tied_values(index, tie, weight))

    def _weight(self, number: int, module: nn.Module, name: str) -> nn.Parameter:
        params = dict(module.named_parameters())
        if name not in params:
            raise UsageError(f"tied: layer {number} has no parameter {name!r}; it has {', '.join(params) or 'none'}")
        return params[name]

    def _tied_values(self, index: int, tie: Tie, like: torch.Tensor) -> torch.Tensor:
        first = self._makers[tie.first[0]]
        if isinstance(first, nn.Module):
            return self._weight(tie.first[0], first, tie.first[1]).detach()
        drawn = torch.Generator().manual_seed(samples.key_of(self._job.seed, index, 0, _TIE))
        return torch.randn(like.shape, generator=drawn) * self._tie_std

    def module(self, number: int) -> nn.Module:
        return self._states[number].model

    def state(self, number: int) -> ModelState:
        return self._states[number]

    def layer(self, number: int) -> Layer:
        return self._states[number].layers[0]

    keeper = None  # of state of the script's own: there is none

    def statistics(self, number: int) -> RunningStatistics:
        """Of BatchNorm, for as long as the layer's module lives."""
        found = self._statistics.get(number)
        if found is None or found.model is not self.module(number):
            found = RunningStatistics(self.module(number), self._job.micro_batches, by_forward=True)
            self._statistics[number] = found
            if self._compiled is not None:
                self.module(number).compile(**self._compiled)
        return found

    def held(self, step: int) -> List[int]:
        return [n for n, s in sorted(self._states.items()) if s.layers[0].step == step]

    # -- the engine's side of tidemill.session --

    def layer_bytes(self, layer: int) -> int:
        if layer >= len(self._sizes):
            raise UsageError(f"the coordinator asks for layer {layer} of {len(self._sizes)}: say `layers: "
                             f"{len(self._sizes)}` in the job's file")
        return self._sizes[layer]

    def init_layer(self, layer: int, address: int, size: int) -> None:
        maker = self._makers[layer]
        state = self._states[layer] if isinstance(maker, nn.Module) else self._build_apart(layer)
        state.init_layer(0, address, size)

    def _build_apart(self, layer: int) -> ModelState:
        """Called by the library's thread while the script computes, so the state of random numbers is restored."""
        with torch.random.fork_rng(devices=[]):
            return self._build(layer)

    def read_layer(self, layer: int, address: int, size: int) -> None:
        self._states[layer].read_layer(0, address, size)

    def write_layer(self, layer: int, address: int, size: int) -> None:
        if layer not in self._states:
            self._states[layer] = self._build_apart(layer)
        self._states[layer].write_layer(0, address, size)

    def drop_layer(self, layer: int) -> None:
        if isinstance(self._makers[layer], nn.Module):
            self._states[layer].drop_layer(0)
        else:
            self._states.pop(layer, None)
            self._statistics.pop(layer, None)


class _PipelineFollow(Follow):
    """Layers of a pipeline that move while they are trained. A worker that has never had a layer follows it, too: by a husk of it, which
    has no values."""

    def __init__(self, owner: "Pipeline", husks: Sequence[ModelState]) -> None:
        super().__init__(owner._job, [husk.layers[0] for husk in husks])
        self._owner, self._husks = owner, husks
        self._statistics = [RunningStatistics(husk.model, owner._job.micro_batches, by_forward=True) for husk in husks]

    def _mine(self, layer: int) -> bool:
        return layer in self._owner._held and layer in self._owner._stack._states

    def state_of(self, layer: int) -> ModelState:
        return self._owner._stack.state(layer) if self._mine(layer) else self._husks[layer]

    def layer_of(self, layer: int) -> Layer:
        return self.state_of(layer).layers[0]

    def statistics_of(self, layer: int) -> Any:
        return self._owner._stack.statistics(layer) if self._mine(layer) else self._statistics[layer]

    def _kept(self, layer: int) -> bool:
        return False

    def _tied(self, p: Param) -> Optional[TiedSums]:
        return next((tied for tied in self._owner._tied if tied.has(p)), None)

    def gradient_of(self, layer: int, p: Param) -> torch.Tensor:
        tied = self._tied(p)
        assert self._owner._sums is not None
        return self._owner._sums.view_of(p) if tied is None else tied.gradient()

    def scale_of(self, layer: int, p: Param) -> Any:
        tied = self._tied(p)
        if tied is not None:
            return tied.scale()
        assert self._owner._sums is not None
        told = self._owner._sums.scale_of(p)
        return None if told is None else [*told, self._job.micro_batches]

    def settings_of(self, layer: int) -> Dict[str, Any]:
        if not self._mine(layer) or self._owner._sums is None:
            raise RuntimeError("the layer is not held here")
        return {"clip": self._job._clip, "value": None, "epoch": True, "overflow": False}


def _husk(state: ModelState) -> ModelState:
    """The state of a layer without its values."""
    state.watch.forget()
    for p in state.model.parameters():
        p.data = torch.empty(0, dtype=p.dtype, device=p.device)
    for module in state.model.modules():
        for key, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[key] = torch.empty_like(buffer, device=buffer.device)
    state.layers[0].initial = b""
    return state


class _Mail:
    """Tensors between stages, each with a header that says what it is. gloo takes them from the CPU's memory, NCCL from the GPU's: there
    each direction has a group of its own, for its operations between two workers happen in the order in which both have begun them."""

    def __init__(self, onward: Group, back: Group, place: torch.device) -> None:
        """place: where tensors are when they are sent."""
        self._groups, self._place = (onward, back), place  # even tags, odd tags
        self._sent: List[Tuple[Any, torch.Tensor, Group]] = []

    def send(self, tensors: Tensors, to: int, tag: int) -> None:
        header = [len(tensors)]
        for t in tensors:
            if t.dtype not in _DTYPES or t.dim() > 8:
                raise UsageError(f"a layer gives a tensor of {t.dtype} with {t.dim()} dimensions to the next stage: "
                                 "dimensions up to 8 and usual types can be sent")
            header += [_DTYPES.index(t.dtype), int(t.requires_grad), t.dim(), *t.shape]
        if len(header) > _HEADER:
            raise UsageError("a layer gives too many tensors to the next stage: at most 5, with few dimensions")
        self._post(torch.tensor(header + [0] * (_HEADER - len(header))), to, tag)
        for t in tensors:
            self._post(t.detach().contiguous(), to, tag)

    def _post(self, tensor: torch.Tensor, to: int, tag: int) -> None:
        tensor = tensor.to(self._place)
        raw = tensor.view(torch.uint8) if tensor.dtype in (torch.bfloat16, torch.bool) and tensor.dim() else tensor
        group = self._groups[tag % 2]
        self._sent.append((group.send(raw, to, tag), raw, group))

    def receive(self, source: int, tag: int, device: torch.device) -> Tensors:
        group = self._groups[tag % 2]
        header = torch.zeros(_HEADER, dtype=torch.int64, device=self._place)
        group.wait(group.receive(header, source, tag))
        numbers = iter(header.tolist())
        out = []
        for _ in range(next(numbers)):
            dtype, grad, dims = _DTYPES[next(numbers)], bool(next(numbers)), next(numbers)
            tensor = torch.empty([next(numbers) for _ in range(dims)], dtype=dtype, device=self._place)
            raw = tensor.view(torch.uint8) if dtype in (torch.bfloat16, torch.bool) and dims else tensor
            group.wait(group.receive(raw, source, tag))
            out.append(tensor.to(device).requires_grad_(grad))
        return tuple(out)

    def flush(self) -> None:
        for work, _, group in self._sent:
            group.wait(work)
        self._sent.clear()


def _tuple(value: Any, number: int) -> Tensors:
    out = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(t, torch.Tensor) for t in out):
        raise UsageError(f"layer {number} gives a {type(value).__name__}: a tensor or a tuple of tensors is expected")
    return out


class Pipeline:
    """A model given as layers. `train` does the rest."""

    def __init__(self, job: Job, layers: Sequence[Union[nn.Module, LayerMaker]], loss: Callable[[Any, Any], torch.Tensor],
                 optimizer: Callable[[nn.Module], torch.optim.Optimizer],
                 scheduler: Optional[Callable[[torch.optim.Optimizer], Any]] = None, *, clip: Optional[float] = None,
                 tied: Sequence[Tuple[Tuple[int, str], Tuple[int, str]]] = (), tie_std: float = 0.02,
                 recompute: bool = False, autocast: Optional[torch.dtype] = None,
                 compile: Union[bool, Dict[str, Any]] = False, device: Union[str, torch.device] = "cpu") -> None:
        """layers: functions that create a layer (from the job's seed, and only where it is needed), or layers.
        loss(output, targets): of a micro-batch.  optimizer(layer), scheduler(optimizer): of each layer.
        tied: pairs of ((layer, parameter), (layer, parameter)) that are one weight, drawn with spread tie_std.
        recompute: activations inside a layer are recomputed in the backward pass instead of kept.
        autocast: such as torch.bfloat16, for the computation; parameters stay as they are.
        compile: True, or what torch.compile takes: each layer is compiled by itself, so that the bits do not depend on the stages."""
        if len(layers) == 0 or len(layers) > _LAYERS_MAX:
            raise UsageError(f"a pipeline has 1 to {_LAYERS_MAX} layers, not {len(layers)}")
        if job._backend == "nccl" and torch.device(device).type != "cuda":
            raise UsageError(f"backend=\"nccl\" needs the layers on GPUs, and they are on {device}: say Pipeline(device=job.device), or "
                             "backend=\"gloo\"")
        if job._host is not None and job._layer_count != len(layers):
            raise UsageError(f"the job has {job._layer_count} layers, the script {len(layers)}: say `layers: "
                             f"{len(layers)}` in the job's file")
        self._job, self._loss, self._count = job, loss, len(layers)
        self._ties = [Tie(*pair) for pair in tied]
        self._recompute, self._autocast, self._device = recompute, autocast, torch.device(device)
        compiled = None if compile is False else {"dynamic": False, **(compile if isinstance(compile, dict) else {})}
        self._stack = _Stack(job, layers, optimizer, scheduler, self._ties, tie_std, self._device, compiled)
        self._groups: List[Group] = []
        self._sums: Union[FixedSums, FloatSums, None] = None
        self._tied: List[TiedSums] = []
        self._generation = -1
        self._held = range(0)
        self._stack.follow = _PipelineFollow(self, self._stack.husks)
        job._clip = clip
        job._join(self._stack, self._stack.digest, len(layers), self._device)
        if job._host is None:
            for number in range(len(layers)):
                if number not in self._stack._states:
                    self._stack._states[number] = self._stack._build_apart(number)

    def layer(self, number: int) -> nn.Module:
        """A layer that this worker holds."""
        return self._stack.module(number)

    @property
    def result(self) -> List[int]:
        """After `train`: the layers whose final state this worker holds."""
        return self._stack.held(self._job.steps)

    def save(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        """After `train`, on every worker: each writes the layers that it holds (tidemill.torch.checkpoint)."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for number in self.result:
            write_layer(path, self._stack.layer(number), self._count, f"layers.{number}.")
        if 0 in self.result:
            names = [row for rows in self._stack.names for row in rows]
            write_index(path, names, self._count, {"step": self._job.steps, "shared": None, "numbers": {}})

    # ---- the loop ----

    def train(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]] = None) -> None:
        """Trains until the job is finished. The data set gives (inputs, targets)."""
        job = self._job
        source = MicroBatches(dataset, collate, 0, job.seed, job.batch, job.micro_batch, job.steps)
        guards.enter(job)
        try:
            for _ in job._guarded(self._run(source)):
                pass
        finally:
            guards.leave(job)
        job.has_result = len(self.result) > 0
        job.done()

    def _run(self, source: MicroBatches) -> Iterator[None]:
        session = self._job._session
        assert session is not None
        while True:
            work = session.next()
            if work is None:
                break
            try:
                if work.kind == APPLY:
                    self._apply(work)
                else:
                    self._compute(work, source)
            except StepCancelled:
                pass
            yield
        self._job._over = True

    def _compute(self, work: Work, source: MicroBatches) -> None:
        session = self._job._session
        assert session is not None
        held = range(work.first_layer, work.last_layer)
        for number in held:
            self._stack.state(number).refresh(work.step - 1)
        if work.generation != self._generation:
            self._new_generation(work)
        assert self._sums is not None
        self._sums.begin(self._stage_group)
        for tied, group in zip(self._tied, self._tied_groups):
            tied.begin(group)
        watch = self._watch
        while True:
            self._job._losses.zero_()
            for number in held:
                self._stack.statistics(number).begin()
            watch.start(*dict.fromkeys(self._mail_groups))
            _Schedule(self, work, source).run()
            taken_s = watch.read()
            try:
                norms = self._finish()
                break
            except Redo:
                assert isinstance(self._sums, FixedSums)
                for sums in (self._sums, *self._tied):
                    sums.begin_again()
        if taken_s > 0:
            session.computed(work.step, taken_s)
        self._stack.staging.mark()
        session.held(work.step, {number: norms.get(number, 0.0) for number in held})

    def _finish(self) -> Dict[int, float]:
        """Sums over the pipelines; all stages agree whether every gradient fitted its scale."""
        assert self._sums is not None
        tied_fit = all([tied.fits() for tied in self._tied])
        flag = torch.zeros(1)

        def agree(bad: bool) -> bool:
            flag[0] = float(bad or not tied_fit)
            self._world.wait(self._world.all_reduce(flag, dist.ReduceOp.MAX))
            return bool(flag[0])

        norms = self._sums.finish(agree)
        for tied in self._tied:
            for number, squares in tied.finish().items():
                norms[number] += squares
        for number in self._held:
            self._stack.statistics(number).exchange(self._stage_group)
        self._job._exchange_losses(self._world)
        return norms

    def _apply(self, work: Work) -> None:
        assert self._sums is not None
        factor = self._job._clip_factor(work)
        for sums in (self._sums, *self._tied):
            sums.hand_over(factor)
        for number in self._held:
            state = self._stack.state(number)
            state.watch.check()
            state.watch.before_update()
            state.optimizer.step()
            state.watch.after_update()
            if state.scheduler is not None:
                state.scheduler.step()
        for sums in (self._sums, *self._tied):
            sums.commit()
        for number in self._held:
            self._stack.statistics(number).commit()
            self._stack.state(number).commit(work.step)
        self._job._committed(work)

    # ---- generations ----

    def _new_generation(self, work: Work) -> None:
        job = self._job
        meeting = job._seat(work)
        self.layout = (work.pipelines, work.stages)
        for group in self._groups:
            group.close()
        self._groups, self._generation = [], -1
        if self._sums is not None:
            self._sums.close()
        job._losses = torch.zeros(job.micro_batches, dtype=torch.float64)
        self._held = range(work.first_layer, work.last_layer)
        for number in self._held:
            self._stack.statistics(number).renew()
        name = f"generation-{work.generation}"
        self._world = self._meet(f"{name}-all", job._rank, job._world_size, meeting)
        self._watch = Stopwatch(self._device)
        self._mail_groups = (self._world, self._world)
        if job._backend == "nccl":
            self._mail_groups = (self._world, self._meet(f"{name}-back", job._rank, job._world_size, meeting))
        self._stage_group = self._meet(f"{name}-stage-{work.stage}", work.pipeline, work.pipelines, meeting)
        self._make_sums(work, name, meeting)
        self._generation = work.generation

    def _meet(self, name: str, rank: int, size: int, meeting: Any) -> Group:
        group = self._job._meet(name, rank, size, meeting)
        self._groups.append(group)
        return group

    def _make_sums(self, work: Work, name: str, meeting: Any) -> None:
        layers = [self._stack.layer(number) for number in self._held]
        self._tied, self._tied_groups = [], []
        without = set()
        for index, tie in enumerate(self._ties):
            ends = []
            for number, param_name in (tie.first, tie.second):
                if number in self._held:
                    layer = self._stack.layer(number)
                    ends += [(layer, p) for p in layer.params if p.name == param_name]  # none where it is frozen
            if not ends:
                continue
            without |= {id(p) for _, p in ends}
            stages = [bisect.bisect_right(work.stage_first, end[0]) - 1 for end in (tie.first, tie.second)]
            size = work.pipelines * len(set(stages))
            rank = work.pipeline + (work.pipelines if work.stage == stages[1] and stages[0] != stages[1] else 0)
            self._tied.append(TiedSums(ends, tie.first[0], self._job.micro_batches, self._job.bitwise))
            self._tied_groups.append(self._meet(f"{name}-tie-{index}", rank, size, meeting))
        kind = FixedSums if self._job.bitwise else FloatSums
        self._sums = kind(layers, self._job.micro_batches, self._job._clip is not None, without)

    # ---- computing ----

    def rank_of(self, work: Work, stage: int) -> int:
        """The rank of this pipeline's worker at another stage."""
        return stage * work.pipelines + work.pipeline

    def forward(self, work: Work, number: int, inputs: Tensors) -> Tensors:
        """This stage's layers over one micro-batch; random numbers by (seed, step, micro-batch, layer)."""
        for layer in self._held:
            statistics = self._stack.statistics(layer)
            statistics.begin_micro_batch()
            key = samples.key_of(self._job.seed, work.step, number * _LAYERS_MAX + layer, _LAYER)
            module = self._stack.module(layer)

            def run(*words: torch.Tensor, module: nn.Module = module, key: int = key) -> Any:
                seed_all(key)
                with self._casting():
                    return module(*words)

            if self._recompute and any(t.requires_grad for t in (*inputs, *module.parameters())):
                inputs = _tuple(checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False), layer)
            else:
                inputs = _tuple(run(*inputs), layer)
            statistics.end_micro_batch(number)
        return inputs

    def _casting(self) -> Any:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._autocast)


class _Schedule:
    """One step of this worker: as many forwards as stages follow it, then one forward, one backward."""

    def __init__(self, owner: Pipeline, work: Work, source: MicroBatches) -> None:
        self._owner, self._work, self._source = owner, work, source
        self._mail = _Mail(*owner._mail_groups, owner._device if owner._job._backend == "nccl" else torch.device("cpu"))
        self._first, self._last = work.stage == 0, work.stage + 1 == work.stages
        self._open: Dict[int, Tuple[Tensors, Tensors]] = {}

    def run(self) -> None:
        numbers = list(range(self._work.first_micro_batch, self._work.last_micro_batch))
        ahead = min(self._work.stages - self._work.stage - 1, len(numbers))
        for number in numbers[:ahead]:
            self._forward(number)
        for index, number in enumerate(numbers):
            if index + ahead < len(numbers):
                self._forward(numbers[index + ahead])
            self._backward(number, index + 1 == len(numbers))
        self._mail.flush()

    def _check(self) -> None:
        session = self._owner._job._session
        assert session is not None
        if session.cancelled():
            raise StepCancelled("the step was abandoned")

    def _forward(self, number: int) -> None:
        self._check()
        owner, work = self._owner, self._work
        targets = None
        if self._first or self._last:
            inputs_here, targets = self._source.get(work.step, number)
        if self._first:
            if isinstance(inputs_here, list):  # as default_collate makes of a tuple
                inputs_here = tuple(inputs_here)
            inputs = tuple(t.to(owner._device) for t in _tuple(inputs_here, -1))
        else:
            inputs = self._mail.receive(owner.rank_of(work, work.stage - 1), 2 * number, owner._device)
        outputs = owner.forward(work, number, inputs)
        if self._last:
            with owner._casting():
                output = outputs[0] if len(outputs) == 1 else outputs
                loss = owner._loss(output, _to(targets, owner._device))
            owner._job._losses[number] = loss.detach().to(torch.float64)
            outputs = (loss,)
        else:
            self._mail.send(outputs, owner.rank_of(work, work.stage + 1), 2 * number)
        self._open[number] = (inputs, outputs)

    def _backward(self, number: int, last: bool) -> None:
        self._check()
        owner, work = self._owner, self._work
        inputs, outputs = self._open.pop(number)
        grads: Optional[Tensors] = None
        if not self._last:
            grads = self._mail.receive(owner.rank_of(work, work.stage + 1), 2 * number + 1, owner._device)
        assert owner._sums is not None
        owner._sums.begin_micro_batch(last)
        for tied in owner._tied:
            tied.begin_micro_batch()
        differentiable = tuple(t for t in outputs if t.requires_grad)
        if differentiable:
            torch.autograd.backward(differentiable, grads)
        owner._sums.end_micro_batch()
        for tied in owner._tied:
            tied.end_micro_batch()
        if not self._first:
            back = tuple(t.grad if t.grad is not None else torch.zeros_like(t) for t in inputs if t.requires_grad)
            self._mail.send(back, owner.rank_of(work, work.stage - 1), 2 * number + 1)


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(_to(v, device) for v in value)
    return value

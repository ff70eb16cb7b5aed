"""Elastic data parallel in the user's own loop.

    job = tidemill.torch.init(steps=1000, batch=64, micro_batch=8, seed=1)     # before the model is made
    model, optimizer, scheduler = ...
    job.attach(model, optimizer, scheduler)
    for inputs, targets in job.batches(dataset):
        loss = loss_function(model(inputs), targets)
        job.backward(loss)                                                    # instead of loss.backward()
    job.done()

The loop runs once per micro-batch. Tidemill decides which micro-batches this worker gets, when the optimizer steps, and what
happens after a preemption: `optimizer.step()`, `optimizer.zero_grad()` and `scheduler.step()` may stay in the loop and do
nothing. Started by an agent, the script is one worker of many; started by hand it trains alone, with the same result.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
import traceback
import warnings
from types import SimpleNamespace
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import torch
from torch import nn
from torch.utils.data import DataLoader

from tidemill import samples
from tidemill.errors import JobFailed, Refused, UsageError
from tidemill.session import APPLY, STEP, Alone, Peer, Session, Work, stay_with_agent, under_agent
from tidemill.torch import checkpoint, fixed_point, guards, plan, shards
from tidemill.torch.agreement import mark_of
from tidemill.torch.arrivals import Arrivals
from tidemill.torch.buffers import RunningStatistics
from tidemill.torch.copies import Copies
from tidemill.torch.data import Position, Source, items_of, open_source, same_data, stream_in
from tidemill.torch.extras import Extras
from tidemill.torch.follow import Follow
from tidemill.torch.full import FullShards
from tidemill.torch.full_sums import ShardedSums
from tidemill.torch.generators import Generators
from tidemill.torch.group import Group, Home, StepCancelled, Stopwatch, given_up, read_endpoint
from tidemill.torch.logs import Sink, StepLog
from tidemill.torch.replicas import Replicas, Seen
from tidemill.torch.scaling import LossScale
from tidemill.torch.seeds import kept_random_numbers, seed_all
from tidemill.torch.settings import LoopSettings
from tidemill.torch.state import ModelState
from tidemill.torch.strays import Strays
from tidemill.torch.sums import FixedSums, FloatSums, Redo

Sums = Union[FixedSums, FloatSums, ShardedSums]

_COMPUTE, _COMMIT = 2, 6  # purposes of random numbers
_LAYERS_ALONE = 8
_FAIL_WAIT_S = 5.0
_UPDATED = 3  # steps whose micro-batches all have called optimizer.step(), until it is looked for
_EPOCH_ENDS = object()  # from the loop's generator, in a loop over job.epochs
COMMITS = object()  # from it, for a framework's loop: what that does until it asks again is part of the step

_NO_COMMIT = ("job.on_commit and attach(shard=...): when a step is applied a worker has stepped its own part of the model alone, so "
              "a function that is part of the step cannot see the whole. Use job.after_step to look at weights, or attach without "
              "shard")

NO_SHARDS = ("{} cannot shard a model: every worker has all of it, and its optimizer's state. In a loop of your own say attach(..., shard=\"full\"), "
             "attach(..., shard=\"optimizer\") or fully_shard(module, mesh=job.mesh); or make the layers a tidemill.torch.Pipeline")

OLDEST_TORCH = (2, 4)


def refuse_shards(name: str, model: Any, named: Optional[Mapping[str, Any]] = None) -> None:
    """For a framework's trainer, of this name. model: None, where it is not known yet. named: what the trainer was given by name."""
    if "shard" in (named or {}) or (isinstance(model, nn.Module) and plan.is_sharded(model)):
        raise UsageError(NO_SHARDS.format(name))


def check_torch() -> None:
    """Refuses versions that are too old; versions newer than those tested are tried."""
    version = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        raise UsageError(f"tidemill.torch needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer (tested with 2.4, 2.11 and "
                         f"2.13); this is {torch.__version__}")


def _setting(name: str, given: Any, variables: Any, convert: Callable[[str], Any], default: Any = None) -> Any:
    """The value from the job's file (given by an agent) or from the script; if both give one they must agree."""
    text = variables.get(name)
    if text in (None, ""):
        return default if given is None else given
    try:
        told = convert(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, which makes no sense")
    if given is not None and given != told:
        raise UsageError(f"the script says {given!r}, the job {told!r} ({name}): change one of them")
    return told


def _gpu_of(device: torch.device) -> str:
    """The GPU's own name, the same in every process."""
    if device.type != "cuda":
        raise UsageError(f"backend=\"nccl\" needs the model on a GPU, and it is on {device}: move it before attach, or say "
                         "backend=\"gloo\"")
    return str(torch.cuda.get_device_properties(device).uuid)


def _determinism(text: str) -> str:
    if text not in ("bitwise", "fast"):
        raise ValueError(text)
    return text


def _local_rank() -> int:
    """Which worker of its instance this is: the number of its GPU there."""
    return int(os.environ.get("TIDEMILL_LOCAL_RANK") or 0)


def own_device() -> torch.device:
    """Where this worker computes: the GPU of its place on its instance, or the CPU where there is none. Where workers outnumber the
    GPUs that they see (each may see its own alone), they share them."""
    gpus = torch.cuda.device_count()
    return torch.device("cuda", _local_rank() % gpus) if gpus else torch.device("cpu")


def _local_world_size() -> int:
    """How many workers each instance has."""
    return int(os.environ.get("TIDEMILL_LOCAL_WORLD_SIZE") or 1)


def init(steps: Optional[int] = None, batch: Optional[int] = None, micro_batch: Optional[int] = None,
         seed: Optional[int] = None, determinism: Optional[str] = None, threads: Optional[int] = None,
         backend: Optional[str] = None, timeout_s: float = 120.0, warm_up: Optional[bool] = None, try_twice: bool = True) -> "Job":
    """Begins a job. Call it before the model is created: the model's initial weights come from `seed`.

    steps         optimizer updates in total
    batch         samples per step, for any number of workers
    micro_batch   samples computed at once; divides the batch, and stays fixed for the whole job
    determinism   "bitwise": the same weights to the bit through any preemptions, equal to those of the script alone;
                  "fast" (default): floats are added as DistributedDataParallel does
    threads       of torch, on each worker; default 1 for bitwise
    backend       "gloo" (default) or "nccl" (one GPU per worker)
    timeout_s     how long an exchange between workers may be silent before it fails
    warm_up       one micro-batch goes through the loop before this worker asks to join, so that what the first one takes (kernels
                  that are loaded or compiled) keeps nobody waiting; nothing of it stays. Default: where the model is on a GPU
    try_twice     the first step of the job is computed twice: where its losses are not the same again, the loop keeps something
                  that no other worker would have, and the job ends with an error

    Under an agent the values of the job's YAML file are used, and a script that gives different ones is refused. Alone,
    only the script's values and the defaults are used; the job's file is not read.
    """
    check_torch()
    variables = os.environ
    return Job(
        variables.get("TIDEMILL_HOST") or "127.0.0.1" if under_agent(variables) else None,
        steps=_setting("TIDEMILL_STEPS", steps, variables, int),
        batch=_setting("TIDEMILL_BATCH", batch, variables, int),
        micro_batch=_setting("TIDEMILL_MICRO_BATCH", micro_batch, variables, int),
        seed=_setting("TIDEMILL_SEED", seed, variables, int, 1),
        determinism=_setting("TIDEMILL_DETERMINISM", determinism, variables, _determinism, "fast"),
        layers=_setting("TIDEMILL_LAYERS", None, variables, int, _LAYERS_ALONE),
        threads=threads,
        backend=backend or "gloo",
        timeout_s=timeout_s,
        warm_up=warm_up,
        try_twice=try_twice,
    )


class Job:
    """One worker's view of a job. Created by `init`. host: where peers reach this worker; None: it is alone."""

    def __init__(self, host: Optional[str], steps: Optional[int], batch: Optional[int], micro_batch: Optional[int],
                 seed: int, determinism: str, layers: int, threads: Optional[int], backend: str,
                 timeout_s: float, warm_up: Optional[bool] = None, try_twice: bool = True) -> None:
        if not steps or not batch or steps < 0 or batch < 0:
            raise UsageError("steps and batch must be given (init(steps=..., batch=...)) and be positive")
        micro_batch = micro_batch or batch
        if batch % micro_batch:
            raise UsageError(f"batch ({batch}) must be a multiple of micro_batch ({micro_batch})")
        if backend not in ("gloo", "nccl"):
            raise UsageError(f"backend is {backend!r}: it is \"gloo\" or \"nccl\"")
        if determinism not in ("bitwise", "fast"):
            raise UsageError(f"determinism is {determinism!r}: it is \"bitwise\" or \"fast\"")
        self.steps, self.batch, self.micro_batch, self.seed = steps, batch, micro_batch, seed
        self.micro_batches = batch // micro_batch
        self.bitwise = determinism == "bitwise"
        self._host, self._layer_count = host, layers
        self._backend, self._timeout_s, self._warm_up = backend, timeout_s, warm_up
        self._try_twice = self.compares_samples = try_twice
        self._first_try: Optional[torch.Tensor] = None  # losses of the first step, when it was computed first
        self._late: Any = None  # how to join, where the loop is to be tried first
        self.rehearsing = False  # the loop runs once before this worker joins, and nothing of it counts
        self.trying = False  # the first step is computed for the first of two times
        self._session: Union[Session, Alone, None] = None
        self._state: Optional[ModelState] = None
        self._home: Optional[Home] = None
        self._group: Optional[Group] = None
        self._sums: Optional[Sums] = None
        self._clip: Optional[float] = None
        self._step: Optional[Step] = None
        self._renew_table()
        self._callbacks: List[Any] = []  # (function, every so many steps with all weights)
        self._commit_callbacks: List[Callable[[int, float], None]] = []
        self._main_callbacks: List[Callable[[], None]] = []
        self._calls = {}
        self._logs: List[Any] = []
        self._metrics: Dict[str, Callable[[], float]] = {}
        self._positions: List[Position] = []
        self._pending: Any = None  # work that was asked for before the loop
        self._loop: Optional[Iterator[Any]] = None
        self._epoch: Optional[int] = None  # in a loop over job.epochs
        self._fresh, self._probe = True, "unknown"
        self._scale: Optional[LossScale] = None
        self._stop, self.seen = _Stop(), Seen()
        self._committing = self._in_backward = self._told_main = False
        self.last_norm: Optional[float] = None  # of the whole gradient, where it is clipped
        self._over = False
        self.committed_step = 0
        self.last_loss: Optional[float] = None  # of that step; None where this worker got its state from others
        self.generation = 0
        self._seat_known = host is None  # rank and size of the world; alone they are always 0 and 1
        self._rank, self._world_size = 0, 1
        self._group_rank, self._group_world_size = 0, 1  # of its instance among all
        if threads is not None or self.bitwise:
            torch.set_num_threads(threads or 1)
        if self.bitwise:
            torch.use_deterministic_algorithms(True)
            # Only code that reads what it has not written could tell; filling costs a kernel for each new tensor.
            torch.utils.deterministic.fill_uninitialized_memory = False
        self._try_no_algorithms()
        if host is not None:
            stay_with_agent()
            self._watch_exits()
        self._set_variables()
        torch.manual_seed(seed)  # on every device, also those that are not used yet
        seed_all(seed)

    def _try_no_algorithms(self) -> None:
        if self.bitwise:
            torch.backends.cudnn.benchmark = False  # what is fastest here, and now, may be another algorithm on another worker

    # ---- attaching ----

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any = None, *,
               clip: Optional[float] = None, clip_value: Optional[float] = None, scaler: Any = None,
               state: Optional[Mapping[str, Any]] = None, schedule: str = "step",
               start: Union[str, "os.PathLike[str]", None] = None, shard: Optional[str] = None) -> None:
        """Hands model, optimizer and schedule to Tidemill; the worker then joins the job.

        clip         the largest norm of the whole gradient (torch.nn.utils.clip_grad_norm_ over the global batch)
        clip_value   the largest element of the gradient (clip_grad_value_)
        scaler       a torch.amp.GradScaler, for float16: its calls in the loop may stay
        state        {name: thing}: whatever else the training keeps (an average of weights, a counter) and has state_dict and
                     load_state_dict; it is moved, copied and restored with the model. Change it in `on_commit`.
                     A stream (IterableDataset, StatefulDataLoader): a worker that joins begins where the job is
        schedule     "step": the scheduler steps once per committed step; "epoch": with the last step of each epoch
        start        a checkpoint of `save` to begin from, the same on every worker; the job's steps count from 1 again
        shard        "optimizer": each worker holds the optimizer's state of a part of the model (ZeRO-1), as many parts as the
                     layout has stages (fleet: {stages_min: 2} of the job's file); "full": weights and gradients, too (FSDP). A model
                     that torch's fully_shard was given (mesh=job.mesh) is sharded in full, in the units that it names
        """
        if self._state is not None:
            raise UsageError("attach is called twice: a job has one model and one optimizer")
        if schedule not in ("step", "epoch"):
            raise UsageError(f"attach(schedule={schedule!r}): it is \"step\" or \"epoch\"")
        self._try_no_algorithms()  # again: scripts, and Trainers, may have asked for it after init
        optimizer, scheduler = guards.plain_optimizer(optimizer), guards.plain_scheduler(scheduler)
        if start is None and not self._continues:
            guards.check_begun(optimizer)
        if plan.is_sharded(model):
            if shard not in (None, "full"):
                raise UsageError(f"attach(shard={shard!r}): the model was given to fully_shard, which shards all of it: leave one out")
            shard, self._plan = "full", plan.take(model, optimizer)
        first_scale = fixed_point.start(self.micro_batches) if self.bitwise else None
        extras = Extras(self._with_positions(state or {}))
        extras.add("stop", self._stop)
        extras.add("seen", self.seen)
        if scaler is not None and scaler.is_enabled():
            self._scale = LossScale(scaler)
            extras.add("loss scale", self._scale)
        shards.check(shard, extras)
        if shard is not None and self._commit_callbacks:
            raise UsageError(_NO_COMMIT)
        self._attach(ModelState(model, optimizer, scheduler, first_scale, extras), clip, start, shard)
        self._clip_value, self._schedule = clip_value, schedule
        if schedule == "step":
            guards.warn_of_length(scheduler, self.steps, self.micro_batches)

    def _with_positions(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        """Streams are kept as their positions. A DataLoader of numbered items needs none: the step says where it is."""
        out: Dict[str, Any] = {}
        for name, thing in state.items():
            stream = stream_in(thing)
            if stream is not None:
                self._positions.append(Position(stream))
                out[name] = self._positions[-1]
            elif not isinstance(thing, DataLoader):
                out[name] = thing
        return out

    def _attach(self, state: ModelState, clip: Optional[float], start: Any, shard: Optional[str] = None) -> None:
        model, optimizer, scheduler = state.model, state.optimizer, state.scheduler
        state.cut(self._layer_count)
        if start is not None:
            checkpoint.load(state, start)
            self._stop.at = 0  # of the job that was saved
            self.seen.forget()
            state.extras.commit()
            state.cut(self._layer_count)  # what is there now is the beginning
            state.watch.remember()
        self._state, self._copies, self._strays = state, Copies(state), Strays(state)
        self._generators = Generators()
        self._clip = clip
        for p in (p for unit in state.units for p in unit.params):
            p.tensor.grad = None  # of a backward pass before: a frozen parameter would keep it, and be moved by it
        if shard == "full" and self._host is not None:
            state.shards = self._shards = self._full = FullShards(state, self._plan, lambda: self._in_backward)
        elif shard is not None and self._host is not None:
            state.shards = self._shards = shards.Shards(state)
        self._sharded = shard is not None
        state.watch.follow_settings()
        self._settings = LoopSettings(optimizer, scheduler)
        self._replicas = Replicas(state, self.bitwise, self.seen)
        self._statistics = RunningStatistics(model, self.micro_batches)
        self._arrivals = Arrivals()  # losses of the step, on their way to the table
        self._take_over(optimizer, scheduler)
        state.follow = Follow(self, state.layers)
        digest = "" if self._host is None else self._state.digest()
        if self._shards is not None:
            self._shards.forget_state()
        self._join(self._state, digest, len(self._state.layers), self._state.device)

    def _take_over(self, optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
        """Disables the loop's own steps: Tidemill steps when a step is committed."""

        def wait(closure: Any = None) -> None:
            if closure is not None:
                raise UsageError("optimizer.step(closure) in the job's loop: compute the loss in the loop, and call "
                                 "job.backward(loss)")
            self._settings.at_update()
            if self._step is not None:
                self._step.at_update()

        wait._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # schedulers look for it, and warn
        self._optimizer_step = optimizer.step
        optimizer.step = wait  # type: ignore[method-assign, assignment]
        optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
        if scheduler is not None:  # its class, not the object: state_dict is all that the object has
            kind = type(scheduler)
            self._scheduler_step = lambda: kind.step(scheduler)
            scheduler.__class__ = type(kind.__name__, (kind,), {"step": lambda schedule, epoch=None: self._no_step(kind, epoch)})

    def _no_step(self, kind: Any, epoch: Any) -> None:
        """What the loop's scheduler.step() does."""
        name = kind.__name__
        if epoch is not None:
            raise UsageError(f"{name}.step({epoch!r}): the attached schedule steps once per committed step, by itself, and takes no other "
                             "count from the loop. Give its lengths in steps, and leave the call out")
        if self._schedule == "step" and self._step is None and not (self._in_callback or self._steps_elsewhere):
            raise UsageError(f"{name}.step() is called outside of the loop over job.batches, as by a schedule of epochs; the attached "
                             "schedule has stepped with every step. Say attach(..., schedule=\"epoch\") and `for epoch in "
                             "job.epochs(dataset)`, and the call may stay; or give its lengths in steps, and leave the call out")
        if self._schedule == "step" and self._in_callback and not self._steps_elsewhere and self._scale is None:
            passed, self._calls[self._in_callback] = self._calls.get(self._in_callback, 0), 0
            if passed > 1:
                raise UsageError(f"{name}.step() is called in job.{self._in_callback} once in {passed} steps, and the attached schedule has stepped with "
                                 "every one of them: leave the call out, and give the schedule its lengths in steps; or leave the schedule out of "
                                 "attach(model, optimizer), attach it as state={\"schedule\": scheduler}, and step it in job.on_commit when you will")
        if self._schedule == "step" and not (self._in_callback or self._steps_elsewhere) and self._scale is None:
            passed, self._handed = self._handed, 0
            if passed > 2 * self.micro_batches:
                raise UsageError(f"{name}.step() is called after {passed} micro-batches, and a step of the job has {self.micro_batches}: the attached "
                                 "schedule has stepped with every step, not where the loop says. Where it counts epochs say attach(..., "
                                 "schedule=\"epoch\"); a wait at the beginning belongs in the schedule (SequentialLR, LambdaLR); or leave the "
                                 "call out")

    _calls: Dict[str, int]  # of functions given to on_commit and after_step, since one of them called scheduler.step()
    _handed = 0  # micro-batches since the loop's last scheduler.step()
    _handed_last = (-1, -1)  # the last of them: its step and number

    def _join(self, engine: Any, digest: str, layers: int, device: torch.device) -> None:
        """Joins the job; runs alone if no agent has started this process."""
        if self._host is None:
            self._session = Alone(engine, self.steps, layers, self.micro_batches)
            return
        if self._state is not None and (device.type == "cuda" if self._warm_up is None else self._warm_up):
            self._late = lambda: self._ask_to_join(engine, digest, device)
        else:
            self._ask_to_join(engine, digest, device)

    def _join_now(self) -> None:
        """Where that was put off."""
        if self._late is not None:
            join, self._late = self._late, None
            join()

    def _ask_to_join(self, engine: Any, digest: str, device: torch.device) -> None:
        assert self._host is not None
        if device.type == "cuda":
            torch.cuda.set_device(device)  # what is exchanged from the CPU's memory goes over this one
        self._home = Home(self._host)
        self._digest = digest
        kind = "cuda" if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
        kernel_class = f"torch-{torch.__version__.split('+')[0]}-{kind}-{torch.get_num_threads() if self.bitwise else 0}"
        gpu = _gpu_of(device) if self._backend == "nccl" else ""
        self._session = Session(engine, self._home.endpoint(digest, gpu), kernel_class)

    # ---- the loop ----

    def batches(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]] = None, *, workers: int = 0,
                sampler: Any = None, shuffle: bool = True, count: Optional[Callable[[Any], Optional[float]]] = None) -> Iterator[Any]:
        """Yields this worker's micro-batches, one after another, until the job is finished (in a loop over `epochs`: the epoch).

        dataset   map-style (with __len__ and __getitem__): every item is used once per epoch, in an order drawn from the seed;
                  or an IterableDataset, whose items are counted: every one is used once, by one worker;
                  or a DataLoader of one of them, whose collate_fn, num_workers, sampler and shuffle are then used
        workers   processes that load data, 0 for none
        sampler   the order of items of an epoch, such as WeightedRandomSampler: asked anew for every epoch, with random numbers
                  drawn from the job's seed
        shuffle   False: items come in their own order
        count     what a micro-batch counts for, such as its tokens that are no padding: `job.step().count` is then that of all
                  micro-batches of the step, whoever computes them, for a loss that is a mean over the whole step
        """
        if self._state is None:
            raise UsageError("call attach(model, optimizer) before batches(dataset)")
        given = (dataset, collate, workers, sampler, shuffle)
        self._check_loop(given)
        if self._loop is None:
            self._given, self._count = given, count
            source = open_source(self, dataset, collate, workers, sampler, shuffle)
            if self._epoch is not None and source.count != self._items:
                raise UsageError(f"job.epochs is given data with {self._items} items an epoch, and job.batches with {source.count} (a sampler that "
                                 "gives more or less than there is): give both the same DataLoader, with the sampler in it")
            self._items = self._items_here = source.count
            if self._schedule == "epoch" and self._items is None:
                raise UsageError("attach(schedule=\"epoch\"): a stream has no length, so its epochs have no last step: use a "
                                 "schedule of steps")
            self._loop = self._guarded(self._run(source))
            self._source = source
            guards.enter(self)
        left = True
        try:
            for batch in self._loop:
                if batch is _EPOCH_ENDS:
                    left = False
                    return
                yield batch
            left = False
            self._end_loop()
        finally:
            if left:
                self._leave_loop()
                self._end_loop()

    def _check_loop(self, given: Any) -> None:
        """job.batches is called again."""
        if self._given is None or self._failed_exit:
            return
        if self._left and not self._over:
            raise UsageError("a loop over job.batches(dataset) was left early (break), and another one begins: what the first one has not "
                             "computed would go on in the second, at a step that kills decide. Write one loop for the whole job, with "
                             "what changes computed from job.committed_step; to stop early call job.stop() in job.on_commit")
        if self._over and self._epoch is None:
            raise UsageError("job.batches(dataset) is called again, and the first loop over it has trained all steps of the job: for "
                             "what is done between epochs write `for epoch in job.epochs(dataset)` around it, in place of range(...)")
        if self._loop is not None and not same_data(self._given, given):
            raise UsageError("job.batches is given other data, or another order of it, than in the epoch before, and goes on with the first: "
                             "a job has one data set. Choose inside of it (in __getitem__, by an epoch that the script sets between "
                             "epochs), or join both with torch.utils.data.ConcatDataset and choose by a sampler with set_epoch")

    _pauses = False  # a framework's loop does what belongs to a step between its update and its commit
    _steps_elsewhere = False  # a framework's loop calls the schedule, and has told when it is due
    _continues = False  # the optimizer's state was loaded by us, the same on every worker
    _last_number: Optional[int] = None  # of the micro-batches of a step that counts
    _given: Any = None  # to the first call of batches
    _count: Optional[Callable[[Any], Optional[float]]] = None
    _step_count: Optional[float] = None
    _left = False
    _late_error: Optional[BaseException] = None

    def _leave_loop(self) -> None:
        """The loop was left by break or by an error. After the last micro-batch of the last step it has done all of its part, and what is
        left is Tidemill's. This may run where Python drops errors (a generator that is closed): they are raised by `done`."""
        step, self._left = self._step, True
        if step is None or self._loop is None or self._over or self._failed_exit or sys.exc_info()[0] is not GeneratorExit:
            return
        if step.number != self.steps or not step._final or step.state not in ("open", "done"):
            return
        try:
            for _ in self._loop:
                self._compute_elsewhere()
        except BaseException as error:  # noqa: BLE001
            self._late_error = error

    def _compute_elsewhere(self) -> None:
        """The last step is to be computed again, and the loop that could is gone."""
        if self._host is not None:
            print("tidemill: the last step is to be computed again, and the script's loop was left (break): this worker starts over",
                  file=sys.stderr, flush=True)
            os._exit(1)
        raise UsageError("the last step is to be computed again, and the loop over job.batches(dataset) was left (break): let it end by "
                         "itself")

    def _end_loop(self) -> None:
        guards.leave(self)
        if isinstance(self._sums, (FixedSums, FloatSums)):
            self._sums.close()  # its hooks would take the gradients of the model's next training
        self._source.close()
        if self._epoch is None:
            self._loop = None

    def epochs(self, dataset: Any) -> Iterator[int]:
        """Numbers of epochs, from 0, for scripts that do something between them:

            for epoch in job.epochs(dataset):
                for inputs, targets in job.batches(dataset): ...

        A worker that joins begins with the epoch that the job is in."""
        if self._state is None:
            raise UsageError("call attach(model, optimizer) before epochs(dataset)")
        stream = stream_in(dataset)
        if stream is not None:
            raise UsageError(f"job.epochs is given {type(stream).__name__}, a stream: it has no length, so the job cannot say where its epochs "
                             "end. Write one loop, `for batch in job.batches(dataset)`, until the job's steps are done, and compute what "
                             "changes from job.committed_step")
        self._join_now()
        self._items = count = items_of(dataset)
        work = self._peek()
        while not self._over and work is not None:
            self._epoch = (max(work.step, self.committed_step + 1) - 1) * self.batch // count
            before = self._epoch
            yield self._epoch
            if self._over:
                return
            if self._loop is None:
                raise UsageError("an epoch ended without a loop over job.batches(dataset)")
            if (self._next_step - 1) * self.batch // count == before:
                raise UsageError("the loop over job.batches(dataset) was left early: let it end by itself")
            work = self._asked

    def _peek(self) -> Optional[Work]:
        """The first thing to do, kept for the loop."""
        assert self._session is not None
        if self._pending is None:
            self._pending = [self._session.next()]
        work: Optional[Work] = self._pending[0]
        if work is None:
            self._over = True
            self._refresh_result()
            self._leave_without_result()
        else:
            assert self._state is not None
            self._take_state(work)
        return work

    def _take_state(self, work: Work) -> None:
        """Model and settings are those of the last committed step."""
        assert self._state is not None
        self.committed_step = self._next_step = work.step
        self.committed_step -= 1
        self._asked = work
        held = None
        if self._shards is not None:
            self._shards.take(work)
            held = self._shards.held
        if self._state.refresh(work.step - 1, held):
            self._settings.remember()
            self._replicas.joined()
        if self._stop.at:
            self.committed_step = self._stop.at

    def _next(self) -> Optional[Work]:
        assert self._session is not None
        if self._pending is not None:
            work, self._pending = self._pending[0], None
            return work
        return self._session.next()

    def _guarded(self, loop: Iterator[Any]) -> Iterator[Any]:
        """An error in the job's own code ends the job on all workers."""
        try:
            yield from loop
        except (JobFailed, Refused):
            self._over = True
            raise
        except (GeneratorExit, SystemExit):
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _rehearse(self, source: Source) -> Iterator[Any]:
        """One micro-batch through the loop, as a step that is given up: for what a first one takes."""
        assert self._state is not None
        self.rehearsing = True
        group = Group(0, 1, lambda: False)
        self._sums, self._group = self._make_sums(), group
        os.environ.update(RANK="-1", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
        self._settings.begin_step()
        self._sums.may_overflow = True  # whatever comes out is not used
        self._sums.begin(group)
        self._statistics.begin()
        source.begin(range(1))
        self._count_step(1, range(1), source, group)
        yield from self._give(SimpleNamespace(step=1), 0, source, True)
        self._settings.end()
        with contextlib.suppress(Redo, JobFailed):
            self._sums.finish()
        self._sums.close()
        self._sums = self._group = None
        for p in self._state.params:
            p.tensor.grad = None
        source.restart()
        self._settings.begin()  # what the loop has set is as it was
        self._set_variables()
        self.rehearsing = False

    def _make_sums(self) -> Sums:
        assert self._state is not None
        if self._full is not None:
            self._full.sums = ShardedSums(self._full, self._state.layers, self.micro_batches, self.bitwise, self._clip is not None)
            sums: ShardedSums = self._full.sums
            return sums
        kind = FixedSums if self.bitwise else FloatSums
        return kind(self._state.layers, self.micro_batches, self._clip is not None)

    def _run(self, source: Source) -> Iterator[Any]:
        if self._late is not None and source.count is not None:
            yield from self._rehearse(source)
        self._join_now()
        session = self._session
        assert session is not None and self._state is not None
        while True:
            work = self._next()
            if work is None:
                break
            if work.kind == APPLY:
                yield from self._apply(work)
                continue
            try:
                yield from self._compute(work, source)
            except StepCancelled:
                continue
        self._over = True
        self._refresh_result()
        self._leave_without_result()

    def _leave_without_result(self) -> None:
        """A worker that comes when the job is done has the weights that it began with: what its script saves would take the result's
        place."""
        if self._host is None or self.has_result:
            return
        print("tidemill: the job ended without this worker, which has no result: its script ends here", file=sys.stderr, flush=True)
        self.done()
        raise SystemExit(0)

    def _compute(self, work: Work, source: Source) -> Iterator[Any]:
        session, state = self._session, self._state
        assert session is not None and state is not None
        if work.stages != 1 and self._shards is None:
            raise UsageError(f"the layout has {work.stages} stages: a model in the user's own loop is not cut. Set the "
                             "job's layout to one stage (fleet: {stages_max: 1}), say attach(..., shard=\"optimizer\"), or use "
                             "tidemill.torch.Pipeline. ElasticTrainer and Lightning cannot shard")
        self._take_state(work)
        if self._stop.at:  # what is left is passed over
            self._sit_down(work)
            session.held(work.step, {layer.number: 0.0 for layer in state.layers})
            return
        if work.generation != self.generation or self._group is None:
            self._new_generation(work, source)
        self._gather()
        self._say_main()
        if self._epoch is not None and (work.step - 1) * self.batch // (self._items or 1) > self._epoch:
            guards.leave(self)
            source.restart()  # processes that load have the data set as it was: the script may change it for the next epoch
            yield _EPOCH_ENDS
            guards.enter(self)
        if self._fresh:
            self._strays.look()
            self._generators.leave_out(source.generators())
            self._generators.add_from_script()
        sums, group = self._sums, self._group
        assert sums is not None and group is not None
        self._settings.begin_step()
        self._count_step(work.step, self._share(work), source, group)
        sums.begin(group)
        self._first_try = None
        watch = self._watch
        while True:
            self._table.zero_()
            self._arrivals.forget()
            self._statistics.begin()
            watch.start(self._full.group if self._full is not None else None)
            self.trying = trial = self._trying(work) and self._first_try is None
            self._last_number = None if trial or not self._share(work) else self._share(work)[-1]
            self._updates = 0
            for number in self._share(work):
                yield from self._micro_batch(work, number, source)
                self._updates += self._settings.updated
                if session.cancelled():
                    self._updates_step = work.step
                    raise StepCancelled("the step was abandoned")
            taken_s = watch.read()
            self._arrivals.settle()
            if self._is_tried_again(work):
                sums.begin(group)
                source.restart()
                continue
            if work.step != self._updates_step:  # not what is done again: a loop may count its steps
                self._check_updates(work)
            self._updates_step = work.step
            try:
                norms = self._exchange(group, sums, work.step, not self._share(work))
                break
            except Redo:
                assert isinstance(sums, (FixedSums, ShardedSums))
                sums.begin_again()
                source.restart()
        self._fresh = False
        self._tell_time(work, taken_s)
        state.staging.mark()
        session.held(work.step, norms if self._shards is None else self._shards.own(norms))

    def _check_updates(self, work: Work) -> None:
        """A loop that calls optimizer.step() in every micro-batch, and then in one it does not, has a condition around it. By share: a loop
        that calls it in some of a step's micro-batches does so in every step."""
        share = self._share(work)
        if self._updates_of != (work.generation, share):
            self._updates_of, self._steps_updated = (work.generation, share), 0
        if self._updates == len(share):
            self._steps_updated += 1
            return
        if self._steps_updated >= _UPDATED and not self._left and self._scale is None:
            raise UsageError(f"optimizer.step() is called under a condition: it was for every micro-batch of the steps before, and in step {work.step} "
                             "it was not. That leaves nothing out, for Tidemill steps by itself when a step is complete. Against gradients that are "
                             "too large clip (clip_grad_norm_, attach(..., clip=MAX_NORM)); to leave a step out set the learning rate on "
                             "param_groups to 0 by job.committed_step; and call optimizer.step() always, or never")
        self._steps_updated = 0

    _updates = _updates_step = 0  # micro-batches of the step in which the loop called optimizer.step(), and the last step looked at
    _updates_of: Any = None  # the generation and share that have had so many steps with a call in each micro-batch, one after another:
    _steps_updated = 0

    def _count_step(self, step: int, share: Sequence[int], source: Source, group: Group) -> None:
        """What all micro-batches of the step count for, before the first is computed. The same on every worker: it follows from the
        samples. None: one of them says that it does not count."""
        self._loaded: Dict[int, Any] = {}
        if self._count is None:
            return
        counts = torch.zeros(self.micro_batches, dtype=torch.float64)
        for number in share:
            self._loaded[number] = source.get(step, number)
            told = self._count(self._loaded[number])
            counts[number] = math.nan if told is None else float(told)
        group.wait(group.all_reduce(counts))
        total = float(counts.sum())
        self._step_count = None if math.isnan(total) else total

    def _trying(self, work: Work) -> bool:
        """The job's first step, which is computed twice. Not where other workers exchange with this one meanwhile."""
        return self._try_twice and work.step == 1 and self._fresh and self._full is None

    def _is_tried_again(self, work: Work) -> bool:
        """After all micro-batches of a step. The same weights, samples and random numbers give the same losses, unless the loop keeps
        something from one micro-batch to the next that is not the job's."""
        if not self._trying(work):
            return False
        if self._first_try is None:
            self._first_try, self._first_gradients = self._losses.clone(), self._gradients()
            return True
        self._try_twice = False
        assert self._state is not None
        self._state.watch.check()  # what it finds says more
        self._state.extras.check()
        guards.check_again(self._first_try, self._losses, list(self._share(work)), self._loss_tolerance())
        guards.check_gradients_again(self._first_gradients, self._gradients(), 0.0 if self.bitwise else 1e-2)
        return False

    def _loss_tolerance(self) -> float:
        """How far the same loss may be off, relatively, when it is computed again: threads and GPUs may add in another order."""
        assert self._state is not None
        if self.bitwise:
            return 0.0
        if self._state.device.type != "cpu":
            return 1e-4
        return 1e-7 if torch.get_num_threads() == 1 else 1e-6

    _first_gradients: Dict[str, float] = {}

    def _gradients(self) -> Dict[str, float]:
        return self._sums.sizes() if isinstance(self._sums, (FixedSums, FloatSums)) else {}

    def _tell_time(self, work: Work, seconds: float) -> None:
        """As if this worker had computed all micro-batches of its pipeline: by what one takes they are shared out."""
        mine = len(self._share(work))
        if mine and seconds > 0 and self._session is not None:
            self._session.computed(work.step, seconds * (work.last_micro_batch - work.first_micro_batch) / mine)

    @staticmethod
    def _share(work: Work) -> range:
        """This worker's micro-batches."""
        return shards.Shards.share(work)

    def _gather(self) -> None:
        """Where workers hold different layers: the weights of the others, and then who waits for the step before to be whole."""
        if self._shards is None:
            return
        self._shards.gather()
        self._tell_step()

    def _micro_batch(self, work: Work, number: int, source: Source) -> Iterator[Any]:
        """One micro-batch for the loop. The first time that the loop sets something (LoopSettings) it comes twice, to see that
        the same is set again: a counter of the loop would not. Not where weights are sharded: the gradients of the first time are with
        their holders already, and only this worker would compute it again."""
        share = self._share(work)
        first = number == share[0]
        again = self._full is None
        trial = again and first and self._probe == "due"
        # nothing is sent yet, so it can be done again, or compared
        quiet = again and (trial or self._trying(work) or (self._fresh and self._probe == "unknown"))
        watched = trial or (self._probe == "unknown" and self._strays.watching())
        before = self._strays.read() if watched else {}
        yield from self._give(work, number, source, number == share[-1] and not quiet)
        mark = self._settings.end()
        after = self._strays.read() if watched else {}
        if (mark or self._strays.differ(after, before)) and self._probe == "unknown":
            self._probe = "due"
            trial = first and quiet
        if trial:
            assert self._sums is not None and self._group is not None
            self._probe = "done"
            self._sums.begin(self._group)
            self._statistics.begin()
            source.restart()
            yield from self._give(work, number, source, number == share[-1])
            self._settings.probed(mark, self._settings.end())
            self._strays.probed(after, self._strays.read())
        self._marks[number], self._clips[number] = mark, self._settings.clip or 0.0

    def _give(self, work: Any, number: int, source: Source, last: bool) -> Iterator[Any]:
        batch = self._loaded.pop(number) if number in self._loaded else source.get(work.step, number)
        self._key = samples.key_of(self.seed, work.step, number, _COMPUTE)
        self._seed_again()
        self._settings.begin()
        self._step = Step(self, work.step, number, last, number == self._last_number)
        self._step.begin()
        if (work.step, number) > self._handed_last:  # not what is done again, after a loss or to compare
            self._handed_last = (work.step, number)
            self._handed += 1
        yield batch
        self._end_of(self._step)

    def _seed_again(self) -> None:
        """Random numbers as this micro-batch begins with them."""
        seed_all(self._key)
        self._generators.seed(self._key)

    def _end_of(self, step: "Step") -> None:
        self._step = None
        if step.state == "cancelled":
            raise StepCancelled("the step was abandoned")
        if step.state == "open":
            step.end()
        if step.state != "done":
            raise UsageError("a batch was taken and job.backward(loss) was not called for it: every micro-batch has its loss, "
                             "and job.backward(loss) stands where loss.backward() was")
        step.check_gradients()

    def _exchange(self, group: Group, sums: Any, step: int, idle: bool = False) -> Dict[int, float]:
        """idle: this worker holds layers and has computed nothing, so that its loop has set nothing either."""
        if isinstance(sums, ShardedSums):
            sums.follow()
        if isinstance(sums, FloatSums):
            sums.launch_rest()
        self._used.copy_(torch.tensor([float(id(p) in sums.used) for p in self._trained], dtype=torch.float64))
        self._replicas.say(self._alike, float(self._items_here or 0), {} if idle else self._source.marks(step))
        group.wait(group.all_reduce(self._table))
        self._replicas.check(self._alike, step, self._items_here)
        self._check_modes(step)
        sums.unused = {id(p) for p, count in zip(self._trained, self._used.tolist()) if not count}
        if idle:
            self._settings.follow(step, int(self._marks[0]), float(self._clips.max()))
        if self._settings.clip is not None or self._clip is not None:
            sums.with_norms = True
        sums.may_overflow = self._scale is not None
        norms: Dict[int, float] = sums.finish()
        self._statistics.exchange(group)
        self._settings.agree(step, [int(mark) for mark in self._marks.tolist()])
        if not sums.overflow:
            self._check_losses()
        return norms

    def _mode(self) -> float:
        """Which modules are in training mode, as a number."""
        return float(mark_of(bytes(module.training for module in self._modules)))

    def _check_modes(self, step: int) -> None:
        modes = self._modes.tolist()
        odd = next((number for number, mode in enumerate(modes) if mode != modes[0]), None)
        if odd is not None:
            raise UsageError(f"in step {step} other modules are in training mode (model.train(), model.eval()) for micro-batch {odd} than for "
                             "micro-batch 0, here or on another worker: a worker that joins begins in training mode, and knows nothing of "
                             "an evaluation that left the model in another. Say model.train() for every micro-batch, or compute from "
                             "job.committed_step what is in which mode")

    _items_here: Optional[int] = None  # of the data set; None: a stream

    def _exchange_losses(self, group: Group) -> None:
        group.wait(group.all_reduce(self._losses))
        self._check_losses()

    def _check_losses(self) -> None:
        if not bool(torch.isfinite(self._losses).all()):
            bad = int(torch.nonzero(~torch.isfinite(self._losses))[0])
            raise JobFailed(f"the loss is not finite in micro-batch {bad}: lower the learning rate, clip, or look at the "
                            "data of this step")

    def _renew_table(self) -> None:
        """A row of losses, one of what the loop has set (LoopSettings), one of where it clips and one of which modules are in training mode,
        a column for each micro-batch: each cell has one author, the others add zero. Then a number for each parameter: how many workers have a gradient for it. At last what
        must be the same on every worker (Replicas)."""
        self._trained = [p for layer in self._state.layers for p in layer.trained] if self._state is not None else []
        count = self.micro_batches
        alike = 0 if self._state is None else self._replicas.agreement.cells
        self._table = torch.zeros(4 * count + len(self._trained) + alike, dtype=torch.float64)
        self._losses, self._marks, self._clips, self._modes = self._table[: 4 * count].view(4, count)
        self._used, self._alike = self._table[4 * count:].split([len(self._trained), alike])
        self._modules = list(self._state.model.modules()) if self._state is not None else []

    def _apply(self, work: Work) -> Iterator[Any]:
        state, session, sums = self._state, self._session, self._sums
        assert state is not None and session is not None
        if self._stop.at:
            state.commit(work.step, None if self._shards is None else self._shards.held)
            session.applied(work.step)
            return
        assert sums is not None
        factor = self._clip_factor(work)
        state.watch.check()
        state.extras.check()
        overflow = sums.overflow
        if not overflow:
            self._update(state, sums, factor)
        if self._scale is not None:
            self._scale.update(overflow, work.step)
        if state.scheduler is not None and self._schedule_is_due(work.step):
            self._scheduler_step()
        sums.commit()
        self._statistics.commit()
        yield from self._change_extras(work.step)
        self._strays.check_schedules()
        self.seen.commit(work.step)
        state.commit(work.step, None if self._shards is None else self._shards.held)
        self._settings.remember()
        self._copies.after_step(sums)
        self._committed(work)

    def _update(self, state: ModelState, sums: Any, factor: float) -> None:
        sums.hand_over(factor if self._scale is None else factor / self._scale.scale)
        if self._clip_value is not None:
            grads = [p.tensor.grad for p in state.params if p.tensor.grad is not None]
            torch._foreach_clamp_min_(grads, -self._clip_value)
            torch._foreach_clamp_max_(grads, self._clip_value)
        if self._shards is not None:
            self._shards.own_gradients_only()
        state.watch.before_update()
        self._strays.before_update()
        self._optimizer_step()
        self._strays.after_update()
        state.watch.after_update()

    _clip_value: Optional[float] = None
    _schedule = "step"
    _items: Optional[int] = None

    def _schedule_due_next(self) -> bool:
        """Of the step that is held."""
        return self._state is not None and self._state.scheduler is not None and self._schedule_is_due(self._next_step)

    def _clip_now(self) -> Optional[float]:
        return self._clip if self._state is None or self._settings.clip is None else self._settings.clip

    def _schedule_is_due(self, step: int) -> bool:
        if self._schedule == "step":
            return True
        count = self._items or 1
        return step * self.batch // count > (step - 1) * self.batch // count

    def _change_extras(self, step: int) -> Iterator[Any]:
        """What the script does once a step, as part of it: on every worker, so with the same random numbers."""
        self._committing = True
        self._enter_callback("on_commit")
        hooked = bool(self._pauses or self._commit_callbacks or self._settings.updates) and self._shards is None
        if hooked:
            self._replicas.before_hooks()
        if self._pauses or self._commit_callbacks:
            self._key = samples.key_of(self.seed, step, 0, _COMMIT)
            self._seed_again()
        try:
            for update in self._settings.updates.values():
                update()
            with self._watched("on_commit", self._commit_callbacks):
                for callback in self._commit_callbacks:
                    callback(step, self._mean_loss())
            if self._positions:
                self._source.commit(step)
            if self._pauses:
                yield COMMITS
            if self._stop.wanted:
                self._stop.at = step
            if hooked:
                self._replicas.after_hooks(step)
        finally:
            self._committing, self._in_callback = False, ""

    def _mean_loss(self) -> float:
        return float(self._losses.sum()) / self.micro_batches

    def _clip_factor(self, work: Work) -> float:
        clip = self._clip_now()
        if clip is None:
            return 1.0
        norm = math.sqrt(work.norm) / (1.0 if self._scale is None else self._scale.scale)
        self.last_norm = norm
        if not math.isfinite(norm):
            raise JobFailed(f"the gradient of step {work.step} is not finite: lower the learning rate, clip, or look at "
                            "the data of this step")
        return min(1.0, clip / (norm + 1e-6))

    def _committed(self, work: Work) -> None:
        assert self._session is not None
        loss = self._mean_loss()
        self.committed_step, self.last_loss = work.step, loss
        self._next_step = work.step + 1
        self._report(work.step, loss)
        self._session.applied(work.step)
        self._untold, self._told = (work.step, loss), False
        if self._shards is None:
            self._tell_step()

    def _tell_step(self) -> None:
        """after_step and logs, of the committed step, once all of its weights are here."""
        try:
            self._tell_callbacks()
        finally:
            self._in_callback = ""

    def _watched(self, name: str, callbacks: Sequence[Any]) -> ContextManager[None]:
        own_loop = self._state is not None and not self._pauses
        return self._strays.watched(name) if callbacks and own_loop else contextlib.nullcontext()

    _in_callback = ""  # the name of what is called

    def _enter_callback(self, name: str) -> None:
        self._in_callback = name
        self._calls[name] = self._calls.get(name, 0) + 1

    def _tell_callbacks(self) -> None:
        told = self._untold
        if told is not None and told[0] != self.committed_step:
            told = self._untold = None
        if told is not None and not self._told:
            self._told = True
            self._enter_callback("after_step")
            self._log(*told)
            with self._watched("after_step", self._callbacks):
                for callback in [callback for callback, whole in self._callbacks if not whole]:
                    callback(*told)
        due = [callback for callback, whole in self._callbacks if whole and self.committed_step % whole == 0]
        if due and self.committed_step:
            self._tell_whole(due, told)
        self._untold = None

    def _tell_whole(self, due: List[Any], told: Any) -> None:
        """With all weights. Every worker of the generation comes here, also one that has nothing to tell: it gives its weights."""
        full = None if self._over else self._full
        if full is not None and not full.gather_all(told is not None):
            return
        for callback in due if told is not None else ():
            callback(*told)
        if full is not None:
            full.free_others()

    _untold: Any = None
    _told = False
    _watch = Stopwatch(torch.device("cpu"))
    _shards: Optional[shards.Shards] = None
    _full: Optional[FullShards] = None  # the same, where weights are sharded
    _plan: Any = None  # of fully_shard
    _sharded = False

    def _report(self, step: int, loss: float) -> None:
        """By every worker: when one is lost, another tells it."""
        assert self._session is not None
        if math.isfinite(loss):
            self._session.report_loss(step, loss)
        groups = self._state.optimizer.param_groups if self._state is not None else []
        if groups and "lr" in groups[0]:
            self._session.report_metric(step, "lr", float(groups[0]["lr"]))
        for name, read in self._metrics.items():
            self._session.report_metric(step, name, float(read()))

    # ---- generations ----

    def _new_generation(self, work: Work, source: Source) -> None:
        assert self._state is not None and self._session is not None
        meeting = self._seat(work)
        if self._group is not None:
            self._group.close()
        if self._sums is not None:
            self._sums.close()
        self._renew_table()
        self._statistics.renew()
        self._sums = self._make_sums()
        self._watch = Stopwatch(self._state.device)
        source.begin(self._share(work))
        self._group = None
        name = f"generation-{work.generation}"
        if self._shards is not None:
            if self._shards.group is not None:
                self._shards.group.close()
            self._shards.group = self._meet(f"{name}-shards-{work.pipeline}", work.stage, work.stages, meeting)
            if self._full is not None:
                if self._full.replicas is not None:
                    self._full.replicas.close()
                replicas = self._meet(f"{name}-replicas-{work.stage}", work.pipeline, work.pipelines, meeting)
                self._full.renew(self._shards.group, replicas)
        self._group = self._meet(name, self._rank, self._world_size, meeting)

    def _seat(self, work: Work) -> Any:
        """Learns rank and peers; returns where to meet."""
        members = self._sit_down(work)
        self.generation = work.generation
        meeting = self._check_members(members)
        self._set_variables(meeting)
        return meeting

    def _sit_down(self, work: Work) -> List[Peer]:
        members = sorted(work.peers, key=lambda p: (p.stage, p.pipeline))
        self._rank = next(i for i, p in enumerate(members) if (p.stage, p.pipeline) == (work.stage, work.pipeline))
        self._world_size, self._seat_known = len(members), True
        each = _local_world_size()
        groups = [(p.instance - 1) // each for p in members]  # workers are numbered instance by instance
        order = sorted(set(groups))
        self._group_rank, self._group_world_size = order.index(groups[self._rank]), len(order)
        return members

    def _meet(self, name: str, rank: int, size: int, meeting: Any) -> Group:
        assert self._session is not None
        group = Group(rank, size, self._session.cancelled)
        if meeting is not None:
            assert self._host is not None
            group.connect(name, self._host, meeting, self._backend, self._timeout_s)
        return group

    def _check_members(self, members: Sequence[Peer]) -> Any:
        """Returns where to meet; checks that every worker started with the same weights."""
        if self._host is None:
            return None
        places = [read_endpoint(p.endpoint) for p in members]
        taken: Dict[str, Peer] = {}
        for peer, (_, _, digest, gpu) in zip(members, places):
            if gpu and taken.setdefault(gpu, peer) is not peer:
                raise UsageError(f"workers {taken[gpu].instance} and {peer.instance} share the GPU {gpu}, which NCCL does "
                                 "not allow: give each worker a GPU of its own, or say backend=\"gloo\"")
            if digest != self._digest:
                raise UsageError(
                    f"worker {peer.instance} has built another model or other first weights than this one: build the "
                    "model after tidemill.torch.init (which sets the seed), from nothing that differs between machines "
                    "(time, host, unseeded random numbers), with the same torch and the same script")
        return places[0][0], places[0][1]

    def _set_variables(self, meeting: Any = None) -> None:
        """Sets the variables that torchrun would set, and the generation."""
        if not self._seat_known:  # rank 0 on every worker would be worse than none
            for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"):
                os.environ.pop(name, None)
            return
        host, port = meeting or ("127.0.0.1", 29500)
        os.environ.update(RANK=str(self._rank), WORLD_SIZE=str(self._world_size),
                          LOCAL_RANK=str(_local_rank()), LOCAL_WORLD_SIZE=str(_local_world_size()),
                          GROUP_RANK=str(self._group_rank), GROUP_WORLD_SIZE=str(self._group_world_size),
                          MASTER_ADDR=str(host), MASTER_PORT=str(port), TIDEMILL_GENERATION=str(self.generation))

    # ---- steps ----

    def step(self) -> "Step":
        """The context around a micro-batch's forward and backward pass."""
        if self._step is None:
            raise UsageError("job.step() belongs inside the loop over job.batches(dataset), once a batch")
        return self._step

    def after_step(self, callback: Callable[[int, Optional[float]], None], whole: int = 0) -> Callable[[int, Optional[float]], None]:
        """Calls `callback(step, loss)` after every step that this worker has applied; the loss is that of the global batch.

        whole   > 0: after steps that are multiples of it only, and with attach(shard="full") with all weights in memory, on every worker:
                for an evaluation now and then"""
        self._callbacks.append((callback, whole))
        return callback

    def on_commit(self, callback: Callable[[int, float], None]) -> Callable[[int, float], None]:
        """Calls `callback(step, loss)` once a step on every worker, after the optimizer and as a part of the step: the place to
        change what was attached (an average of weights, a counter, weights that are clamped, learning rates)."""
        if self._sharded:
            raise UsageError(_NO_COMMIT)
        self._commit_callbacks.append(callback)
        return callback

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """For what one worker does in the loop and others do not: random numbers drawn inside leave those of the training as
        they are, and no gradients are kept. Put the model into eval mode, as always."""
        with kept_random_numbers(), torch.no_grad():
            yield

    def stop(self) -> None:
        """In `on_commit`: the training ends with this step, on every worker (early stopping). The steps that are left are
        passed over without being computed; `committed_step` stays."""
        if not self._committing:
            raise UsageError("job.stop() belongs in a function given to job.on_commit, where all workers decide alike: there it "
                             "is part of the step")
        self._stop.wanted = True

    def on_main(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback()` once in the worker that is main, before its first step: the place to open what a job has once,
        such as a run of wandb (id=job.id, resume="allow"). When that worker is preempted, the next main worker calls it."""
        self._main_callbacks.append(callback)
        return callback

    def _say_main(self) -> None:
        if self._rank == 0 and not self._told_main:
            self._told_main = True
            for callback in self._main_callbacks:
                callback()

    def log(self, sink: Sink, **fields: Callable[[], Any]) -> None:
        """Writes a record of every committed step, once a job: step, loss, lr, generation, workers, and what the given
        functions return. sink: a file of JSON lines that all workers see, or a function that gets the record."""
        self._logs.append((StepLog(sink), fields))

    def metrics(self, **fields: Callable[[], float]) -> None:
        """Numbers of every committed step for the loggers of the job file (its key `log`), beside the loss and the learning rate.
        The functions are called after every step, on every worker, so that none is missing when one is lost: what they return
        must be the same on all. At most 15, with names of at most 47 bytes."""
        for name in fields:
            if len(name.encode()) > 47 or len(set(self._metrics) | set(fields)) > 15:
                raise UsageError(f"job.metrics({name}=...): there are at most 15 metrics, with names of at most 47 bytes")
        self._metrics.update(fields)

    def _log(self, step: int, loss: float) -> None:
        if not self._logs or self._state is None:
            return
        groups = self._state.optimizer.param_groups
        for log, fields in self._logs:
            record = {"step": step, "loss": loss, "lr": float(groups[0].get("lr", 0.0)) if groups else 0.0,
                      "generation": self.generation, "workers": self._world_size}
            record.update({name: read() for name, read in fields.items()})
            log.note(record, self._rank == 0)

    @property
    def device(self) -> torch.device:
        """Where this worker computes: the GPU of its place on its instance (LOCAL_RANK), or the CPU where there is none."""
        return own_device()

    @property
    def mesh(self) -> Any:
        """For torch.distributed.fsdp.fully_shard(module, mesh=job.mesh), before attach: it says which weights are sharded together;
        how many shards there are is the layout's to say, and changes with it."""
        if self._state is not None:
            raise UsageError("job.mesh is for fully_shard, which belongs before attach")
        return plan.mesh_of(self.device)

    @property
    def id(self) -> str:
        """Of the job, the same on every worker and after every loss; for trackers that resume a run by a name."""
        return os.environ.get("TIDEMILL_JOB") or f"alone-{self.seed}"

    def backward(self, loss: torch.Tensor, scale: float = 1.0) -> None:
        """Instead of loss.backward(), once a micro-batch: Step.backward of the micro-batch that the loop has."""
        self.step().backward(loss, scale)

    # ---- the end ----

    def _refresh_result(self) -> None:
        assert self._state is not None
        whole = self._shards is not None and self._shards.gather_result(self.steps)
        self.has_result = {layer.step for layer in self._state.layers} == {self.steps}
        if whole:
            self._tell_step()
        if self.has_result:
            self._state.refresh(self.steps, None if self._shards is None else self._shards.held)
            if self.committed_step != (self._stop.at or self.steps):
                self.last_loss = None
            self.committed_step = self._stop.at or self.steps

    has_result = False

    def _need_seat(self, name: str) -> None:
        if self._seat_known or self._over or self.rehearsing:
            return
        if self._state is not None:
            self._join_now()
        if self._session is None or self._state is None:
            raise UsageError(f"job.{name} is not known before job.attach: a worker learns its place when it joins, and gets another "
                             "one whenever workers come or go. Ask after attach; what one worker should do for the whole job "
                             "(wandb.init) belongs in a function given to job.on_main")
        work = self._peek()
        if work is not None:
            self._sit_down(work)

    @property
    def rank(self) -> int:
        """This worker's rank in the generation. Known from `attach` on; -1 after the loop if it never took part."""
        self._need_seat("rank")
        return self._rank if self._seat_known else -1

    @property
    def world_size(self) -> int:
        """The number of workers in the generation. Known from `attach` on."""
        self._need_seat("world_size")
        return self._world_size

    @property
    def is_main(self) -> bool:
        """True on one worker of the generation, the one to print and save (in the loop and in `after_step`). After the loop:
        true on one of those that have the final weights."""
        self._need_seat("is_main")
        return self._seat_known and self._rank == 0 and (self.has_result or not self._over)

    def done(self) -> bool:
        """After the loop: leaves the job. True if this worker has the final weights."""
        if self._late_error is not None:
            raise self._late_error
        if not self._over:
            raise UsageError("job.done() is for after the loop over job.batches(dataset), which was left early (break): let it end by itself; to "
                             "stop early call job.stop() in job.on_commit")
        if self._session is not None:
            self._session.close()
        if self._group is not None:
            self._group.close()
        return self.has_result

    def save(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a checkpoint (safetensors, tidemill.torch.checkpoint) of the last committed step. In the loop, call it
        from `after_step`, on one worker, such as the main one; with attach(shard=...) on every worker, each writes its part."""
        if self._state is None:
            raise UsageError("attach a model before it is saved")
        if self._shards is not None:
            checkpoint.save_held(self._state, self.committed_step, folder, self._shards.held, self._shards.pipeline == 0)
        else:
            checkpoint.save(self._state, self.committed_step, folder)

    def _fail(self, error: BaseException) -> None:
        """The user's script is wrong: tells all workers why; nothing is retried."""
        self._failed_exit = True
        if self._state is not None and not self._over:
            self._join_now()  # or nobody is told
        if self._over or self._session is None:
            return
        self._over = True
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._session.failed(text[-3500:])
        self._session.wait_for_end(_FAIL_WAIT_S)

    def _watch_exits(self) -> None:
        before = sys.excepthook

        def on_exception(kind: Any, error: Any, trace: Any) -> None:
            self._fail(error)
            before(kind, error, trace)

        def at_exit() -> None:
            if not self._over and (self._session is not None or self._late is not None):
                self._fail(UsageError("the script ended before the job was finished: let the loop over job.batches end "
                                      "by itself; to stop early call job.stop() in job.on_commit"))
            if given_up():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1 if self._failed_exit else 0)

        sys.excepthook = on_exception
        atexit.register(at_exit)

    _failed_exit = _warned = False


class _Stop:
    """Whether the training has ended before its last step, as part of the job's state."""

    at, wanted = 0, False

    def state_dict(self) -> Dict[str, Any]:
        """The step, or 0."""
        return {"at": self.at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What state_dict gave."""
        self.at = int(state["at"])


class Step:
    """A micro-batch in progress."""

    def __init__(self, job: Job, number: int, micro_batch: int, last: bool, final: bool = False) -> None:
        """last: what is summed may be sent. final: the last of this worker's micro-batches of the step, and not for a trial."""
        self.number, self.micro_batch = number, micro_batch
        self._job, self._last, self._final = job, last, final
        self._called = False
        self._given: List[Any] = []  # parameters that have a gradient of `backward`
        self.state = "new"

    def begin(self) -> None:
        """The micro-batch is given to the loop."""
        self._job._statistics.begin_micro_batch()
        self._sums.begin_micro_batch(self._last)

    def __enter__(self) -> "Step":
        if self.state != "new":
            raise UsageError("one batch, one `with job.step()`: this batch has had its step")
        self.state = "entered"
        self.check_gradients()
        return self

    @property
    def _sums(self) -> Sums:
        assert self._job._sums is not None
        return self._job._sums

    def check_gradients(self) -> None:
        """Only `backward` may write to gradients."""
        if not self._sums.altered():
            return
        if self.state in ("new", "entered") and not self._called:
            raise UsageError("loss.backward() was called in the job's loop, or gradients were written to before job.backward "
                             "(p.grad.data.zero_()): write job.backward(loss) instead, so that the loss and the gradient are known as "
                             "this micro-batch's, and leave zeros to Tidemill")
        raise UsageError("the gradients were changed in the job's loop outside of job.backward(loss) (another backward pass, "
                         "clipping, zero_grad(set_to_none=False), scaling): they are sums over micro-batches, and other "
                         "workers have other shares of them. Clip with attach(..., clip=MAX_NORM), change a micro-batch's "
                         "gradient by Tensor.register_hook, and leave the rest to Tidemill")

    @property
    def count(self) -> Optional[float]:
        """What all micro-batches of the step count for, where job.batches was given a `count`."""
        return self._job._step_count

    @property
    def cancelled(self) -> bool:
        """Was the step cancelled? Long micro-batches may check this and leave the context early."""
        session = self._job._session
        return session is not None and session.cancelled()

    def backward(self, loss: torch.Tensor, scale: float = 1.0) -> None:
        """Calls loss.backward() and reports the loss. Once per micro-batch. scale: multiplies the loss, for a loop that has
        divided it by the number of micro-batches."""
        if self.state not in ("entered", "new"):
            raise UsageError("job.backward(loss) is called twice for one micro-batch, or after its `with job.step()`: add the "
                             "losses up and call it once" if self._called else
                             "step.backward(loss) belongs inside `with job.step() as step:`")
        if self._called:
            raise UsageError("job.backward(loss) is called twice for one micro-batch: add the losses up and call it once")
        self.check_gradients()
        self._called = True
        if self.state == "new":
            self.state = "open"
        job = self._job
        if scale != 1.0:
            loss = loss * scale
        elif job.micro_batches > 1 and not job._warned:
            self._warn_of_division(guards.divided_by(loss, job.micro_batches))
            self._warn_of_sum(loss)
        job._arrivals.put(job._losses, self.micro_batch, loss)
        job._modes[self.micro_batch] = job._mode()
        if self._given_up:
            return  # a worker is gone: what the loop computes now is thrown away
        self._check_used(loss)
        job._in_backward = True
        try:
            (loss if job._scale is None else loss * job._scale.scale).backward()
        finally:
            job._in_backward = False
        self._sums.settle()
        if job._full is None:
            self._given = [p for p in job._trained if p.tensor.grad is not None]

    def at_update(self) -> None:
        """The loop calls optimizer.step(): what becomes of gradients later means nothing."""
        self._check_dropped()
        self._given = []

    def _check_dropped(self) -> None:
        """All gradients may be None (zero_grad of the model), which is not meant for this step. Some are meant to be left out of it."""
        dropped = [p for p in self._given if p.tensor.grad is None]
        if not dropped or len(dropped) == len(self._given):
            return
        raise UsageError(f"the gradient of {dropped[0].name} was set to None after job.backward(loss), and that of others was not: it is part of the "
                         "step's sum already, so the parameter would be trained all the same. To leave it out for a while give it a parameter "
                         "group, and set the group's rate to 0 by job.committed_step; or call zero_grad of the whole model")

    def _warn_of_division(self, by: Optional[float]) -> None:
        if by is None:
            return
        job = self._job
        job._warned = True
        what = "the number" if by == job.micro_batches else "as if that were the number"
        warnings.warn(f"the loss was divided by {by:g}, {what} of micro-batches of a step: Tidemill takes the mean of its "
                      f"{job.micro_batches} by itself, so the gradient becomes so many times smaller. Leave the division out, or say "
                      f"job.backward(loss, scale={by:g})", stacklevel=4)

    def _warn_of_sum(self, loss: torch.Tensor) -> None:
        job = self._job
        if job._warned or not guards.is_summed(loss):
            return
        job._warned = True
        warnings.warn(f"the loss is a sum over samples (reduction=\"sum\"), and Tidemill takes the mean of a step's {job.micro_batches} micro-batches: "
                      f"its gradient is 1/{job.micro_batches} of that of the sum over the whole batch. If that sum is meant say job.backward(loss, "
                      "scale=job.micro_batches); if a mean is, divide by the number of samples", stacklevel=4)

    @property
    def _given_up(self) -> bool:
        sums = self._sums
        return isinstance(sums, ShardedSums) and sums.given_up

    def _check_used(self, loss: torch.Tensor) -> None:
        """Weights in shards are here while their unit's forward pass runs, and NaN otherwise."""
        full = self._job._full
        unused = None if full is None else full.unused()
        if unused is not None and not bool(torch.isfinite(loss.detach()).all()):
            raise UsageError(f"the loss is not finite, and the forward pass of {unused} was not called: with weights in shards they are "
                             "there while the module that was sharded is called (module(x)), not for its parts by themselves. Give "
                             "fully_shard the parts that are called, or use attach(shard=\"optimizer\")")

    def end(self) -> None:
        """The loop is done with this micro-batch."""
        if self._given_up:
            self._sums.end_micro_batch()  # StepCancelled
        self.check_gradients()
        if not self._called:
            raise UsageError("a step ended without step.backward(loss): every micro-batch has its loss, and "
                             "step.backward(loss) stands where loss.backward() was")
        self._check_dropped()
        self._sums.end_micro_batch()
        self._job._statistics.end_micro_batch(self.micro_batch)
        self.state = "done"

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None and not self._called and self.cancelled:
            self.state = "cancelled"  # it was left early
            return False
        if error is None:
            try:
                self.end()
            except StepCancelled:
                self.state = "cancelled"
            return False
        if isinstance(error, StepCancelled):
            self.state = "cancelled"
            return True
        self.state = "failed"
        self._job._fail(error)
        return False

"""Elastic data parallel in the user's own loop.

    job = tidemill.torch.init(steps=1000, batch=64, micro_batch=8, seed=1)     # before the model is made
    model, optimizer, scheduler = ...
    job.attach(model, optimizer, scheduler)
    for inputs, targets in job.batches(dataset):
        with job.step() as step:
            loss = loss_function(model(inputs), targets)
            step.backward(loss)                                               # instead of loss.backward()
    job.done()

The loop runs once per micro-batch. Which ones this worker gets, when the optimizer steps and what happens when a machine is
lost is Tidemill's part: `optimizer.step()`, `optimizer.zero_grad()` and `scheduler.step()` of the loop may stay and do
nothing. Started by an agent the script is one worker of many; started by hand it is alone, and the same.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

import torch
from torch import nn

from tidemill import samples
from tidemill.errors import JobFailed, Refused, UsageError
from tidemill.session import APPLY, STEP, Alone, Peer, Session, Work, stay_with_agent, under_agent
from tidemill.torch import checkpoint, fixed_point, guards
from tidemill.torch.buffers import RunningStatistics
from tidemill.torch.data import MicroBatches
from tidemill.torch.group import Group, Home, StepCancelled, given_up, read_endpoint
from tidemill.torch.seeds import seed_all
from tidemill.torch.state import ModelState
from tidemill.torch.sums import FixedSums, FloatSums, Redo

_COMPUTE = 2  # a purpose of random numbers
_LAYERS_ALONE = 8
_FAIL_WAIT_S = 5.0

OLDEST_TORCH = (2, 6)


def check_torch() -> None:
    """Refuses versions without what we use; newer ones than tested are tried."""
    version = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        raise UsageError(f"tidemill.torch needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer (tested with 2.11 and "
                         f"2.13); this is {torch.__version__}")


def _setting(name: str, given: Any, variables: Any, convert: Callable[[str], Any], default: Any = None) -> Any:
    """The job's word, which an agent tells, or the script's; where both speak they must agree."""
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


def _no_step(scheduler: Any, epoch: Any = None) -> None:
    """What the loop's scheduler.step() does."""
    if epoch is not None:
        raise UsageError(f"{type(scheduler).__name__}.step({epoch!r}): the attached schedule steps once per committed step, by "
                         "itself, and takes no other count from the loop. Give its lengths in steps, and leave the call out")


def _determinism(text: str) -> str:
    if text not in ("bitwise", "fast"):
        raise ValueError(text)
    return text


def init(steps: Optional[int] = None, batch: Optional[int] = None, micro_batch: Optional[int] = None,
         seed: Optional[int] = None, determinism: Optional[str] = None, threads: Optional[int] = None,
         backend: Optional[str] = None, timeout_s: float = 120.0) -> "Job":
    """Begins a job, before the model is made: the model's first weights come from `seed`.

    steps         optimizer updates in total
    batch         samples of a step, whatever the number of workers
    micro_batch   samples that are computed at once; divides the batch, and is fixed for the life of the job
    determinism   "bitwise": the same weights to the bit whatever happens to the workers, and those of the script alone;
                  "fast" (default): floats are added as DistributedDataParallel does
    threads       of torch, on each worker; 1 for bitwise unless said otherwise
    backend       "gloo" (default) or "nccl" (one GPU a worker)
    timeout_s     after which a silent exchange between workers fails

    Under an agent the job's own figures (its YAML file) are used; a script that says otherwise is refused. Alone, the
    script's are all that there is: what it does not say has its default, whatever the job's file says.
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
    )


class Job:
    """One worker's view of a job. Made by `init`. host: where peers reach this worker; None: it is alone."""

    def __init__(self, host: Optional[str], steps: Optional[int], batch: Optional[int], micro_batch: Optional[int],
                 seed: int, determinism: str, layers: int, threads: Optional[int], backend: str,
                 timeout_s: float) -> None:
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
        self._backend, self._timeout_s = backend, timeout_s
        self._session: Union[Session, Alone, None] = None
        self._state: Optional[ModelState] = None
        self._home: Optional[Home] = None
        self._group: Optional[Group] = None
        self._sums: Union[FixedSums, FloatSums, None] = None
        self._clip: Optional[float] = None
        self._step: Optional[Step] = None
        self._losses = torch.zeros(self.micro_batches, dtype=torch.float64)
        self._callbacks: List[Callable[[int, Optional[float]], None]] = []
        self._over = False
        self.committed_step = 0
        self.last_loss: Optional[float] = None  # of that step; None where this worker got its state from others
        self.generation = 0
        self._seat_known = host is None  # rank and size of the world; alone they are always 0 and 1
        self._rank, self._world_size = 0, 1
        if threads is not None or self.bitwise:
            torch.set_num_threads(threads or 1)
        if self.bitwise:
            torch.use_deterministic_algorithms(True)
        if host is not None:
            stay_with_agent()
            self._watch_exits()
        self._set_variables()
        torch.manual_seed(seed)  # on every device, also those that are not used yet
        seed_all(seed)

    # ---- attaching ----

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any = None, *,
               clip: Optional[float] = None, start: Union[str, "os.PathLike[str]", None] = None) -> None:
        """Puts model, optimizer and schedule under Tidemill's care; the worker then joins the job.

        The schedule steps once per committed step. clip: the largest norm of the whole gradient
        (torch.nn.utils.clip_grad_norm_ over the global batch). start: a checkpoint of `save` to begin from, the same on
        every worker; the job's steps count from there anew.
        """
        if self._state is not None:
            raise UsageError("attach is called twice: a job has one model and one optimizer")
        scale = fixed_point.start(self.micro_batches) if self.bitwise else None
        state = ModelState(model, optimizer, scheduler, scale)
        state.cut(self._layer_count)
        if start is not None:
            checkpoint.load(state, start)
            state.cut(self._layer_count)  # what is there now is the beginning
            state.watch.remember()
        self._state, self._copies = state, guards.Copies(state)
        self._clip = clip
        self._statistics = RunningStatistics(model, self.micro_batches)
        self._take_over(optimizer, scheduler)
        digest = "" if self._host is None else self._state.digest()
        self._join(self._state, digest, len(self._state.layers), self._state.device)

    def _take_over(self, optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
        """The loop's own steps do nothing any more: Tidemill steps when a step is committed."""

        def wait(closure: Any = None) -> None:
            return None

        wait._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # schedulers look for it, and warn
        self._optimizer_step = optimizer.step
        optimizer.step = wait  # type: ignore[method-assign, assignment]
        optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
        if scheduler is not None:  # its class, not the object: state_dict is all that the object has
            kind = type(scheduler)
            self._scheduler_step = lambda: kind.step(scheduler)
            scheduler.__class__ = type(kind.__name__, (kind,), {"step": _no_step})

    def _join(self, engine: Any, digest: str, layers: int, device: torch.device) -> None:
        """Takes part from now on; alone where no agent has started this process."""
        if self._host is None:
            self._session = Alone(engine, self.steps, layers, self.micro_batches)
            return
        self._home = Home(self._host)
        self._digest = digest
        kind = "cuda" if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
        kernel_class = f"torch-{torch.__version__.split('+')[0]}-{kind}-{torch.get_num_threads() if self.bitwise else 0}"
        gpu = _gpu_of(device) if self._backend == "nccl" else ""
        self._session = Session(engine, self._home.endpoint(digest, gpu), kernel_class)

    # ---- the loop ----

    def batches(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]] = None, *,
                workers: int = 0) -> Iterator[Any]:
        """This worker's micro-batches, one after the other, until the job is finished.

        dataset: map-style (with __len__ and __getitem__). Every item is used once per epoch, in an order drawn from the
        seed. workers: processes that load data, 0 for none.
        """
        if self._state is None or self._session is None:
            raise UsageError("call attach(model, optimizer) before batches(dataset)")
        source = MicroBatches(dataset, collate, workers, self.seed, self.batch, self.micro_batch, self.steps)
        guards.enter(self)
        try:
            yield from self._guarded(self._run(source))
        finally:
            guards.leave(self)
            source.close()

    def _guarded(self, loop: Iterator[Any]) -> Iterator[Any]:
        """Whatever is wrong with the job ends it, for all workers."""
        try:
            yield from loop
        except (JobFailed, Refused):
            self._over = True
            raise
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _run(self, source: MicroBatches) -> Iterator[Any]:
        session = self._session
        assert session is not None and self._state is not None
        while True:
            work = session.next()
            if work is None:
                break
            if work.kind == APPLY:
                self._apply(work)
                continue
            try:
                yield from self._compute(work, source)
            except StepCancelled:
                continue
        self._over = True
        self._refresh_result()

    def _compute(self, work: Work, source: MicroBatches) -> Iterator[Any]:
        session, state = self._session, self._state
        assert session is not None and state is not None
        if work.stages != 1:
            raise UsageError(f"the layout has {work.stages} stages: a model in the user's own loop is not cut. Set the "
                             "job's layout to one stage, or use tidemill.torch.Pipeline")
        state.refresh(work.step - 1)
        if work.generation != self.generation or self._group is None:
            self._new_generation(work, source)
        sums, group = self._sums, self._group
        assert sums is not None and group is not None
        sums.begin(group)
        while True:
            self._losses.zero_()
            self._statistics.begin()
            for number in range(work.first_micro_batch, work.last_micro_batch):
                batch = source.get(work.step, number)
                seed_all(samples.key_of(self.seed, work.step, number, _COMPUTE))
                self._step = Step(self, work.step, number, number + 1 == work.last_micro_batch)
                yield batch
                self._end_of(self._step)
                if session.cancelled():
                    raise StepCancelled("the step was abandoned")
            try:
                norms = self._exchange(group, sums)
                break
            except Redo:
                assert isinstance(sums, FixedSums)
                sums.begin_again()
                source.restart()
        session.held(work.step, norms)

    def _end_of(self, step: "Step") -> None:
        self._step = None
        if step.state == "cancelled":
            raise StepCancelled("the step was abandoned")
        if step.state != "done":
            raise UsageError("a batch was taken without a step: write `with job.step() as step:` around the forward and "
                             "backward pass of every batch")
        step.check_gradients()

    def _exchange(self, group: Group, sums: Any) -> Dict[int, float]:
        norms = sums.finish()
        self._statistics.exchange(group)
        self._exchange_losses(group)
        return norms

    def _exchange_losses(self, group: Group) -> None:
        group.wait(group.all_reduce(self._losses))
        if not bool(torch.isfinite(self._losses).all()):
            bad = int(torch.nonzero(~torch.isfinite(self._losses))[0])
            raise JobFailed(f"the loss is not finite in micro-batch {bad}: lower the learning rate, clip, or look at the "
                            "data of this step")

    def _apply(self, work: Work) -> None:
        state, session, sums = self._state, self._session, self._sums
        assert state is not None and session is not None and sums is not None
        factor = self._clip_factor(work)
        state.watch.check()
        sums.hand_over(factor)
        state.watch.before_update()
        self._optimizer_step()
        state.watch.after_update()
        if state.scheduler is not None:
            self._scheduler_step()
        sums.commit()
        self._statistics.commit()
        state.commit(work.step)
        self._copies.after_step()
        self._committed(work)

    def _clip_factor(self, work: Work) -> float:
        if self._clip is None:
            return 1.0
        norm = math.sqrt(work.norm)
        if not math.isfinite(norm):
            raise JobFailed(f"the gradient of step {work.step} is not finite: lower the learning rate, clip, or look at "
                            "the data of this step")
        return min(1.0, self._clip / (norm + 1e-6))

    def _committed(self, work: Work) -> None:
        assert self._session is not None
        loss = float(self._losses.sum()) / self.micro_batches
        self.committed_step, self.last_loss = work.step, loss
        if self._rank == 0:
            self._session.report_loss(work.step, loss)
        self._session.applied(work.step)
        for callback in self._callbacks:
            callback(work.step, loss)

    # ---- generations ----

    def _new_generation(self, work: Work, source: MicroBatches) -> None:
        assert self._state is not None and self._session is not None
        meeting = self._seat(work)
        if self._group is not None:
            self._group.close()
        if self._sums is not None:
            self._sums.close()
        self._losses = torch.zeros(self.micro_batches, dtype=torch.float64)
        self._statistics.renew()
        if self.bitwise:
            self._sums = FixedSums(self._state.layers, self.micro_batches)
        else:
            self._sums = FloatSums(self._state.layers, self.micro_batches, self._clip is not None)
        source.begin(range(work.first_micro_batch, work.last_micro_batch))
        self._group = None
        self._group = self._meet(f"generation-{work.generation}", self._rank, self._world_size, meeting)

    def _seat(self, work: Work) -> Any:
        """Learns who is who; returns where to meet."""
        members = sorted(work.peers, key=lambda p: (p.stage, p.pipeline))
        self._rank = next(i for i, p in enumerate(members) if (p.stage, p.pipeline) == (work.stage, work.pipeline))
        self._world_size, self.generation, self._seat_known = len(members), work.generation, True
        meeting = self._check_members(members)
        self._set_variables(meeting)
        return meeting

    def _meet(self, name: str, rank: int, size: int, meeting: Any) -> Group:
        assert self._session is not None
        group = Group(rank, size, self._session.cancelled)
        if meeting is not None:
            assert self._host is not None
            group.connect(name, self._host, meeting, self._backend, self._timeout_s)
        return group

    def _check_members(self, members: Sequence[Peer]) -> Any:
        """Where to meet; and every worker must have begun with the same weights."""
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
        """What torchrun would set, and the generation."""
        if not self._seat_known:  # rank 0 on every worker would be worse than none
            for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"):
                os.environ.pop(name, None)
            return
        host, port = meeting or ("127.0.0.1", 29500)
        os.environ.update(RANK=str(self._rank), WORLD_SIZE=str(self._world_size), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                          GROUP_RANK=str(self._rank), GROUP_WORLD_SIZE=str(self._world_size),
                          MASTER_ADDR=str(host), MASTER_PORT=str(port), TIDEMILL_GENERATION=str(self.generation))

    # ---- steps ----

    def step(self) -> "Step":
        """The context around a micro-batch's forward and backward pass."""
        if self._step is None:
            raise UsageError("job.step() belongs inside the loop over job.batches(dataset), once a batch")
        return self._step

    def after_step(self, callback: Callable[[int, Optional[float]], None]) -> Callable[[int, Optional[float]], None]:
        """Calls `callback(step, loss)` after every step that this worker has applied; the loss is the global batch's."""
        self._callbacks.append(callback)
        return callback

    # ---- the end ----

    def _refresh_result(self) -> None:
        assert self._state is not None
        self.has_result = {layer.step for layer in self._state.layers} == {self.steps}
        if self.has_result:
            self._state.refresh(self.steps)
            if self.committed_step != self.steps:
                self.last_loss = None
            self.committed_step = self.steps

    has_result = False

    def _need_seat(self, name: str) -> None:
        if not self._seat_known and not self._over:
            raise UsageError(f"job.{name} is not known before the loop over job.batches(dataset): a worker learns its place "
                             "with its first step, and gets another one whenever workers come or go. Ask in the loop, in "
                             "job.after_step or after the loop; what every worker may do needs no question")

    @property
    def rank(self) -> int:
        """Of this worker in the generation. Known from the first step on; -1 after the loop where it never had a part."""
        self._need_seat("rank")
        return self._rank if self._seat_known else -1

    @property
    def world_size(self) -> int:
        """How many workers the generation has. Known from the first step on."""
        self._need_seat("world_size")
        return self._world_size

    @property
    def is_main(self) -> bool:
        """In the loop and in `after_step`: one worker of the generation, the one to print and to save. After the loop: one of
        those that have the final weights."""
        self._need_seat("is_main")
        return self._seat_known and self._rank == 0 and (self.has_result or not self._over)

    def done(self) -> bool:
        """After the loop: leaves the job. True where this worker has the final weights."""
        if not self._over:
            raise UsageError("job.done() is for after the loop over job.batches(dataset), which was left early")
        if self._session is not None:
            self._session.close()
        if self._group is not None:
            self._group.close()
        return self.has_result

    def save(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a checkpoint (safetensors, tidemill.torch.checkpoint) of the last committed step. In the loop call it
        from `after_step`; on one worker, such as rank 0."""
        if self._state is None:
            raise UsageError("attach a model before it is saved")
        checkpoint.save(self._state, self.committed_step, folder)

    def _fail(self, error: BaseException) -> None:
        """The user's script is wrong: everybody learns why, and nothing is tried again."""
        self._failed_exit = True
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
            if not self._over and self._session is not None:
                self._fail(UsageError("the script ended before the job was finished: let the loop over job.batches end "
                                      "by itself"))
            if given_up():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1 if self._failed_exit else 0)

        sys.excepthook = on_exception
        atexit.register(at_exit)

    _failed_exit = False


class Step:
    """A micro-batch under way."""

    def __init__(self, job: Job, number: int, micro_batch: int, last: bool) -> None:
        self.number, self.micro_batch = number, micro_batch
        self._job, self._last = job, last
        self._called = False
        self.state = "new"

    def __enter__(self) -> "Step":
        if self.state != "new":
            raise UsageError("one batch, one `with job.step()`: this batch has had its step")
        self.state = "entered"
        self.check_gradients()
        self._job._statistics.begin_micro_batch()
        self._sums.begin_micro_batch(self._last)
        return self

    @property
    def _sums(self) -> Union[FixedSums, FloatSums]:
        assert self._job._sums is not None
        return self._job._sums

    def check_gradients(self) -> None:
        """Only `backward` may write to gradients."""
        if not self._sums.altered():
            return
        if self.state == "entered" and not self._called:
            raise UsageError("loss.backward() was called in the job's loop: write step.backward(loss) instead, so that the "
                             "loss and the gradient are known as this micro-batch's")
        raise UsageError("the gradients were changed in the job's loop outside of step.backward(loss) (another backward pass, "
                         "clipping, zero_grad(set_to_none=False), scaling): they are sums over micro-batches, and other "
                         "workers have other shares of them. Clip with attach(..., clip=MAX_NORM), change a micro-batch's "
                         "gradient by Tensor.register_hook, and leave the rest to Tidemill")

    @property
    def cancelled(self) -> bool:
        """Was the step given up meanwhile? Long micro-batches may look, and leave the context early."""
        assert self._job._session is not None
        return self._job._session.cancelled()

    def backward(self, loss: torch.Tensor) -> None:
        """loss.backward(), and the loss is reported. Once per micro-batch."""
        if self.state != "entered":
            raise UsageError("step.backward(loss) belongs inside `with job.step() as step:`")
        if self._called:
            raise UsageError("step.backward is called twice for one micro-batch: add the losses up and call it once")
        self.check_gradients()
        self._called = True
        self._job._losses[self.micro_batch] = loss.detach().to(torch.float64)
        loss.backward()
        self._sums.settle()

    def _end(self) -> None:
        self.check_gradients()
        if not self._called:
            raise UsageError("a step ended without step.backward(loss): every micro-batch has its loss, and "
                             "step.backward(loss) stands where loss.backward() was")
        self._sums.end_micro_batch()
        self._job._statistics.end_micro_batch(self.micro_batch)
        self.state = "done"

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None and not self._called and self.cancelled:
            self.state = "cancelled"  # it was left early
            return False
        if error is None:
            self._end()
            return False
        if isinstance(error, StepCancelled):
            self.state = "cancelled"
            return True
        self.state = "failed"
        self._job._fail(error)
        return False

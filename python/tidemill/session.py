"""Taking part in a job: `Session` joins a coordinator, `Alone` replaces it for a single process.

Both give an engine the same `Work`, so a script need not know which of them it uses.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple

from tidemill import library
from tidemill.errors import JobFailed, Refused, TidemillError, UsageError

STEP = library.STEP
APPLY = library.APPLY


class Engine(Protocol):
    """What a trainer provides (include/tidemill.h). Layers are numbered from 0; addresses are memory addresses."""

    def layer_bytes(self, layer: int) -> int:
        """The size of the layer's state in bytes; it never changes."""

    def init_layer(self, layer: int, address: int, size: int) -> None:
        """Writes the layer's initial state to memory."""

    def read_layer(self, layer: int, address: int, size: int) -> None:
        """Writes the layer's current state to memory."""

    def write_layer(self, layer: int, address: int, size: int) -> None:
        """Reads the layer's state from memory."""

    def drop_layer(self, layer: int) -> None:
        """The layer is no longer held here."""


@dataclass(frozen=True)
class Peer:
    """A worker of the generation: its place in the layout, and the addresses of its library and its engine."""

    instance: int
    pipeline: int
    stage: int
    address: str
    endpoint: str


@dataclass(frozen=True)
class Work:
    """One piece of work: compute a step over this worker's micro-batches, or apply it."""

    kind: int
    generation: int
    step: int
    norm: float
    pipeline: int
    pipelines: int
    stage: int
    stages: int
    first_layer: int
    last_layer: int
    first_micro_batch: int
    last_micro_batch: int
    peers: Tuple[Peer, ...]
    stage_first: Tuple[int, ...]  # stage s holds layers [stage_first[s], stage_first[s + 1])


def under_agent(variables: Mapping[str, str]) -> bool:
    """Was this process started by an agent, as one worker of many?"""
    return bool(variables.get("TIDEMILL_COORDINATOR"))


class Session:
    """A worker's place in a job. Only the engine's thread may call it, except for `cancelled`."""

    def __init__(self, engine: Engine, endpoint: str, kernel_class: str) -> None:
        """Joins the job named in the agent's environment variables. endpoint: where the engines of peers reach ours."""
        self._lib = library.load()
        self._engine = engine
        self._error: Optional[BaseException] = None
        self._closed = False
        self._table = library.Engine(
            None,
            library.LayerBytes(self._guard(lambda c, layer: engine.layer_bytes(layer), 0)),
            library.InitLayer(self._guard(lambda c, layer, out, size: engine.init_layer(layer, out, size) or 0, 1)),
            library.LayerMemory(),
            library.DropLayer(self._guard(lambda c, layer: engine.drop_layer(layer), None)),
            library.MoveLayer(self._guard(lambda c, layer, out, size: engine.read_layer(layer, out, size) or 0, 1)),
            library.MoveLayer(self._guard(lambda c, layer, data, size: engine.write_layer(layer, data, size) or 0, 1)),
            library.Cancelled(),
            *self._follow_functions(getattr(engine, "follow", None)),
        )
        error = ctypes.create_string_buffer(1024)
        options = library.Options()
        if self._lib.tidemill_options_from_environment(ctypes.byref(options), error, len(error)) != 0:
            raise UsageError(error.value.decode(errors="replace"))
        options.kernel_class, options.endpoint = kernel_class.encode(), endpoint.encode()
        self._handle = self._lib.tidemill_open(ctypes.byref(options), ctypes.byref(self._table), error, len(error))
        if not self._handle:
            raise TidemillError(f"cannot join the job: {error.value.decode(errors='replace')}")
        self._work = library.Work()

    def _follow_functions(self, follow: Any) -> Tuple[Any, ...]:
        """Of an engine whose layers can move while they are trained. A failure is no error: they then move during the change."""
        if follow is None:
            return (library.LayerBytes(), library.MoveLayer(), library.AdvanceLayer())

        def quiet(function: Any) -> Any:
            def call(*words: Any) -> int:
                try:
                    function(*words)
                    return 0
                except Exception:  # noqa: BLE001
                    return 1
            return call

        def advance(_: Any, layer: int, step: int, norm: float, state: int, size: int, gradient: int, bytes_: int) -> None:
            if bytes_ != follow.gradient_bytes(layer):
                raise ValueError("a gradient of another size")
            follow.advance(layer, step, norm, state, gradient)

        return (library.LayerBytes(self._guard(lambda c, layer: follow.gradient_bytes(layer), 0)),
                library.MoveLayer(quiet(lambda c, layer, out, size: follow.read_gradient(layer, out, size))),
                library.AdvanceLayer(quiet(advance)))

    def _guard(self, function: Any, on_error: Any) -> Any:
        """Exceptions cannot pass through C: they are kept, and the next call of `next` raises them."""

        def call(*words: Any) -> Any:
            try:
                return function(*words)
            except BaseException as error:  # noqa: BLE001
                self._error = error
                return on_error

        return call

    def next(self) -> Optional[Work]:
        """Waits for the next piece of work; None when the job is finished."""
        status = self._lib.tidemill_next(self._handle, ctypes.byref(self._work))
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if status == 1:
            return None
        if status != 0:
            reason = (self._lib.tidemill_reason(self._handle) or b"").decode(errors="replace")
            raise (JobFailed if reason else Refused)(reason or "the coordinator refused this worker")
        w = self._work
        peers = tuple(
            Peer(p.instance, p.pipeline, p.stage, (p.address or b"").decode(), (p.endpoint or b"").decode())
            for p in (w.peers[i] for i in range(w.peer_count))
        )
        return Work(w.kind, w.generation, w.step, w.norm, w.pipeline, w.pipelines, w.stage, w.stages, w.first_layer,
                    w.last_layer, w.first_micro_batch, w.last_micro_batch, peers, tuple(w.stage_first[: w.stages + 1]))

    def cancelled(self) -> bool:
        """Was the current step cancelled? Callable from any thread."""
        return self._closed or self._lib.tidemill_cancelled(self._handle) != 0

    def held(self, step: int, norms: Mapping[int, float]) -> bool:
        """The step's reduced gradients are here. False: the step was cancelled in the meantime."""
        table = (library.Norm * len(norms))(*[(layer, value) for layer, value in norms.items()])
        status = self._lib.tidemill_held(self._handle, step, table, len(norms))
        if status < 0:
            raise MemoryError("no memory to vote on a step")
        return status == 0

    def applied(self, step: int) -> None:
        """The step was applied: the layers now have the state of this step."""
        self._lib.tidemill_applied(self._handle, step)

    def report_loss(self, step: int, loss: float) -> None:
        """Reports a loss for the record, the live view and the metrics."""
        self._lib.tidemill_report_loss(self._handle, step, loss)

    def report_metric(self, step: int, name: str, value: float) -> None:
        """Another number of a step, for the loggers of the job file."""
        self._lib.tidemill_report_metric(self._handle, step, name.encode(), value)

    def computed(self, step: int, seconds: float) -> None:
        """What this worker computed for a step, others not waited for; before `held`. Micro-batches are shared out by it."""
        self._lib.tidemill_computed(self._handle, step, max(1, round(seconds * 1e6)))

    def failed(self, reason: str) -> None:
        """The job itself is wrong: this is recorded, all workers stop, and nothing is retried."""
        self._lib.tidemill_failed(self._handle, reason.encode(errors="replace"))

    def wait_for_end(self, seconds: float) -> None:
        """After `failed`: waits, at most `seconds`, until the coordinator has stopped the job."""
        waiter = threading.Thread(target=lambda: self._lib.tidemill_next(self._handle, ctypes.byref(library.Work())),
                                  daemon=True)
        waiter.start()
        waiter.join(seconds)
        if waiter.is_alive():
            self._closed = True  # the handle stays with the thread; the process is about to end

    def waiting_for(self, instance: int) -> None:
        """Reports the instance that the others wait for, or 0: a hint for finding slow instances."""
        self._lib.tidemill_waiting_for(self._handle, instance)

    def close(self) -> None:
        """Leaves the job."""
        if not self._closed:
            self._closed = True
            self._lib.tidemill_close(self._handle)


class Alone:
    """A single worker with all of the work, for scripts that were not started by an agent."""

    def __init__(self, engine: Engine, steps: int, layers: int, micro_batches: int, first_step: int = 1) -> None:
        self._steps, self._layers, self._micro_batches = steps, layers, micro_batches
        self._step = first_step
        self._norm: Optional[float] = None
        self.losses: Dict[int, float] = {}

    def next(self) -> Optional[Work]:
        """As Session.next."""
        if self._step > self._steps:
            return None
        kind = STEP if self._norm is None else APPLY
        return Work(kind, 1, self._step, self._norm or 0.0, 0, 1, 0, 1, 0, self._layers, 0, self._micro_batches,
                    (Peer(1, 0, 0, "", ""),), (0, self._layers))

    def cancelled(self) -> bool:
        """Nothing is ever cancelled."""
        return False

    def held(self, step: int, norms: Mapping[int, float]) -> bool:
        """As Session.held."""
        self._norm = float(sum(norms[layer] for layer in sorted(norms)))
        return True

    def applied(self, step: int) -> None:
        """As Session.applied."""
        self._norm = None
        self._step = step + 1

    def report_loss(self, step: int, loss: float) -> None:
        """Kept in `losses`."""
        self.losses[step] = loss

    def report_metric(self, step: int, name: str, value: float) -> None:
        """Nobody logs it."""

    def computed(self, step: int, seconds: float) -> None:
        """There is nobody to share with."""

    def failed(self, reason: str) -> None:
        """There is no coordinator to tell."""
        pass

    def wait_for_end(self, seconds: float) -> None:
        """There is nobody to wait for."""
        pass

    def waiting_for(self, instance: int) -> None:
        """There is nobody to wait for."""
        pass

    def close(self) -> None:
        """Nothing is open."""
        pass


def stay_with_agent(variables: Mapping[str, str] = os.environ) -> None:
    """Ends this worker when its agent ends, and lets signals end it while it waits in C.

    The agent may already be gone, or a shell may run in between, so the agent's pid (given in the environment) is watched."""
    agent = variables.get("TIDEMILL_AGENT_PID", "")
    if sys.platform.startswith("linux"):
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if agent.isdigit() and hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(int(agent))
        except ProcessLookupError:
            _end_group()
        except OSError:
            return  # a machine that does not let us
        else:
            threading.Thread(target=_end_with, args=(handle,), daemon=True).start()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_with(handle: int) -> None:
    """Waits until that process ends; then ends this one and its process group."""
    watch = select.poll()
    watch.register(handle, select.POLLIN)
    watch.poll()
    _end_group()


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)


__all__: Sequence[str] = ["APPLY", "Alone", "Engine", "Peer", "STEP", "Session", "Work", "stay_with_agent", "under_agent"]

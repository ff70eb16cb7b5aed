"""One process group per generation, whose operations can be cancelled at once.

gloo waits for its peers until a timeout, and nothing stops it earlier. So we never wait inside gloo: operations run in its
own threads, and we wait for their futures while checking whether the step was cancelled. A cancelled group is handed to a
thread that waits for its end; its buffers belong to it alone, so what it still does has no effect.

NCCL's operations run on the GPU: we poll until they are done, and a cancelled group is aborted. Data in CPU memory
(losses, statistics) is copied to the GPU and back.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from tidemill.errors import TidemillError

_POLL_S = 0.02
_POLL_NCCL_S = 0.0002


class StepCancelled(TidemillError):
    """The step was cancelled, or a peer is gone: the next generation will redo it."""


class Home:
    """This worker's store: its peers meet there when it is the first of a generation."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._store = dist.TCPStore(host, 0, None, True, timeout=timedelta(seconds=60), wait_for_workers=False)
        self.port = self._store.port

    def endpoint(self, digest: str, gpu: str = "") -> str:
        """gpu: which one, where each worker needs one for itself."""
        return f"{self.host}:{self.port}#{digest}" + (f"@{gpu}" if gpu else "")


def read_endpoint(text: str) -> Tuple[str, int, str, str]:
    """host, port, the digest of the initial state, and the GPU where each worker needs one for itself."""
    place, _, rest = text.partition("#")
    host, _, port = place.rpartition(":")
    digest, _, gpu = rest.partition("@")
    if not host or not port.isdigit():
        raise TidemillError(f"a peer's endpoint is {text!r}, not HOST:PORT#DIGEST: it is not a PyTorch worker")
    return host, int(port), digest, gpu


_given_up: List[threading.Thread] = []


def given_up() -> bool:
    """Does a cancelled group still run? Then the process must end without waiting for it."""
    _given_up[:] = [t for t in _given_up if t.is_alive()]
    return bool(_given_up)


def _bury(things: Sequence[Any]) -> None:
    """Destroys a group in another thread, because that waits for its operations."""
    kept = list(things)

    def wait() -> None:
        for thing in kept:
            if hasattr(thing, "wait"):
                try:
                    thing.wait()
                except RuntimeError:
                    pass
        kept.clear()

    thread = threading.Thread(target=wait, daemon=True)
    _given_up.append(thread)
    thread.start()


class Stopwatch:
    """How long this worker computes, without what it waits for others. A GPU is not waited for: its times come a step late."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._gpu = device, device.type == "cuda"
        self._groups: Sequence["Group"] = ()
        self._waited = 0.0
        self._first: Any = None
        self._open: List[Tuple[Any, Any, float]] = []
        self._known = 0.0

    def _mark(self) -> Any:
        if not self._gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def start(self, *groups: Optional["Group"]) -> None:
        """groups: whose waits are left out."""
        self._groups = [group for group in groups if group is not None]
        self._waited = sum(group.waited_s for group in self._groups)
        self._first = self._mark()

    def read(self) -> float:
        """Seconds from `start` to `read`, of this pair or, on a GPU, of the last one that is over; 0: not known yet."""
        waited = sum(group.waited_s for group in self._groups) - self._waited
        if not self._gpu:
            return max(0.0, self._mark() - self._first - waited)
        self._open.append((self._first, self._mark(), waited))
        while self._open and self._open[0][1].query():
            first, last, waited = self._open.pop(0)
            self._known = max(0.0, first.elapsed_time(last) / 1000 - waited)
        return self._known


class _OverGpu:
    """An operation on a copy in GPU memory, for NCCL; the result is copied back."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.copy, self.work = tensor, tensor.cuda(), None

    def finish(self) -> None:
        self.tensor.copy_(self.copy)


class Group:
    """The workers of a generation that exchange tensors; with gloo a single one needs no group."""

    def __init__(self, rank: int, size: int, cancelled: Callable[[], bool]) -> None:
        self.rank, self.size = rank, size
        self._cancelled = cancelled
        self._group: Optional[Any] = None
        self._works: List[Any] = []
        self._broken = False
        self._nccl = False
        self.waited_s = 0.0  # by this worker, in `wait`

    def connect(self, name: str, host: str, meeting: Tuple[str, int], backend: str, timeout_s: float) -> None:
        """Meets the others at the store of the first worker. NCCL is tried even by a single worker: a broken setup should
        show now, not when a second worker arrives."""
        self._nccl = backend == "nccl"
        if self.size == 1 and not self._nccl:
            return
        done = threading.Event()
        result: List[Any] = []

        def join() -> None:
            try:
                timeout = timedelta(seconds=timeout_s)
                store = dist.TCPStore(meeting[0], meeting[1], None, False, timeout=timeout, wait_for_workers=False)
                prefixed = dist.PrefixStore(name, store)
                result.append(_make_group(backend, prefixed, self.rank, self.size, host, timeout))
            except Exception as error:  # noqa: BLE001
                result.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        while not done.wait(_POLL_S):
            if self._cancelled():
                _given_up.append(thread)
                raise StepCancelled("while meeting the other workers")
        if isinstance(result[0], Exception):
            raise StepCancelled(f"cannot meet the other workers: {result[0]}")
        self._group = result[0]

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> Any:
        """Starts summing `tensor` over all workers, in place. Use `wait` for the result."""
        if self._broken:
            raise StepCancelled("the group is broken")
        if self._group is None:
            return None
        options = dist.AllreduceOptions()
        options.reduceOp = op
        if self._nccl and tensor.device.type == "cpu":
            over = _OverGpu(tensor)
            over.work = self._begin(self._group.allreduce, [over.copy], options)
            return over
        return self._begin(self._group.allreduce, [tensor], options)

    def broadcast(self, tensor: torch.Tensor, root: int) -> Any:
        """Starts giving everybody the tensor of one worker, in place. Use `wait` for the result."""
        if self._broken:
            raise StepCancelled("the group is broken")
        if self._group is None:
            return None
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        if self._nccl and tensor.device.type == "cpu":
            over = _OverGpu(tensor)
            over.work = self._begin(self._group.broadcast, [over.copy], options)
            return over
        return self._begin(self._group.broadcast, [tensor], options)

    def reduce(self, tensor: torch.Tensor, root: int) -> Any:
        """Starts summing `tensor` over all workers, for one of them; what the others then have in it is undefined."""
        if self._broken:
            raise StepCancelled("the group is broken")
        if self._group is None:
            return None
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank, options.rootTensor = dist.ReduceOp.SUM, root, 0
        return self._begin(self._group.reduce, [tensor], options)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any:
        """Starts sending to a worker. Use `wait` before the tensor changes."""
        assert self._group is not None
        return self._begin(self._group.send, [tensor], to, tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Any:
        """Starts receiving from a worker into the tensor."""
        assert self._group is not None
        return self._begin(self._group.recv, [tensor], source, tag)

    def wait_at_most(self, seconds: float) -> None:
        """For what is said after the last step, when there is nothing left to cancel: the time alone ends it."""
        end = time.monotonic() + seconds
        self._cancelled = lambda: time.monotonic() > end

    def _begin(self, operation: Callable[..., Any], *words: Any) -> Any:
        if self._broken:
            raise StepCancelled("the group is broken")
        try:
            work = operation(*words)
        except RuntimeError as error:
            raise self._break(error) from error
        self._works.append(work)
        return work

    def wait(self, work: Any) -> None:
        """Waits until it is done; StepCancelled if the step is cancelled or a peer is gone."""
        if work is None:
            return
        began = time.perf_counter()
        try:
            if self._nccl:
                self._wait_for_gpu(work)
            else:
                self._wait_for_gloo(work)
        finally:
            self.waited_s += time.perf_counter() - began

    def _wait_for_gloo(self, work: Any) -> None:
        event = threading.Event()
        errors: List[RuntimeError] = []

        def finish() -> None:
            try:
                work.wait()
            except RuntimeError as error:
                errors.append(error)
            event.set()

        try:
            work.get_future().add_done_callback(lambda _: event.set())
            known = True
        except RuntimeError:  # gloo's sends and receives have no future, and may be waited for only once
            known = False
            threading.Thread(target=finish, daemon=True).start()
        while not event.wait(_POLL_S):
            if self._cancelled():
                raise self._break(None)
        if known:
            finish()
        self._works = [w for w in self._works if w is not work]
        if errors:
            raise self._break(errors[0])

    def _wait_for_gpu(self, work: Any) -> None:
        over = work if isinstance(work, _OverGpu) else None
        inner = work if over is None else over.work
        try:
            while not inner.is_completed():
                if self._cancelled():
                    raise self._break(None)
                time.sleep(_POLL_NCCL_S)
            inner.wait()
        except RuntimeError as error:
            raise self._break(error) from error
        self._works = [w for w in self._works if w is not inner]
        if over is not None:
            over.finish()

    def _break(self, error: Optional[BaseException]) -> StepCancelled:
        self._broken = True
        self.close()
        return StepCancelled("the step was cancelled" if error is None else f"a peer is gone: {error}")

    def close(self) -> None:
        """Drops the group, whatever it is doing."""
        if self._group is not None and self._nccl:
            _abort(self._group)
        elif self._group is not None:
            _bury([*self._works, self._group])
        self._group, self._works = None, []


def _abort(group: Any) -> None:
    """Aborts NCCL's kernels, even those that wait for a peer that is gone; in another thread, because it may take long."""

    def end() -> None:
        try:
            group.abort()
        except RuntimeError:
            pass

    thread = threading.Thread(target=end, daemon=True)
    _given_up.append(thread)
    thread.start()


def _make_group(backend: str, store: Any, rank: int, size: int, host: str, timeout: timedelta) -> Any:
    if backend == "nccl":
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # its watchdog would end the process
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    options._threads = 2
    return dist.ProcessGroupGloo(store, rank, size, options)

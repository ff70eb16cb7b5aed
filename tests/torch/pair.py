"""Two workers of one job, as two processes with a real exchange between them and no coordinator: for what goes wrong only where
there are two. The second may join later, with the first one's layers."""
import ctypes
import os
import pickle
import signal
import sys
import time
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import wait

import torch
import torch.distributed as dist

import patterns
from tidemill.errors import UsageError
from tidemill.session import Alone, Peer, Work
from tidemill.torch.group import Group
from tidemill.torch.job import Job

_LIMIT_S = 120


class Member(Alone):
    """Has half of each step's micro-batches. joins: after so many steps the second one is there."""

    def __init__(self, engine, steps, layers, micro_batches, rank, joins, pipe):
        super().__init__(engine, steps, layers, micro_batches, 1 + joins * rank)
        self._engine, self._count, self._rank, self._joins, self._pipe = engine, layers, rank, joins, pipe
        self._met = joins == 0

    def next(self):
        if not self._met and self._step > self._joins:
            self._met = True
            self._receive() if self._rank else self._send()
        work = super().next()
        if work is None or not self._met:
            return work
        half = self._micro_batches // 2
        first = half * self._rank
        last = half if self._rank == 0 else self._micro_batches
        return Work(**{**work.__dict__, "generation": 2, "pipeline": self._rank, "pipelines": 2, "first_micro_batch": first,
                       "last_micro_batch": last, "peers": tuple(Peer(r + 1, r, 0, "", "") for r in (0, 1))})

    def _send(self):
        for layer in range(self._count):
            room = ctypes.create_string_buffer(self._engine.layer_bytes(layer))
            self._engine.read_layer(layer, ctypes.addressof(room), len(room))
            self._pipe.send_bytes(room.raw)

    def _receive(self):
        for layer in range(self._count):
            data = self._pipe.recv_bytes()
            room = ctypes.create_string_buffer(data, len(data))
            self._engine.write_layer(layer, ctypes.addressof(room), len(data))


def _store(rank, pipe):
    """Made by the first worker: a process that has threads is not forked."""
    if rank:
        return None, pipe.recv()
    store = dist.TCPStore("127.0.0.1", 0, None, True, timeout=timedelta(seconds=_LIMIT_S), wait_for_workers=False)
    pipe.send(store.port)
    return store, store.port


def _worker(function, words, rank, joins, layers, out):
    store, port = _store(rank, layers)

    def join(job, engine, digest, count, device):
        job._session = Member(engine, job.steps, count, job.micro_batches, rank, joins, layers)

    def meet(job, name, at, size, meeting):
        group = Group(at, size, job._session.cancelled)
        group.connect(name, "127.0.0.1", ("127.0.0.1", port), "gloo", _LIMIT_S)
        return group

    Job._join, Job._meet = join, meet
    try:
        result = function(patterns.begin(**words))
        out.send_bytes(pickle.dumps({k: v.numpy() for k, v in (result or {}).items()}))
    except BaseException as error:  # noqa: BLE001
        out.send_bytes(pickle.dumps(error if isinstance(error, UsageError) else RuntimeError(f"{type(error).__name__}: {error}")))
    del store


def train_two(function, joins=0, **words):
    """What each of the two returns; raises the error of the first that has one."""
    layers, pipes, children = Pipe(), [], []
    sys.stdout.flush()
    for rank in (0, 1):
        mine, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                torch.set_num_threads(1)
                _worker(function, words, rank, joins, layers[rank], theirs)
            finally:
                os._exit(0)
        theirs.close()
        pipes.append(mine)
        children.append(pid)
    found, end = {}, time.monotonic() + _LIMIT_S
    try:
        while len(found) < 2 and not any(isinstance(value, Exception) for value in found.values()):
            left = [pipe for rank, pipe in enumerate(pipes) if rank not in found]
            for pipe in wait(left, max(0.0, end - time.monotonic())) or [None]:
                if pipe is None:
                    raise TimeoutError("two workers have not come to an end")
                found[pipes.index(pipe)] = pickle.loads(pipe.recv_bytes())
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for value in found.values():
        if isinstance(value, Exception):
            raise value
    return [{k: torch.from_numpy(v) for k, v in found[rank].items()} for rank in (0, 1)]

"""A small real cluster for tests: a coordinator and agents (torch-node), each agent with a script of ours."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

ROOT = Path(__file__).resolve().parents[2]


LEFT = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # by jobs of this process before: scripts such as nanoGPT's ask for them


class Trouble(AssertionError):
    """A test's expectation does not hold."""


class Skipped(Exception):
    """A test that needs what is not here."""


class Cluster:
    """Use as a context: whatever was started ends with it."""

    def __init__(self, build: Path, folder: Path, command: Sequence[str], steps: int, layers: int = 4,
                 micro_batches: int = 8, stages: int = 1, variables: Optional[Dict[str, str]] = None) -> None:
        self.node, self.folder, self.command = build / "torch-node", folder, list(command)
        self.steps, self.layers, self.micro_batches, self.stages = steps, layers, micro_batches, stages
        self.agents: Dict[int, subprocess.Popen] = {}
        self.coordinator: Optional[subprocess.Popen] = None
        self._started: List[subprocess.Popen] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.gate = folder / "gate"
        self.open_gate(0)
        clean = {k: v for k, v in os.environ.items() if k not in LEFT}
        self.variables = {**clean, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1",
                          "TIDEMILL_LIBRARY": str(build / "libtidemill.so"), "TIDEMILL_LAYERS": str(layers),
                          "TIDEMILL_STEPS": str(steps), **(variables or {})}

    def __enter__(self) -> "Cluster":
        self.start_coordinator("127.0.0.1:0")
        self.await_(lambda: (self.folder / "address").exists(), 10, "the coordinator's address")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self._started:
            process.wait()

    def _start(self, words: Sequence[str], log: str) -> subprocess.Popen:
        with open(self.folder / log, "ab") as out:
            process = subprocess.Popen([str(w) for w in words], stdout=out, stderr=out, env=self.variables,
                                       start_new_session=True)
        self._started.append(process)
        return process

    def start_coordinator(self, listen: Optional[str] = None) -> None:
        listen = listen or (self.folder / "address").read_text().strip()
        self.coordinator = self._start([self.node, "coordinator", self.folder, listen, self.steps, self.layers,
                                        self.micro_batches, self.stages], "coordinator.log")

    def start_agent(self, number: int) -> None:
        self.agents[number] = self._start([self.node, "agent", self.folder, number, *self.command],
                                          f"worker-{number}.log")

    # -- what is to be seen --

    def log(self, number: int) -> str:
        path = self.folder / f"worker-{number}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def applied(self) -> List[Sequence[int]]:
        """(step, workers) of every line "applied STEP of WORKERS", over all workers."""
        out = []
        for path in self.folder.glob("worker-*.log"):
            for line in re.findall(r"^applied (\d+) of (\d+)", path.read_text(errors="replace"), re.M):
                out.append((int(line[0]), int(line[1])))
        return sorted(out)

    def newest(self) -> Sequence[int]:
        return max(self.applied(), default=(0, 0))

    def worker_pid(self, number: int) -> int:
        pid = self._worker_of(self.agents[number].pid)
        if not pid:
            raise Trouble(f"agent {number} has no worker")
        return pid

    def events(self) -> str:
        return subprocess.run([self.node, "events", self.folder], capture_output=True, text=True, check=True).stdout

    def await_(self, what: Callable[[], bool], seconds: float, name: str) -> None:
        """A bound against hangs, not a claim about speed."""
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                raise Trouble(f"waited {seconds:.0f} s for {name}\n{self.tail()}")
            time.sleep(0.02)

    def open_gate(self, step: int) -> None:
        """Steps up to this one go at full speed, where the script looks at the gate."""
        self.gate.write_text(str(step))

    def await_step(self, step: int, workers: int = 0, seconds: float = 240) -> None:
        """A step from this one on, by so many workers; where they come later, it is a later step."""
        self.open_gate(step)
        self.await_(lambda: any(s >= step and workers in (0, w) for s, w in self.applied()), seconds,
                    f"step {step}" + (f" by {workers} workers" if workers else ""))

    def await_end(self, seconds: float = 300) -> None:
        self.open_gate(1 << 40)
        assert self.coordinator is not None
        self.await_(lambda: self.coordinator.poll() is not None, seconds, "the end of the job")

    def tail(self) -> str:
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        try:
            parts.append("--- events\n" + "\n".join(self.events().splitlines()[-15:]))
        except subprocess.CalledProcessError:
            pass
        return "\n".join(parts)

    # -- what is done to it --

    def kill_worker(self, number: int) -> None:
        os.kill(self.worker_pid(number), signal.SIGKILL)

    def kill_instance(self, number: int) -> None:
        """Agent and worker at once, without a word."""
        process = self.agents.pop(number)
        worker = self._worker_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        if worker:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def _worker_of(parent: int) -> int:
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                return int(path.parent.name)
        return 0

    def notice(self, number: int) -> None:
        self.agents[number].send_signal(signal.SIGTERM)

    def kill_coordinator(self) -> None:
        assert self.coordinator is not None
        self.coordinator.kill()
        self.coordinator.wait()


def python() -> str:
    return sys.executable


OVER = ROOT / "build" / "venv-torch"


@contextlib.contextmanager
def made_up_gpus(count, local, taken):
    """As if there were so many GPUs and this were that worker of its instance; taken: what torch.cuda.set_device is told."""
    import torch

    kept = torch.cuda.device_count, torch.cuda.set_device, os.environ.get("TIDEMILL_LOCAL_RANK")
    torch.cuda.device_count, torch.cuda.set_device = lambda: count, taken.append
    os.environ["TIDEMILL_LOCAL_RANK"] = local or ""
    try:
        yield
    finally:
        torch.cuda.device_count, torch.cuda.set_device = kept[:2]
        os.environ.pop("TIDEMILL_LOCAL_RANK")
        if kept[2] is not None:
            os.environ["TIDEMILL_LOCAL_RANK"] = kept[2]


def need(package: str) -> str:
    """A package of build/venv-torch, here and for workers: the interpreter that has it."""
    for folder in OVER.glob("lib/python*/site-packages"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
            importlib.invalidate_caches()
    if importlib.util.find_spec(package) is None:
        raise Skipped(f"the package {package} is not there (make venv)")
    return str(OVER / "bin" / "python")

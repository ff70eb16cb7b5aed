"""Recovery of a small PyTorch job side by side with torchrun elastic (tuned) on this machine.

    build/venv/bin/python bench/torch_recovery.py [BUILD]

For each: a worker is killed (SIGKILL) -> time to the next step, steps redone, global batch afterwards; a worker joins ->
time to the first step with it; an instance (agent and worker) is lost -> time to the next step. Then steady state: a step of
DistributedDataParallel, of fast and of bitwise, interleaved. Prints ratios; absolute times are this machine's.
"""
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "torch"))
from cluster import Cluster  # noqa: E402

MODEL = str(ROOT / "bench" / "torch_model.py")
WORKERS, BATCH, MICRO_BATCH, EVERY = 3, 24, 4, 20
LINE = re.compile(r"^applied (\d+) of (\d+) loss \S+ at (\S+)", re.M)


def steps_of(folder: Path) -> List[Tuple[float, int, int]]:
    """(time, step, workers), in time's order."""
    out = []
    for path in folder.glob("*.log"):
        out += [(float(t), int(s), int(w)) for s, w, t in LINE.findall(path.read_text(errors="replace"))]
    return sorted(out)


def wait_for(what, seconds: float, name: str):
    end = time.time() + seconds
    while time.time() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"waited {seconds:.0f} s for {name}")


class TorchRun:
    """torchrun elastic: agents on this machine, the first hosts the rendezvous; tuned as its documentation allows."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.folder, self.agents, self.number = folder, {}, 0
        folder.mkdir(parents=True, exist_ok=True)

    def start_agent(self) -> int:
        self.number += 1
        words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc-per-node=1",
                 "--max-restarts=20", "--monitor-interval=0.1", "--rdzv-backend=c10d", "--rdzv-id=bench",
                 f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-conf=last_call_timeout=1,join_timeout=60",
                 MODEL, "ddp", "--steps=100000", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}",
                 f"--workers={WORKERS}", f"--checkpoint={self.folder / 'checkpoint.pt'}", f"--every={EVERY}"]
        with open(self.folder / f"agent-{self.number}.log", "ab") as out:
            self.agents[self.number] = subprocess.Popen(
                words, stdout=out, stderr=out, start_new_session=True,
                # With the store that agents share, workers that restart meet stale addresses of the dead one.
                env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        return self.number

    def start(self) -> None:
        for _ in range(WORKERS):
            self.start_agent()

    def kill_worker(self) -> None:
        os.kill(Cluster._worker_of(self.agents[2].pid), signal.SIGKILL)

    def kill_instance(self) -> None:
        self._end(self.agents.pop(3))

    @staticmethod
    def _end(process: subprocess.Popen) -> None:
        """Agent and worker: the worker leads a session of its own, and would train on."""
        worker = Cluster._worker_of(process.pid)
        for pid in (process.pid, worker):
            try:
                if pid:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()

    def join(self) -> None:
        self.start_agent()

    def close(self) -> None:
        for process in self.agents.values():
            self._end(process)


class Tidemill:
    def __init__(self, build: Path, folder: Path) -> None:
        words = [sys.executable, MODEL, "tidemill", "--steps=100000", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}",
                 "--determinism=fast"]
        self.cluster = Cluster(build, folder, words, 100000, layers=8, micro_batches=BATCH // MICRO_BATCH)
        self.cluster.__enter__()
        self.folder = folder

    def start(self) -> None:
        for number in (1, 2, 3):
            self.cluster.start_agent(number)

    def kill_worker(self) -> None:
        self.cluster.kill_worker(2)

    def kill_instance(self) -> None:
        self.cluster.kill_instance(3)

    def join(self) -> None:
        self.cluster.start_agent(4)

    def close(self) -> None:
        self.cluster.__exit__()


def measure(system, do, workers: Optional[int]) -> Dict[str, float]:
    """From the event to the first step that was not there before; how many steps were done again until then."""
    before = steps_of(system.folder)
    highest = before[-1][1]  # not the largest ever: a restart before this event may have gone back
    at = time.time()
    do()

    def found():
        later = [x for x in steps_of(system.folder) if x[0] > at]
        if workers is not None:
            later = [x for x in later if x[2] == workers]
            return later[0] if later else None
        # A step that was about to end does not count: one of fewer workers or one that is done again does.
        counts = [x for x in later if x[2] < before[-1][2] or x[1] < highest - 1]
        return counts[0] if counts else None

    first = wait_for(found, 180, "the next step")
    return {"seconds": first[0] - at, "redone": max(0, highest - first[1] + 1), "workers": first[2]}


def recovery(name: str, system) -> Dict[str, Dict[str, float]]:
    out = {}
    try:
        began = time.time()
        system.start()
        wait_for(lambda: [x for x in steps_of(system.folder) if x[2] == WORKERS and x[1] >= EVERY + 8], 240, f"{name}: start")
        out["start"] = {"seconds": min(x[0] for x in steps_of(system.folder) if x[2] == WORKERS) - began}
        out["a worker is killed"] = measure(system, system.kill_worker, None)
        wait_for(lambda: steps_of(system.folder)[-1][2] == WORKERS, 120, f"{name}: all workers again")
        time.sleep(1)
        out["an instance joins"] = measure(system, system.join, WORKERS + 1)
        time.sleep(1)
        out["an instance is lost"] = measure(system, system.kill_instance, None)
    finally:
        system.close()
    return out


def steady(build: Path, folder: Path, rounds: int = 3, steps: int = 60) -> None:
    """Two workers; kinds interleaved, median step of each."""
    times: Dict[str, List[float]] = {"ddp": [], "fast": [], "bitwise": []}
    for number in range(rounds):
        for kind in times:
            where = folder / f"{kind}-{number}"
            if kind == "ddp":
                where.mkdir()
                with open(where / "ddp.log", "wb") as out:
                    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", MODEL,
                                    "ddp", f"--steps={steps}", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}",
                                    "--workers=2"], stdout=out, stderr=out, check=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
            else:
                words = [sys.executable, MODEL, "tidemill", f"--steps={steps + 20}", f"--batch={BATCH}",
                         f"--micro-batch={MICRO_BATCH}", f"--determinism={kind}"]
                with Cluster(build, where, words, steps + 20, layers=8, micro_batches=BATCH // MICRO_BATCH) as c:
                    c.start_agent(1)
                    c.start_agent(2)
                    c.await_end(300)
            marks = [t for t, s, w in steps_of(where) if w == 2]
            per_step: List[float] = sorted(set(marks))
            if kind != "ddp":  # both workers tell: one mark a step
                first: Dict[int, float] = {}
                for t, s, w in steps_of(where):
                    if w == 2:
                        first.setdefault(s, t)
                per_step = [first[s] for s in sorted(first)]
            times[kind] += [b - a for a, b in zip(per_step[5:], per_step[6:])]
    base = statistics.median(times["ddp"])
    print(f"\nsteady state, 2 workers, {sum(p.numel() for p in _model().parameters()) / 1e6:.1f} M parameters, median step")
    for kind, values in times.items():
        print(f"  {kind:8} {statistics.median(values) * 1e3:8.1f} ms   {statistics.median(values) / base:5.3f} of DDP")


def _model():
    sys.path.insert(0, str(ROOT / "bench"))
    from torch_model import Gpt

    return Gpt()


def main() -> None:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release").resolve()
    with tempfile.TemporaryDirectory() as folder:
        ours = recovery("tidemill", Tidemill(build, Path(folder) / "tidemill"))
        theirs = recovery("torchrun", TorchRun(Path(folder) / "torchrun"))
        print(f"{'':24}{'tidemill':>12}{'torchrun':>12}{'ratio':>8}   steps redone   global batch afterwards")
        for event in ours:
            a, b = ours[event], theirs[event]
            row = f"{event:24}{a['seconds']:10.2f} s{b['seconds']:10.2f} s{b['seconds'] / a['seconds']:8.1f}"
            if "redone" in a:
                shrunk = int(BATCH / WORKERS * b["workers"])
                row += f"   {a['redone']:5.0f} / {b['redone']:<5.0f}  {BATCH:5d} / {shrunk}"
            print(row)
        steady(build, Path(folder))


if __name__ == "__main__":
    main()

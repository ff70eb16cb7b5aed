"""Recovery of a small PyTorch job side by side with torchrun elastic on this machine.

    build/venv/bin/python bench/torch_recovery.py [BUILD] [--with tidemill,tuned,defaults] [--no-loss]

For each: a worker is killed (SIGKILL) -> time to the next step, steps redone, global batch afterwards; a worker joins ->
time to the first step with it; an instance (agent and worker) is lost; the coordinator is lost and started again; the instance
where the others meet is lost. Then the effect on what is learnt: the loss on fixed data after as many steps, with and without
the loss of an instance half way. `tuned` is torchrun with the shortest times that its documentation allows, `defaults` is
torchrun as it comes. Prints ratios; absolute times are this machine's.
"""
import argparse
import os
import re
import signal
import socket
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
LEARN_STEPS, LOSE_AT = 60, 25
NEVER_S, NEVER = 90, -1.0
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
    """torchrun elastic: agents on this machine, the first hosts the rendezvous."""

    def __init__(self, folder: Path, tuned: bool = True, steps: int = 100000) -> None:
        self.tuned, self.steps = tuned, steps
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.folder, self.agents, self.number = folder, {}, 0
        folder.mkdir(parents=True, exist_ok=True)

    def start_agent(self) -> int:
        self.number += 1
        tuned = ["--monitor-interval=0.1", "--rdzv-conf=last_call_timeout=1,join_timeout=60"] if self.tuned else []
        words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc-per-node=1",
                 "--max-restarts=20", "--rdzv-backend=c10d", "--rdzv-id=bench",
                 f"--rdzv-endpoint=127.0.0.1:{self.port}", *tuned,
                 MODEL, "ddp", f"--steps={self.steps}", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}",
                 f"--workers={WORKERS}", f"--checkpoint={self.folder / 'checkpoint.pt'}", f"--every={EVERY}"]
        with open(self.folder / f"agent-{self.number}.log", "ab") as out:
            self.agents[self.number] = subprocess.Popen(
                words, stdout=out, stderr=out, start_new_session=True,
                # With the store that agents share, workers that restart meet stale addresses of the dead one.
                env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        return self.number

    def start(self) -> None:
        """The first one alone until it hosts the rendezvous: whoever comes first does."""
        self.start_agent()
        wait_for(self._is_hosted, 60, "the rendezvous")
        for _ in range(WORKERS - 1):
            self.start_agent()

    def _is_hosted(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def kill_worker(self) -> None:
        os.kill(Cluster._worker_of(self.agents[2].pid), signal.SIGKILL)

    def kill_instance(self) -> None:
        self._end(self.agents.pop(3))

    def kill_head(self) -> None:
        self._end(self.agents.pop(1))

    def is_over(self) -> bool:
        return all(process.poll() is not None for process in self.agents.values())

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
    def __init__(self, build: Path, folder: Path, steps: int = 100000) -> None:
        words = [sys.executable, MODEL, "tidemill", f"--steps={steps}", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}",
                 "--determinism=fast"]
        self.cluster = Cluster(build, folder, words, steps, layers=8, micro_batches=BATCH // MICRO_BATCH)
        self.cluster.__enter__()
        self.folder = folder

    def start(self) -> None:
        for number in (1, 2, 3):
            self.cluster.start_agent(number)

    def kill_worker(self) -> None:
        self.cluster.kill_worker(2)

    def kill_instance(self) -> None:
        self.cluster.kill_instance(3)

    def kill_coordinator(self) -> None:
        self.cluster.kill_coordinator()
        self.cluster.start_coordinator()

    def kill_head(self) -> None:
        """The instance of rank 0, where the others meet."""
        now = {n: re.findall(r" rank (\d+)$", self.cluster.log(n), re.M)[-1] for n in self.cluster.agents}
        self.cluster.kill_instance(next(n for n, rank in now.items() if rank == "0"))

    def is_over(self) -> bool:
        return self.cluster.coordinator.poll() is not None

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
            later = [x for x in later if x[2] == workers and x[1] > highest + 1]
            return later[0] if later else None
        # A step that was about to end does not count: one of fewer workers or one that is done again does.
        counts = [x for x in later if x[2] < before[-1][2] or x[1] < highest - 1]
        return counts[0] if counts else (0, 0, 0) if system.is_over() or time.time() > at + NEVER_S else None

    first = wait_for(found, 180, "the next step")
    if first == (0, 0, 0):
        return {"seconds": NEVER}
    return {"seconds": first[0] - at, "redone": max(0, highest - first[1] + 1), "workers": first[2]}


def recovery(name: str, system) -> Dict[str, Dict[str, float]]:
    out = {}
    try:
        began = time.time()
        system.start()
        wait_for(lambda: [x for x in steps_of(system.folder) if x[2] == WORKERS and x[1] >= EVERY + 8], 240, f"{name}: start")
        out["start"] = {"seconds": min(x[0] for x in steps_of(system.folder) if x[2] == WORKERS) - began}
        out["a worker is killed"] = measure(system, system.kill_worker, None)
        wait_for(lambda: steps_of(system.folder)[-1][2] == WORKERS, 150, f"{name}: all workers again")
        time.sleep(1)
        out["an instance joins"] = measure(system, system.join, WORKERS + 1)
        time.sleep(1)
        out["an instance is lost"] = measure(system, system.kill_instance, None)
        if hasattr(system, "kill_coordinator"):
            time.sleep(1)
            now = steps_of(system.folder)[-1][2]
            out["the coordinator is lost"] = measure(system, system.kill_coordinator, now)
        time.sleep(1)
        out["the head is lost"] = measure(system, system.kill_head, None)
    finally:
        system.close()
    return out


# ---- the effect on what is learnt ----


def learn(system, lose: bool) -> float:
    """The loss on fixed data when all steps are done."""
    done = re.compile(r"^after (\d+) steps (\S+)", re.M)

    def ended():
        return [m for path in system.folder.glob("*.log") for m in done.findall(path.read_text(errors="replace"))]

    try:
        system.start()
        if lose:
            wait_for(lambda: [x for x in steps_of(system.folder) if x[1] >= LOSE_AT], 240, "half of the steps")
            system.kill_instance()
        return float(wait_for(ended, 240, "the last step")[0][1])
    finally:
        system.close()


def effect(makers, folder: Path) -> None:
    print(f"\nloss on fixed data after {LEARN_STEPS} steps, undisturbed and with an instance lost at step {LOSE_AT}")
    for name, make in makers.items():
        plain = learn(make(folder / f"{name}-plain", LEARN_STEPS), False)
        lost = learn(make(folder / f"{name}-lost", LEARN_STEPS), True)
        print(f"  {name:10} {plain:9.5f}  {lost:9.5f}   difference {lost - plain:+.5f}", flush=True)


def cell(row: Optional[Dict[str, float]]) -> str:
    if row is None:
        return f"{'-':>12}"
    return f"{'it ends':>12}" if row["seconds"] == NEVER else f"{row['seconds']:10.2f} s"


def table(found: Dict[str, Dict[str, Dict[str, float]]]) -> None:
    names = list(found)
    print(f"{'':26}" + "".join(f"{n:>12}" for n in names) + "   steps redone, global batch afterwards")
    for event in found[names[0]]:
        rows = {name: found[name].get(event) for name in names}
        text = f"{event:26}" + "".join(cell(rows[name]) for name in names) + "   "
        for name, row in rows.items():
            if row is not None and "redone" in row:
                batch = BATCH if name == "tidemill" else int(BATCH / WORKERS * row["workers"])
                text += f"{name} {row['redone']:.0f}, {batch}; "
        print(text.rstrip("; "), flush=True)
    for name in names[1:]:
        ratios = [f"{event} {row['seconds'] / found[names[0]][event]['seconds']:.1f}" for event, row in found[name].items()
                  if row["seconds"] != NEVER]
        print(f"torchrun {name} / tidemill: " + ", ".join(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--with", dest="systems", default="tidemill,tuned")
    parser.add_argument("--no-loss", action="store_true")
    parser.add_argument("--no-recovery", action="store_true")
    words = parser.parse_args()
    build = Path(words.build).resolve()
    all_makers = {
        "tidemill": lambda folder, steps=100000: Tidemill(build, folder, steps),
        "tuned": lambda folder, steps=100000: TorchRun(folder, True, steps),
        "defaults": lambda folder, steps=100000: TorchRun(folder, False, steps),
    }
    makers = {name: all_makers[name] for name in words.systems.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        if not words.no_recovery:
            table({name: recovery(name, make(Path(folder) / name)) for name, make in makers.items()})
        if not words.no_loss:
            effect({n: m for n, m in makers.items() if n != "defaults"}, Path(folder))


if __name__ == "__main__":
    main()

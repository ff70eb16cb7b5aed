"""Tidemill beside torchft and torchrun elastic with checkpoints: the same model, the same machine, one run.

    build/venv-peers/bin/python bench/torch_peers.py [BUILD] [--with tidemill,torchft,torchft-tuned,torchrun,torchrun-tuned]

Three workers over gloo train a small GPT. Of each system: the throughput without faults; a worker is killed (SIGKILL): how long the
survivors stand still, how many steps are done again, and when all three train again; and the loss on fixed data after as many steps, undisturbed
and with that kill half way. `tuned` has the shortest times that the documentation allows. build/venv-peers (scripts/make-venv peers) has torchft
(PyPI: torchft-nightly); where it is missing, that is said, and the others are measured.
"""
import argparse
import importlib.util
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "torch"), str(ROOT / "bench")]
from cluster import Cluster  # noqa: E402
from torch_recovery import BATCH, EVERY, MICRO_BATCH, MODEL, WORKERS, Tidemill, TorchRun, steps_of, wait_for  # noqa: E402

STEADY_STEPS, LEARN_STEPS, LOSE_AT = 60, 60, 25


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TorchFt:
    """A lighthouse, and for each replica group a torchrun that starts its worker again."""

    def __init__(self, folder: Path, tuned: bool, steps: int = 100000) -> None:
        self.folder, self.steps, self.groups = folder, steps, {}
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        times = ["--join_timeout_ms", "1000", "--heartbeat_timeout_ms", "1000"] if tuned else ["--join_timeout_ms", "10000"]
        words = [str(Path(sys.executable).parent / "torchft_lighthouse"), "--bind", f"[::]:{port}", "--min_replicas", "1",
                 "--quorum_tick_ms", "100", *times]
        with open(folder / "lighthouse.out", "ab") as out:
            self.lighthouse = subprocess.Popen(words, stdout=out, stderr=out)
        self.address = f"http://127.0.0.1:{port}"

    def start(self) -> None:
        for number in range(WORKERS):
            self._start_group(number)

    def _start_group(self, number: int) -> None:
        words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=1", "--max-restarts=20",
                 "--monitor-interval=0.1", "--master-addr=127.0.0.1", f"--master-port={free_port()}",
                 MODEL, "torchft", f"--steps={self.steps}", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}",
                 f"--workers={WORKERS}"]
        with open(self.folder / f"group-{number}.log", "ab") as out:
            self.groups[number] = subprocess.Popen(
                words, stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHFT_LIGHTHOUSE": self.address, "REPLICA_GROUP_ID": str(number)})

    def kill_worker(self) -> None:
        os.kill(Cluster._worker_of(self.groups[1].pid), signal.SIGKILL)

    def is_over(self) -> bool:
        return all(process.poll() is not None for process in self.groups.values())

    def close(self) -> None:
        for process in self.groups.values():
            TorchRun._end(process)
        self.lighthouse.kill()
        self.lighthouse.wait()


def pause_of(rows: List, killed: float) -> float:
    """The longest time without a step from just before the kill on, until a second of steps has passed by."""
    times = sorted({t for t, _, _ in rows if t > killed - 5})
    gaps = [(b - a, a) for a, b in zip(times, times[1:]) if b > killed]
    return max(gaps)[0] if gaps else 0.0


def measure(name: str, system) -> Dict[str, float]:
    """Throughput, then a kill."""
    try:
        system.start()
        first = wait_for(lambda: [x for x in steps_of(system.folder) if x[2] == WORKERS], 240, f"{name}: start")[0][1]
        wait_for(lambda: [x for x in steps_of(system.folder) if x[2] == WORKERS and x[1] >= first + STEADY_STEPS], 240, f"{name}: steps")
        by_step = {}
        for t, step, workers in steps_of(system.folder):
            if workers == WORKERS and step > first + 5:
                by_step.setdefault(step, t)
        times = [by_step[s] for s in sorted(by_step)]
        each = statistics.median(b - a for a, b in zip(times, times[1:]))
        wait_for(lambda: steps_of(system.folder)[-1][1] % EVERY == EVERY // 2, 60, f"{name}: half way between checkpoints")
        highest = max(x[1] for x in steps_of(system.folder))
        killed = time.time()
        system.kill_worker()

        def fewer():
            return [x for x in steps_of(system.folder) if x[0] > killed and (x[2] < WORKERS or x[1] < highest)]

        after = wait_for(fewer, 180, f"{name}: a step after the kill")[0]

        def again():
            rows = [x for x in steps_of(system.folder) if x[0] > killed + 0.5 and x[2] == WORKERS]
            return [x for x in rows if x[0] > after[0] or after[2] == WORKERS]

        back = wait_for(again, 240, f"{name}: all workers again")[0]
        time.sleep(2)
        rows = [x for x in steps_of(system.folder) if x[0] < back[0] + 2]
        return {"step_ms": 1000 * each, "pause_s": pause_of([x for x in rows if x[0] <= after[0] + 0.01], killed) - each,
                "redone": max(0, highest + 1 - after[1]), "back_s": back[0] - killed,
                "join_s": pause_of([x for x in rows if x[0] > after[0]], after[0]) - each}
    finally:
        system.close()


def learn(name: str, system, kill: bool) -> float:
    """The loss on fixed data when all steps are done."""
    done = re.compile(r"^after (\d+) steps (\S+)", re.M)

    def ended():
        return [m for path in system.folder.glob("*.log") for m in done.findall(path.read_text(errors="replace"))]

    try:
        system.start()
        if kill:
            wait_for(lambda: [x for x in steps_of(system.folder) if x[1] >= LOSE_AT], 240, f"{name}: half of the steps")
            system.kill_worker()
        return float(wait_for(ended, 300, f"{name}: the last step")[0][1])
    finally:
        system.close()


def table(found: Dict[str, Optional[Dict[str, float]]]) -> None:
    rows = (("throughput without faults", lambda r: f"{1000 / r['step_ms']:.1f} steps/s"),
            ("survivors' pause", lambda r: f"{max(0.0, r['pause_s']):.2f} s"),
            ("steps redone", lambda r: f"{r['redone']:.0f}"),
            ("all workers again after", lambda r: f"{r['back_s']:.1f} s"),
            ("pause when it joins", lambda r: f"{max(0.0, r['join_s']):.2f} s"),
            ("loss, undisturbed", lambda r: f"{r['loss']:.5f}" if "loss" in r else "-"),
            ("loss with the kill, less that", lambda r: f"{r['killed'] - r['loss']:+.5f}" if "loss" in r else "-"))
    print(f"{'':30}" + "".join(f"{name:>16}" for name in found))
    for title, show in rows:
        print(f"{title:30}" + "".join(f"{'-' if r is None else show(r):>16}" for r in found.values()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--with", dest="systems", default="tidemill,torchft,torchft-tuned,torchrun,torchrun-tuned")
    parser.add_argument("--no-loss", action="store_true")
    words = parser.parse_args()
    build = Path(words.build).resolve()
    makers = {
        "tidemill": lambda folder, steps=100000: Tidemill(build, folder, steps),
        "torchft": lambda folder, steps=100000: TorchFt(folder, False, steps),
        "torchft-tuned": lambda folder, steps=100000: TorchFt(folder, True, steps),
        "torchrun": lambda folder, steps=100000: TorchRun(folder, False, steps),
        "torchrun-tuned": lambda folder, steps=100000: TorchRun(folder, True, steps),
    }
    names = words.systems.split(",")
    if importlib.util.find_spec("torchft") is None and any(n.startswith("torchft") for n in names):
        print("skipped: torchft (scripts/make-venv peers, then build/venv-peers/bin/python)")
        names = [n for n in names if not n.startswith("torchft")]
    import torch

    print(f"{WORKERS} workers over gloo, batch {BATCH}, checkpoints of torchrun every {EVERY} steps; torch {torch.__version__}, "
          f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}")
    found: Dict[str, Optional[Dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            found[name] = measure(name, makers[name](Path(folder) / name))
            if not words.no_loss:
                found[name]["loss"] = learn(name, makers[name](Path(folder) / f"{name}-plain", LEARN_STEPS), False)
                found[name]["killed"] = learn(name, makers[name](Path(folder) / f"{name}-killed", LEARN_STEPS), True)
            print(f"{name}: " + ", ".join(f"{key} {value:.5g}" for key, value in found[name].items()), flush=True)
    table(found)


if __name__ == "__main__":
    main()

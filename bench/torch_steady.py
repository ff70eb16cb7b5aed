"""What Tidemill costs a PyTorch job that nothing happens to, against plain DistributedDataParallel on this machine.

    build/venv/bin/python bench/torch_steady.py [BUILD] [--rounds 12] [--block 10]

Two workers of each kind, one thread each: plain DDP (torchrun, gloo), Tidemill's `fast`, Tidemill's `bitwise`. All are up at
once and take turns, a block of steps each: whoever has no turn sleeps. So all see the same machine, busy or not. Prints the
median step, the median of the rounds' ratios to DDP, and the time of the processor that a worker took. No copy sets are made
while it measures: what those cost is bench_copies' matter.
"""
import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Tuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "torch"))
from cluster import Cluster  # noqa: E402

MODEL = str(ROOT / "bench" / "torch_model.py")
BATCH, MICRO_BATCH, STEPS = 24, 4, 1 << 20
KINDS = ("ddp", "fast", "bitwise")
HANG_S = 240


class Referee:
    """Gives turns to the workers that have connected."""

    def __init__(self, path: Path) -> None:
        self._listen = socket.socket(socket.AF_UNIX)
        self._listen.bind(str(path))
        self._listen.listen(8)
        self._listen.settimeout(HANG_S)
        self._lines: Dict[str, List] = {kind: [] for kind in KINDS}

    def meet(self) -> None:
        """Until both workers of every kind stand at the end of their first block. Who starts later may restart others."""
        while any(len(found) < 2 for found in self._lines.values()):
            connection, _ = self._listen.accept()
            connection.settimeout(HANG_S)
            file = connection.makefile("rw")
            self._lines[file.readline().strip()].append((connection, file))
        for kind in KINDS:
            for _, file in self._lines[kind]:
                if file.readline().strip() != "ready":
                    raise SystemExit(f"a worker of {kind} is gone")

    def close(self) -> None:
        for found in self._lines.values():
            for connection, file in found:
                file.close()
                connection.close()
        self._listen.close()

    def turn(self, kind: str) -> Tuple[float, float]:
        """A block by both workers: seconds of the slower one, and its processor's."""
        for connection, _ in self._lines[kind]:
            connection.sendall(b"g")
        took = []
        for _, file in self._lines[kind]:
            words = file.readline().split()
            if len(words) != 2:
                raise SystemExit(f"a worker of {kind} is gone")
            took.append((float(words[0]), float(words[1])))
        return max(t[0] for t in took), statistics.mean(t[1] for t in took)


def words_of(kind: str, path: Path, block: int) -> List[str]:
    loop = ["ddp", "--workers=2"] if kind == "ddp" else ["tidemill", f"--determinism={kind}"]
    return [MODEL, *loop, f"--steps={STEPS}", f"--batch={BATCH}", f"--micro-batch={MICRO_BATCH}", f"--turns={path}",
            f"--block={block}"]


def start_ddp(path: Path, block: int, log: Path) -> subprocess.Popen:
    with open(log, "wb") as out:
        return subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                                 *words_of("ddp", path, block)], stdout=out, stderr=out, start_new_session=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})


def measure(referee: Referee, rounds: int, block: int) -> None:
    for kind in KINDS:  # warm
        referee.turn(kind)
    steps: Dict[str, List[float]] = {kind: [] for kind in KINDS}
    processor: Dict[str, List[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for place in range(len(KINDS)):
            kind = KINDS[(number + place) % len(KINDS)]
            took, cpu = referee.turn(kind)
            steps[kind].append(took / block)
            processor[kind].append(cpu / block)
    print(f"2 workers, 1 thread each, batch {BATCH} of {MICRO_BATCH}; {rounds} rounds of {block} steps each")
    for kind in KINDS:
        ratio = statistics.median(a / b for a, b in zip(steps[kind], steps["ddp"]))
        cpu = statistics.median(a / b for a, b in zip(processor[kind], processor["ddp"]))
        print(f"  {kind:8} {statistics.median(steps[kind]) * 1e3:8.1f} ms a step   {ratio:5.3f} of DDP"
              f"   a worker's processor {statistics.median(processor[kind]) * 1e3:7.1f} ms, {cpu:5.3f} of DDP")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--block", type=int, default=10)
    words = parser.parse_args()
    build = Path(words.build).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "turns"
        referee = Referee(path)
        ddp = start_ddp(path, words.block, folder / "ddp.log")
        clusters = [Cluster(build, folder / kind, [sys.executable, *words_of(kind, path, words.block)], STEPS, layers=8,
                            micro_batches=BATCH // MICRO_BATCH, variables={"TORCH_NODE_COPY_MS": "3600000"})
                    for kind in KINDS[1:]]
        try:
            for cluster in clusters:
                cluster.__enter__()
                cluster.start_agent(1)
                cluster.start_agent(2)
            referee.meet()
            measure(referee, words.rounds, words.block)
        finally:
            for cluster in clusters:
                cluster.__exit__()
            referee.close()  # DDP's workers end by themselves, and torchrun after them
            try:
                ddp.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(ddp.pid, signal.SIGKILL)
                ddp.wait()


if __name__ == "__main__":
    main()

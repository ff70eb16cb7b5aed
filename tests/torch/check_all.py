"""Runs every check_*.py beside it and prints the tally. Use: check_all.py BUILD [quick|slow]

Tests whose function bears `slow = True` belong to the full tier (tests/torch_full/run). Most of a test on a cluster is waiting, for
processes that start, and for heartbeats: so several run beside each other, each in a process of its own (TORCH_JOBS says how many)."""
import fcntl
import gc
import importlib
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent


def chosen(tier):
    """(module, name, function) of the tests of a tier, those on a cluster first: they take the longest."""
    wanted = [w for w in os.environ.get("TORCH_TESTS", "").split(",") if w]
    found = []
    for path in sorted(HERE.glob("check_*.py")):
        if path.stem == "check_all" or (wanted and not any(f"def test_{name}(" in path.read_text() for name in wanted)):
            continue  # what is not wanted may need what is not here
        for name, function in sorted(vars(importlib.import_module(path.stem)).items()):
            if not name.startswith("test_") or (wanted and name[5:] not in wanted):
                continue
            if wanted or getattr(function, "slow", False) == (tier == "slow"):
                found.append((path.stem, name, function))
    return sorted(found, key=lambda row: "start_agent" not in row[2].__code__.co_names)


def run(build, module, name, function):
    """One test: (passed, failed, skipped) and what is to be said."""
    from cluster import Skipped

    began = time.monotonic()
    gc.collect()
    gc.freeze()  # jobs look for state of the script among all objects: what libraries have is passed over from here on
    with tempfile.TemporaryDirectory() as folder:
        try:
            function(build, Path(folder))
            return (1, 0, 0), f"ok {name[5:]} {time.monotonic() - began:.0f} s\n"
        except Skipped as why:
            return (0, 0, 1), f"skipped {name[5:]}: {why}\n"
        except Exception:  # noqa: BLE001
            return (0, 1, 0), f"FAILED {module}.{name}\n{traceback.format_exc()}"


def take_turns(build, tests, queue, results, turn):
    """A process of its own: takes the next test until there is none."""
    while True:
        index = os.read(queue, 2)
        if len(index) < 2:
            return
        counts, text = run(build, *tests[struct.unpack("<H", index)[0]])
        data = text.encode(errors="replace")
        fcntl.lockf(turn, fcntl.LOCK_EX)
        with open(results, "wb", closefd=False) as out:
            out.write(struct.pack("<BBBI", *counts, len(data)) + data)
        fcntl.lockf(turn, fcntl.LOCK_UN)


def read(pipe, size):
    out = b""
    while len(out) < size:
        part = os.read(pipe, size - len(out))
        if not part:
            return None
        out += part
    return out


def main() -> int:
    sys.path.insert(0, str(HERE))
    build = Path(sys.argv[1])
    tests = chosen(sys.argv[2] if len(sys.argv) > 2 else "quick")
    jobs = int(os.environ.get("TORCH_JOBS") or 3)
    queue, fill = os.pipe()
    results, tell = os.pipe()
    turn = tempfile.TemporaryFile()
    os.write(fill, b"".join(struct.pack("<H", i) for i in range(len(tests))))
    children = []
    for _ in range(max(1, min(jobs, len(tests)))):
        pid = os.fork()
        if pid == 0:
            os.close(fill)
            os.close(results)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what tests have started ends with them
            try:
                take_turns(build, tests, queue, tell, turn)
            finally:
                sys.stdout.flush()
                os._exit(0)
        children.append(pid)
    for end in (queue, fill, tell):
        os.close(end)

    def stop(*_):
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        sys.exit(1)

    signal.signal(signal.SIGTERM, stop)
    tally = [0, 0, 0]
    while True:
        head = read(results, 7)
        if head is None:
            break
        *counts, size = struct.unpack("<BBBI", head)
        print((read(results, size) or b"").decode(errors="replace"), end="", flush=True)
        tally = [a + b for a, b in zip(tally, counts)]
    for pid in children:
        os.waitpid(pid, 0)
    lost = len(tests) - sum(tally)
    if lost:
        print(f"FAILED {lost} test(s) ended with their process")
        tally[1] += lost
    print("tally", *tally)
    return 1 if tally[1] else 0


if __name__ == "__main__":
    sys.exit(main())

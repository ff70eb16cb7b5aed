"""What Tidemill costs a PyTorch job on one GPU, and how soon the job goes on after a loss: GPT-2 (124 M), bf16 autocast.

    python bench/gpu_torch.py [BUILD] [--parts steady,copies,recovery] [--determinism fast,bitwise] [--batch 32,480] [--model gpt2|tiny]

steady     a plain loop and the same loop under Tidemill (one worker, coordinator and agent beside it) take turns: medians of their
           steps, and the ratio; for bitwise also a plain loop with torch's deterministic algorithms, which is its floor
copies     the same with a copy set every few seconds against none
recovery   two workers share the GPU over gloo, one is killed, and the other goes on; then it comes back: what happened when,
           from the record and, with --trace, from what the workers read and write
BUILD (build/release) holds torch-node and libtidemill.so. Without a GPU `--model tiny` tries the script itself.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "torch"), str(ROOT / "bench")]
TRACE = re.compile(r"^trace (\S+) (\S+) (.*)$", re.M)
LINE = re.compile(r"^applied (\d+) of (\d+) loss \S+ at (\S+)", re.M)
SIZES = {"gpt2": dict(layers=12, width=768, heads=12, context=1024, vocab=50304),
         "tiny": dict(layers=2, width=64, heads=4, context=32, vocab=256)}
WARM_UP = 10


# ---- the two loops ----


def loop_plain(model, optimizer, dataset, words, device):
    import torch
    from torch_model import tell

    step, at = 0, 0
    while step < words.steps:
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for _ in range(words.batch // words.micro_batch):
            pairs = [dataset[(37 * (at + j)) % len(dataset)] for j in range(words.micro_batch)]
            at += words.micro_batch
            inputs, targets = (torch.stack(c).to(device, non_blocking=True) for c in zip(*pairs))
            loss = loss_of(model, inputs, targets, device) * (words.micro_batch / words.batch)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        step += 1
        tell(step, 1, float(total))


def loop_tidemill(words, device):
    import tidemill.torch
    from torch_model import tell

    job = tidemill.torch.init(steps=words.steps, batch=words.batch, micro_batch=words.micro_batch, seed=1,
                              determinism=words.determinism)
    model, optimizer, dataset = make(words, device)
    job.attach(model, optimizer)
    if words.trace:
        trace(job)
    job.after_step(lambda step, loss: tell(step, job.world_size, loss))
    for inputs, targets in job.batches(dataset):
        with job.step() as step:
            step.backward(loss_of(model, inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True),
                                  device))
    job.done()


def trace(job):
    """Says when layers and gradients were read and written, and how long that took."""
    def told(owner, name):
        inner = getattr(owner, name)

        def call(layer, *more):
            began = time.time()
            try:
                return inner(layer, *more)
            finally:
                print(f"trace {began:.3f} {time.time():.3f} {name} {layer}", flush=True)
        setattr(owner, name, call)

    for name in ("read_layer", "write_layer"):
        told(job._state, name)
    for name in ("read_gradient", "advance"):
        told(job._state.follow, name)


def loss_of(model, inputs, targets, device):
    import torch
    from torch.nn import functional as F

    with torch.autocast(device.type, dtype=torch.bfloat16):
        logits = model(inputs)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def make(words, device):
    import torch
    from torch_model import Gpt, Words

    size = SIZES[words.model]
    torch.manual_seed(1)
    model = Gpt(**size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    return model, optimizer, Words(context=size["context"], count=2048, vocab=size["vocab"])


def work(words):
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if words.loop == "tidemill":
        loop_tidemill(words, device)
    else:
        if words.loop == "plain-deterministic":
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False
        model, optimizer, dataset = make(words, device)
        loop_plain(model, optimizer, dataset, words, device)


# ---- the comparison ----


def times_of(text):
    return [(int(s), int(w), float(t)) for s, w, t in LINE.findall(text)]


def step_ms(text):
    seen = times_of(text)[WARM_UP:]
    return [1000 * (b[2] - a[2]) for a, b in zip(seen, seen[1:])]


def command(words, loop, steps):
    return [sys.executable, str(Path(__file__).resolve()), "--loop", loop, "--model", words.model, "--steps", str(steps),
            "--batch", str(words.batch), "--micro-batch", str(words.micro_batch), "--determinism", words.determinism,
            *(["--trace"] if words.trace else [])]


VARIABLES = {"OMP_NUM_THREADS": "8", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def run_plain(words, loop="plain"):
    done = subprocess.run(command(words, loop, words.steps), capture_output=True, text=True, env={**os.environ, **VARIABLES})
    if done.returncode:
        raise SystemExit(done.stderr)
    return step_ms(done.stdout)


def cluster(words, folder, steps, copy_s=None):
    from cluster import Cluster

    return Cluster(Path(words.build).resolve(), Path(folder), command(words, "tidemill", steps), steps, layers=words.layers,
                   micro_batches=words.batch // words.micro_batch,
                   variables={"TORCH_NODE_COPY_MS": str((copy_s or words.copy_s) * 1000), **VARIABLES})


def run_tidemill(words, copy_s=None):
    with tempfile.TemporaryDirectory() as folder, cluster(words, folder, words.steps, copy_s) as c:
        c.start_agent(1)
        c.await_end(300)
        return step_ms(c.log(1)), len(list((c.folder / "copies").glob("set-*")))


def after(c, when, workers, seconds=120):
    """When the first step by so many workers was committed after a time."""
    end = time.time() + seconds
    while time.time() < end:
        found = [t for path in c.folder.glob("worker-*.log")
                 for _, w, t in times_of(path.read_text(errors="replace")) if t > when and w == workers]
        if found:
            return min(found)
        time.sleep(0.02)
    raise SystemExit(f"no step by {workers} workers within {seconds} s\n{c.tail()}")


def what_happened(c, first, last):
    """Of the record and of the workers' own traces."""
    rows = []
    for line in c.events().splitlines():
        when = int(line.split()[0]) / 1000
        rows.append((when, "coordinator", line.split(" ", 1)[1]))
    for path in c.folder.glob("worker-*.log"):
        text = path.read_text(errors="replace")
        for begun, over, what in TRACE.findall(text):
            rows.append((float(begun), path.stem, f"{what}: {1000 * (float(over) - float(begun)):.0f} ms"))
        rows += [(t, path.stem, f"step {s} of {w}") for s, w, t in times_of(text)]
    for when, who, what in sorted(rows):
        if first <= when <= last:
            print(f"  {1000 * (when - first):7.0f} ms  {who:12} {what[:110]}", flush=True)


def recovery(words):
    with tempfile.TemporaryDirectory() as folder, cluster(words, folder, 100000) as c:
        c.start_agent(1)
        c.start_agent(2)
        start = after(c, 0, 2)
        after(c, start + 8, 2)
        c.await_(lambda: c.log(1).count(" of 2 ") > 5, 120, "steps by two workers")
        lines = [t for _, w, t in times_of(c.log(1)) if w == 2][2:]
        both_ms = statistics.median(1000 * (b - a) for a, b in zip(lines, lines[1:]))
        killed = time.time()
        c.kill_worker(2)
        alone = after(c, killed, 1)
        back = after(c, alone, 2)
        last = max(t for _, w, t in times_of(c.log(1)) if t < back and w == 1)
        times = [t for _, w, t in times_of(c.log(1)) if alone <= t <= last and w == 1]
        alone_ms = statistics.median(1000 * (b - a) for a, b in zip(times, times[1:])) if len(times) > 1 else 0.0
        print(f"two workers share the GPU over gloo, batch {words.batch}: {both_ms:.1f} ms a step, one alone {alone_ms:.1f} ms")
        print(f"one killed: next commit {1000 * (alone - killed):.0f} ms later; back again {back - killed:.1f} s after the kill (python and "
              f"CUDA start), with a pause of {1000 * (back - last):.0f} ms for the other, of which a step is {both_ms:.0f} ms", flush=True)
        if words.trace:
            c.kill_coordinator()  # the record is read once nobody writes it
            what_happened(c, killed, alone + 0.1)
            what_happened(c, last - 8, back + 0.1)


def steady(words):
    plain, floor, ours = [], [], []
    for _ in range(words.turns):
        plain += run_plain(words)
        if words.determinism == "bitwise":
            floor += run_plain(words, "plain-deterministic")
        ours += run_tidemill(words)[0]
    base = statistics.median(plain)
    print(f"{words.determinism}: plain loop {base:.2f} ms a step, Tidemill {statistics.median(ours):.2f} ms: "
          f"{100 * (statistics.median(ours) / base - 1):+.2f}%; with everything between steps "
          f"{100 * (statistics.mean(ours) / statistics.mean(plain) - 1):+.2f}%", flush=True)
    if floor:
        print(f"  of which torch's deterministic algorithms, in the plain loop: {100 * (statistics.median(floor) / base - 1):+.2f}%",
              flush=True)


def copies(words):
    """Copy sets while it trains, against none."""
    every_s, none, some, sets = 5, [], [], 0
    for _ in range(words.turns):
        none += run_tidemill(words, 100000)[0]
        times, found = run_tidemill(words, every_s)
        some, sets = some + times, sets + found
    worst = max(some) - statistics.median(some)
    print(f"a copy set every {every_s} s ({sets} kept at the end): {statistics.mean(some):.2f} ms a step, without "
          f"{statistics.mean(none):.2f} ms: {100 * (statistics.mean(some) / statistics.mean(none) - 1):+.2f}%; the longest step "
          f"+{worst:.0f} ms", flush=True)


PARTS = {"steady": steady, "copies": copies, "recovery": recovery}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--loop", choices=["plain", "plain-deterministic", "tidemill"], help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=sorted(SIZES), default="gpt2")
    parser.add_argument("--parts", default="steady,recovery", help=",".join(PARTS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", default="32", help="samples a step; several, with commas, for recovery")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=6, help="of the job: what moves at once")
    parser.add_argument("--determinism", default="fast", help="fast, bitwise, or both with a comma")
    parser.add_argument("--copy-s", type=int, default=60, help="seconds between copy sets")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--trace", action="store_true", help="recovery: what happened when")
    words = parser.parse_args()
    batches = [int(b) for b in words.batch.split(",")]
    words.batch = batches[0]
    if words.loop:
        work(words)
        return
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {name}; {words.model}, batch {words.batch} of {words.micro_batch}, {words.layers} layers, "
          f"a copy set every {words.copy_s} s", flush=True)
    for determinism in words.determinism.split(","):
        for part in words.parts.split(","):
            for batch in batches if part == "recovery" else batches[:1]:
                words.determinism, words.batch = determinism, batch
                PARTS[part](words)


if __name__ == "__main__":
    main()

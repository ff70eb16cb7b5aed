"""What Tidemill costs a PyTorch job on one GPU, and how soon the job goes on after a loss: GPT-2 (124 M), bf16 autocast.

    python bench/gpu_torch.py [BUILD] [--steps 60] [--model gpt2|tiny]

A plain loop and the same loop under Tidemill (one worker, coordinator and agent beside it) take turns: medians of their
steps, and the ratio. Then two workers share the GPU over gloo, one is killed, and the other goes on; then it comes back. BUILD
(build/release) holds torch-node and libtidemill.so. Without a GPU `--model tiny` tries the script itself.
"""
import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "torch"), str(ROOT / "bench")]
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
    job.after_step(lambda step, loss: tell(step, job.world_size, loss))
    for inputs, targets in job.batches(dataset):
        with job.step() as step:
            step.backward(loss_of(model, inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True),
                                  device))
    job.done()


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
            "--batch", str(words.batch), "--micro-batch", str(words.micro_batch), "--determinism", words.determinism]


def run_plain(words):
    import subprocess

    done = subprocess.run(command(words, "plain", words.steps), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return step_ms(done.stdout)


def cluster(words, folder, steps):
    from cluster import Cluster

    os.environ.setdefault("OMP_NUM_THREADS", "8")
    return Cluster(Path(words.build).resolve(), Path(folder), command(words, "tidemill", steps), steps, layers=6,
                   micro_batches=words.batch // words.micro_batch,
                   variables={"TORCH_NODE_COPY_MS": str(words.copy_s * 1000), "OMP_NUM_THREADS": "8"})


def run_tidemill(words):
    with tempfile.TemporaryDirectory() as folder, cluster(words, folder, words.steps) as c:
        c.start_agent(1)
        c.await_end(300)
        return step_ms(c.log(1))


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


def recovery(words):
    with tempfile.TemporaryDirectory() as folder, cluster(words, folder, 100000) as c:
        c.start_agent(1)
        c.start_agent(2)
        start = after(c, 0, 2)
        after(c, start + 10 * max(1.0, words.plain_ms / 1000), 2)
        lines = [t for _, w, t in times_of(c.log(1)) if w == 2][2:]
        both_ms = statistics.median(1000 * (b - a) for a, b in zip(lines, lines[1:]))
        killed = time.time()
        c.kill_worker(2)
        alone = after(c, killed, 1)
        back = after(c, alone, 2)
        last = max(t for _, w, t in times_of(c.log(1)) if t < back and w == 1)
        return both_ms, 1000 * (alone - killed), 1000 * (back - killed), 1000 * (back - last)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--loop", choices=["plain", "tidemill"], help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=sorted(SIZES), default="gpt2")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--determinism", default="fast")
    parser.add_argument("--copy-s", type=int, default=60, help="seconds between copy sets")
    parser.add_argument("--turns", type=int, default=2)
    words = parser.parse_args()
    if words.loop:
        work(words)
        return
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {name}; {words.model}, batch {words.batch} of {words.micro_batch}, {words.determinism}, "
          f"a copy set every {words.copy_s} s")
    plain, ours = [], []
    for turn in range(words.turns):
        plain += run_plain(words)
        ours += run_tidemill(words)
        print(f"turn {turn + 1}: plain loop {statistics.median(plain):8.2f} ms a step, Tidemill {statistics.median(ours):8.2f} ms")
    words.plain_ms = statistics.median(plain)
    ratio = statistics.median(ours) / words.plain_ms
    print(f"overhead of Tidemill, one worker: {100 * (ratio - 1):+.2f}% (target: under 2%); with everything between steps "
          f"{100 * (statistics.mean(ours) / statistics.mean(plain) - 1):+.2f}%")
    both_ms, kill_ms, back_ms, pause_ms = recovery(words)
    print(f"two workers share the GPU over gloo: {both_ms:.1f} ms a step")
    print(f"one killed: next commit {kill_ms:.0f} ms later ({kill_ms / both_ms:.1f} steps); back again {back_ms / 1000:.1f} s after "
          f"the kill (python and CUDA start), with a pause of {pause_ms:.0f} ms for the other")


if __name__ == "__main__":
    main()

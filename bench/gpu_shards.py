"""Weights in shards (attach(shard="full"), as FSDP) on one GPU: two workers share it over gloo and hold half of the model each.

    python bench/gpu_shards.py [BUILD] [--steps 40] [--model gpt2|tiny]

1. `bitwise`, with a kill -9 of one of the two half way, must end with the weights of one undisturbed worker that holds everything.
2. `fast`: the median step, and what a worker keeps in the GPU's memory between steps, with and without shards. A few steps after the
   warm-up say it (every micro-batch gathers all weights over gloo, twice), and no copy sets are made beside them.
Exit status 1 where the bits differ or a shard takes no less memory. Without a GPU `--model tiny` tries the script itself.
"""
import argparse
import hashlib
import re
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "torch"), str(ROOT / "bench")]
MICRO_BATCHES, LAYERS = 4, 8
TIMED_STEPS, ENDLESS = 6, 100000
COPY_MS, NO_COPIES_MS = 2000, 100000000


def work(words):
    """One worker."""
    import torch

    import tidemill.torch
    from gpu_torch import loss_of, make
    from torch_model import tell

    job = tidemill.torch.init(steps=words.steps, batch=words.batch, micro_batch=words.batch // MICRO_BATCHES, seed=1,
                              determinism=words.determinism)
    device = job.device
    model, optimizer, dataset = make(words, device)
    job.attach(model, optimizer, shard=words.shard or None)

    @job.after_step
    def after(step, loss):
        tell(step, job.world_size, loss)
        kept = torch.cuda.memory_allocated() if device.type == "cuda" else sum(p.untyped_storage().nbytes() for p in model.parameters())
        print(f"keeps {kept} of {job.world_size}", flush=True)

    for inputs, targets in job.batches(dataset):
        with job.step() as step:
            step.backward(loss_of(model, inputs.to(device), targets.to(device), device))
    if job.done():
        h = hashlib.sha256()
        for tensor in model.state_dict().values():
            h.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        print(f"weights {h.hexdigest()[:16]}", flush=True)


def cluster_of(words, folder, determinism, shard, steps, copy_ms):
    from cluster import Cluster

    command = [sys.executable, str(Path(__file__).resolve()), "--worker", "--determinism", determinism, "--steps", str(steps),
               "--model", words.model, "--batch", str(words.batch), "--shard", shard]
    return Cluster(Path(words.build).resolve(), Path(folder), command, steps, layers=LAYERS, micro_batches=MICRO_BATCHES,
                   stages=2 if shard else 1,
                   variables={"OMP_NUM_THREADS": "8", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCH_NODE_COPY_MS": str(copy_ms)})


def weights(words, shard, workers, kill):
    """The final ones of a bitwise job."""
    with tempfile.TemporaryDirectory() as folder, cluster_of(words, folder, "bitwise", shard, words.steps, COPY_MS) as c:
        for number in range(1, workers + 1):
            c.start_agent(number)
        if kill:
            c.await_(lambda: c.newest()[0] >= words.steps // 2, 300, "half of the steps")
            c.kill_worker(2)
        c.await_end(400)
        c.await_(lambda: "weights " in c.log(1), 60, "the final weights")
        return re.findall(r"^weights (\S+)$", c.log(1), re.M)[-1]


def timed(words, shard):
    """The median step of two workers, and what one keeps then. However long one of them was alone, its steps by two count."""
    from gpu_torch import WARM_UP, times_of

    wanted = WARM_UP + TIMED_STEPS
    with tempfile.TemporaryDirectory() as folder, cluster_of(words, folder, "fast", shard, ENDLESS, NO_COPIES_MS) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_(lambda: c.log(1).count(" of 2 loss") > wanted, 300, "steps by two workers")
        at = [t for _, w, t in times_of(c.log(1)) if w == 2][WARM_UP:]
        kept = [int(n) for n, w in re.findall(r"^keeps (\d+) of (\d+)$", c.log(1), re.M) if int(w) == 2]
        return statistics.median(1000 * (b - a) for a, b in zip(at, at[1:])), statistics.median(kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--model", choices=["gpt2", "tiny"], default="gpt2")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--determinism", default="fast", help=argparse.SUPPRESS)
    parser.add_argument("--shard", default="", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.worker:
        work(words)
        return 0
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {name}; {words.model}, batch {words.batch}, {words.steps} steps", flush=True)
    disturbed = weights(words, "full", 2, True)
    plain = weights(words, "", 1, False)
    same = disturbed == plain
    print(f"bitwise: two shards with a kill {disturbed}, one worker undisturbed {plain}: {'the same bits' if same else 'NOT THE SAME'}",
          flush=True)
    whole_ms, whole = timed(words, "")
    full_ms, full = timed(words, "full")
    print(f"fast: {whole_ms:.1f} ms a step and {whole / 2**20:.0f} MiB between steps with everything on both workers; {full_ms:.1f} ms and "
          f"{full / 2**20:.0f} MiB in two shards", flush=True)
    return 0 if same and 0 < full < whole else 1


if __name__ == "__main__":
    sys.exit(main())

"""NCCL on one GPU: a world of one worker over NCCL, killed and back again, against gloo; two workers on one GPU are refused.

    python bench/gpu_nccl.py [BUILD] [--steps 40] [--model gpt2|tiny]

1. `bitwise` over NCCL, with a kill -9 half way, must end with the weights of an undisturbed run over gloo, to the bit.
2. `fast`: the median step over NCCL and over gloo.
3. Two workers that share the GPU: NCCL cannot do that, and the job must end with words that say so.
Exit status 1 where one of these does not hold. --backend gloo tries the script itself where there is no GPU.
"""
import argparse
import hashlib
import os
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "torch"), str(ROOT / "bench")]
MICRO_BATCHES, LAYERS = 2, 6


def work(words):
    """One worker."""
    import torch

    import tidemill.torch
    from gpu_torch import loss_of, make
    from torch_model import tell

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    job = tidemill.torch.init(steps=words.steps, batch=words.batch, micro_batch=words.batch // MICRO_BATCHES, seed=1,
                              determinism=words.determinism, backend=words.backend)
    model, optimizer, dataset = make(words, device)
    job.attach(model, optimizer)
    job.after_step(lambda step, loss: tell(step, job.world_size, loss))
    for inputs, targets in job.batches(dataset):
        with job.step() as step:
            step.backward(loss_of(model, inputs.to(device), targets.to(device), device))
    if job.done():
        h = hashlib.sha256()
        for tensor in model.state_dict().values():
            h.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        print(f"weights {h.hexdigest()[:16]} rank {job.rank}", flush=True)


def cluster(words, folder, backend, determinism):
    from cluster import Cluster

    command = [sys.executable, str(Path(__file__).resolve()), "--worker", "--backend", backend, "--determinism", determinism,
               "--steps", str(words.steps), "--model", words.model, "--batch", str(words.batch)]
    return Cluster(Path(words.build).resolve(), Path(folder), command, words.steps, layers=LAYERS, micro_batches=MICRO_BATCHES,
                   variables={"OMP_NUM_THREADS": "8", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCH_NODE_COPY_MS": "2000"})


def one(words, backend, determinism, kill):
    """The weights, and the median step."""
    from gpu_torch import step_ms

    with tempfile.TemporaryDirectory() as folder, cluster(words, folder, backend, determinism) as c:
        c.start_agent(1)
        if kill:
            c.await_(lambda: c.newest()[0] >= words.steps // 2, 300, "half of the steps")
            c.kill_worker(1)
        c.await_end(400)
        c.await_(lambda: "weights " in c.log(1), 60, "the final weights")
        found = [line.split()[1] for line in c.log(1).splitlines() if line.startswith("weights ")]
        return found[-1], statistics.median(step_ms(c.log(1)))


def two(words):
    """What a worker says that has to share its GPU."""
    with tempfile.TemporaryDirectory() as folder, cluster(words, folder, words.backend, "fast") as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_end(300)
        return next((line for n in (1, 2) for line in c.log(n).splitlines() if "NCCL does not allow" in line), "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build" / "release"))
    parser.add_argument("--model", choices=["gpt2", "tiny"], default="gpt2")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--determinism", default="fast", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.worker:
        work(words)
        return 0
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "none"
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, NCCL {nccl}, {name}; {words.model}, batch {words.batch}, {words.steps} steps", flush=True)
    good = True
    disturbed, _ = one(words, words.backend, "bitwise", True)
    plain, _ = one(words, "gloo", "bitwise", False)
    good &= disturbed == plain
    print(f"bitwise: {words.backend} with a kill {disturbed}, gloo undisturbed {plain}: "
          f"{'the same bits' if disturbed == plain else 'NOT THE SAME'}", flush=True)
    _, ours = one(words, words.backend, "fast", False)
    _, gloo = one(words, "gloo", "fast", False)
    print(f"fast: {ours:.1f} ms a step over {words.backend}, {gloo:.1f} ms over gloo, ratio {ours / gloo:.3f}", flush=True)
    if words.backend == "nccl":
        said = two(words)
        good &= bool(said)
        print(f"two workers on one GPU: {said or 'NOT REFUSED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""One worker of a data-parallel job: train.py under DistributedDataParallel over gloo.

Reads lines from standard input: "run WARMUP N" takes that many iterations, and rank 0 answers with their times in ms;
"end" ends.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

import nets

name, paced, batch, rank, world, store = sys.argv[1:7]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=store, rank=int(rank), world_size=int(world))
model = torch.nn.parallel.DistributedDataParallel(nets.make(name, paced == "paced"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = nets.batch_of(name, int(batch))


def iterate():
    loss = nets.loss_of(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


iterate()
iterate()
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[:1] != ["run"]:
        break
    for _ in range(int(words[1])):
        iterate()
    times = []
    for _ in range(int(words[2])):
        begin = time.perf_counter()
        iterate()
        times.append((time.perf_counter() - begin) * 1e3)
    if rank == "0":
        print(json.dumps(times), flush=True)
dist.destroy_process_group()

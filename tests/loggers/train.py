"""A small job with a metric of its own."""
import torch

import tidemill.torch

job = tidemill.torch.init(steps=120, batch=8, micro_batch=2, seed=1, determinism="bitwise")
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
job.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
job.metrics(twice=lambda: 2.0 * job.committed_step)
data = [(torch.randn(8, generator=torch.Generator().manual_seed(i)), torch.ones(1)) for i in range(64)]
for inputs, targets in job.batches(data):
    torch.randn(600, 600).mm(torch.randn(600, 600))  # so that there is time to be killed in
    job.backward(((model(inputs) - targets) ** 2).mean())
job.done()

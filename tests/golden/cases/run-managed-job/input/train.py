import torch
import tidemill.torch
job = tidemill.torch.init(steps=60, batch=16, micro_batch=2, seed=3)
model = torch.nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
job.attach(model, opt)
g = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(256, 8, generator=g), torch.randn(256, 1, generator=g))
for x, y in job.batches(data):
    job.backward(torch.nn.functional.mse_loss(model(x), y))
job.done()

"""An ordinary training script: what a user has. train.py NET [--paced] [--batch N] [--steps N]"""

import argparse

import torch

import nets


class Made(torch.utils.data.Dataset):
    def __init__(self, name, size):
        self.inputs, self.targets = nets.batch_of(name, size)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return self.inputs[index % len(self.inputs)], self.targets[index % len(self.inputs)]


parser = argparse.ArgumentParser()
parser.add_argument("net", choices=nets.NETS)
parser.add_argument("--paced", action="store_true")
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--save", help="weights at the end")
given = parser.parse_args()

torch.set_num_threads(1)
model = nets.make(given.net, given.paced)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Made(given.net, 64), batch_size=given.batch)
micro = 0
for inputs, targets in loader:
    loss = nets.loss_of(model(inputs), targets)
    loss.backward()
    micro += 1
    if micro % given.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
    if micro == given.steps * given.accumulate:
        break
if given.save:
    torch.save(model.state_dict(), given.save)
print(f"loss {loss.item():.4f}")

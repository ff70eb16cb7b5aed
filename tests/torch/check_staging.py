"""Layers through the bounded buffer, as on a GPU: the same bytes as without it, however small it is."""
import ctypes

import torch
from torch import nn

from tidemill.torch.staging import Staging
from tidemill.torch.state import ModelState


def model():
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(7, 300), nn.Linear(300, 1, bias=False))
    net[0].to(memory_format=torch.channels_last)
    net.register_buffer("flags", torch.tensor([True, False, True]))
    net.register_buffer("empty", torch.zeros(0, 4))
    net.register_buffer("short", torch.randn(33).to(torch.bfloat16))
    net.register_buffer("turned", torch.randn(6, 9).t())
    return net


def layers(staging=None):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), 0.1, amsgrad=True)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    state = ModelState(net, optimizer, None, 20, staging=staging)
    state.cut(3)
    return state


def bytes_of(layer):
    room = ctypes.create_string_buffer(b"\xff" * layer.size, layer.size)
    layer.read(ctypes.addressof(room))
    return room.raw


def test_staging(build, folder):
    plain = layers()
    for size in (128, 1000, 4096, 1 << 20):
        staged = layers(Staging(torch.device("cpu"), size, always=True))
        for one, other in zip(plain.layers, staged.layers):
            wanted = bytes_of(one)
            assert bytes_of(other) == wanted, (size, one.number)
            with torch.no_grad():
                for p in other.params:
                    p.tensor.add_(1.0)
                    staged.optimizer.state.pop(p.tensor)
            assert bytes_of(other) != wanted or not other.params
            given = ctypes.create_string_buffer(wanted, len(wanted))
            other.write(ctypes.addressof(given))
            assert bytes_of(other) == wanted, (size, one.number)
        for (name, a), (_, b) in zip(plain.model.state_dict().items(), staged.model.state_dict().items()):
            assert torch.equal(a, b) and a.stride() == b.stride(), name

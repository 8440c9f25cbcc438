"""Modes, hooks and parametrizations of the user's own, in a thread: what they count is printed."""

import threading

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode

torch.set_default_dtype(torch.float64)
torch.set_default_device("cpu")


class Counting(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Counting.count += 1
        return func(*args, **kwargs or {})


def train():
    torch.manual_seed(0)
    first, second = parametrizations.weight_norm(nn.Linear(4, 8)), parametrizations.spectral_norm(nn.Linear(8, 8))
    net = nn.Sequential(first, nn.Tanh(), second, nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: counts.append(gradient.shape))
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        for step in range(12):
            with Counting(), torch.device("cpu"):
                out = net(torch.randn(5, 4))
            loss = out.square().mean()
            loss.backward(inputs=list(net.parameters()))
            optimizer.step()
            optimizer.zero_grad()
            print(step, repr(loss.item()), Counting.count, len(counts), torch.get_default_device(), flush=True)


counts = []
thread = threading.Thread(target=train)
thread.start()
thread.join()
print(torch.zeros(1).dtype, torch.zeros(1).device)

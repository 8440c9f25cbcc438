"""Saves, loads, pickles and copies the model while it is trained; averages its weights; hooks of its own."""

import copy
import io
import pickle

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_full_backward_hook
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


torch.manual_seed(0)
seen = {"forward": 0, "backward": 0}
register_module_forward_hook(lambda *_: seen.update(forward=seen["forward"] + 1))
register_module_full_backward_hook(lambda *_: seen.update(backward=seen["backward"] + 1))
net = Net()
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for step in range(12):
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 4, (6,))
    loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    average.update_parameters(net)
    file = io.BytesIO()
    torch.save(net, file)
    again = [torch.load(io.BytesIO(file.getvalue()), weights_only=False), pickle.loads(pickle.dumps(net))]
    values = [other.eval()(x).sum().item() for other in (*again, copy.deepcopy(net), average)]
    print(step, repr(loss.item()), *map(repr, values), seen, sorted(vars(net)), len(net._forward_hooks))
    net.load_state_dict(again[0].state_dict())

"""Q-learning with a target network that nothing trains, called under gradients, and a copy that is evaluated."""

import copy

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


torch.manual_seed(0)
policy, target = network(), network()
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
for step in range(12):
    state, action, following = torch.randn(8, 4), torch.randint(0, 2, (8, 1)), torch.randn(8, 4)
    value = target(following).amax(1).detach()
    loss = nn.SmoothL1Loss()(policy(state).gather(1, action), (0.9 * value + 1).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    copied = copy.deepcopy(policy).eval()
    for old, new in zip(target.parameters(), policy.parameters(), strict=True):
        old.data.lerp_(new.data, 0.05)
    print(step, repr(loss.item()), repr(copied(state).sum().item()))

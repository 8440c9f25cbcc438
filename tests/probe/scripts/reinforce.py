"""Policy gradient: many forward passes, one at a time, before one backward pass."""

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(12):
    position, log_probs, rewards = torch.zeros(2), [], []
    for _ in range(6):
        chosen = torch.distributions.Categorical(logits=policy(position))
        action = chosen.sample()
        log_probs.append(chosen.log_prob(action))
        position = position + torch.tensor([float(action.item()) - 1, 0.1])
        rewards.append(-float(position.abs().sum()))
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(log_probs) * (returns - returns.mean())).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(episode, repr(loss.item()))

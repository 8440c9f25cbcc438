"""A critic with a gradient penalty (a double backward), and a generator that waits three steps for it."""

import torch
from torch import nn

torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1))
maker_optimizer = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.9))
critic_optimizer = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))


def penalty(real, fake):
    share = torch.rand(real.size(0), 1)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


for step in range(5):
    for _ in range(3):
        real, fake = torch.randn(8, 6), maker(torch.randn(8, 4)).detach()
        critic_loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
    critic.requires_grad_(False)
    maker_loss = -critic(maker(torch.randn(8, 4))).mean()
    maker_optimizer.zero_grad()
    maker_loss.backward()
    maker_optimizer.step()
    critic.requires_grad_(True)
    print(step, repr(critic_loss.item()), repr(maker_loss.item()))

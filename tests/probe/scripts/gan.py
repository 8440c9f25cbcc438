"""A GAN: two networks, two optimizers, one step each an iteration."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net_g = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
net_d = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
one, zero = torch.ones(8, 1), torch.zeros(8, 1)
for step in range(12):
    real, fake = torch.randn(8, 2) + 2, net_g(torch.randn(8, 4))
    net_d.zero_grad()
    loss_real = F.binary_cross_entropy_with_logits(net_d(real), one)
    loss_real.backward()
    loss_fake = F.binary_cross_entropy_with_logits(net_d(fake.detach()), zero)
    loss_fake.backward()
    opt_d.step()
    net_g.zero_grad()
    loss_g = F.binary_cross_entropy_with_logits(net_d(fake), one)
    loss_g.backward()
    opt_g.step()
    print(step, repr(loss_real.item()), repr(loss_fake.item()), repr(loss_g.item()))

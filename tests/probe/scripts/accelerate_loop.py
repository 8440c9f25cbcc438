"""A plain loop under Accelerate, with accumulation and clipping as it does them."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(96, 6), torch.randint(0, 2, (96,))), 4)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for x, y in loader:
    with accelerator.accumulate(net):
        loss = F.cross_entropy(net(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    print(repr(loss.item()))

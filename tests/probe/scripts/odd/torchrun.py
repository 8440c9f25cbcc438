"""DistributedDataParallel over gloo with one rank, and gradient accumulation without synchronisation."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")


def main():
    dist.init_process_group("gloo", rank=0, world_size=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(24):
        with model.no_sync() if step % 2 == 0 else nullcontext():
            loss = model(torch.randn(5, 4)).square().mean()
            loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
        print(step, repr(loss.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

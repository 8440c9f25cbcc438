"""Blocks that are alike make the same graph whichever of them a step runs; numbers must not go to another block."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradscope.probe.watch import watch


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x).tanh()


class Dropping(nn.Module):
    """Runs the blocks that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.blocks, self.end = nn.Linear(4, 4), nn.ModuleList(Block() for _ in range(4)), nn.Linear(4, 2)
        self.running = [0, 1]

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for number in self.running:
            x = self.blocks[number](x)
        out: Tensor = self.end(x)
        return out


@pytest.mark.parametrize("repeats", [0, 1, 2])
def test_a_block_that_did_not_run_has_no_numbers(repeats: int) -> None:
    torch.manual_seed(0)
    model, x = Dropping(), torch.randn(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, every=1) as scope:
        for running in [*[[0, 1]] * (1 + repeats), [2, 3]]:
            model.running = running
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert [row["module"] for row in scope.recording.rows("sites")] == ["blocks.0", "blocks.1"]
    recording, last = scope.recording, 1 + repeats
    sites = {(row["step"], row["site"]) for row in recording.rows("site_stats") if row["grad_norm"] is not None}
    assert sites == {(step, site) for step in range(last) for site in (0, 1)}
    assert [row["name"] for row in recording.rows("stream")] == ["start", "blocks.0", "blocks.1"]
    assert {row["station"] for row in recording.rows("stream_stats") if row["step"] == last} <= {0}
    confessed = any(str(row["what"]).endswith(f"at step {last}") for row in recording.rows("confessions"))
    assert confessed == (repeats > 0)  # once a graph has come again, no more than its being so is looked at

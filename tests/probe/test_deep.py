"""A graph so deep that freeing it needs more stack than a process begins with."""

import subprocess
import sys

import pytest

MODEL = """
from torch import nn

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.stem(x)
        for _ in range(60_000):
            x = x.neg()
        return self.head(x)
"""

INSPECTED = """
import sys
from gradscope.__main__ import main
sys.exit(main(["inspect", "deep.py", "--steps", "2", "--no-jacobian"]))
"""

IN_A_LOOP = """
import torch
from deep import Deep
from gradscope import watch

model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
with watch(model, every=1) as scope:
    for _ in range(2):
        optimizer.zero_grad()
        losses.append(model(torch.ones(2, 4)).square().mean())
        losses[-1].backward()
        optimizer.step()
losses.clear()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the main thread's stack grows with its limit on Linux")
@pytest.mark.parametrize("script", [INSPECTED, IN_A_LOOP], ids=["inspect", "watch"])
def test_a_graph_of_sixty_thousand_nodes_is_freed(script, tmp_path):
    (tmp_path / "deep.py").write_text(MODEL)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr

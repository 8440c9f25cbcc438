"""Later watched steps look at less of the graph than the first: they have to say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradscope.probe.session import Session

D = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
        return torch.add(x, self.down(F.relu(self.up(x))), alpha=0.5)


class Net(nn.Module):
    def __init__(self, how: dict[str, bool] | None = None) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, D), nn.Linear(D, 20)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.how = how
        self.used = 3

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks[: self.used]:
            x = block(x) if self.how is None else checkpoint(block, x, **self.how)
        return self.head(x)


class Repeated:
    """A session that watches the same step again and again."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.session = Session(model, "default", Path.cwd())
        self.ids = torch.arange(24).reshape(2, 12) % 20

    def step(self, number: int) -> bool:
        """Take a step; return whether it took the structure for granted."""
        self.model.zero_grad()
        with self.session.step(number) as watch:
            with watch.forward():
                loss = F.cross_entropy(self.model(self.ids).flatten(0, 1), self.ids.flatten())
            handle = watch.rows.keep(loss)
            loss.backward()
        self.session.record(number, watch, None, None, handle)
        assert watch.stream is not None
        return watch.stream.recorder.quick

    def rows(self, table: str, number: int) -> list[tuple[object, ...]]:
        """Return the rows of a step without its number, sorted."""
        columns = self.session.tables.columns[table]
        rows = zip(*columns.values(), strict=True)
        at = list(columns).index("step")
        return sorted((*row[:at], *row[at + 1 :]) for row in rows if row[at] == number)


TABLES = ("call_stats", "site_stats", "stream_stats", "parameter_stats", "steps", "observations", "histograms")


@pytest.mark.parametrize("how", [None, {"use_reentrant": False}, {"use_reentrant": True}])
def test_every_table_says_of_the_same_step_the_same(how) -> None:
    torch.manual_seed(0)
    watched = Repeated(Net(how))
    quick = [watched.step(number) for number in range(4)]
    reentrant = how == {"use_reentrant": True}  # what runs without a graph has to be followed anew each time
    assert quick == [False, False, not reentrant, not reentrant]
    for table in TABLES:
        first = watched.rows(table, 0)
        assert first
        stations = {row[:3] for row in watched.rows(table, 1)} if table == "observations" else None
        for number in (1, 2, 3):
            # Of blocks that turn out to be no stations the first step has no numbers either.
            assert watched.rows(table, number) == [row for row in first if stations is None or row[:3] in stations]


def test_a_graph_that_changes_once_it_was_taken_for_granted_is_confessed_and_then_followed() -> None:
    torch.manual_seed(0)
    watched = Repeated(Net())
    for number in range(3):
        watched.step(number)
    watched.model.used = 2
    assert watched.step(3)
    assert watched.rows("site_stats", 3) == []
    confessed = watched.session.tables.columns["confessions"]["what"]
    assert "residual additions at step 3" in confessed
    assert len(watched.rows("parameter_stats", 3)) == len(watched.rows("parameter_stats", 0))
    assert not watched.step(4)
    assert len(watched.rows("site_stats", 4)) == 4
    watched.model.used = 3
    assert not watched.step(5)
    assert watched.rows("site_stats", 5) == watched.rows("site_stats", 0)

"""Query, key and value gradients by structure: names say nothing, and one weight may make all three."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.metrics.facts import Facts
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.target.subject import Origin, Subject

B, T, D, H = 4, 6, 16, 2


def heads(x):
    return x.view(x.shape[0], -1, H, D // H).transpose(1, 2)


class Apart(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(D, D) for _ in range(4))

    def parts(self, x):
        return heads(self.a(x)), heads(self.b(x)), heads(self.c(x))

    def forward(self, x):
        q, k, v = self.parts(x)
        weights = (q @ k.mT * (D // H) ** -0.5).softmax(-1)
        return self.d((weights @ v).transpose(1, 2).flatten(2))


class Fused(Apart):
    """The same weights in one matrix, taken apart in one of the usual ways."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.w = nn.Linear(D, 3 * D)
        order = torch.arange(3 * D)
        if how == "interleaved":  # head by head: q, k, v
            order = order.view(3, H, D // H).transpose(0, 1).flatten()
        self.order = order
        with torch.no_grad():
            for kind in ("weight", "bias"):
                stacked = torch.cat([getattr(m, kind) for m in (self.a, self.b, self.c)])
                getattr(self.w, kind).copy_(stacked[order])
        del self.a, self.b, self.c

    def parts(self, x):
        y = self.w(x)
        if self.how == "chunk":
            return tuple(heads(part) for part in y.chunk(3, -1))
        if self.how == "unbind":
            return y.view(-1, T, 3, H, D // H).permute(2, 0, 3, 1, 4).unbind(0)
        y = y.view(-1, T, H, 3, D // H).transpose(1, 2)
        return y[..., 0, :], y[..., 1, :], y[..., 2, :]

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.d(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.one, self.two = nn.Linear(D, D), attention
        self.three = nn.Linear(D, 3)

    def forward(self, x):
        h = self.one(x)
        return self.three(h + self.two(h)).square().mean()


def balances(make):
    torch.manual_seed(0)
    x = torch.randn(B, T, D)
    model = Net(make())
    subject = Subject(model, [(x,)], lambda out, _: out, "test", Origin(""), Origin(""))
    recording = measure(subject, ProbeSettings(num_steps=1, watched_steps=(0,), optimizer="none"))
    facts = Facts(recording)
    return facts.attention_balances, {p.name: p.role for p in facts.parameters}, model, x


def test_roles_come_from_who_is_multiplied_with_whom():
    _, roles, _, _ = balances(Apart)
    assert [roles[f"two.{name}.weight"] for name in "abc"] == ["query", "key", "value"]
    assert roles["one.weight"] is None
    assert roles["three.weight"] is None


@pytest.mark.parametrize("how", ["chunk", "unbind", "interleaved"])
def test_the_parts_of_a_fused_weight_have_the_gradients_of_three_weights(how):
    (apart,), _, _, _ = balances(Apart)
    (fused,), roles, model, x = balances(lambda: Fused(how))
    assert roles["two.w.weight"] == "query_key_value"
    model.zero_grad()
    model(x).backward()
    rows = model.two.w.weight.grad[model.two.order.argsort()].view(3, D, D)
    query, key, value = (float(part.norm().log10()) for part in rows)
    assert fused.query_to_value_log10 == pytest.approx(query - value, abs=1e-4)
    assert fused.key_to_value_log10 == pytest.approx(key - value, abs=1e-4)
    assert apart.query_to_value_log10 == pytest.approx(query - value, abs=1.0)


class Patched(Net):
    """Takes the patches of all samples in one axis, with how many there are of each beside them."""

    def forward(self, patches, lengths):
        return super().forward(patches.view(len(lengths), -1, D))


def test_patches_of_all_samples_in_one_axis_are_not_cut_apart_from_their_grid():
    torch.manual_seed(0)
    batch = (torch.full((2 * B,), T), torch.randn(2 * B * T, D))
    model = Patched(Fused("chunk"))
    subject = Subject(model, [batch[::-1]], lambda out, _: out, "test", Origin(""), Origin(""))
    lengths_first = Subject(Turned(model), [batch], lambda out, _: out, "test", Origin(""), Origin(""))
    settings = ProbeSettings(num_steps=1, watched_steps=(0,), optimizer="none")
    found = [measure(one, settings) for one in (subject, lengths_first)]
    assert all(Facts(recording).attention_balances for recording in found)
    assert not any("fused weights" in row["what"] for recording in found for row in recording.rows("confessions"))


class Turned(nn.Module):
    """The same with its inputs the other way round, so that the batch's first tensor tells another size."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, lengths, patches):
        return self.inner(patches, lengths)


def test_nothing_is_asked_of_a_model_without_attention():
    found, roles, _, _ = balances(lambda: nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)))
    assert found == ()
    assert set(roles.values()) == {None}

"""Which thing in a file is meant."""

from __future__ import annotations

import pytest

from gradscope.errors import TargetError
from gradscope.target import list_targets, load

NET = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)
    def forward(self, x):
        return x + self.f(x)
class Net(nn.Module):
    def __init__(self, num_blocks=2):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(num_blocks)))
    def forward(self, x):
        return self.blocks(x)
"""


def test_a_block_inside_the_net_is_not_the_model(write):
    assert type(load(write(NET)).model).__name__ == "Net"


def test_a_factory_wins_over_classes(write):
    assert len(load(write(NET + "def build_model(): return Net(5)\n")).model.blocks) == 5


def test_a_module_level_model_wins_over_classes(write):
    subject = load(write(NET + "trained = Net(3)\ncriterion = nn.MSELoss()\n"))
    assert len(subject.model.blocks) == 3


def test_a_module_level_model_is_rebuilt_by_importing_again(write):
    subject = load(write(NET + "trained = Net(3)\n"))
    assert subject.rebuild is None


def test_model_wins_over_other_factories(write):
    assert len(load(write(NET + "def build_model(): return Net(5)\ndef model(): return Net(1)\n")).model.blocks) == 1


def test_attr_names_a_class_a_function_an_instance_or_something_inside(write):
    file = write(
        NET + "def small(): return Net(1)\nbig = Net(7)\nclass Zoo:\n    tiny = staticmethod(lambda: Net(4))\n"
    )
    for attr, expected in {"Net": 2, "small": 1, "big": 7, "Zoo.tiny": 4}.items():
        assert len(load(f"{file}:{attr}").model.blocks) == expected


def test_several_candidates_are_listed_ready_to_paste(write):
    with pytest.raises(TargetError) as caught:
        load(
            write(
                NET
                + "class Other(Net): pass\nclass Third(nn.Linear):\n    def __init__(self): super().__init__(2, 2)\n"
            )
        )
    assert "gradscope inspect user_model.py:Other" in caught.value.hint
    assert "gradscope inspect user_model.py:Third" in caught.value.hint
    assert "Block" not in caught.value.hint


def test_arguments_pick_the_class_that_needs_them(write):
    subject = load(write(NET.replace("num_blocks=2", "num_blocks")), arguments={"num_blocks": 3})
    assert len(subject.model.blocks) == 3


def test_needed_arguments_are_listed_with_a_line_to_paste(write):
    with pytest.raises(TargetError) as caught:
        load(write(NET.replace("num_blocks=2", "num_blocks, width, name='x'")))
    assert "needs arguments: num_blocks, width" in caught.value.what
    assert caught.value.hint == "gradscope inspect user_model.py -a num_blocks=4 -a width=64"


def test_an_unknown_argument_names_the_nearest(write):
    with pytest.raises(TargetError, match="num_blocks"):
        load(write(NET), arguments={"num_block": 3})


def test_a_configuration_class_in_the_file_is_filled_in(write):
    code = """
        from dataclasses import dataclass
        @dataclass
        class GPTConfig:
            n_embd: int = 8
            vocab_size: int = 11
        class GPT(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.wte = nn.Embedding(config.vocab_size, config.n_embd)
            def forward(self, idx):
                return self.wte(idx)
    """
    assert load(write(code)).model.wte.num_embeddings == 11
    assert load(write(code), arguments={"vocab_size": 5}).model.wte.num_embeddings == 5
    with pytest.raises(TargetError, match="n_embd"):
        load(write(code), arguments={"n_emb": 5})


def test_a_factory_may_return_inputs_and_loss(write):
    subject = load(
        write("""
        def make_model():
            return nn.Linear(3, 2), (torch.ones(4, 3),), lambda output, batch: output.sum() + batch[0].sum()
    """)
    )
    batch = next(iter(subject.batches))
    assert subject.loss(subject.call(batch), batch).item() == pytest.approx(subject.model(batch[0]).sum().item() + 12)
    assert "returned by make_model()" in subject.inputs_origin.text


def test_list_targets(write):
    listed = list_targets(write(NET + "def get_model(): return Net()\nready = Net(1)\n"))
    assert [(entry.target, entry.kind) for entry in listed] == [
        ("user_model.py:get_model", "factory"),
        ("user_model.py:ready", "model"),
        ("user_model.py:Block", "class"),
        ("user_model.py:Net", "class"),
    ]


def test_builtin_variants_bring_their_batch_and_loss():
    subject = load("builtin:pre-ln", arguments={"layers": 2})
    batch = next(iter(subject.batches))
    subject.loss(subject.call(batch), batch).backward()
    assert all(p.grad is not None for p in subject.model.parameters())

"""Parts of composite models, on made-up classes: no library is needed."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

from gradscope.target.hf.heads import can_run
from gradscope.target.hf.parts import made_from, owners_of, running_alone
from gradscope.target.hf.portion import _ways, switches
from gradscope.target.hf.settle import _unbuildable
from gradscope.target.hf.shrink import SAME_WIDTHS, SMALL


class Config:
    """A configuration that keeps what it is given."""

    model_type = "made-up"

    def __init__(self, **settings: Any) -> None:
        vars(self).update(settings)

    def to_dict(self) -> dict[str, Any]:
        """What marks a configuration."""
        return vars(self)


class EyesConfig(Config):
    """Of a part that keeps it."""

    model_type = "eyes"


class EarsConfig(Config):
    """Of a part that is called after it."""

    model_type = "ears"


class WholeConfig(Config):
    """Of the whole: one part is told by its class, the other by the default."""

    model_type = "whole"
    sub_configs = {"eyes_config": EyesConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(eyes_config=EyesConfig(), ears_config=EarsConfig())


class NoseConfig(Config):
    """Of a part that is left out by default."""

    model_type = "nose"


class NoselessConfig(Config):
    """Of a whole that has no nose by default."""

    model_type = "noseless"
    sub_configs = {"nose_config": NoseConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(nose_config=None)


class Sight(nn.Module):
    """A part that keeps its configuration."""

    def __init__(self, config: EyesConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        return self.layer(x)


class EarsTransformer(nn.Module):
    """A part that keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        return self.layer(x)


class Reader(nn.Module):
    """A small part that takes a text."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.embed = nn.Embedding(5, 4)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embed."""
        return self.embed(input_ids)


class Holder(nn.Module):
    """A composite that cannot be called."""

    def __init__(self, *, reads: bool = False) -> None:
        super().__init__()
        self.config = WholeConfig()
        self.scale = nn.Linear(64, 64)
        self.eyes = Sight(self.config.eyes_config)
        self.ears = EarsTransformer()
        if reads:
            self.reader = Reader()


def test_a_configuration_finds_the_one_that_it_is_a_part_of() -> None:
    assert list(owners_of(EyesConfig)) == [(WholeConfig, "eyes_config")]
    assert list(owners_of(EarsConfig)) == [(WholeConfig, "ears_config")]
    assert list(owners_of(WholeConfig)) == []


def test_the_module_made_from_a_part_keeps_it_or_is_called_after_it() -> None:
    assert [name for name, _ in made_from(Holder(), EyesConfig)] == ["eyes"]
    assert [name for name, _ in made_from(Holder(), EarsConfig)] == ["ears"]


def test_of_what_cannot_be_called_the_models_inside_are_run_those_of_texts_first() -> None:
    assert not can_run(Holder)
    assert [name for name, _ in running_alone(Holder())] == ["eyes"]  # a lone layer is no model
    assert [name for name, _ in running_alone(Holder(reads=True))] == ["reader", "eyes"]


def test_a_composite_without_models_runs_its_largest_block() -> None:
    whole = nn.Module()
    whole.layer, whole.small, whole.large = nn.Linear(99, 99), EarsTransformer(), nn.Sequential(nn.Linear(20, 20))
    assert [name for name, _ in running_alone(whole)] == ["large", "small"]


def test_a_part_that_is_left_out_by_default_is_tried_with_its_own_widths_as_well() -> None:
    assert list(_ways(EyesConfig)) == [((WholeConfig, "eyes_config"), SMALL)]
    nose = NoselessConfig, "nose_config"
    assert list(_ways(NoseConfig)) == [(nose, SMALL), (nose, SAME_WIDTHS)]


def test_too_large_and_only_a_part_are_said() -> None:
    assert "million parameters" in str(_unbuildable("a", "hf:a", None, has_classes=True))
    assert "a part of whole" in str(_unbuildable("eyes", "hf:eyes", None, owner="whole"))


def test_a_switch_that_a_composite_and_its_part_leave_off_is_what_its_models_ask_for(tmp_path, monkeypatch):
    (tmp_path / "configuration_hall.py").write_text(
        "class Hall:\n    def __init__(self, use_organ=False, cache=False, use_stage=True):\n"
        "        vars(self).update(locals())\n"
        "class Organ:\n    def __init__(self, use_organ=False, pipes=4, use_stage=False):\n"
        "        vars(self).update(locals())\n"
    )
    (tmp_path / "modeling_hall.py").write_text("if config.use_organ:\n    pass\nif self.config.use_stage:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    hall = importlib.import_module("configuration_hall")
    assert switches(hall.Hall, hall.Organ) == ["use_organ"]

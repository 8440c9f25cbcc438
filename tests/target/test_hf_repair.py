"""Configurations that are divided by one factor, or mended until their models can be built; no library is needed."""

from __future__ import annotations

import pytest

from gradscope.target.hf.agree import configured
from gradscope.target.hf.fit import enough_experts, latent_heads
from gradscope.target.hf.repair import built, left_open
from gradscope.target.hf.scale import common_factor, divided, few_blocks
from gradscope.target.hf.settle import _unbuildable


class Bare:
    """A configuration that keeps what it is given."""

    model_type = "bare"

    def __init__(self, **settings):
        vars(self).update(settings)

    def to_dict(self):
        return dict(vars(self))


class Wide(Bare):
    def __init__(
        self, hidden_size=512, num_attention_heads=8, head_dim=64, intermediate_size=1407, vocab_size=1000,
        rope_parameters=None, text=None,
    ):  # fmt: skip
        super().__init__(
            hidden_size=hidden_size, num_attention_heads=num_attention_heads, head_dim=head_dim, text=text,
            intermediate_size=intermediate_size, vocab_size=vocab_size,
            rope_parameters=rope_parameters or {"mrope_section": [8, 12, 12], "rope_theta": 1e4},
        )  # fmt: skip


def test_a_factor_keeps_every_relation_between_widths():
    factor = common_factor(Wide())
    assert factor == 2  # sections of eight, twelve and twelve pairs leave four and six
    small = divided(Wide(), factor)
    assert small["hidden_size"] == 8 * small["head_dim"] == 256
    assert small["rope_parameters"]["mrope_section"] == [4, 6, 6]
    assert sum(small["rope_parameters"]["mrope_section"]) == small["head_dim"] // 2
    assert small["intermediate_size"] == 703  # tied to nothing
    assert "vocab_size" not in small
    assert "num_attention_heads" not in small


def test_a_part_takes_part_in_the_factor():
    assert common_factor(Wide(text=Wide(head_dim=65))) == 1  # heads of 65 cannot be halved


class Whole(Bare):
    """A composite whose own settings are those of its part."""


class Model:
    def __init__(self, config):
        self.rate = config.dropout_rate
        self.length = config.max_position_embeddings
        self.experts = config.num_experts
        self.size = 2 * self.experts


def test_settings_that_are_missing_or_open_are_filled():
    part = Bare(max_position_embeddings=77)
    config = Whole(num_experts=None, text_config=part)
    model = built(Model, config)
    assert model.rate == 0.0
    assert model.length == 77  # as its part has it
    assert model.size == 8
    assert config.num_experts == 4


def test_what_no_name_explains_stays_an_error():
    class Odd:
        def __init__(self, config):
            self.value = config.flavour + 1

    with pytest.raises(TypeError):
        built(Odd, Bare(flavour=None))


class Tied:
    def __init__(self, width=64, codebook_dim=512, per_layer=256, other=1):
        if codebook_dim != width:
            raise ValueError(f"`codebook_dim` ({codebook_dim}) must equal `width` ({width})")
        if per_layer:
            raise ValueError(f"per_layer must be 0, got {per_layer}")
        if other > 1:
            raise ValueError("something else")
        self.settings = (width, codebook_dim, per_layer)


def test_settings_that_must_agree_do():
    assert configured(Tied, {"width": 32}).settings == (32, 32, 0)
    with pytest.raises(ValueError, match="something else"):
        configured(Tied, {"width": 32, "other": 2})


def test_as_many_experts_stay_as_are_chosen():
    config = Bare()
    changes = {"num_experts": 4, "num_experts_per_tok": 6, "num_shared_experts": 1}
    assert enough_experts(config, changes) == {"num_experts": 6}


def test_latent_attention_shares_no_keys():
    class Latent(Bare):
        def __init__(self, kv_lora_rank=512, num_key_value_heads=128, num_attention_heads=128):
            super().__init__(kv_lora_rank=kv_lora_rank, num_key_value_heads=num_key_value_heads,
                             num_attention_heads=num_attention_heads)  # fmt: skip

    assert latent_heads(Latent(), {"num_attention_heads": 4}) == {"num_key_value_heads": 4}
    assert latent_heads(Wide(), {"num_attention_heads": 4}) == {}


class Fused:
    def __init__(self, config):
        self.widths = [config.hidden_size] + config.fused_sizes  # noqa: RUF005  # as such models write it


def test_a_setting_that_a_file_holds_as_a_list_is_one():
    config = Whole(hidden_size=64, fused_sizes=(32, 16), other=(1, 2))
    assert built(Fused, config).widths == [64, 32, 16]
    assert config.other == (1, 2)


def test_the_setting_that_is_left_open_is_named():
    class Strict:
        def __init__(self, config):
            block_table = config.eyes.block_table
            self.kernel = block_table["reduce"]

    config = Whole(eyes=Whole(block_table=None, other=None), width=8)
    with pytest.raises(TypeError) as caught:
        Strict(config)
    assert left_open(config, caught.value) == ["eyes.block_table"]
    assert left_open(config, ValueError("None of the sizes fit")) == []
    error = _unbuildable("made-up", "hf:made-up", caught.value, open_settings=["eyes.block_table"])
    assert "default configuration, which leaves eyes.block_table open, raised TypeError" in error.what
    assert error.hint == "gradscope inspect hf:made-up -a eyes.block_table=value"


class Named(Bare):
    def __init__(self, architecture=None, model_args=None):
        super().__init__(architecture=architecture, model_args=model_args)


def test_what_is_known_by_its_name_alone_has_few_blocks_inside_parts_as_well():
    config = few_blocks(Bare(ears=Named(), eyes=Named(architecture="vit")))
    assert config.ears.model_args is None
    assert config.eyes.model_args == {"depth": 2}


class Budgeted(Bare):
    """A configuration with open sizes of which one is divided by another, and one has to be one."""

    def __init__(
        self, index_heads: int = 4, index_kv_heads: int | None = None, budget: int | None = None,
        ratio: int | None = None, name: str | None = None,
    ):  # fmt: skip
        if index_kv_heads not in (None, 1):
            raise ValueError("The index requires index_kv_heads=1.")
        super().__init__(index_heads=index_heads, index_kv_heads=index_kv_heads, budget=budget, ratio=ratio, name=name)
        self.num_attention_heads = 4


class Indexer:
    def __init__(self, config):
        self.budget, self.ratio = config.budget, config.ratio
        self.blocks = config.budget // config.ratio
        self.kv_heads = config.index_kv_heads


def test_open_sizes_whose_names_say_nothing_are_alike_and_what_a_configuration_requires_is_obeyed():
    indexer = built(Indexer, Budgeted(), opens=True)
    assert (indexer.budget, indexer.ratio, indexer.blocks, indexer.kv_heads) == (4, 4, 1, 1)


def test_open_sizes_whose_names_say_nothing_stay_open_where_they_are_not_asked_for():
    with pytest.raises(TypeError, match="NoneType"):
        built(Indexer, Budgeted())


def test_a_switch_that_a_class_asks_for_is_turned() -> None:
    class Config:
        is_decoder, to_dict = False, dict

    def build(config: Config) -> bool:
        assert config.is_decoder, "If you want to use this make sure that `is_decoder=True`."
        return config.is_decoder

    assert built(build, Config())

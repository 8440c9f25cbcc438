"""Names: inert, and shortened so that siblings stay apart."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gradscope.report import names, numbers
from gradscope.report.names import fit, fit_dotted, visible

ANY_TEXT = st.text(alphabet=st.characters(codec=None), max_size=60)


@pytest.mark.parametrize("module", [names, numbers])
def test_the_examples_in_the_documentation_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@given(ANY_TEXT)
def test_visible_text_is_printable_and_can_be_encoded(text: str) -> None:
    shown = visible(text)
    assert shown.replace("\u200d", "").isprintable()
    shown.encode("utf-8")


@given(ANY_TEXT, st.integers(min_value=0, max_value=30))
def test_a_shortened_name_never_takes_more_cells_than_it_may(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) <= width
    assert cell_len(fit_dotted(text, width)) <= width


def test_a_shortened_name_keeps_its_numbers_and_its_end() -> None:
    shown = {fit_dotted(f"model.decoder.layers.{n}.self_attention.query", 30) for n in range(48)}
    assert len(shown) == 48


def test_a_name_of_a_megabyte_is_shortened_at_once() -> None:
    assert cell_len(fit("漢" * 1_000_000, 40)) <= 40

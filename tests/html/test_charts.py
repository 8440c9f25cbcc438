"""Charts: what is drawn stands where the numbers say, in SVG, in the image and for plotly."""

from __future__ import annotations

import math
import struct
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest

from gradscope.report.html import raster, svg
from gradscope.report.html.chart import Axis, Bars, Chart, Heatmap, Mark, Series, Zone
from gradscope.report.html.plot import CONFIG, spec
from gradscope.report.html.scale import ends, log_ticks, tick_text, ticks
from tests.html.hostile import ATTACKS


def chart(*layers: Series | Bars, **parts: object) -> Chart:
    values: dict[str, object] = {"x": Axis("x"), "y": Axis("y"), "layers": layers, **parts}
    return Chart("chart-test", "A title", "A summary", **values)  # type: ignore[arg-type]


def path_points(drawing: str, kind: str) -> list[tuple[float, float]]:
    root = ET.fromstring(drawing)
    path = next(element for element in root.iter("path") if element.get("class", "").startswith(kind))
    pairs = path.get("d", "").replace("M", " ").replace("L", " ").split()
    return list(zip(map(float, pairs[::2]), map(float, pairs[1::2]), strict=True))


def test_a_line_stands_where_its_numbers_say() -> None:
    drawing = svg.draw(chart(Series("line", range(3), [0.0, 1.0, 0.5])))
    (x0, y0), (x1, y1), (x2, y2) = path_points(drawing, "line")
    assert x0 == svg.LEFT
    assert x2 == svg.WIDTH - svg.RIGHT
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert y1 < y0, "larger is higher"


def test_gaps_and_nonfinite_numbers_are_left_out() -> None:
    drawing = svg.draw(chart(Series("line", range(6), [0.0, 1.0, None, math.nan, math.inf, 2.0])))
    assert "nan" not in drawing
    assert "inf" not in drawing
    assert len(path_points(drawing, "line")) == 3
    assert 'd="M' in drawing
    described = spec(chart(Series("line", range(3), [0.0, math.nan, math.inf])))
    assert described["data"][0]["y"] == [0.0, None, None]


def test_thinning_keeps_a_spike() -> None:
    heights: list[float | None] = [0.0] * 5000
    heights[1234] = 9.0
    heights[1300] = None
    points = svg.thinned(range(5000), heights)
    assert len(points) < 1000
    assert (1234, 9.0) in points
    assert points[0] == (0, 0.0)
    assert points[-1] == (4999, 0.0)
    assert [x for x, _ in points] == sorted(x for x, _ in points)


@pytest.mark.parametrize("attack", ATTACKS)
def test_texts_are_escaped(attack: str) -> None:
    names = tuple(f"{attack} {place}" for place in range(3))
    drawn = chart(
        Series(attack, range(3), [1.0, 2.0, 3.0], low=[0, 1, 2], high=[2, 3, 4], band_name=attack),
        x=Axis(attack, names=names), y=Axis(attack), marks=(Mark(1, 2.0, attack, href="#a"),),
        zones=(Zone("y", 1, 2, attack),),
    )  # fmt: skip
    text = str(svg.draw(drawn)).encode("utf-8", "replace").decode().replace("\x00", "").replace("\x07", "")
    root = ET.fromstring(text)
    assert {element.tag for element in root.iter()} <= {"svg", "path", "text", "circle", "a", "rect"}
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    described = spec(drawn)
    for trace in described["data"]:
        assert "<" not in str(trace.get("name", ""))
        assert "<" not in str(trace.get("text", ""))
    assert all("<" not in name for name in described["names"]["x"])


def test_areas_stack_and_bars_stand_on_zero() -> None:
    stacked = chart(
        Series("a", range(2), [0.25, 0.5], area=True), Series("b", range(2), [1.0, 1.0], area=True),
        y=Axis("", low=0, high=1),
    )  # fmt: skip
    assert str(svg.draw(stacked)).count('class="area') == 2
    assert [trace["fill"] for trace in spec(stacked)["data"]] == ["tozeroy", "tonexty"]
    bars = chart(Bars("bars", [0, 1], [0.5, 1.0]), y=Axis("", low=-0.5))
    assert ends(bars)[:2] == (0, 2)
    assert all(value >= 0 for value in svg.y_ticks(bars, -0.5, 1.0)), "no negative counts are offered"


def test_never_a_trace_per_layer() -> None:
    deep = chart(Series("median", range(5000), [0.0] * 5000, low=[-1.0] * 5000, high=[1.0] * 5000, band_name="band"))
    assert len(spec(deep)["data"]) == 3


def test_plotly_sends_nothing() -> None:
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["plotlyServerURL"] == ""
    assert CONFIG["displaylogo"] is False


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-7.3, 0.2), (1e-9, 3e-9), (-1e6, 1e6), (3.0, 3.0)])
def test_ticks_lie_inside_and_are_few(low: float, high: float) -> None:
    places = ticks(low, high, 6)
    assert 1 <= len(places) <= 13
    assert all(low - 1e-12 <= place <= high + 1e-12 for place in places)


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.0), (-0.9, 0.1), (-2.0, 0.0), (-12.0, 1.0), (0.2, 1.2)])
def test_logarithmic_axes_always_have_two_ticks(low: float, high: float) -> None:
    assert len(log_ticks(low, high)) >= 2


def test_tick_texts() -> None:
    log = Axis("", log=True)
    assert [tick_text(value, log) for value in (0.0, -3.0, 12.0, math.log10(0.5))] == ["1", "10⁻³", "10¹²", "0.5"]


def heat(cells: list[list[float | None]]) -> Heatmap:
    rows, columns = len(cells), len(cells[0])
    x, y = (Axis("", names=tuple(str(place) for place in range(count))) for count in (columns, rows))
    return Heatmap("chart-heat", "Title", "Summary", x, y, cells, "unit", 2.0)


def test_the_image_holds_the_cells() -> None:
    data = raster.png([[-2.0, 0.0, 2.0], [None, math.nan, 99.0]], 2.0)
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (3, 2)
    start = data.index(b"IDAT")
    length = struct.unpack(">I", data[start - 4 : start])[0]
    pixels = zlib.decompress(data[start + 4 : start + 4 + length])
    assert pixels[1:4] == bytes([0, round(0.5 * 253), 253])
    assert pixels[5:8] == bytes([254, 254, 253])


def test_a_large_heatmap_is_one_image() -> None:
    drawing = str(raster.draw(heat([[0.1 * (x % 20) for x in range(1000)] for _ in range(50)])))
    assert drawing.count("<image") == 2
    assert drawing.count("<") < 80


def test_the_colour_scale_falls_in_lightness_to_both_ends() -> None:
    lightness = [sum(raster.colour(share / 20)) for share in range(21)]
    assert lightness[:11] == sorted(lightness[:11])
    assert lightness[10:] == sorted(lightness[10:], reverse=True)


def test_light_colours_outside_the_page_are_those_of_the_style_sheet() -> None:
    from gradscope.report.html import notebook

    style = (Path(notebook.__file__).parent / "assets" / "report.css").read_text()
    for name, value in notebook.LIGHT.items():
        assert f"--{name}: {value}" in style

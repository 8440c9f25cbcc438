"""Hand-built recordings, so that judging and showing are tested without torch."""

from __future__ import annotations

from typing import Any

from gradscope.record import TABLES, Columns, Provenance, Recording, empty_table


def add(table: Columns, **row: Any) -> int:
    """Append one row (columns left out are None) and return its number."""
    for column, values in table.items():
        values.append(row.get(column))
    assert set(row) <= set(table), f"unknown columns {set(row) - set(table)}"
    return len(next(iter(table.values()))) - 1


def build(tables: dict[str, Columns], **provenance: Any) -> Recording:
    """A recording of the given tables; tables left out are empty."""
    known: dict[str, Any] = {"target": "model.py", "inputs": "batch() in model.py", "loss": "loss() in model.py"}
    return Recording(
        Provenance(**{**known, **provenance}),
        {name: tables.get(name, empty_table(name)) for name in TABLES},
    )


def stack(
    num_blocks: int = 12,
    *,
    decades_per_block: float = 0.0,
    steps: tuple[int, ...] = (0, 3, 10),
    forward_ratio: float = 0.3,
    residual: bool = True,
    stem: str = "embed",
    name: str = "layers.{}",
    names: list[str] | None = None,
    stream_growth: float = 0.0,
    width: int = 64,
) -> Recording:
    """A stack of blocks x + f(norm(x)) whose gradient norm changes by `decades_per_block` going one block up.

    Negative values vanish toward the input; `stream_growth` is decades of forward norm gained per block.
    """
    tables = {table: empty_table(table) for table in TABLES}
    names = names or [name.format(i) for i in range(num_blocks)]
    add(
        tables["modules"],
        name="",
        type="Net",
        role="container",
        num_parameters=0,
        called=True,
        file="model.py",
        line=20,
    )
    add(tables["modules"], name=stem, type="Embedding", role="embedding", num_parameters=width * 50, called=True)
    add(tables["calls"], module=stem, call=0, shape=[4, 8, width], dtype="float32")
    add(tables["stream"], name=stem, kind="start", module=stem, call=0)
    parameters = [(f"{stem}.weight", stem, None)]
    for block in names:
        add(
            tables["modules"],
            name=block,
            type="Block",
            role="container",
            num_parameters=0,
            called=True,
            file="model.py",
            line=5,
        )
        for child, role in (("norm", "norm"), ("fc", "linear")):
            add(
                tables["modules"],
                name=f"{block}.{child}",
                type=child,
                role=role,
                num_parameters=width * width,
                called=True,
            )
            parameters.append((f"{block}.{child}.weight", f"{block}.{child}", None))
            add(tables["calls"], module=f"{block}.{child}", call=0, shape=[4, 8, width], dtype="float32")
        call = add(tables["calls"], module=block, call=0, shape=[4, 8, width], dtype="float32")
        site = None
        if residual:
            site = add(
                tables["sites"],
                name=f"{block} + fc",
                module=block,
                call=call,
                op="add",
                kind="identity",
                counted=True,
                placement="pre",
                branches=[f"{block}.norm", f"{block}.fc"],
                skips=[],
                skip_scale=1.0,
                branch_scale=1.0,
                recurrent=False,
                depth=len(tables["stream"]["name"]),
                file="model.py",
                line=11,
            )
        add(tables["stream"], name=block, kind="block", block=block, module=block, call=call, site=site)
    add(tables["modules"], name="head", type="Linear", role="linear", num_parameters=width * 10, called=True)
    parameters.append(("head.weight", "head", None))
    add(tables["calls"], module="head", call=0, shape=[4, 8, 10], dtype="float32")
    for parameter, module, part in parameters:
        add(
            tables["parameters"],
            name=parameter,
            module=module,
            shape=[width, width],
            dtype="float32",
            num_elements=width * width,
            requires_grad=True,
            role=part,
            takes_part=True,
        )
    for step in steps:
        _measure(tables, step, num_blocks, decades_per_block, forward_ratio, stream_growth, 4 * 8 * width)
    return build(
        tables,
        optimizer="adam",
        lr=1e-3,
        num_steps=steps[-1] + 1,
        torch="2.13.0",
        python="3.11",
        gradscope="0.1.0",
        batch_shape="4x8 int64",
        num_parameters=len(parameters) * width * width,
    )


def _measure(
    tables: dict[str, Columns], step: int, num_blocks: int, per_block: float, ratio: float, growth: float, size: int
) -> None:
    add(tables["steps"], step=step, loss=2.3 - 0.01 * step, grad_norm=1.0, lr=1e-3)
    top = 0.01
    for station in range(num_blocks + 1):
        grad = top * 10 ** (per_block * (num_blocks - station))
        forward = 10 ** (growth * station) * size**0.5
        add(tables["stream_stats"], step=step, station=station, num_elements=size, forward_norm=forward, grad_norm=grad)
    for row, module in enumerate(tables["calls"]["module"]):
        station = next(
            (i for i, n in enumerate(tables["stream"]["name"]) if module == n or module.startswith(n + ".")), num_blocks
        )
        grad = top * 10 ** (per_block * (num_blocks - station))
        add(tables["call_stats"], step=step, call=row, num_elements=size, forward_norm=size**0.5, grad_norm=grad)
    for row in range(len(tables["parameters"]["name"])):
        module = tables["parameters"]["module"][row]
        station = next(
            (i for i, n in enumerate(tables["stream"]["name"]) if module == n or module.startswith(n + ".")), num_blocks
        )
        grad = 10 * top * 10 ** (per_block * (num_blocks - station))
        add(tables["parameter_stats"], step=step, parameter=row, grad_norm=grad, weight_norm=8.0, update_norm=8e-3)
    for row, depth in enumerate(tables["sites"]["depth"]):
        grad = top * 10 ** (per_block * (num_blocks - depth))
        skip = 10 ** (growth * depth) * size**0.5
        add(
            tables["site_stats"],
            step=step,
            site=row,
            skip_norm=skip,
            branch_norm=ratio * skip,
            out_norm=skip * (1 + ratio**2) ** 0.5,
            grad_norm=grad,
            skip_grad_norm=grad,
            branch_grad_norm=ratio * grad,
            cosine=0.0,
        )

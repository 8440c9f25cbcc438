"""The options that every command that measures shares: declared once, spread into each command's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from gradscope.cli.debugging import remember_debug

_MODEL, _STEP, _MISC = "Model, inputs and loss", "How it is stepped", "Other"


@dataclass(frozen=True)
class MeasuringOptions:
    """What the user wrote about loading and stepping a target; None where the configuration decides."""

    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--argument",
            "-a",
            metavar="KEY=VALUE",
            rich_help_panel=_MODEL,
            help="Argument for the factory that builds the model, such as -a layers=12. Repeat for more.",
        ),
    ] = None
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FN",
            rich_help_panel=_MODEL,
            help="The batches: a function or object in a file, or a .pt, .npz, .safetensors or .json file.",
        ),
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(metavar="FILE:FN", rich_help_panel=_MODEL, help="The loss: loss(output, batch) to a scalar."),
    ] = None
    input_spec: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="SPEC",
            rich_help_panel=_MODEL,
            help="Random inputs of this shape, dtype and range, such as 8x128:int64:0..50257 or 8x3x224x224.",
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=_MODEL, help="Load these weights: .safetensors, .pt, .pth or .ckpt."
        ),
    ] = None
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=_STEP,
            help="Seed before the model is built and before the first forward; 'none' leaves it alone. Default: 0.",
        ),
    ] = None
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=_STEP,
            help="Optimizer steps to take. Default: 11, of which 0, 3, 10 are measured.",
        ),
    ] = None
    watch: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", rich_help_panel=_STEP, help="Which steps are measured, such as 0,3,10,50."),
    ] = None
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_STEP,
            help="adam, adamw, sgd, none (no update) or subject (the one the file offers).",
        ),
    ] = None
    lr: Annotated[
        float | None,
        typer.Option(metavar="N", rich_help_panel=_STEP, help="Learning rate. Default: 0.001."),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=_STEP, help="auto, cpu, cuda or cuda:N. Default: auto."),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_STEP,
            help="float32, bfloat16, float16 or float64. Default: the model's own.",
        ),
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=_STEP, help="keep, train or eval. Default: as the factory left it."
        ),
    ] = None
    level: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_STEP,
            help="params (parameter gradients only), default, or deep (the dear measurements too).",
        ),
    ] = None
    deep: Annotated[bool, typer.Option("--deep", rich_help_panel=_STEP, help="The same as --level deep.")] = False
    jacobian: Annotated[
        bool | None,
        typer.Option(
            "--jacobian/--no-jacobian",
            rich_help_panel=_STEP,
            help="Measure how evenly gradients pass through the stack.",
        ),
    ] = None
    thresholds: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="CODE.NAME=N", rich_help_panel=_MISC, help="Set a rule's threshold, as GS101.decades=3."
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_MISC,
            help="Read settings from this file instead of the nearest pyproject.toml.",
        ),
    ] = None
    debug: Annotated[
        bool,
        typer.Option("--debug", callback=remember_debug, rich_help_panel=_MISC, help="Show the traceback of an error."),
    ] = False


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """Replace a command's `measuring` parameter by one option per field of MeasuringOptions, for typer to see."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = fields(MeasuringOptions)
    hints = get_type_hints(MeasuringOptions, include_extras=True)

    @wraps(command)
    def spread_command(**values: Any) -> int:
        measuring = MeasuringOptions(**{field.name: values.pop(field.name) for field in shared})
        return command(measuring=measuring, **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [parameter.replace(kind=keyword) for name, parameter in own.items() if name != "measuring"]
    parameters += [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name]) for field in shared
    ]
    spread_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    spread_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del spread_command.__wrapped__  # or inspect would look through to the command
    return spread_command

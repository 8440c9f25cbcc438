"""Build a variant, alone or as a subject with its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from gradscope.target.subject import Origin, Subject
from gradscope.variants.catalog import find
from gradscope.variants.families import BUILDERS
from gradscope.variants.plan import make_plan


def build_variant(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Build the model of a variant in train mode, drawing from the global random state."""
    variant = find(name)
    builder = BUILDERS[variant.family]
    return builder.model(make_plan(builder.plan, variant.parts, arguments, variant.name)).train()


def build_subject(name: str, arguments: Mapping[str, Any], seed: int | None) -> Subject:
    """Seed torch, build the model, and give it its task."""
    variant = find(name)
    builder = BUILDERS[variant.family]
    plan = make_plan(builder.plan, variant.parts, arguments, variant.name)
    if seed is not None:
        torch.manual_seed(seed)
    model = builder.model(plan).train()
    task = builder.task(plan)
    return Subject(
        model=model,
        batches=task.batches,
        loss=task.loss,
        target=f"builtin:{variant.name}",
        inputs_origin=Origin(task.batches_text),
        loss_origin=Origin(task.loss_text),
        arguments=dict(arguments),
        rebuild=lambda seed: build_subject(name, arguments, seed),
    )

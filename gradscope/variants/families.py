"""How each family is built from its plan, and which task goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradscope.variants.build_transformer import build_transformer
from gradscope.variants.resnet import ResNet
from gradscope.variants.resnet_plan import ResNetPlan
from gradscope.variants.tasks import Task, noisy_templates, permuted_previous_token
from gradscope.variants.wiring import Wiring


@dataclass(frozen=True)
class Builder:
    """One family.

    Attributes:
        plan: Its plan's dataclass.
        model: Plan to module.
        task: Plan to task.
    """

    plan: type[Any]
    model: Callable[[Any], nn.Module]
    task: Callable[[Any], Task]


def _token_task(plan: Wiring) -> Task:
    return permuted_previous_token(plan.vocab, plan.tokens, plan.batch)


def _image_task(plan: ResNetPlan) -> Task:
    return noisy_templates((3, plan.image, plan.image), plan.classes, plan.batch)


BUILDERS: dict[str, Builder] = {
    "transformer": Builder(Wiring, build_transformer, _token_task),
    "resnet": Builder(ResNetPlan, ResNet, _image_task),
}

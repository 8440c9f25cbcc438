"""How each family is built from its plan, and which task goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradscope.variants.article_block import BlockStack, BlockStackPlan
from gradscope.variants.build_transformer import build_transformer, token_task
from gradscope.variants.mlp import Mlp
from gradscope.variants.mlp_plan import MlpPlan
from gradscope.variants.recurrent import Recurrent, RecurrentPlan
from gradscope.variants.resnet import ResNet
from gradscope.variants.resnet_plan import ResNetPlan
from gradscope.variants.tasks import Task, noisy_templates, recalled_first_token
from gradscope.variants.vision import VisionWiring, build_vision_transformer
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


def _image_task(plan: ResNetPlan | BlockStackPlan | VisionWiring) -> Task:
    return noisy_templates((3, plan.image, plan.image), plan.classes, plan.batch)


def _vector_task(plan: MlpPlan) -> Task:
    return noisy_templates((plan.d_model,), plan.classes, plan.batch)


def _recall_task(plan: RecurrentPlan) -> Task:
    return recalled_first_token(plan.vocab, plan.tokens, plan.batch)


BUILDERS: dict[str, Builder] = {
    "transformer": Builder(Wiring, build_transformer, token_task),
    "vision-transformer": Builder(VisionWiring, build_vision_transformer, _image_task),
    "resnet": Builder(ResNetPlan, ResNet, _image_task),
    "block-stack": Builder(BlockStackPlan, BlockStack, _image_task),
    "mlp": Builder(MlpPlan, Mlp, _vector_task),
    "recurrent": Builder(RecurrentPlan, Recurrent, _recall_task),
}

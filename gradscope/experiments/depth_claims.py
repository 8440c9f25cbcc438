"""What the depth experiment's numbers say to the claims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradscope.experiments.result import Check, Claim
from gradscope.experiments.sources import BOTH, HISTORY, TUTORIAL

if TYPE_CHECKING:
    from gradscope.experiments.depth import Findings

CLASSES = 10
TRAINED_SHARE = 0.5
"""Half of chance, as everywhere."""
SAID_TO_TRAIN, SAID_TO_FAIL = (18,), (50, 101, 152)
"""Depths that the tutorial's table calls trainable, and hard or impossible to train, without shortcuts."""
FATAL_DECADES = 3.5
"""|D| above which networks did not train (docs/calibration.md, Adam)."""
DOUBLING_DECADES = 0.5 * math.log10(2)
"""Growth per block when the energy doubles."""
FLAT_DECADES_PER_BLOCK = 0.03
"""Growth below which 32 blocks stay within one decade."""


def judge(found: Findings) -> list[Claim]:
    """Turn the findings into claims."""
    return [
        _table_claim(found),
        _training_error_claim(found),
        _cause_claim(found),
        _highway_claim(found),
        _twenty_layers_claim(found),
        _impossible_claim(found),
        _papers_block_claim(found),
        _printed_block_claim(found),
        _order_claim(found),
    ]


def _table_claim(found: Findings) -> Claim:
    checks = []
    for (depth, shortcut), one in found.trained.items():
        loss = one.final_loss / math.log(CLASSES)
        setting = f"{depth} layers {'with' if shortcut else 'without'} shortcuts"
        if shortcut or depth in SAID_TO_TRAIN:
            checks.append(Check(setting, "final loss / chance", loss, high=TRAINED_SHARE))
        elif depth in SAID_TO_FAIL:
            checks.append(Check(setting, "final loss / chance", loss, low=TRAINED_SHARE))
    for depth in SAID_TO_FAIL:
        if (depth, False) not in found.trained:
            decades = found.decades[depth, False]
            checks.append(
                Check(f"{depth} layers without shortcuts, untrained", "D (decades)", decades, low=FATAL_DECADES)
            )
    return Claim(
        "With shortcuts 18 to 152 layers train; without them 50 layers hardly do and 101 and 152 do not.",
        TUTORIAL,
        tuple(checks),
        "The tutorial gives the residual networks' paper as the source; the paper has no plain network deeper than 34.",
    )


def _training_error_claim(found: Findings) -> Claim:
    shallow, deep = (found.trained[depth, False].final_loss for depth in (18, 34))
    return Claim(
        "A deeper plain network has the higher training error: it fails to be optimised, it does not overfit.",
        HISTORY,
        (Check("34 against 18 layers, no shortcuts", "ratio of final training losses", deep / shallow, low=1.2),),
    )


def _cause_claim(found: Findings) -> Claim:
    checks = [
        Check(f"{depth} layers, BatchNorm, no shortcuts", "D (decades)", found.decades[depth, False], high=-1.0)
        for depth in (50, 101, 152)
    ]
    checks += [
        Check(f"{depth} layers, no norm, no shortcuts", "D (decades)", decades, high=-1.0)
        for depth, decades in found.decades_without_norm.items()
    ]
    return Claim(
        "Deep plain networks fail because the gradient vanishes on its way back.",
        BOTH,
        tuple(checks),
        "Negative D is vanishing. With BatchNorm the gradient grows toward the input instead.",
    )


def _highway_claim(found: Findings) -> Claim:
    measure = "D without minus D with shortcuts (decades)"
    without, with_skips = found.linear_decades
    checks = [
        Check(
            f"{depth} layers, BatchNorm", measure, found.decades[depth, False] - found.decades[depth, True], high=-0.5
        )
        for depth in (34, 50, 101, 152)
    ]
    checks.append(Check("24 ReLU layers, PyTorch's initialisation", measure, without - with_skips, high=-0.5))
    return Claim(
        "Shortcuts are a highway that keeps the gradient from decaying.",
        BOTH,
        tuple(checks),
        "A decay that shortcuts cure shows as a negative difference. With BatchNorm what they remove is growth.",
    )


def _twenty_layers_claim(found: Findings) -> Claim:
    return Claim(
        "Without residual connections, networks of more than 20 layers could hardly be trained.",
        TUTORIAL,
        tuple(
            Check(f"plain, {words}", "final loss / chance", one.final_loss / math.log(CLASSES), low=TRAINED_SHARE)
            for words, one in found.plain.items()
        ),
        "With PyTorch's default initialisation they fail; with an initialisation made for depth they need no skip.",
    )


def _impossible_claim(found: Findings) -> Claim:
    words = "tanh, orthogonal"
    return Claim(
        "Without residual connections networks as deep as large language models cannot be trained.",
        TUTORIAL,
        (
            Check(
                "a Pre-LN Transformer without its skips, 12 layers",
                "final loss / chance",
                found.skipless_loss_share,
                low=TRAINED_SHARE,
            ),
            Check(
                f"64 plain layers, {words}",
                "final loss / chance",
                found.plain[words].final_loss / math.log(CLASSES),
                low=TRAINED_SHARE,
            ),
        ),
        "In the usual wiring they cannot; with weights drawn for depth they can.",
    )


def _papers_block_claim(found: Findings) -> Claim:
    return Claim(
        "The printed residual block is the residual networks' block.",
        HISTORY,
        (
            Check("the printed block", "normalisation layers in its branch", found.printed_norms, low=2),
            Check(
                "32 of them, He initialisation as in the paper", "D per block (decades)", found.block_decades["he"],
                low=-FLAT_DECADES_PER_BLOCK, high=FLAT_DECADES_PER_BLOCK,
            ),
        ),
        "The paper's block has BatchNorm after every convolution, and does not grow.",
    )  # fmt: skip


def _printed_block_claim(found: Findings) -> Claim:
    return Claim(
        "The printed residual block (no BatchNorm in the branch) keeps the gradient stable.",
        HISTORY,
        tuple(
            Check(
                f"32 blocks, {init} init", "D per block (decades)", decades,
                low=-FLAT_DECADES_PER_BLOCK, high=FLAT_DECADES_PER_BLOCK,
            )
            for init, decades in found.block_decades.items()
        ),
        f"He initialisation, made for such networks, doubles the energy per block: {DOUBLING_DECADES:.4f} decades.",
    )  # fmt: skip


def _order_claim(found: Findings) -> Claim:
    return Claim(
        "The original residual block applies ReLU to the branch before adding it.",
        HISTORY,
        (Check("the printed block", "smallest value the branch adds", found.branch_minimum, low=0.0),),
        "A rectified branch adds nothing negative. The block adds first and rectifies the sum.",
    )

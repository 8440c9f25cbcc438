"""Where a recording comes from: everything a reader needs to repeat it, and nothing about whose machine it was."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from gradscope.probe.settings import ProbeSettings
from gradscope.record import Provenance
from gradscope.version import __version__

if TYPE_CHECKING:
    from gradscope.probe.follow import Follower
    from gradscope.probe.session import Session
    from gradscope.target.subject import Subject


def provenance_of(subject: Subject, settings: ProbeSettings, num_steps: int, batch_shape: str) -> Provenance:
    """Describe a measurement of a subject."""
    tensors = [p for p in subject.model.parameters() if not is_lazy(p)]
    first = next(iter(tensors), None)
    return Provenance(
        target=subject.target,
        inputs=subject.inputs_origin.text,
        loss=subject.loss_origin.text,
        inputs_synthetic=subject.inputs_origin.synthetic,
        loss_synthetic=subject.loss_origin.synthetic,
        arguments=dict(subject.arguments),
        seed=settings.seed,
        device=str(first.device) if first is not None else "cpu",
        dtype=str(first.dtype).removeprefix("torch.") if first is not None else "float32",
        mode="train" if subject.model.training else "eval",
        optimizer=None if settings.optimizer == "none" else settings.optimizer,
        lr=None if settings.optimizer in ("none", "subject") else settings.lr,
        num_steps=num_steps,
        batch_shape=batch_shape,
        num_parameters=sum(p.numel() for p in tensors),
        gradscope=__version__,
        torch=torch.__version__.partition("+")[0],
        python=platform.python_version(),
        git_commit=git_commit(subject.root),
        notes=(*((f"Weights: {subject.weights}.",) if subject.weights else ()), *subject.notes),
    )


def provenance_of_loop(session: Session, follower: Follower, target: str, *, partial: bool = False) -> Provenance:
    """Describe the watching of a loop that was not ours."""
    model = session.model
    tensors = [p for p in model.parameters() if not is_lazy(p)]
    first = next(iter(tensors), None)
    optimizer = next(iter(follower.optimizers), None)
    return Provenance(
        target=target,
        inputs="the loop's own batches",
        loss="the loop's own loss",
        seed=None,
        device=str(first.device) if first is not None else "cpu",
        dtype=str(first.dtype).removeprefix("torch.") if first is not None else "float32",
        mode="train" if model.training else "eval",
        optimizer=None if optimizer is None else type(optimizer).__name__.lower(),
        lr=next(iter(session.tables.columns["steps"]["lr"]), None),
        num_steps=follower.number,
        batch_shape=session.tracker.given,
        num_parameters=sum(p.numel() for p in tensors),
        gradscope=__version__,
        torch=torch.__version__.partition("+")[0],
        python=platform.python_version(),
        git_commit=git_commit(session.root),
        own_loop=True,
        partial=partial,
    )


def git_commit(folder: Path) -> str | None:
    """Return the commit that is checked out in a folder, None outside of a repository or without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"],
            capture_output=True, text=True, timeout=2, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None

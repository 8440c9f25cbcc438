"""builtin:NAME, the models that come with gradscope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradscope.target.source import Built, Offer, Source
from gradscope.target.spec import Spec


def open_source(spec: Spec, arguments: Mapping[str, Any], seed: int | None) -> Source:
    """Open one of the built-in variants; it brings its own batch and loss."""
    from gradscope import variants

    def build() -> Built:
        subject = variants.subject(spec.place, dict(arguments), seed)
        return Built(
            subject.model,
            Offer(subject.batches, subject.inputs_origin),
            Offer(subject.loss, subject.loss_origin),
            optimizer=subject.optimizer,
            forward=subject.forward,
            notes=subject.notes,
        )

    return Source(f"builtin:{spec.place}", build)

"""Find the batches of a step in a fixed order: given, returned, named, known to the library, written out, made up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gradscope.target.inputs.arrange import Arrangement, arrange
from gradscope.target.inputs.batches import Batches
from gradscope.target.inputs.given import given_inputs
from gradscope.target.inputs.named import in_namespace, on_model
from gradscope.target.inputs.written import make_batch, parse_inputs
from gradscope.target.source import Built, Offer, Source
from gradscope.target.subject import Batch, Origin


@dataclass(frozen=True)
class FoundInputs:
    """The batches of a step.

    Attributes:
        batches: What to step through.
        first: The first of them.
        origin: Where they are from.
        arrangement: How one reaches the model.
    """

    batches: Iterable[Batch]
    first: Batch
    origin: Origin
    arrangement: Arrangement


def offered_inputs(source: Source, built: Built, inputs: str | None) -> FoundInputs | None:
    """Return the inputs that were given, returned, or are named in the file or on the model."""
    if inputs:
        return _found(built, given_inputs(inputs))
    if built.inputs is not None:
        return _found(built, built.inputs)
    if offer := in_namespace(source.namespace, source.where, source.folder):
        return _found(built, offer)
    if offer := on_model(built.model, source.where, source.folder):
        return _found(built, offer)
    return None


def written_inputs(built: Built, text: str) -> FoundInputs:
    """Return the inputs that ``--input`` describes."""
    batch = make_batch(parse_inputs(text))
    return _found(built, Offer(Batches(batch), Origin(f"random numbers as --input {text} says", synthetic=True)))


def _found(built: Built, offer: Offer) -> FoundInputs:
    batches = offer.value if isinstance(offer.value, Batches) else Batches(list(offer.value))
    first = batches.first(offer.origin.text)
    arrangement = (
        Arrangement(built.forward, None)
        if built.forward
        else arrange(built.model, first, from_loader=batches.is_loader)
    )
    return FoundInputs(batches, first, offer.origin, arrangement)

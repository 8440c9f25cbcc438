"""Where the gradients of parameters end, what the operation there is, and what to write instead."""

from __future__ import annotations

from gradscope.metrics.facts import Event, Facts
from gradscope.schema import BY_CONSTANT, LEFT_OUT

_DRAWS = frozenset({"bernoulli", "binomial", "multinomial", "normal", "poisson", "standardgamma"})
"""Functions that draw at random: autograd sends zeros, or nothing, to the parameters of the draw."""

_STEPS = frozenset(
    {
        "argmax", "argmin", "argsort", "bool", "bucketize", "byte", "ceil", "eq", "floor", "ge", "gt", "int", "le",
        "long", "lt", "ne", "nonzero", "onehot", "round", "searchsorted", "sgn", "short", "sign", "sort", "topk",
        "trunc", "unique",
    }
)  # fmt: skip
"""Functions with steps: comparisons, places, roundings and casts to whole numbers."""

_FLAT = frozenset({"clamp", "clampmax", "clampmin", "hardsigmoid", "hardtanh", "relu", "threshold"})
"""Functions that are flat over a part of their range only."""

_PRODUCTS = frozenset({"addmm", "baddbmm", "bmm", "convolution", "dot", "linear", "mm", "mul", "mv"})
"""Functions whose derivative is the other factor."""


def place_of(facts: Facts, kind: str, *parameters: str) -> Event | None:
    """Return the event that names one of some parameters in its detail, else the first one that leaves names out.

    Args:
        facts: What was measured.
        kind: `cut` or `zero`.
        parameters: Their names.
    """
    events = facts.events_of(kind)
    named = next((event for event in events if set(parameters) & set(_named(event))), None)
    return named or next((event for event in events if not event.detail or event.detail.endswith(LEFT_OUT)), None)


def _named(event: Event) -> list[str]:
    return (event.detail or "").rpartition(": ")[2].split(", ")


def is_mask(event: Event | None) -> bool:
    """Whether gradients end in a product or a choice whose other part no weight makes."""
    return event is not None and event.op in (BY_CONSTANT, "masked_fill", "where")


def written_at(event: Event) -> str:
    """Return " (file:line)", "" where that is not known."""
    return f" ({event.file}:{event.line})" if event.file and event.line else ""


def way_round(operation: str) -> str | None:
    """Return what to write in place of an operation without a useful derivative, None where it has one.

    Args:
        operation: As an event names it: `round`, `Normal`.
    """
    if operation == BY_CONSTANT:
        return (
            "The other factor of this product is exactly zero and nothing trains it: look at what it is made of, a "
            "mask or lengths among the inputs, a flag, dropout of everything, or the weight of a loss term."
        )
    name = operation.lower().replace("_", "")
    if name in _DRAWS:
        return (
            "A random draw passes nothing back to its parameters: use the reparameterised form (mean + std * "
            "torch.randn_like(std), or rsample() of a torch distribution), Gumbel-softmax for categories, or a "
            "score-function estimator."
        )
    if name in _STEPS:
        return (
            "The operation is a step: its derivative is zero or does not exist. Use a soft version (softmax, sigmoid), "
            "a straight-through estimator, or Gumbel-softmax."
        )
    if name in _FLAT:
        return (
            "Every element lies where the function is flat, so nothing moves it back: check the bias and the scale of "
            "what feeds it, the limits, and the learning rate; a leaky version passes something back everywhere."
        )
    if name in _PRODUCTS:
        return (
            "The other factor of this product is exactly zero: a mask, a weight of a loss term, or a weight that "
            "starts at zero and gets no gradient itself (two zero-initialised factors in a row never wake up)."
        )
    return None

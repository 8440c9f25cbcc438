"""The words of the field, each in a sentence or two; the page shows them on hover and in its glossary."""

from __future__ import annotations

GLOSSARY: dict[str, str] = {
    "gradient": (
        "How much the loss changes when a number is nudged. Training follows it; where it is zero, nothing is learnt."
    ),
    "gradient norm": "The size of a gradient: the square root of the sum of its squares, over the whole batch.",
    "decade": "A factor of ten. Three decades smaller is a thousand times smaller.",
    "depth": (
        "The place along the stream from the input to the loss, counted in stations: the start, each residual "
        "addition or block, the end."
    ),
    "residual stream": (
        "The running sum that a residual network passes from block to block; each block reads it and adds to it."
    ),
    "skip": (
        "The path that carries the stream past a block unchanged (or scaled). Gradients take it back to the "
        "input undamped."
    ),
    "branch": (
        "The path through a block's layers (attention, MLP, convolutions), whose result is added to the stream."
    ),
    "residual addition": "The place where a branch is added to the stream: x + f(x).",
    "pre-norm": "The normalisation sits at the start of the branch: x + f(norm(x)). The skip stays clean.",
    "post-norm": "The normalisation comes after the addition: norm(x + f(x)). Each block rescales the skip.",
    "forward ratio": "Size of what the branch adds, divided by the size of the stream it is added to.",
    "backward ratio": "Size of the gradient that comes through the branch, divided by that through the skip.",
    "cosine": "How far two directions agree: 1 the same, 0 unrelated, −1 opposite.",
    "token cosine": (
        "Mean cosine between different tokens at one depth. Near 1, the model no longer tells its tokens apart."
    ),
    "sample cosine": (
        "Mean cosine between different samples at one depth. Near 1, the model no longer tells its samples apart."
    ),
    "Jacobian anisotropy": (
        "How unevenly gradients pass through the whole stack: 1 when all directions pass alike; large when few do."
    ),
    "vanishing": "Gradients shrink on the way to the input, so that early layers hardly learn.",
    "exploding": "Gradients grow on the way to the input, so that one step throws early layers far off.",
    "saturated": "A unit that sits on the flat part of its activation: it passes hardly any gradient.",
    "dead unit": "A unit that is off for every sample: it passes no gradient at all.",
    "attention entropy": "How widely attention is spread: 1 evenly over all keys, 0 on a single one.",
    "underflow": "A number too small for its format becomes zero.",
    "loss scale": (
        "A factor that lifts gradients into the range of a narrow format before the backward pass, divided "
        "out afterwards."
    ),
    "absorption": (
        "In a sum of a large and a small number the small one is lost, because the format has too few digits."
    ),
    "update-to-weight ratio": (
        "Size of one optimizer step divided by the size of the weights it changes; about 1 in 1,000 is usual."
    ),
    "expected": (
        "What theory expects for this design: a healthy pre-norm stack has gradients that grow towards the "
        "input as its stream grows forwards."
    ),
    "confession": "Something that was not measured, with the reason.",
    "synthetic": "Made up by gradscope because the target did not supply it.",
}

"""Every calibrated or judged level in one place, so that a new calibration changes one file.

MEASURED levels come from training 185 small networks (102 MLPs, 83 Transformers) and asking which number at
initialisation tells those that fail; JUDGED levels are the range that practitioners call normal.
"""

from __future__ import annotations

from gradscope.rules.rule import Threshold

MEASURED = "calibration on 102 MLPs and 83 Transformers, each trained under SGD or Adam"
JUDGED = "judgement: the range that is normal in practice"

# |D| in decades: of 18 networks with |D| > 4 all failed under either optimizer; between 1 and 2, 1 of 17 failed under
# Adam and 4 of 17 under SGD; between 2 and 4, 3 of 13 under Adam and 8 of 13 under SGD.
FAIL_DECADES = Threshold(
    "decades", 3.5, "decades (log10) between the ends of the stream", MEASURED,
    "Adam rescales every tensor and still trains at 2 decades; at 4 no network trained.",
)
WARN_DECADES = Threshold(
    "warn_decades", 2.0, "decades (log10) between the ends of the stream", MEASURED,
    "Below 2 decades 1 network in 17 failed under Adam, above it 1 in 4.",
)
FAIL_DECADES_SGD = Threshold(
    "sgd_decades", 2.0, "decades (log10) between the ends of the stream, under plain SGD", MEASURED,
    "SGD does not rescale: it tolerates about two decades less than Adam.",
)
WARN_DECADES_SGD = Threshold(
    "sgd_warn_decades", 1.5, "decades (log10) between the ends of the stream, under plain SGD", MEASURED,
    "The best single cut for SGD: it finds 78 % of the failures at 11 % false alarms.",
)

FAIL_ANISOTROPY = Threshold(
    "kappa", 40.0, "number of Jacobian directions per direction that carries gradient", MEASURED,
    "Fewer than 1 direction in 40 carries the gradient: together with |D| > 3.5 it finds 91 % of the failures.",
)
WARN_ANISOTROPY = Threshold(
    "warn_kappa", 10.0, "number of Jacobian directions per direction that carries gradient", MEASURED,
    "Healthy networks lie below 10.",
)

FAIL_TOKEN_COSINE = Threshold(
    "token_cosine", 0.99, "mean cosine between the tokens of a sequence", MEASURED,
    "Tokens that are this alike cannot be told apart by the head; no residual network that trained reached it.",
)
WARN_TOKEN_COSINE = Threshold(
    "warn_token_cosine", 0.9, "mean cosine between the tokens of a sequence", MEASURED,
    "Above it at the first step only failing networks were found, and 65 % of them.",
)
WARN_LATER_TOKEN_COSINE = Threshold(
    "warn_later_token_cosine", 0.98, "mean cosine between the tokens of a sequence after some steps", MEASURED,
    "Tokens draw together in the first steps of healthy training too, so the later level is higher.",
)

FAIL_QUERY_TO_VALUE = Threshold(
    "log10_ratio", -4.0, "log10 of query or key gradient over value gradient", JUDGED,
    "Healthy attention lies between -0.1 and -3; collapsed tokens give -4 down to -8, where float32 rounding begins.",
)
WARN_QUERY_TO_VALUE = Threshold(
    "warn_log10_ratio", -3.0, "log10 of query or key gradient over value gradient", JUDGED,
    "The edge of what healthy attention shows.",
)

FAIL_TIME_DECADES = Threshold(
    "decades", 7.2, "decades (log10) between the first and the last time step", "float32: 24 significand bits, 2^-24",
    "What the first step adds to the shared weight's gradient is then below the rounding of what the last one adds.",
)
WARN_TIME_DECADES = Threshold(
    "warn_decades", 3.5, "decades (log10) between the first and the last time step", MEASURED,
    "The level at which depth kills under Adam; weights shared over time are forgiving, so it only warns.",
)
FAIL_TIME_EXPLOSION = Threshold(
    "exploding_decades", 3.5, "decades (log10) between the first and the last time step", MEASURED,
    "The level at which depth kills under Adam.",
)

WARN_CLIFF = Threshold(
    "decades", 1.5, "decades (log10) lost or gained in one block beyond the usual", JUDGED,
    "A factor of 30 in one block; the embedding of a healthy Transformer changes the gradient by less than 10.",
)
CLIFF_SPREADS = Threshold(
    "spreads", 6.0, "robust standard deviations of the other blocks", JUDGED,
    "Six deviations: not one false alarm in a billion blocks were they normal, and some room for heavy tails.",
)

FAIL_UNDERFLOW = Threshold(
    "fraction", 0.05, "fraction of non-zero gradient elements that round to zero", JUDGED,
    "A twentieth of the gradient is gone.",
)
WARN_UNDERFLOW = Threshold(
    "warn_fraction", 0.01, "fraction of non-zero gradient elements that round to zero", JUDGED,
    "One in a hundred is still harmless.",
)
WARN_ABSORPTION = Threshold(
    "fraction", 0.2, "fraction of elements of a residual sum that the branch does not change", JUDGED,
    "bfloat16 absorbs 17 % at a branch of 1 % of the stream: beyond it a fifth of the branch does nothing.",
)

"""Every calibrated or judged level in one place, so that a new calibration changes one file.

MEASURED levels come from training 185 small networks (102 MLPs, 83 Transformers) and asking which number at
initialisation tells those that fail; CALIBRATED ones from doing the same with the built-in variants, more of them and
for longer (benchmarks/calibration); JUDGED levels are the range that practitioners call normal.
"""

from __future__ import annotations

from gradscope.rules.kind import Threshold

MEASURED = "calibration on 102 MLPs and 83 Transformers, each trained under SGD or Adam"
CALIBRATED = "calibration on built-in variants, each trained to the end (benchmarks/calibration)"
JUDGED = "judgement: the range that is normal in practice"

# Under Adam, which bounds every step, what counts is what lasts: the milder of D at the first and the last watched
# step. SGD feels the worse one at once. Of 29 networks that lost 6.2 decades and more under Adam, absolutely and
# relative to their activations, none trained, of 15 between 3.5 and 6.2 twelve did; of those that lasted beyond +3.5
# none. Of those beyond -2 under SGD 2 of 60 trained.
FAIL_DECADES = Threshold(
    "decades", 3.5, "decades (log10) between the ends of the stream", CALIBRATED,
    "Beyond it half of the networks that are trained under Adam fail or learn very slowly, under SGD all.",
)
FATAL_DECADES = Threshold(
    "fatal_decades", 6.2, "decades (log10) between the ends of the stream, lasting, absolute and relative to its size",
    CALIBRATED,
    "Adam rescales every tensor: of 29 networks beyond it none trained, of 15 between 3.5 and 6.2 twelve did.",
)
WARN_DECADES = Threshold(
    "warn_decades", 2.5, "decades (log10) between the ends of the stream", CALIBRATED,
    "Between 2.5 and 3.5 decades about 1 network in 3 failed under Adam; between 1 and 2 it was 1 in 17.",
)
FAIL_DECADES_SGD = Threshold(
    "sgd_decades", 2.0, "decades (log10) between the ends of the stream, under plain SGD", CALIBRATED,
    "SGD does not rescale: of 60 networks beyond 2 decades two trained.",
)
WARN_DECADES_SGD = Threshold(
    "sgd_warn_decades", 1.5, "decades (log10) between the ends of the stream, under plain SGD", MEASURED,
    "The best single cut for SGD: it finds 78 % of the failures at 11 % false alarms.",
)
FAIL_GROWTH = Threshold(
    "decades", 3.0, "decades (log10) beyond the stream law between the ends of the stream, lasting", CALIBRATED,
    "No network whose growth lasted beyond 3.5 decades trained under Adam, and 2 of 5 between 3 and 3.5.",
)
FAIL_GROWTH_SGD = Threshold(
    "sgd_decades", 3.5, "decades (log10) beyond the stream law between the ends of the stream, under SGD", CALIBRATED,
    "Below it those that SGD cannot train diverge within the watched steps, and the others train.",
)
WARN_GROWTH_SGD = Threshold(
    "sgd_warn_decades", 2.0, "decades (log10) beyond the stream law between the ends of the stream, under SGD",
    CALIBRATED, "Between 1 and 2 decades 29 of 35 networks trained under SGD, between 2 and 3 half of them.",
)

FAIL_DECADES_COLLAPSED = Threshold(
    "collapsed_decades",
    1.5,
    "decades (log10) between the ends of the stream, where tokens have collapsed",
    MEASURED,
    "No Transformer that trained had lost 1.5 decades, and 39 % of those that did not had.",
)

FAIL_ANISOTROPY = Threshold(
    "kappa", 80.0, "number of Jacobian directions per direction that carries gradient, where tokens are alike",
    CALIBRATED, "Transformers that trained had at most 64 with tokens alike, those that failed 78 and more.",
)
FAIL_ANISOTROPY_SGD = Threshold(
    "sgd_kappa", 45.0, "number of Jacobian directions per direction that carries gradient, under plain SGD", CALIBRATED,
    "SGD cannot rescale what is left: ReLU networks at 50 with samples alike trained under Adam and not under SGD.",
)
WARN_ANISOTROPY = Threshold(
    "warn_kappa", 40.0, "number of Jacobian directions per direction that carries gradient", MEASURED,
    "|D| > 3.5 or kappa_J > 40 found 91 % of the failing networks at 8 % false alarms: alone it warns.",
)
FAIL_ANISOTROPY_WITH_DECADES = Threshold(
    "kappa_with_decades", 60.0, "number of Jacobian directions per direction that carries gradient, where the gradient "
    "changes by a decade as well", CALIBRATED,
    "Between 40 and 60 as many networks with a decade of change trained as failed, beyond it one in eight trained.",
)
ANISOTROPY_WITH_DECADES = Threshold(
    "decades", 1.5, "decades (log10) of |D| along the depth, beyond the stream law", CALIBRATED,
    "Under Adam networks with few directions still trained with 1 to 1.4 decades, and none with 1.6 and more.",
)
ANISOTROPY_WITH_DECADES_SGD = Threshold(
    "sgd_decades", 1.0, "decades (log10) of |D| along the depth, beyond the stream law, under plain SGD", CALIBRATED,
    "A tenth of the gradient, or ten times as much, over the whole depth: what trains under SGD keeps within it.",
)

FAIL_TOKEN_COSINE = Threshold(
    "token_cosine", 0.99, "mean cosine between the tokens of a sequence", MEASURED,
    "Tokens that are this alike cannot be told apart by the head; no residual network that trained reached it.",
)
WARN_TOKEN_COSINE = Threshold(
    "warn_token_cosine", 0.9, "mean cosine between the tokens of a sequence", MEASURED,
    "Above it at the first step only failing networks were found, and 65 % of them.",
)
FAIL_LATER_TOKEN_COSINE = Threshold(
    "later_token_cosine", 0.998, "mean cosine between the tokens of a sequence after some steps", CALIBRATED,
    "Post-LN Transformers that trained passed 0.996 on their way, those that failed reached 0.9995.",
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
    "decades", 17.0, "decades (log10) between the first and the last time step", CALIBRATED,
    "Tanh networks that had to recall their first input learnt it at 16.7 decades under Adam, and under SGD as well.",
)
FATAL_TIME_DECADES = Threshold(
    "fatal_decades", 17.5, "decades (log10) between the first and the last time step", CALIBRATED,
    "Tanh networks that had to recall their first input still learnt it at 16.7 decades under Adam.",
)
WARN_TIME_DECADES = Threshold(
    "warn_decades", 7.2, "decades (log10) between the first and the last time step", "float32: 24 bits, 2^-24",
    "What the first step adds to the shared weight's gradient is then below the rounding of what the last one adds.",
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

FEW_SMALL = Threshold(
    "fraction", 0.05, "fraction of non-zero gradient elements that round to zero", JUDGED,
    "A twentieth of the gradient would be gone; one in a hundred is harmless.",
)
WARN_ABSORPTION = Threshold(
    "fraction", 0.2, "fraction of elements of a residual sum that the branch does not change", JUDGED,
    "bfloat16 absorbs 17 % at a branch of 1 % of the stream: beyond it a fifth of the branch does nothing.",
)

WARN_BRANCH = Threshold(
    "forward_ratio", 10.0, "norm of the branch over norm of the skip, as added", JUDGED,
    "Above 10 the stream keeps less than 1 % of its energy: the skip no longer carries anything.",
)
IDLE_BRANCH = Threshold(
    "forward_ratio", 0.01, "norm of the branch over norm of the skip, as added", JUDGED,
    "A branch below 1 % of the stream changes the next block's input by less than dropout does.",
)
CANCELLING_COSINE = Threshold(
    "cosine", -0.5, "cosine between the gradients through branch and skip", JUDGED,
    "In every healthy wiring measured it is 0 within 0.02; -0.5 at more than one step is a systematic opposition.",
)
CANCELLED_SHARE = Threshold(
    "remaining", 0.5, "fraction of the skip's gradient that is left after the branch is added", JUDGED,
    "Below one half the block takes away more gradient than it passes on.",
)
SKIP_DECADES = Threshold(
    "decades", 1.0, "decades (log10) of all constant skip factors multiplied", JUDGED,
    "A factor of ten over the whole depth is what learning rates can absorb.",
)
PLAIN_DEPTH = Threshold(
    "blocks", 30.0, "blocks without a single skip", JUDGED,
    "Plain stacks of 20 to 24 layers were trained with a good initialisation, those of 60 and more only by exception.",
)
ATTENTION_DEPTH = Threshold(
    "attentions", 4.0, "attention layers without a single skip", MEASURED,
    "A Transformer without skips already failed to learn a copying task at 4 layers.",
)
SAMPLE_COSINE = Threshold(
    "sample_cosine", 0.9999, "mean cosine between the samples of a batch", JUDGED,
    "A weak predictor, since a common offset raises it too: only near-identity is worth a remark.",
)
SATURATED = Threshold(
    "fraction", 0.5, "fraction of values whose derivative is below 2 % of its maximum", JUDGED,
    "Half of the gradient is blocked in this layer.",
)
DEAD_UNITS = Threshold(
    "fraction", 0.5, "fraction of units that are off for every sample", "SageMaker Debugger: rule for dead ReLUs",
    "A tenth of dead units is normal in a He-initialised ReLU network; beyond half the layer has lost its width.",
)
ENTROPY = Threshold(
    "entropy", 0.1, "mean entropy of attention rows over log(number of visible keys)", JUDGED,
    "1 is uniform; below 0.1 each query looks at one key and passes no gradient to the logits.",
)
LOGIT = Threshold(
    "logit", 50.0, "largest attention logit before the softmax", JUDGED,
    "A lead of 50 is a factor of e^50: the softmax is a hard choice in every precision.",
)
PEAK = Threshold(
    "peak", 100.0, "largest absolute value over root mean square of a station", JUDGED,
    "A Gaussian stream of a million values peaks at 5; 100 means that single channels carry it.",
)
PROBABILITIES = Threshold(
    "fraction", 0.99, "fraction of rows given to the loss that are probabilities", JUDGED,
    "Rows that are non-negative and sum to one are no accident; one in a hundred may be rounding.",
)
FEW_SAMPLES = Threshold(
    "samples", 8.0, "values per normalisation statistic", "measured error of the standard deviation",
    "At 8 values a standard deviation is 26 % off, at 4 39 %, at 2 61 %.",
)
LARGE_UPDATE = Threshold(
    "update_to_weight", 0.1, "norm of one update over norm of the weights", JUDGED,
    "A tenth of the weights replaced in one step; 1e-4 to 1e-2 is normal.",
)
REPLACING_UPDATE = Threshold(
    "first_update_to_weight", 1.0, "norm of the first update over norm of the weights, where the loss then rises",
    CALIBRATED, "Of 38 networks that passed this level or the later one, and whose loss rose, none trained; of 5 whose "
    "loss did not rise two did (benchmarks/calibration/rates.csv).",
)
LATER_UPDATE = Threshold(
    "later_update_to_weight", 0.5, "norm of a later update over norm of the weights, where the loss has risen",
    CALIBRATED, "Adam's first step is a full one whatever the gradient; a Transformer still trained at 0.29 later on.",
)
RISING_LOSS = Threshold(
    "loss_ratio", 1.1, "loss at a later watched step over loss at the first", JUDGED,
    "A tenth is more than batches of one size differ by at the start.",
)
SMALL_UPDATE = Threshold(
    "update_to_weight", 1e-6, "norm of one update over norm of the weights", JUDGED,
    "A million steps to change the weights; 1e-4 to 1e-2 is normal.",
)
FOLLOWED_GRADIENT = Threshold(
    "followed_share", 0.02, "fraction of the squared norm of all gradients, at weights that the optimizer changes",
    CALIBRATED, "Of 8 networks whose optimizer held less than 2 % of the gradient and not the last layer none began to "
    "learn, of 92 others 52 trained within 300 steps (benchmarks/calibration/parts.csv).",
)
LOUD_LOGITS = Threshold(
    "logits_rms", 1e3, "root mean square of the logits, at the first and the last watched step", CALIBRATED,
    "Of 15 networks whose logits were beyond it after ten steps of Adam two trained, both nearly linear.",
)
FAINT_LEVERAGE = Threshold(
    "leverage_log10", -2.4, "log10 of how far doubling the last block's output would move the logits", CALIBRATED,
    "Under SGD no network below it trained, at -2.3 one did after 420 steps; under Adam half did, late.",
)
LOGIT_SPREAD = Threshold(
    "logit_spread", 1e-3, "root mean square difference between the logits of samples", CALIBRATED,
    "A thousandth moves the loss in its seventh digit: under SGD none below it trained, under Adam some did, late.",
)
FAR_TARGETS = Threshold(
    "ratio", 100.0, "norm of the targets over norm of the outputs", CALIBRATED,
    "Under Adam targets of 100 times the size were learnt after 263 steps, or not at all where they lie around 30.",
)
DAMPING = Threshold(
    "epsilons", 10.0, "gradient root mean square in units of Adam's epsilon (1e-8)", "law: |g| / (|g| + epsilon)",
    "At 10 epsilons the step is 9 % too short, at 1 half of it is gone.",
)
DAMPED_SHARE = Threshold(
    "share", 0.1, "fraction of weight matrices whose steps are damped", JUDGED,
    "One tensor with a small gradient is common, a tenth of all is a setting.",
)
STANDSTILL = Threshold(
    "standstill", 0.03, "fraction of Adam's step that the least damped weight matrix still takes", CALIBRATED,
    "A loss times 1e-9 left 0.6 % and did not train; a network with 4 % learnt, slowly.",
)
STREAM_ERROR = Threshold(
    "relative_error", 0.02, "relative rounding error of the stream at its end", "measured: 0.0012 "
    "sqrt(additions) in bfloat16",
    "Two per cent of noise on the stream is what 280 bfloat16 additions make.",
)
FLOOR_SHARE = Threshold(
    "floor_fraction", 0.05, "fraction of non-zero float16 gradients in the lowest four octaves", JUDGED,
    "What lies just above the floor continues below it: about as much was rounded to zero.",
)
FAINT_SHARE = Threshold(
    "share", 0.5, "fraction of all trainable elements that stay all but zero", JUDGED,
    "Half of the model: what is left trains on nothing but what the faint half lets through.",
)
WARN_FAINT_SHARE = Threshold(
    "warn_share", 0.05, "fraction of the elements of weight matrices", JUDGED,
    "A twentieth of the model is a part of its own, such as one of several encoders.",
)
ALIKE_UNITS = Threshold(
    "unit_spread", 1e-3, "difference between neighbouring rows over their size", JUDGED,
    "Equal up to the rounding of sums in another order; rows drawn at random differ by 1.4.",
)

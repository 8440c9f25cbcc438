"""The tables of a recording and what their columns hold.

Each table is a dict of equally long columns. A cell that was not measured is None.
"""

from __future__ import annotations

from typing import Any

TABLES: dict[str, tuple[str, ...]] = {
    # Static structure -------------------------------------------------------------------------------------------
    # One row per module. `role`: attention, norm, linear, conv, embedding, activation, recurrent, dropout, container
    # or other. `file`/`line`: where its class is defined in the user's code (relative), None for library classes.
    "modules": ("name", "type", "role", "num_parameters", "called", "file", "line"),
    # One row per parameter. `role`: query, key, value, query_key_value, output (of an attention) or None.
    # `shared_with`: the first name of the same tensor, None when it is the first. `takes_part`: it was reached by
    # the backward of the first watched step (None when that is unknown, as under optimizers that clear gradients).
    "parameters": ("name", "module", "shape", "dtype", "num_elements", "requires_grad", "shared_with", "role",
                   "takes_part"),
    # One row per (module, call) in the order in which the calls ended. `parent` is a row of this table.
    "calls": ("module", "call", "parent", "shape", "dtype"),
    # One row per residual addition (and concatenation) executed in one forward, in execution order. `call` is a row
    # of `calls` still open when the addition ran (whose addition it is). `kind`: identity, scaled, gated, projection
    # or concat. `counted` is False for concat. `placement`: pre, post, sandwich or none. `branches`/`skips`: module
    # names. `skip_scale`/`branch_scale`: constants, None when learnt, input-dependent or unknown. `group`: additions
    # with the same number form one parallel group. `depth` is its row of `stream`, None when it is not on it.
    "sites": ("name", "module", "call", "op", "kind", "counted", "placement", "branches", "skips", "skip_scale",
              "branch_scale", "group", "recurrent", "depth", "file", "line"),
    # The backbone: the ordered stations of the stream from input to loss. `kind`: start, addition, block or end.
    # `block` names the repeated block the station closes or lies in. `call` and `site` are rows of those tables.
    "stream": ("name", "kind", "block", "module", "call", "site"),
    # Measured per watched step ----------------------------------------------------------------------------------
    "steps": ("step", "loss", "grad_norm", "loss_scale", "lr"),
    # grad_rms and forward_rms follow from num_elements. `forward_absmax` and `grad_absmax` may be None (not taken).
    "call_stats": ("step", "call", "num_elements", "forward_norm", "grad_norm", "forward_absmax", "grad_absmax"),
    "parameter_stats": ("step", "parameter", "grad_norm", "weight_norm", "update_norm"),
    # grad_norm: at the sum. skip_grad_norm / branch_grad_norm: what reaches the stream x through either, exactly.
    # cosine: between those two gradients. forward ratio = branch_norm / skip_norm (as added, after scaling).
    "site_stats": ("step", "site", "skip_norm", "branch_norm", "out_norm", "grad_norm", "skip_grad_norm",
                   "branch_grad_norm", "cosine"),
    "stream_stats": ("step", "station", "num_elements", "forward_norm", "grad_norm"),
    # Everything else that is one number of one thing at one step; OBSERVATIONS says what each metric is.
    # `module` is a module, parameter or site name ("" for the whole model); `call` its call, 0 by default.
    "observations": ("step", "metric", "module", "call", "value"),
    # Gradient magnitudes of at most 1024 elements of each, evenly spread: counts[i] of them have
    # floor(log2|g|) == first_log2 + i; `zeros` are exactly zero. `kind`: activation or parameter.
    "histograms": ("step", "name", "kind", "first_log2", "counts", "zeros", "nonfinite"),
    # Things that happened at a place. `kind`: nonfinite_forward or nonfinite_backward (where a NaN or infinity is
    # born), cut (where gradients end), zero (where all of one becomes zero), rescaled or skipped (by a GradScaler),
    # kept (gradients of an earlier step were still there at the backward pass), stale (the graph of an earlier step was
    # kept in the attribute that `detail` names, and broke a backward pass). `call` is OUTSIDE_CALL in the loss.
    "events": ("step", "kind", "module", "call", "op", "file", "line", "detail"),
    # What was not measured, and why.
    "confessions": ("what", "why"),
}

OBSERVATIONS: dict[str, str] = {
    "jacobian_anisotropy": "kappa_J = N / participation ratio of the squared singular values, stream end to start",
    "token_cosine": "mean off-diagonal cosine between the tokens of a sequence at a station",
    "sample_cosine": "mean off-diagonal cosine between the samples of the batch at a station",
    "size_forgotten": "1 at the end of the stream where all that reads it divides by its size, as a last norm does",
    "dead_fraction": "fraction of units of an activation that are off for every sample (ReLU family)",
    "saturated_fraction": "fraction of activation values whose derivative is below 2 % of its maximum",
    "attention_entropy": "mean entropy of attention rows divided by log(number of keys)",
    "attention_logit_max": "largest attention logit before the softmax",
    "activation_peak": "largest absolute value of a stream station divided by its root mean square",
    "start_rows_share": "norm of the gradient at the stream's start with faint rows weighted by size, over the whole",
    "grad_zeros": "fraction of gradient elements that are exactly zero",
    "underflow_fp16": "fraction of non-zero gradient elements below 2^-25 at the loss scale used",
    "underflow_e5m2": "fraction of non-zero gradient elements below 2^-17",
    "underflow_e4m3": "fraction of non-zero gradient elements below 2^-10",
    "overflow_fp16": "fraction of gradient elements above 65504 at the loss scale used",
    "grad_log2_max": "log2 of the largest absolute gradient element",
    "absorption_bf16": "fraction of elements of a residual sum that bfloat16 addition leaves unchanged",
    "absorption_fp16": "fraction of elements of a residual sum that float16 addition leaves unchanged",
    "absorption": "the same in the dtype in which the sum was really taken",
    "attention_softmax_axis": "axis of a softmax over a product of queries and keys, where it is in front of both",
    "query_grad_norm": "norm of the gradient of the query's part of a weight that serves queries, keys and values",
    "key_grad_norm": "the same of the key's part",
    "value_grad_norm": "the same of the value's part",
    "batch_samples": "number of values each normalisation statistic is taken over",
    "unit_spread": "how far neighbouring rows of a weight that starts with equal rows, or of its gradient, differ",
    "probabilities_as_logits": "fraction of rows handed to a (log-)softmax or logit loss that are probabilities",
    "unnormalised_log_probabilities": "fraction of rows handed to nll_loss whose exponentials do not sum to one",
    "logits_rms": "root mean square of the logits a cross-entropy gets, those that are masked left out",
    "logit_spread": "root mean square difference of the logits a cross-entropy gets between samples (or tokens)",
    "loss_classes": "number of classes a cross-entropy is taken over (over one class it is always 0)",
    "target_to_output": "norm of the targets over that of the outputs, as a loss that measures a distance gets them",
    "couples_samples": "share of one sample's gradient that reaches other samples; 1 for a norm over the batch",
    "jacobian_passes": "backward passes, on a part of the batch, that the Jacobian anisotropy took: its cost",
    "jacobian_error": "standard error of the Jacobian anisotropy beyond 1, relative to it",
    "jacobian_gain_log10": "log10 of the mean squared singular value of the same Jacobian",
    "amplification": "relative output change under 1 % weight noise, divided by 1 % (Admin, Liu 2020)",
    "shattering_cosine": "cosine of input gradients at x and at x + 5 % noise",
    "gradient_cosine": "cosine of the gradients of two disjoint halves of the batch",
    "decades_of_seed": "D of another initialisation of the same network, in decades; `call` counts the initialisations",
    "decades_per_block_of_seed": "the mean of its D per block, in decades",
}

OUTSIDE_CALL = -1
"""The `call` of an event outside of every module call: in what is computed from the model's output."""

LEFT_OUT = "…"
"""How the `detail` of an event ends when it is about more parameters than it names."""

BY_CONSTANT = "mul by a constant"
"""The `op` of an event at a product whose other factor is no weight and not made from one."""

CUTS_UNSEEN = "where gradients are cut"
"""The `what` of the confession that cuts were looked for and could not be seen."""

Columns = dict[str, list[Any]]


def empty_table(name: str) -> Columns:
    """Make an empty table with the columns that TABLES declares for it."""
    return {column: [] for column in TABLES[name]}

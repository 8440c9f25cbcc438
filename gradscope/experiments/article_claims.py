"""Every claim of the two articles: which experiment runs it, what an earlier study said, or why it cannot be run.

The earlier study measured the same claims with code of its own, before any of the experiments existed. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradscope.experiments.result import ClaimVerdict, ExperimentResult

T, F, D = "holds", "does not hold", "depends"


@dataclass(frozen=True)
class ArticleClaim:
    """One claim.

    Attributes:
        text: The claim, shortened.
        studied: What the earlier study said; empty where it found the claim beyond checking.
        experiment: Where it is run; empty where it is not.
        piece: A piece of the text of each claim there that stands for it.
        remark: Why it is not run, or why the two verdicts differ.
    """

    text: str
    studied: ClaimVerdict | str
    experiment: str = ""
    piece: tuple[str, ...] = ()
    remark: str = ""

    def verdict(self, results: Mapping[str, ExperimentResult]) -> ClaimVerdict | None:
        """Return what the experiment says: one verdict where its claims agree, else that it depends; None if not run.

        Raises:
            LookupError: The experiment does not judge such a claim, or judges several.
        """
        if not self.experiment or self.experiment not in results:
            return None
        found = set()
        for piece in self.piece:
            matching = [claim for claim in results[self.experiment].claims if piece in claim.text]
            if len(matching) != 1:
                raise LookupError(f"{len(matching)} claims of '{self.experiment}' say '{piece}'")
            found.add(matching[0].verdict)
        return found.pop() if len(found) == 1 else "depends"


def _run(text: str, studied: str, experiment: str, *piece: str, remark: str = "") -> ArticleClaim:
    return ArticleClaim(text, studied, experiment, piece, remark)


def _not_run(text: str, studied: str, remark: str) -> ArticleClaim:
    return ArticleClaim(text, studied, remark=remark)


_HISTORY = "history, not an experiment"
_PRACTICE = "about what people use, not an experiment"

GRADIENTS_AND_DEPTH = (
    _run("A product of factors of 0.9 vanishes, of 1.1 explodes.", T, "residual", "Factors below one"),
    _run("Before ResNet more than 20 layers could hardly be trained.", D, "depth", "more than 20 layers"),
    _run("Information degrades layer by layer.", T, "residual", "degrades from layer to layer"),
    _run("With a residual the gradient is at least 1.", D, "paths", "at least its value 1"),
    _run("The output is the input plus all corrections.", D, "paths", "sum of all layers"),
    _run("Gradients do not disappear as depth grows.", D, "residual", "keeps its size however deep"),
    _run("Skips make 2^n paths.", T, "paths", "eight paths"),
    _run(
        "18 to 152 layers train with shortcuts; from 50 on not without.", T, "depth", "18 to 152 layers train",
        remark="the direction holds; the paper that the article names has no such table",
    ),
    _run(
        "Plain networks fail because gradients vanish.", D, "depth", "gradient vanishes on its way",
        remark="with BatchNorm they explode; without it they may vanish",
    ),
    _not_run("GPT-3 has 96 layers, PaLM 118.", T, _HISTORY),
    _not_run("GPT-4 has more than 120 layers and uses Pre-LN.", "", "never published"),
    _run("Without residuals such depth is impossible.", D, "depth", "as deep as large language models"),
    _run("Residuals cure vanishing as a highway does.", D, "depth", "keeps the gradient from decaying"),
    _run("Deeper plain networks have the higher training error.", T, "depth", "higher training error"),
    _not_run("ResNet won ImageNet 2015 at 3.57 %.", T, _HISTORY),
    _run("The printed ResidualBlock is the ResNet block.", F, "depth", "is the residual networks' block"),
    _run("The original block applies ReLU, then adds.", F, "depth", "applies ReLU to the branch"),
    _not_run("Depth went from tens to over a thousand layers.", T, _HISTORY),
    _run(
        "Without residuals the loss does not converge; with them accuracy passes 85 %.", T, "residual",
        "does not converge and accuracy", "reaches 85 %",
    ),
    _run("Without residuals the loss oscillates or diverges.", F, "residual", "swings violently"),
    _run("Without residuals the first layers' gradients vanish.", D, "residual", "first layers vanish"),
    _run("Without residuals the last layers' gradients exceed 1000.", F, "residual", "exceed 1000"),
    _run("Residuals are required from about ten layers.", F, "residual", "From about ten layers"),
)  # fmt: skip

NORMS = (
    _run("Dimensions with large values get large gradients.", T, "layernorm", "large values get large gradients"),
    _run("e^100 overflows in softmax and sigmoid.", D, "precision", "e^100"),
    _run("LayerNorm is its formula, with the biased variance.", T, "layernorm", "is (x - mu) / sqrt"),
    _run("The tutorial's LayerNorm class computes it.", F, "layernorm", "class computes its formula"),
    _run("The article's LayerNorm class computes it.", T, "layernorm", "unbiased=False"),
    _run("The worked example.", T, "layernorm", "[100, 0.1, 50, 200]"),
    _run("The gradients of gamma and beta.", T, "layernorm", "gradient of gamma"),
    _run("gamma = sigma, beta = mu restores the input.", F, "layernorm", "restores its input"),
    _run("LayerNorm's parameters are below 0.05 %.", T, "layernorm", "0.05 %"),
    _run(
        "BatchNorm and LayerNorm: axes, and what depends on the batch.", T, "norm-axis",
        "each feature over the samples", "the sample alone", "poor in small batches",
    ),
    _run("BatchNorm cannot work with a batch of one.", D, "norm-axis", "batch of one"),
    _run(
        "GroupNorm for detection with small batches.", T, "norm-axis", "GroupNorm suits",
        remark="its independence of the batch is measured, detection is not",
    ),
    _not_run("Speech and reinforcement learning use LayerNorm.", D, _PRACTICE),
    _not_run("Transformers train with batches of 2 to 32.", F, _PRACTICE),
    _run("LayerNorm is the same in training and inference.", T, "norm-axis", "training and evaluation", "padding"),
    _run("An epsilon from 1e-5 to 1e-12.", D, "precision", "epsilon"),
    _run("RMSNorm drops the mean.", T, "norm-cost", "leaves out the centring"),
    _run(
        "RMSNorm is about 20 % cheaper.", D, "norm-cost", "about 20 % less",
        remark="in arithmetic; in time only where torch has a fused kernel for it",
    ),
    _run("Norms keep the gradient's scale.", D, "norm-axis", "scale from layer to layer"),
)  # fmt: skip

PLACEMENT_INIT_PRECISION = (
    _run("Deep Post-LN's gradients explode.", F, "placement", "gradients tend to explode"),
    _run("... because the sum grows before the norm.", F, "placement", "amplified because values grow"),
    _not_run("Post-LN suits fewer than 12, or fewer than 24, layers.", F, "the article says both"),
    _run("Post-LN is closer to ResNet's theory.", D, "placement", "closer to the residual networks' design"),
    _run(
        "Pre-LN trains 100 layers and more, without warmup, at any learning rate.", T, "placement",
        "trains networks of 100 layers", "needs no warmup and is insensitive",
    ),
    _run("Pre-LN's activations do not grow with depth.", D, "placement", "do not grow with depth"),
    _not_run("Pre-LN is slightly worse in quality.", D, "needs full-size training runs"),
    _not_run("All new large models are Pre-LN.", D, _PRACTICE),
    _run("The printed Pre-LN code is complete.", D, "placement", "as printed is complete"),
    _run("Zero the last layer of the branch.", D, "init", "makes the block the identity"),
    _run("Keep the main path's variance stable.", T, "init", "variance of the main path"),
    _run("Residual additions in float32.", D, "precision", "kept in float32"),
    _run("LayerNorm always in float32.", T, "precision", "computed in float32"),
    _run("DeepNorm is x = alpha x + F(x), verified at 280 layers.", F, "init", "DeepNorm is x = alpha x"),
    _run(
        "ReZero learns faster early in training.", T, "init", "converges faster early",
        remark="the study quotes the paper's 12 layers on text; on this task it beats Post-LN and not Pre-LN",
    ),
    _run("Post-LN to Pre-LN made training five times more stable.", D, "placement", "five times more stable"),
    _run("The printed hook code monitors the gradient flow.", D, "hooks", "register_full_backward_hook"),
    _run("Watch the gradient of the residual path against the main path.", T, "hooks", "told apart"),
    _not_run("ResNet 2015, LayerNorm 2016, Pre-LN 2018; AlphaFold uses both.", T, _HISTORY),
    _not_run("The anecdote of a model of 100 billion parameters.", "", "no setting is given"),
)  # fmt: skip

ARTICLE_CLAIMS: tuple[ArticleClaim, ...] = (*GRADIENTS_AND_DEPTH, *NORMS, *PLACEMENT_INIT_PRECISION)

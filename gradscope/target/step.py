"""Find what a step of a built model needs: batches, the way they reach the model, and a loss."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

from torch import nn

from gradscope.errors import InputsError, LossError, ModelError
from gradscope.target.blame import raised
from gradscope.target.infer.scratch import scratch_copy
from gradscope.target.infer.search import infer_inputs
from gradscope.target.infer.trial import Forward, Outcome, attempt
from gradscope.target.inference_only import refuse
from gradscope.target.inputs.arrange import Arrangement, unwrapped
from gradscope.target.inputs.batches import Batches
from gradscope.target.inputs.find import FoundInputs, offered_inputs, written_inputs
from gradscope.target.losses import find as losses
from gradscope.target.losses.adapt import adapted
from gradscope.target.losses.auxiliary import completed
from gradscope.target.losses.find import FoundLoss
from gradscope.target.losses.later import decided_later
from gradscope.target.losses.own import find_own, has_training_step, own_loss, run_training_step
from gradscope.target.options import Options
from gradscope.target.sandbox import surroundings
from gradscope.target.source import Built, Source
from gradscope.target.subject import Batch, Origin

OVERRIDE = "Give them with --inputs file.py:function, or write them out: --input 8x128:int64:0..50257."


class Step:
    """The search for inputs and loss of one built model.

    Trials run on a scratch copy; `built.model` itself is never called.
    """

    def __init__(self, source: Source, built: Built, options: Options) -> None:
        self.source, self.built, self.options = source, built, options
        self.notes: tuple[str, ...] = ()
        self._outcome: Outcome | None = None

    @cached_property
    def inputs(self) -> FoundInputs:
        """The batches, from the first place that has some.

        Raises:
            InputsError: If there are none, with what was tried.
        """
        if self.options.input_spec and not self.options.inputs:
            return written_inputs(self.built, self.options.input_spec)
        if found := offered_inputs(self.source, self.built, self.options.inputs):
            self._outcome = self.built.outcome if not self.options.inputs else None
            return found
        if not self.options.allow_synthetic:
            raise InputsError(
                f"{self.source.label} comes without inputs.", rule="Making them up was ruled out.", hint=OVERRIDE
            )
        return self._from_library() or self._inferred()

    def forward_and_loss(self) -> tuple[Forward | None, FoundLoss]:
        """Return how a batch reaches the model, and its loss, from the first place that has one.

        Raises:
            LossError: If there is none.
            ModelError: If the model's forward raises on its batch.
        """
        arrangement = self.inputs.arrangement
        if found := self._stated_loss():
            return arrangement.forward, found
        if has_training_step(self.built.model) and not self.inputs.origin.synthetic:
            outcome = self._try(run_training_step)
            if outcome is not None and outcome.worked and find_own(outcome.output):
                return run_training_step, FoundLoss(own_loss, Origin("training_step() of the model"))
        return arrangement.forward, self._loss_by_output()

    def _stated_loss(self) -> FoundLoss | None:
        targets = self.inputs.arrangement.targets
        if self.options.loss:
            return losses.given_loss(self.options.loss, targets)
        if self.built.loss is not None:
            return FoundLoss(
                adapted(self.built.loss.value, targets, self.built.loss.origin.text), self.built.loss.origin
            )
        return losses.function_named_loss(self.source.namespace, self.source.where, targets)

    def _loss_by_output(self) -> FoundLoss:
        """Look at what one forward of a scratch copy returns."""
        refuse(type(unwrapped(self.built.model)), self.source.label)
        outcome = self._outcome or self._try(self.inputs.arrangement.forward)
        if outcome is None:
            return decided_later(self.built.model, self.inputs.arrangement.targets)
        if outcome.error is not None:
            raise raised(outcome.error, f"The forward of {self.source.label}", ModelError) from outcome.error
        output, batch, targets = outcome.output, self.inputs.first, self.inputs.arrangement.targets
        model = outcome.model or self.built.model

        def main() -> FoundLoss | None:
            stated = losses.named_criterion(self.source.namespace, self.source.where, targets)
            found = stated or losses.chosen(output, batch, targets)
            return found or (losses.made_up(output, batch, model) if self.options.allow_synthetic else None)

        found = completed(losses.own(output), main, output, model)
        if found is None:
            raise LossError(
                f"{self.source.label} comes without a loss.",
                rule="Making one up was ruled out.",
                hint="Give --loss file.py:function.",
            )
        return found

    def _from_library(self) -> FoundInputs | None:
        """Take the batch that the library's own knowledge of the model leads to."""
        if self.source.library_inputs is None:
            return None
        scratch = self._scratch()

        def trial(batch: Batch) -> Outcome | None:
            if scratch is None:
                return None
            with surroundings(self.source.folder):
                return attempt(scratch, _copied(batch), self.built.forward)

        found = self.source.library_inputs(self.built.model, trial)
        if found is None:
            return None
        offer, self._outcome = found
        return FoundInputs(Batches(offer.value), offer.value, offer.origin, Arrangement(self.built.forward, None))

    def _inferred(self) -> FoundInputs:
        refuse(type(unwrapped(self.built.model)), self.source.label)
        scratch = self._scratch()
        if scratch is None:
            raise InputsError(
                f"{self.source.label} comes without inputs, and cannot be copied to try some.", hint=OVERRIDE
            )
        with surroundings(self.source.folder):
            inferred = infer_inputs(scratch, self._scratch, self.source.label)
        self._outcome = inferred.outcome
        return FoundInputs(Batches(inferred.batch), inferred.batch, inferred.origin, Arrangement(None, None))

    def _try(self, forward: Forward | None, batch: Any = None) -> Outcome | None:
        """Run one forward on a scratch copy; None where no copy can be made."""
        scratch = self._scratch()
        if scratch is None:
            return None
        with surroundings(self.source.folder):
            return attempt(scratch, _copied(self.inputs.first if batch is None else batch), forward)

    def _scratch(self) -> nn.Module | None:
        again = (lambda: self.source.build().model) if self.source.rebuilds else None
        with surroundings(self.source.folder):
            return scratch_copy(self.built.model, again)


def _copied(batch: Any) -> Any:
    """Copy a batch, because a model may write into its inputs."""
    try:
        return copy.deepcopy(batch)
    except Exception:  # a batch may hold anything; one that cannot be copied is used as it is
        return batch

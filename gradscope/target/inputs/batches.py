"""One batch or many, as something that can be stepped through again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gradscope.errors import InputsError
from gradscope.target.subject import Batch

DATASET_BATCH_SIZE = 8
"""Samples per batch where the user's file offers a data set without a loader; enough for BatchNorm."""


class Batches:
    """Batches that start anew with every ``iter()``.

    Args:
        value: One batch (tensor, tuple, list of tensors, mapping), a list of batches, a DataLoader, a Dataset or an
            iterator. What an iterator gave is kept, so that it can be given again.
        again: Makes `value` anew, for functions that return iterators.
    """

    def __init__(self, value: Any, again: Callable[[], Any] | None = None) -> None:
        self._value = _without_dataset(value)
        self._again = again
        self._kept: list[Batch] = []
        self.is_loader = not _is_one_batch(self._value)

    def __iter__(self) -> Iterator[Batch]:
        """Go through the batches from the first one."""
        if not self.is_loader:
            yield plain(self._value)
        elif not isinstance(self._value, Iterator):
            yield from map(plain, self._value)
        elif self._again is not None:
            fresh, self._value = self._value, self._again()
            yield from map(plain, fresh)
        else:
            yield from self._kept
            for batch in self._value:
                self._kept.append(plain(batch))
                yield self._kept[-1]

    def first(self, where: str) -> Batch:
        """Return the first batch without using an iterator up.

        Raises:
            InputsError: If there is none.
        """
        for batch in self:
            if isinstance(self._value, Iterator) and self._again is not None:
                self._value = self._again()
            return batch
        raise InputsError(f"{where} gave no batch at all.", rule="It should give at least one.")


def plain(batch: Any) -> Batch:
    """Return a batch with mappings as dicts and arrays as tensors, one level deep."""
    if isinstance(batch, Mapping):
        return {key: _tensor(value) for key, value in batch.items()}
    if type(batch) in (tuple, list):
        return type(batch)(_tensor(value) for value in batch)
    return _tensor(batch)


def _tensor(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufc":
        return torch.as_tensor(value)
    return value


def _is_one_batch(value: Any) -> bool:
    if isinstance(value, torch.Tensor | Mapping | str | bytes) or type(value).__module__ == "numpy":
        return True
    if isinstance(value, tuple):
        return True
    if isinstance(value, list):
        return not (value and all(isinstance(item, tuple | list | Mapping) for item in value))
    return not isinstance(value, Iterable)


def _without_dataset(value: Any) -> Any:
    if isinstance(value, Dataset) and not isinstance(value, DataLoader):
        streamed = isinstance(value, IterableDataset)
        return DataLoader(value, batch_size=DATASET_BATCH_SIZE, shuffle=False, drop_last=not streamed)
    return value

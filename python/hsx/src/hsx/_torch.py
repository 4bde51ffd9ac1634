"""Samples as tensors, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import Dataset as _MapStyle

from hsx._arena import Arena
from hsx._errors import HsxError

if TYPE_CHECKING:
    from hsx._dataset import Dataset
    from hsx._shard import Row

Tensors = dict[str, torch.Tensor]


class TorchDataset(_MapStyle[Tensors]):
    """The samples of a dataset as tensors: made by `Dataset.torch`.

    Item i, in the names of SpecForge's dumps (T tokens, A layers, hidden size H; states in the dataset's own dtype):

    - input_ids: int64 [T]
    - loss_mask: int64 [T]
    - aux_hidden_state: [T, A * H], the layers side by side in ascending order
    - hidden_state: [T, H], the final state

    The tensors own their memory. Item i is sample i of the Dataset, so that any sampler will do: DistributedSampler,
    or `Dataset.sampler`. Workers may be forked or spawned.
    """

    def __init__(
        self,
        dataset: Dataset,
        dtypes: list[str],
        layers: list[int],
        final: int | None,
        mask: bool,
        max_tokens: int | None,
    ) -> None:
        """See `Dataset.torch`. dtypes are those of the states, layers and final positions among them."""
        self._dtypes = [getattr(torch, name) for name in dtypes]
        self._dataset, self._layers, self._final, self._mask, self._max = dataset, layers, final, mask, max_tokens
        self._arena = Arena()

    def __len__(self) -> int:
        """Count the samples."""
        return len(self._dataset)

    def __getitem__(self, index: int) -> Tensors:
        """Return one sample. Raises HsxError when it has no loss mask and one is wanted."""
        row = self._dataset.row(index)
        item = {"input_ids": torch.from_numpy(row.ids[: self._max].astype(np.int64))}
        if self._mask:
            if row.mask is None:
                raise HsxError(f"sample {row.id!r} has no loss mask: with loss_mask=False there is none in any")
            item["loss_mask"] = torch.from_numpy(row.mask[: self._max].astype(np.int64))
        if self._layers:
            item["aux_hidden_state"] = self._side_by_side(row, self._layers)
        if self._final is not None:
            item["hidden_state"] = self._side_by_side(row, [self._final])
        return item

    def _side_by_side(self, row: Row, columns: list[int]) -> torch.Tensor:
        states = [row.states[i][: self._max] for i in columns]
        tokens, width = states[0].shape
        dtype = self._dtypes[columns[0]]
        out = self._arena.empty((tokens, width * len(states)), dtype)
        # NumPy has no bfloat16, and torch warns of arrays that are read-only.
        bits = out.view(torch.int16).numpy() if dtype == torch.bfloat16 else out.numpy()
        for i, state in enumerate(states):
            bits[:, i * width : (i + 1) * width] = state.view(bits.dtype)
        return out

    def collate(self, items: Sequence[Tensors]) -> Tensors:
        """Make a batch, padded with zeros on the right, in the names that SpecForge's EAGLE-3 trainer reads.

        With B samples, the longest of N tokens:

        - input_ids: int64 [B, N]
        - attention_mask: int64 [B, N], 1 for each token of a sample
        - loss_mask: int64 [B, N]; that of each sample's last token is 0, which nothing comes after
        - hidden_state: [B, N, A * H], the layers (aux_hidden_state of the items)
        - target: [B, N, H], the final state (hidden_state of the items)
        """
        lengths = [len(item["input_ids"]) for item in items]
        batch = {"input_ids": self._pad(items, "input_ids", max(lengths))}
        batch["attention_mask"] = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        if self._mask:
            batch["loss_mask"] = self._pad(items, "loss_mask", max(lengths)).clone()
            for mask, n in zip(batch["loss_mask"], lengths, strict=True):
                mask[n - 1] = 0
        if self._layers:
            batch["hidden_state"] = self._pad(items, "aux_hidden_state", max(lengths))
        if self._final is not None:
            batch["target"] = self._pad(items, "hidden_state", max(lengths))
        return batch

    def _pad(self, items: Sequence[Tensors], key: str, tokens: int) -> torch.Tensor:
        first = items[0][key]
        if len(items) == 1:
            return first[None]
        out = self._arena.empty((len(items), tokens, *first.shape[1:]), first.dtype)
        for row, item in zip(out, items, strict=True):
            n = len(item[key])
            row[:n] = item[key]
            row[n:] = 0
        return out

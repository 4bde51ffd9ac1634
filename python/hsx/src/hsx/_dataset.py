"""A dataset: a sequence of samples."""

from __future__ import annotations

import functools
import operator
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from hsx import _manifest, _selection
from hsx._digest import check_files
from hsx._errors import CorruptError, HsxError
from hsx._remote import RemotePath
from hsx._sampler import ShardSampler
from hsx._shard import Row, Shard

if TYPE_CHECKING:
    from hsx._torch import TorchDataset

Sample = dict[str, Any]
"""One sample: `id` and `source` (str), `input_ids` (int32 [T]), `loss_mask` (uint8 [T], None where the dump had none),
and an array [T, H] for each state: `P_2` for the output of layer 2, `P_-1` for that of the embedding, `block_0` for a
layer that nobody named, `final`."""

_MOST_OPEN = 128  # shards: each map holds a file descriptor, and 1024 of those is a usual limit


def open(
    path: str | os.PathLike[str],
    *,
    verify: Literal[False, "manifest", "files", "samples"] = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open the dataset in a directory. It goes on seeing the samples that it has now, whatever is added later.

    What joins or compresses shards in place, as `hsx recompress`, `hsx serve` and `hsx ingest --follow` do, takes away
    the files that it replaces: HsxError then says to open the dataset again.

    A URL, s3://bucket/prefix, is opened by fsspec, which gets the storage_options; what is read of it is fetched, into
    files without a name in the temporary directory.

    verify says what is compared with the digests that hsx wrote. All but False need the package xxhash.

    - False: nothing. Sizes, types and lengths are checked all the same.
    - "manifest": the manifest, now.
    - "files": the manifest and every byte that it lists, now.
    - "samples": the manifest now, and each sample when it is read: no changed byte is ever returned.

    Raises HsxError where there is no dataset, VersionError for a newer format, CorruptError for damage, and OSError
    where a file cannot be read.
    """
    if verify not in (False, "manifest", "files", "samples"):
        raise HsxError(f"verify is {verify!r}, want False, 'manifest', 'files' or 'samples'")
    directory = _place(path, storage_options or {})
    manifest = _manifest.read(directory, sealed=bool(verify))
    if verify == "files":
        check_files(directory, manifest.files)
    return Dataset(directory, manifest, check=verify == "samples")


def _place(path: str | os.PathLike[str], options: Mapping[str, Any]) -> Path | RemotePath:
    name = os.fspath(path)
    if "://" in name and not name.startswith("file://"):
        return RemotePath(name, options)
    if options:
        raise HsxError(f"{name} is a path and takes no storage_options")
    return Path(name.removeprefix("file://")).absolute()  # a worker may run elsewhere


class Dataset:
    """Samples in the order in which they were put, read from mapped files; made by `hsx.open`.

    Can be pickled, used by several threads, and used after a fork: maps are read-only and have no position, so a child
    goes on with those that it inherits. The files must not shrink meanwhile, which hsx never makes them do: reading
    beyond the end of a mapped file ends the process.
    """

    def __init__(self, path: Path | RemotePath, manifest: _manifest.Manifest, *, check: bool) -> None:
        """See `hsx.open`."""
        self._path, self._manifest, self._check = path, manifest, check
        self._first = [0, *accumulate(s.rows for s in manifest.shards)]
        self._shard = functools.lru_cache(maxsize=_MOST_OPEN)(self._open_shard)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the manifest said and not the maps: a spawned worker sees the same samples."""
        return functools.partial(Dataset, check=self._check), (self._path, self._manifest)

    def __repr__(self) -> str:
        """Say where the dataset is and what it holds."""
        names = " ".join(s.name for s in self._manifest.states)
        return f"<hsx.Dataset {str(self._path)!r}: {len(self)} samples of {names} [T, {self.hidden_size}]>"

    @property
    def manifest(self) -> dict[str, Any]:
        """manifest.json as it was read."""
        return self._manifest.document

    @property
    def hidden_size(self) -> int:
        """H, the width of every state."""
        return self._manifest.hidden_size

    @property
    def layers(self) -> list[int]:
        """k of every P_k that the dataset holds, ascending; -1 is the embedding. Empty when nobody named them."""
        return [s.layer for s in self._manifest.states if s.layer is not None]

    @property
    def final_norm(self) -> str | None:
        """The final state is before the last norm ("pre"), after it ("post"), or "unknown". None: there is none."""
        return next((s.norm for s in self._manifest.states if s.norm is not None), None)

    def __len__(self) -> int:
        """Count the samples."""
        return self._first[-1]

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        """Return one sample, or a list of them. Nothing is copied: the arrays are read-only views of mapped files.

        States of bfloat16 are arrays of ml_dtypes.bfloat16 where that package is installed, of uint16 otherwise.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = self.row(index)
        sample: Sample = {"id": row.id, "source": row.source, "input_ids": row.ids, "loss_mask": row.mask}
        for state, array in zip(self._manifest.states, row.states, strict=True):
            sample[state.name] = array.view(_bfloat16()) if state.dtype == "bfloat16" else array
        return sample

    def __iter__(self) -> Iterator[Sample]:
        """Yield every sample in order."""
        return (self[i] for i in range(len(self)))

    def row(self, index: int) -> Row:
        """Return a sample as the shard holds it: states in column order, bfloat16 as uint16."""
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        i %= len(self)
        k = bisect_right(self._first, i) - 1
        return self._shard(k).row(i - self._first[k])

    def _open_shard(self, k: int) -> Shard:
        try:
            return Shard(self._path, self._manifest, k, check=self._check)
        except CorruptError as e:
            shard = self._manifest.shards[k]
            if shard in _manifest.read(self._path, sealed=False).shards:
                raise
            raise HsxError(f"{shard.file} was replaced since the dataset was opened: open it again") from e

    def torch(
        self,
        layers: Sequence[int],
        *,
        convention: Literal["post", "boundary"] = "post",
        final: Literal["pre", "post"] | None = "post",
        loss_mask: bool = True,
        max_tokens: int | None = None,
    ) -> TorchDataset:
        """Return the samples as tensors for a DataLoader; see `TorchDataset`.

        layers names the aux states, strictly increasing. With the convention "post", k is P_k, the output of layer k;
        with "boundary" it is P_{k-1}, the input of layer k. final is the norm state that the trainer wants of the
        final state, None for no final state. loss_mask=False leaves the mask out. max_tokens cuts longer samples.

        Raises HsxError for what the dataset does not hold: nothing is made up.
        """
        from hsx._torch import TorchDataset

        columns = _selection.aux(self._manifest, layers, convention)
        last = None if final is None else _selection.final(self._manifest, final)
        if self.manifest.get("shifted"):
            raise HsxError("ids and mask of this dataset lie one position to the left of its states, as in its dumps")
        if max_tokens is not None and max_tokens < 1:
            raise HsxError(f"max_tokens is {max_tokens}, want at least 1")
        dtypes = [s.dtype for s in self._manifest.states]
        return TorchDataset(self, dtypes, columns, last, loss_mask, max_tokens)

    def sampler(self, *, seed: int = 0, rank: int = 0, world: int = 1, buffer: int = 2) -> ShardSampler:
        """Return indices in an order that is random and yet reads shard after shard; see `ShardSampler`."""
        where, shards = self._path, self._manifest.shards
        paths = [where.ahead(s.file, s.bytes) if isinstance(where, RemotePath) else where / s.file for s in shards]
        return ShardSampler(self._first, paths, seed=seed, rank=rank, world=world, buffer=buffer)

    def iter_shards(self, sampler: ShardSampler | None = None) -> Iterator[Sample]:
        """Yield the samples in the order of a sampler, by default of `sampler()`."""
        return (self[i] for i in (self.sampler() if sampler is None else sampler))


@functools.cache
def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16

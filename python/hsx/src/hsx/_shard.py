"""One shard: a mapped Arrow file, and its rows as views of it."""

from __future__ import annotations

import functools
import mmap
import os
import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa

from hsx._digest import hasher
from hsx._errors import CorruptError
from hsx._manifest import Manifest

if TYPE_CHECKING:
    import xxhash

Array = npt.NDArray[Any]

_MAGIC = b"ARROW1"
_STORED = {"bfloat16": pa.uint16(), "float16": pa.float16(), "float32": pa.float32()}  # Arrow has no bfloat16


@dataclass(frozen=True)
class Row:
    """One row where it lies in the map. Its arrays are read-only."""

    id: str
    source: str
    ids: Array  # int32 [T]
    mask: Array | None  # uint8 [T]
    states: list[Array]  # [T, H], in column order; bfloat16 as uint16
    digest: bytes  # of ids and states

    def check(self) -> None:
        """Compare ids and states with the digest."""
        h = hasher()
        for part in (self.ids, *self.states):
            h.update(part.data)
        if h.digest() != self.digest:
            raise ValueError(f"states or ids were changed (XXH3 {h.hexdigest()}, the row says {self.digest.hex()})")

    def add_to_index(self, h: xxhash.xxh3_128) -> None:
        """Add all but the states to the digest of a shard's index, each part after its length."""
        mask = None if self.mask is None else self.mask.tobytes()
        for part in (self.id.encode(), self.source.encode(), self.ids.tobytes(), mask, self.digest):
            h.update(struct.pack("<I", 0xFFFFFFFF if part is None else len(part)))
            h.update(part or b"")


class _Lists:
    """A column of lists. Row i is the values from offset i up to offset i+1, or null."""

    def __init__(self, column: pa.ListArray, values: Array) -> None:
        self._valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        self._offsets = column.offsets.to_numpy()
        self._values = values

    def row(self, i: int) -> Array | None:
        if self._valid is not None and not self._valid[i]:
            return None
        start, end = int(self._offsets[i]), int(self._offsets[i + 1])
        if not 0 <= start <= end <= len(self._values):
            raise ValueError(f"a list goes from {start} to {end} of {len(self._values)} values")
        return self._values[start:end]


class _Batch:
    """The columns of one record batch. None of them is copied."""

    def __init__(self, batch: pa.RecordBatch, manifest: Manifest) -> None:
        batch.validate()
        self._id, self._source, self._digest = (batch.column(name) for name in ("id", "source", "digest"))
        ids, mask = batch.column("input_ids"), batch.column("loss_mask")
        self._ids, self._mask = (_Lists(c, c.values.to_numpy()) for c in (ids, mask))
        states = [batch.column(s.column) for s in manifest.states]
        self._states = [_Lists(c, c.values.values.to_numpy().reshape(-1, manifest.hidden_size)) for c in states]

    def row(self, i: int) -> Row:
        ids, mask, states = self._ids.row(i), self._mask.row(i), [s.row(i) for s in self._states]
        held = [s for s in states if s is not None]
        if ids is None or len(held) < len(states):
            raise ValueError("ids or states are null")
        if any(len(a) != len(ids) for a in (held if mask is None else [mask, *held])):
            raise ValueError(f"its columns differ in length from its {len(ids)} ids")
        return Row(self._id[i].as_py(), self._source[i].as_py(), ids, mask, held, self._digest[i].as_py())


class Shard:
    """One listed shard, open for reading its rows in any order."""

    def __init__(self, directory: Path, manifest: Manifest, number: int, *, check: bool) -> None:
        """Map the file. With check, compare all but the states with the manifest now, and each row when it is read."""
        info = manifest.shards[number]
        self._file, self._check = info.file, check
        try:
            data = _map(directory / info.file, info.bytes)
        except (FileNotFoundError, ValueError) as e:
            raise CorruptError(f"{self._file}: {e}") from e
        try:
            batches = _batches(data, manifest, info.head if check else None)
            self._first = [0, *accumulate(b.num_rows for b in batches)]
            self._batch = functools.cache(lambda k: _Batch(batches[k], manifest))
            if self._first[-1] != info.rows:
                raise ValueError(f"has {self._first[-1]} rows, the manifest calls for {info.rows}")
            if check:
                self._check_index(info.index)
        except (pa.ArrowException, ValueError, OSError) as e:  # Arrow's errors are some of each
            raise CorruptError(f"{self._file}: {e}") from e

    def row(self, i: int) -> Row:
        """Return row i."""
        try:
            row = self._row(i)
            if self._check:
                row.check()
        except (pa.ArrowException, ValueError) as e:
            raise CorruptError(f"{self._file}: row {i}: {e}") from e
        return row

    def _row(self, i: int) -> Row:
        k = bisect_right(self._first, i) - 1
        return self._batch(k).row(i - self._first[k])

    def _check_index(self, want: str) -> None:
        h = hasher()
        for i in range(self._first[-1]):
            self._row(i).add_to_index(h)
        if h.hexdigest() != want:
            raise ValueError(f"ids, masks or digests were changed (XXH3 {h.hexdigest()}, not {want})")


def _map(path: Path, size: int) -> mmap.mmap:
    with path.open("rb") as f:
        there = os.fstat(f.fileno()).st_size
        if there != size:
            raise ValueError(f"has {there} bytes, the manifest calls for {size}")
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)


def _batches(data: mmap.mmap, manifest: Manifest, head: str | None) -> list[pa.RecordBatch]:
    """Find the record batches. With head, compare the metadata of all messages before Arrow acts on them."""
    # An Arrow file is a stream between a magic and a footer, which repeats where the messages are.
    tail = len(data) - len(_MAGIC) - 4
    footer = tail - int.from_bytes(data[tail : tail + 4], "little")
    if footer < 8 or not data[: len(_MAGIC)] == data[-len(_MAGIC) :] == _MAGIC:
        raise ValueError(f"does not begin and end with {_MAGIC.decode()}")
    stream = pa.py_buffer(data).slice(8, footer - 8)
    data.madvise(mmap.MADV_RANDOM)  # of each batch only a page is wanted now, far from the next one
    messages = list(pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)))
    if head is not None:
        h = hasher()
        for m in messages:
            h.update(m.metadata)
        if h.hexdigest() != head:
            raise ValueError(f"Arrow metadata was changed (XXH3 {h.hexdigest()}, not {head})")
    if not messages:
        raise ValueError("holds nothing")
    schema, want = pa.ipc.read_schema(messages[0]), _schema(manifest)
    if not schema.equals(want, check_metadata=True):
        raise ValueError(f"has the columns\n{schema}\nthe manifest calls for\n{want}")
    batches = [pa.ipc.read_record_batch(m, schema) for m in messages[1:]]
    data.madvise(mmap.MADV_NORMAL)
    return batches


def _schema(manifest: Manifest) -> pa.Schema:
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.uint8())),
    ]
    for s in manifest.states:
        metadata = {"hsx.dtype": s.dtype} if s.dtype == "bfloat16" else {}
        if s.norm is not None:
            metadata["hsx.norm"] = s.norm
        states = pa.list_(pa.list_(_STORED[s.dtype], manifest.hidden_size))
        fields.append(pa.field(s.column, states, nullable=False, metadata=metadata))
    return pa.schema([*fields, pa.field("digest", pa.binary(16), nullable=False)])

"""One shard: a mapped Arrow file, and its rows as views of it."""

from __future__ import annotations

import functools
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hsx import _packed
from hsx._digest import hasher
from hsx._errors import CorruptError
from hsx._manifest import SPLIT, Manifest, ShardInfo
from hsx._remote import RemotePath, Sparse

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

    def __init__(self, offsets: Array, values: Array, valid: Array | None = None) -> None:
        self._offsets, self._values, self._valid = offsets, values, valid

    def row(self, i: int) -> Array | None:
        if self._valid is not None and not self._valid[i]:
            return None
        start, end = int(self._offsets[i]), int(self._offsets[i + 1])
        if not 0 <= start <= end <= len(self._values):
            raise ValueError(f"a list goes from {start} to {end} of {len(self._values)} values")
        return self._values[start:end]


def _text(column: _Lists, i: int) -> str:
    row = column.row(i)
    return "" if row is None else row.tobytes().decode()


@dataclass(frozen=True)
class _Batch:
    """The columns of one record batch. None of them is copied."""

    id: _Lists  # uint8
    source: _Lists  # uint8
    ids: _Lists
    mask: _Lists
    states: Sequence[_Lists | _packed.State]
    digest: Array  # uint8 [rows, 16]

    def row(self, i: int, *, states: bool = True) -> Row:
        """Return a row, with its states or without."""
        ids, mask = self.ids.row(i), self.mask.row(i)
        held = [r for s in self.states if (r := s.row(i)) is not None] if states else []
        if ids is None or (states and len(held) < len(self.states)):
            raise ValueError("ids or states are null")
        if any(len(a) != len(ids) for a in (held if mask is None else [mask, *held])):
            raise ValueError(f"its columns differ in length from its {len(ids)} ids")
        return Row(_text(self.id, i), _text(self.source, i), ids, mask, held, self.digest[i].tobytes())


def _plain_batch(batch: pa.RecordBatch, manifest: Manifest) -> _Batch:
    batch.validate()

    def text(name: str) -> _Lists:
        _, ends, data = batch.column(name).buffers()
        return _Lists(np.frombuffer(ends, "<i4"), np.frombuffer(data or b"", np.uint8))

    def lists(column: pa.ListArray, values: Array) -> _Lists:
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        return _Lists(column.offsets.to_numpy(), values, valid)

    ids, mask = batch.column("input_ids"), batch.column("loss_mask")
    columns = [batch.column(s.column) for s in manifest.states]
    return _Batch(
        text("id"),
        text("source"),
        lists(ids, ids.values.to_numpy()),
        lists(mask, mask.values.to_numpy()),
        [lists(c, c.values.values.to_numpy().reshape(-1, manifest.hidden_size)) for c in columns],
        np.frombuffer(batch.column("digest").buffers()[1], np.uint8).reshape(-1, 16),
    )


def _packed_batch(rows: int, parts: list[Array], manifest: Manifest) -> _Batch:
    width, left = manifest.hidden_size, iter(parts)
    if len(parts) != 16 + sum(5 if s.dtype == "float32" else 10 for s in manifest.states) or rows < 0:
        raise ValueError(f"a record batch has {len(parts)} buffers and {rows} rows")

    def text() -> _Lists:
        _, ends, data = (next(left) for _ in range(3))
        return _Lists(_packed.offsets(ends, rows), _packed.raw(data))

    def lists(dtype: str) -> _Lists:
        valid, ends, _, values = (next(left) for _ in range(4))
        bits = np.unpackbits(_packed.raw(valid), bitorder="little") if len(valid) else None
        return _Lists(_packed.offsets(ends, rows), _packed.raw(values).view(dtype), bits)

    def rows_of_values() -> tuple[Array, Array]:
        _, ends, _, _, values = (next(left) for _ in range(5))
        return _packed.offsets(ends, rows), values

    def state(dtype: str) -> _Lists | _packed.State:
        ends, values = rows_of_values()
        if dtype == "float32":
            return _Lists(ends, _packed.raw(values).view("<f4").reshape(-1, width))
        size = int(ends[-1]) * width
        again, low = rows_of_values()
        if not np.array_equal(ends, again):
            raise ValueError("the halves of a state differ in their rows")
        halves = _packed.Half(values, size), _packed.Half(low, size)
        return _packed.State(*halves, ends, width, np.float16 if dtype == "float16" else np.uint16)

    columns = (text(), text(), lists("<i4"), lists("u1"), [state(s.dtype) for s in manifest.states])
    next(left)  # no digest is null
    digest = _packed.raw(next(left))
    return _Batch(*columns, digest[: 16 * rows].reshape(rows, 16))


@dataclass(frozen=True)
class _Found:
    """A record batch that nothing was read of but its metadata."""

    rows: int
    load: Callable[[], _Batch]
    message: pa.Message

    def small(self) -> list[Array]:
        """Return all buffers as they are stored, and the sizes alone of those with the values of states."""
        return [p[:8] if values else p for p, values in self._parts()]

    def stored(self, i: int, batch: _Batch) -> list[Array]:
        """Return what row i needs of the values of states: its own, or all where they are compressed."""
        plain = [s for s in batch.states if isinstance(s, _Lists)]
        if len(plain) < len(batch.states):
            return [p for p, values in self._parts() if values]
        return [r for s in plain if (r := s.row(i)) is not None]

    def _parts(self) -> list[tuple[Array, bool]]:
        """Return all buffers, and whether they are the values of states."""
        parts = _packed.buffers(self.message)[1]
        # Two columns of text with 3 buffers, two of lists with 4, the states with 5, the digest with 2.
        return [(p, 14 <= i < len(parts) - 2 and (i - 14) % 5 == 4) for i, p in enumerate(parts)]


class Shard:
    """One listed shard, open for reading its rows in any order."""

    def __init__(self, directory: Path | RemotePath, manifest: Manifest, number: int, *, check: bool) -> None:
        """Map the file. With check, compare all but the states with the manifest now, and each row when it is read."""
        info = manifest.shards[number]
        self._file, self._check = info.file, check
        self._sparse: Sparse | None = None
        try:
            if isinstance(directory, RemotePath):
                self._sparse = directory.map(info.file, info.bytes)
                self._sparse.need_metadata()
                data = self._sparse.data
            else:
                data = _map(directory / info.file, info.bytes)
        except (FileNotFoundError, ValueError) as e:
            raise CorruptError(f"{self._file}: {e}") from e
        try:
            self._found = _batches(data, manifest, info, check=check)
            self._first = [0, *accumulate(f.rows for f in self._found)]
            self._batch = functools.cache(self._load)
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

    def _row(self, i: int, *, states: bool = True) -> Row:
        k = bisect_right(self._first, i) - 1
        batch = self._batch(k)
        if states and self._sparse:
            self._sparse.need(self._found[k].stored(i - self._first[k], batch))
        return batch.row(i - self._first[k], states=states)

    def _load(self, k: int) -> _Batch:
        if self._sparse:
            self._sparse.need(self._found[k].small())
        return self._found[k].load()

    def _check_index(self, want: str) -> None:
        h = hasher()
        for i in range(self._first[-1]):
            self._row(i, states=False).add_to_index(h)
        if h.hexdigest() != want:
            raise ValueError(f"ids, masks or digests were changed (XXH3 {h.hexdigest()}, not {want})")


def _map(path: Path, size: int) -> mmap.mmap:
    with path.open("rb") as f:
        there = os.fstat(f.fileno()).st_size
        if there != size:
            raise ValueError(f"has {there} bytes, the manifest calls for {size}")
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)


def _batches(data: mmap.mmap, manifest: Manifest, info: ShardInfo, *, check: bool) -> list[_Found]:
    """Find the record batches. With check, compare the metadata of all messages before Arrow acts on them."""
    # An Arrow file is a stream between a magic and a footer, which repeats where the messages are.
    tail = len(data) - len(_MAGIC) - 4
    footer = tail - int.from_bytes(data[tail : tail + 4], "little")
    if footer < 8 or not data[: len(_MAGIC)] == data[-len(_MAGIC) :] == _MAGIC:
        raise ValueError(f"does not begin and end with {_MAGIC.decode()}")
    stream = pa.py_buffer(data).slice(8, footer - 8)
    data.madvise(mmap.MADV_RANDOM)  # of each batch only a page is wanted now, far from the next one
    messages = list(pa.ipc.MessageReader.open_stream(pa.BufferReader(stream)))
    if check:
        h = hasher()
        for m in messages:
            h.update(m.metadata)
        if h.hexdigest() != info.head:
            raise ValueError(f"Arrow metadata was changed (XXH3 {h.hexdigest()}, not {info.head})")
    if not messages:
        raise ValueError("holds nothing")
    schema, want = pa.ipc.read_schema(messages[0]), _schema(manifest, split=info.encoding == SPLIT)
    if not schema.equals(want, check_metadata=True):
        raise ValueError(f"has the columns\n{schema}\nthe manifest calls for\n{want}")
    batches = []
    for m in messages[1:]:
        if info.encoding == SPLIT:
            rows, parts = _packed.buffers(m)
            batches.append(_Found(rows, functools.partial(_packed_batch, rows, parts, manifest), m))
        else:
            batch = pa.ipc.read_record_batch(m, schema)
            batches.append(_Found(batch.num_rows, functools.partial(_plain_batch, batch, manifest), m))
    data.madvise(mmap.MADV_NORMAL)
    return batches


def _schema(manifest: Manifest, *, split: bool) -> pa.Schema:
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.uint8())),
    ]
    for s in manifest.states:
        halves = split and s.dtype != "float32"
        metadata = {"hsx.dtype": s.dtype} if halves or s.dtype == "bfloat16" else {}
        if halves:
            metadata["hsx.turned"] = "left by 1"
        if s.norm is not None:
            metadata["hsx.norm"] = s.norm
        states = pa.list_(pa.list_(pa.uint8() if halves else _STORED[s.dtype], manifest.hidden_size))
        for name in (f"{s.column}.hi", f"{s.column}.lo") if halves else (s.column,):
            fields.append(pa.field(name, states, nullable=False, metadata=metadata))
    return pa.schema([*fields, pa.field("digest", pa.binary(16), nullable=False)])

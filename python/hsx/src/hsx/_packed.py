"""Record batches of compressed shards. Of a row only the blocks are decoded that hold it."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

_HEADER = bytes.fromhex("28b52ffdc038")  # of a zstd frame: magic, no checksum, a window of one block; the size follows
_BLOCK = 128 << 10  # bytes of content
_CHUNK = 64 << 10  # values that are put together at a time, in the cache


def buffers(message: pa.Message) -> tuple[int, list[Array]]:
    """Return the rows of a record batch, and its buffers as they are stored: views of its body."""
    meta, body = message.metadata.to_pybytes(), np.frombuffer(message.body, np.uint8)

    def field(table: int, number: int) -> int:
        vtable = table - _int("<i", meta, table)
        slot = 4 + 2 * number
        there = slot < _int("<H", meta, vtable) and _int("<H", meta, vtable + slot)
        if not there:
            raise ValueError("metadata of a record batch lacks a field")
        return int(table + there)

    header = field(_int("<I", meta, 0), 2)
    batch = header + _int("<I", meta, header)
    places = field(batch, 2)
    places += _int("<I", meta, places)
    parts = []
    for i in range(_int("<I", meta, places)):
        at, size = (_int("<q", meta, places + 4 + 16 * i + k) for k in (0, 8))
        if not 0 <= at <= at + size <= len(body):
            raise ValueError(f"a buffer of {size} bytes lies at {at} of a body of {len(body)}")
        parts.append(body[at : at + size])
    return _int("<q", meta, field(batch, 0)), parts


def raw(stored: Array) -> Array:
    """Return what a buffer holds that is stored as it is."""
    if len(stored) and _int("<q", stored, 0) != -1:
        raise ValueError("a column is compressed that should not be")
    return stored[8:]


class Half:
    """The high or the low bytes of the values of a state."""

    def __init__(self, stored: Array, size: int) -> None:
        """Take a buffer that must hold so many bytes."""
        self.size, self._frame = size, stored[8:]
        length = _int("<q", stored, 0) if len(stored) else -1
        self._raw = length == -1
        if (len(self._frame) < size) if self._raw else (length != size):
            raise ValueError(f"a buffer of {len(stored)} bytes says that it holds {length}, want {size}")

    def read(self, start: int, end: int) -> Array:
        """Return the bytes from start up to end."""
        if self._raw or start == end:
            return self._frame[start:end]
        a, b = start // _BLOCK, -(-end // _BLOCK)
        content = min(b * _BLOCK, self.size) - a * _BLOCK
        begin, last = self._blocks[a][0], self._blocks[b - 1][1]
        stop = self._blocks[b][0] if b < len(self._blocks) else len(self._frame)
        # No block needs another one, so some of them are a frame too. The last one says that it is.
        frame = bytearray(_HEADER + struct.pack("<Q", content) + self._frame[begin:stop].tobytes())
        frame[len(_HEADER) + 8 + last - begin] |= 1
        try:
            data = pa.Codec("zstd").decompress(bytes(frame), decompressed_size=content)
        except OSError as e:  # Arrow's way to say that it is no zstd
            raise ValueError(str(e)) from e
        return np.frombuffer(data, np.uint8)[start - a * _BLOCK : end - a * _BLOCK]

    @functools.cached_property
    def _blocks(self) -> list[tuple[int, int]]:
        """Find, for each _BLOCK of content, where its first and its last zstd block begin."""
        frame = self._frame
        if frame[: len(_HEADER)].tobytes() != _HEADER or _int("<Q", frame, len(_HEADER)) != self.size:
            raise ValueError("a zstd frame does not begin as those of hsx do")
        found, at = [], len(_HEADER) + 8
        for begin in range(0, self.size, _BLOCK):
            first, left = at, min(_BLOCK, self.size - begin)
            while left > 0:
                last = at
                head = int(frame[at]) | _int("<H", frame, at + 1) << 8
                kind, stored = head >> 1 & 3, head >> 3
                content = _int("<I", frame, at + 3) >> 4 & 0x3FFFF if kind == 2 else stored
                if not 0 < content <= left:
                    raise ValueError(f"a zstd block holds {content} bytes where {left} are left")
                left -= content
                at += 3 + (1 if kind == 1 else stored)
            found.append((first, last))
        return found


class State:
    """A state whose values are in halves."""

    def __init__(self, hi: Half, lo: Half, offsets: Array, width: int, dtype: npt.DTypeLike) -> None:
        """Take both halves, and where the rows of values of each row of the batch begin."""
        self._hi, self._lo, self._offsets, self._width, self._dtype = hi, lo, offsets, width, dtype

    def row(self, i: int) -> Array:
        """Return row i, in memory of its own."""
        start, end = (int(n) * self._width for n in self._offsets[i : i + 2])
        if not 0 <= start <= end <= self._hi.size:
            raise ValueError(f"a list goes from {start} to {end} of {self._hi.size} values")
        hi, lo = self._hi.read(start, end), self._lo.read(start, end)
        out = np.empty(end - start, "<u2")
        for at in range(0, len(out), _CHUNK):
            values, low = hi[at : at + _CHUNK].astype("<u2"), lo[at : at + _CHUNK].astype("<u2")
            values <<= 8
            values |= low
            np.right_shift(values, 1, out=out[at : at + _CHUNK])
            values <<= 15
            out[at : at + _CHUNK] |= values
        out.flags.writeable = False
        return out.reshape(-1, self._width).view(self._dtype)


def offsets(stored: Array, rows: int) -> Array:
    """Return the offsets of a column of lists."""
    out = raw(stored)[: 4 * (rows + 1)].view("<i4")
    if len(out) != rows + 1:
        raise ValueError(f"a column has {len(out)} offsets for {rows} rows")
    return out


def _int(form: str, data: Any, at: int) -> int:  # noqa: ANN401: bytes, or an array of them
    if at < 0:
        raise ValueError(f"a place is {at}")
    try:
        return int(struct.unpack_from(form, data, at)[0])
    except struct.error as e:
        raise ValueError(str(e)) from e

"""Datasets in object stores, through fsspec: what is missing of a range is fetched before it is used."""

from __future__ import annotations

import functools
import io
import mmap
import os
import struct
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hsx._errors import HsxError

Array = npt.NDArray[Any]

_PIECE = 256 << 10  # what is fetched at least: a request takes about as long as the bytes of it
_REQUEST = 4 << 20
_AT_ONCE = 16  # requests, and so 64 MiB of answers
_MOST_OPEN = 16  # shards, each a file in the temporary directory of what was read of it


class RemotePath:
    """As much of a pathlib.Path as is used of a directory, for a place in a store."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Take a URL that fsspec understands, and the options of its file system."""
        self._url, self._options = url, dict(options)
        self.map = functools.lru_cache(maxsize=_MOST_OPEN)(self._map)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name, and nothing that is open."""
        return RemotePath, (self._url, self._options)

    def __str__(self) -> str:
        """Return the URL."""
        return self._url

    def __truediv__(self, name: str) -> RemotePath:
        """Return the path of what has that name here."""
        return RemotePath(f"{self._url.rstrip('/')}/{name}", self._options)

    def read_bytes(self) -> bytes:
        """Return a whole object."""
        fs, path = self._fs()
        data: bytes = fs.cat_file(path)
        return data

    def open(self, mode: str) -> io.BufferedIOBase:
        """Open an object for reading it from end to end."""
        fs, path = self._fs()
        file: io.BufferedIOBase = fs.open(path, mode, block_size=_REQUEST)
        return file

    def _map(self, name: str, size: int) -> Sparse:
        """Map an object that must have so many bytes."""
        fs, path = (self / name)._fs()
        there = fs.size(path)
        if there != size:
            raise ValueError(f"has {there} bytes, the manifest calls for {size}")
        return Sparse(self / name, size)

    def fetch(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Return ranges of an object, each from one byte up to another; at once where the file system can."""
        fs, path = self._fs()
        starts, ends = zip(*ranges, strict=True)
        try:
            data: list[bytes] = fs.cat_ranges([path] * len(ranges), list(starts), list(ends), on_error="raise")
        except FileNotFoundError:
            raise
        except OSError as e:  # says nothing of the data
            raise HsxError(f"read {self}: {e}") from e
        return data

    def ahead(self, name: str, size: int) -> Ahead:
        """Return what reads an object into its map, for a `ShardSampler`."""
        return Ahead(self, name, size)

    def _fs(self) -> tuple[Any, str]:
        """Return the file system, one for each thread of each process, and the path in it."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as e:
            raise HsxError(f"open {self}: the package fsspec is not installed, nor what it needs for this store") from e
        fs, path = url_to_fs(self._url, **self._options)
        return fs, path


class Sparse:
    """An object as memory: a mapped file without a name, with holes where nothing was needed yet."""

    def __init__(self, path: RemotePath, size: int) -> None:
        """Make the file. Nothing is fetched."""
        self._path, self._size = path, size
        self._fd, name = tempfile.mkstemp(prefix="hsx-")
        weakref.finalize(self, os.close, self._fd)
        os.unlink(name)
        os.truncate(self._fd, size)
        self.data = mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        self._address = _address(np.frombuffer(self.data, np.uint8))
        self._there = bytearray(-(-size // _PIECE))  # pieces; to fetch one twice is harmless

    def need(self, arrays: Iterable[Array]) -> None:
        """Fetch what is missing of arrays that are views of the map."""
        places = ((_address(a) - self._address, a.nbytes) for a in arrays)
        self.need_ranges((at, at + n) for at, n in places if 0 <= at < self._size)

    def need_ranges(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch what is missing of ranges, each from one byte up to another."""
        within = ((max(start, 0), min(end, self._size)) for start, end in ranges)
        pieces = {k for start, end in within for k in range(start // _PIECE, -(-end // _PIECE))}
        missing = sorted(k for k in pieces if not self._there[k])
        asked: list[list[int]] = []
        for k in missing:
            if asked and asked[-1][-1] == k - 1 and len(asked[-1]) < _REQUEST // _PIECE:
                asked[-1].append(k)
            else:
                asked.append([k])
        for i in range(0, len(asked), _AT_ONCE):
            some = [(a[0] * _PIECE, min((a[-1] + 1) * _PIECE, self._size)) for a in asked[i : i + _AT_ONCE]]
            for (start, end), data in zip(some, self._path.fetch(some), strict=True):
                if len(data) != end - start:
                    raise ValueError(f"got {len(data)} bytes from {start}, want {end - start}")
                os.pwrite(self._fd, data, start)
            for a in asked[i : i + _AT_ONCE]:
                self._there[a[0] : a[-1] + 1] = b"\1" * len(a)

    def need_metadata(self) -> None:
        """Fetch the metadata of an Arrow file: the footer says where it is. Where it lies, a hole is read as damage."""
        self.need_ranges([(0, 8), (self._size - _PIECE, self._size)])
        try:
            tail = self._size - 10
            footer = tail - _int("<i", self.data, tail)
            self.need_ranges([(footer, tail)])
            batches = footer + _int("<I", self.data, footer)
            vtable = batches - _int("<i", self.data, batches)
            batches += _int("<H", self.data, vtable + 4 + 2 * 3)  # the fourth field of the table, a vector of blocks
            batches += _int("<I", self.data, batches)
            places = [batches + 4 + 24 * i for i in range(min(_int("<I", self.data, batches), 1 << 16))]
            blocks = [(_int("<q", self.data, p), _int("<i", self.data, p + 8)) for p in places]
            found = [(at, at + n) for at, n in blocks if 0 <= at < self._size and 0 < n <= 1 << 20]
        except struct.error:
            return
        schema_end = min((start for start, _ in found), default=footer)
        self.need_ranges([(0, min(schema_end, 1 << 20)), *found])


class Ahead:
    """Reads an object into the map of it, as a file is read into the page cache."""

    def __init__(self, path: RemotePath, name: str, size: int) -> None:
        """See `RemotePath.ahead`."""
        self._path, self._name, self._size, self._at = path, name, size, 0

    def open(self, _mode: str, *, buffering: int) -> Ahead:
        """Begin at the beginning."""
        return Ahead(self._path, self._name, self._size)

    def __enter__(self) -> Ahead:
        """Be a file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Be closed."""

    def readinto(self, _block: bytearray) -> int:
        """Fetch the next part, and return how much that was."""
        n = min(self._size - self._at, _AT_ONCE * _REQUEST)
        self._path.map(self._name, self._size).need_ranges([(self._at, self._at + n)])
        self._at += n
        return n


def _address(a: Array) -> int:
    return int(a.__array_interface__["data"][0])


def _int(form: str, data: mmap.mmap, at: int) -> int:
    return int(struct.unpack_from(form, data, at)[0])

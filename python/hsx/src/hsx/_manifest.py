"""manifest.json: what a dataset says of itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hsx._digest import hasher
from hsx._errors import CorruptError, HsxError, VersionError
from hsx._remote import RemotePath

NAME = "manifest.json"
VERSION = 2  # the newest that this package reads
SPLIT = "split-zstd"  # how compressed shards are encoded
DTYPES = ("bfloat16", "float16", "float32")  # of states
_NAME = re.compile(r"[0-9]{6,18}(-[0-9a-z]+)?\.arrow")  # of a shard
_SEAL = b',\n  "xxh3": "'  # begins the last member, the digest of all bytes before it


@dataclass(frozen=True)
class State:
    """One column of hidden states."""

    column: str
    layer: int | None  # k of P_k; None: the final state, or a layer that nobody named
    norm: str | None  # of the final state: pre, post or unknown
    dtype: str  # one of DTYPES

    @property
    def name(self) -> str:
        """The key of a sample: P_2 for the output of layer 2, final, or block_0 where nobody said which layer."""
        return self.column if self.layer is None else f"P_{self.layer}"


@dataclass(frozen=True)
class ShardInfo:
    """One shard as the manifest lists it."""

    name: str
    bytes: int
    rows: int
    tokens: int
    xxh3: str  # of the file
    head: str  # of the metadata of its Arrow messages
    index: str  # of its columns that are not states
    encoding: str  # "" or SPLIT

    @property
    def file(self) -> str:
        """The path, relative to the dataset."""
        return f"shards/{self.name}"


@dataclass(frozen=True)
class Manifest:
    """A manifest that was checked."""

    document: dict[str, Any]
    hidden_size: int
    states: tuple[State, ...]
    shards: tuple[ShardInfo, ...]
    files: tuple[tuple[tuple[tuple[str, int], ...], str], ...]  # each in parts with so many bytes, and its XXH3-128


def read(directory: Path | RemotePath, *, sealed: bool) -> Manifest:
    """Read the manifest of a dataset. With sealed, compare it with its own digest."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError as e:
        raise HsxError(f"{directory} has no {NAME}: it is no dataset, or nothing was committed yet") from e
    try:
        document = json.loads(data)
        version = document["version"]
        if document["format"] == "hsx" and version > VERSION:
            raise VersionError(f"{NAME} has format version {version}, this package reads up to {VERSION}")
        if sealed:
            _check_seal(data)
        return _decode(document)
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise CorruptError(f"{NAME}: {e!r}") from e


def _check_seal(data: bytes) -> None:
    body, seal, digest = data.rpartition(_SEAL)
    h = hasher()
    h.update(body)
    if not seal or digest != h.hexdigest().encode() + b'"\n}\n':
        raise CorruptError(f"{NAME}: its bytes have XXH3 {h.hexdigest()}, its seal says otherwise: it was changed")


def _decode(doc: dict[str, Any]) -> Manifest:
    if doc["format"] != "hsx" or doc["version"] < 1:
        raise ValueError(f"format is {doc['format']!r} version {doc['version']}, want 'hsx' version 1 to {VERSION}")
    if type(doc["hidden_size"]) is not int or doc["hidden_size"] < 0 or (doc["shards"] and not doc["states"]):
        raise ValueError(f"hidden size is {doc['hidden_size']!r}, of {len(doc['states'])} states")
    states = tuple(State(s["column"], s["layer"], s.get("norm"), s["dtype"]) for s in doc["states"])
    listed = [{"encoding": "", **s} for s in doc["shards"]]
    shards = tuple(ShardInfo(*(s[f.name] for f in fields(ShardInfo))) for s in listed)
    for state in states:
        if state.dtype not in DTYPES:
            raise ValueError(f"{state.column} is of type {state.dtype!r}, want one of {', '.join(DTYPES)}")
    if len({s.name for s in shards}) < len(shards):
        raise ValueError("names a shard twice")
    for i, shard in enumerate(shards):
        # The name becomes a path. In version 1 it is the only one that it may be.
        named = shard.name == f"{i:06d}.arrow" if doc["version"] == 1 else _NAME.fullmatch(shard.name)
        if not named or not 0 < shard.rows <= shard.tokens:
            raise ValueError(f"shard {i} is named {shard.name!r} and has {shard.rows} rows and {shard.tokens} tokens")
        if shard.encoding not in ("", SPLIT) or (shard.encoding and doc["version"] == 1):
            raise ValueError(f"shard {i} has encoding {shard.encoding!r}, want {SPLIT!r} or none")
    rows, tokens = sum(s.rows for s in shards), sum(s.tokens for s in shards)
    if (doc["rows"], doc["tokens"]) != (rows, tokens):
        raise ValueError(f"has {doc['rows']} rows and {doc['tokens']} tokens, its shards have {rows} and {tokens}")
    journals = [_journal(name, doc[name]) for name in ("inputs", "rejected")]
    files = [(((s.file, s.bytes),), s.xxh3) for s in shards] + journals
    return Manifest(doc, doc["hidden_size"], states, shards, tuple(files))


def _journal(name: str, doc: dict[str, Any]) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return where the lines of a journal lie, a store's in several objects, and their digest."""
    whole = {"name": f"{name}.jsonl", "bytes": doc["bytes"]}
    listed = doc["parts"] if "parts" in doc else [whole]  # noqa: SIM401
    parts = tuple((p["name"], p["bytes"]) for p in listed)
    for part, size in parts:
        if not re.fullmatch(rf"{name}(-[0-9a-f]{{16}})?\.jsonl", part) or size < 0:
            raise ValueError(f"lines of {name} lie in {part!r}")
    if sum(size for _, size in parts) != doc["bytes"]:
        raise ValueError(f"{name} has {doc['bytes']} bytes, its parts have others")
    return tuple(p for p in parts if p[1] > 0), doc["xxh3"]

"""XXH3-128, which the package xxhash brings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hsx._errors import CorruptError, HsxError
from hsx._remote import RemotePath

if TYPE_CHECKING:
    import xxhash


def hasher() -> xxhash.xxh3_128:
    """Return an XXH3-128 of nothing yet. A check that was asked for is never left out: without xxhash it fails."""
    try:
        import xxhash
    except ImportError as e:
        raise HsxError("check digests: the package xxhash is not installed; verify=False reads without checks") from e
    return xxhash.xxh3_128()


def check_files(directory: Path | RemotePath, files: Iterable[tuple[Iterable[tuple[str, int]], str]]) -> None:
    """Compare the first bytes of each file, so many of each of its parts, with the digest in hexadecimal."""
    for parts, digest in files:
        h, file = hasher(), ""
        for file, size in parts:
            left = size
            try:
                with (directory / file).open("rb") as f:
                    while left and (block := f.read(min(left, 1 << 20))):
                        h.update(block)
                        left -= len(block)
            except FileNotFoundError as e:
                raise CorruptError(f"{file}: is missing") from e
            if left:
                raise CorruptError(f"{file}: has {size - left} bytes, the manifest calls for {size}")
        if file and h.hexdigest() != digest:
            raise CorruptError(f"{file}: has XXH3 {h.hexdigest()}, the manifest calls for {digest}")

"""A directory that fills with samples, for `hsx ingest --follow`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from hsx_capture._errors import RefusedError

_LONGEST = 200  # bytes of a name before its suffix


def file_name(id: str) -> str:
    """Return the name of the file of an id: safe anywhere, and different for different ids."""
    name = quote(id, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 66] + "%-" + hashlib.sha256(id.encode()).hexdigest()  # quote writes no "%-"
    return name + ".safetensors"


class Spool:
    """Writes each sample to a hidden name, and gives it its own name once it is whole and durable."""

    def __init__(self, directory: str) -> None:
        self._dir = Path(directory)
        self._dir.mkdir(parents=True, exist_ok=True)

    def write(self, id: str, parts: Sequence[memoryview]) -> None:
        """Write one file. The same content again is kept once; another under the same id is refused."""
        name = file_name(id)
        path, temp = self._dir / name, self._dir / f".{name}.tmp"
        if path.exists():
            if not _same(path, parts):
                raise RefusedError(f"sample {id!r}: {path} exists and has other content", [id])
            return
        try:
            with temp.open("wb") as f:
                for part in parts:
                    f.write(part)
                f.flush()
                os.fsync(f.fileno())
            os.replace(temp, path)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise

    def sync(self) -> None:
        """Make the names durable."""
        fd = os.open(self._dir, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _same(path: Path, parts: Sequence[memoryview]) -> bool:
    with path.open("rb") as f:
        return all(f.read(len(part)) == part for part in parts) and not f.read(1)

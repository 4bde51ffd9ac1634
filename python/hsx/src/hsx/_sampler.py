"""An order of samples that is random and yet reads shard after shard."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hsx._errors import HsxError
from hsx._remote import Ahead


class ShardSampler:
    """Indices for disks that hate random reads; a DataLoader takes it as its `sampler`. Made by `Dataset.sampler`.

    Shards are shuffled, cut into one part for each rank, and used in pools of `buffer` shards, whose samples are
    shuffled together. A thread reads the files of the next pool from end to end while one is used, so that its
    samples are found in memory: that takes room for two pools, at about a GiB a shard.

    The order follows from seed, epoch, rank, world and buffer alone. All ranks get the same number of samples; the
    len % world that are left over are others in each epoch.
    """

    def __init__(
        self, first: Sequence[int], paths: Sequence[Path | Ahead], *, seed: int, rank: int, world: int, buffer: int
    ) -> None:
        """See `Dataset.sampler`. first holds the index of each shard's first sample, and last the number of all."""
        if not 0 <= rank < world:
            raise HsxError(f"rank is {rank} of {world}, want 0 to {world - 1}")
        if buffer < 1:
            raise HsxError(f"buffer is {buffer} shards, want at least 1")
        self._first, self._paths = first, paths
        self._seed, self._rank, self._world, self._buffer = seed, rank, world, buffer
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration: each epoch has its own."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Count the samples of this rank."""
        return self._first[-1] // self._world

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of an epoch."""
        pools = self._pools()
        stop = threading.Event()
        try:
            for i, (_, indices) in enumerate(pools):
                ahead = pools[i + 1 : i + 2] if i else pools[:2]
                paths = [path for pool, _ in ahead for path in pool]
                threading.Thread(target=_read, args=(paths, stop), daemon=True).start()
                yield from indices.tolist()
        finally:
            stop.set()

    def _pools(self) -> list[tuple[list[Path | Ahead], npt.NDArray[Any]]]:
        """Return the files and the shuffled indices of each pool."""
        random = np.random.default_rng([self._seed, self._epoch])  # all ranks must see one order of the shards
        begin, end = self._rank * len(self), (self._rank + 1) * len(self)
        parts, at = [], 0
        for k in random.permutation(len(self._paths)):
            rows = np.arange(self._first[k], self._first[k + 1])
            mine = rows[max(begin - at, 0) : max(end - at, 0)]
            at += len(rows)
            if len(mine):
                parts.append((self._paths[k], mine))
        pools = []
        for i in range(0, len(parts), self._buffer):
            pool = parts[i : i + self._buffer]
            pools.append(([path for path, _ in pool], random.permutation(np.concatenate([rows for _, rows in pool]))))
        return pools


def _read(paths: Sequence[Path | Ahead], stop: threading.Event) -> None:
    """Have the kernel keep the files in memory, or fetch them. What cannot be read is reported by those who need it."""
    block = bytearray(4 << 20)
    for path in paths:
        try:
            with path.open("rb", buffering=0) as f:
                while not stop.is_set() and f.readinto(block):
                    pass
        except OSError:
            return

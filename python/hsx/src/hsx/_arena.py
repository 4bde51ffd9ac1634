"""Memory for large tensors that is used again."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_SMALL = 1 << 20  # bytes; below, the C library's allocator keeps memory itself
_KEPT = 8  # free blocks


class Arena:
    """Hands out tensors, and takes their memory back when the last view of one is gone.

    Large blocks go back to the kernel when they are freed, and the page faults of new ones cost several times what
    it takes to fill them.
    """

    def __init__(self) -> None:
        self._free: deque[npt.NDArray[np.uint8]] = deque(maxlen=_KEPT)

    def __reduce__(self) -> tuple[Any, ...]:
        return Arena, ()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        if size < _SMALL:
            return torch.empty(shape, dtype=dtype)
        block = self._take(size)
        # The tensor's storage holds this view and nothing else does, so it dies with the storage.
        view = block[:size]
        weakref.finalize(view, self._free.append, block).atexit = False
        return torch.from_numpy(view).view(dtype).view(shape)

    def _take(self, size: int) -> npt.NDArray[np.uint8]:
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread was faster
                break
            if size <= block.nbytes <= 4 * size:
                return block
            self._free.append(block)
        return np.empty(-(-size // _SMALL) * _SMALL, np.uint8)

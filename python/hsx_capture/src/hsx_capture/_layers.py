"""Lists of layers, in the two conventions in which people write them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hsx_capture._errors import CaptureError

EMBEDDING = -1
_SHIFT = {"post": 0, "boundary": 1}


def parse(layers: Sequence[int | str], convention: str, count: int, allow_embedding: bool) -> list[int]:
    """Return the k of each P_k, the residual stream after decoder layer k, that layers names.

    In the convention "post" an integer k is P_k, in "boundary" it is P_(k-1). "embedding" is P_-1 in both.
    """
    if convention not in _SHIFT:
        raise CaptureError(f"convention is {convention!r}, want 'post' or 'boundary'")
    out = []
    for layer in layers:
        if layer == "embedding":
            out.append(EMBEDDING)
            continue
        if not isinstance(layer, int) or isinstance(layer, bool):
            raise CaptureError(f"layer {layer!r} is neither an integer nor 'embedding'")
        k = layer - _SHIFT[convention]
        if k == EMBEDDING and not allow_embedding:
            raise CaptureError(f"layer {layer} is the embedding: write 'embedding', or pass allow_embedding=True")
        if not EMBEDDING <= k < count:
            raise CaptureError(f"layer {layer} ({convention}) is P_{k}, but the model has P_0 to P_{count - 1}")
        out.append(k)
    if any(a >= b for a, b in pairwise(out)):
        raise CaptureError(f"layers {list(layers)} are not strictly increasing")
    return out


def describe(ks: Sequence[int]) -> str:
    """Write layers as hsx does: "P_2 P_30 (post 2,30; boundary 3,31)"."""
    if not ks:
        return "none"
    post, boundary = (",".join(str(k + shift) for k in ks) for shift in _SHIFT.values())
    return f"{' '.join(f'P_{k}' for k in ks)} (post {post}; boundary {boundary})"

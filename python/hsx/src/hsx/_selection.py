"""Which columns a trainer means."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hsx._errors import HsxError
from hsx._manifest import Manifest


def aux(manifest: Manifest, layers: Sequence[int], convention: str) -> list[int]:
    """Return the positions, among the states, of the layers that a list names in a convention."""
    if convention not in ("post", "boundary"):
        raise HsxError(f"convention is {convention!r}, want 'post' or 'boundary'")
    ks = [operator.index(k) - (convention == "boundary") for k in layers]
    if any(b <= a for a, b in pairwise(ks)):
        raise HsxError(f"layers {_csv(layers)} are not strictly increasing, the order in which engines put them")
    held = {s.layer: i for i, s in enumerate(manifest.states) if s.layer is not None}
    for k in ks:
        if k not in held:
            raise HsxError(f"the dataset has no P_{k} (post {k}, boundary {k + 1}); {_holds(list(held))}")
    if len({manifest.states[held[k]].dtype for k in ks}) > 1:
        raise HsxError("the layers are of different types, which do not fit in one tensor")
    return [held[k] for k in ks]


def final(manifest: Manifest, norm: str) -> int:
    """Return the position of the final state, which must have the norm state that is wanted."""
    if norm not in ("pre", "post"):
        raise HsxError(f"final is {norm!r}, want 'pre', 'post' or None")
    for i, s in enumerate(manifest.states):
        if s.norm == norm:
            return i
        if s.norm == "pre":
            raise HsxError(
                "the final state is before the norm and final='post' was asked for: "
                "pass final='pre' and apply the target's norm, or have `hsx export --target` apply it"
            )
        if s.norm == "post":
            raise HsxError("the final state is after the norm and final='pre' was asked for: no norm can be undone")
        if s.norm is not None:
            raise HsxError("nobody said whether the final state is before the norm or after it: ingest with --final")
    raise HsxError("the dataset has no final state: capture it, or pass final=None")


def _holds(ks: list[int]) -> str:
    if not ks:
        return "nobody said which layers it holds: ingest with --layers"
    names = " ".join(f"P_{k}" for k in ks)
    return f"it holds {names} (post {_csv(ks)}; boundary {_csv(k + 1 for k in ks)})"


def _csv(values: Iterable[int]) -> str:
    return ",".join(map(str, values))

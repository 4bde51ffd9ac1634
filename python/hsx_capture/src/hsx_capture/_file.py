"""A sample as one safetensors file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from hsx_capture._taps import Rows

DTYPES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.int64: "I64",
    torch.uint8: "U8",
}


@dataclass(frozen=True)
class Sample:
    """One token sequence with its states."""

    id: str
    metadata: Mapping[str, str]
    tokens: torch.Tensor  # [tokens] int64
    mask: torch.Tensor | None  # [tokens] uint8
    states: Mapping[str, Sequence[Rows]]  # by tensor name; each a list of [tokens, hidden size] that follow one another
    cost: int  # bytes of host memory


def encode(sample: Sample) -> list[memoryview]:
    """Return the file in pieces, which are the sample's own memory, after the states have arrived in it.

    The library of the format would copy every state twice.
    """
    tensors = {"input_ids": [sample.tokens]}
    for name, parts in sample.states.items():
        for part in parts:
            if part.ready is not None:
                part.ready.synchronize()
        tensors[name] = [part.data for part in parts]
    if sample.mask is not None:
        tensors["loss_mask"] = [sample.mask]  # last, so that wider types stay aligned

    header: dict[str, object] = {"__metadata__": dict(sample.metadata)}
    at = 0
    for name, rows in tensors.items():
        start, at = at, at + sum(t.nbytes for t in rows)
        shape = [sum(len(t) for t in rows), *rows[0].shape[1:]]
        header[name] = {"dtype": DTYPES[rows[0].dtype], "shape": shape, "data_offsets": [start, at]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = [t.reshape(-1).view(torch.uint8).numpy().data for rows in tensors.values() for t in rows]
    return [memoryview(struct.pack("<Q", len(text)) + text), *data]

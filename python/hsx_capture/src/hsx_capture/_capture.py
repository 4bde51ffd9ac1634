"""The capture of states while a model runs."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from types import TracebackType
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hsx_capture import _layers
from hsx_capture._errors import CaptureError
from hsx_capture._file import DTYPES, Sample
from hsx_capture._find import find
from hsx_capture._http import Http
from hsx_capture._spool import Spool
from hsx_capture._taps import Offload, Rows, Taps
from hsx_capture._writer import Sink, Writer

Ints = torch.Tensor | npt.NDArray[np.integer] | Sequence[int]
IntRows = torch.Tensor | npt.NDArray[np.integer] | Sequence[Sequence[int]]

_LONGEST_ID = 4096  # bytes
_CONNECTIONS = 4  # a receiver answers when a sample is durable; others travel meanwhile


class Capture:
    """Captures states of some layers of a model, sample by sample, into a spool directory or a receiver.

    It is a context manager: the hooks are in the model inside its block, and the end of the block waits until every
    sample is kept. One thread runs the model and calls the methods.

    Args:
        model: a model of transformers, or the one inside a vLLM or SGLang process.
        layers: what to take, strictly increasing: integers, after "embedding" if the output of the embedding is wanted.
        convention: "post", where k is P_k, the output of decoder layer k, or "boundary", where k is its input.
        final: "post", the output of the final norm; "pre", its input; None for neither.
        to: "spool:DIR", or the "http://host:port" of an hsx serve.
        token: what the receiver asks for.
        dtype: of the stored states: bfloat16, float16 or float32. None keeps the model's.
        queue_bytes: host memory for samples that wait to be written; when it is full, sample waits.
        modules: names of all decoder layers, in order, for a model that keeps them where nobody looks.
        norm: name of the final norm, likewise.
        allow_embedding: let an integer name the embedding too (-1, or 0 in the convention "boundary").
        target: name of the model for the record; None takes it from the model.
        rank: of this process among those that hold the same states, as in tensor parallelism: all but 0 capture
            nothing. None takes it from torch.distributed. In data parallelism each has states of its own: pass 0.
        patience: seconds for which a receiver that does not answer is tried again.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[int | str],
        *,
        to: str,
        convention: Literal["post", "boundary"] = "post",
        final: Literal["post", "pre"] | None = None,
        token: str | None = None,
        dtype: torch.dtype | None = None,
        queue_bytes: int = 1 << 30,
        modules: Sequence[str] | None = None,
        norm: str | None = None,
        allow_embedding: bool = False,
        target: str | None = None,
        rank: int | None = None,
        patience: float = 600.0,
    ) -> None:
        if final not in ("post", "pre", None):
            raise CaptureError(f"final is {final!r}, want 'post', 'pre' or None")
        if dtype not in (None, torch.bfloat16, torch.float16, torch.float32):
            raise CaptureError(f"dtype is {dtype}, want bfloat16, float16, float32 or None")
        self._places = find(model, modules, norm, final is not None, target)
        self._layers = _layers.parse(layers, convention, len(self._places.layers), allow_embedding)
        if not self._layers and final is None:
            raise CaptureError("layers is empty and final is None: nothing would be captured")
        self._convention, self._final, self._to = convention, final, to
        self._sinks = _sinks(to, token, patience)
        self._queue_bytes = queue_bytes
        self._active = (_rank() if rank is None else rank) == 0
        names = [f"layer_{k}" for k in self._layers] + (["final"] if final else [])
        self._taps = Taps(names, self._places.target.hidden_size, Offload(dtype))
        self._hooks: list[RemovableHandle] = []
        self._writer: Writer | None = None

    def __enter__(self) -> Capture:
        """Put the hooks into the model."""
        if self._writer is not None:
            raise CaptureError("capture is entered already")
        self._writer = Writer(self._sinks if self._active else [], self._queue_bytes)
        if self._active:
            self._hooks = self._hook(self._places.layers, self._places.norm)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the hooks out, and wait until every sample is kept."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._taps.reset(keep=False)
        writer, self._writer = self._open(), None
        writer.close()
        writer.flush()

    def start(self) -> None:
        """Begin a sample that takes several forwards, such as a prefill in chunks: all until sample belong to it."""
        self._taps.reset(keep=True)

    def sample(self, id: str, input_ids: Ints, loss_mask: Ints | None = None) -> None:
        """Keep the states of the last forward, or of all since start, as one sample.

        input_ids and loss_mask are [tokens], with one row of states for each. When the queue is full this waits.
        """
        if self._active:
            tokens = _ints("input_ids", input_ids)
            tokens = tokens.squeeze(0) if tokens.ndim == 2 else tokens
            mask = None if loss_mask is None else _ints("loss_mask", loss_mask).reshape(-1)
            if tokens.ndim != 1:
                raise CaptureError(
                    f"input_ids has shape {list(tokens.shape)}, want [tokens]: batch takes several samples"
                )
            self._put([id], tokens[None], None if mask is None else mask[None], [(0, len(tokens))])

    def batch(
        self,
        ids: Sequence[str],
        input_ids: IntRows,
        attention_mask: IntRows | None = None,
        loss_masks: IntRows | None = None,
    ) -> None:
        """Keep the states of a batch, [samples, positions], as one sample each.

        attention_mask marks what is no padding, which may be on the left or on the right.
        """
        if self._active:
            tokens = _ints("input_ids", input_ids)
            if tokens.ndim != 2:
                raise CaptureError(f"input_ids has shape {list(tokens.shape)}, want [samples, positions]")
            real = torch.ones_like(tokens) if attention_mask is None else _ints("attention_mask", attention_mask)
            if real.shape != tokens.shape:
                raise CaptureError(f"attention_mask has shape {list(real.shape)}, input_ids {list(tokens.shape)}")
            masks = None if loss_masks is None else _ints("loss_masks", loss_masks)
            self._put(ids, tokens, masks, [_span(id, row) for id, row in zip(ids, real, strict=False)])

    def flush(self) -> None:
        """Wait until every sample so far is kept: on disk, or acknowledged by the receiver."""
        self._open().flush()

    def _hook(self, layers: list[nn.Module], norm: nn.Module | None) -> list[RemovableHandle]:
        taps, hooks = self._taps, []
        for k in self._layers:
            if k == _layers.EMBEDDING:  # what layer 0 reads: some models scale what the module of the embedding gives
                hooks.append(taps.hook_input(layers[0], f"layer_{k}", pairs=False))
            else:
                hooks.append(taps.hook_output(layers[k], f"layer_{k}", pairs=True))
        if norm is not None and self._final == "post":
            hooks.append(taps.hook_output(norm, "final", pairs=False))
        if norm is not None and self._final == "pre":
            hooks.append(taps.hook_input(norm, "final", pairs=True))
        return hooks

    def _put(
        self, ids: Sequence[str], tokens: torch.Tensor, masks: torch.Tensor | None, spans: list[tuple[int, int]]
    ) -> None:
        writer = self._open()
        writer.check()
        count, width = tokens.shape
        if len(ids) != count or len(set(ids)) != count:
            raise CaptureError(f"{len(ids)} ids, {len(set(ids))} of them different, for {count} samples")
        for id in ids:
            _check_id(id)
        if masks is not None and masks.shape != tokens.shape:
            raise CaptureError(f"loss mask has shape {list(masks.shape)}, input_ids {list(tokens.shape)}")
        if masks is not None and not bool(((masks >= 0) & (masks <= 255)).all()):
            raise CaptureError("loss mask holds values beyond 0 to 255")
        states = self._take(count, width)
        cost = sum(rows.data.nbytes for parts in states.values() for rows in parts) // count
        metadata = self._metadata(states)
        for i, (start, stop) in enumerate(spans):
            writer.put(
                Sample(
                    id=ids[i],
                    metadata={"hsx.id": ids[i], **metadata},
                    tokens=tokens[i, start:stop].clone(),
                    mask=None if masks is None else masks[i, start:stop].to(torch.uint8),
                    states={name: _cut(parts, i, start, stop) for name, parts in states.items()},
                    cost=cost,
                )
            )

    def _take(self, count: int, width: int) -> dict[str, list[Rows]]:
        """Return what the forwards gave, once it is sure that it is whole."""
        states = {name: list(parts) for name, parts in self._taps.rows.items()}
        runs = {name: len(parts) for name, parts in states.items()}
        if not any(runs.values()):
            raise CaptureError(
                "no forward has run since the last sample; compiled models and CUDA graphs run no hooks: use eager mode"
            )
        if len(set(runs.values())) > 1:
            raise CaptureError(f"a forward has failed or left layers out; forwards seen: {runs}")
        for name, parts in states.items():
            shapes = [tuple(rows.data.shape) for rows in parts]
            if any(rows.data.dtype not in DTYPES for rows in parts):
                raise CaptureError(f"{name} is {parts[0].data.dtype}: pass dtype= to store it in another")
            if any(shape[0] != count for shape in shapes) or sum(shape[1] for shape in shapes) != width:
                raise CaptureError(
                    f"{name} has {' + '.join(str(shape[1]) for shape in shapes)} rows in a batch of {shapes[0][0]},"
                    f" input_ids has {width} tokens in a batch of {count}: want a row for each token; a cached prefix"
                    " has none, nor has the last generated token; call start before a sample of several forwards"
                )
        self._taps.reset(keep=False)
        return states

    def _metadata(self, states: dict[str, list[Rows]]) -> dict[str, str]:
        target, data = self._places.target, next(iter(states.values()))[0].data
        facts = {
            "hsx.producer": "hsx_capture",
            "hsx.layers": _layers.describe(self._layers),
            "hsx.convention": self._convention,
            "hsx.norm": self._final,
            "hsx.dtype": str(data.dtype).removeprefix("torch."),
            "hsx.target": target.name,
            "hsx.target_layers": str(target.layers),
            "hsx.hidden_size": str(data.shape[-1]),
            "hsx.vocab_size": str(target.vocab_size) if target.vocab_size else None,
        }
        return {key: value for key, value in facts.items() if value is not None}

    def _open(self) -> Writer:
        if self._writer is None:
            raise CaptureError("capture is not entered: use it in a with statement")
        return self._writer


def _sinks(to: str, token: str | None, patience: float) -> Sequence[Sink]:
    if to.startswith("spool:") and len(to) > len("spool:"):
        return [Spool(to.removeprefix("spool:"))]
    if to.startswith(("http://", "https://")):
        return [Http(to, token, patience) for _ in range(_CONNECTIONS)]
    raise CaptureError(f"to is {to!r}, want 'spool:DIR', 'http://host:port' or 'https://host:port'")


def _rank() -> int:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _ints(name: str, values: Ints | IntRows) -> torch.Tensor:
    try:
        t = values.detach().cpu() if isinstance(values, torch.Tensor) else torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as e:
        raise CaptureError(f"{name}: {e}") from e
    if t.is_floating_point() or t.is_complex() or not t.numel():
        raise CaptureError(f"{name} has shape {list(t.shape)} and is {t.dtype}, want integers")
    return t.to(torch.int64)


def _span(id: str, real: torch.Tensor) -> tuple[int, int]:
    at = real.nonzero().reshape(-1).tolist()
    if not at or at[-1] - at[0] + 1 != len(at):
        raise CaptureError(f"attention_mask of sample {id!r} marks {len(at)} positions, want one run of at least 1")
    return at[0], at[-1] + 1


def _cut(parts: list[Rows], item: int, start: int, stop: int) -> list[Rows]:
    """Cut positions start to stop out of forwards that follow one another."""
    out, at = [], 0
    for rows in parts:
        n = rows.data.shape[1]
        if start < at + n and stop > at:
            out.append(rows.cut(item, max(start - at, 0), min(stop - at, n)))
        at += n
    return out


def _check_id(id: str) -> None:
    if not isinstance(id, str) or not id or len(id.encode(errors="replace")) > _LONGEST_ID:
        raise CaptureError(f"id is {id!r:.80}, want a string of 1 to {_LONGEST_ID} bytes")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in id):
        raise CaptureError(f"id {id!r} holds a control character")

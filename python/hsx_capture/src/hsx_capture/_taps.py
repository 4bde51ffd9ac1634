"""Hooks that take states while a model runs, and bring them into host memory behind its back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from hsx_capture._errors import CaptureError


@dataclass(frozen=True)
class Rows:
    """States in host memory, [samples, tokens, hidden size]. They are there once ready has happened."""

    data: torch.Tensor
    ready: torch.cuda.Event | None = None

    def cut(self, item: int, start: int, stop: int) -> Rows:
        """Return rows start to stop of one sample, [tokens, hidden size]."""
        return Rows(self.data[item, start:stop], self.ready)


class Offload:
    """Copies states to the host. On a GPU the copy goes into pinned memory, on a stream of its own."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def take(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> Rows:
        """Copy a state, or the sum of the two halves in which an engine hands it on.

        The sum is made in the model's dtype, as the norm that comes next makes it. That norm may write over the
        halves, so what leaves here is memory of its own.
        """
        state = hidden.detach().clone() if residual is None else hidden.detach() + residual.detach()
        state = state.to(self._dtype or state.dtype).contiguous()
        if state.ndim == 2:  # engines have no batch dimension
            state = state[None]
        if not state.is_cuda:
            return Rows(state.cpu())
        with torch.cuda.device(state.device):
            stream = self._streams.get(state.device) or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._streams[state.device] = stream
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                host = torch.empty(state.shape, dtype=state.dtype, pin_memory=True)
                host.copy_(state, non_blocking=True)
                state.record_stream(stream)
                return Rows(host, stream.record_event())


class Taps:
    """What the hooked modules gave in the last forward, or in every one since a sample was started.

    names are those of the tensors, in the order in which a forward comes by. hidden_size 0 is unknown.
    """

    def __init__(self, names: Sequence[str], hidden_size: int, offload: Offload) -> None:
        self.rows: dict[str, list[Rows]] = {name: [] for name in names}
        self._first, self._hidden_size, self._offload = names[0], hidden_size, offload
        self._keep = False

    def reset(self, keep: bool) -> None:
        """Forget what was taken; then keep every forward, or only the last."""
        self._keep = keep
        for rows in self.rows.values():
            rows.clear()

    def hook_output(self, module: nn.Module, name: str, pairs: bool) -> RemovableHandle:
        """Take what a module returns: a tensor, or the first of a tuple; with pairs, the residual beside it too."""

        def hook(_module: nn.Module, _args: Any, output: Any) -> None:  # noqa: ANN401
            self._put(name, output if isinstance(output, tuple | list) else [output], pairs)

        return module.register_forward_hook(hook)

    def hook_input(self, module: nn.Module, name: str, pairs: bool) -> RemovableHandle:
        """Take what a module is given, by position or name: its first tensor of floats, which positions are not."""

        def hook(_module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401
            given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor) and v.is_floating_point()]
            self._put(name, given, pairs)

        return module.register_forward_pre_hook(hook, with_kwargs=True)

    def _put(self, name: str, values: Sequence[Any], pairs: bool) -> None:
        state = values[0] if values else None
        if not isinstance(state, torch.Tensor):
            kinds = ", ".join(type(v).__name__ for v in values)
            raise CaptureError(f"{name}: its module hands on ({kinds}), want a tensor first")
        if state.ndim not in (2, 3) or self._hidden_size not in (0, state.shape[-1]):
            size = self._hidden_size or "hidden size"
            raise CaptureError(
                f"{name} has shape {list(state.shape)}, want [samples, tokens, {size}] or [tokens, {size}]"
            )
        if getattr(state, "_sglang_needs_allreduce_fusion", False):
            raise CaptureError(f"{name} is not summed over the ranks yet: turn SGLang's all-reduce fusion off")
        second = values[1] if pairs and len(values) > 1 else None
        residual = second if isinstance(second, torch.Tensor) and second.shape == state.shape else None
        if name == self._first and not self._keep:
            self.reset(keep=False)
        self.rows[name].append(self._offload.take(state, residual))

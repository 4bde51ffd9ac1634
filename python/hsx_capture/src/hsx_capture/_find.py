"""Where a model keeps its decoder layers and its final norm, and what its configuration says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from hsx_capture._errors import CaptureError

# How the names of lists of decoder layers end, as Hugging Face, vLLM and SGLang have them. A model that is wrapped
# has something before.
_LISTS = (
    "model.layers",
    "language_model.layers",
    "decoder.layers",
    "backbone.layers",
    "gpt_neox.layers",
    "transformer.h",
    "transformer.blocks",
    "transformer.encoder.layers",
)
_BARE = ("layers", "h")  # of a model without its head
_NORMS = ("norm", "ln_f", "norm_f", "final_layer_norm", "final_layernorm", "final_norm")


@dataclass(frozen=True)
class Target:
    """What is known of the model; 0 and None are unknown."""

    name: str
    layers: int
    hidden_size: int
    vocab_size: int


@dataclass(frozen=True)
class Places:
    """The modules to hook."""

    layers: list[nn.Module]
    norm: nn.Module | None
    target: Target


def find(
    model: nn.Module, modules: Sequence[str] | None, norm: str | None, want_norm: bool, name: str | None
) -> Places:
    """Find the decoder layers, by known names or as modules names them all, and the final norm if it is wanted."""
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):  # of a model that also sees or hears
        text = config.get_text_config(decoder=True)
    else:
        text = getattr(config, "text_config", None) or config
    count = getattr(text, "num_hidden_layers", None) or 0
    if modules is None:
        parent, layers = _known(model)
        where = f"{parent}.* holds" if parent else "the model holds"
    else:
        parent, layers = None, [_module(model, m) for m in modules]
        where = "modules names"
        if len(set(modules)) != len(modules):
            raise CaptureError(f"modules names a layer twice: {', '.join(modules)}")
    if count and len(layers) != count:
        raise CaptureError(f"{where} {len(layers)} decoder layers, but config.num_hidden_layers is {count}")
    found = None
    if norm is not None:
        found = _module(model, norm)
    elif want_norm:
        if parent is None:
            raise CaptureError("final is asked for and modules does not say where the norm is: name it with norm=")
        found = _norm(model, parent)
    return Places(
        layers,
        found,
        Target(
            name=name or getattr(config, "_name_or_path", "") or type(model).__name__,
            layers=len(layers),
            hidden_size=getattr(text, "hidden_size", None) or 0,
            vocab_size=getattr(text, "vocab_size", None) or 0,
        ),
    )


def _known(model: nn.Module) -> tuple[str, list[nn.Module]]:
    lists = {n: m for n, m in model.named_modules() if isinstance(m, nn.ModuleList | nn.Sequential)}
    hits = [n for n in lists if n in _BARE or any(("." + n).endswith("." + known) for known in _LISTS)]
    if len(hits) != 1:
        seen = ", ".join(f"{n} ({len(lists[n])} modules)" for n in hits or lists) or "no list of modules at all"
        what = "several lists may be the decoder layers" if hits else "no list of decoder layers has a known name"
        raise CaptureError(f"{what}: {seen}; name each layer, in order, with modules=[...]")
    return hits[0].rpartition(".")[0], list(lists[hits[0]])


def _norm(model: nn.Module, parent: str) -> nn.Module:
    children = dict(model.get_submodule(parent).named_children())
    hits = [n for n in _NORMS if n in children]
    if len(hits) != 1:
        raise CaptureError(
            f"{parent or 'the model'} has {' and '.join(hits) or 'no module with the name of a final norm'}"
            f" (seen: {', '.join(children)}); name the final norm with norm="
        )
    return children[hits[0]]


def _module(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        children = ", ".join(n for n, _ in model.named_children())
        raise CaptureError(f"the model has no module {name!r}; its own are {children}") from None

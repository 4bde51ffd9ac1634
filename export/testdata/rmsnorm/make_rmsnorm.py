#!/usr/bin/env python3
"""Write the golden files of the final norm: rows, weight, and what the modules of
transformers make of them on a CPU.

    python make_rmsnorm.py OUTDIR

Made with torch 2.13.0 and transformers 5.19.0 on x86-64, where torch adds in vectors of
8 floats with and without AVX-512. Another kind of processor rounds differently.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nRMSNorm
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

EPS = 1e-5
MODULES = {"llama": LlamaRMSNorm, "gemma": GemmaRMSNorm, "gemma3n": Gemma3nRMSNorm, "gpt_oss": GptOssRMSNorm}
# Around the sizes at which the order of torch's sums changes: a vector (8), a block (32),
# a level (512), a level of levels (8192); and hidden sizes of real models.
WIDTHS = {"bfloat16": (8, 9, 31, 32, 33, 64, 511, 512, 513, 544, 8193), "float16": (8, 33, 64, 513, 576), "float32": (8, 33, 64, 513, 576)}


def rows(gen, width, dtype):
    """Rows as models have them: channels of different sizes, one of them massive; then
    a row of small numbers, where the epsilon counts, and one of zeros."""
    scale = torch.exp(1.5 * torch.randn(width, generator=gen))
    x = torch.randn(4, width, generator=gen) * scale
    x[0, width // 2] = 300.0
    x[2] *= 1e-4
    x[3] = 0
    return x[: 4 if width < 1000 else 1].to(dtype)


def main(out):
    for name, widths in WIDTHS.items():
        dtype, gen, tensors = getattr(torch, name), torch.Generator().manual_seed(7), {}
        for width in widths:
            x = rows(gen, width, dtype)
            stored = 0.1 + torch.rand(width, generator=gen)  # as a checkpoint in float32 has it
            tensors["x_%d" % width], tensors["weight_%d" % width] = x, stored
            for family, module in MODULES.items():
                m = module(width, eps=EPS)
                # The model is loaded in the states' type; gpt-oss keeps its norms in float32.
                m.weight.data = stored if family == "gpt_oss" else stored.to(dtype)
                tensors["%s_%d" % (family, width)] = m(x).detach()
                assert tensors["%s_%d" % (family, width)].dtype == dtype
            # torch's own module multiplies before it rounds.
            own = torch.nn.RMSNorm(width, eps=EPS)
            own.weight.data = stored.to(dtype)
            assert torch.equal(own(x), tensors["gemma3n_%d" % width])
        save_file(tensors, os.path.join(out, name + ".safetensors"))


if __name__ == "__main__":
    main(sys.argv[1])

"""Writes the torch_* files of this directory. Run in it, with torch 2.15:

    python make_goldens.py

Tensor values are 0, 1, 2, ... in row-major order of the logical shape, so that the
tests can tell right from wrong without a second copy of the values.
"""
import torch
from collections import OrderedDict


def arange(*shape, dtype=torch.float32):
    n = 1
    for d in shape:
        n *= d
    return torch.arange(n).to(dtype).reshape(shape)


torch.manual_seed(0)
names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
         "uint16", "uint32", "uint64"]
torch.save({n: arange(2, 2).to(getattr(torch, n)) for n in names}, "torch_dtypes.pt")

pair = arange(3, 4, 2, dtype=torch.bfloat16)  # as two states of [3, 2] and [3, 6] in one storage
torch.save({
    "tail": pair[:, 3], "head": pair[:, :3].flatten(1), "offset": pair[1:],
    "transposed": arange(4, 3).t().contiguous().t(),
    "steps": torch.stack([arange(5), -arange(5)], 1)[:, 0],
    "scalar": torch.tensor(7), "empty": torch.empty(0), "empty2": torch.empty(0, 5, dtype=torch.bfloat16),
    "one": arange(4, 1, 3)[:, 0:1],
}, "torch_views.pt")
torch.save({"m": torch.arange(3).expand(2, 3), "s": torch.ones(1).expand(4)}, "torch_broadcast.pt")

shared = [1, 2]
torch.save([{
    "none": None, "true": True, "int": -70000, "long": 1 << 40, "minus": -(1 << 63), "float": 0.5, "text": "héllo",
    "tuple": (1, ("a",)), "size": torch.Size([2, 3]), "device": torch.device("cuda", 1), "cpu": torch.device("cpu"),
    "dtype": torch.bfloat16, "ordered": OrderedDict(a=1), "list": [arange(2), arange(3)], "again": [shared, shared],
    "parameter": torch.nn.Parameter(arange(2)), "storage": arange(3).storage(), "untyped": arange(2, dtype=torch.uint8).untyped_storage(),
}], "torch_values.pt")

# What Encode can write. No string comes twice as one object: CPython would write a reference.
torch.save({
    "none": None, "yes": True, "no": False, "text": "héllo", "nothing": "", "half": 0.5,
    "ints": [0, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63 - 1, -128 << 32, -(2**63)],
    "states": arange(1, 2, 3, 2, dtype=torch.bfloat16), "scalar": torch.tensor(7), "row": arange(1, 3),
    "empty": torch.empty(0), "hollow": torch.empty(2, 0, 3, dtype=torch.int32),
    "one": [1], "empties": [[], {}], "dict": {"only": {"first": 1, "second": arange(2).to(torch.uint16)}},
    "many": list(range(2001)), "strings": [f"string {i}" for i in range(200)],
    "late": arange(2, dtype=torch.float64), "later": arange(3, dtype=torch.float64), "latest": arange(2).to(torch.uint16),
}, "torch_plain.pt")

layer = torch.nn.Linear(2, 1)
torch.nn.init.ones_(layer.weight), torch.nn.init.zeros_(layer.bias)
torch.save(layer.state_dict(), "torch_state_dict.pt")
torch.save({1: arange(2)}, "torch_int_key.pt")
torch.save({"x": arange(2).to(torch.float8_e4m3fn)}, "torch_float8.pt")
torch.save({"x": torch.ones(2, dtype=torch.complex64)}, "torch_complex.pt")
torch.save({"x": torch.ones(2, dtype=torch.complex64).conj().imag}, "torch_negative_bit.pt")
torch.save({"x": torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)}, "torch_quantised.pt")
torch.save({"x": arange(2)}, "torch_legacy.pt", _use_new_zipfile_serialization=False)
torch.save({"x": 1}, "torch_protocol4.pt", pickle_protocol=4)
torch.serialization.set_crc32_options(False)
torch.save({"x": arange(2)}, "torch_no_crc.pt")

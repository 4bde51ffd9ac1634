"""The directory, and what a kill leaves in it."""

import hashlib
import os
import signal
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch
from conftest import Toy, load

import hsx_capture
from hsx_capture._spool import file_name

IDS = [
    "a",
    "A b",
    "a/b",
    "a%2Fb",
    "..",
    ".",
    ".a",
    "../../x",
    "é",
    "x" * 200,
    "x" * 201,
    "x" * 4000,
    "é" * 2000,
    "~",
    "CON",
]


def test_names_are_safe_and_different(tmp_path):
    model = Toy()
    with hsx_capture.Capture(model, [1], to=f"spool:{tmp_path}/deep/dir") as cap:
        for i, id in enumerate(IDS):
            model(torch.full((1, 8), float(i)))
            cap.sample(id, [i])
    files = list((tmp_path / "deep/dir").iterdir())
    got = {}
    for path in files:
        tensors, metadata = load(path)
        got[metadata["hsx.id"]] = int(tensors["input_ids"])
        assert not path.name.startswith(".")
        assert len(path.name) <= 220
    assert got == {id: i for i, id in enumerate(IDS)}
    assert len(list(tmp_path.rglob("*"))) == len(IDS) + 2


def test_names_stay_as_they_are():
    """A later version has to find what an earlier one wrote."""
    assert file_name("conv-0001_b.c~") == "conv-0001_b.c~.safetensors"
    assert file_name("a/b c%") == "a%2Fb%20c%25.safetensors"
    assert file_name(".x") == "%2Ex.safetensors"
    digest = hashlib.sha256(b"y" * 201).hexdigest()
    assert file_name("y" * 201) == "y" * 134 + "%-" + digest + ".safetensors"


def test_the_same_sample_again(tmp_path):
    model = Toy()

    def take(value):
        with hsx_capture.Capture(model, [1], to=f"spool:{tmp_path}") as cap:
            model(torch.full((1, 8), value))
            cap.sample("a", [1], [1])

    take(1.0)
    before = (tmp_path / "a.safetensors").read_bytes()
    take(1.0)
    with pytest.raises(hsx_capture.RefusedError, match=r"'a': .*a.safetensors exists and has other content") as e:
        take(2.0)
    assert e.value.ids == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
    assert (tmp_path / "a.safetensors").read_bytes() == before


def test_the_bytes_are_those_of_the_library(tmp_path):
    """Apart from the order of the header, which is free."""
    model = Toy()
    with hsx_capture.Capture(model, [0, 3], final="post", to=f"spool:{tmp_path}", dtype=torch.bfloat16) as cap:
        model(torch.randn(5, 8))
        cap.sample("é", range(5), [0, 0, 1, 1, 1])
    (path,) = tmp_path.iterdir()
    tensors, metadata = load(path)
    again = safetensors.torch.save(tensors, metadata)
    assert len(again) == path.stat().st_size
    assert safetensors.torch.load(again).keys() == tensors.keys()


def test_what_fails_leaves_nothing(tmp_path, monkeypatch):
    model = Toy()

    def no(*_):
        raise OSError(28, "No space left on device")

    def take():
        with hsx_capture.Capture(model, [1], to=f"spool:{tmp_path}") as cap:
            model(torch.zeros(1, 8))
            cap.sample("a", [1])

    for call in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, call, no)
            with pytest.raises(hsx_capture.CaptureError, match=r"'a': .*No space left on device; 1 samples are not"):
                take()
        assert not list(tmp_path.iterdir())
    take()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        hsx_capture.Capture(model, [1], to=f"spool:{tmp_path}/file")


SCRIPT = """
import sys, torch, hsx_capture
model = torch.nn.Module()
model.layers = torch.nn.ModuleList([torch.nn.Identity()])
with hsx_capture.Capture(model, [0], to="spool:" + sys.argv[1], queue_bytes=1 << 22) as cap:
    for i in range(100000):
        model.layers[0](torch.full((1000, 8), float(i)))
        cap.sample(str(i), [i] * 1000)
        if i % 8 == 7:
            cap.flush()
            print(i, flush=True)
"""


def test_kill(tmp_path):
    """Whatever has its name is whole, and what was flushed is there."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for round in range(4):
        out = tmp_path / str(round)
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, out], stdout=subprocess.PIPE, env=env)
        with process:
            kept = int(process.stdout.readline())
            time.sleep(0.03 * round)
            process.send_signal(signal.SIGKILL)
            kept = max([kept, *map(int, process.stdout.read().split(b"\n")[:-1])])
        files = [p for p in out.iterdir() if not p.name.startswith(".")]
        for path in files:
            tensors, metadata = load(path)
            i = int(metadata["hsx.id"])
            assert path.name == f"{i}.safetensors"
            assert tensors["input_ids"].tolist() == [i] * 1000
            assert torch.equal(tensors["layer_0"], torch.full((1000, 8), float(i)))
        assert {f"{i}.safetensors" for i in range(kept + 1)} <= {p.name for p in files}
        assert len(list(out.iterdir())) - len(files) <= 1

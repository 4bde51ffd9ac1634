"""What hsx ingest makes of a spool."""

import json
import subprocess

import pyarrow as pa
import torch
from conftest import COMMAND

import hsx_capture


def ingest(*args):
    done = subprocess.run([COMMAND, "ingest", "--json", *args], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def rows(directory):
    """Yield the rows of a dataset, states as int16 tensors."""
    for path in sorted((directory / "shards").glob("*.arrow")):
        with pa.memory_map(str(path)) as f:
            for batch in pa.ipc.open_file(f).read_all().to_batches():
                yield from batch.to_pylist()


def test_values(truth, tmp_path):
    with hsx_capture.Capture(truth.model, ["embedding", 0, 2, 3], final="post", to=f"spool:{tmp_path}/spool") as cap:
        for text in truth.texts:
            with torch.inference_mode():
                truth.model(text.tokens[None])
            cap.sample(f"{text.id}/é", text.tokens, text.mask)
    result = ingest("--out", tmp_path / "ds", tmp_path / "spool")
    assert (result["samples"], result["producers"]) == (len(truth.texts), {"hsx": len(truth.texts)})
    manifest = json.loads((tmp_path / "ds/manifest.json").read_text())
    assert [s["column"] for s in manifest["states"]] == ["layer_-1", "layer_0", "layer_2", "layer_3", "final"]
    assert [s["dtype"] for s in manifest["states"]] == ["bfloat16"] * 5
    assert manifest["states"][-1]["norm"] == "post"
    assert {k: manifest["target"][k] for k in ("layers", "hidden_size", "vocab_size")} == {
        "layers": 5,
        "hidden_size": 64,
        "vocab_size": 512,
    }
    got = {row["id"]: row for row in rows(tmp_path / "ds")}
    for text in truth.texts:
        row = got.pop(f"{text.id}/é")
        assert row["input_ids"] == text.tokens.tolist()
        assert row["loss_mask"] == text.mask.tolist()
        for column, name in (
            ("layer_-1", "P-1"),
            ("layer_0", "P0"),
            ("layer_2", "P2"),
            ("layer_3", "P3"),
            ("final", "N"),
        ):
            assert row[column] == text.states[name].view(torch.uint16).tolist(), (text.id, column)
    assert not got


def test_flags_do_not_overrule(truth, tmp_path):
    """What the files say of themselves stands; a flag that says otherwise is refused."""
    text = truth.texts[3]
    with hsx_capture.Capture(truth.model, [0, 2], final="pre", to=f"spool:{tmp_path}/spool") as cap:
        with torch.inference_mode():
            truth.model(text.tokens[None])
        cap.sample("a", text.tokens)
    for i, flags in enumerate((["--final", "post"], ["--layers", "1,3"])):
        done = subprocess.run(
            [COMMAND, "ingest", "--json", "--out", tmp_path / f"ds{i}", *flags, tmp_path / "spool"],
            capture_output=True,
        )
        assert done.returncode == 3, done.stderr
    assert (
        ingest("--out", tmp_path / "ds", "--layers", "1,3", "--convention", "boundary", tmp_path / "spool")["samples"]
        == 1
    )

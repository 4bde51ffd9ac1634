import contextlib
import json
import shutil
import sys

import pyarrow as pa
import pytest
import xxhash
from conftest import ingest

import hsx


@pytest.fixture
def copy(eagle3, tmp_path):
    return shutil.copytree(eagle3, tmp_path / "ds")


def rewrite(directory, change, seal=True):
    """Change the manifest as a program that knows the format could."""
    path = directory / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    del document["xxh3"]
    path.write_bytes(sealed(document, seal))


def sealed(document, seal=True):
    body = json.dumps(document, indent=2).removesuffix("\n}").encode()
    digest = xxhash.xxh3_128(body).hexdigest() if seal else "0" * 32
    return body + f',\n  "xxh3": "{digest}"\n}}\n'.encode()


def test_a_newer_format_is_refused_by_name(copy):
    rewrite(copy, lambda m: m.update(version=7, states="of another kind"), seal=False)
    for verify in (False, "samples"):
        with pytest.raises(hsx.VersionError, match="format version 7, this package reads up to 2"):
            hsx.open(copy, verify=verify)


def test_what_is_no_dataset(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(hsx.HsxError, match="it is no dataset"):
            hsx.open(path)


CHANGES = {
    "another format": lambda m: m.update(format="other"),
    "version 0": lambda m: m.update(version=0),
    "version of another type": lambda m: m.update(version="1"),
    "no states": lambda m: m.update(states=[]),
    "states of another type": lambda m: m.update(states=7),
    "dtype unknown": lambda m: m["states"][0].update(dtype="int4"),
    "hidden size of another type": lambda m: m.update(hidden_size="64"),
    "rows": lambda m: m.update(rows=m["rows"] + 1),
    "tokens of a shard": lambda m: m["shards"][0].update(tokens=0),
    "no rows": lambda m: m["shards"][0].update(rows=0),
    "a path": lambda m: m["shards"][0].update(name="../shards/000000.arrow"),
    "a path in version 2": lambda m: (m.update(version=2), m["shards"][0].update(name="../shards/000000.arrow")),
    "a name of version 2": lambda m: m["shards"][0].update(name="000000-ab.arrow"),
    "a name twice": lambda m: (m.update(version=2), [s.update(name="000000.arrow") for s in m["shards"]]),
    "no digest": lambda m: m["shards"][0].pop("head"),
    "a list": lambda m: m.update(inputs=[]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_manifest_that_contradicts_itself(copy, change):
    rewrite(copy, CHANGES[change])
    with pytest.raises(hsx.CorruptError, match=r"manifest\.json: "):
        hsx.open(copy)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100000, '{"format": "hsx"}', "\xff"])
def test_a_manifest_that_is_none(copy, text):
    (copy / "manifest.json").write_text(text, "latin-1")
    with pytest.raises(hsx.CorruptError, match=r"manifest\.json: "):
        hsx.open(copy)


def test_the_seal(copy):
    path = copy / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"layer": 2', b'"layer": 1'))
    assert hsx.open(copy).layers == [0, 1, 3]  # nobody asked
    for verify in ("manifest", "files", "samples"):
        with pytest.raises(hsx.CorruptError, match=r"manifest\.json: .*it was changed"):
            hsx.open(copy, verify=verify)


def test_a_schema_that_differs_from_the_manifest(copy):
    for change in (
        lambda m: m["states"][3].update(norm="pre"),
        lambda m: m["states"][0].update(dtype="float16"),
        lambda m: m["states"][0].update(column="layer_1", layer=1),
        lambda m: m.update(hidden_size=32),
    ):
        before = (copy / "manifest.json").read_bytes()
        rewrite(copy, change)
        with pytest.raises(hsx.CorruptError, match=r"shards/000000\.arrow: has the columns"):
            hsx.open(copy)[0]
        (copy / "manifest.json").write_bytes(before)


def test_columns_that_differ_in_length(copy):
    path = copy / "shards/000000.arrow"
    table = pa.ipc.open_file(path).read_all()
    for column, message in (("loss_mask", "differ in length from its 1 ids"), ("layer_2", "differ in length from")):
        k = table.schema.get_field_index(column)
        longer = pa.array([v + v for v in table[column].to_pylist()], table.schema.field(k).type)
        with pa.ipc.new_file(path, table.schema) as f:
            f.write_table(table.set_column(k, table.schema.field(k), longer))
        rewrite(copy, lambda m: m["shards"][0].update(bytes=path.stat().st_size))
        with pytest.raises(hsx.CorruptError, match=rf"shards/000000\.arrow: row 0: its columns {message}"):
            hsx.open(copy)[0]


def test_more_rows_than_the_manifest_says(copy):
    def change(m):
        m["shards"][1]["rows"] += 1
        m["rows"] += 1

    first = hsx.open(copy).manifest["shards"][0]["rows"]
    rewrite(copy, change)
    with pytest.raises(hsx.CorruptError, match=r"shards/000001\.arrow: has \d+ rows, the manifest calls for \d+"):
        hsx.open(copy)[first]


def test_changed_arrow_metadata_is_told_apart(copy):
    path = copy / "shards/000000.arrow"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"layer_2", b"layer_1", 1))
    with pytest.raises(hsx.CorruptError, match=r"shards/000000\.arrow: Arrow metadata was changed"):
        hsx.open(copy, verify="samples")[0]


def test_a_file_that_is_cut_missing_or_longer(copy):
    shard = copy / "shards/000001.arrow"
    data = shard.read_bytes()
    first = hsx.open(copy).manifest["shards"][0]["rows"]
    for broken in (data[:-1], data[:100], b"", data + b"\0"):
        shard.write_bytes(broken)
        with pytest.raises(hsx.CorruptError, match=r"shards/000001\.arrow: .*"):
            hsx.open(copy)[first]
        assert hsx.open(copy)[0]["id"]  # another shard
    shard.unlink()
    with pytest.raises(hsx.CorruptError, match=r"shards/000001\.arrow: "):
        hsx.open(copy)[first]
    with pytest.raises(hsx.CorruptError, match=r"shards/000001\.arrow: is missing"):
        hsx.open(copy, verify="files")


def test_a_file_that_cannot_be_read_is_no_damage(copy, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    ds = hsx.open(copy)
    monkeypatch.setattr("mmap.mmap", refuse)
    with pytest.raises(PermissionError):
        ds[0]


def test_journals_are_files_too(copy):
    path = copy / "inputs.jsonl"
    data = path.read_bytes()
    path.write_bytes(data + b"of a commit that never was\n")
    hsx.open(copy, verify="files")
    for broken in (data[:-1], data.replace(b"data_1", b"data_7")):
        path.write_bytes(broken)
        with pytest.raises(hsx.CorruptError, match=r"inputs\.jsonl: has "):
            hsx.open(copy, verify="files")


def test_without_xxhash_a_check_fails(eagle3, monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert len(hsx.open(eagle3)[0]["input_ids"])
    for verify in ("manifest", "files", "samples"):
        with pytest.raises(hsx.HsxError, match="xxhash is not installed"):
            hsx.open(eagle3, verify=verify)


def test_verify_is_one_of_four(eagle3):
    with pytest.raises(hsx.HsxError, match="verify is True, want False, 'manifest', 'files' or 'samples'"):
        hsx.open(eagle3, verify=True)


def content(ds):
    return [{k: v if isinstance(v, str) else v.tobytes() for k, v in s.items()} for s in ds]


def test_every_changed_byte(tmp_path, fixtures):
    """No changed byte is returned when samples are checked, none goes unseen when files are, and none is fatal."""
    (tmp_path / "dumps").mkdir()
    shutil.copy(fixtures / "dumps/specforge_eagle3/rows_0-2000/data_1.ckpt", tmp_path / "dumps")
    ds = ingest(tmp_path / "ds", "--layers", "0,2,3", tmp_path / "dumps")
    want, shard = content(hsx.open(ds)), ds / "shards/000000.arrow"
    data = bytearray(shard.read_bytes())
    harmless = 0
    for i in range(len(data)):
        data[i] ^= 1 << i % 8
        shard.write_bytes(data)
        data[i] ^= 1 << i % 8
        with pytest.raises(hsx.CorruptError):
            hsx.open(ds, verify="files")
        try:
            assert content(hsx.open(ds, verify="samples")) == want, f"byte {i}"
            harmless += 1  # of the padding, or of the footer
        except hsx.CorruptError:
            pass
        with contextlib.suppress(hsx.CorruptError):
            content(hsx.open(ds))
    assert 0 < harmless < len(data) / 2

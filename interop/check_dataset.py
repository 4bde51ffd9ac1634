"""Reads a dataset that hsx wrote with the libraries that its users have, and compares it with known answers.

    python check_dataset.py DATASET --fixtures DIR --dump ID

FIXTURES holds dumps/INDEX.json (for each dump its samples and the SHA-256 of the bytes of each layer) and
expected/samples.json (token ids and loss masks). ID names the dump that the dataset was made from.

pyarrow, datasets, DuckDB and polars each open the shards in their own way; what each of them saw must be the
same, bit for bit. The digest of a row is recomputed from what was read: XXH3-128 of input_ids and then each
state column in order, as little-endian bytes. Nothing here is skipped: a library that is missing ends the run.
"""
import argparse
import hashlib
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # before datasets is imported: it must not look for a network

import datasets
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute
import xxhash

LONG = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
STORED = {"bf16": pa.uint16(), "fp16": pa.float16(), "fp32": pa.float32()}  # Arrow has no bfloat16
ARRAY = {"bf16": "<u2", "fp16": "<f2", "fp32": "<f4"}


class Bad(Exception):
    """What was read differs from what was written."""


def need(ok, message):
    if not ok:
        raise Bad(message)


class Answer:
    """What must come out of one dump."""

    def __init__(self, fixtures, dump):
        with open(os.path.join(fixtures, "dumps", "INDEX.json")) as f:
            index = json.load(f)
        with open(os.path.join(fixtures, "expected", "samples.json")) as f:
            samples = json.load(f)["samples"]
        found = [d for d in index["dumps"] if d["id"] == dump]
        need(found, f"no dump {dump!r} in dumps/INDEX.json")
        entry, self.hidden, self.dtype = found[0], index["hidden_size"], found[0]["dtype"]
        self.states = {f"layer_{name[1:]}": name for name in entry["aux_layers"]}
        self.norm = None
        if entry["final"]:
            self.states["final"], self.norm = entry["final"]["layer"], entry["final"]["norm"]
        self.rows = {}
        for s in entry["samples"]:
            known, n = samples[s["id"]], s["rows"]
            mask = None if entry["loss_mask"] == "absent" else known["loss_mask"][:n]
            self.rows[tuple(known["tokens"][:n])] = (s["id"], mask, s["sha256"])

    def columns(self):
        return ["id", "source", "input_ids", "loss_mask", *self.states, "digest"]


def shards(dataset):
    """The files that the manifest lists, which must be those that are there."""
    with open(os.path.join(dataset, "manifest.json")) as f:
        manifest = json.load(f)
    listed, todo = set(), [manifest]
    while todo:
        v = todo.pop()
        if isinstance(v, (dict, list)):
            todo += v.values() if isinstance(v, dict) else v
        elif isinstance(v, str) and v.endswith(".arrow"):
            listed.add(os.path.basename(v))
    there = {name for name in os.listdir(os.path.join(dataset, "shards")) if name.endswith(".arrow")}
    need(listed == there, f"manifest lists {sorted(listed)}, shards/ has {sorted(there)}")
    need(listed, "dataset has no shard")
    return [os.path.join(dataset, "shards", name) for name in sorted(listed)]


def with_pyarrow(paths, answer):
    table = pa.concat_tables([pa.ipc.open_file(pa.memory_map(p)).read_all() for p in paths])
    table.validate(full=True)
    return table


def with_datasets(paths, answer):
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        ds = datasets.load_dataset("arrow", data_files=paths, split="train", cache_dir=cache)
        return ds.with_format("arrow")[:]


def with_duckdb(paths, answer):
    shard_table = with_pyarrow(paths, answer)
    if answer.dtype == "fp16":  # DuckDB has no half floats; single ones hold each of them
        single = pa.list_(pa.list_(pa.float32(), answer.hidden))
        for name in set(answer.states) & set(shard_table.column_names):
            i = shard_table.schema.get_field_index(name)
            shard_table = shard_table.set_column(i, name, shard_table[name].cast(single))
    con = duckdb.connect()
    con.register("shard_table", shard_table)
    return con.sql("SELECT * FROM shard_table").to_arrow_table()


def with_polars(paths, answer):
    return polars.concat([polars.read_ipc(p) for p in paths]).to_arrow()


def check_halves(schema, answer):
    """Of a compressed dataset: the columns of a state's halves, and what their fields say."""
    for name in answer.states:
        for half in (f"{name}.hi", f"{name}.lo"):
            field = schema.field(half)
            need(plain(field.type) == f"list<fixed_size_list<uint8>[{answer.hidden}]>", f"column {half} is {field.type}")
            meta = {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}
            want = {"hsx.dtype": LONG[answer.dtype], "hsx.turned": "left by 1"}
            need(want.items() <= meta.items(), f"column {half} says {meta}, want {want}")


def whole(table, answer):
    """The table with its states whole, where they are in halves."""
    if answer.dtype == "fp32" or f"{next(iter(answer.states))}.hi" not in table.column_names:
        return table
    table = table.combine_chunks()
    for name in answer.states:
        hi, lo = (table[f"{name}.{half}"].combine_chunks() for half in ("hi", "lo"))
        v = values(hi).astype(np.uint16) << 8 | values(lo)
        bits = v >> 1 | v << 15
        if answer.dtype == "fp16":
            bits = bits.view(np.float16)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(bits), answer.hidden)
        ends = np.concatenate([[0], np.cumsum(pa.compute.list_value_length(hi).to_numpy())])
        table = table.drop_columns([f"{name}.hi", f"{name}.lo"])
        table = table.append_column(name, pa.ListArray.from_arrays(pa.array(ends, pa.int32()), rows))
    return table


def values(column):
    """The values of a column of lists of rows, flat."""
    return column.flatten().flatten().to_numpy(zero_copy_only=False)


def check_schema(schema, answer):
    need(schema.names == answer.columns(), f"columns are {schema.names}, want {answer.columns()}")
    state = f"list<fixed_size_list<{STORED[answer.dtype]}>[{answer.hidden}]>"
    types = {"id": "string", "source": "string", "input_ids": "list<int32>", "loss_mask": "list<uint8>",
             "digest": "fixed_size_binary[16]", **{name: state for name in answer.states}}
    for field in schema:
        got = plain(field.type)
        need(got == types[field.name], f"column {field.name} is {got}, want {types[field.name]}")
        meta = {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}
        if field.name in answer.states:
            want = LONG[answer.dtype]
            got = meta.get("hsx.dtype", "nothing" if answer.dtype == "bf16" else want)
            need(got == want, f"column {field.name} says hsx.dtype {got}, want {want}")
        if field.name == "final":
            got = meta.get("hsx.norm", "nothing")
            need(got in (answer.norm, "unknown"), f"column final says hsx.norm {got}, want {answer.norm}")


def plain(t):
    """A type without the names of list items, which are the writer's choice."""
    if pa.types.is_fixed_size_list(t):
        return f"fixed_size_list<{plain(t.value_type)}>[{t.list_size}]"
    return f"list<{plain(t.value_type)}>" if pa.types.is_list(t) else str(t)


def state_bytes(scalar, answer):
    """The [rows, hidden] bytes of one state, and rows. Values of a slice, never of its whole parent."""
    rows = scalar.values
    flat = rows.flatten().to_numpy(zero_copy_only=False).astype(ARRAY[answer.dtype], copy=False)
    return np.ascontiguousarray(flat).tobytes(), len(rows)


def check_rows(table, answer):
    left = dict(answer.rows)
    need(table.num_rows == len(left), f"{table.num_rows} rows, want {len(left)}")
    ids = table["id"].to_pylist()
    need(all(ids) and len(set(ids)) == len(ids), f"ids are not unique: {ids}")
    for i in range(table.num_rows):
        source = table["source"][i].as_py()
        need(source and not os.path.isabs(source) and ".." not in source.split("/"), f"{ids[i]}: source {source!r} is not a relative path")
        tokens = table["input_ids"][i].as_py()
        need(tuple(tokens) in left, f"{ids[i]}: input_ids {tokens[:8]}… belong to no sample that is still expected")
        sample, mask, sums = left.pop(tuple(tokens))
        got = table["loss_mask"][i].as_py()
        need(got == mask, f"{ids[i]}: loss_mask of {sample} is {got}, want {mask}")
        digest = xxhash.xxh3_128(np.array(tokens, "<i4").tobytes())
        for column, layer in answer.states.items():
            data, rows = state_bytes(table[column][i], answer)
            need(rows == len(tokens), f"{ids[i]}: {column} has {rows} rows for {len(tokens)} tokens")
            got = hashlib.sha256(data).hexdigest()
            need(got == sums[layer], f"{ids[i]}: {column} of {sample} has SHA-256 {got}, want {sums[layer]} of {layer}")
            digest.update(data)
        stored = table["digest"][i].as_py()
        need(stored == digest.digest(), f"{ids[i]}: digest is {stored.hex()}, want {digest.hexdigest()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--fixtures", required=True)
    parser.add_argument("--dump", required=True)
    parser.add_argument("--compressed", action="store_true", help="the dataset is a compressed one")
    args = parser.parse_args()
    readers = {"pyarrow": with_pyarrow, "datasets": with_datasets, "duckdb": with_duckdb, "polars": with_polars}
    reader = "manifest"
    try:
        answer, paths = Answer(args.fixtures, args.dump), shards(args.dataset)
        for reader, read in readers.items():
            table = read(paths, answer)
            split = f"{next(iter(answer.states))}.hi" in table.column_names
            need(split == (args.compressed and answer.dtype != "fp32"), f"columns are {table.column_names}")
            if reader == "pyarrow" and split:
                check_halves(table.schema, answer)
            table = whole(table, answer)
            if reader == "pyarrow" and not split:
                check_schema(table.schema, answer)
            check_rows(table, answer)
    except Bad as e:
        print(f"{args.dump}: {reader}: {e}")
        return 1
    print(f"{args.dump}: {len(answer.rows)} samples, {', '.join(answer.columns())}: equal through {', '.join(readers)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sends real states to hsx serve over Arrow Flight with pyarrow, and compares the dataset with what was sent.

    python check_flight.py --hsx bin/hsx --fixtures DIR --readme README.md WORK

FIXTURES holds expected/: tokens, masks and states of a real model. WORK must be new. The README's own client is run
as it stands, but for the port. A wrong token is refused, and TLS is spoken.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

LAYERS = {"layer_-1": "P-1", "layer_0": "P0", "layer_2": "P2", "final": "N"}
HIDDEN = 64


def need(ok, message):
    if not ok:
        raise SystemExit(f"check_flight: {message}")


class Serving:
    """hsx serve as a process of its own; .flight is the address that it says."""

    def __init__(self, hsx, out, *more):
        command = [hsx, "serve", "--out", out, "--listen", "127.0.0.1:0", "--token-env", "HSX_TOKEN", "--json", *more]
        self.process = subprocess.Popen(
            command, env=os.environ | {"HSX_TOKEN": "secret"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"for Arrow Flight on (grpc\S*), ", line)
        need(found, f"serve says {line!r}, want its Flight address")
        self.flight = found[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        out, talk = self.process.communicate(timeout=60)
        need(self.process.returncode == 130, f"serve ended with {self.process.returncode}: {talk}")
        self.result = json.loads(out)


def token(word):
    return flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + word)])


def samples(fixtures):
    """Each sample as (id, tokens, mask, {column: uint16 [T, H]})."""
    known = json.loads((fixtures / "expected" / "samples.json").read_text())["samples"]
    for name, s in sorted(known.items()):
        states = {}
        for column, file in LAYERS.items():
            bits = np.load(fixtures / "expected" / name / f"{file}.bf16.npy")
            states[column] = bits.view("<u2").reshape(len(s["tokens"]), HIDDEN)
        yield name, s["tokens"], s["loss_mask"], states


def batch(some):
    """A record batch with the dataset's columns."""
    ids, tokens, masks, states = zip(*some)
    ends = np.cumsum([0] + [len(t) for t in tokens]).astype("i4")
    columns = [pa.array(ids), pa.array(tokens, pa.list_(pa.int32())), pa.array(masks, pa.list_(pa.uint8()))]
    fields = [pa.field("id", pa.utf8()), pa.field("input_ids", columns[1].type), pa.field("loss_mask", columns[2].type)]
    for name in LAYERS:
        rows = pa.FixedSizeListArray.from_arrays(np.concatenate([s[name] for s in states]).ravel(), HIDDEN)
        columns.append(pa.ListArray.from_arrays(ends, rows))
        metadata = {"hsx.dtype": "bfloat16"} | ({"hsx.norm": "post"} if name == "final" else {})
        fields.append(pa.field(name, columns[-1].type, metadata=metadata))
    return pa.record_batch(columns, pa.schema(fields))


def send(client, batches, word=b"secret"):
    """All outcomes as (id, outcome), in order."""
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("run"), batches[0].schema, token(word))
    with writer:
        for b in batches:  # a whole batch, and a view of it, whose offsets do not begin at 0
            writer.write_batch(b)
        writer.done_writing()
        out = []
        while (answer := answers.read()) is not None:
            out += [(s["id"], s["outcome"]) for s in json.loads(answer.to_pybytes())["samples"]]
    return out


def check_dataset(ds, sent):
    """The dataset holds what was sent, bit for bit."""
    shards = [s["name"] for s in json.loads((ds / "manifest.json").read_text())["shards"]]
    table = pa.concat_tables(pa.ipc.open_file(ds / "shards" / name).read_all() for name in shards)
    need(table.schema.field("final").metadata == {b"hsx.dtype": b"bfloat16", b"hsx.norm": b"post"}, "final lost its metadata")
    row = {name: i for i, name in enumerate(table["id"].to_pylist())}
    need(sorted(row) == sorted(s[0] for s in sent), f"dataset holds {sorted(row)}")
    for name, tokens, mask, states in sent:
        at = table.slice(row[name], 1)
        need(at["input_ids"][0].as_py() == tokens and at["loss_mask"][0].as_py() == mask, f"{name}: tokens or mask differ")
        need(at["source"][0].as_py() == f"flight:{name}", f"{name}: source is {at['source'][0]}")
        for column, want in states.items():
            got = at[column].chunk(0).flatten().flatten().to_numpy()
            need(np.array_equal(got, want.ravel()), f"{name}: {column} differs")


def readme(text, work, hsx):
    """Runs the README's client as it stands, but for the port."""
    found = re.search(r"^```python flight\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    need(found, "README has no block ```python flight")
    address = "grpc://127.0.0.1:8601"
    need(found[1].count(address) == 1, f"README's client does not connect to {address}")
    with Serving(hsx, work / "readme", "--flight", "127.0.0.1:0") as s:
        exec(compile(found[1].replace(address, s.flight), "README.md", "exec"), {})
    need(s.result["samples"] == 1, f"README's client: {s.result}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hsx", required=True)
    p.add_argument("--fixtures", type=pathlib.Path, required=True)
    p.add_argument("--readme", type=pathlib.Path, required=True)
    p.add_argument("--certificate", type=pathlib.Path, required=True, help="directory with cert.pem and key.pem of 127.0.0.1")
    p.add_argument("work", type=pathlib.Path)
    args = p.parse_args()
    args.work.mkdir()
    sent = list(samples(args.fixtures))
    whole = batch(sent)
    batches = [whole.slice(i, 5) for i in range(0, len(sent), 5)]

    with Serving(args.hsx, args.work / "plain", "--flight", "127.0.0.1:0") as s, flight.connect(s.flight) as client:
        try:
            send(client, batches, b"wrong")
            need(False, "a wrong token was taken")
        except flight.FlightUnauthenticatedError as e:
            need("token is missing or wrong" in str(e), f"wrong token: {e}")
        try:
            send(client, [whole.drop_columns(["input_ids"])])
            need(False, "a batch without input_ids was taken")
        except pa.ArrowInvalid as e:
            need("no column input_ids" in str(e), f"no input_ids: {e}")
        for word in ["created", "exists"]:
            got = send(client, batches)
            need(got == [(s[0], word) for s in sent], f"outcomes are {got}, want all {word}")
    need(s.result["samples"] == len(sent) == s.result["known"], f"result is {s.result}")
    check_dataset(args.work / "plain", sent)

    tls = ["--tls-cert", args.certificate / "cert.pem", "--tls-key", args.certificate / "key.pem"]
    root = (args.certificate / "cert.pem").read_bytes()
    with Serving(args.hsx, args.work / "tls", "--flight", "127.0.0.1:0", *tls) as s:
        need(s.flight.startswith("grpc+tls://"), f"address is {s.flight}")
        with flight.connect(s.flight, tls_root_certs=root) as client:
            got = send(client, [whole])
    need(len(got) == len(sent), f"over TLS: {got}")
    check_dataset(args.work / "tls", sent)

    readme(args.readme.read_text(), args.work, args.hsx)
    print(f"flight: pyarrow {pa.__version__} sent {len(sent)} samples, plain and over TLS; each is there as it was sent")


if __name__ == "__main__":
    main()

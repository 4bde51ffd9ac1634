"""Datasets that the hsx command makes of real dumps.

HSX names the command (default: bin/hsx, which `make build` makes), HSX_FIXTURES the directory with the dumps and
what must come out of them (default: the small kit of the command's own tests).
"""

import functools
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = Path(os.environ.get("HSX_FIXTURES") or ROOT / "cmd/hsx/testdata/kit")
COMMAND = os.environ.get("HSX") or ROOT / "bin/hsx"


def ingest(out, *args):
    """Run `hsx ingest` and return the directory of the dataset."""
    subprocess.run([COMMAND, "ingest", "--json", "--out", out, *args], check=True, stdout=subprocess.PIPE)
    return out


@pytest.fixture(scope="session")
def fixtures():
    return FIXTURES


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """Make, once, the dataset of a dump of the fixtures: dataset("specforge_eagle3", "--layers", "0,2,3")."""

    @functools.cache
    def make(dump, *args):
        out = tmp_path_factory.mktemp(dump) / "ds"
        return ingest(out, "--target", FIXTURES / "model/config.json", *args, FIXTURES / "dumps" / dump)

    return make


@pytest.fixture(scope="session")
def eagle3(dataset):
    """A dataset of several shards, P_0 P_2 P_3 and the final state after the norm."""
    return dataset("specforge_eagle3", "--layers", "0,2,3", "--shard-size", "8KiB")


@pytest.fixture(scope="session")
def index():
    """What is in each dump of the fixtures, by its id."""
    return {d["id"]: d for d in json.loads((FIXTURES / "dumps/INDEX.json").read_text())["dumps"]}

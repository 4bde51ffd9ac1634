#!/usr/bin/env python3
"""Cut the small kit of the tests out of a full fixture kit.

    python3 make_small_kit.py KIT    # writes kit/ beside this script

It copies and selects, and changes no byte of a dump: of each layout the smallest one or
two samples with the files that belong to their directory, every damaged container, and
the smaller of the damaged directories. The indexes keep the entries of what was copied.
"""

import json
import shutil
import sys
from pathlib import Path

SECOND = 11_000  # bytes: a second sample larger than this is left out
FAULTY = 50_000  # bytes: a damaged directory larger than this is left out, but for
WANTED = {"nan_one_value", "two_blocks", "suffix_only", "mask_length", "mixed_dtype", "truncated_in_directory", "speculators_missing_row", "speculators_token_mismatch", "speculators_rows_swapped"}
SPARE = {"mixed_dtype/rows_0-2000/data_1.ckpt", "truncated_in_directory/rows_0-2000/data_3.ckpt"}  # good ones beside other good ones
WHOLE = {"speculators"}  # the dataset has a row for each file
SAMPLES = {
    "specforge_eagle3": {"s00", "s01", "s02", "s03"},
}
OPTIONAL = {"automodel/target_embeddings.safetensors"}  # 131 kB that other layouts of the kind do without


def copy(src: Path, dst: Path) -> None:
    dst.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(src, dst)
    dst.chmod(0o644)


def size(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size


def files_of(root: Path, sample: dict) -> list[Path]:
    """The files that hold one sample and nothing of another."""
    path = root / sample["file"]
    found = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    if "request" in sample:
        found.append(root / sample["request"])
    lock = path.with_name(path.name + ".lock")
    return found + [lock] if lock.is_file() else found


def choose(dump: dict, root: Path) -> list[dict]:
    if dump["id"] in WHOLE or dump["container"] == "safetensors shards":
        return dump["samples"]
    if dump["id"] in SAMPLES:
        return [s for s in dump["samples"] if s["id"] in SAMPLES[dump["id"]]]
    by_size = sorted({s["file"] for s in dump["samples"]}, key=lambda f: (size(root / f), f))
    keep = by_size[:1] + [f for f in by_size[1:2] if size(root / f) <= SECOND]
    return [s for s in dump["samples"] if s["file"] in keep]


def one_line_each(index: dict) -> str:
    """JSON with a line for each entry of its list, so that a diff can be read."""
    text = []
    for key, value in index.items():
        if isinstance(value, list):
            value = "[\n" + ",\n".join(json.dumps(v) for v in value) + "\n]"
        else:
            value = json.dumps(value)
        text.append(f"{json.dumps(key)}: {value}")
    return "{\n" + ",\n".join(text) + "\n}"


def write_index(path: Path, index: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(one_line_each(index) + "\n")
    path.chmod(0o644)


def dumps(kit: Path, out: Path) -> None:
    index = json.loads((kit / "dumps/INDEX.json").read_text())
    for dump in index["dumps"]:
        root = kit / "dumps" / dump["dir"]
        kept = choose(dump, root)
        keep = {f for s in kept for f in files_of(root, s)}
        drop = {f for s in dump["samples"] for f in files_of(root, s)} - keep
        for f in sorted(root.rglob("*")):
            if f.is_file() and f not in drop and str(f.relative_to(kit / "dumps")) not in OPTIONAL:
                copy(f, out / "dumps" / f.relative_to(kit / "dumps"))
        dump["samples"] = kept
    write_index(out / "dumps/INDEX.json", index)


def faulty(kit: Path, out: Path) -> None:
    index = json.loads((kit / "faulty/INDEX.json").read_text())
    kept = []
    for case in index["cases"]:
        src = kit / "faulty" / case["path"]
        if src.is_dir() and size(src) > FAULTY and case["case"] not in WANTED:
            continue
        if "samples" in case:
            case["samples"] = [s for s in case["samples"] if f"{case['path']}/{s['file']}" not in SPARE]
        kept.append(case)
        for f in sorted(src.rglob("*")) if src.is_dir() else [src]:
            if f.is_file() and str(f.relative_to(kit / "faulty")) not in SPARE:
                copy(f, out / "faulty" / f.relative_to(kit / "faulty"))
    index["cases"] = kept
    write_index(out / "faulty/INDEX.json", index)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    kit, out = Path(sys.argv[1]), Path(__file__).resolve().parent / "kit"
    shutil.rmtree(out, ignore_errors=True)
    dumps(kit, out)
    faulty(kit, out)
    copy(kit / "model/config.json", out / "model/config.json")
    for d in [out, *(d for d in out.rglob("*") if d.is_dir())]:
        d.chmod(0o755)
    print(f"{size(out)} bytes in {sum(f.is_file() for f in out.rglob('*'))} files")


if __name__ == "__main__":
    main()

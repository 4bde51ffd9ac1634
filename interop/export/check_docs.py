"""Runs docs/training.md on the fixtures, block after block, in a directory of its own.

    python check_docs.py --hsx bin/hsx --fixtures DIR WORK

WORK must be new; it gets dumps and a target. Of a console block each command must print what stands under it (HSX_UPDATE=1
writes that anew). A block with a file name is written to that file. A sh block trains: its command is run as it stands, with what
keeps it on a CPU and short added, and the loss must fall.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

from safetensors import safe_open

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "training.md"
BLOCK = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def trainers():
    """By the beginning of a command: what runs in its place, what is added, and how its losses are printed."""
    python = sys.executable
    return {
        "specforge train": (
            [os.path.join(os.path.dirname(python), "specforge"), "train"],
            ["training.attention_backend=sdpa", "training.fsdp_sharding=NO_SHARD", "training.batch_size=3", "training.ttt_length=2",
             "training.log_interval=1", "training.eval_interval=0", "data.eval_hidden_states_path=", "data.max_length=16",
             "data.dataloader_num_workers=0"],
            r"^step \d+: .*'loss': ([\d.]+)",
        ),
        "python -m speculators.train": (
            [python, HERE / "cpu_speculators.py"],
            ["--draft-attn-impl", "eager", "--loss-implementation", "eager", "--optimizer", "adamw", "--num-workers", "0",
             "--total-seq-len", "256", "--checkpoint-freq", "100"],
            r"train/loss=([\d.]+)",
        ),
        "python main.py": (
            [python, HERE / "cpu_modelopt.py"],
            ["eagle.eagle_use_torch_compile=false", "training.training_seq_len=64", "training.learning_rate=0.001", "training.max_steps=6",
             "eagle.eagle_architecture_config.intermediate_size=172", "eagle.eagle_architecture_config.head_dim=8",
             "eagle.eagle_architecture_config.num_attention_heads=8", "eagle.eagle_architecture_config.num_key_value_heads=4"],
            r"^loss ([\d.]+)",
        ),
    }


class Page:
    def __init__(self, hsx, work):
        self.work = work
        path = os.pathsep.join([os.path.dirname(os.path.abspath(hsx)), os.path.dirname(sys.executable), os.environ["PATH"]])
        self.env = {
            **os.environ, "PATH": path, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE",
            "TRITON_INTERPRET": "1",  # SpecForge's loss is a kernel for GPUs
        }
        self.wrong = []

    def run(self, command, **options):
        return subprocess.run(command, cwd=self.work, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)

    def block(self, match):
        """The block as it ought to be."""
        kind, name, text = match.groups()
        if name:
            (self.work / name).write_text(text)
        elif kind == "console":
            return f"```console\n{self.console(text)}```"
        elif kind == "sh":
            self.train(text.replace("\\\n", " "))
        return match[0]

    def console(self, text):
        got = ""
        for line in text.splitlines(keepends=True):
            if line.startswith("$ "):
                done = self.run(line[2:], shell=True)
                got += line + done.stdout + (f"(exit {done.returncode})\n" if done.returncode else "")
        return got

    def train(self, command):
        begin = next(b for b in trainers() if command.startswith(b))
        program, added, pattern = trainers()[begin]
        start = time.monotonic()
        done = self.run([*map(str, program), *shlex.split(command.removeprefix(begin)), *added])
        losses = [float(x) for x in re.findall(pattern, done.stdout, re.MULTILINE)]
        took = f"{begin}: losses {losses}, {time.monotonic() - start:.0f} s"
        if done.returncode or len(losses) < 5 or not losses[-1] < 0.95 * losses[0]:
            self.wrong.append(f"{took}: exit {done.returncode}, want 0 and losses that fall\n{done.stdout[-3000:]}")
        print(took, flush=True)


def prepare(fixtures, work):
    """The dumps and the target of the page; the target with the index that SpecForge wants."""
    work.mkdir(parents=True)
    shutil.copytree(fixtures / "dumps" / "speculators", work / "dumps", copy_function=shutil.copyfile)
    shutil.copytree(fixtures / "model", work / "target", copy_function=shutil.copyfile)
    for directory in [work / "dumps", *(p for p in work.rglob("*") if p.is_dir())]:
        directory.chmod(0o755)
    with safe_open(work / "target" / "model.safetensors", "pt") as f:
        index = {"weight_map": dict.fromkeys(f.keys(), "model.safetensors")}
    (work / "target" / "model.safetensors.index.json").write_text(json.dumps(index))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hsx", required=True)
    parser.add_argument("--fixtures", type=pathlib.Path, required=True)
    parser.add_argument("work", type=pathlib.Path)
    args = parser.parse_args()
    prepare(args.fixtures, args.work)
    page, text = Page(args.hsx, args.work), PAGE.read_text()
    new = BLOCK.sub(page.block, text)
    if new != text and os.environ.get("HSX_UPDATE"):
        PAGE.write_text(new)
    elif new != text:
        (args.work / "new.md").write_text(new)
        page.wrong.append(subprocess.run(["diff", "-u", PAGE, args.work / "new.md"], stdout=subprocess.PIPE, text=True).stdout)
    for wrong in page.wrong:
        print(f"FAIL {PAGE.name}: {wrong}")
    if not page.wrong:
        print(f"{PAGE.name}: {len(BLOCK.findall(text))} blocks as they stand")
    return 1 if page.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

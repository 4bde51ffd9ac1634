#!/bin/sh
# Runs the program of examples/ray with bin/hsx on a Ray cluster of this machine, see
# check.py. The virtual environment stays in build/ray; the cluster's files go.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/ray
scripts/venv.sh build/ray/venv interop/ray/requirements.txt
exec build/ray/venv/bin/python interop/ray/check.py

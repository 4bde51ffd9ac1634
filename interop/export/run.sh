#!/bin/sh
# Exports the dumps of the fixtures with bin/hsx and has the trainers' own code read them, and train from them as
# docs/training.md says; then runs the tests of python/hsx and python/hsx_capture, and the example that trains through the
# loader. FIXTURES is the directory with dumps/, expected/, drafts/, model/ and oracles/. The environment, some GB, is kept
# in VENV.
set -eu
cd "$(dirname "$0")/../.."
fixtures=${FIXTURES:-${HSX_FIXTURES:-}}
if [ ! -f "$fixtures/dumps/INDEX.json" ]; then
	echo "export: no dumps/INDEX.json in FIXTURES='$fixtures', want the directory of the fixtures" >&2
	exit 2
fi
fixtures=$(cd "$fixtures" && pwd)
venv=${VENV:-build/export/venv}
mkdir -p "$(dirname "$venv")"
PIP_NO_DEPS=1 scripts/venv.sh "$venv" interop/export/requirements.txt
venv=$(cd "$venv" && pwd)
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall ./python/hsx ./python/hsx_capture

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Threads that wait asleep leave the cores to others.
export OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE=1

echo "+ every dump to every trainer"
"$venv/bin/python" -W ignore interop/export/check_exports.py --hsx bin/hsx --fixtures "$fixtures" "$work/exports"
echo "+ docs/training.md"
"$venv/bin/python" -W ignore interop/export/check_docs.py --hsx bin/hsx --fixtures "$fixtures" "$work/docs"
echo "+ the tests of python/hsx"
HSX=$PWD/bin/hsx HSX_FIXTURES=$fixtures "$venv/bin/python" -m pytest -q -p no:cacheprovider python/hsx
echo "+ the tests of python/hsx_capture"
HSX=$PWD/bin/hsx HSX_FIXTURES=$fixtures "$venv/bin/python" -m pytest -q -p no:cacheprovider python/hsx_capture
echo "+ examples/train_tiny"
"$venv/bin/python" examples/train_tiny/train_tiny.py --model "$fixtures/model" --hsx bin/hsx

#!/bin/sh
# Runs the examples of examples/slurm with bin/hsx on a real Slurm of one node, whose
# daemons, keys and state are the test's own: WORK has them, and their logs.
set -eu
cd "$(dirname "$0")/../.."
for p in munged slurmctld slurmd; do
	PATH=$PATH:/usr/sbin command -v $p >/dev/null || {
		echo "slurm: no $p; on Debian, install slurm-wlm and munge" >&2
		exit 2
	}
done
PATH=$PATH:/usr/sbin HSX_BIN=$PWD/bin/hsx HSX_WORK=${WORK:-$PWD/build/slurm}
export PATH HSX_BIN HSX_WORK
mkdir -p "$HSX_WORK"
${GO:-go} vet -tags slurm ./interop/slurm
${GO:-go} test -tags slurm -count=1 -timeout 4m ./interop/slurm

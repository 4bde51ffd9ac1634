#!/bin/sh
# Measures what --compress saves on a slow disk: BenchmarkCompressed of cmd/hsx, whose
# writes a control group holds to DISK MB a second. Linux, and root:
#
#	DISK=200 MIB=1024 ROUNDS=5 scripts/slow-disk.sh
set -eu
cd "$(dirname "$0")/.."
: "${DISK:=200}" "${MIB:=1024}" "${ROUNDS:=3}" "${GO:=go}" "${TMPDIR:=/tmp}"
# The whole disk that TMPDIR lies on: a limit on a part of it is refused.
source=$(df --output=source "$TMPDIR" | tail -n 1)
parent=$(lsblk -no PKNAME "$source" 2>/dev/null | head -n 1)
device=$(lsblk -dno MAJ:MIN "${parent:+/dev/}${parent:-$source}" 2>/dev/null | tr -d ' ') || device=
[ -n "$device" ] || { echo "slow-disk: TMPDIR=$TMPDIR lies on $source, want a disk" >&2; exit 2; }
bytes=$((DISK * 1000000))
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
	group=/sys/fs/cgroup/hsx-slow-disk
	echo +io >/sys/fs/cgroup/cgroup.subtree_control
	mkdir -p "$group"
	echo "$device wbps=$bytes" >"$group/io.max"
else # version 1, where writes count that a process waits for: cp's and hsx's own fsync
	group=/sys/fs/cgroup/blkio/hsx-slow-disk
	mkdir -p "$group"
	echo "$device $bytes" >"$group/blkio.throttle.write_bps_device"
fi
mkdir -p build/bench
$GO test -c -o build/bench/hsx.test ./cmd/hsx
trap 'rmdir "$group"' EXIT
(
	cd cmd/hsx
	export HSX_DISK="${DISK}_MB_a_second" HSX_MIB="$MIB" HSX_ROUNDS="$ROUNDS"
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
		../../build/bench/hsx.test -test.run '^$' -test.bench 'Compressed$' -test.benchtime 1x
) >build/bench/slow-disk.txt || { cat build/bench/slow-disk.txt; exit 1; }
cat build/bench/slow-disk.txt

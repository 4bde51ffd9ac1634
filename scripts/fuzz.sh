#!/bin/sh
# Runs each fuzz target of the module for FUZZTIME, as many at a time as there are
# processors, each with one worker: most of a short run is what comes before the fuzzing.
#
#	FUZZTIME=30s scripts/fuzz.sh                     # all targets
#	FUZZTIME=30s scripts/fuzz.sh ./shard FuzzHalves  # one
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}" "${FUZZTIME:=30s}"
export GO FUZZTIME

if [ $# -eq 2 ]; then
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	for try in 1 2; do
		status=0
		$GO test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1x -parallel 1 "$1" >"$log" 2>&1 || status=$?
		echo "+ fuzz $1 $2 $FUZZTIME
$(cat "$log")"
		# go test can call the end of the fuzz time itself a failure: no input is to
		# blame then, and none is written.
		if [ "$status" -eq 0 ] || ! grep -q 'context deadline exceeded' "$log" || grep -q 'Failing input written' "$log"; then
			break
		fi
	done
	exit "$status"
fi

list=$(mktemp)
trap 'rm -f "$list"' EXIT
$GO list -f '{{range .TestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
	while read -r pkg file; do
		sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|$pkg \1|p" "$file"
	done >"$list"
n=$(wc -l <"$list")
[ "$n" -gt 0 ] || { echo "fuzz: there is no target" >&2; exit 1; }
xargs -L 1 -P "$(getconf _NPROCESSORS_ONLN)" "$0" <"$list"
echo "$n fuzz targets, $FUZZTIME each"

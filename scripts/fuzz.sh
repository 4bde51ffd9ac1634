#!/bin/sh
# Runs each fuzz target of the module for FUZZTIME, one after the other: go test
# fuzzes one target of one package at a time.
set -eu
cd "$(dirname "$0")/.."
: "${GO:=go}" "${FUZZTIME:=30s}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # PACKAGE TARGET
	echo "+ fuzz $1 $2 $FUZZTIME"
	status=0
	$GO test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1x "$1" >"$log" 2>&1 || status=$?
	cat "$log"
	return "$status"
}

# go test can call the end of the fuzz time itself a failure: no input is to blame
# then, and none is written.
ran_out() {
	grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"
}

n=0
for pkg in $($GO list ./...); do
	# The list comes first, by itself, so that a test that does not compile ends the run.
	targets=$($GO test -list '^Fuzz' "$pkg")
	for target in $(printf '%s\n' "$targets" | grep '^Fuzz' || true); do
		if ! fuzz "$pkg" "$target"; then
			ran_out || exit 1
			fuzz "$pkg" "$target"
		fi
		n=$((n + 1))
	done
done
echo "$n fuzz targets, $FUZZTIME each"
[ "$n" -gt 0 ]

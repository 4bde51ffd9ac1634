#!/bin/sh
# Compares the Go benchmarks of two states of the project by benchstat:
#
#	OLD=HEAD~1 PKG=./shard BENCH=Verify COUNT=6 scripts/bench-compare.sh
#
# The new state is the working tree. Both are built once and then take turns, so that
# what else the machine does meanwhile meets both alike.
set -eu
cd "$(dirname "$0")/.."
: "${OLD:?name the revision to compare with}" "${PKG:?name one package, such as ./shard}"
: "${BENCH:=.}" "${COUNT:=6}" "${BENCHTIME:=1s}" "${GO:=go}"
case $PKG in *...*) echo "bench-compare: PKG=$PKG, want one package, such as ./shard" >&2; exit 2 ;; esac
out=$PWD/build/compare
git worktree remove --force "$out/tree" 2>/dev/null || true
rm -rf "$out"
mkdir -p "$out"
trap 'git worktree remove --force "$out/tree"' EXIT
git worktree add --quiet --detach "$out/tree" "$OLD"
$GO test -c -o "$out/new.test" "$PKG"
(cd "$out/tree" && $GO test -c -o "$out/old.test" "$PKG")
one() { # each runs where its testdata is
	(cd "$2/$PKG" && "$out/$1.test" -test.run '^$' -test.bench "$BENCH" -test.benchtime "$BENCHTIME" -test.benchmem) >>"$out/$1.txt"
}
for turn in $(seq "$COUNT"); do
	echo "turn $turn of $COUNT" >&2
	if [ $((turn % 2)) -eq 0 ]; then
		one old "$out/tree"
		one new "$PWD"
	else
		one new "$PWD"
		one old "$out/tree"
	fi
done
$GO tool -modfile=go.tools.mod benchstat old="$out/old.txt" new="$out/new.txt"

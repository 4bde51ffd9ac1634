#!/bin/sh
# Measures hsx against what a user would run instead, see peers.py, and the loader of
# python/hsx against SpecForge's and speculators', see python/hsx/bench/loader.py. Settings: GIB,
# ROUNDS, WORK (kept: dumps and virtual environment), PEERS (make_dumps.py and
# ingest_peers.py), KEEP=1 keeps the last outputs.
set -eu
cd "$(dirname "$0")/.."
: "${GIB:=2}" "${ROUNDS:=3}" "${WORK:=build/peers}" "${PEERS:?name the directory with make_dumps.py and ingest_peers.py}"
for f in make_dumps.py ingest_peers.py; do
	[ -f "$PEERS/$f" ] || { echo "peers: no $f in PEERS=$PEERS" >&2; exit 2; }
done
mkdir -p "$WORK" build/bench
scripts/venv.sh "$WORK/venv" scripts/peers-requirements.txt

dumps=$WORK/dumps-${GIB}gib
if [ ! -d "$dumps" ]; then
	rm -rf "$dumps.part"
	"$WORK/venv/bin/python" "$PEERS/make_dumps.py" --out "$dumps.part" --gib "$GIB"
	mv "$dumps.part" "$dumps" # whole, or not there
fi
"$WORK/venv/bin/python" scripts/peers.py --hsx bin/hsx --dumps "$dumps" --work "$WORK" \
	--peers "$PEERS/ingest_peers.py" --rounds "$ROUNDS" --lines build/bench/peers.txt
"$WORK/venv/bin/python" scripts/compress_peers.py --hsx bin/hsx --dumps "$dumps" --work "$WORK" \
	--rounds "$ROUNDS" --lines build/bench/compression.txt

PIP_NO_DEPS=1 scripts/venv.sh "$WORK/loader" interop/export/requirements.txt
"$WORK/loader/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall ./python/hsx
bin/hsx ingest --out "$WORK/ds-${GIB}gib" --layers 2,30,58 "$dumps" >/dev/null
# speculators reads no final after the norm: for its way, these numbers are said to be from before.
bin/hsx ingest --out "$WORK/pre-${GIB}gib" --final pre --layers 2,30,58 "$dumps" >/dev/null
bin/hsx export --to speculators --out "$WORK/speculators-${GIB}gib" "$WORK/pre-${GIB}gib" >/dev/null
rm -rf "$WORK/pre-${GIB}gib"
"$WORK/loader/bin/python" python/hsx/bench/loader.py --dumps "$dumps" --dataset "$WORK/ds-${GIB}gib" \
	--speculators "$WORK/speculators-${GIB}gib" --lines build/bench/loaders.txt

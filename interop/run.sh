#!/bin/sh
# Ingests dumps of several producers with bin/hsx and has check_dataset.py read the
# results with pyarrow, datasets, DuckDB and polars; then has pyarrow send states over
# Arrow Flight. FIXTURES is the directory with
# dumps/, expected/ and model/.
set -eu
cd "$(dirname "$0")/.."
fixtures=${FIXTURES:-${HSX_FIXTURES:-}}
if [ ! -f "$fixtures/dumps/INDEX.json" ]; then
	echo "interop: no dumps/INDEX.json in FIXTURES='$fixtures', want the directory of the fixtures" >&2
	exit 2
fi
scripts/venv.sh .venv interop/requirements.txt

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The README's own way to read a dataset, on the demo's dumps.
bin/hsx demo --dir "$work/demo" >"$work/demo.txt"
rm -rf "$work/demo/ds"
hsx=$PWD/bin/hsx python=$PWD/.venv/bin/python readme=$PWD/README.md format=$PWD/docs/format.md
(
	cd "$work/demo"
	"$hsx" ingest --out ds --layers 0,2,3 --target config.json --json dumps >/dev/null 2>&1 || [ $? -eq 3 ] # one file is cut
	awk '/^```python$/ { on = 1; next } /^```/ { on = 0 } on' "$readme" >readme.py
	sed -n 's/.*`\(duckdb\.sql(.*)\.show()\)`.*/import duckdb; \1/p' "$readme" >>readme.py
	"$python" readme.py

	# And that of docs/format.md, on the same dataset compressed.
	"$hsx" recompress ds
	awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' "$format" >format.py
	"$python" format.py
)

for dump in specforge_eagle3 speculators vllm_connector npy_fp16 npy_fp32 modelopt_vllm; do
	layers=0,2,3 convention=post
	if [ $dump = vllm_connector ]; then # its list names every slot, the last state too
		layers=1,3,4,5 convention=boundary
	fi
	bin/hsx ingest --out "$work/$dump" --layers $layers --convention $convention \
		--target "$fixtures/model/config.json" "$fixtures/dumps/$dump"
	.venv/bin/python interop/check_dataset.py "$work/$dump" --fixtures "$fixtures" --dump "$dump"
	bin/hsx recompress "$work/$dump"
	.venv/bin/python interop/check_dataset.py "$work/$dump" --fixtures "$fixtures" --dump "$dump" --compressed
done

# States that a client sends over Arrow Flight while hsx serves.
mkdir "$work/certificate"
(cd "$work/certificate" && ${GO:-go} run "$(${GO:-go} env GOROOT)/src/crypto/tls/generate_cert.go" --host 127.0.0.1 --ca --duration 24h 2>/dev/null)
.venv/bin/python interop/flight/check_flight.py --hsx bin/hsx --fixtures "$fixtures" --readme README.md \
	--certificate "$work/certificate" "$work/flight"

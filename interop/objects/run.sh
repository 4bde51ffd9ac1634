#!/bin/sh
# Builds an S3 server from the Go module proxy and a virtual environment with s3fs, once,
# and runs the tests that need them.
set -eu
cd "$(dirname "$0")/../.."
version=v1.8.0
tools=$PWD/build/objects/$version
if [ ! -x "$tools/versitygw" ]; then
	GOBIN=$tools ${GO:-go} install "github.com/versity/versitygw/cmd/versitygw@$version"
fi
scripts/venv.sh build/objects/venv interop/objects/requirements.txt
HSX_BIN=$PWD/bin/hsx HSX_VERSITYGW=$tools/versitygw HSX_PYTHON=$PWD/build/objects/venv/bin/python
export HSX_BIN HSX_VERSITYGW HSX_PYTHON
${GO:-go} vet -tags objects ./interop/objects
${GO:-go} test -tags objects -count=1 -timeout 10m "$@" ./interop/objects

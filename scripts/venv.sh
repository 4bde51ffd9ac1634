#!/bin/sh
# Makes the virtual environment DIR with what REQUIREMENTS pins, unless it is there
# already:  scripts/venv.sh DIR REQUIREMENTS
set -eu
dir=$1 requirements=$2
if ! cmp -s "$requirements" "$dir/installed.txt"; then
	rm -rf "$dir"
	"${PYTHON:-python3}" -m venv "$dir" || {
		echo "venv: ${PYTHON:-python3} makes no virtual environment; on Debian, install python3-venv" >&2
		exit 1
	}
	"$dir/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
	cp "$requirements" "$dir/installed.txt" # last: a broken install is made again
fi

#!/bin/sh
# Installs vLLM for the CPU into VENV, once, measures real servers with bin/hsx, and has
# one keep hidden states. SERVERS is the directory with install-vllm.sh, models/ and
# plug/; LLAMACPP may name a virtual environment with llama.cpp's server.
set -eu
cd "$(dirname "$0")/../.."
servers=${SERVERS:-}
if [ ! -d "$servers/models" ]; then
	echo "servers: no models/ in SERVERS='$servers', want the directory of the servers' scripts" >&2
	exit 2
fi
venv=${VENV:-build/servers/vllm}
mkdir -p "$(dirname "$venv")"
if [ ! -f "$venv/installed" ]; then
	bash "$servers/install-vllm.sh" "$venv"
	touch "$venv/installed"
fi
HSX_BIN=$PWD/bin/hsx HSX_VLLM=$(cd "$venv" && pwd) HSX_LLAMACPP=${LLAMACPP:-}
HSX_MODELS=$(cd "$servers/models" && pwd) HSX_PLUG=$(cd "$servers/plug" && pwd)
export HSX_BIN HSX_VLLM HSX_MODELS HSX_PLUG HSX_LLAMACPP
# The hook inside the engine's own process, against a forward pass of transformers.
VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=python/hsx_capture/src \
	"$HSX_VLLM/bin/python" python/hsx_capture/interop/check_vllm.py "$HSX_MODELS/stories260k-hf-hd32"
${GO:-go} vet -tags servers ./interop/servers
${GO:-go} test -tags servers -count=1 -timeout 40m ./interop/servers

#!/bin/sh
# serve-vllm-hs.sh VENV MODELS PLUG DIR PORT [ARG...]: vLLM in the foreground with the tiny
# target of MODELS. It keeps hidden states in DIR through the connector of PLUG: those
# after the layers 0, 1 and 3, and the last before the final norm.
set -eu
venv=$1 models=$2 plug=$3 dir=$4 port=$5
shift 5
export PYTHONPATH="$plug" HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1
exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$models/stories260k-hf-hd32" \
	--served-model-name stories260k --host 127.0.0.1 --port "$port" --dtype float32 --max-model-len 512 --enforce-eager \
	--speculative-config '{"method":"extract_hidden_states","num_speculative_tokens":1,"draft_model_config":{"hf_config":{"eagle_aux_hidden_state_layer_ids":[1,2,4,5]}}}' \
	--kv-transfer-config "{\"kv_connector\":\"CpuHiddenStatesConnector\",\"kv_connector_module_path\":\"cpu_hs_connector\",\"kv_role\":\"kv_producer\",\"kv_connector_extra_config\":{\"shared_storage_path\":\"$dir\"}}" "$@"

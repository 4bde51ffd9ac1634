#!/bin/sh
# serve-vllm.sh VENV MODELS STEPS PORT [ARG...]: vLLM in the foreground with the tiny
# target of MODELS; STEPS draft tokens of its EAGLE-3 draft, 0 for none, ngram for
# lookup in the prompt.
set -eu
venv=$1 models=$2 steps=$3 port=$4
shift 4
case $steps in
0) ;;
ngram) set -- "$@" --per-request-spec-decode-metrics detailed --speculative-config \
	'{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_min":2,"prompt_lookup_max":4}' ;;
*) set -- "$@" --per-request-spec-decode-metrics detailed --speculative-config \
	"{\"method\":\"eagle3\",\"model\":\"$models/stories260k-eagle3\",\"num_speculative_tokens\":$steps}" ;;
esac
export HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1
exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$models/stories260k-hf-hd32" \
	--served-model-name stories260k --host 127.0.0.1 --port "$port" --dtype float32 --max-model-len 512 --enforce-eager "$@"

#!/bin/sh
# Holds the manifests of examples/k8s against the JSON schemas of Kubernetes: there is no
# cluster here to run them on.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/k8s
scripts/venv.sh build/k8s/venv interop/k8s/requirements.txt
build/k8s/venv/bin/kubernetes-validate --strict examples/k8s/*.yaml

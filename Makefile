# The targets are those that CI or a release uses. `make check` needs Go and make only.

GO        ?= go
TOOL      := $(GO) tool -modfile=go.tools.mod
# The race detector needs a C compiler; without one the tests run all the same.
RACE      ?= $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
# With a filter for `go test -json`, CI counts the tests and refuses skips.
SUMMARY   ?=
PYTHON    ?= python3
BENCH     ?= .
COUNT     ?= 1
BENCHTIME ?= 1s
FUZZTIME  ?= 30s
SOAK      ?= 2m
GIB       ?= 2
ROUNDS    ?= 3
MIB       ?= 60
SAMPLES   ?= 20000
LARGE     ?= 1
DISK      ?= 200
PKG       ?= ./...
OUT       ?= bench
WORK      ?= build/peers
PEERS     ?= ../shared/peers
SERVERS   ?= ../shared/servers
FIXTURES  ?= $(HSX_FIXTURES)

# Leaves out what Google's client reaches stores by gRPC with, which hsx does not use: 20 MB.
TAGS      ?= disable_grpc_modules

.DEFAULT_GOAL := help
.PHONY: help build demo check fmt vet tidy-diff staticcheck lint race test bench bench-page bench-compare soak fuzz update cover interop deep servers objects slurm ray k8s peers scale slow-disk tidy clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

build: ## bin/hsx, static
	CGO_ENABLED=0 $(GO) build -trimpath -tags "$(TAGS)" -o bin/hsx ./cmd/hsx

demo: build ## the whole loop on embedded data
	bin/hsx demo

check: fmt vet tidy-diff staticcheck lint race ## everything that must pass before a commit

fmt: ## gofmt has nothing to change
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi

vet: ## go vet
	$(GO) vet ./...

tidy-diff: ## go.mod and go.sum say what the code imports
	$(GO) mod tidy -diff

staticcheck: ## staticcheck, pinned in go.tools.mod
	$(TOOL) staticcheck ./...

lint: ## golangci-lint, pinned in go.tools.mod, with the reasons in .golangci.yml
	$(TOOL) golangci-lint run ./...

race: ## all tests, under the race detector where there is a C compiler
ifeq ($(strip $(SUMMARY)),)
	$(GO) test $(RACE) -timeout 20m ./...
else
	$(GO) test $(RACE) -timeout 20m -count=1 -json ./... | $(SUMMARY)
endif

test: ## all tests, the quick way
	$(GO) test ./...

bench: ## BENCH=. PKG=./... COUNT=1 BENCHTIME=1s MIB=60 ROUNDS=3 SAMPLES=20000 LARGE=1 OUT=bench: all stages, all commands, the machine's limits
	@mkdir -p build/bench
	HSX_MIB=$(MIB) HSX_ROUNDS=$(ROUNDS) HSX_SAMPLES=$(SAMPLES) HSX_GIB=$(LARGE) \
		$(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) -benchtime $(BENCHTIME) -benchmem -timeout 60m $(PKG) >build/bench/$(OUT).txt \
		|| { cat build/bench/$(OUT).txt; exit 1; }
	@cat build/bench/$(OUT).txt

bench-page: ## docs/benchmarks.md from what bench and peers left in build/bench
	$(GO) run ./scripts/benchpage build/bench/*.txt

bench-compare: ## OLD=rev PKG=./shard BENCH=. COUNT=6 BENCHTIME=1s: that revision and this one in turn, by benchstat
	OLD='$(OLD)' PKG='$(PKG)' BENCH='$(BENCH)' COUNT='$(COUNT)' BENCHTIME='$(BENCHTIME)' GO='$(GO)' scripts/bench-compare.sh

soak: ## SOAK=2m: hsx serve under several clients, with steady memory and nothing lost
	SOAK='$(SOAK)' $(GO) test -count=1 -timeout 30m -v -run '^TestServeSoak$$' ./cmd/hsx

fuzz: ## FUZZTIME=30s: each fuzz target in turn
	GO='$(GO)' FUZZTIME='$(FUZZTIME)' scripts/fuzz.sh

update: ## rewrite the golden files and the scripts' expected output: read the diff
	HSX_UPDATE=1 $(GO) test ./...

cover: ## coverage/index.html
	mkdir -p coverage
	$(GO) test -coverprofile=coverage/profile ./...
	$(GO) tool cover -func=coverage/profile | tail -n 1
	$(GO) tool cover -html=coverage/profile -o coverage/index.html

interop: build ## FIXTURES=dir: pyarrow, DuckDB … and the trainers themselves read what hsx wrote
	FIXTURES='$(FIXTURES)' PYTHON='$(PYTHON)' interop/run.sh
	FIXTURES='$(FIXTURES)' PYTHON='$(PYTHON)' interop/export/run.sh

deep: build ## dumps of a real model of 30 layers, good and bad: what validate says of each
	PYTHON='$(PYTHON)' interop/smollm2/run.sh

servers: build ## SERVERS=dir LLAMACPP=venv: hsx bench against real servers on the CPU
	SERVERS='$(SERVERS)' LLAMACPP='$(LLAMACPP)' GO='$(GO)' interop/servers/run.sh

slurm: build ## the scripts of examples/slurm on a real Slurm of one node
	GO='$(GO)' interop/slurm/run.sh

ray: build ## the program of examples/ray on a Ray cluster of this machine
	PYTHON='$(PYTHON)' interop/ray/run.sh

k8s: ## the manifests of examples/k8s against the schemas of Kubernetes
	PYTHON='$(PYTHON)' interop/k8s/run.sh

objects: build ## object stores against a real S3 server, built from the Go module proxy
	GO='$(GO)' PYTHON='$(PYTHON)' interop/objects/run.sh

slow-disk: ## DISK=200 MIB=60 ROUNDS=3: ingest with and without --compress where DISK MB a second are written; as root
	DISK='$(DISK)' MIB='$(MIB)' ROUNDS='$(ROUNDS)' GO='$(GO)' scripts/slow-disk.sh

peers: build ## GIB=2 ROUNDS=3: hsx against cp, pyarrow, datasets, xxhsum and the loaders of SpecForge and speculators
	GIB='$(GIB)' ROUNDS='$(ROUNDS)' WORK='$(WORK)' PEERS='$(PEERS)' PYTHON='$(PYTHON)' scripts/peers.sh

scale: build ## GIB=2 ROUNDS=3: the cost model of docs/cluster.md against 1, 2 and 4 parts, on the disk of build/
	$(PYTHON) scripts/scale.py --gib '$(GIB)' --rounds '$(ROUNDS)'
	$(PYTHON) scripts/scale.py --predict

tidy: ## write go.mod and go.sum as the code needs them
	$(GO) mod tidy

clean: ## remove what the other targets made
	rm -rf bin build .venv coverage

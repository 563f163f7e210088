# `make demo` shows it, `make test` proves it; both install what they need and can be run again.
# Everything is built with the same arguments, so that RocksDB's C++ and Polars are built once.

.DEFAULT_GOAL := help
.PHONY: help setup setup-build build build-demo demo demo-web test unit simulate fuzz e2e lint bench-api bench-footprint bench-guard bench-overhead bench-plan bench-workloads test-api test-hostile test-kernels test-monitoring test-ozone test-package test-peers test-web deb

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
export PATH := $(HOME)/.cargo/bin:$(PATH)
BUILD := --release --workspace
# One job more than processors: while Polars' crates wait for each other, RocksDB's files go on.
export CARGO_BUILD_JOBS := $(shell echo $$(( $$(nproc) + 1 )))
PROGRAMS := $(or $(CARGO_TARGET_DIR),target)/release
# Loading BPF programs and looking into other processes takes root; building does not.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo env || echo "sudo -E env")
TOOLS := $(or $(SEXTON_TOOLS),$(HOME)/.cache/sexton-tools)
# Series of Debian's kernels that `make test-kernels` boots.
KERNELS ?= 5.10 6.1 6.12 6.18 7.2
# Histories that `make simulate` runs.
HISTORIES ?= 1000000
# Inputs of each kind that `make fuzz` makes up, and inputs in all that it sends through the agent's children.
FUZZ_RUNS ?= 1000000

help: ## Lists the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r target text; do printf '  make %-12s %s\n' "$$target" "$$text"; done

setup: ## Installs what building and testing need, and says what and why.
	@tests/setup.sh test

setup-build:
	@tests/setup.sh build

build: setup-build ## Builds everything (the first time some 20 minutes on two cores).
	cargo build $(BUILD) --all-targets

# What the demo runs, and nothing else; the features are those of `build`, so nothing is built twice.
build-demo: setup-build
	cargo build $(BUILD) --lib --bin sexton --bin sexton-demo --bin sexton-queue-workload

demo: ## Builds, then shows a slow RocksDB process becoming fast (under 3 minutes; root).
	@start=$$(date +%s) && $(MAKE) --no-print-directory build-demo && \
	    echo "demo starts $$(( $$(date +%s) - start )) s after make demo" && \
	    $(AS_ROOT) $(PROGRAMS)/sexton-demo

demo-web: build-demo ## The demo, kept open for its dashboard until Ctrl-C (root).
	$(AS_ROOT) $(PROGRAMS)/sexton-demo --keep

test: ## Everything: setup, build, lint, unit tests, end-to-end tests (root).
	@start=$$(date +%s); \
	for step in setup build lint unit e2e; do \
	    begin=$$(date +%s); echo "==== $$step"; \
	    $(MAKE) --no-print-directory $$step || \
	        { echo "==== $$step FAILED, $$(( $$(date +%s) - start )) s after the start"; exit 1; }; \
	    echo "==== $$step took $$(( $$(date +%s) - begin )) s"; \
	done; \
	echo "==== all passed in $$(( $$(date +%s) - start )) s"

bench-overhead: setup build ## What Sexton costs a process that it looks at (up to twenty minutes, a quiet machine; root).
	$(AS_ROOT) $(PROGRAMS)/sexton-bench-overhead

bench-plan: build ## How long a plan of a million files and ten million operations takes, and DuckDB the same join (ten minutes, a quiet machine).
	tests/setup.sh test
	SEXTON_TOOLS="$(TOOLS)" $(PROGRAMS)/sexton-bench-plan

bench-workloads: build ## Sexton and what one would use instead of it, on eight workloads (five hours, a quiet machine; root); WORKLOAD=b: one of them (half an hour). Goes on where it was cut off.
	$(AS_ROOT) $(PROGRAMS)/sexton-bench-workloads $(if $(WORKLOAD),--workload $(WORKLOAD))

bench-api: build ## How fast the API answers fifty clients beside five weeks of history (three minutes, a quiet machine; root).
	$(AS_ROOT) $(PROGRAMS)/sexton-bench-api

bench-guard: build ## What acting costs those who write, and what one big compaction does to them (fifteen minutes, a quiet machine; root).
	$(AS_ROOT) $(PROGRAMS)/sexton-bench-guard

lint: ## Formatting, lints, licences and sources of all crates, and the rules of the whole tree (tests/tests/tidy).
	cargo fmt --all --check
	cargo clippy $(BUILD) --all-targets -- -D warnings
	cargo deny --log-level error check bans licenses sources
	cargo build $(BUILD) --bin sexton
	cargo test $(BUILD) --test tidy

deb: setup-build ## The Debian package, below target/debian: the same sources give the same file.
	@tests/setup.sh deb
	cargo build $(BUILD) --lib --bins
	deploy/debian/build.sh $(abspath $(PROGRAMS))/..

unit: ## Unit tests: no root, no kernel.
	cargo test $(BUILD) --lib --bins

fuzz: build ## A million changed inputs to each parser of foreign bytes and to the hook's socket, and a million through the agent's confined children (root); make test gives some thousand.
	SEXTON_FUZZ_RUNS=$(FUZZ_RUNS) cargo test $(BUILD) --lib -- fuzz:: --nocapture 2>&1 | \
	    grep -v -e '^running 0 tests' -e ' 0 passed; 0 failed' -e '^$$'
	SEXTON_FUZZ_RUNS=$(FUZZ_RUNS) cargo test $(BUILD) --test hook_fuzz -- --nocapture
	SEXTON_FUZZ_WORKER_RUNS=$(FUZZ_RUNS) CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" \
	    cargo test $(BUILD) --test fuzz_workers -- --nocapture

simulate: ## A million random histories of actions, with faults: what make test runs a tenth of (five minutes of a processor).
	SEXTON_SIMULATION_HISTORIES=$(HISTORIES) cargo test $(BUILD) --lib -- simulation::faults:: --nocapture 2>&1 | \
	    grep -v -e '^running 0 tests' -e ' 0 passed; 0 failed' -e '^$$'

e2e: setup build ## End-to-end tests on real processes, with real BPF (root), and promtool on the Prometheus rules.
	PATH="$(PATH):$(TOOLS)/prometheus/usr/bin" SEXTON_TOOLS="$(TOOLS)" \
	    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" \
	    cargo nextest run $(BUILD) --test '*'

test-monitoring: build ## The part of e2e that stages each alert for a real Prometheus, and asks it what the dashboard asks (root, 2 min).
	PATH="$(PATH):$(TOOLS)/prometheus/usr/bin" SEXTON_TOOLS="$(TOOLS)" \
	    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" \
	    cargo nextest run $(BUILD) --test monitoring --test policies --test-threads 1

test-web: build ## The dashboard in Chromium, on an agent that heals a queue, and whether agent/web/dist is what its sources give (root, 3 min).
	tests/setup.sh web
	cd agent/web && npm ci --no-audit --no-fund --ignore-scripts && npx tsc --noEmit && npx vite build --outDir node_modules/dist
	diff -r agent/web/dist agent/web/node_modules/dist || \
	    { echo "error: agent/web/dist is old"; echo "help: npm run build in agent/web, and commit it"; exit 1; }
	@browse() { $(AS_ROOT) node agent/web/test/dashboard.mjs $(abspath $(PROGRAMS)) $(abspath $(PROGRAMS))/../dashboard; }; \
	browse || { echo "==== the dashboard failed at the first try; once more, as with other end-to-end tests"; browse; }

test-api: build ## The part of e2e that holds the HTTP API against its document, with thousands of requests made up (root, 2 min).
	PATH="$(PATH)" SEXTON_TOOLS="$(TOOLS)" SEXTON_API_EXAMPLES=1000 SEXTON_API_REQUESTS_MIN=5000 \
	    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" \
	    cargo test $(BUILD) --test openapi -- --test-threads=1 --nocapture

bench-footprint: build ## What the idle agent takes: memory, processor time; then at 500 execs a second (root, 5 min).
	$(AS_ROOT) $(PROGRAMS)/sexton-footprint

test-hostile: build ## Ten minutes beside a program that does all it can to the agent (root); make test runs ten seconds of it.
	SEXTON_HOSTILE_SECONDS=600 CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" \
	    cargo test $(BUILD) --test hostile_host -- --nocapture

test-ozone: build ## A real Apache Ozone 2.2.0, whose lists are healed, and which deletes and scrubs by peak, off-peak and pressure (root, 15 min).
	tests/setup.sh ozone
	SEXTON_TOOLS="$(TOOLS)" $(AS_ROOT) unshare --net -- \
	    sh -c 'ip link set lo up && exec "$$0"' $(abspath $(PROGRAMS))/sexton-test-ozone

test-peers: build ## Two hundred actions of three agents that share a lock in a real etcd, never two at a time (root, 15 min).
	SEXTON_TOOLS="$(TOOLS)" SEXTON_PEERS_ACTIONS=200 CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(AS_ROOT)" \
	    cargo test $(BUILD) --test peers -- --test-threads=1 --nocapture

test-package: setup deb ## The package in a fresh Debian 12 under systemd: installed, acts, hangs, is purged; and made twice alike (root, 20 min).
	tests/package/twice.sh $(abspath $(PROGRAMS))/..
	SEXTON_TOOLS="$(TOOLS)" $(AS_ROOT) tests/package/run.sh $(abspath $(PROGRAMS))/../debian/sexton_*.deb

test-kernels: build ## The end-to-end tests for any kernel, under other kernels in virtual machines (root, 25 min).
	SEXTON_TOOLS="$(TOOLS)" tests/kernels/setup.sh $(KERNELS)
	cargo test $(BUILD) --no-run --message-format=json --test '*' 2>/dev/null | \
	    SEXTON_TOOLS="$(TOOLS)" $(AS_ROOT) $(PROGRAMS)/sexton-test-kernels run \
	    --logs $(dir $(PROGRAMS))test-kernels $(addprefix --kernel ,$(KERNELS))

# Run `make` to see what there is. A comment with ## after a target is its line in `make help`.

# Where rustup puts cargo, for shells that have not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

STORY ?= batch-release
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
CARGO_BUILD := cargo build --release --locked

.DEFAULT_GOAL := help
.PHONY: help build test tla demo bench torture fmt lint clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## Build the release binaries: countersign and countersign-verify in target/release
	@scripts/setup.sh cargo cc
	$(CARGO_BUILD) -p countersign-server -p countersign-verifier --bin countersign --bin countersign-verify

test: ## Lint, check the specification, run every test on SQLite and PostgreSQL (what CI runs)
	@scripts/test.sh

tla: ## Check the TLA+ specification of the seal protocol, and that its faulty twins are rejected
	@scripts/tla.sh

demo: build ## Play a story: STORY=batch-release|journal-entry|purchase-order|order-process|order-saga|nightly-report|capa; CI=1 does not wait for keys
	$(RELEASE)/countersign demo --story $(STORY) --evidence target/demo $(if $(strip $(CI)),--no-wait)

bench: build ## Measure throughput on SQLite and PostgreSQL, flushed to disk (BENCH_ARGS=...); PEERS=1 measures other engines beside
	@scripts/setup.sh postgres
	$(CARGO_BUILD) -p countersign-bench
	scripts/with-postgres.sh $(if $(PEERS),env PEERS="$(PEERS)" bench/peers/beside.sh) $(RELEASE)/countersign-bench $(BENCH_ARGS)

torture: build ## Crash the server again and again and check that nothing was lost (TORTURE_ARGS=...)
	@scripts/setup.sh postgres
	$(CARGO_BUILD) -p countersign-testing --bin countersign-torture
	scripts/with-postgres.sh $(RELEASE)/countersign-torture $(TORTURE_ARGS)

fmt: ## Format the code
	cargo fmt --all

lint: ## Check formatting and clippy; a warning is an error
	@scripts/setup.sh cargo lint cc
	@scripts/lint.sh

clean: ## Remove everything that was built
	cargo clean

# Run `make` to see what there is. A comment with ## after a target is its line in `make help`.

# Where rustup puts cargo, for shells that have not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

STORY ?= batch-release
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
CARGO_BUILD := cargo build --release --locked

.DEFAULT_GOAL := help
.PHONY: help build console dev screenshots test tla demo bench torture probe fmt lint clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: console ## Build the release binaries, the console included: countersign and countersign-verify in target/release
	@scripts/setup.sh cargo cc
	$(CARGO_BUILD) -p countersign-server -p countersign-verifier --bin countersign --bin countersign-verify

console: ## Build the web console into console/dist, where the next build of the server takes it from
	@scripts/setup.sh cargo node
	@scripts/console.sh

dev: console ## Serve the console with hot reload, beside a server: make dev SERVER_URL=http://127.0.0.1:7433
	cd console && npm run dev

screenshots: build ## Make a picture of every page of the console in both themes, into docs/screenshots
	@scripts/setup.sh browser
	cd console && SERVER_BIN=$(abspath $(RELEASE))/countersign node e2e/screenshots.mjs ../docs/screenshots

test: ## Lint, check the specification, run every test on SQLite and PostgreSQL (what CI runs)
	@scripts/test.sh

tla: ## Check the TLA+ specifications of the seal protocol and of runbooks, and that their faulty twins are rejected
	@scripts/tla.sh

demo: build ## Play a story: STORY=batch-release|journal-entry|purchase-order|order-process|order-saga|nightly-report|capa|document-cut|db-migrate; CI=1 does not wait for keys
	$(RELEASE)/countersign demo --story $(STORY) --evidence target/demo $(if $(strip $(CI)),--no-wait)

bench: build ## Measure throughput on SQLite and PostgreSQL, flushed to disk (BENCH_ARGS=...); PEERS=1 measures other engines beside
	@scripts/setup.sh postgres
	$(CARGO_BUILD) -p countersign-bench
	scripts/with-postgres.sh $(if $(PEERS),env PEERS="$(PEERS)" bench/peers/beside.sh) $(RELEASE)/countersign-bench $(BENCH_ARGS)

torture: build ## Crash the server again and again and check that nothing was lost (TORTURE_ARGS=...)
	@scripts/setup.sh postgres
	$(CARGO_BUILD) -p countersign-testing --bin countersign-torture
	scripts/with-postgres.sh $(RELEASE)/countersign-torture $(TORTURE_ARGS)

probe: ## Attack a real server from outside, on both stores; SHORT=1 runs what make test runs (PROBE_ARGS=...)
	@scripts/setup.sh cargo cc postgres nats
	scripts/probe.sh $(if $(SHORT),--short) $(PROBE_ARGS)

fmt: ## Format the code
	cargo fmt --all

lint: ## Check formatting, clippy and, where the tools are, licences and advisories; a warning is an error
	@scripts/setup.sh cargo lint cc
	@scripts/lint.sh

clean: ## Remove everything that was built
	cargo clean

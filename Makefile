# What there is to do with this repository. `make` lists it.
#
# Needs: cargo (Rust 1.89 or later), Python 3.8 or later with pip, Linux. No root. The real servers that the tests and
# the demo run against are fetched into .parts/ by version and hash (tests/support/fetch_parts.py).

CARGO ?= cargo
PYTHON ?= python3
# The demo's store: redis, or memory.
STORE ?= redis
# How long the inputs that nobody would write are tried, all kinds together.
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help parts build demo test test-extra soak fuzz bench lint fmt docs
# Steps of one target must not overlap: the timing tests measure, and want the machine for themselves.
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

parts: ## fetch the real servers for tests and demo: Envoy, Redis (or Valkey)
	$(PYTHON) tests/support/fetch_parts.py

build: ## build the release binary, target/release/tallygate
	$(CARGO) build --release --locked

demo: parts build ## Tallygate behind a real Envoy; STORE=memory for the store without Redis
	$(PYTHON) examples/demo/demo.py --store $(STORE)

# The timing tests run after the rest, and one at a time: beside other tests they would measure those.
test: parts ## every test but those of test-extra and soak
	$(CARGO) test --locked --lib --bins --test suite
	$(CARGO) test --locked --doc
	$(CARGO) test --locked --test timing -- --test-threads=1

test-extra: ## the store's contract against every Redis and Valkey version that is supported, a short round of fuzzing, the walk-throughs
	$(PYTHON) tests/support/fetch_parts.py --all
	@$(CARGO) test --locked --test suite -- --list store_contract | grep -q ': test$$' || \
		{ echo 'test-extra: the suite has no test named store_contract' >&2; exit 1; } # cargo calls 0 tests a success
	TALLYGATE_ALL_SERVERS=1 $(CARGO) test --locked --test suite store_contract
	$(CARGO) test --locked --test fuzz -- --test-threads=1 --nocapture # the same cases in each run
	$(CARGO) test --locked --test guides

soak: parts ## the timing tests, with faults that last as long as they did in the field
	TALLYGATE_SOAK=1 $(CARGO) test --locked --release --test timing -- --test-threads=1
	TALLYGATE_SOAK=1 $(CARGO) test --locked --release --test suite -- file_watch numbers

fuzz: parts ## inputs that nobody would write, others in each run; FUZZ_SECONDS=3600 for an hour of them
	TALLYGATE_FUZZ_SECONDS=$(FUZZ_SECONDS) TALLYGATE_FUZZ_SEED=$$(date +%s) \
		$(CARGO) test --locked --test fuzz -- --test-threads=1 --nocapture

bench: ## what a decision costs, and its script each Redis and Valkey version, beside plain ones (benches/README.md)
	$(PYTHON) tests/support/fetch_parts.py --all
	$(CARGO) bench --locked --bench decisions
	$(CARGO) bench --locked --bench scripts -- --server redis-server-7.0
	$(CARGO) bench --locked --bench scripts -- --server redis-server-8.2
	$(CARGO) bench --locked --bench scripts -- --server valkey-server-8.1
	$(CARGO) bench --locked --bench scripts -- --server valkey-server-9.1

lint: ## formatting, clippy and rustdoc, with warnings as errors
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked

fmt: ## format the Rust code
	$(CARGO) fmt

docs: ## build the API documentation, target/doc/tallygate/index.html
	$(CARGO) doc --no-deps --locked

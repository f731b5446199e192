# Pollux. `make run` serves a disk; `make test` runs every test, real peers included.
# Both install what they need: Debian packages by apt-get (as root, or with sudo), nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

SOCKET ?= pollux.sock
DISK ?= memory:size=1G
BENCH ?=
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
export CARGO_TERM_COLOR ?= auto
CRATES := -p pollux-memory -p pollux-ring -p pollux-blk -p pollux-disk -p pollux-disk-conformance -p pollux-device -p pollux-driver -p pollux-load -p pollux-rbd -p pollux-stats -p pollux-threads -p pollux-sandbox -p pollux -p pollux-cli
# What a test needs and does not find is a failure. Some tests mount file systems and make loop devices: they are built
# by the user of this command, and run as root. Without a peer, or without root: make unit REQUIRE_PEERS=0 AS_ROOT=,
# where each test says what it skips.
REQUIRE_PEERS ?= 1
AS_ROOT := $(if $(filter 0,$(shell id -u)),,CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="sudo -E")
# SIGHUP may be ignored here (nohup), which is handed down; some tests send it. Some call make, which is not of this one.
PEERS := REQUIRE_PEERS=$(REQUIRE_PEERS) $(AS_ROOT) env --unset=MAKEFLAGS --default-signal=HUP cargo test --profile peers-tests --locked -p pollux-tests
# Of the tests with peers those that are not ignored; or the others: --ignored.
WHICH ?=
PEERS_ALL := $(basename $(notdir $(wildcard tests/tests/*.rs))) $(notdir $(patsubst %/main.rs,%,$(wildcard tests/tests/*/main.rs)))
# These count what a worker or a client does while it is alone on its processor.
PEERS_ALONE := $(filter bench_command blkio_model driver_hybrid limits metrics observed session_% top,$(PEERS_ALL))
PEERS_GUESTS := $(filter guest_%,$(PEERS_ALL))
PEERS_BESIDE := $(filter-out $(PEERS_ALONE) $(PEERS_GUESTS),$(PEERS_ALL))
# Of the same packages in either use, or their dependencies have other features and are built twice. Documentation tests
# warn of a make that is not theirs.
UNIT := REQUIRE_PEERS=$(REQUIRE_PEERS) $(AS_ROOT) env --unset=MAKEFLAGS cargo test --locked --features pollux/tokio $(CRATES) -p pollux-fuzz -p pollux-bench -p pollux-compare
LOOM := env CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" cargo test --locked --profile peers-tests --test loom \
    -p pollux-ring -p pollux-disk -p pollux-driver

.PHONY: help run build install setup test test-full lint unit api loom peers peers-build peers-guests peers-beside peers-alone peers-full fuzz bench prices miri clean guest

help: ## What there is to do
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: build ## Serve a 1 GiB memory disk on ./pollux.sock, and try it out (SOCKET=…, DISK=…)
	./dist/try.sh '$(SOCKET)' '$(DISK)'

build: ## Build target/release/pollux
	./tests/setup.sh build
	cargo build --release --locked

install: ## Put the program, its manual, completions and units under PREFIX (/usr/local); `make build` comes first
	./dist/install.sh '$(DESTDIR)' '$(PREFIX)' '$(SYSCONFDIR)'

setup: ## Install and fetch all that the tests need
	./tests/setup.sh

test: ## Every test, real peers included
	./tests/setup.sh build
	@echo "What waits for the network, or uses one processor only, runs beside something else."
	+$(MAKE) --no-print-directory --jobs=2 setup lint
	+$(MAKE) --no-print-directory --jobs=3 peers-build unit loom
	+$(MAKE) --no-print-directory peers
	@echo "make test: all passed"

test-full: ## The tests, and what takes longer: fuzzing, a second kernel, either engine
	+$(MAKE) --no-print-directory test
	+$(MAKE) --no-print-directory fuzz
	+$(MAKE) --no-print-directory peers-full
	@echo "make test-full: all passed"

lint: ## Formatting, clippy, documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features pollux/tokio --locked -- -D warnings
	for end in device driver; do \
		cargo clippy -p pollux --lib --no-default-features --features $$end --locked -- -D warnings || exit 1; \
	done
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked --quiet --features pollux/tokio $(CRATES)

unit: ## Unit, model and documentation tests of the crates, and each benchmark once (`make setup` comes first)
	$(UNIT)
	$(UNIT) --bench '*'

api: ## Write the lists of the public interface anew (crates/pollux/api); a test compares them
	UPDATE_EXPECT=1 cargo test --locked -p pollux --test api

loom: ## Every interleaving of sleep and wake; and proof that the proof bites
	./crates/ring/tests/loom.sh $(LOOM)

miri: ## What an interpreter can follow: spans, words, both ends of a ring (needs component miri of a nightly toolchain)
	CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked -p pollux-memory --lib -- span:: word::
	CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked -p pollux-ring --test heap

peers-build: build
	$(PEERS) --no-run

peers: build ## Linux guests under QEMU, and libblkio, against the release binary
	@echo "A guest takes one processor: tests that mostly wait run beside the guests, and tests that count run alone."
	+failed=0; \
	$(MAKE) --no-print-directory --jobs=2 --keep-going peers-guests peers-beside || failed=1; \
	$(MAKE) --no-print-directory peers-alone || failed=1; \
	exit $$failed

peers-guests: build
	$(PEERS) --no-fail-fast $(PEERS_GUESTS:%=--test %) -- --test-threads=1 $(WHICH)

peers-beside: build
	$(PEERS) --no-fail-fast --lib --bins $(PEERS_BESIDE:%=--test %) -- --test-threads=1 $(WHICH)

peers-alone: build
	$(PEERS) --no-fail-fast $(PEERS_ALONE:%=--test %) -- --test-threads=1 $(WHICH)

peers-full: build ## The full set on a second kernel, and with files from either engine for all disks
	./tests/setup.sh full
	+$(MAKE) --no-print-directory peers WHICH=--ignored
	for engine in io_uring threads; do \
	    echo "every disk is a file with engine=$$engine"; \
	    POLLUX_TEST_FILE=engine=$$engine $(PEERS) --test 'blkio_*' --test 'session_*' --test guest_linux61 \
	        -- --test-threads=1 --skip files_of_every_kind; \
	done
	POLLUX_TEST_KILLS=100 $(PEERS) --test recovery --test driver_reconnect -- --test-threads=1
	# Threads of the kernel, which reads of tmpfs need then, cannot be watched, end when they like, and want a processor:
	# of two, one is the client's, so the worker does not poll.
	POLLUX_TEST_FILE=engine=io_uring,inline=off,buffers=registered $(PEERS) --test 'blkio_*' --test 'session_*' \
	    -- --test-threads=1 --skip an_idle_session --skip a_steady_load --skip the_bounds_on_looking

fuzz: ## Every fuzz target for FUZZ_SECONDS (60), as many at a time as there are CPUs
	./tests/setup.sh build
	./fuzz/run.sh

bench: build ## Pollux beside its peers, on a quiet machine (hours; BENCH=--help); writes bench/RESULTS.md
	./tests/setup.sh
	cargo run --release --locked -p pollux-bench -- $(BENCH)

guest: ## The guest's driver, pollux_blk, for the running kernel (KDIR=… for another; see guest/README.md)
	$(MAKE) -C guest

prices: ## What this machine charges for wake-ups, copies and system calls
	./tests/setup.sh build
	cargo run --release --locked -p pollux-bench -- --prices

clean: ## Remove what was built, fetched peers included
	cargo clean

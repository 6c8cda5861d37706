# make run      build and start a node; data in ./thalweg-data
# make test     every test, from a clean machine (system packages and RocksDB are taken care of)
# make compat   unmodified Kafka clients against a node, one table       make compat-full   also what takes an hour: see docs/COMPAT.md
# make verify   format, lints, architecture rules; changes nothing          make fix    what verify can mend
# make chaos    a real cluster killed, cut and filled up under load, its power cut, its nodes restarted in turn, it grows and shrinks: see docs/CHAOS.md
# make sim      SIM_SEEDS (10000) simulated clusters, every invariant at every step: see docs/SIMULATION.md
# make fuzz     each fuzz target for FUZZ_SECONDS (60)
# make bench    figures beside bare loops, Kafka and other peers, into docs/BENCHMARKS.md     make bench-full   everything
# make count    instructions that the hottest functions execute, beside the recorded ones
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: run build test-packages release test test-fast test-kafka chaos compat compat-full verify fix sim fuzz bench bench-full count rocksdb packages help

FUZZ_SECONDS ?= 60
SIM_SEEDS ?= 10000
REAL_WORK_LINES ?= 100000
EXPORT_RECORDS ?= 50000
CHAOS_RECORDS ?= 200000
POWER_CUTS ?= 5
ROLLING_ROUNDS ?= 2
MOVES_MEGABYTES ?= 200
# A workspace of its own.
PEER_LOAD := benches/peers/load/Cargo.toml
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Asked anew for each recipe: on a fresh machine the compiler, which the folder is named by, comes with `packages`.
export ROCKSDB_LIB_DIR = $(shell deploy/rocksdb/build --where)
export ROCKSDB_STATIC := 1
export THALWEG_BIN ?= $(abspath $(TARGET)/release/thalweg)

help:
	@sed -n '1,9s/^# //p' Makefile

packages:
	@deploy/system-packages

test-packages:
	@deploy/system-packages test

rocksdb: packages
	@deploy/rocksdb/build >/dev/null

build: rocksdb
	cargo build --workspace --all-targets

release: rocksdb
	cargo build --release -p thalweg

run: release
	$(TARGET)/release/thalweg dev

# What a developer runs while working. The tests of whole nodes run the binary that was built last.
test-fast: packages
	cargo build -p thalweg
	THALWEG_BIN=$(abspath $(TARGET)/debug/thalweg) cargo test

test: test-packages rocksdb release
	cargo test --workspace
	tests/clients/run --light -j3
	tests/real-work --lines $(REAL_WORK_LINES)
	tests/export --records $(EXPORT_RECORDS) || [ $$? = 77 ]
	tests/chaos/run --records $(CHAOS_RECORDS)
	tests/chaos/power-cut --cuts $(POWER_CUTS)
	tests/rolling --rounds $(ROLLING_ROUNDS)

# Apache Kafka's own classes read our segments, indexes and messages. Needs a JDK of at least 17 and Maven.
test-kafka:
	tests/interop/dump-log-segments
	wire/tests/kafka/check

# Clients whose package manager is missing are reported as not run.
compat: test-packages release
	tests/clients/run --light -j3

# Also the clients that are built from source, the test suites of other projects, and Apache Kafka beside us (77: no JDK).
compat-full: test-packages release
	tests/clients/run -j2
	tests/suites/run
	tests/oracle/run || [ $$? = 77 ]

verify: rocksdb
	cargo fmt --all --check
	cargo fmt --manifest-path $(PEER_LOAD) --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --locked --manifest-path $(PEER_LOAD) --all-targets -- -D warnings
	cargo run -q -p thalweg-tidy

fix: rocksdb
	cargo fmt --all
	cargo fmt --manifest-path $(PEER_LOAD)
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

chaos: test-packages release
	tests/chaos/run --records $(CHAOS_RECORDS)
	tests/chaos/power-cut --cuts $(POWER_CUTS)
	tests/rolling --rounds $(ROLLING_ROUNDS)
	tests/moves --megabytes $(MOVES_MEGABYTES)
	tests/moves --megabytes $(MOVES_MEGABYTES) --kill

sim: packages
	cargo run --profile sim -p thalweg-sim -- --seeds $(SIM_SEEDS)

fuzz:
	fuzz/run $(FUZZ_SECONDS)

# Peers that cannot be had (no JDK, no Debian) are reported as not run.
bench bench-full: release
	cargo build --release -p thalweg-benches --bin thalweg-bench
	$(TARGET)/release/thalweg-bench --binary $(THALWEG_BIN) --peers benches/peers --write docs/BENCHMARKS.md $(if $(filter bench,$@),--quick)

count: test-packages rocksdb
	cargo build --release -p thalweg-benches --bin thalweg-hot
	benches/instructions

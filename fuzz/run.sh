#!/bin/bash
# Runs the fuzz targets.
#
#   fuzz/run.sh [TARGET...]     those, or all
#   FUZZ_SECONDS=60             for how long each
#   FUZZ_JOBS=N                 how many at a time (default: as many as there are CPUs)
#   FUZZ_SANITIZER=none         or address: finds uses of freed memory as well, several times slower
#   FUZZ_RUNS=N                 stop a target after so many executions
#
# It starts from fuzz/corpus-seed and keeps what is new in fuzz/corpus. A find lies in fuzz/artifacts/TARGET;
# `cargo run -p pollux-fuzz --bin TARGET FILE` repeats it. The flags are cargo-fuzz's, whose other commands
# (`cargo fuzz cmin`, `tmin`, `coverage`) work here as well: this takes nothing but Rust and a C++ compiler.
#
# fuzz/corpus-seed is small, as `make test` replays it: of a long run's corpus, the least set of short inputs
# that reaches as many edges (`TARGET -set_cover_merge=1 -use_counters=0 -max_len=400 NEW fuzz/corpus/TARGET`,
# of which the 64 longest), and by name what was found or is worth reading.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${FUZZ_SECONDS:-60} jobs=${FUZZ_JOBS:-$(nproc)} sanitizer=${FUZZ_SANITIZER:-none} runs=${FUZZ_RUNS:--1}
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(chain session config image request spec)
target=x86_64-unknown-linux-gnu
[ "$(uname -m)" = x86_64 ] || target=$(rustc -vV | sed -n 's/^host: //p')

flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares"
case $sanitizer in
none) ;;
address)
    flags+=" -Zsanitizer=address"
    export RUSTC_BOOTSTRAP=1
    ;;
*) echo "FUZZ_SANITIZER=$sanitizer: it is none or address" >&2; exit 1 ;;
esac

# A target of its own, so that build scripts are not built with the flags.
folder=${CARGO_TARGET_DIR:-target}/fuzz-$sanitizer
bins=()
for name in "${targets[@]}"; do bins+=(--bin "$name"); done
RUSTFLAGS=$flags CARGO_TARGET_DIR=$folder \
    cargo build --locked --profile fuzz -p pollux-fuzz --target "$target" "${bins[@]}"

# longest TARGET: how long an input may be. An image has room for its tables and some clusters.
longest() { [ "$1" = image ] && echo 16384 || echo 4096; }

# run_one TARGET: to fuzz/logs/TARGET.log, of which the end is shown if it fails.
run_one() {
    local name=$1 dict=() status=0
    mkdir -p "fuzz/corpus/$name" "fuzz/artifacts/$name" fuzz/logs
    [ ! -e "fuzz/dictionaries/$name" ] || dict=(-dict="fuzz/dictionaries/$name")
    (
        # As Rust does in a program with a main function of its own, which these have not: a call into a pipe
        # that nobody reads is an error, not the end.
        trap '' PIPE
        exec "$folder/$target/fuzz/$name" "fuzz/corpus/$name" "fuzz/corpus-seed/$name" "${dict[@]}" \
            -artifact_prefix="fuzz/artifacts/$name/" -max_total_time="$seconds" -runs="$runs" \
            -max_len="$(longest "$name")" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1
    ) >"fuzz/logs/$name.log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
        tail -n 40 "fuzz/logs/$name.log"
        echo "fuzz: $name FAILED with status $status; its input is in fuzz/artifacts/$name"
        return 1
    fi
    sed -n "s/^stat::number_of_executed_units: */fuzz: $name ran clean, executions: /p" "fuzz/logs/$name.log"
}

# Each is waited for by its number: of two that end at once, `wait -n` may miss one.
failed=0 running=()
for name in "${targets[@]}"; do
    if [ "${#running[@]}" -ge "$jobs" ]; then
        wait "${running[0]}" || failed=1
        running=("${running[@]:1}")
    fi
    run_one "$name" &
    running+=($!)
done
for pid in "${running[@]}"; do
    wait "$pid" || failed=1
done
[ "$failed" = 0 ] || exit 1

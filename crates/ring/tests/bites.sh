#!/bin/sh
# Does the proof bite? Each loom test of a package must end in a lost wake-up (a deadlock, or an assertion
# that says so) once either full fence of the handshake is gone.
#
#   crates/ring/tests/bites.sh PACKAGE...
#
# Builds below $CARGO_TARGET_DIR/loom (default target/loom): other flags would rebuild everything there.
set -eu
target=${CARGO_TARGET_DIR:-target}/loom
failed=0
for package in "$@"; do
    for fence in writer reader; do
        export RUSTFLAGS="--cfg loom --cfg without_fence=\"$fence\"" CARGO_TARGET_DIR="$target/without-$fence"
        cargo test --quiet --release --package "$package" --test loom --no-run
        run() { cargo test --quiet --release --package "$package" --test loom -- "$@" 2>&1; }
        tests=$(run --list --format terse | sed -n 's/: test$//p')
        [ -n "$tests" ] || { echo "$package has no loom tests"; exit 1; }
        for test in $tests; do
            # A test that hangs or fails for another reason proves nothing either.
            if said=$(run --exact "$test"); then
                echo "NO BITE: $package $test passes without the $fence's fence"
                failed=1
            elif ! echo "$said" | grep -qE 'deadlock; threads =|a lost wake-up'; then
                echo "NO BITE: $package $test fails without the $fence's fence, but not asleep:"
                echo "$said"
                failed=1
            else
                echo "bites: $package $test without the $fence's fence"
            fi
        done
    done
done
exit $failed

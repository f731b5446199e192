#!/bin/bash
# Runs the loom tests: each program by itself, all at once, as one process could not use two processors. Then, does
# the proof bite? Each test must end in a lost wake-up (a deadlock, or an assertion that says so) once either full fence
# of the handshake is gone; but for those of a module `apart`, which say why.
#
#   crates/ring/tests/loom.sh COMMAND...     the one that builds the loom tests
set -euo pipefail

# What runs them is built, and its programs are called by themselves.
mapfile -t programs < <("$@" --no-run 2>&1 | sed -n 's/^ *Executable .* (\(.*\))$/\1/p')
[ ${#programs[@]} -gt 0 ] || { echo "no loom tests: what \`$* --no-run\` says"; "$@" --no-run; exit 1; }

said=$(mktemp -d)
running=()
# They do not hear the terminal's interrupt.
trap 'kill "${running[@]}" 2>/dev/null || :; rm -rf "$said"' EXIT
for program in "${programs[@]}"; do
    "$program" --test-threads=1 >"$said/${program##*/}" 2>&1 &
    running+=($!)
done
failed=0
for at in "${!programs[@]}"; do
    wait "${running[at]}" || failed=1
    echo "${programs[at]}"
    cat "$said/${programs[at]##*/}"
done
running=()
[ $failed = 0 ] || exit 1

for program in "${programs[@]}"; do
    tests=$("$program" --list --format terse | sed -n '/^apart::/!s/: test$//p')
    [ -n "$tests" ] || { echo "$program has no loom tests"; exit 1; }
    for fence in writer reader; do
        for test in $tests; do
            # A test that hangs or fails for another reason proves nothing either.
            if output=$(WITHOUT_FENCE=$fence "$program" --exact "$test" 2>&1); then
                echo "NO BITE: $test passes without the $fence's fence"
                failed=1
            elif ! grep -qE 'deadlock; threads =|a lost wake-up' <<<"$output"; then
                echo "NO BITE: $test fails without the $fence's fence, but not asleep:"
                echo "$output"
                failed=1
            else
                echo "bites: $test without the $fence's fence"
            fi
        done
    done
done
exit $failed

#!/bin/bash
# Does the proof bite? Each loom test must end in a lost wake-up (a deadlock, or an assertion that says so) once
# either full fence of the handshake is gone; but for those of a module `apart`, which say why.
#
#   crates/ring/tests/bites.sh COMMAND...     the one that runs the loom tests
set -euo pipefail

# What runs them is built, and its programs are called by themselves.
mapfile -t programs < <("$@" --no-run 2>&1 | sed -n 's/^ *Executable .* (\(.*\))$/\1/p')
[ ${#programs[@]} -gt 0 ] || { echo "no loom tests: what \`$* --no-run\` says"; "$@" --no-run; exit 1; }

failed=0
for program in "${programs[@]}"; do
    tests=$("$program" --list --format terse | sed -n '/^apart::/!s/: test$//p')
    [ -n "$tests" ] || { echo "$program has no loom tests"; exit 1; }
    for fence in writer reader; do
        for test in $tests; do
            # A test that hangs or fails for another reason proves nothing either.
            if said=$(WITHOUT_FENCE=$fence "$program" --exact "$test" 2>&1); then
                echo "NO BITE: $test passes without the $fence's fence"
                failed=1
            elif ! grep -qE 'deadlock; threads =|a lost wake-up' <<<"$said"; then
                echo "NO BITE: $test fails without the $fence's fence, but not asleep:"
                echo "$said"
                failed=1
            else
                echo "bites: $test without the $fence's fence"
            fi
        done
    done
done
exit $failed

#!/bin/sh
# The tests of `make test` in two processes: those that act on environments, under the one lock a machine has, with those
# of builds and of the kernels, and the others beside them: about as long each. Both are read to the end; the exit code is the worse of
# the two.
set -u
: "${BIN:=.venv/bin}"
which="not system and not network"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
"$BIN/pytest" -m "$which" tests/apply tests/cli/test_libs_command.py \
    tests/cli/test_libs_for_real.py tests/lock tests/build tests/kernels >"$log" 2>&1 &
acting=$!
trap 'kill $acting 2>/dev/null; rm -f "$log"; exit 130' INT TERM
"$BIN/pytest" -m "$which" --ignore=tests/apply --ignore-glob='tests/cli/test_libs_*' --ignore=tests/lock \
    --ignore=tests/build --ignore=tests/kernels
others=$?
wait "$acting"
acted=$?
echo "== the tests that act, of builds and of the kernels, run beside the others"
cat "$log"
[ "$others" -eq 0 ] || exit "$others"
exit "$acted"

#!/bin/bash
# Grammars in quern run: what is refused, and that the text follows them.
# usage: grammar.sh PROGRAM OWN_DATA SHARED_DATA
set -u
quern=$1
grammars=$(dirname "$0")/../../grammars
model=${XDG_CACHE_HOME:-$HOME/.cache}/quern/SmolLM2-135M-Instruct.Q4_1.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CONFIG_HOME=$scratch/config
unset $(compgen -v LLAMA_ARG_) 2>/dev/null
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# refused PATTERN FLAG...: before any model is read
refused() {
    local pattern=$1; shift
    local output; output=$("$quern" run -m no/such/file -p x "$@" 2>&1) && fail "$*: exit 0"
    grep -qE -- "$pattern" <<<"$output" || fail "$*: no /$pattern/ in: $output"
}

refused 'only one of --grammar' --grammar 'root ::= "a"' -j '{}'
refused 'unrecognized type decimal' -j '{"type":"decimal"}'
refused 'no JSON' --json-schema '{'
refused 'no/such/schema' -jf no/such/schema
refused 'no/such/grammar' --grammar-file no/such/grammar
refused 'no/such/file' --json-schema '{"type":"integer"}'

[ -r "$model" ] || { echo "skipped: SmolLM2 is not here: tools/fetch_model.sh fetches it"; exit $((failures > 0 ? 1 : 77)); }

# run FLAG...: text in $text, the rest in $scratch/rest
run() {
    text=$("$quern" run -m "$model" -p 'The answer is' -n 40 -s 5 --no-display-prompt --no-show-timings "$@" 2>"$scratch/rest")
}

run --grammar 'root ::= "yes" | "no"' || fail "yes or no: $(cat "$scratch/rest")"
grep -qxE 'yes|no' <<<"$text" || fail "neither yes nor no: $text"
run -j '{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":25},"ok":{"type":"boolean"}},"required":["n","ok"],"additionalProperties":false}' ||
    fail "schema: $(cat "$scratch/rest")"
python3 -c '
import json, sys
v = json.loads(sys.argv[1])
assert list(v) == ["n", "ok"] and 10 <= v["n"] <= 25 and isinstance(v["ok"], bool)' "$text" || fail "does not fit the schema: $text"
first=$text
run -j '{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":25},"ok":{"type":"boolean"}},"required":["n","ok"],"additionalProperties":false}' --show-probs 3
[ "$first" = "$text" ] || fail "seed 5 gives '$first', then '$text'"
run --grammar-file "$grammars/json.gbnf" || fail "JSON: $(cat "$scratch/rest")"
grep -q 'samplers: .*+top-k .*+dist' "$scratch/rest" || fail "not in the graph: $(cat "$scratch/rest")"
first=$text
run --grammar-file "$grammars/json.gbnf" --no-backend-sampling
grep -q 'samplers: .*-> dist' "$scratch/rest" || fail "not outside: $(cat "$scratch/rest")"
[ "$first" = "$text" ] || fail "JSON in the graph '$first', outside '$text'"
printf 'root ::= [0-9]+\n' >"$scratch/digits"
run --grammar-file "$scratch/digits" || fail "digits: $(cat "$scratch/rest")"
grep -qxE '[0-9]+' <<<"$text" || fail "no digits: $text"
run --grammar 'root ::= root "x"' && fail "left recursion: exit 0"
grep -q 'left recursion' "$scratch/rest" || fail "left recursion: $(cat "$scratch/rest")"
exit $((failures > 0))

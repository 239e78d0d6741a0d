#!/bin/bash
# The sampling flags: what is refused, the chain that they make, the seed, the probabilities shown.
# usage: sampling.sh PROGRAM OWN_DATA SHARED_DATA
set -u
quern=$1
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

for n in 0 -1; do refused 'penalty_repeat must be finite and greater than 0' --repeat-penalty $n; done
for flag in repeat frequency presence; do
    for n in nan inf -inf x; do refused "error: --$flag-penalty: \"$n\" is not a number" --$flag-penalty $n; done
done
refused '^error: --repeat-last-n: -1 is not between 0' --repeat-last-n -1
refused '^error: --dry-penalty-last-n: -1 is not between 0' --dry-penalty-last-n -1
refused '^error: --mirostat: 3 is not between 0 and 2' --mirostat 3
refused '^error: --mirostat: -1 is not between 0 and 2' --mirostat -1
for flag in temp top-p min-p typical top-nsigma xtc-probability xtc-threshold dynatemp-range dynatemp-exp \
    dry-multiplier dry-base mirostat-ent mirostat-lr adaptive-target adaptive-decay; do
    for n in nan inf -inf 1e39 0.5x ''; do refused "^error: --$flag: \"$n\" is not a number" --$flag "$n"; done
done
for flag in top-k repeat-last-n dry-allowed-length dry-penalty-last-n mirostat seed; do
    for n in x 1.5 ''; do refused "^error: --$flag: " --$flag "$n"; done
done
refused '^error: --top-k: 2147483648 is not between' --top-k 2147483648
refused '^error: --dry-allowed-length: -1 is not between 0' --dry-allowed-length -1
refused '^error: penalties: last_n 1048577 is more than 1048576' --repeat-last-n 1048577
for bias in 5 +5 5+ 5*2 5+x 5+-1 -5+1 5+nan; do refused '^error: --logit-bias: ' -l "$bias"; done
refused 'only one of --samplers and --sampler-seq' --samplers top_k --sampler-seq k
refused 'at most 64 samplers' --sampler-seq "$(printf 'k%.0s' {1..65})"
refused 'no sampler is called "bottom_k"' --samplers 'top_k;bottom_k'
refused 'no sampler is called "z"' --sampling-seq kz
refused 'no/such/file' --repeat-penalty 1.1 -l 5-inf -l 7+1.5 --samplers 'TOP-K;nucleus;temp'

[ -r "$model" ] || { echo "skipped: SmolLM2 is not here: tools/fetch_model.sh fetches it"; exit $((failures > 0 ? 1 : 77)); }

# run FLAG...: text in $text, the rest in $scratch/rest
run() {
    text=$("$quern" run -m "$model" -p 'The sea is' -n 8 --no-display-prompt --no-show-timings "$@" 2>"$scratch/rest") ||
        fail "$*: $(cat "$scratch/rest")"
}
# chain NAMES FLAG...: the samplers, without the marks of where they run
chain() {
    local want=$1; shift
    run "$@"
    sed -i 's/-> [+-]/-> /g' "$scratch/rest"
    grep -qxF "samplers: logits -> $want " "$scratch/rest" || fail "$*: $(grep samplers: "$scratch/rest")"
}

chain '?penalties -> ?dry -> ?top-n-sigma -> top-k -> ?typical -> top-p -> min-p -> ?xtc -> temp-ext -> dist' -s 3
first=$text
chain '?penalties -> ?dry -> ?top-n-sigma -> top-k -> ?typical -> top-p -> min-p -> ?xtc -> temp-ext -> dist' -s 3
[ "$first" = "$text" ] || fail "seed 3 gives '$first', then '$text'"
run
seed=$(sed -n 's/^seed: //p' "$scratch/rest"); first=$text
run -s "$seed"
[ "$first" = "$text" ] || fail "random seed $seed gives '$first', then '$text'"
chain 'top-k -> temp-ext -> top-k -> dist' --samplers 'top_k;temperature;topk' -s 1
inside='logits -> +top-k -> +temp-ext -> +dist'
run --samplers 'top_k;temperature' -s 1
grep -qF "$inside" "$scratch/rest" || fail "not in the graph: $(grep samplers: "$scratch/rest")"
first=$text
run --samplers 'top_k;temperature' -s 1 --no-backend-sampling
grep -qF "${inside//+/}" "$scratch/rest" || fail "in the graph: $(grep samplers: "$scratch/rest")"
[ "$first" = "$text" ] || fail "in the graph '$first', outside '$text'"
chain 'top-k -> temp-ext -> dist' --sampling-seq kt -s 1
# in the graph and outside: the same text, whoever learns, looks back or draws
for flags in '--mirostat 2' '--mirostat 1' '--samplers min_p;adaptive_p --adaptive-target 0.2' \
    '--repeat-penalty 1.3 --dry-multiplier 1 --xtc-probability 0.5 --dynatemp-range 0.4 -l 260-inf'; do
    run -s 9 -n 12 $flags; first=$text
    grep -q 'samplers: .*-> +' "$scratch/rest" || fail "not in the graph: $flags"
    run -s 9 -n 12 $flags --no-backend-sampling
    grep -q 'samplers: .*-> +' "$scratch/rest" && fail "in the graph: $flags"
    [ "$first" = "$text" ] || fail "$flags: in the graph '$first', outside '$text'"
done
LLAMA_ARG_BACKEND_SAMPLING=0 run -s 9 --samplers top_k
grep -qF 'logits -> top-k -> dist' "$scratch/rest" || fail "not outside: $(grep samplers: "$scratch/rest")"
chain 'temp -> mirostat-v2' --mirostat 2 -s 1
chain 'temp -> mirostat' --mirostat 1 -s 1
chain 'min-p -> adaptive-p' --sampler-seq ma --adaptive-target 0.3 -s 1
chain 'logit-bias -> penalties -> dry -> xtc -> dist' --sampler-seq edx --repeat-penalty 1.2 \
    --dry-multiplier 0.8 --dry-sequence-breaker '\n' --xtc-probability 0.5 --ignore-eos -s 1

# a banned token is not written, a wanted one is
run --temp 0; best=$text
run --temp 0 --show-probs 4
[ "$text" = "$best" ] || fail "showing probabilities changes '$best' to '$text'"
grep -q '^seed' "$scratch/rest" && fail "a seed where nothing is drawn"
run -s 5 --show-probs 4; drawn=$text
run -s 5
[ "$text" = "$drawn" ] || fail "showing probabilities changes '$text' to '$drawn'"
run -s 5 --show-probs 4
grep '^{' "$scratch/rest" >"$scratch/lines"
[ "$(wc -l <"$scratch/lines")" = 8 ] || fail "not 8 lines of JSON"
python3 - "$scratch/lines" <<'END' || fail "the lines of --show-probs"
import json, sys
for number, line in enumerate(open(sys.argv[1])):
    row = json.loads(line)
    assert row["step"] == number and 0 < row["prob"] <= 1 and row["text"]
    probs = [one["prob"] for one in row["top"]]
    assert 1 <= len(probs) <= 4 and probs == sorted(probs, reverse=True) and sum(probs) < 1.0001
    assert all(one["prob"] == row["prob"] for one in row["top"] if one["id"] == row["id"])
END
id=$(head -1 "$scratch/lines" | sed 's/.*"id": \([0-9]*\), "text".*"top".*/\1/; s/^{"step": 0, "id": \([0-9]*\).*/\1/')
run --temp 0 -l "$id-inf" --show-probs 1
grep -q "\"id\": $id," "$scratch/rest" && fail "token $id is banned and written"
run --temp 0 -l "$id+100" --show-probs 1
[ "$(grep -c "\"step\": [0-9]*, \"id\": $id," "$scratch/rest")" = 8 ] || fail "token $id is not wanted: $(cat "$scratch/rest")"

# what only a model can tell
stops() {
    local pattern=$1; shift
    "$quern" run -m "$model" -p x -n 4 "$@" >"$scratch/rest" 2>&1; local code=$?
    [ $code = 1 ] || fail "$*: exit $code: $(cat "$scratch/rest")"
    grep -qE -- "$pattern" "$scratch/rest" || fail "$*: no /$pattern/ in: $(cat "$scratch/rest")"
}
stops '^error: logit bias: there is no token 49152, the vocabulary has 49152 tokens' -l 49152+1
stops '^error: logit bias: there is no token 2147483647' -l 5-inf -l 2147483647-inf
stops '^error: dry: last_n 1048577 is more than 1048576' --dry-penalty-last-n 1048577 --dry-multiplier 1
# every token banned: by a grammar of which no token is a part
stops '^error: .*no candidate is left' --grammar 'root ::= [^\x00-\U0010FFFF]'
stops '^error: .*no candidate is left' --grammar 'root ::= [^\x00-\U0010FFFF]' --show-probs 2
# an order of nothing is a plain draw
chain 'dist' --samplers '' -s 1
chain 'dist' --samplers ';;' -s 1
# a base below 1 counts for nothing: the default stays
run -s 5 -n 24 --dry-multiplier 2 --dry-allowed-length 0; first=$text
run -s 5 -n 24 --dry-multiplier 2 --dry-allowed-length 0 --dry-base 0.5
[ "$first" = "$text" ] || fail "--dry-base 0.5 gives '$text', not '$first'"

[ $failures = 0 ] && echo "sampling: ok"
exit $((failures > 0))

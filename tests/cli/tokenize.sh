#!/bin/bash
# "quern tokenize": both forms, flags, where the text comes from, errors.
# usage: tokenize.sh PROGRAM OWN_DATA SHARED_DATA
set -u
quern=$1
vocab=$3/vocab-synthetic/syn-spm-1.gguf
real=$3/vocab/ggml-vocab-llama-spm.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch XDG_CONFIG_HOME=$scratch
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# errors, which need no data
"$quern" tokenize -p x 2>"$scratch/err" && fail "no model passes"
grep -q '^error: .*--model' "$scratch/err" || fail "a missing -m is not named"
"$quern" tokenize -m "$scratch/none.gguf" -p x 2>"$scratch/err" && fail "a missing file passes"
grep -q 'none.gguf' "$scratch/err" || fail "the missing file is not named"
printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >"$scratch/empty.gguf"
"$quern" tokenize -m "$scratch/empty.gguf" -p x 2>"$scratch/err" && fail "no vocabulary passes"
grep -q 'empty.gguf: .*tokenizer.ggml.model' "$scratch/err" || fail "the missing key is not named"
"$quern" tokenize -m "$scratch/empty.gguf" 2>"$scratch/err" && fail "no text passes"
"$quern" tokenize -m "$scratch/empty.gguf" -p x --stdin </dev/null 2>"$scratch/err" &&
    fail "two texts pass"
grep -q -- '--stdin' "$scratch/err" || fail "two texts are not named"
if [ ! -r "$vocab" ] || [ ! -r "$real" ]; then
    [ $failures = 0 ] && echo "skipped: no recorded data" && exit 77
    exit 1
fi

same() { # text of what is compared, got, expected
    [ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"
}
same ids "$("$quern" tokenize -m "$real" -p 'Hello world' --ids)" '[1, 15043, 3186]'
same no-bos "$("$quern" tokenize -m "$real" -p 'Hello world' --ids --no-bos)" '[15043, 3186]'
same table "$("$quern" tokenize -m "$real" -p 'Hello world' --show-count)" \
    "     1 -> '<s>'
 15043 -> ' Hello'
  3186 -> ' world'
Total number of tokens: 3"
same special "$("$quern" tokenize -m "$real" -p '</s>' --ids --no-bos)" '[2]'
same plain "$("$quern" tokenize -m "$real" -p '</s>' --ids --no-bos --no-parse-special)" \
    '[1533, 29879, 29958]'
same escape "$("$quern" tokenize -m "$real" -p 'a\n' --ids --no-bos)" '[263, 13]'
same no-escape "$("$quern" tokenize -m "$real" -p 'a\n' --ids --no-bos --no-escape)" \
    '[263, 29905, 29876]'
same stdin "$(printf 'a\n' | "$quern" tokenize -m "$real" --stdin --ids --no-bos)" '[263]'
printf 'a\n' >"$scratch/text"
same file "$("$quern" tokenize -m "$real" -f "$scratch/text" --ids --no-bos)" '[263]'
"$quern" tokenize -m "$real" -p $'\xff' --no-bos | grep -qa 'utf-8 decode failure' ||
    fail "a byte that is no text is not marked"
[ $failures = 0 ]

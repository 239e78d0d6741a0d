#!/bin/bash
# The argument table: help, precedence, spellings, messages and exit codes.
# usage: args.sh PROGRAM OWN_DATA SHARED_DATA
set -u
quern=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch XDG_CONFIG_HOME=$scratch/config
unset $(compgen -v LLAMA_ARG_) 2>/dev/null
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# expect CODE PATTERN COMMAND...: exit code, and an extended pattern in what it prints
expect() {
    local code=$1 pattern=$2; shift 2
    local output; output=$("$@" 2>&1); local got=$?
    [ $got = "$code" ] || fail "$* -> exit $got, not $code: $output"
    grep -qE -- "$pattern" <<<"$output" || fail "$*: no /$pattern/ in: $output"
}

expect 0 'usage: quern COMMAND' "$quern" help
expect 1 'usage: quern COMMAND' "$quern"
expect 0 '^quern [0-9]+\.[0-9]+\.[0-9]+$' "$quern" --version
expect 0 '^compiler: ' "$quern" gguf --version
expect 1 '"nonsense" is no command' "$quern" nonsense
expect 0 '^usage: quern gguf ' "$quern" help gguf
expect 0 '^usage: quern gguf ' "$quern" gguf -h
expect 0 '^complete ' "$quern" --completion-bash
"$quern" --completion-bash | bash -n || fail "the completion script is not bash"

# unknown flags, missing and bad values
expect 1 '^error: invalid argument: --jsn$' "$quern" gguf --jsn x
expect 1 '^did you mean --json\?$' "$quern" gguf --jsn x
expect 1 '^did you mean --temp\?$' "$quern" run --tmep 1
expect 1 'expected value for argument' "$quern" gguf --log-file
expect 1 '^error: -lv: "loud" is not a whole number' "$quern" gguf -lv loud x
expect 1 '^error: -lv: 6 is not between 0 and 5' "$quern" gguf -lv 6 x
expect 1 '^-lv, --log-verbosity, --verbosity N' "$quern" gguf -lv 6 x
expect 1 'invalid argument: two' "$quern" gguf one two
expect 1 'which file' "$quern" gguf
expect 1 'no/such/file' "$quern" gguf no/such/file
expect 1 'warning: -lv is given more than once' "$quern" gguf -lv 1 -lv 2 no/such/file
expect 1 'no/such/file' "$quern" gguf --log_verbosity 2 no/such/file

# every flag fits its columns
"$quern" gguf -h | awk 'length($0) > 112 { print "too long: " $0; bad = 1 } END { exit bad }' ||
    fail "help lines are too long"

# precedence: file < environment < command line
mkdir -p "$scratch/config/quern" "$scratch/config/llama.cpp"
echo 'log-verbosity = nine' >"$scratch/config/llama.cpp/config.ini"
expect 1 'llama.cpp/config.ini:1: log-verbosity: "nine"' "$quern" gguf x
printf '# comment\n[gguf]\nunknown-key = 1\nLLAMA_ARG_LOG_VERBOSITY = 7\n' >"$scratch/config/quern/config.ini"
rm "$scratch/config/llama.cpp/config.ini"
expect 1 'quern/config.ini:4: .*7 is not between' "$quern" gguf x
printf '[other]\nlog-verbosity = 3\n' >"$scratch/config/quern/config.ini"
expect 1 'variable LLAMA_ARG_LOG_VERBOSITY: "x" is not' env LLAMA_ARG_LOG_VERBOSITY=x "$quern" gguf x
expect 1 'overrides the environment variable' env LLAMA_ARG_LOG_VERBOSITY=1 "$quern" gguf -lv 2 x
expect 1 'neither on nor off' env LLAMA_ARG_LOG_PREFIX=maybe "$quern" gguf x
expect 1 'no "="' bash -c "echo broken >$scratch/config/quern/config.ini; $quern gguf x"

# under another program's name
ln -s "$(realpath "$quern")" "$scratch/llama-gguf"
rm "$scratch/config/quern/config.ini"
expect 0 '^usage: quern gguf ' "$scratch/llama-gguf" -h

[ $failures = 0 ] && echo "args: ok"
exit $((failures > 0))

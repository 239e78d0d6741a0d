#!/bin/bash
# "quern quantize": words and flags of the command line, messages, the file that comes out.
# usage: quantize.sh PROGRAM OWN_DATA SHARED_DATA
set -u
quern=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch XDG_CONFIG_HOME=$scratch
cd "$scratch" || exit 1
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# expect CODE PATTERN COMMAND...: exit code, and an extended pattern in what it prints
expect() {
    local code=$1 pattern=$2; shift 2
    local output; output=$("$@" 2>&1); local got=$?
    [ $got = "$code" ] || fail "$* -> exit $got, not $code: $output"
    grep -qE -- "$pattern" <<<"$output" || fail "$*: no /$pattern/ in: $output"
}

# one key and a matrix of 64 x 2 numbers, all 1, but the first is -1
{
    printf 'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0'
    printf '\x14\0\0\0\0\0\0\0general.architecture\x8\0\0\0\5\0\0\0\0\0\0\0llama'
    printf '\x13\0\0\0\0\0\0\0blk.0.attn_q.weight\2\0\0\0\x40\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0'
    printf '\0\0\0\0\0\0\0\0\0\0\0\0'
} >in.gguf
while [ $(($(stat -c %s in.gguf) % 32)) != 0 ]; do printf '\0' >>in.gguf; done
printf '\0\0\x80\xbf' >>in.gguf
for _ in $(seq 127); do printf '\0\0\x80\x3f' >>in.gguf; done

# has_tensor FILE FORMAT
has_tensor() { "$quern" gguf "$1" | grep -qE "blk.0.attn_q.weight +$2 " || fail "$1 holds no $2"; }

# words: IN OUT TYPE, IN TYPE, IN TYPE THREADS, IN OUT TYPE THREADS
expect 0 'converting to q8_0' "$quern" quantize in.gguf a.gguf q8_0
expect 0 'written: ggml-model-Q8_0.gguf' "$quern" quantize in.gguf 7
expect 0 'written: ggml-model-Q4_0.gguf' "$quern" quantize in.gguf Q4_0 2
expect 0 'written: b.gguf' "$quern" quantize in.gguf b.gguf 7 3
cmp -s a.gguf b.gguf && cmp -s a.gguf ggml-model-Q8_0.gguf || fail "the same type gives other bytes"
expect 1 'no quantization type' "$quern" quantize in.gguf out.gguf Q9_9
expect 1 'types: COPY F32' "$quern" quantize in.gguf
expect 1 'threads: "many"' "$quern" quantize in.gguf out.gguf Q8_0 many
expect 1 'is the input' "$quern" quantize in.gguf in.gguf Q8_0
expect 1 'missing.gguf' "$quern" quantize missing.gguf out.gguf Q8_0

# the file that comes out
"$quern" gguf a.gguf | grep -qE 'general.file_type +u32 +7' || fail "file type is not 7"
"$quern" gguf a.gguf | grep -qE 'general.quantization_version +u32 +2' || fail "no layout version"
has_tensor a.gguf q8_0

# flags
expect 0 'type = +f32, converting to q5_0 .*does not fit' "$quern" quantize --dry-run in.gguf Q4_K_M
[ -e ggml-model-Q4_K_M.gguf ] && fail "a dry run wrote a file"
expect 0 'converting to mxfp4' "$quern" quantize --tensor-type 'attn_.=mxfp4' in.gguf out.gguf Q8_0
echo 'nothing=q4_0 attn_q=iq4_nl' >types.txt
expect 0 'converting to iq4_nl' "$quern" quantize --tensor-type-file types.txt in.gguf out.gguf Q8_0
expect 1 'not NAME=FORMAT' "$quern" quantize --tensor-type attn_q=q9 in.gguf out.gguf Q8_0
expect 1 'tensor pattern' "$quern" quantize --tensor-type '(=q8_0' in.gguf out.gguf Q8_0
expect 1 'no tensor format' "$quern" quantize --output-tensor-type x in.gguf out.gguf Q8_0
expect 0 'size = +0.000 MiB$' "$quern" quantize in.gguf copy.gguf COPY
cmp -s in.gguf copy.gguf || fail "COPY of the file is another file"
expect 1 'quantized already' "$quern" quantize a.gguf back.gguf F32
[ -e back.gguf ] && fail "a refused run left a file"
expect 0 'converting to f32' "$quern" quantize --allow-requantize a.gguf back.gguf F32
cp in.gguf nan.gguf
printf '\0\0\xc0\x7f' | dd of=nan.gguf bs=1 seek=$(($(stat -c %s nan.gguf) - 4)) conv=notrunc status=none
expect 1 'nan.gguf: tensor blk.0.attn_q.weight: row 1 holds' "$quern" quantize nan.gguf out2.gguf Q8_0
[ -e out2.gguf ] && fail "a failed run left a file"
ls | grep -q tmp && fail "temporary files are left"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))

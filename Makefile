# The two commands: `make demo` and `make test`. Under them is CMake (CMakePresets.json).
#
#   make demo      set up, build, fetch a small model, let it write an answer
#   make test      set up, build, fetch the test models, run the tests
#   make           build build/release
#   make install   program, library, headers, pkg-config file to PREFIX (DESTDIR honoured)
#   make format    format all sources;  make check-format only tells
#   make sanitize  unit tests under the address, undefined-behaviour and thread sanitizers
#   make aarch64   cross compiler, qemu and libraries for AArch64; build, tests under qemu
#   make fuzz      every fuzz target for FUZZ_SECONDS

PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20
PROMPT ?= <|im_start|>user\nTell me a short story about a miller who grinds flour with two stones.<|im_end|>\n<|im_start|>assistant\n
SOURCES = $(shell git ls-files '*.c' '*.h')

.PHONY: all build setup demo test install format check-format sanitize aarch64 fuzz clean

all: build

build:
	@cmake --preset release >/dev/null
	@cmake --build --preset release

setup:
	@tools/setup.sh test

demo:
	@tools/setup.sh build
	@cmake --preset release -DQUERN_BUILD_TESTS=OFF >/dev/null
	@cmake --build --preset release --target quern
	@model=$$(tools/fetch_model.sh smollm2) && \
	build/release/quern run -m "$$model" -e -p '$(PROMPT)' -n 200 --temp 0 --no-display-prompt

test: setup
	@cmake --preset release -DQUERN_BUILD_TESTS=ON >/dev/null
	@cmake --build --preset release
	@tools/fetch_model.sh smollm2 >/dev/null || echo "going on without SmolLM2: its tests are skipped"
	@tools/fetch_model.sh gemma3 >/dev/null || echo "going on without Gemma 3: its tests are skipped"
	@ctest --test-dir build/release --output-on-failure -j "$$(nproc)"

install:
	@cmake --preset release -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@cmake --build --preset release --target quern quern_static quern_shared
	@cmake --install build/release

format:
	@clang-format -i $(SOURCES)

check-format:
	@clang-format --dry-run --Werror $(SOURCES)

sanitize:
	@tools/sanitize.sh

aarch64:
	@tools/aarch64.sh

fuzz:
	@tools/fuzz.sh $(FUZZ_SECONDS)

clean:
	@rm -rf build

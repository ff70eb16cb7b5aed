# The front door. Each target first installs the Debian packages that it needs and that are missing
# (packages.txt; with apt-get as root or through sudo; elsewhere it prints the list).

PREFIX ?= /usr/local
BUILD := build/release

.PHONY: all demo test test-full soak check bench install venv format record clean help

all: packages-build configure ## build everything
	@cmake --build $(BUILD) -- -k 0

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

packages-%:
	@scripts/install-packages $*

configure:
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release > /dev/null

demo: all ## build, then show what it does
	@scripts/demo $(BUILD)/tidemill

test: packages-build packages-test configure ## quick tests: unit tests, whole-program tests
	@cmake --build $(BUILD) -- -k 0
	@scripts/run-tests $(BUILD) quick

test-full: packages-build packages-test configure ## all tests, also the slow ones
	@cmake --build $(BUILD)
	@scripts/run-tests $(BUILD) full

soak: packages-build packages-test packages-check ## long runs: every fuzz target for SECONDS (60)
	@scripts/fuzz --seconds $(or $(SECONDS_EACH),60)

check: packages-build packages-test packages-check ## format, lint, layers, sanitizers, valgrind, fuzz replays
	@scripts/check

bench: packages-build configure ## benchmarks, each as a ratio to a baseline of the same run
	@cmake --build $(BUILD)
	@scripts/bench $(BUILD)

install: all ## install to PREFIX (/usr/local): program, data, man pages, completions, pkg-config file
	@cmake --install $(BUILD) --prefix $(PREFIX)

venv: ## optional Python environment under build/venv, for tests against oracles
	@scripts/make-venv

format: packages-check ## lay out the source
	@git ls-files '*.c' '*.h' | xargs clang-format -i

record: all ## write the expected output of the whole-program tests anew
	@tests/golden/run --record $(BUILD)/tidemill

clean: ## remove what was built
	@rm -rf build

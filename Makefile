# The front door. Each target first installs the Debian packages that it needs and that are missing
# (packages.txt; with apt-get as root or through sudo; elsewhere it prints the list).

PREFIX ?= /usr/local
BUILD := build/release
export TIDEMILL_NO_PACKAGES

.PHONY: all configure demo test test-full soak check bench install venv format record clean help

all: ## build everything
	@scripts/install-packages build docs
	@mkdir -p build
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD)
	@ln -sfn release/tidemill-simcluster build/tidemill-simcluster

configure: # each time: a package that came since, such as cmocka, changes what is built
	@cmake --preset release > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: all ## build, then show what it does
	@scripts/demo $(BUILD)/tidemill

test: ## quick tests: unit tests and whole-program tests
	@scripts/install-packages build docs test
	@$(MAKE) --no-print-directory all
	@scripts/run-tests $(BUILD) quick

test-full: ## all tests, also the slow ones
	@scripts/install-packages build docs test
	@$(MAKE) --no-print-directory all
	@scripts/run-tests $(BUILD) full

soak: ## long runs: 20,000 seeds of the simulated cluster, every fuzz target for SECONDS_EACH (60)
	@scripts/install-packages build docs test check
	@$(MAKE) --no-print-directory all
	@SIM_SEEDS=$(or $(SEEDS),20000) tests/simcluster/run $(BUILD)/tidemill
	@scripts/fuzz --seconds $(or $(SECONDS_EACH),60)

check: ## format, lint, layers, sanitizers, valgrind, fuzz replays
	@scripts/install-packages build docs test check
	@$(MAKE) --no-print-directory all
	@scripts/check

bench: all ## benchmarks, each as a ratio to a baseline of the same run
	@scripts/bench $(BUILD)

install: all ## install to PREFIX (/usr/local): program, data, man pages, completions, pkg-config file
	@cmake --install $(BUILD) --prefix $(PREFIX)

venv: ## optional Python environment under build/venv, for tests against oracles
	@scripts/make-venv

format: ## lay out the source
	@scripts/install-packages check
	@git ls-files '*.c' '*.h' | xargs clang-format -i

record: all ## write the expected output of the whole-program tests anew
	@tests/golden/run --record $(BUILD)/tidemill

clean: ## remove what was built
	@rm -rf build

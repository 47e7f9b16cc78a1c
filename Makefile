# Two commands for a newcomer: `make demo` and `make test`. Everything else is listed by `make`.
# They need git, make and Python 3.11 with pip; nothing is installed outside this folder but by `make install`.

PYTHON ?= python3
BIN := .venv/bin
CODE := protocol actors daemon cli
DATA := $(or $(XDG_DATA_HOME),$(HOME)/.local/share)
CONFIG := $(or $(XDG_CONFIG_HOME),$(HOME)/.config)
LINKS := $(HOME)/.local/bin
BASH_COMPLETION := $(DATA)/bash-completion/completions/sictl
ZSH_COMPLETION := $(DATA)/zsh/site-functions/_sictl
FISH_COMPLETION := $(CONFIG)/fish/completions/sictl.fish
MANUAL := man1/sictl.1 man8/sid.8 man5/sid.toml.5
# 114 wants every function with `task_status` listed here; who forgets `nursery.start` waits for ever, and a test sees it.
# 9xx asks for a checkpoint on every path of every async function, which is optional by the tool's own default.
ASYNC_FLAGS := --disable=ASYNC114,ASYNC9
# A folder `wheelhouse` (see that target) stands in for the package index.
OFFLINE := $(if $(wildcard wheelhouse),--no-index --find-links wheelhouse)
EVERYTHING := '.[dev,charts]'
PIP_FLAGS := --no-input --disable-pip-version-check --constraint constraints.txt $(OFFLINE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint types arch slow cover fmt bench docs install uninstall wheelhouse clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.run ## watch a daemon improve a small program: offline, about a minute
	@$(BIN)/sictl demo

test: lint types arch ## everything a change must pass: lint, types, import law, fast tests
	$(BIN)/pytest -q

lint: .venv/.dev ## style, formatting, structured concurrency
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/flake8-async $(ASYNC_FLAGS) $$(grep -rlE --include='*.py' '\b(async|trio|anyio)\b' $(CODE) tests)

types: .venv/.dev ## mypy, strict
	$(BIN)/mypy

arch: .venv/.dev ## the import law
	$(BIN)/lint-imports --no-logo

slow: .venv/.dev cover ## corpora, sweeps, soaks and the examples
	$(BIN)/pytest -q -m slow
	@set -e; for example in examples/*/run; do [ -x "$$example" ] || continue; echo "$$example"; "$$example"; done

cover: .venv/.dev ## branch coverage of the decisions in sid_daemon.core
	$(BIN)/coverage run -m pytest -q tests/core
	$(BIN)/coverage report

fmt: .venv/.dev ## format and mend what can be mended
	$(BIN)/ruff check --fix --quiet || true
	$(BIN)/ruff format

bench: .venv/.dev ## how fast sid itself is
	@set -e; for bench in benchmarks/bench_*.py; do [ -e "$$bench" ] || continue; echo "$$bench"; $(BIN)/python "$$bench"; done

docs: .venv/.dev ## write the generated reference pages again
	$(BIN)/python docs/generate.py

install: ## put sid and sictl on PATH for this user, with manual pages and shell completion
	$(call fill,$(DATA)/sid/venv,'.[charts]')
	@mkdir -p "$(LINKS)"
	@ln -sf "$(DATA)/sid/venv/bin/sid" "$(DATA)/sid/venv/bin/sictl" "$(LINKS)/"
	@set -e; completion() { mkdir -p "$${2%/*}"; "$(LINKS)/sictl" completion "$$1" > "$$2"; }; \
	  completion bash "$(BASH_COMPLETION)"; completion zsh "$(ZSH_COMPLETION)"; completion fish "$(FISH_COMPLETION)"
	@for page in $(MANUAL); do mkdir -p "$(DATA)/man/$${page%/*}"; \
	  ln -sf "$(DATA)/sid/venv/share/man/$$page" "$(DATA)/man/$$page"; done
	@echo "installed: $(LINKS)/sid, $(LINKS)/sictl, manual pages and completions (zsh: put $(DATA)/zsh/site-functions in fpath)"
	@case ":$$PATH:" in *":$(LINKS):"*) ;; \
	  *) echo 'not on PATH yet; add to your shell profile: export PATH="$$HOME/.local/bin:$$PATH"' ;; esac

uninstall: ## take away what `make install` put there; runs and settings stay
	@rm -rf "$(DATA)/sid/venv"
	@rm -f "$(LINKS)/sid" "$(LINKS)/sictl" "$(BASH_COMPLETION)" "$(ZSH_COMPLETION)" "$(FISH_COMPLETION)"
	@for page in $(MANUAL); do rm -f "$(DATA)/man/$$page"; done

wheelhouse: .venv/.run ## collect every wheel, so that a machine without a network can `make` too
	@$(PYTHON) -m pip --python $(BIN)/python download --quiet --dest wheelhouse \
	  --constraint constraints.txt hatchling editables $(EVERYTHING)

clean: ## remove the environment and every cache
	rm -rf .venv .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist
	find $(CODE) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for running sid, one for working on it, which includes the other.
.venv/.run: pyproject.toml constraints.txt
	$(call fill,.venv,--editable '.[charts]')
	$(compile)
	@touch $@

.venv/.dev: pyproject.toml constraints.txt
	$(call fill,.venv,--editable $(EVERYTHING))
	$(compile)
	@touch .venv/.run $@

# What pip installs it compiles, but not an editable install; Python does so itself unless PYTHONDONTWRITEBYTECODE is set, and
# then compiles everything again at each start.
compile = @$(BIN)/python -m compileall -q -x /demo_repo/ $(CODE)

# $(call fill,ENVIRONMENT,WHAT): install WHAT into ENVIRONMENT, making that first if it is missing or broken.
# Debian's python3 has no ensurepip without python3-venv, and an old pip has no --python: each stands in for the other.
# Scripts of a pip before 25.2 load `re`, for the suffix of a Windows program: half as much again as Python's own start.
define fill
@set -e; venv='$(1)'; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "sid needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }; \
echo "installing into $$venv (about half a minute, once)"; \
"$$venv/bin/python" -c '' 2>/dev/null || $(PYTHON) -m venv --clear --without-pip "$$venv"; \
pip() { $(PYTHON) -m pip --python "$$venv/bin/python" "$$@"; }; \
if ! pip --version >/dev/null 2>&1; then \
  pip() { "$$venv/bin/python" -m pip "$$@"; }; \
  pip --version >/dev/null 2>&1 || $(PYTHON) -m venv "$$venv" >/dev/null || \
    { echo "sid needs pip: install your system's python3-pip or python3-venv" >&2; exit 1; }; \
fi; \
pip install $(PIP_FLAGS) $(2) >"$$venv/pip.log" 2>&1 || \
  { rm -f .venv/.run .venv/.dev; tail -n 20 "$$venv/pip.log" >&2; echo "the install failed: $$venv/pip.log" >&2; exit 1; }; \
sed -i -e '/^import re$$/d' -e '/ re\.sub(/d' "$$venv/bin/sid" "$$venv/bin/sictl"
endef

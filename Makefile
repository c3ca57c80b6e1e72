# Every command is safe to run again; each sets up .venv first, which takes no time when it is up to date.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test check format bench bench-peers fuzz docs dist clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## make .venv: tools, the history store built from source, promptkit in editable form
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) is not on the PATH: install Python 3.11 or newer, or give make PYTHON=..."; exit 1; }
	@$(PYTHON) scripts/setup.py

demo: setup ## hold a real conversation with a real local model
	@$(BIN)/python examples/demo.py

test: setup ## run every test
	@command -v cargo >/dev/null || { echo "test: cargo is not on the PATH: install a Rust toolchain"; exit 1; }
	@cargo test --workspace --locked --quiet
	@$(BIN)/python -m pytest --basetemp=.venv/tests

check: setup ## format, lint, types, stubs, layers
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/basedpyright tests/typing
	@PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/.venv" basedpyright --ignoreexternal --verifytypes promptkit > .venv/types.txt || { cat .venv/types.txt; exit 1; }
	@$(BIN)/python -m mypy.stubtest promptkit._history --mypy-config-file pyproject.toml
	@$(BIN)/lint-imports --no-logo
	@cargo fmt --all --check && cargo clippy --workspace --all-targets --locked --quiet -- --deny warnings

format: setup ## put the code into its form
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet . && cargo fmt --all

bench: setup ## measure calls, preparation and long histories, beside what people use today (10 minutes, 5 without the peers)
	@$(BIN)/python benches/preparation.py && $(BIN)/python benches/coordination.py && $(BIN)/python benches/calls.py && $(BIN)/python benches/history.py && $(BIN)/python benches/limits.py && $(BIN)/python benches/startup.py

bench-peers: ## make .venv-peers: pydantic-ai, LangGraph and llm, for make bench
	@$(PYTHON) -m venv .venv-peers && .venv-peers/bin/python -m pip --quiet --disable-pip-version-check install -r benches/peers.txt

fuzz: ## look for a conversation that the encoder gets wrong, for a minute (a nightly Rust and cargo-fuzz)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: cargo-fuzz is not installed: cargo install cargo-fuzz"; exit 1; }
	@cd rust/history && cargo +nightly fuzz run encode -- -max_total_time=60

docs: setup ## build the documentation site into docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html && echo "docs: open docs/_build/html/index.html"

dist: setup ## build the source distribution and a wheel from it into dist, and test that wheel in an empty environment (10 minutes)
	@$(BIN)/python scripts/dist.py

clean: ## delete what the commands made
	@rm -rf .venv .venv-peers target dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find python tests examples benches -name __pycache__ -prune -exec rm -rf {} + && rm -f python/promptkit/_history*.so

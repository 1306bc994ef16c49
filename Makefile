# What people type. Everything lives in .venv, which these targets make and keep up to date.
PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist loadfile
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help run test soak check lock messages openapi

help: ## List the targets
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'

run: $(VENV)/.base ## Start the site with its demo on http://127.0.0.1:8000 (PORT, SAYSO_HOME)
	@exec $(BIN)/python manage.py serve --migrate --demo

test: $(VENV)/.dev ## Run the tests on SQLite, then what touches the database on PostgreSQL
	$(BIN)/pytest $(PYTEST_ARGS)
	@if [ -n "$$CI" ] || $(BIN)/python -m tests.support.servers postgres; then \
		SAYSO_TEST_DB=postgres $(BIN)/pytest $(PYTEST_ARGS) $(wildcard tests/agentruns tests/inbox tests/races); \
	fi

soak: $(VENV)/.dev ## Ten minutes of random kills; races and requests in their thousands (SECONDS=600 RACES=10000 EXAMPLES=10000)
	SAYSO_TEST_SOAK_SECONDS=$(or $(SECONDS),600) SAYSO_TEST_RACES=$(or $(RACES),10000) \
		$(BIN)/pytest -s --timeout 7200 tests/faults/test_soak.py tests/races
	SAYSO_TEST_DB=postgres SAYSO_TEST_RACES=$(or $(RACES),10000) $(BIN)/pytest --timeout 7200 tests/races
	SAYSO_TEST_EXAMPLES=$(or $(EXAMPLES),10000) $(BIN)/pytest --timeout 7200 \
		tests/properties/test_non_interference.py

check: $(VENV)/.dev ## Format, lint, types, import contracts, migrations, templates
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/djlint templates --lint --quiet

lock: $(VENV)/.dev ## Pin what pyproject.toml asks for, with hashes (UPGRADE=1 for newer versions)
	$(call compile,base.txt,pyproject.toml)
	$(call compile,all.txt,pyproject.toml --all-extras -c requirements/base.txt)
	$(call compile,dev.txt,pyproject.toml --group dev -c requirements/base.txt)
	$(call compile,uv.txt,requirements/uv.in)

compile = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate $(if $(UPGRADE),--upgrade) \
	--output-file requirements/$(1) $(2)

# uv installs in seconds; without it, pip does the same more slowly.
install = if [ -x $(BIN)/uv ]; \
	then $(BIN)/uv pip install --python $(BIN)/python --quiet --compile-bytecode --require-hashes -r $(1); \
	else $(BIN)/python -m pip install --quiet --require-hashes -r $(1); fi

$(VENV)/.made: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Sayso needs Python 3.11 or newer. If you have it under another name: make PYTHON=python3.13 ..." >&2; \
		exit 1; }
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt \
		|| echo "Going on without uv."
	@touch $@

$(VENV)/.base: requirements/base.txt $(VENV)/.made
	@echo "Installing $< ..."
	@$(call install,$<)
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.made
	@echo "Installing $< ..."
	@$(call install,$<)
	@touch $@

messages: $(VENV)/.base ## Collect what pages say for translation, and compile (needs gettext)
	$(BIN)/python manage.py makemessages --locale zh_Hans --no-location --no-obsolete \
		--ignore .venv --ignore tests --ignore benchmarks
	$(BIN)/python manage.py compilemessages --locale zh_Hans --ignore .venv

openapi: $(VENV)/.base ## Write tests/contract/openapi.json, the agreed document, anew
	@DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python -c "import django, json; django.setup(); \
	from config.openapi import document; print(json.dumps(document(), indent=1, ensure_ascii=False))" \
	> tests/contract/openapi.json.new && mv tests/contract/openapi.json.new tests/contract/openapi.json

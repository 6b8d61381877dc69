# Everything runs in .venv, which the first target that needs it builds.

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

BIN := .venv/bin
# One environment, grown by the targets that need more of it; each layer leaves a stamp.
CORE := .venv/.core
DEV := .venv/.dev
DOCS := .venv/.docs
STUDIES := .venv/.studies
RELEASE := .venv/.release
# Each worker computes on one thread: more of them on a shared machine only get in each other's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip
TORCH := $(shell grep '^torch==' constraints.txt)
# A worker that has run out of tests takes some from one that has not.
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

comma := ,
# $(call step,name,command): the name as the command begins, the seconds it took as it ends.
step = { printf '%s … ' '$(1)' && begun=$$(date +%s) && $(2) && echo "$$(($$(date +%s) - begun)) s"; }

.DEFAULT_GOAL := help
.SILENT:
.PHONY: help venv locked audit sbom test test-all lint unit test-extras format demo docs bench-truth bench-coverage bench-speed bench-samplers bench-influence bench-curvature bench-population bench-runs bench-hostile bench-report study-ngd study-flatness study-llc study-criteria dist clean

help:
	echo "make venv             .venv with the core and what the demo needs; other targets add what they need"
	echo "make locked           .venv for the tests, every file checked against its hash in requirements.lock"
	echo "make sbom             the bill of materials, CycloneDX, in build/sbom.cdx.json"
	echo "make audit            known vulnerabilities of the pinned releases"
	echo "make demo             train a small network, measure it, write a report"
	echo "make test             lint, then the quick tests"
	echo "make test-all         lint, then every test: long chains, kills, extras, documentation, browsers too"
	echo "make lint             ruff, mypy, import contracts, sentences and terms of the documentation"
	echo "make unit             the tests alone, slow ones too (ARGS='-k llc' WORKERS=4)"
	echo "make test-extras      every extra from the built wheel in an environment of its own: ten minutes, not in CI"
	echo "make format           rewrite the sources in the house format"
	echo "make docs             the documentation, in site/: open site/index.html"
	echo "make bench-truth      estimates against exact learning coefficients"
	echo "make bench-coverage   whether intervals hold: many seeds of each sampler against exact values"
	echo "make bench-speed      time to a given accuracy of the learning coefficient"
	echo "make bench-samplers   samplers of many packages on exact answers: error against gradients"
	echo "make bench-influence  influence against exact values: error against passes over the data"
	echo "make bench-curvature  traces, spectra and soft ranks: accuracy and time"
	echo "make bench-population hundreds of networks at once beside a loop over them"
	echo "make bench-runs       studies under attack and at scale"
	echo "make bench-hostile    bad input, 200 faults, and load: what goes wrong"
	echo "make bench-report     from a clone to a report, sizes of reports, the live page at scale"
	echo "make study-ngd        natural gradient against SGD at the smoke scale: tables, figures and a page"
	echo "make study-flatness   flatness and the generalization gap at the smoke scale: the same"
	echo "make study-llc        the learning coefficient from toy models to transformers at the smoke scale: the same"
	echo "make study-criteria   information criteria and their asymptotic laws"
	echo "make dist             wheel and source archive in dist/, built twice to the same bytes, and checked"
	echo "make clean            remove what was built, .venv included"

.venv venv: $(CORE)

# torch comes first and by its exact release: resolved together with the rest, a range could bring in a newer build.
$(CORE): pyproject.toml constraints.txt src/basinscope/_version.py
	test -x $(BIN)/python || $(call step,making .venv,$(PYTHON) -m venv .venv)
	$(call step,installing $(TORCH),$(PIP) install -qq '$(TORCH)')
	$(call step,installing basinscope and what its demo needs,$(PIP) install -qq -c constraints.txt -e '.[demo]')
	touch $@

$(DEV): $(CORE)
	$(call step,installing what the tests need$(comma) every extra included,$(PIP) install -qq -c constraints.txt -e '.[dev]')
	touch $@

$(STUDIES): $(CORE)
	$(call step,installing what the studies need,$(PIP) install -qq -c constraints.txt -e '.[studies$(comma)data$(comma)demo]')
	touch $@

$(RELEASE): $(CORE)
	$(call step,installing what builds and checks a release,$(PIP) install -qq -c constraints.txt build check-wheel-contents twine)
	touch $@

# The site's own packages come only where it is built.
$(DOCS): $(CORE)
	$(call step,installing what the documentation needs,$(PIP) install -qq -c constraints.txt -e '.[docs]')
	touch $@

# The same releases as above, but pip refuses a file whose hash is not in the lock; this project itself has none.
locked:
	test -x $(BIN)/python || $(call step,making .venv,$(PYTHON) -m venv .venv)
	$(call step,installing what the lock holds,$(PIP) install -qq --no-deps --require-hashes -r requirements.lock)
	$(call step,installing basinscope,$(PIP) install -qq --no-deps --no-build-isolation -e .)
	$(call step,checking that nothing is missing,$(PIP) check > /dev/null)
	touch $(CORE) $(DEV) $(DOCS) $(STUDIES)

# Made of the lock by Python alone: the same commit gives the same bytes.
sbom:
	$(PYTHON) .ci/sbom.py $(ARGS)

# In an environment of its own: its packages are no part of ours.
audit:
	test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install -qq pip-audit
	.venv-audit/bin/pip-audit --disable-pip --require-hashes -r requirements.lock $(ARGS)

test: lint
	$(PYTEST) -m 'not slow' $(ARGS)

test-all: $(DOCS) lint unit

lint: $(DEV)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/readability.py

unit: $(DEV)
	$(PYTEST) $(ARGS)

# What CI tests with packages linked from .venv, here pip installs: each extra alone, from the built wheel.
test-extras: $(DEV)
	$(ONE_THREAD) $(BIN)/python benchmarks/extras.py $(ARGS)

format: $(DEV)
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

demo: $(CORE)
	$(BIN)/basinscope demo $(ARGS)

# A warning is an error, and so is a page that loads from elsewhere.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	echo "the documentation is in site/: open site/index.html"

bench-truth: $(DEV)
	$(BIN)/python benchmarks/ground_truth.py $(ARGS)

bench-coverage: $(DEV)
	$(ONE_THREAD) $(BIN)/python benchmarks/coverage.py $(ARGS)

bench-speed: $(DEV)
	$(BIN)/python benchmarks/llc_speed.py $(ARGS)

bench-samplers: $(DEV)
	$(ONE_THREAD) $(BIN)/python benchmarks/leaderboard.py $(ARGS)

bench-influence: $(DEV)
	$(ONE_THREAD) $(BIN)/python benchmarks/influence.py $(ARGS)

bench-curvature: $(DEV)
	$(BIN)/python benchmarks/curvature.py $(ARGS)

bench-population: $(DEV)
	$(ONE_THREAD) $(BIN)/python benchmarks/population.py $(ARGS)

bench-runs: $(DEV)
	$(BIN)/python benchmarks/runs.py $(ARGS)

bench-hostile: $(DEV)
	$(ONE_THREAD) $(BIN)/python benchmarks/under_attack.py $(ARGS)

bench-report: $(DEV)
	$(BIN)/python benchmarks/report.py $(ARGS)

study-ngd: $(STUDIES)
	$(ONE_THREAD) $(BIN)/basinscope study run ngd-vs-sgd --scale smoke $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report ngd-vs-sgd --scale smoke --out results/ngd-vs-sgd/smoke

study-flatness: $(STUDIES)
	$(ONE_THREAD) $(BIN)/basinscope study run flatness --scale smoke $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report flatness --scale smoke --out results/flatness/smoke

study-llc: $(STUDIES)
	$(ONE_THREAD) $(BIN)/basinscope study run llc --scale smoke $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report llc --scale smoke --out results/llc/smoke

study-criteria: $(STUDIES)
	$(ONE_THREAD) $(BIN)/basinscope study run criteria --scale paper $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report criteria --scale paper

# The same commit gives the same bytes: the time in the archives is that of the commit.
dist: $(RELEASE)
	rm -rf dist build
	for folder in build/again dist; do \
	  SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir $$folder . > /dev/null || exit 1; \
	done
	for file in dist/*; do cmp $$file build/again/$${file##*/} || exit 1; done
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean:
	rm -rf .venv .venv-audit build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

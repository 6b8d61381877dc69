# Everything runs in .venv, which the first target that needs it builds.

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed
DOCS := .venv/.docs
# Each worker computes on one thread: more of them on a shared machine only get in each other's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip

.DEFAULT_GOAL := help
.SILENT:
.PHONY: help venv test lint unit test-extras format demo docs bench-truth bench-speed bench-curvature bench-population bench-runs bench-report study-ngd study-flatness study-llc study-criteria clean

help:
	echo "make test             lint, then all tests"
	echo "make lint             ruff, mypy, import contracts"
	echo "make unit             the tests alone          (ARGS='-k llc' WORKERS=4)"
	echo "make test-extras      every extra from the built wheel in an environment of its own: ten minutes, not in CI"
	echo "make format           rewrite the sources in the house format"
	echo "make demo             train a small network, measure it, write a report"
	echo "make docs             the documentation, in site/: open site/index.html"
	echo "make bench-truth      estimates against exact learning coefficients"
	echo "make bench-speed      time to a given accuracy of the learning coefficient"
	echo "make bench-curvature  traces, spectra and soft ranks: accuracy and time"
	echo "make bench-population hundreds of networks at once beside a loop over them"
	echo "make bench-runs       studies under attack and at scale"
	echo "make bench-report     from a clone to a report, sizes of reports, the live page at scale"
	echo "make study-ngd        natural gradient against SGD at the smoke scale: tables, figures and a page"
	echo "make study-flatness   flatness and the generalization gap at the smoke scale: the same"
	echo "make study-llc        the learning coefficient from toy models to transformers at the smoke scale: the same"
	echo "make study-criteria   information criteria and their asymptotic laws"
	echo "make clean            remove what was built, .venv included"

.venv venv: $(STAMP)

# torch comes first and by its exact release: resolved together with the rest, a range could bring in a newer build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install -qq "$$(grep '^torch==' constraints.txt)"
	$(PIP) install -qq -c constraints.txt -e '.[dev]'
	touch $@

test: lint unit

lint: $(STAMP)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo

unit: $(STAMP)
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) $(ARGS)

# What CI tests with packages linked from .venv, here pip installs: each extra alone, from the built wheel.
test-extras: $(STAMP)
	$(ONE_THREAD) $(BIN)/python benchmarks/extras.py $(ARGS)

format: $(STAMP)
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

demo: $(STAMP)
	$(BIN)/basinscope demo $(ARGS)

# The site's own packages come only where it is built. A warning is an error, and so is a page that loads from elsewhere.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	echo "the documentation is in site/: open site/index.html"

$(DOCS): $(STAMP)
	$(PIP) install -qq -c constraints.txt -e '.[docs]'
	touch $@

bench-truth: $(STAMP)
	$(BIN)/python benchmarks/ground_truth.py $(ARGS)

bench-speed: $(STAMP)
	$(BIN)/python benchmarks/llc_speed.py $(ARGS)

bench-curvature: $(STAMP)
	$(BIN)/python benchmarks/curvature.py $(ARGS)

bench-population: $(STAMP)
	$(ONE_THREAD) $(BIN)/python benchmarks/population.py $(ARGS)

bench-runs: $(STAMP)
	$(BIN)/python benchmarks/runs.py $(ARGS)

bench-report: $(STAMP)
	$(BIN)/python benchmarks/report.py $(ARGS)

study-ngd: $(STAMP)
	$(ONE_THREAD) $(BIN)/basinscope study run ngd-vs-sgd --scale smoke $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report ngd-vs-sgd --scale smoke --out results/ngd-vs-sgd/smoke

study-flatness: $(STAMP)
	$(ONE_THREAD) $(BIN)/basinscope study run flatness --scale smoke $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report flatness --scale smoke --out results/flatness/smoke

study-llc: $(STAMP)
	$(ONE_THREAD) $(BIN)/basinscope study run llc --scale smoke $(ARGS)
	$(ONE_THREAD) $(BIN)/basinscope study report llc --scale smoke --out results/llc/smoke

study-criteria: $(STAMP)
	$(ONE_THREAD) $(BIN)/python -m studies.criteria $(ARGS)

clean:
	rm -rf .venv build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

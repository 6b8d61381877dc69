"""Every block of code in the README and the documentation runs, and prints what the page says it prints."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from documented import PAGES, ROOT, SHELL, alike, blocks, commands, run_page, understood

WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
QUICK = ("README.md", "docs/concepts.md", "docs/trust.md")  # the others are run where slow tests are
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
RULES = re.findall(r"^([\w. -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
TARGETS = {target for rule in RULES for target in rule.split()}


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if name(page) in QUICK else pytest.mark.slow, id=name(page)) for page in WITH_CODE],
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    before, threads = set(sys.modules), torch.get_num_threads()
    torch.set_num_threads(1)  # as the outputs on the pages were made
    try:
        run_page(page, tmp_path)
    finally:
        torch.set_num_threads(threads)
        for module in set(sys.modules) - before:  # of the page, such as `mine`: another page may have its own
            if str(getattr(sys.modules[module], "__file__", "") or "").startswith(str(tmp_path)):
                del sys.modules[module]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_exist(page):
    for block in blocks(page):
        if block.language in SHELL:
            for words in commands(block.text):
                check(words, f"{name(page)}:{block.line}", page)


def check(words, where, page):
    if words[0] == "basinscope":
        try:
            understood(words[1:])
        except Exception as error:
            raise AssertionError(f"{where}: {' '.join(words)}: {error}") from error
    elif words[0] == "make":
        assert all(word in TARGETS for word in words[1:] if "=" not in word), f"{where}: no such target in {words}"
    elif words[:2] == ["pip", "install"]:
        for extra in re.findall(r"basinscope\[([\w,]+)\]", " ".join(words)):
            assert set(extra.split(",")) <= set(EXTRAS), f"{where}: no such extra in {extra!r}"
    elif words[:3] == ["python", "-m", "basinscope"]:
        check(words[2:], where, page)
    elif words[:3] == ["timeout", "-s", "INT"]:
        check(words[4:], where, page)
    elif words[0] == "export":
        assert all("=" in word for word in words[1:]), f"{where}: not all of {words[1:]} are assignments"
    elif words[0] == "python":
        made = {block.file for block in blocks(page)}
        assert words[1] in made or (ROOT / words[1]).exists(), f"{where}: there is no {words[1]}"
    else:
        assert words[0] in (".", "tar"), f"{where}: what is {words[0]!r}?"


def test_few_blocks_are_not_run():
    unrun = [(name(page), block.line) for page in PAGES for block in blocks(page) if block.remark.startswith("not run")]
    assert len(unrun) <= 2, unrun
    known = {"python", "text", "yaml", *SHELL}
    strange = [(name(page), block.line) for page in PAGES for block in blocks(page) if block.language not in known]
    assert not strange, "every block needs a language"


def test_outputs_are_compared_word_by_word_and_number_by_number():
    assert alike("llc = 9.998 ± 0.02 (ok)", "llc = 10 ± 0.03 (ok)")
    assert not alike("llc = 9.998 ± 0.02 (ok)", "llc = 10 ± 0.03 (doubtful)")
    assert not alike("llc = 9 ± 0.02 (ok)", "llc = 10 ± 0.02 (ok)")
    assert alike("llc = 9 ± 0.2 (ok)", "llc = 9.7 ± 0.2 (ok)")
    assert not alike("llc = 9 ± 0.2 (ok)", "llc = 11 ± 0.2 (ok)")
    assert not alike("loss 1.00, 2.00", "loss 1.00, 2.20")
    assert alike("loss 0.08", "loss 0.09")
    assert not alike("loss 0.08", "loss 0.10")
    assert not alike("11 of 20", "12 of 20")
    assert not alike("llc = 10 ± 0.01 (ok)", "llc = 10 ± 0.05 (ok)")
    assert not alike("a", "a\nb")


@pytest.mark.parametrize(
    "line", ["measure", "study run quadratics --fast", "exact deep-linear 2 2", "nothing", "study run q --on"]
)
def test_wrong_commands_are_noticed(line):
    with pytest.raises(AssertionError):
        check(["basinscope", *line.split()], "here", Path("README.md"))

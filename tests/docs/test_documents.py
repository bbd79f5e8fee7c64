"""The documents tell the truth: Python blocks run, command lines name real options, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from specroof.cli import build_app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
SYBIL = Sybil([PythonCodeBlockParser()], path=str(ROOT))
PARSED = {document: list(SYBIL.parse(document)) for document in DOCUMENTS}


def command_lines() -> list[tuple[str, str]]:
    """Every `specroof ...` line of a bash block, with its document."""
    found = []
    for document in DOCUMENTS:
        for language, block in FENCE.findall(document.read_text(encoding="utf-8")):
            lines = block.splitlines() if language == "bash" else []
            found += [(document.name, line) for line in lines if line.startswith("specroof ")]
    return found


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if PARSED[d]], ids=lambda path: path.name)
def test_python_blocks_run(document, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for example in PARSED[document]:
        example.evaluate()


@pytest.mark.parametrize(("document", "line"), command_lines())
def test_command_lines_name_real_commands_and_options(document, line):
    command: Any = typer.main.get_command(build_app())
    words = shlex.split(line, comments=True)[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not getattr(command, "commands", None) or not words, f"{document}: no such command: {line}"
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    used = {word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert used <= known, f"{document}: {line}"


def test_the_documents_hold_command_lines():
    assert len(command_lines()) > 20


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_every_command_is_in_the_documents():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name in typer.main.get_command(build_app()).commands:
        assert f"specroof {name}" in text


def test_every_document_is_in_the_index():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [d.name for d in (ROOT / "docs").glob("*.md") if d.name != "index.md" and f"({d.name})" not in text] == []


def test_the_phases_are_those_of_the_ledgers():
    from costmodel.cost import PHASES

    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    section = text.split("## The ledgers")[1].split("\n## ")[0].split("The **resource ledger**")[0]
    assert re.findall(r"`(\w+)`", section) == list(PHASES)


def test_the_bundled_workloads_have_a_source():
    text = (ROOT / "docs" / "data-sources.md").read_text(encoding="utf-8")
    names = [file.stem for file in (ROOT / "simulator" / "data" / "workloads").iterdir()]
    assert names
    assert [name for name in names if f"`{name}`" not in text] == []

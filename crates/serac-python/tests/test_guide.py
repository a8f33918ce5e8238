"""The Python in the guide and at the beginning of the README runs."""

import pathlib
import re
from typing import Any

import seracdb

PROJECT = pathlib.Path(__file__).parents[3]
GUIDE = PROJECT / "docs/book/src/guides/python.md"


def blocks_of(file):
    return re.findall(r"^```python\n(.*?)^```", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks_of(PROJECT / "README.md")[0], names)
    names["con"].close()
    printed = capsys.readouterr().out
    assert "Oslo" in printed and "13.5" in printed and "8.0" in printed


def test_the_guide(capsys):
    blocks = blocks_of(GUIDE)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert isinstance(names["con"], seracdb.Connection)
    printed = capsys.readouterr().out
    assert "grpc://127.0.0.1:" in printed and "reading: 1 blocks" in printed and "\nb 2\n" in printed
    assert "[('pen', Decimal('1.20'))]" in printed and "0.5" in printed and "(Decimal('3.40'),)" in printed
    assert "[{'shop': 1, 'item': 2, 'n': 4}] [{'n': 4}]\n(1,)\n" in printed
    assert "[1, 2]" in printed and "31.5" in printed and "{'month': [1, 2], 'total': [7.5, 8.0]}" in printed
    names["con"].close()

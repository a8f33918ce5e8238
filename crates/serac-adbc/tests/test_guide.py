"""The Python in the guide runs."""

import pathlib
import re

from conftest import LIBRARY

GUIDE = pathlib.Path(__file__).parents[3] / "docs/book/src/guides/adbc.md"


def test_the_guide(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {}
    for block in blocks:
        exec(block.replace("/usr/local/lib/libseracdb.so", LIBRARY), names)
    printed = capsys.readouterr().out
    assert "1.20" in printed and "pen" in printed and "lamp" in printed
    names["cur"].close()
    names["con"].close()

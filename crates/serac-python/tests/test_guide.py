"""The Python in the guide runs."""

import pathlib
import re

import seracdb

GUIDE = pathlib.Path(__file__).parents[3] / "docs/book/src/guides/python.md"


def test_the_guide(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {}
    for block in blocks:
        exec(block, names)
    assert isinstance(names["con"], seracdb.Connection)
    printed = capsys.readouterr().out
    assert "[('pen', Decimal('1.20'))]" in printed and "0.5" in printed and "(Decimal('3.40'),)" in printed
    names["con"].close()

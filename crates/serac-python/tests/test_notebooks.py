"""``%%serac`` in IPython, and the notebook of the documentation.

Notebooks are kept without outputs: these would be figures of one machine, and change with every
run. This test runs them instead, and looks at what they show.
"""

import json
import pathlib

import nbclient
import nbformat
import pyarrow
import pytest
import seracdb
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

NOTEBOOKS = pathlib.Path(__file__).parents[3] / "docs/notebooks"


def shown(cell, kind):
    """What a cell shows of a kind."""
    return [output["data"][kind] for output in cell.get("outputs", ()) if kind in output.get("data", {})]


def test_the_notebook_of_transactions_and_analysis(monkeypatch, tmp_path):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOKS / "htap.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    figures = """
import json
print(json.dumps({
    "sales": seller.sales, "first": first.height, "second": second.height, "shared": len(shared),
    "rows": history.height, "frozen": int(history["frozen"].max()), "hot": int(history["hot"].max()),
    "grows": history["sales"].is_sorted(), "last": int(history["sales"][-1]),
    "hot_map": str(hot_map), "frozen_map": str(frozen_map), "closed": con.closed,
}))
"""
    notebook.cells.append(nbformat.v4.new_code_cell(figures))
    # Sockets in the file system: no port of the machine is opened.
    config = Config({"KernelManager": {"transport": "ipc", "ip": str(tmp_path / "kernel")}})
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", config=config).execute()
    found = json.loads(notebook.cells[-1]["outputs"][0]["text"])
    assert found["sales"] >= found["last"] > 100 and found["closed"]
    # Frames were taken while the seller sold, and share the memory of frozen blocks.
    assert 400_000 <= found["first"] < found["second"] and found["shared"] >= 8
    assert found["rows"] > 5 and found["grows"] and found["frozen"] >= 8 and found["hot"] >= 1
    hot, frozen = found["hot_map"].splitlines(), found["frozen_map"].splitlines()
    assert set(hot[1].upper()) == {"H"} and set(frozen[1].upper()) == {"F"}
    pages = [page for cell in notebook.cells for page in shown(cell, "text/html")]
    assert sum("<svg " in page for page in pages) == 3
    assert sum("SeracScanExec" in page or "BlockAggregateExec" in page for page in pages) == 1
    assert any("delivered" in page and "<table>" in page for page in pages)
    pictures = [picture for cell in notebook.cells for picture in shown(cell, "image/png")]
    assert len(pictures) == 1 and len(pictures[0]) > 10_000


@pytest.fixture
def ipython():
    """A shell of IPython with the magics."""
    shell = InteractiveShell()
    history = shell.history_manager
    assert history is not None
    history.enabled = False
    shell.run_line_magic("load_ext", "seracdb")
    yield shell
    shell.run_line_magic("serac", "--connect :memory:")
    history.end_session()
    InteractiveShell.clear_instance()


def test_cells_and_lines(ipython, tmp_path):
    run, cell = ipython.run_line_magic, ipython.run_cell_magic
    assert cell("serac", "", "CREATE TABLE t (a INT);\nINSERT INTO t VALUES (1), (2);") is None
    result = run("serac", "SELECT sum(a) FROM t")
    assert isinstance(result, seracdb.Result) and result.fetchall() == [(3,)] and "<table>" in result._repr_html_()
    # Variables as parameters, several statements, results into variables.
    ipython.push({"least": 2, "name": "x' OR true --"})
    assert run("serac", "SELECT a FROM t WHERE a >= :least").fetchall() == [(2,)]
    assert cell("serac", "-o found", "DELETE FROM t WHERE a = 1; SELECT a, :name AS n FROM t") is None
    assert ipython.user_ns["found"].fetchall() == [(2, "x' OR true --")]
    # Variables as frames; those of the magics themselves are none.
    ipython.push({"frame": pyarrow.table({"b": [5, 6]}), "rest": pyarrow.table({"b": [1]})})
    assert run("serac", "SELECT max(b) FROM frame").fetchall() == [(6,)]
    assert run("serac", "SELECT b FROM rest").fetchall() == [(1,)]
    with pytest.raises(seracdb.ProgrammingError):
        run("serac", "SELECT * FROM options")
    # Connections of variables, by name, and of folders.
    with seracdb.connect(autocommit=True) as other:
        other.execute("CREATE TABLE u AS SELECT 9 AS b")
        ipython.push({"other": other})
        assert cell("serac", "-c other", "SELECT b FROM u").fetchall() == [(9,)]
        assert run("serac", "SELECT b FROM u").fetchall() == [(9,)]
    run("serac", f"--connect '{tmp_path / 'a db'}'")
    cell("serac", "", "CREATE TABLE v AS SELECT 1 AS c")
    assert (tmp_path / "a db").is_dir() and run("serac", "SELECT c FROM v").fetchall() == [(1,)]
    # Plans.
    plan = run("serac", "EXPLAIN SELECT c FROM v WHERE c = :least")
    assert isinstance(plan, seracdb.Plan) and "SeracScanExec" in plan._repr_html_()
    assert "rows" in str(run("serac", "explain analyze select c from v"))
    assert isinstance(run("serac", "EXPLAIN (VERBOSE) SELECT c FROM v"), seracdb.Result)


def test_errors_have_their_place(ipython, capsys):
    with pytest.raises(seracdb.ProgrammingError):
        ipython.run_cell_magic("serac", "", "SELECT 1;\n\nSELECT 2,\n  wrong")
    assert "LINE 5:   wrong\n          ^" in capsys.readouterr().err
    with pytest.raises(NameError, match="there is no variable missing"):
        ipython.run_line_magic("serac", "SELECT :missing")
    with pytest.raises(NameError, match="is no connection"):
        ipython.run_cell_magic("serac", "-c missing", "SELECT 1")
    with pytest.raises(ValueError, match="-o needs a value"):
        ipython.run_cell_magic("serac", "-o", "SELECT 1")
    ipython.run_line_magic("serac", "")
    assert "%%serac" in capsys.readouterr().out

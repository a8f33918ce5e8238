"""``%serac`` and ``%%serac`` in notebooks and IPython: ``%load_ext seracdb``."""

from __future__ import annotations

import re
import sys
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class

import seracdb
from seracdb import _lent, _script, _seracdb
from seracdb.__main__ import shown_error

#: EXPLAIN without options in parentheses: shown as a tree of operators.
_EXPLAIN = re.compile(
    r"\s*EXPLAIN\s+(?P<analyze>ANALYZE\s+)?(?=(?:SELECT|WITH|VALUES|TABLE|FROM)\b)", re.IGNORECASE
)
_USAGE = """\
%serac SQL                      runs a statement
%%serac [-c NAME] [-o NAME]     runs the statements of the cell, and shows the last result
%serac --connect FOLDER         uses the database in a folder from now on
-c NAME  the variable with the connection; later cells use it, too
-o NAME  the variable that gets the result, instead of showing it
Variables stand as :name in the statements."""


#: An option at the head of a line.
_OPTION = re.compile(r"""\s*(?P<name>-c|-o|--connect)(?:\s+|$)(?P<value>"[^"]*"|'[^']*'|\S+)?""")


@magics_class
class SeracMagics(Magics):
    """The magics."""

    _connection: seracdb.Connection | None = None

    @property
    def _variables(self) -> dict[str, Any]:
        """The variables of the notebook."""
        assert self.shell is not None, "IPython runs the magics"
        variables: dict[str, Any] = self.shell.user_ns
        return variables

    def _used(self, name: str | None) -> seracdb.Connection:
        """The connection of a variable; or that of the last cell, or the variable ``con``, or one
        to a new database in memory."""
        variables = self._variables
        if name is not None:
            if not isinstance(variables.get(name), seracdb.Connection):
                raise NameError(f"the variable {name} is no connection")
            self._connection = variables[name]
        if self._connection is None or self._connection.closed:
            con = variables.get("con")
            if isinstance(con, seracdb.Connection) and not con.closed:
                return con
            self._connection = seracdb.connect(autocommit=True)
        return self._connection

    def _options(self, line: str) -> tuple[dict[str, str], str]:
        """The options at the head of a line, and the rest of it."""
        options: dict[str, str] = {}
        while (option := _OPTION.match(line)) is not None:
            value = option["value"]
            if value is None:
                raise ValueError(f"{option['name']} needs a value\n{_USAGE}")
            options[option["name"]] = value[1:-1] if value[0] in "'\"" else value
            line = line[option.end() :]
        return options, line

    def _run(self, con: seracdb.Connection, statement: str) -> Any:
        names = _seracdb.parameter_names(statement)
        variables = self._variables
        missing = [name for name in names if name not in variables]
        if missing:
            raise NameError(f"there is no variable {missing[0]}, which stands as :{missing[0]} in the statement")
        parameters = {name: variables[name] for name in names} or None
        explain = _EXPLAIN.match(statement)
        if explain is not None:
            query = statement[explain.end() :]
            return con.explain(query, parameters, analyze=explain["analyze"] is not None)
        cursor = con.execute(statement, parameters)
        return None if cursor.description is None else cursor.result()

    @line_cell_magic
    def serac(self, line: str, cell: str | None = None) -> Any:
        """Runs SQL."""
        options, rest = self._options(line)
        if "--connect" in options:
            self._connection = seracdb.connect(options["--connect"], autocommit=True)
        if cell is None and not line.strip():
            print(_USAGE)
            return None
        con = self._used(options.get("-c"))
        result = None
        for statement in _script.all_of(rest if cell is None else f"{rest}\n{cell}"):
            try:
                # The notebook's variables are those of the code that runs the statement.
                with _lent.run_for(self._variables):
                    result = self._run(con, statement.text)
            except seracdb.Error as error:
                print(shown_error(error, statement.text, statement.line), file=sys.stderr)
                raise
        if "-o" in options:
            self._variables[options["-o"]] = result
            return None
        return result


def load(ipython: Any) -> None:
    """Makes the magics known to IPython."""
    ipython.register_magics(SeracMagics)

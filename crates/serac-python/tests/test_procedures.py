"""Stored procedures in Python, and the rows of tables by key."""

import asyncio
import datetime
import decimal
import random
import subprocess
import sys
import textwrap
import threading
import time
import uuid

import psycopg
import pytest
import seracdb
import seracdb.aio

Decimal = decimal.Decimal


@pytest.fixture
def bank(con: seracdb.Connection):
    """A table of accounts, and a procedure that pays into one of them."""
    con.execute("CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, balance BIGINT NOT NULL)")
    con.execute("INSERT INTO account VALUES (1, 'ann', 100), (2, 'ben', 20)")

    @con.create_procedure("deposit", returns={"balance": "bigint"})
    def deposit(tx: seracdb.RowTransaction, id: int, amount: int):  # noqa: A002
        account = tx.table("account")
        row = account.get(id)
        if row is None:
            raise seracdb.DataError(f"there is no account {id}", sqlstate="22023")
        balance = row["balance"] + amount
        account.update(id, {"balance": balance})
        return balance

    return con


def balances(con):
    return [balance for (balance,) in con.execute("SELECT balance FROM account ORDER BY id")]


def code_of(statement):
    with pytest.raises(seracdb.Error) as caught:
        statement()
    return caught.value.sqlstate


# ---- calls


def test_a_call_runs_in_the_transaction_of_its_statement(bank):
    assert bank.execute("CALL deposit(1, 5)").fetchall() == [(105,)]
    assert bank.execute("CALL deposit(amount => 2 * 5, id => 1)").fetchall() == [(115,)]
    assert bank.execute("CALL deposit($1, $2)", (2, 1)).fetchall() == [(21,)]
    assert balances(bank) == [115, 21]
    other = bank.connect(autocommit=False)
    with pytest.raises(ZeroDivisionError), bank.transaction():
        bank.execute("CALL deposit(1, 1000)")
        assert balances(bank) == [1115, 21]
        assert balances(other) == [115, 21]
        raise ZeroDivisionError
    assert balances(bank) == [115, 21]
    # A conflict with a transaction that runs, and a retry by the caller.
    other.rollback()
    other.execute("UPDATE account SET balance = 0 WHERE id = 1")
    assert code_of(lambda: bank.execute("CALL deposit(1, 1)")) == "40001"
    other.commit()
    assert bank.transact(lambda con: con.execute("CALL deposit(1, 1)").fetchone()) == (1,)
    prepared = bank.prepare("CALL deposit($1, $2)")
    assert prepared(2, 9) == [(30,)]


def test_names_arguments_and_results_are_checked(bank):
    for call, code in [
        ("CALL nothing()", "42883"),
        ("CALL deposit(1)", "42883"),
        ("CALL deposit(1, 'much')", "22P02"),
        ("CALL deposit(7, 1)", "22023"),
    ]:
        assert code_of(lambda call=call: bank.execute(call)) == code, call
    with bank.transaction("READ ONLY"):
        assert code_of(lambda: bank.execute("CALL deposit(1, 1)")) == "25006"
        bank.rollback()
    for returned, code in [((1, 2), "42804"), ({"other": 1}, "42804"), ("much", "22P02"), ([1, 2**70], "22003")]:
        bank.create_procedure("wrong", lambda tx, returned=returned: returned, parameters={}, returns={"n": int})
        assert code_of(lambda: bank.execute("CALL wrong()")) == code, returned
    bank.create_procedure("wrong", lambda tx: 1, parameters={})
    assert code_of(lambda: bank.execute("CALL wrong()")) == "42804"
    for wrong in [
        lambda: bank.create_procedure("x", lambda tx, n: None),
        lambda: bank.create_procedure("x", lambda tx, *n: None),
        lambda: bank.create_procedure("x", 1),
    ]:
        with pytest.raises(TypeError):
            wrong()
    for name, parameters, code in [
        ("", {}, "42602"),
        ("serac_run", {}, "42602"),
        ("x", {"a": "no_such_type"}, "42704"),
        ("x", {"a": "int); DROP TABLE account"}, "42601"),
        ("x", {"a": "int[]"}, "42601"),
        ("x", [("a", int), ("a", int)], "42P13"),
    ]:
        with pytest.raises(seracdb.ProgrammingError) as caught:
            bank.create_procedure(name, lambda tx: None, parameters=parameters)
        assert caught.value.sqlstate == code, (name, parameters)
    reader = bank.connect(read_only=True)
    assert code_of(lambda: reader.create_procedure("x", lambda tx: None)) == "25006"


def test_results(con):
    con.create_procedure("give_nothing", lambda tx: None)
    assert con.execute("CALL give_nothing()").description is None

    def rows(tx, n: int):
        yield from ((i, f"n{i}") for i in range(n))

    con.create_procedure("give_rows", rows, returns=[("i", int), ("name", "text")])
    cursor = con.execute("CALL give_rows(3)")
    assert [column[0] for column in cursor.description] == ["i", "name"]
    assert cursor.fetchall() == [(0, "n0"), (1, "n1"), (2, "n2")]
    assert con.execute("CALL give_rows(0)").fetchall() == []
    assert con.execute("CALL give_rows(10000)").arrow().num_rows == 10_000
    con.create_procedure("give_one", lambda tx: {"b": 2, "a": 1}, returns={"a": int, "b": int})
    assert con.execute("CALL give_one()").fetchall() == [(1, 2)]
    con.create_procedure("give_values", lambda tx: [1, None, (3,)], returns={"a": int})
    assert con.execute("CALL give_values()").fetchall() == [(1,), (None,), (3,)]
    con.create_procedure("give_none", lambda tx: None, returns={"a": int})
    assert con.execute("CALL give_none()").fetchall() == []


VALUES = {
    "boolean": True,
    "smallint": -3,
    "integer": 7,
    "bigint": 2**40,
    "real": 0.5,
    "double precision": 1.25,
    "numeric": Decimal("12345678901234567890.5"),
    "numeric(10, 2)": Decimal("3.50"),
    "numeric(30, 2)": Decimal("-12345678901234567890.25"),
    "text": "grüße",
    "varchar(10)": "ab",
    "char(4)": "abcd",
    "bytea": b"\x00\xff",
    "date": datetime.date(2024, 2, 29),
    "time": datetime.time(1, 2, 3, 4),
    "timestamp": datetime.datetime(2024, 1, 1, 2, 3, 4, 5),
    "timestamp with time zone": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
    "interval": datetime.timedelta(days=1, seconds=5),
    "uuid": uuid.UUID(int=2**100 + 1),
    "jsonb": {"a": [1, None]},
    "json": [1, {"b": "c"}],
}


def test_values_of_every_type_pass(con):
    columns = ", ".join(f"c{at} {of}" for at, of in enumerate(VALUES))
    con.execute(f"CREATE TABLE every (id INT PRIMARY KEY, {columns})")
    names = [f"c{at}" for at in range(len(VALUES))]
    given = [seracdb.Json(value) if isinstance(value, (dict, list)) else value for value in VALUES.values()]
    seen = []

    def keep(tx, id, *values):  # noqa: A002
        every = tx.table("every")
        every.insert({"id": id, **dict(zip(names, values, strict=True))})
        seen.append(values)
        row = every.get(id)
        every.insert({**row, "id": id + 1})
        every.insert({"id": id + 2})
        return tuple(row[name] for name in names)

    parameters = [("id", "int"), *zip(names, VALUES, strict=True)]
    con.create_procedure("keep", keep, parameters=parameters, returns=list(zip(names, VALUES, strict=True)))
    marks = ", ".join(f"${at + 1}" for at in range(len(given) + 1))
    (row,) = con.execute(f"CALL keep({marks})", [1, *given]).fetchall()
    expected = tuple(VALUES.values())
    assert tuple(seen[0]) == expected and row == expected
    stored = con.execute(f"SELECT {', '.join(names)} FROM every ORDER BY id").fetchall()
    assert stored == [expected, expected, (None,) * len(names)]


def test_values_are_assigned_as_in_sql(con):
    con.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n NUMERIC(6, 2), v VARCHAR(3), c CHAR(3), d DATE, s SMALLINT, j JSONB, "
        "ts TIMESTAMP(0))"
    )
    cases = [
        ("n", "1.005"), ("n", 1.5), ("n", Decimal("2.345")), ("n", 12345678), ("n", "x"), ("n", True), ("v", "abcd"),
        ("v", "ab    "), ("v", 12), ("c", "a"), ("c", "a    "), ("c", "abcd"), ("d", "2024-02-30"), ("d", "2024-02-29"),
        ("d", datetime.datetime(2024, 1, 2, 3, 4)), ("s", 40000), ("s", "12"), ("s", 1.5), ("s", 2**80),
        ("j", '{"b":1,"a":2}'),
        ("j", "{"), ("ts", datetime.datetime(2024, 1, 1, 0, 0, 0, 600_000)), ("v", "a\0"), ("s", None), ("v", "ä" * 3),
    ]  # fmt: skip
    with con.connect(autocommit=False) as own:
        for at, (column, value) in enumerate(cases):
            outcomes = []
            for by_sql in (True, False):
                try:
                    with own.transaction() as tx:
                        if by_sql:
                            own.execute(f"INSERT INTO t (id, {column}) VALUES ($1, $2)", (at, value))
                        else:
                            tx.table("t").insert({"id": at, column: value})
                        outcomes.append(own.execute(f"SELECT {column} FROM t WHERE id = $1", (at,)).fetchone())
                        raise seracdb.Rollback
                except seracdb.DatabaseError as error:
                    outcomes.append(error.sqlstate)
            # SQL may refuse a value by its type, or find another error of the class in a text.
            one, other = outcomes
            is_same = one == other or one == "42804" or (str(one)[:2], str(other)[:2]) == ("22", "22")
            assert is_same, (column, value, outcomes)


# ---- the row API


@pytest.fixture(params=["procedure", "transaction"])
def rows(request, con):
    """Runs a function of a transaction, in a procedure or beside SQL, and returns its result."""

    def in_procedure(function):
        results = []

        def body(tx):
            results.append(function(tx))

        con.create_procedure("body", body, parameters={})
        con.execute("CALL body()")
        return results[-1]

    def in_transaction(function):
        with con.transaction() as tx:
            return function(tx)

    return in_procedure if request.param == "procedure" else in_transaction


def test_rows_by_key(con, rows):
    con.execute("CREATE TABLE t (a INT, b TEXT, n INT, PRIMARY KEY (a, b)); CREATE UNIQUE INDEX t_n ON t (n)")
    con.execute("CREATE INDEX t_b ON t (b); CREATE INDEX t_e ON t ((n + 1)); CREATE TABLE bare (n INT)")

    def work(tx):
        t = tx.table("t")
        assert t.insert({"a": 1, "b": "x", "n": 10}) is None
        assert t.insert({"b": "y", "a": 1}, returning=["n", "b"]) == {"n": None, "b": "y"}
        assert t.get((1, "x")) == {"a": 1, "b": "x", "n": 10}
        assert t.get((1, "x"), columns=["n"]) == {"n": 10}
        assert t.get(10, index="t_n", columns=("b",)) == {"b": "x"}
        assert t.get((1, "z")) is None and t.get((1, None)) is None and t.get(None, index="t_n") is None
        assert t.update((1, "y"), {"n": 20, "b": "yy"}) is True
        assert t.update((1, "y"), {"n": 20}) is False
        assert t.update(20, {"n": 21}, index="t_n") is True
        assert t.delete((1, "x")) is True and t.delete((1, "x")) is False
        assert (t.name, t.schema) == ("t", "public")
        return t.scan()

    assert rows(work) == [{"a": 1, "b": "yy", "n": 21}]
    assert con.execute("SELECT * FROM t").fetchall() == [(1, "yy", 21)]

    for use, code in [
        (lambda t: t.get(1), "42804"),
        (lambda t: t.get((1, "x", 2)), "42804"),
        (lambda t: t.get("x", index="t_b"), "42809"),
        (lambda t: t.get(1, index="t_e"), "0A000"),
        (lambda t: t.get(1, index="none"), "42704"),
        (lambda t: t.get((1, "x"), columns=["none"]), "42703"),
        (lambda t: t.insert({"none": 1}), "42703"),
        (lambda t: t.insert({"a": 1}), "23502"),
        (lambda t: t.insert({"a": 1, "b": "yy"}), "23505"),
        (lambda t: t.insert({"a": 2, "b": "zz", "n": 21}), "23505"),
        (lambda t: t.update((1, "yy"), {"b": None}), "23502"),
    ]:
        assert code_of(lambda use=use: rows(lambda tx: use(tx.table("t")))) == code
    for use, code in [
        (lambda tx: tx.table("none").get(1), "42P01"),
        (lambda tx: tx.table("t", schema="none").get(1), "3F000"),
        (lambda tx: tx.table("bare").get(1), "55000"),
    ]:
        assert code_of(lambda use=use: rows(use)) == code
    for use in [
        lambda t: t.insert([1]),
        lambda t: t.get((1, "x"), columns="n"),
        lambda t: t.get((1.5, "x")),
        lambda t: t.get((object(), "x")),
    ]:
        with pytest.raises((TypeError, seracdb.InternalError), match="TypeError|a dict|list of names|no value"):
            rows(lambda tx, use=use: use(tx.table("t")))
    assert con.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_ranges(con, rows):
    con.execute("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)); CREATE INDEX t_desc ON t (b DESC)")
    con.execute("INSERT INTO t SELECT i / 10, i % 10 FROM generate_series(0, 99) AS g (i)")
    all_rows = [(i // 10, i % 10) for i in range(100)]

    def work(tx):
        t = tx.table("t")

        def scan(*bounds, **options):
            return [(row["a"], row["b"]) for row in t.scan(*bounds, **options)]

        assert scan() == all_rows and scan(limit=5) == all_rows[:5] and scan(limit=0) == []
        assert scan(3, 5) == [row for row in all_rows if 3 <= row[0] < 5]
        assert scan(3) == all_rows[30:] and scan(None, 3) == all_rows[:30] and scan(5, 3) == []
        assert scan(3, 5, reverse=True, limit=3) == [(4, 9), (4, 8), (4, 7)]
        assert scan(prefix=4) == all_rows[40:50] and scan(2, 4, prefix=(4,)) == [(4, 2), (4, 3)]
        assert scan(prefix=(4, 2)) == [(4, 2)]
        assert [row for row in t.scan(3, 5, index="t_desc", columns=["b"])] == [{"b": 4}] * 10 + [{"b": 3}] * 10
        # The transaction sees its own changes.
        t.delete((4, 3))
        t.insert({"a": 4, "b": 33})
        assert scan(prefix=4) == [row for row in all_rows[40:50] if row != (4, 3)] + [(4, 33)]
        with pytest.raises(ValueError, match="at most"):
            t.scan(limit=10**9)
        with pytest.raises(seracdb.DatabaseError):
            t.scan(1, prefix=(4, 2))

    rows(work)


def test_what_definitions_say_holds(con, rows):
    con.execute("CREATE SEQUENCE s START 5; CREATE TABLE parent (id INT PRIMARY KEY)")
    con.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT DEFAULT nextval('s') CHECK (n < 100), "
        "name TEXT NOT NULL DEFAULT 'none', twice INT NOT NULL GENERATED ALWAYS AS (n * 2) STORED, "
        "always INT GENERATED ALWAYS AS IDENTITY, day DATE DEFAULT current_date, "
        "p INT REFERENCES parent ON DELETE CASCADE, CONSTRAINT short CHECK (length(name) < 10))"
    )
    con.execute("CREATE UNIQUE INDEX t_lower ON t (lower(name))")

    def work(tx):
        t, parent = tx.table("t"), tx.table("parent")
        parent.insert({"id": 1})
        first = t.insert({"id": 1}, returning=["n", "name", "twice", "always", "day", "p"])
        assert first.pop("day") is not None
        assert first == {"n": 5, "name": "none", "twice": 10, "always": 1, "p": None}
        t.insert({"id": 2, "n": 7, "name": "Two", "p": 1})
        t.update(2, {"n": 8})
        assert t.get(2, columns=["twice", "n"]) == {"twice": 16, "n": 8}
        return True

    assert rows(work)
    for use, code in [
        (lambda t: t.insert({"id": 3, "n": 100}), "23514"),
        (lambda t: t.insert({"id": 3, "name": "much too long"}), "23514"),
        (lambda t: t.insert({"id": 3, "name": None}), "23502"),
        (lambda t: t.insert({"id": 3, "name": "tWO"}), "23505"),
        (lambda t: t.insert({"id": 3, "name": "three", "twice": 1}), "428C9"),
        (lambda t: t.insert({"id": 3, "name": "three", "always": 1}), "428C9"),
        (lambda t: t.insert({"id": 3, "name": "three", "p": 9}), "23503"),
        (lambda t: t.update(2, {"n": 100}), "23514"),
        (lambda t: t.update(2, {"name": "NONE"}), "23505"),
        (lambda t: t.update(2, {"twice": 100}), "428C9"),
        (lambda t: t.update(2, {"p": 9}), "23503"),
    ]:
        assert code_of(lambda use=use: rows(lambda tx: use(tx.table("t")))) == code
    assert con.execute("SELECT id, n, twice FROM t ORDER BY id").fetchall() == [(1, 5, 10), (2, 8, 16)]
    assert rows(lambda tx: tx.table("parent").delete(1))
    assert con.execute("SELECT id FROM t").fetchall() == [(1,)]
    con.execute("CREATE MATERIALIZED VIEW m AS SELECT 1 AS a; CREATE UNIQUE INDEX m_a ON m (a)")
    for use in [
        lambda m: m.insert({"a": 2}),
        lambda m: m.update(1, {"a": 2}, index="m_a"),
        lambda m: m.delete(1, index="m_a"),
    ]:
        assert code_of(lambda use=use: rows(lambda tx: use(tx.table("m")))) == "42809"
    assert con.execute("SELECT a FROM m").fetchall() == [(1,)]


def test_a_failed_change_leaves_a_procedure_going(bank):
    def insert_or_add(tx, id: int, amount: int):  # noqa: A002
        account = tx.table("account")
        try:
            account.insert({"id": id, "balance": amount})
        except seracdb.UniqueViolation as error:
            assert error.detail == f"Key (id)=({id}) already exists."
            account.update(id, {"balance": account.get(id)["balance"] + amount})

    bank.create_procedure("insert_or_add", insert_or_add)
    for _ in range(2):
        bank.execute("CALL insert_or_add(9, 4)")
    assert balances(bank) == [100, 20, 8]


def test_privileges(bank):
    bank.execute("CREATE ROLE teller; CREATE TABLE secret (id INT PRIMARY KEY, n INT)")
    bank.execute("GRANT SELECT (id), INSERT ON secret TO teller; INSERT INTO secret VALUES (1, 1)")
    bank.execute("REVOKE EXECUTE ON PROCEDURE deposit FROM PUBLIC")
    teller = bank.connect()
    teller.execute("SET ROLE teller")
    # Procedures have all rights, their callers need that to execute.
    assert code_of(lambda: teller.execute("CALL deposit(1, 1)")) == "42501"
    bank.execute("GRANT EXECUTE ON PROCEDURE deposit TO teller")
    assert teller.execute("CALL deposit(1, 1)").fetchall() == [(101,)]
    # Beside SQL, rows need what SQL needs.
    for use, code in [
        (lambda tx: tx.table("account").get(1), "42501"),
        (lambda tx: tx.table("account").scan(), "42501"),
        (lambda tx: tx.table("secret").get(1), "42501"),
        (lambda tx: tx.table("secret").update(1, {"n": 2}), "42501"),
        (lambda tx: tx.table("secret").delete(1), "42501"),
        (lambda tx: tx.table("secret").insert({"id": 3}, returning=["n"]), "42501"),
        (lambda tx: tx.table("secret").get(1, columns=["id"]), None),
        (lambda tx: tx.table("secret").insert({"id": 2}, returning=["id"]), None),
    ]:
        if code is None:
            with teller.transaction() as tx:
                assert use(tx) is not None
            continue

        def run(use=use):
            with teller.transaction() as tx:
                use(tx)

        assert code_of(run) == code
    assert bank.execute("SELECT * FROM secret ORDER BY id").fetchall() == [(1, 1), (2, None)]


# ---- errors and ends


def test_exceptions_are_errors_with_their_traceback(bank):
    def fail(tx, how: int):
        tx.table("account").update(1, {"balance": 0})
        if how == 0:
            return 1 // 0
        if how == 1:
            raise seracdb.IntegrityError("too poor", sqlstate="U0001", detail="by far", hint="earn")
        if how == 2:
            raise seracdb.DataError("without a detail", sqlstate="22000")
        if how == 3:
            raise seracdb.Error("without a code")
        if how == 4:
            raise seracdb.Error("a code of no error", sqlstate="00000")
        if how == 5:
            raise KeyError("ü" * 20_000)
        if how == 6:
            sys.exit(3)

    bank.create_procedure("fail", fail, returns={"n": int})
    for how, code, message in [
        (0, "38000", "procedure fail has failed: ZeroDivisionError: "),
        (1, "U0001", "too poor"),
        (2, "22000", "without a detail"),
        (3, "38000", "procedure fail has failed: Error: without a code"),
        (4, "38000", "procedure fail has failed: Error: "),
        (5, "38000", "procedure fail has failed: KeyError: "),
        (6, "38000", "procedure fail has failed: SystemExit: 3"),
    ]:
        with pytest.raises(seracdb.Error) as caught:
            bank.execute("CALL fail($1)", (how,))
        error = caught.value
        assert error.sqlstate == code and error.message.startswith(message), error
        if how == 1:
            assert (error.detail, error.hint) == ("by far", "earn")
        elif how != 5:
            assert "in fail" in str(error.detail) and "test_procedures.py" in str(error.detail)
    assert balances(bank) == [100, 20]


def test_the_transaction_is_dead_after_the_end(bank):
    kept = []

    def keep(tx):
        kept.append((tx, tx.table("account")))

    bank.create_procedure("keep", keep)
    bank.execute("CALL keep()")
    tx, account = kept[0]
    for use in [lambda: account.get(1), lambda: tx.table("account").scan(), lambda: account.delete(1)]:
        with pytest.raises(seracdb.InterfaceError, match="procedure has ended"):
            use()
    # Also while the next call of the same procedure runs.
    bank.create_procedure("keep", lambda tx: account.get(1), parameters={})
    assert code_of(lambda: bank.execute("CALL keep()")) == "08P01"
    with bank.transaction() as block:
        account = block.table("account")
        assert account.get(1)["balance"] == 100
    with pytest.raises(seracdb.InterfaceError, match="has ended"):
        account.get(1)
    with bank.transaction(), pytest.raises(seracdb.InterfaceError, match="has ended"):
        account.get(1)
    with pytest.raises(seracdb.InterfaceError, match="has ended"):
        block.table("account")
    with bank.transaction() as block:
        account = block.table("account")
        bank.commit()
        assert code_of(lambda: account.get(1)) == "25P01"


def test_a_procedure_that_uses_the_connection_which_waits_for_it(bank):
    def use(tx, how: int):
        if how == 0:
            bank.execute("SELECT 1")
        if how == 1:
            bank.execute("CALL deposit(1, 1)")
        if how == 2:
            bank.close()
        if how == 3:
            with bank.transaction() as block:
                block.table("account").get(1)

    bank.create_procedure("use", use)
    for how in range(4):
        begun = time.monotonic()
        assert code_of(lambda how=how: bank.execute("CALL use($1)", (how,))) == "55006"
        assert time.monotonic() - begun < 10
    # Another connection is another transaction.
    seen = []

    def look(tx):
        tx.table("account").update(1, {"balance": 7})
        with bank.connect() as other:
            seen.append(balances(other))
            seen.append(other.execute("CALL deposit(2, 1)").fetchone())
            other.commit()

    bank.create_procedure("look", look)
    bank.execute("CALL look()")
    assert seen == [[100, 20], (21,)] and balances(bank) == [7, 21]


def test_another_thread_may_use_the_transaction(bank):
    def both(tx):
        account = tx.table("account")
        thread = threading.Thread(target=lambda: account.update(1, {"balance": 1}))
        thread.start()
        thread.join()
        return account.get(1)["balance"]

    bank.create_procedure("both_threads", both, returns={"n": int})
    assert bank.execute("CALL both_threads()").fetchall() == [(1,)]


def test_a_procedure_is_replaced_and_dropped(bank):
    bank.create_procedure("deposit", lambda tx: 1, parameters={}, returns={"n": int})
    assert bank.execute("CALL deposit()").fetchall() == [(1,)]
    other = bank.connect()
    assert other.execute("CALL deposit()").fetchall() == [(1,)]
    found = other.execute("SELECT pronargs FROM pg_proc WHERE prokind = 'p' AND proname = 'deposit'").fetchall()
    assert found == [(0,)]
    other.drop_procedure("deposit")
    assert code_of(lambda: bank.execute("CALL deposit()")) == "42883"
    assert code_of(lambda: bank.drop_procedure("deposit")) == "42883"
    assert bank.drop_procedure("deposit", if_exists=True) is bank

    def drops_itself(tx):
        other.drop_procedure("itself")
        return 5

    bank.create_procedure("itself", drops_itself, returns={"n": int})
    assert bank.execute("CALL itself()").fetchall() == [(5,)]
    assert code_of(lambda: bank.execute("CALL itself()")) == "42883"


def test_procedures_of_a_folder_end_with_its_last_connection(tmp_path):
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        con.create_procedure("one", lambda tx: 1, returns={"n": int})
        with seracdb.connect(tmp_path / "db") as other:
            assert other.execute("CALL one()").fetchall() == [(1,)]
    with seracdb.connect(tmp_path / "db", autocommit=True) as con:
        assert code_of(lambda: con.execute("CALL one()")) == "42883"


@pytest.mark.parametrize("work", ["pass", "tx.table('t').get(1)", "tx.table('t').scan()"])
@pytest.mark.parametrize("how", ["signal", "cancel", "timeout", "swallowed"])
def test_a_procedure_is_stopped(work, how):
    loop = f"while True: {work}"
    body = f"    {loop}" if how != "swallowed" else (
        "    while True:\n"
        "        try:\n"
        f"            {loop}\n"
        "        except Exception:\n"
        "            pass"
    )
    done = run(
        f"""
import os, seracdb, signal, threading, time
con = seracdb.connect(autocommit=True)
con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 1)")
def forever(tx):
    tx.table("t").update(1, {{"n": 2}})
{body}
con.create_procedure("forever", forever)
how = {how!r}
if how == "timeout":
    con.execute("SET statement_timeout = 500")
elif how == "signal":
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
else:
    threading.Timer(0.5, con.cancel).start()
begun = time.monotonic()
try:
    con.execute("CALL forever()")
except (KeyboardInterrupt, seracdb.QueryCanceled) as error:
    print(type(error).__name__, getattr(error, "sqlstate", None), time.monotonic() - begun < 20)
print(con.execute("SELECT n FROM t").fetchall())
threads = threading.Thread(target=lambda: print(con.execute("SELECT 1").fetchone()))
threads.start()
threads.join()
"""
    )
    expected = "KeyboardInterrupt None True" if how == "signal" else "QueryCanceled 57014 True"
    assert done.stdout == f"{expected}\n[(1,)]\n(1,)\n", (done.stdout, done.stderr)


def run(code, *, timeout=120):
    """The output of a Python process."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_a_cancelled_procedure_in_a_thread_of_python(bank):
    """The exception that ends it does not reach what the thread does next."""

    def forever(tx):
        while True:
            pass

    bank.create_procedure("forever", forever)
    outcomes = []

    def work():
        for _ in range(3):
            try:
                bank.execute("CALL forever()")
            except seracdb.QueryCanceled:
                outcomes.append(sum(range(300_000)))

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
        bank.cancel()
    thread.join(timeout=10)
    assert outcomes == [sum(range(300_000))] * 3


# ---- threads, conflicts, clients


def test_transfers_from_threads_keep_the_sum(con: seracdb.Connection):
    """Each call is a transaction: an oracle adds what the calls say that they have moved."""
    con.execute("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0))")
    con.executemany("INSERT INTO account VALUES ($1, 100)", [(i,) for i in range(8)])

    @con.create_procedure("transfer", returns={"done": bool})
    def transfer(tx, source: int, target: int, amount: int):
        account = tx.table("account")
        try:
            account.update(source, {"balance": account.get(source)["balance"] - amount})
        except seracdb.CheckViolation:
            return False
        account.update(target, {"balance": account.get(target)["balance"] + amount})
        return True

    moved, failures = [], []
    stop = threading.Event()

    def work(seed):
        numbers = random.Random(seed)
        own = dict.fromkeys(range(8), 0)
        try:
            with con.connect(autocommit=True) as connection:
                for _ in range(150):
                    source, target = numbers.sample(range(8), 2)
                    amount = numbers.randrange(60)
                    call = f"CALL transfer({source}, {target}, {amount})"
                    # A call of its own, or one in a transaction that the caller runs again.
                    if numbers.random() < 0.5:
                        def moves(again: seracdb.Connection, call: str = call) -> bool:
                            return bool(again.execute(call).fetchall()[0][0])

                        done = connection.transact(moves, attempts=10_000)
                    else:
                        while True:
                            try:
                                done = connection.execute(call).fetchall()[0][0]
                                break
                            except seracdb.SerializationFailure:
                                time.sleep(0)
                    if done:
                        own[source] -= amount
                        own[target] += amount
            moved.append(own)
        except BaseException as failure:
            failures.append(failure)

    def watch():
        try:
            with con.connect(autocommit=True) as connection:
                while not stop.is_set():
                    sum_and_least = connection.execute("SELECT sum(balance), min(balance) >= 0 FROM account")
                    assert sum_and_least.fetchone() == (800, True)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    watcher = threading.Thread(target=watch)
    for thread in [*threads, watcher]:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    stop.set()
    watcher.join(timeout=30)
    assert not failures, failures
    expected = [100 + sum(own[at] for own in moved) for at in range(8)]
    assert balances(con) == expected and len(moved) == 4


def test_rows_in_transactions_that_run_again(con):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO t VALUES (1, 0)")

    def work():
        with con.connect() as own:
            for _ in range(100):

                def add(connection):
                    with connection.transaction() as tx:
                        t = tx.table("t")
                        t.update(1, {"n": t.get(1)["n"] + 1})

                own.transact(add, attempts=10_000)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert con.execute("SELECT n FROM t").fetchall() == [(300,)]


def test_a_read_committed_transaction_waits(con):
    """At READ COMMITTED, a change of a row waits for the transaction that has written it."""
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO t VALUES (1, 0)")
    first = con.connect(autocommit=False)
    first.execute("UPDATE t SET n = 5 WHERE id = 1")
    threading.Timer(0.3, first.commit).start()
    with con.transaction("ISOLATION LEVEL READ COMMITTED") as tx:
        t = tx.table("t")
        begun = time.monotonic()
        assert t.update(1, {"n": 6})
        assert time.monotonic() - begun > 0.1
    assert con.execute("SELECT n FROM t").fetchall() == [(6,)]


def test_python_goes_on_while_a_change_waits_for_ddl(con):
    """A table that DDL holds is waited for without Python's lock."""
    con.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO t VALUES (1, 0)")
    con.create_procedure("change", lambda tx: tx.table("t").update(1, {"n": 1}) and None, parameters={})
    ddl = con.connect(autocommit=False)
    ddl.execute("ALTER TABLE t ADD COLUMN m INT")
    ended = threading.Event()

    def call():
        with con.connect(autocommit=True) as own:
            own.transact(lambda c: c.execute("CALL change()"), attempts=1_000)
        ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    ticks = 0
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        ticks += 1
    assert ticks > 10_000 and not ended.is_set()
    ddl.commit()
    thread.join(timeout=60)
    assert con.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_clients_of_a_server_call_procedures(bank):
    with (
        bank.serve(pg="127.0.0.1:0") as server,
        psycopg.connect(
            host=server.addresses["pg"][0],
            port=server.addresses["pg"][1],
            dbname="serac",
            user="serac",
            autocommit=True,
        ) as client,
    ):
        assert client.execute("CALL deposit(1, 5)").fetchall() == [(105,)]
        assert client.execute("CALL deposit(%s, %s)", (1, 5)).fetchall() == [(110,)]
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="no account 9") as caught:
            client.execute("CALL deposit(9, 5)")
        assert "in deposit" in str(caught.value.diag.message_detail)
        # The connection that serves does not wait for the procedure.
        bank.create_procedure("look", lambda tx: bank.execute("SELECT 5").fetchone(), parameters={}, returns={"n": int})
        assert client.execute("CALL look()").fetchall() == [(5,)]
        with client.transaction():
            client.execute("UPDATE account SET balance = 50 WHERE id = 1")
            assert client.execute("CALL deposit(1, 1)").fetchall() == [(51,)]
            assert balances(bank) == [110, 20]
        assert balances(bank) == [51, 20]

        def forever(tx):
            while True:
                pass

        bank.create_procedure("forever", forever)
        client.execute("SET statement_timeout = 300")
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("CALL forever()")
        client.execute("SET statement_timeout = 0")
        threading.Timer(0.3, client.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("CALL forever()")
        assert client.execute("CALL deposit(1, 1)").fetchall() == [(52,)]


def test_clients_beside_each_other(bank):
    """Procedures of several clients, and of a connection in the process, add to one account."""

    def work(execute, failures):
        try:
            for _ in range(50):
                while True:
                    try:
                        execute("CALL deposit(1, 1)")
                        break
                    except (psycopg.errors.SerializationFailure, seracdb.SerializationFailure):
                        time.sleep(0)
        except BaseException as failure:
            failures.append(failure)

    with bank.serve(pg="127.0.0.1:0") as server:
        host, port = server.addresses["pg"]
        failures: list[BaseException] = []

        def connect():
            return psycopg.connect(host=host, port=port, dbname="serac", user="serac", autocommit=True)

        with connect() as one, connect() as other, bank.connect() as own:
            users = [one.execute, other.execute, own.execute]
            threads = [threading.Thread(target=work, args=(execute, failures)) for execute in users]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=120)
    assert not failures, failures
    assert balances(bank) == [250, 20]


def test_calls_leave_nothing_behind(bank):
    import gc

    def look(tx, id: int):  # noqa: A002
        return [tx.table("account").get(id)["balance"]]

    bank.create_procedure("look", look, returns={"n": int})
    counts = []
    for _ in range(4):
        for _ in range(300):
            bank.execute("CALL look(1)").fetchall()
            with pytest.raises(seracdb.Error):
                bank.execute("CALL look(5)")
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[-1] - counts[1] < 100, counts


def test_procedures_beside_an_event_loop():
    async def work():
        async with await seracdb.aio.connect(autocommit=True) as con:
            await con.execute("CREATE TABLE t (id INT PRIMARY KEY)")

            def add(tx, id: int):  # noqa: A002
                tx.table("t").insert({"id": id})
                return len(tx.table("t").scan())

            await con.create_procedure("add", add, returns={"n": int})
            counts = [await (await con.execute("CALL add($1)", (i,))).fetchone() for i in range(3)]
            assert counts == [(1,), (2,), (3,)]
            await con.drop_procedure("add")
            with pytest.raises(seracdb.ProgrammingError):
                await con.execute("CALL add(9)")

    asyncio.run(work())


@pytest.mark.parametrize("raises", [False, True])
def test_code_that_catches_its_end_is_undone(con, raises):
    con.execute("CREATE TABLE t (id INT PRIMARY KEY)")

    def stubborn(tx):
        tx.table("t").insert({"id": 1})
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            if raises:
                raise ValueError("another error") from None

    con.create_procedure("stubborn", stubborn)
    con.execute("SET statement_timeout = 300")
    with pytest.raises(seracdb.QueryCanceled) as error:
        con.execute("CALL stubborn()")
    assert error.value.sqlstate == "57014"
    assert con.execute("SELECT * FROM t").fetchall() == []

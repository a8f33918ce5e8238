"""Random scripts about types and values, the same to two servers that speak PostgreSQL's protocol,
and how their answers differ.

The protocol on standard input and output is that of random_queries.py; "queries" is the number of
scripts. A script is a few statements that are run one after the other on both, each of which has
its rows, the number of rows it changed, or its SQLSTATE:

- literals and casts: `SELECT '1.5'::INTEGER, CASE WHEN true THEN 1 ELSE '2' END`
- VALUES and set operations whose rows differ in type
- INSERT and UPDATE of values that are, or are not, assigned to a column's type
- sums and averages of decimals near their limits, in groups and windows
- comparisons of dates and times of all years
- transactions with savepoints and statements that fail

An error of types that only PostgreSQL gives is counted (`lenient`); rows that differ, and other
errors, are differences.
"""

import random

from random_queries import answer_requests, are_same, cells_of, prepared, run, servers_of

TYPES = [
    "SMALLINT", "INTEGER", "BIGINT", "NUMERIC(10,2)", "NUMERIC(38,0)", "DOUBLE PRECISION", "REAL", "FLOAT", "TEXT", "VARCHAR(4)", "BOOLEAN", "DATE", "TIME",
    "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL", "UUID", "JSONB",
]
NUMBERS = [
    "0", "1", "-1", "7", "2147483647", "2147483648", "-2147483648", "3000000000", "9223372036854775807", "1.5", "2.50", "-0.005", "0.1", "123456.789", "1e3",
    "1e10", "1.25e2", "1e300", "-1e300", "1e-20",
]
TEXTS = ["a", "abcdef", "", "1", "-7", "1.5", "3000000000", "true", "f", "2020-02-29", "10:00", "10:00:00.5", "9999-12-31 23:59:59", "0001-01-01", "1 day", "{}"]
TYPED = [
    "true", "false", "NULL", "DATE '2020-02-29'", "DATE '9999-12-31'", "TIME '10:00'", "TIME '23:59:59.5'", "TIMESTAMP '2020-02-29 12:00'",
    "TIMESTAMP '9999-12-31 23:59:59.999999'", "TIMESTAMP '0001-01-01'", "TIMESTAMPTZ '2020-02-29 12:00+02'", "INTERVAL '1 day 02:00'", "'x'::TEXT",
    "'7'::TEXT", "1::REAL", "1.5::DOUBLE PRECISION", "2::NUMERIC(10,2)",
]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
PATTERNS = [("a#b", "a##b", "#"), ("a%b", "a#%b", "#"), ("axb", "a_b", ""), ("a_b", "a!_b", "!"), ("a\\b", "a\\b", ""), ("a\\b", "a#\\b", "#"), ("A#B", "a##%", "#")]
# The largest decimals, of which a few have a sum with too many digits.
WIDE = ["85070591730234615865843651857942052864", "-85070591730234615865843651857942052864", "1", "99999999999999999999999999999999999999", "-2"]


class Scripts:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, choices):
        return self.random.choice(choices)

    def literal(self):
        kind = self.random.random()
        return self.pick(NUMBERS) if kind < 0.4 else f"'{self.pick(TEXTS)}'" if kind < 0.75 else self.pick(TYPED)

    def expression(self):
        kind = self.random.randrange(8)
        first, second = self.literal(), self.literal()
        if kind < 2:
            return f"({first})::{self.pick(TYPES)}"
        if kind == 2:
            return f"CAST(({first})::{self.pick(TYPES)} AS {self.pick(TYPES)})"
        if kind == 3:
            return f"CASE WHEN {self.pick(['true', 'false'])} THEN {first} ELSE {second} END"
        if kind == 4:
            return f"{self.pick(['coalesce', 'greatest', 'least'])}({first}, {second})"
        if kind == 5:
            return f"({first} {self.pick(COMPARISONS)} {second})"
        if kind == 6:
            text, pattern, escape = self.pick(PATTERNS)
            return f"('{text}' {self.pick(['LIKE', 'NOT LIKE', 'ILIKE'])} '{pattern}' ESCAPE '{escape}')"
        return f"({self.pick(['-', ''])}{self.pick(['2', '0.5', '3'])} ^ {self.pick(['2', '3', '0.5'])})"

    def casts(self):
        yield f"SELECT {self.expression()}"

    def rows(self):
        """Rows of one column."""
        values = [self.literal() for _ in range(self.random.randint(2, 3))]
        if self.random.random() < 0.5:
            yield f"SELECT * FROM (VALUES {', '.join(f'({value})' for value in values)}) AS v(x)"
        else:
            yield f" {self.pick(['UNION', 'UNION ALL'])} ".join(f"SELECT {value}" for value in values)

    def assignments(self):
        of = self.pick(TYPES)
        yield "DROP TABLE IF EXISTS assigned"
        yield f"CREATE TABLE assigned (n INTEGER, x {of}, t TEXT)"
        for n in range(3):
            values = [self.literal() for _ in range(self.random.randint(1, 3))]
            if self.random.random() < 0.3:
                yield f"INSERT INTO assigned (n, x) SELECT {n}, {values[0]}"
            else:
                yield f"INSERT INTO assigned (n, x) VALUES {', '.join(f'({n * 10 + i}, {value})' for i, value in enumerate(values))}"
        yield f"UPDATE assigned SET x = {self.pick([self.literal(), 't', 'n', 'x'])} WHERE n % 2 = {self.random.randrange(2)}"
        yield f"UPDATE assigned SET t = {self.pick([self.literal(), 'x', 'n'])}"
        yield f"SELECT n, x FROM assigned WHERE x {self.pick(COMPARISONS)} {self.literal()}"
        yield "SELECT n, x FROM assigned"

    def sums(self):
        yield "DROP TABLE IF EXISTS summed"
        yield "CREATE TABLE summed (id INTEGER PRIMARY KEY, g INTEGER, w NUMERIC(38,0), n NUMERIC(10,2), a NUMERIC(18,0), i BIGINT)"
        numbers = ["9223372036854775807", "-9223372036854775808", "1", "NULL"]
        row = lambda id: (
            f"({id}, {self.random.randrange(3)}, {self.pick(WIDE)}, {self.random.randint(-500, 500) / 100}, {self.pick(['999999999999999999', '-3', '7'])}, "
            f"{self.pick(numbers)})"
        )
        yield f"INSERT INTO summed VALUES {', '.join(row(id) for id in range(self.random.randint(1, 40)))}"
        aggregate = f"{self.pick(['sum', 'avg'])}({self.pick(['', 'DISTINCT '])}{self.pick(['w', 'n', 'n', 'a', 'i', 'a * a', 'n * 2'])})"
        yield f"SELECT {aggregate} FROM summed{self.pick(['', ' WHERE id < 4', ' WHERE id IN (0, 1, 2)'])}"
        yield f"SELECT g, {aggregate} FROM summed GROUP BY g"
        plain = aggregate.replace("DISTINCT ", "")
        yield f"SELECT id, {plain} OVER (ORDER BY id ROWS BETWEEN {self.random.randint(0, 2)} PRECEDING AND CURRENT ROW) FROM summed"

    def times(self):
        yield "DROP TABLE IF EXISTS moments"
        yield "CREATE TABLE moments (id INTEGER PRIMARY KEY, d DATE, t TIME, ts TIMESTAMP, tz TIMESTAMPTZ)"
        day = lambda: self.pick(["0001-01-01", "1677-09-20", "1970-01-01", "2020-02-29", "2262-04-12", "9999-12-31"])
        clock = lambda: self.pick(["00:00", "10:00", "10:00:00.5", "23:59:59.999999"])
        rows = (f"({id}, '{day()}', '{clock()}', '{day()} {clock()}', '{day()} {clock()}+00')" for id in range(12))
        yield f"INSERT INTO moments VALUES {', '.join(rows)}"
        for _ in range(3):
            column = self.pick(["d", "t", "ts", "tz"])
            if column == "t":
                constant = lambda: f"{self.pick(['', 'TIME '])}'{clock()}'"
            else:
                constant = lambda: self.pick([f"'{day()}'", f"'{day()} {clock()}'", f"DATE '{day()}'", f"TIMESTAMP '{day()} {clock()}'", "now()"])
            others = ["d", "ts", "tz"] if column != "t" else ["t"]
            condition = self.pick([
                f"{column} {self.pick(COMPARISONS)} {constant()}", f"{column} BETWEEN {constant()} AND {constant()}",
                f"{column} IN ({constant()}, {constant()})", f"{column} {self.pick(COMPARISONS)} {self.pick(others)}",
            ])
            shown = self.pick([
                f"coalesce({column}, {constant()})", f"{column} - INTERVAL '1 day'", f"{column}::TEXT", "date_trunc('year', ts)", "extract(year FROM ts)",
                "ts::DATE", "ts::TIME", "d + t", "ts::TIMESTAMP(0)", "t::TIME(1)", f"CASE WHEN id > 5 THEN {self.pick(others)} ELSE {self.pick(others)} END",
            ])
            yield f"SELECT id, {shown} FROM moments WHERE {condition}"

    def transactions(self):
        yield "DROP TABLE IF EXISTS kept"
        yield "CREATE TABLE kept (id INTEGER PRIMARY KEY, x SMALLINT CHECK (x > -5))"
        yield "INSERT INTO kept VALUES (1, 1), (2, 2)"
        yield "BEGIN"
        for _ in range(self.random.randint(3, 9)):
            yield self.pick([
                f"INSERT INTO kept VALUES ({self.random.randint(1, 6)}, {self.random.randint(-6, 9)})", f"UPDATE kept SET x = x + {self.random.randint(-3, 3)}",
                f"DELETE FROM kept WHERE id = {self.random.randint(1, 4)}", "UPDATE kept SET x = 40000", "INSERT INTO kept VALUES (7, 'x')",
                f"SAVEPOINT s{self.random.randint(1, 2)}", f"ROLLBACK TO s{self.random.randint(1, 2)}", f"RELEASE s{self.random.randint(1, 2)}", "SELECT * FROM kept",
                f"INSERT INTO kept VALUES (2, 5) ON CONFLICT (id) DO UPDATE SET x = kept.x + {self.random.randint(0, 9)}", "SELECT nothing FROM kept",
                "SET LOCAL statement_timeout = '19s'", "SHOW statement_timeout",
            ])
        yield self.pick(["COMMIT", "COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "END"])
        yield "ROLLBACK"
        yield "SELECT * FROM kept"

    def script(self):
        kinds = [self.casts, self.casts, self.casts, self.rows, self.rows, self.assignments, self.sums, self.times, self.transactions]
        return list(self.pick(kinds)())


def outcomes_of(servers, statement, typed=False):
    """For each server the rows in an order of their own, the types of the columns if that is
    asked, and the number of rows that were changed; or its SQLSTATE and message."""

    def outcome(result):
        # Truth is written t and f where it is a column, and this compares values.
        types = [tuple((2, str(result.ftype(j))) for j in range(result.nfields))] if typed else []
        return sorted(cells_of(result)) + types + [((2, (result.command_tuples or 0) if not result.nfields else ""),)]

    return [(None, error) if error else (outcome(result), None) for result, error in run(servers, statement)]


# Errors of what is not done yet: SQLSTATE, and a part of the message.
REFUSED = [
    ("42883", "comparison operation"),
    ("42000", "Inconsistent data type across values list"),
]
# PostgreSQL's errors of types and of values that SeracDB takes.
LENIENT = ("42804", "42883", "42846", "22P02", "22007")


def judged(theirs, their_error, ours, our_error):
    """The kind of an answer, or none if it differs."""
    if their_error and our_error:
        return "both"
    if our_error and (our_error[0] == "0A000" or any(state == our_error[0] and text in our_error[1] for state, text in REFUSED)):
        return "refused"
    if our_error and our_error[0] == "22003":
        # PostgreSQL's decimals have more than 38 digits, and its sums of BIGINT are decimals.
        return "undecided"
    if their_error and their_error[0] in LENIENT:
        return "lenient"
    return "same" if ours is not None and theirs is not None and are_same(theirs, ours) else None


def compared_scripts(request, tables, scripts, judged, typed=False):
    """What both servers make of scripts, over tables that statements make first. `judged` takes
    a statement, and both outcomes."""
    both = servers_of(request)
    prepared(both, tables)
    counts, differences = dict.fromkeys(["same", "refused", "undecided", "both", "lenient"], 0), []
    for _ in range(request["queries"]):
        for statement in scripts.script():
            (theirs, their_error), (ours, our_error) = outcomes_of(both, statement, typed)
            kind = judged(statement, theirs, their_error, ours, our_error)
            if kind:
                counts[kind] += 1
                # What one has not done, the rest of the script would show again.
                if kind in ("same", "both"):
                    continue
            else:
                shown = lambda rows, error: error or rows
                differences.append({"query": statement, "postgres": str(shown(theirs, their_error)), "serac": str(shown(ours, our_error))})
            run(both, "ROLLBACK")
            break
        if any(server.connection.closed for server in both):
            break
    return counts | {"differences": differences}


def compared(request):
    return compared_scripts(request, [], Scripts(request["seed"]), lambda _, *outcomes: judged(*outcomes))


if __name__ == "__main__":
    answer_requests(compared)

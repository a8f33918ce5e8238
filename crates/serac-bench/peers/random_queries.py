"""Random queries, the same to two servers that speak PostgreSQL's protocol, and how their answers
differ.

Each line of standard input is {"postgres": DSN, "serac": DSN, "schema", "seed", "queries"}: three
small tables with NULLs are made anew in the schema of both, with indexes on one of them, and then
queried. Both run a statement at the same time. Each answer is a line of JSON: {"same", "refused":
errors 0A000, "undecided": one of them met an error in a value (class 22), "both": both refuse,
"lenient": only PostgreSQL refuses, "differences": [{"query", "postgres", "serac"}]} or {"error":
text}.

Queries are made of the texts below. In these, {int} is an expression of that type, {int/num} one of
either, and [a;b] one of the texts. Whatever leaves an order open, or hangs on the order in which
floats are added, is not asked. Queries that end with an order of all their columns must have their
rows in it.
"""

import functools
import json
import math
import random
import re
import sys

import psycopg

COLUMNS = {
    "a": "int", "b": "big", "s": "small", "n": "num", "f": "float", "t": "text", "c": "text", "d": "date", "ts": "ts", "z": "tz", "o": "bool",
    "u": "int", "v": "text", "w": "wild",
}
# Columns that are unique and have NULL in several rows.
UNIQUE = ["u", "v"]
SQL_TYPES = {
    "int": "INTEGER", "small": "SMALLINT", "big": "BIGINT", "num": "NUMERIC(10,2)", "float": "DOUBLE PRECISION", "text": "TEXT", "date": "DATE",
    "ts": "TIMESTAMP", "tz": "TIMESTAMPTZ", "bool": "BOOLEAN", "iv": "INTERVAL", "wild": "DOUBLE PRECISION",
}
TABLES = {"t1": 60, "t2": 25, "t3": 7}
# Rows that FROM may have if no condition leaves any out: all of them may come here.
MOST_ROWS = 6_000
# Types of columns, of results and of what is compared.
TYPES = ["int", "small", "big", "num", "float", "text", "date", "ts", "tz", "bool"]
# Floats of any size and both zeros, which are compared, put in order and grouped, and added up only
# where it is known in which order.
COMPARED = TYPES + ["wild"]

CONSTANTS = {
    "int": "[-7;-3;-2;-1;0;1;2;3;4;5;6;7;10;100;1000;2147483647;-2147483648]",
    "small": "[-5;-2;-1;0;1;2;3;7;9]::SMALLINT",
    "big": "[0;1;5;-2;7;3000000000;-3000000000]",
    "num": "[0.00;1.50;-2.25;3.10;10.00;0.01;99.99;1.5;2.125]",
    "float": "[0.5;1.0;-1.5;2.25;1e3;0.0]::DOUBLE PRECISION", "wild": "'[0;-0;0.5;1;2;1e20]'::DOUBLE PRECISION",
    "text": "'[;a;b;ab;abc;Abc;x y;%;_;a_c;zz;10;-3;NULL; a ;aab;bba]'",
    "date": "DATE '[2020-01-01;2020-02-29;2021-12-31;1999-06-15;2024-03-10;1970-01-01]'",
    "ts": "TIMESTAMP '[2020-01-01 00:00:00;2020-02-29 12:30:15.5;2021-12-31 23:59:59.999999;1999-06-15 06:00:00;1969-12-31 23:00:00]'",
    "tz": "TIMESTAMPTZ '[2020-01-01 00:00:00+00;2020-02-29 12:30:15.5+02;2021-12-31 23:59:59.999999-05;1999-06-15 06:00:00+00]'",
    "bool": "[true;false]",
    "iv": "INTERVAL '[1 day;2 hours;1 month;-3 days;1 year 2 months;00:30:00;1 day 12:00:00;0;-1 month 5 days]'",
}

EXPRESSIONS = {
    "int": [
        "({int} [+;-;*] {int/small})", "({int} [/;%] nullif({int}, 0))", "mod({int}, nullif({int}, 0))", "abs({int})", "(- {int})", "({int} [&;|;#] {int})",
        "length({text})", "octet_length({text})", "ascii({text})", "strpos({text}, {text})", "position({text} IN {text})", "({date} - {date})",
        "extract([year;month;day;dow;doy;quarter;week;isodow] FROM {date/ts})::INTEGER", "{small}::INTEGER", "{bool}::INTEGER",
        "[round;trunc;sign]({num})::INTEGER", "div({num}, nullif({num}, 0))::INTEGER",
    ],
    "small": ["{int}::SMALLINT", "abs({small})", "(- {small})", "({small} [+;-] {small})"],
    "big": ["({big} [+;-] {int/big/small})", "({big} * {small})", "({big} [/;%] nullif({big/int}, 0))", "{int}::BIGINT", "abs({big})"],
    "num": [
        "({num} [+;-;*] {num/int/small/big})", "({num} [/;%] nullif({num}, 0))", "round({num}, [-1;0;1;2])", "trunc({num}, 1)", "[abs;floor;ceil]({num})",
        "{int}::NUMERIC(10,2)", "(- {num})", "extract(epoch FROM {iv})",
    ],
    "float": [
        "({float} [+;-;*] {float/int/num/big})", "({float} / nullif({float}, 0))", "{int/num/big}::DOUBLE PRECISION", "[abs;floor;round]({float})",
        "sqrt(abs({float}))", "power({float}, 2)",
    ],
    "text": [
        "({text} || {text/int})", "[upper;lower;trim;reverse;initcap;md5]({text})", "substr({text}, [-1;0;1;2;3], [0;1;2;3])", "substring({text} FROM [1;2;3])",
        "[left;right]({text}, [-2;-1;0;1;2;3])", "replace({text}, {text}, {text})", "ltrim({text}, 'a')", "btrim({text}, ' a')", "lpad({text}, [0;2;6], 'xy')",
        "rpad({text}, [0;2;6])", "concat({text}, {int}, {text})", "concat_ws('-', {text}, {text})", "{int/date/bool/num/ts}::TEXT",
        "split_part({text}, 'b', [1;2])", "translate({text}, 'ab', 'x')", "repeat({text}, [-1;0;2])", "regexp_replace({text}, '[[a-b]]+', 'R')",
        "to_char({date}, 'YYYY-MM-DD')", "to_char({ts}, 'Mon DD HH24:MI')", "overlay({text} PLACING 'Q' FROM 2)", "chr([65;77;90])",
    ],
    "date": [
        "({date} [+;-] [0;1;7;40])", "{ts}::DATE", "({date} + {iv})::DATE", "date_trunc('[month;year;week;quarter]', {ts})::DATE",
        "make_date(2020, [1;6;12], [1;15;28])",
    ],
    "ts": [
        "({ts} [+;-] {iv})", "({date} [+;-] {iv})", "date_trunc('[hour;day;month;minute;second;year;week]', {ts})", "{date}::TIMESTAMP",
        "({tz} AT TIME ZONE 'UTC')",
    ],
    "tz": ["({tz} [+;-] {iv})", "date_trunc('[hour;day;month]', {tz})", "({ts} AT TIME ZONE 'UTC')"],
    "wild": ["abs({wild})", "{float}", "{int}::DOUBLE PRECISION"],
    "iv": ["({ts} - {ts})", "({iv} + {iv})", "({iv} * [-2;-1;0;2;3])", "make_interval(days => [-3;0;40])", "(- {iv})"],
    "bool": [
        "({bool} [AND;OR] {bool})", "(NOT {bool})", "({bool} IS [;NOT ][TRUE;FALSE;UNKNOWN])", "({int/num/big} [=;<>;<;<=;>;>=] {int/small/num/float})",
        "({text} [;NOT ][LIKE;ILIKE] '[a%;%b;%b%;_;a_c;%;;A%]')", "({text} ~ '^[[a-b]]')", "starts_with({text}, 'a')",
        "(({int}, {text}) [=;<>;<;>=;>] ({int}, {text}))", "(({int}, {text}) IS [;NOT ]NULL)", "(ROW({date}) IS [;NOT ]NULL)",
    ],
}
# For any type, which stands for T.
GENERIC = [
    "coalesce({T}, {T})", "CASE WHEN {bool} THEN {T} ELSE {T} END", "CASE WHEN {bool} THEN {T} END", "CASE {int} WHEN 1 THEN {T} WHEN 2 THEN {T} ELSE {T} END",
]
COMPARABLE = ["nullif({T}, {T})", "[greatest;least]({T}, {T})"]
# Conditions over values of any type, which stands for T; K is a constant of it.
CONDITIONS = [
    "({T} [=;<>;<;<=;>;>=] {T})", "({T} [;NOT ]BETWEEN {T} AND {T})", "({T} [;NOT ]IN (K, {T}, K))", "({T} IS [;NOT ]NULL)",
    "({T} IS [;NOT ]DISTINCT FROM {T})",
]
AGGREGATES = {
    "int": ["[min;max]({int})"], "small": ["[min;max]({small})"],
    "big": ["count(*)", "count([;DISTINCT ]{int/text/date/bool})", "sum([;DISTINCT ]{int/small})", "max({big})"],
    "num": ["[min;max]({num})", "sum([;DISTINCT ]{num})", "avg({num/int/big})", "sum({big})"],
    "float": ["[min;max;sum;avg]({float})", "stddev({int})", "var_pop({float})"],
    "text": ["[min;max]({text})"], "date": ["[min;max]({date})"], "ts": ["[min;max]({ts})"], "tz": ["[min;max]({tz})"], "bool": ["bool_[and;or]({bool})"], "wild": ["[min;max]({wild})"],
}
JOINS = ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]
SET_OPERATIONS = [f"{operation}{all}" for operation in ("UNION", "EXCEPT", "INTERSECT") for all in ("", " ALL")]


class Scope:
    """Columns that an expression may name, as (name, type), those of the query around, and how
    many rows there are at most."""

    def __init__(self, columns, outer=None, rows=1):
        self.columns, self.outer, self.rows = columns, outer, rows

    def plain(self):
        return Scope(self.columns)


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.aliases = self.nesting = 0

    def chance(self, share):
        return self.random.random() < share

    def alias(self):
        self.aliases += 1
        return f"q{self.aliases}"

    def filled(self, template, scope, depth, of=None):
        """The text with its choices made and its expressions put in. [[…]] are plain brackets."""
        text = template.replace("{T}", f"{{{of}}}")
        text = re.sub(r"(?<!\[)\[([^\[\]]*)\](?!\])", lambda found: self.random.choice(found[1].split(";")), text).replace("[[", "[").replace("]]", "]")
        if of:
            text = re.sub(r"\bK\b", lambda _: self.constant(of), text)
        return re.sub(r"\{([\w/]+)\}", lambda found: self.expression(self.random.choice(found[1].split("/")), scope, depth), text)

    def constant(self, of):
        return self.filled(CONSTANTS[of], Scope([]), 0)

    def column(self, of, scope):
        """A column of the type, or none."""
        if scope.outer and self.chance(0.25) and (found := self.column(of, scope.outer)):
            return found
        names = [name for name, its_type in scope.columns if its_type == of]
        return self.random.choice(names) if names else None

    def expression(self, of, scope, depth):
        if depth <= 0 or self.chance(0.25):
            if self.chance(0.8) and (column := self.column(of, scope)):
                return column
            return f"NULL::{SQL_TYPES[of]}" if self.chance(0.06) else self.constant(of)
        if of != "bool" and depth >= 2 and of != "iv" and self.chance(0.03):
            return f"({self.scalar(of, scope, depth)})"
        if self.chance(0.12):
            templates = GENERIC + (COMPARABLE if of not in ("iv", "bool") else [])
            return self.filled(self.random.choice(templates), scope, depth - 1, of)
        if of == "bool":
            if depth >= 2 and self.chance(0.15):
                return self.subquery_condition(scope, depth)
            if self.chance(0.12) and (logic := self.logic(scope)):
                return logic
            if self.chance(0.5):
                return self.filled(self.random.choice(CONDITIONS), scope, depth - 1, self.random.choice(COMPARED))
        return self.filled(self.random.choice(EXPRESSIONS[of]), scope, depth - 1)

    def logic(self, scope):
        """Several conditions about one value that may be NULL, or none."""
        of = self.random.choice(["int", "int", "text", "small", "bool", "wild"])
        if not (column := self.column(of, scope)):
            return None
        templates = [
            f"{column} [;NOT ]IN (K, K)", f"{column} [;NOT ]IN (K, K, K, K, K)", f"{column} [=;<>;<;>=] K", f"{column} IS [;NOT ]NULL",
            f"{column} [;NOT ]IN (K, NULL)", f"{column} [;NOT ]BETWEEN K AND K", f"{column} IS [;NOT ]DISTINCT FROM K",
        ]

        def tree(depth):
            if depth == 0 or self.chance(0.2):
                return f"({self.filled(self.random.choice(templates), scope, 0, of)})"
            both = f"({tree(depth - 1)} {self.random.choice(['AND', 'OR'])} {tree(depth - 1)})"
            return self.random.choice([both, both, f"(NOT {both})", f"({both} IS {self.random.choice(['', 'NOT '])}{self.random.choice(['TRUE', 'FALSE', 'UNKNOWN'])})"])

        return tree(2)

    def where(self, scope, depth, share):
        return f" WHERE {self.expression('bool', scope, depth)}" if self.chance(share) else ""

    def subquery_condition(self, scope, depth):
        kind = self.random.randrange(4)
        source, inner = self.inner_source(scope)
        # Now and then a subquery in the subquery, which may name columns of the outermost query.
        deeper = 2 if self.nesting == 0 and self.chance(0.2) else depth - 2
        self.nesting += 1
        where = self.where(inner, deeper, 0.8)
        self.nesting -= 1
        negation = self.random.choice(["", "NOT "])
        if kind == 0:
            return f"({negation}EXISTS (SELECT 1 FROM {source}{where}))"
        of = self.random.choice(["int", "text", "date", "num", "big"])
        value = self.expression(of, scope, depth - 2)
        if kind == 1:
            return f"({value} {negation}IN (SELECT {self.expression(of, inner, depth - 2)} FROM {source}{where}))"
        if kind == 2:
            comparison = self.filled("[=;<;>;<>;>=] [ANY;ALL]", scope, 0)
            return f"({value} {comparison} (SELECT {self.expression(of, inner.plain(), depth - 2)} FROM {source}{where}))"
        return f"({value} {self.random.choice('=<>')} ({self.scalar(of, scope, depth)}))"

    def scalar(self, of, scope, depth):
        """A query of one value."""
        source, inner = self.inner_source(scope)
        where = self.where(inner, depth - 2, 0.8)
        if self.chance(0.7):
            return f"SELECT {self.aggregate(of, inner.plain(), depth - 2)} FROM {source}{where}"
        keys = ", ".join(name for name, _ in inner.columns if name.endswith(".id"))
        return f"SELECT {self.expression(of, inner, depth - 2)} FROM {source}{where} ORDER BY {keys} LIMIT 1"

    def aggregate(self, of, scope, depth):
        condition = f" FILTER (WHERE {self.expression('bool', scope, depth - 1)})" if self.chance(0.12) else ""
        return self.filled(self.random.choice(AGGREGATES[of]), scope, depth - 1) + condition

    def table(self, outer=None):
        alias = self.alias()
        columns = [(f"{alias}.id", "int")] + [(f"{alias}.{name}", of) for name, of in COLUMNS.items()]
        name = self.random.choice(list(TABLES))
        return f"{name} AS {alias}", Scope(columns, outer, TABLES[name])

    def merged(self, outer=None):
        """Two tables, columns of which are merged: these are named without a table. And the
        columns that say which row it is."""
        (left, scope), (right, added) = self.table(outer), self.table()
        join = self.random.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        keys = [scope.columns[0][0], added.columns[0][0]]
        if self.chance(0.7):
            names = self.random.sample(["a", "s", "u", "o", "id", "w", "v"], self.random.choice([1, 1, 1, 2]))
            merged = [(name, "int" if name == "id" else COLUMNS[name]) for name in names]
            return f"{left} {join} {right} USING ({', '.join(names)})", Scope(merged + scope.columns + added.columns, outer, scope.rows * added.rows), keys
        name = self.random.choice(["a", "s", "u", "id"])
        of = "int" if name == "id" else COLUMNS[name]
        sides = [self.alias(), self.alias()]
        own = [self.alias(), self.alias()]
        tables = [self.random.choice(list(TABLES)) for _ in sides]
        parts = [f"(SELECT {name}, {self.random.choice(['b', 'd', 't'])} AS {mine} FROM {table}) AS {side}" for side, mine, table in zip(sides, own, tables)]
        return f"{parts[0]} NATURAL {self.random.choice(['JOIN', 'LEFT JOIN'])} {parts[1]}", Scope([(name, of)] + [(f"{side}.{name}", of) for side in sides], outer, math.prod(TABLES[table] for table in tables)), []

    def inner_source(self, outer):
        """What a subquery reads."""
        if self.chance(0.3):
            source, scope, keys = self.merged(outer)
            if keys:
                return source, scope
        return self.table(outer)

    def item(self, depth):
        if self.chance(0.04):
            alias = self.alias()
            rows = ", ".join(f"[[{self.constant('int')}, {self.constant('int')}]]" for _ in range(2)).replace("[[", "[").replace("]]", "]")
            return f"unnest(ARRAY[{rows}]) AS {alias}(c0)", Scope([(f"{alias}.c0", "int")], rows=4)
        if depth >= 2 and self.chance(0.25):
            query, types, rows = self.query(depth - 1)
            alias = self.alias()
            return f"({query}) AS {alias}", Scope([(f"{alias}.c{i}", of) for i, of in enumerate(types)], rows=rows)
        return self.table()

    def source(self, depth):
        """FROM, its columns, and those that say which row it is, if there are some."""
        if self.chance(0.12):
            return self.merged()
        text, scope = self.item(depth)
        columns, rows, keys = list(scope.columns), scope.rows, [[name for name, _ in scope.columns if name.endswith(".id")]]
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2])):
            more, added = self.item(depth)
            if rows * added.rows > MOST_ROWS:
                continue
            rows *= added.rows
            join = self.random.choice(JOINS)
            left, both = Scope(columns), Scope(columns + added.columns)
            keys.append([name for name, _ in added.columns if name.endswith(".id")])
            condition = ""
            if join != "CROSS JOIN":
                of = self.random.choice(["int", "int", "small", "text", "date", "bool", "num", "wild"])
                pair = self.column(of, left), self.column(of, added)
                condition = f" ON {pair[0]} = {pair[1]}" if all(pair) else " ON 1 = 1" if join == "FULL JOIN" else " ON true"
                if join != "FULL JOIN" and self.chance(0.4):
                    condition += f" AND {self.expression('bool', both, min(depth - 1, 2))}"
            text, columns = f"{text} {join} {more}{condition}", both.columns
        return text, Scope(columns, rows=rows), [key for item in keys for key in item] if all(keys) else []

    def few(self, types):
        """Rows of few different values of columns of a table, and how many there are at most."""
        source, scope = self.table()
        distinct = "DISTINCT " if self.chance(0.2) else ""
        shown = ", ".join(f"{self.column(of, scope)} AS c{i}" for i, of in enumerate(types))
        return f"SELECT {distinct}{shown} FROM {source}{self.where(scope, 1, 0.3)}", scope.rows

    def query(self, depth):
        """A query, the types of its columns, and how many rows it has at most."""
        if self.chance(0.1):
            types = [self.random.choice(["int", "small", "bool", "text", "wild", "date"]) for _ in range(self.random.randint(1, 2))]
            query, rows = self.few(types)
            for _ in range(self.random.choice([1, 1, 2])):
                more, added = self.few(types)
                query, rows = f"({query}) {self.random.choice(SET_OPERATIONS)} ({more})", rows + added
            return query, types, rows
        types = [self.random.choice(COMPARED) for _ in range(self.random.randint(1, 4))]
        if depth >= 2 and self.chance(0.1):
            (left, rows), (right, added) = self.select(depth - 1, types), self.select(depth - 1, types)
            return f"{left} {self.random.choice(SET_OPERATIONS)} {right}", types, rows + added
        query, rows = self.select(depth, types)
        return query, types, rows

    def select(self, depth, types):
        source, scope, key = self.source(depth)
        where = self.where(scope, depth, 0.7)
        if self.chance(0.35):
            return self.grouped(source, scope, where, depth, types), scope.rows
        values = [self.expression(of, scope, depth - 1) for of in types]
        if key and self.chance(0.15):
            at = self.random.randrange(len(types))
            values[at] = self.window(types[at], scope, key)
        distinct = "DISTINCT " if self.chance(0.15) else ""
        if distinct and self.chance(0.6):
            values = [self.column(of, scope) or value for of, value in zip(types, values)]
        shown = ", ".join(f"{value} AS c{i}" for i, value in enumerate(values))
        query, rows = f"SELECT {distinct}{shown} FROM {source}{where}", scope.rows
        if self.chance(0.15):
            order = self.order(len(types))
            offset = f" OFFSET {self.random.randint(0, 3)}" if self.chance(0.3) else ""
            limit = self.random.randint(0, 6)
            query, rows = f"SELECT * FROM ({query} ORDER BY {order} LIMIT {limit}{offset}) AS {self.alias()}", limit
        return query, rows

    def order(self, columns):
        """All of them, so that nothing is left open."""
        return ", ".join(f"{i + 1}{self.random.choice(['', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])}" for i in range(columns))

    def grouped(self, source, scope, where, depth, types):
        wanted, values, groups = self.random.randint(0, 2), [], []
        for of in types:
            group = self.expression(of, scope, 1) if self.chance(0.3) else self.column(of, scope)
            # What names no column would be a column's place, or a constant.
            if len(groups) < wanted and group and re.search(r"q\d+\.", group):
                groups.append(group)
                values.append(group)
            elif of == "big" and self.chance(0.15) and (tables := sorted({name.split(".")[0] for name, _ in scope.columns if "." in name})):
                values.append(f"count({self.random.choice(tables)}.*)")
            else:
                values.append(self.aggregate(of, scope, depth - 1))
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        # Only columns: an expression of several would be another one in the select list.
        if groups and self.chance(0.4) and all(re.fullmatch(r"(q\d+\.)?\w+", group) for group in groups):
            by = f" GROUP BY {self.sets(groups)}"
            if "big" in types and self.chance(0.3):
                at = types.index("big")
                values[at] = values[at] if values[at] in groups else f"grouping({', '.join(groups)})"
            if self.chance(0.5):
                where = self.equal(scope, groups) or where
        shown = ", ".join(f"{value} AS c{i}" for i, value in enumerate(values))
        having = f" HAVING {self.aggregate('big', scope, 1)} {self.random.choice(['>', '<', '>='])} {self.random.randint(0, 5)}"
        return f"SELECT {shown} FROM {source}{where}{by}{having if groups and self.chance(0.3) else ''}"

    def sets(self, groups):
        """Several sets of columns to group by."""
        all = ", ".join(groups)
        each = ", ".join(f"({group})" for group in groups)
        return self.random.choice([
            f"ROLLUP ({all})", f"CUBE ({all})", f"GROUPING SETS (({all}), ())", f"GROUPING SETS ({each}, ())", f"{all}, ROLLUP ({groups[-1]})",
            f"{groups[0]}, CUBE ({all})", f"GROUPING SETS (({all}), ({groups[0]}), ({groups[0]}))",
        ])

    def equal(self, scope, groups):
        """A condition that makes two of the columns equal. (Of one that is constant, PostgreSQL
        15 itself leaves the sort out.)"""
        types = dict(scope.columns)
        if len(groups) < 2 or groups[0] == groups[1] or types.get(groups[0]) is None or types.get(groups[0]) != types.get(groups[1]):
            return None
        return f" WHERE {groups[0]} = {groups[1]}"

    def frame(self):
        low, high = sorted(self.random.sample(range(-2, 4), 2))
        bound = lambda at: "CURRENT ROW" if at == 0 else f"{-at} PRECEDING" if at < 0 else f"{at} FOLLOWING"
        high = "UNBOUNDED FOLLOWING" if self.chance(0.2) else bound(high)
        return f"ROWS BETWEEN {bound(low)} AND {high}"

    def window(self, of, scope, key):
        part = self.column(self.random.choice(["int", "small", "bool", "text"]), scope)
        part = f"PARTITION BY {part} " if part and self.chance(0.7) else ""
        order = f"{part}ORDER BY {', '.join(key)}"
        number = self.column("int", scope)
        if of == "big":
            return self.random.choice([
                f"row_number() OVER ({order})", f"count(*) OVER ({part})", f"rank() OVER ({part}ORDER BY {number})", f"dense_rank() OVER ({part}ORDER BY {number} DESC)",
                f"sum({number}) OVER ({order} ROWS BETWEEN {self.random.randint(0, 2)} PRECEDING AND {self.random.randint(0, 2)} FOLLOWING)",
            ])
        if of == "float" and self.chance(0.7):
            return f"{self.random.choice(['sum', 'avg'])}({self.expression('wild', scope, 1)}) OVER ({order} {self.frame()})"
        if of == "bool" and self.chance(0.3):
            return f"(count(*) OVER (PARTITION BY {self.column('wild', scope) or 'NULL::INTEGER'}) > 2)"
        value = self.expression(of, scope, 1)
        return self.random.choice([
            f"lag({value}) OVER ({order})", f"lead({value}, 2) OVER ({order})", f"first_value({value}) OVER ({order})",
            f"last_value({value}) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
            f"max({value}) OVER ({order})" if of != "bool" else f"bool_or({value}) OVER ({order})",
        ])

    def cell(self, of):
        return "NULL" if self.chance(0.12) else str(self.random.randint(-3, 8)) if of in ("int", "small") else self.constant(of)

    def tables(self):
        """Statements that make the tables."""
        unique = lambda name: " UNIQUE" if name in UNIQUE else ""
        columns = [f"{name} {'VARCHAR(12)' if name == 'c' else SQL_TYPES[of]}{unique(name)}" for name, of in COLUMNS.items()]
        definition = ", ".join(["id INTEGER PRIMARY KEY"] + columns)
        for name, count in TABLES.items():
            # Each unique value is in one row.
            values = {column: self.random.sample(range(-3, count), count) for column in UNIQUE}
            one = lambda column, i: f"'{values[column][i]}'" if COLUMNS[column] == "text" else str(values[column][i])
            cell = lambda column, i: self.cell(COLUMNS[column]) if column not in UNIQUE else "NULL" if self.chance(0.3) else one(column, i)
            rows = (", ".join([str(i + 1)] + [cell(column, i) for column in COLUMNS]) for i in range(count))
            yield f"DROP TABLE IF EXISTS {name}"
            yield f"CREATE TABLE {name} ({definition})"
            yield f"INSERT INTO {name} VALUES {', '.join(f'({row})' for row in rows)}"

    def settings(self):
        """Statements for SeracDB alone: indexes, frozen blocks, figures about the columns."""
        for table in TABLES:
            for column in COLUMNS:
                if method := self.random.choice(["", "", "", "btree", "bitmap"]):
                    yield f"CREATE INDEX ON {table} USING {method} ({column})"
        if self.chance(0.4):
            yield "FREEZE TABLE t1"
        if self.chance(0.5):
            yield "ANALYZE"

    def change(self):
        """A statement that changes rows, some of which have several partners, and gives them."""
        target, alias = self.random.choice(["t2", "t3"]), self.alias()
        columns = [(f"{alias}.id", "int")] + [(f"{alias}.{name}", of) for name, of in COLUMNS.items()]
        (source, added), own = self.table(), Scope(columns)
        of = self.random.choice(["int", "small", "text", "bool"])
        partners = f"{self.column(of, own)} = {self.column(of, Scope(added.columns))} AND {self.expression('bool', Scope(columns + added.columns), 2)}"
        both, merged, _ = self.merged(own)
        within = f"{alias}.id IN (SELECT {self.column('int', Scope(merged.columns)) or '1'} FROM {both})"
        kind = self.random.randrange(4)
        if kind == 0:
            return f"DELETE FROM {target} AS {alias} USING {source} WHERE {partners} RETURNING {alias}.id"
        if kind == 1:
            return f"DELETE FROM {target} AS {alias} WHERE {self.random.choice([within, self.expression('bool', own, 3)])} RETURNING {alias}.id"
        set_to = f"a = {self.expression('int', own, 1)}, t = {self.expression('text', own, 1)}, w = {self.expression('wild', own, 1)}"
        if kind == 2:
            return f"UPDATE {target} AS {alias} SET {set_to} FROM {source} WHERE {partners} RETURNING {alias}.id, {alias}.a, {alias}.t, {alias}.w"
        return f"UPDATE {target} AS {alias} SET {set_to} WHERE {self.random.choice([within, self.expression('bool', own, 3)])} RETURNING {alias}.id, {alias}.a, {alias}.t"


def value_of(text):
    """A value as it is compared: numbers by what they are."""
    if text is None:
        return (0, "")
    return (1, float(text)) if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text) else (2, text)


def is_same(left, right):
    return left == right or left[0] == right[0] == 1 and math.isclose(left[1], right[1], rel_tol=1e-6, abs_tol=2e-6)


def are_same(left, right):
    return len(left) == len(right) and all(is_same(*values) for rows in zip(left, right) for values in zip(*rows))


class Server:
    """A connection to a server, which is made again when it has ended. Tables are made in the
    schema."""

    def __init__(self, dsn, schema):
        self.dsn, self.schema, self.connection = dsn, schema, None

    def ready(self):
        """The connection, with its settings."""
        if self.connection is None or self.connection.closed:
            self.connection = psycopg.connect(self.dsn, autocommit=True)
            for setting in (f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"', f'SET search_path = "{self.schema}"', "SET TIME ZONE 'UTC'", "SET statement_timeout = '20s'"):
                self.connection.execute(setting)
        return self.connection.pgconn


@functools.lru_cache
def servers(postgres, serac, schema):
    return Server(postgres, schema), Server(serac, schema)


def servers_of(request):
    """PostgreSQL and SeracDB, connected."""
    found = servers(request["postgres"], request["serac"], request.get("schema", "public"))
    for server in found:
        server.ready()
    return found


def run(servers, statement):
    """What each of them makes of a statement, which they run at the same time: a result and no
    error, or no result and SQLSTATE and message."""
    connections = [server.connection.pgconn for server in servers]
    outcomes = []
    try:
        for connection in connections:
            connection.send_query(statement.encode())
    except psycopg.Error as error:
        outcomes = [(None, ("", str(error)))] * len(connections)
    for connection in connections[len(outcomes) :]:
        last = None
        while result := connection.get_result():
            last = result
        if last is None:
            outcomes.append((None, ("", "the connection has ended")))
        elif last.status in (psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE):
            state = last.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b""
            outcomes.append((None, (state.decode(), last.error_message.decode().split("\n")[0])))
        else:
            outcomes.append((last, None))
    return outcomes


def prepared(servers, statements, only=None):
    """Runs statements that must not fail, on all servers or on one of them."""
    for statement in statements:
        for _, error in run(servers if only is None else [only], statement):
            if error:
                raise RuntimeError(f"{statement[:200]}: {error[1]}")


def cells_of(result):
    """The rows of a result."""
    width = range(result.nfields)
    values = lambda i: (result.get_value(i, j) for j in width)
    return [tuple(value_of(cell if cell is None else cell.decode()) for cell in values(i)) for i in range(result.ntuples)]


def answers_of(servers, query, ordered):
    """For each server the rows of a query, in an order of their own unless they are in one; or
    its SQLSTATE and message. What changes rows is undone."""
    is_change = query.startswith(("DELETE", "UPDATE"))
    if is_change:
        run(servers, "BEGIN")
    outcomes = run(servers, query)
    if is_change:
        run(servers, "ROLLBACK")
    # Numbers that differ in their last digits stand in one order on both sides.
    key = lambda row: ([(kind, round(value, 3) if kind == 1 else value) for kind, value in row], row)
    rows = lambda result: cells_of(result) if ordered else sorted(cells_of(result), key=key)
    return [(None, error) if error else (rows(result), None) for result, error in outcomes]


def compared(request):
    generator = Generator(request["seed"])
    both = servers_of(request)
    prepared(both, generator.tables())
    prepared(both, generator.settings(), both[1])
    counts, differences = dict.fromkeys(["same", "refused", "undecided", "both", "lenient"], 0), []
    for _ in range(request["queries"]):
        generator.aliases = 0
        query, types, _ = generator.query(generator.random.choice([1, 2, 2, 3]))
        # The order of sums of floats hangs on their last digits.
        if ordered := generator.chance(0.25) and not {"float", "num"} & set(types):
            query += f" ORDER BY {generator.order(len(types))}"
        elif generator.chance(0.06):
            query = generator.change()
        (theirs, their_error), (ours, our_error) = answers_of(both, query, ordered)
        states = [error[0] for error in (their_error, our_error) if error]
        if their_error and our_error:
            counts["both"] += 1
        elif our_error and our_error[0] == "0A000":
            counts["refused"] += 1
        elif any(state.startswith("22") for state in states):
            counts["undecided"] += 1
        elif their_error:
            counts["lenient"] += 1
        elif ours is not None and are_same(theirs, ours):
            counts["same"] += 1
        else:
            shown = lambda rows, others, error: error or {"rows": len(rows), "only here": [row for row in rows if row not in (others or [])][:3]}
            difference = {"query": query, "postgres": shown(theirs, ours, their_error), "serac": shown(ours, theirs, our_error)}
            differences.append({name: text if name == "query" else str(text) for name, text in difference.items()})
        if "" in states:
            break
    return counts | {"differences": differences}


def answer_requests(compared):
    """Answers the requests of standard input, a line each, by what `compared` makes of them."""
    print(json.dumps({"ready": f"psycopg {psycopg.__version__}"}), flush=True)
    for line in sys.stdin:
        try:
            answer = compared(json.loads(line))
        except Exception as error:  # reported to the other side, which decides
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    answer_requests(compared)

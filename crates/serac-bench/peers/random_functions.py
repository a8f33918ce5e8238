"""Random statements of the functions, operators, casts and aggregates that SeracDB registers, the
same to two servers, and how their answers differ.

The protocol on standard input and output is that of random_queries.py; "queries" is the number of
scripts. What there is comes from SeracDB's `pg_proc`, `pg_operator` and `pg_cast`; what PostgreSQL
does not have under the same number, and what depends on the moment or on the server, is left out.
Expressions of them, which are typed as they say, stand in select lists, conditions, groups,
windows, defaults, checks, generated columns, indexes, changes of rows and of columns' types. Rows,
types of columns, numbers of changed rows and SQLSTATEs are compared.
"""

import functools
import random
import re

import psycopg

from random_queries import answer_requests, are_same
from random_values import compared_scripts

# Literals of each type, by its number: the value without the type's name.
VALUES = {
    21: ["0", "1", "-1", "7", "32767", "-32768"],
    23: ["0", "1", "2", "3", "-1", "-7", "10", "100", "2147483647", "-2147483648"],
    20: ["0", "1", "-1", "12", "5000000000", "9223372036854775807", "-9223372036854775808"],
    700: ["0", "-0", "1.5", "-2.25", "1e10", "1e-10", "NaN", "Infinity"],
    701: ["0", "-0", "1", "-1", "0.5", "2.75", "1e15", "1e-15", "1e300", "NaN", "Infinity", "-Infinity"],
    1700: ["0", "1", "-1.50", "2.125", "100.00", "0.001", "123456789012345678.99", "-7", "NaN"],
    25: ["", "a", "abc", " a b ", "Äöü", "12", "-3.5", "x,y,z", "2020-02-29", "true", "A_b%", "日本", "\\\\", "1 day", "{1,2}"],
    1043: ["", "ab", "Zyx ", "7"],
    1042: ["a", "b ", "zz"],
    16: ["true", "false"],
    17: ["\\\\x", "\\\\x00ff", "\\\\x616263", "\\\\xdeadbeef"],
    1082: ["2020-02-29", "1999-12-31", "0001-01-01", "1970-01-01", "2021-03-14", "9999-12-31"],
    1083: ["00:00", "12:34:56.789", "23:59:59.999999", "10:00"],
    1114: ["2020-02-29 12:34:56.789", "1970-01-01", "1999-12-31 23:59:59.999999", "0001-01-01 00:00", "9999-12-31 00:00"],
    1184: ["2020-02-29 12:34:56.789+00", "1970-01-01 00:00+00", "1999-12-31 23:59:59-05", "2021-03-14 10:00+00"],
    1186: ["0", "1 day", "-2 hours", "1 mon", "1 year 2 mons -3 days 04:05:06.7", "36:00", "-1 mon 30 days"],
    2950: ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"],
    114: ['{"a": 1, "b": [1, 2, null]}', "[1, \"x\", true]", "null", "7", '"t"', "{}", '{"a": {"c": "d"}}'],
    3802: ['{"a": 1, "b": [1, 2, null]}', "[1, \"x\", true]", "null", "7.50", '"t"', "{}", '{"a": {"c": "d"}}', "[]"],
    26: ["0", "23", "4294967295"],
    1007: ["{}", "{1}", "{1,2,3}", "{3,NULL,-1}", "{{1,2},{3,4}}"],
    1009: ["{}", "{a}", "{a,b,NULL}", "{\"x y\",\"\"}", "{{p,q}}"],
    1016: ["{}", "{1,5000000000}"],
    1022: ["{}", "{0.5,NaN}"],
    1000: ["{t,f,NULL}"],
    1182: ["{2020-02-29}"],
}
NAMES = {
    21: "smallint", 23: "integer", 20: "bigint", 700: "real", 701: "double precision", 1700: "numeric", 25: "text", 1043: "varchar", 1042: "bpchar",
    16: "boolean", 17: "bytea", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz", 1186: "interval", 2950: "uuid",
    114: "json", 3802: "jsonb", 26: "oid", 1007: "integer[]", 1009: "text[]", 1016: "bigint[]", 1022: "double precision[]", 1000: "boolean[]", 1182: "date[]",
}
# Types of columns: arrays and numbers of objects are for values alone.
KEPT = [of for of in VALUES if of != 26 and not NAMES[of].endswith("[]")]
# A column of NUMERIC has digits of its own.
OF_COLUMNS = NAMES | {1700: "numeric(24,6)"}
ARRAYS = {23: 1007, 25: 1009, 20: 1016, 701: 1022, 16: 1000, 1082: 1182}
ELEMENTS = {array: element for element, array in ARRAYS.items()}
# Polymorphic types, by what stands for them: the element, or its array.
ELEMENT_LIKE, ARRAY_LIKE = {2283, 2776, 5077}, {2277, 5078}
# What depends on the moment, on the server, or on chance; what is slow or large on purpose; what
# takes text as a name or as a pattern of its own.
LEFT_OUT = re.compile(
    r"pg_|current_|has_|set_|session_|inet|txid|xid|random|gen_random|now$|.*_timestamp$|timeofday|version|nextval|currval|lastval|setval|col_description|"
    r"obj_description|shobj_|to_reg|format_type|quote_ident|row_security|json_populate|jsonb_populate|.*to_record|age$|timezone$|serac|query_to|"
    r"getdatabaseencoding|regexp|to_char|to_date|to_timestamp|to_number|convert|encode|decode|repeat|lpad|rpad|array_fill|generate_series|bool$|"
    r"hash|.*_in$|.*_out$|.*_recv$|.*_send$|cursor|unnest|amvalidate|.*typmod.*|similar|isfinite$|getpgusername|database_to|schema_to|table_to|like_escape|"
    r"binary_upgrade|ts_|information_schema|suppress|statement_|transaction_|clock_|fmgr|void|make_timestamptz|.*send$"
)
AGGREGATES_OF_ORDER = {"array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"}


class Registry:
    """What both servers have."""

    def __init__(self, postgres, serac):
        rows = lambda server, sql: server.execute(sql).fetchall()
        functions = (
            "SELECT oid, proname, proargtypes::text, prorettype, prokind, provolatile, proretset, provariadic FROM pg_catalog.pg_proc "
            "WHERE oid < 10000 ORDER BY oid"
        )
        operators = "SELECT oid, oprname, oprleft, oprright, oprresult, oprcode::oid FROM pg_catalog.pg_operator WHERE oid < 10000 ORDER BY oid"
        casts = "SELECT castsource, casttarget, castcontext, castfunc::oid FROM pg_catalog.pg_cast ORDER BY 1, 2"
        # Operators and casts are asked as such.
        theirs, their_casts = rows(postgres, operators), rows(postgres, casts)
        behind = {str(row[5]) for row in theirs} | {str(row[3]) for row in their_casts if row[0] == row[1]}
        known = {str(row[0]) for row in rows(postgres, functions)} - behind
        self.functions, self.aggregates = [], []
        for oid, name, arguments, result, kind, volatility, is_set, variadic in rows(serac, functions):
            arguments = [int(of) for of in arguments.split()]
            if str(oid) not in known or LEFT_OUT.match(name) or volatility == "v" or is_set or variadic:
                continue
            if kind == "f":
                self.functions.append((name, arguments, int(result)))
            elif kind == "a" and len(arguments) == 1:
                self.aggregates.append((name, arguments, int(result)))
        known = {str(row[0]) for row in theirs}
        self.operators = [
            (name, int(left), int(right), int(result)) for oid, name, left, right, result, _ in rows(serac, operators) if str(oid) in known
        ]
        known = {tuple(map(str, row[:3])) for row in their_casts}
        self.casts = [(int(row[0]), int(row[1])) for row in rows(serac, casts) if tuple(map(str, row[:3])) in known]


registry = functools.lru_cache(lambda postgres, serac: Registry(*(psycopg.connect(dsn, autocommit=True) for dsn in (postgres, serac))))


class Scripts:
    def __init__(self, seed, of):
        self.random = random.Random(seed)
        self.registry = of
        self.seed = seed

    def chance(self, share):
        return self.random.random() < share

    def pick(self, choices):
        return self.random.choice(choices)

    def literal(self, of):
        if self.chance(0.06):
            return f"NULL::{NAMES[of]}"
        value = self.pick(VALUES[of]).replace("'", "''").replace("\\\\", "\\")
        if of in (23,) and self.chance(0.6) and not value.startswith("-2147483648"):
            return f"({value})"
        return f"'{value}'::{NAMES[of]}"

    def kept(self, of):
        """A literal that a column takes."""
        value = self.literal(of)
        return "NULL" if of == 1700 and "NaN" in value else value

    def leaf(self, of, columns):
        names = [name for name, its in columns if its == of]
        return self.pick(names) if names and self.chance(0.7) else self.literal(of)

    def producers(self, of):
        """Functions, operators and casts whose result is the type."""
        return by_result(self.registry).get(of, ())

    def expression(self, of, depth, columns=()):
        producers = self.producers(of)
        if depth <= 0 or not producers or self.chance(0.15):
            return self.leaf(of, columns)
        kind = self.random.random()
        if kind < 0.06:
            return f"CASE WHEN {self.expression(16, depth - 1, columns)} THEN {self.expression(of, depth - 1, columns)} ELSE {self.leaf(of, columns)} END"
        if kind < 0.1:
            return f"coalesce({self.expression(of, depth - 1, columns)}, {self.leaf(of, columns)})"
        form, arguments = self.pick(producers)
        return form.format(*(self.expression(argument, depth - 1, columns) for argument in arguments))

    def any(self, depth, columns=()):
        of = self.pick(list(VALUES))
        return of, self.expression(of, depth, columns)

    # ---- scripts

    def constants(self):
        yield "SELECT " + ", ".join(self.any(self.pick([1, 1, 2, 3]))[1] for _ in range(self.random.randint(1, 3)))

    def columns(self):
        return [(f"c{of}", of) for of in KEPT]

    def rows(self):
        columns = self.columns()
        shown = ", ".join(self.any(self.pick([1, 2, 2]), columns)[1] for _ in range(self.random.randint(1, 3)))
        where = f" WHERE {self.expression(16, 2, columns)}" if self.chance(0.5) else ""
        yield f"SELECT id, {shown} FROM registered{where} ORDER BY id"

    def groups(self):
        columns = self.columns()
        aggregates = []
        for _ in range(self.random.randint(1, 3)):
            name, arguments, _ = self.pick(self.registry.aggregates)
            arguments = self.concrete(arguments)
            if arguments is None:
                continue
            distinct = "DISTINCT " if self.chance(0.15) and arguments[0] not in (114,) else ""
            inside = self.expression(arguments[0], 1, columns)
            order = f" ORDER BY {inside}" if name in AGGREGATES_OF_ORDER and distinct else " ORDER BY id" if name in AGGREGATES_OF_ORDER else ""
            condition = f" FILTER (WHERE {self.expression(16, 1, columns)})" if self.chance(0.15) else ""
            aggregates.append(f"{name}({distinct}{inside}{order}){condition}")
        aggregates = aggregates or ["count(*)"]
        key = self.pick([16, 23, 25, 1082, 1700, 3802])
        if self.chance(0.3):
            yield f"SELECT {', '.join(aggregates)} FROM registered"
        elif self.chance(0.3):
            yield f"SELECT id, {aggregates[0].split(' FILTER')[0] if 'DISTINCT' not in aggregates[0] and 'ORDER' not in aggregates[0] else 'count(*)'} OVER (ORDER BY id) FROM registered ORDER BY id"
        else:
            yield f"SELECT c{key}, {', '.join(aggregates)} FROM registered GROUP BY c{key}"

    def concrete(self, arguments):
        """The types with one type in the place of those that stand for any, or none."""
        element = self.pick(list(ARRAYS))
        found = [element if of in ELEMENT_LIKE else ARRAYS[element] if of in ARRAY_LIKE else of for of in arguments]
        return found if all(of in VALUES for of in found) else None

    def changes(self):
        kept = self.random.sample(KEPT, 3)
        columns = [(f"k{i}", of) for i, of in enumerate(kept)]
        extras = []
        for i, of in enumerate(kept):
            extra = ""
            if self.chance(0.3):
                extra += f" DEFAULT {self.expression(of, 1)}"
            extras.append(f"k{i} {OF_COLUMNS[of]}{extra}")
        generated = self.pick([23, 25, 701, 16, 1700])
        if self.chance(0.4):
            extras.append(f"made {OF_COLUMNS[generated]} GENERATED ALWAYS AS ({self.expression(generated, 2, columns)}) STORED")
        if self.chance(0.3):
            extras.append(f"CHECK ({self.expression(16, 1, columns)})")
        yield "DROP TABLE IF EXISTS changed"
        yield f"CREATE TABLE changed (id integer PRIMARY KEY, {', '.join(extras)})"
        if self.chance(0.4):
            of = self.pick([23, 25, 20, 16, 1082])
            unique = "UNIQUE " if self.chance(0.3) else ""
            yield f"CREATE {unique}INDEX ON changed (({self.expression(of, 1, columns)}))"
        names = ", ".join(name for name, _ in columns)
        for id in range(1, 5):
            assigned = ", ".join(self.literal(of) if self.chance(0.7) else "DEFAULT" if self.chance(0.3) else self.expression(of, 1) for of in kept)
            yield f"INSERT INTO changed (id, {names}) VALUES ({id}, {assigned})"
        name, of = self.pick(columns)
        yield f"INSERT INTO changed (id, {name}) SELECT id + 100, {self.expression(of, 1, self.columns())} FROM registered WHERE id < 4"
        name, of = self.pick(columns)
        other = self.pick(list(VALUES))
        yield f"UPDATE changed SET {name} = {self.expression(self.pick([of, of, other]), 2, columns)} WHERE {self.expression(16, 2, columns)} RETURNING id"
        name, of = self.pick(columns)
        yield f"INSERT INTO changed (id, {name}) VALUES (2, {self.literal(of)}) ON CONFLICT (id) DO UPDATE SET {name} = excluded.{name} RETURNING id, {name}"
        yield f"DELETE FROM changed WHERE {self.expression(16, 2, columns)} RETURNING id"
        name, of = self.pick(columns)
        if self.chance(0.4):
            to = self.pick(KEPT)
            yield f"ALTER TABLE changed ALTER COLUMN {name} TYPE {OF_COLUMNS[to]} USING {self.expression(to, 1, columns)}"
        yield "SELECT * FROM changed ORDER BY id"

    def untyped(self):
        """Casts of texts, and literals that have no type."""
        of = self.pick(list(VALUES))
        text = self.pick(VALUES[self.pick(list(VALUES))]).replace("'", "''").replace("\\\\", "\\")
        name, left, right, _ = self.pick(self.registry.operators)
        forms = [f"SELECT '{text}'::text::{NAMES[of]}", f"SELECT '{text}'::{NAMES[of]}"]
        if left in VALUES and right in VALUES:
            forms += [f"SELECT {self.literal(left)} {name} '{text}'", f"SELECT '{text}' {name} {self.literal(right)}"]
        yield self.pick(forms)

    def script(self):
        kinds = [self.constants] * 6 + [self.rows] * 4 + [self.groups] * 3 + [self.changes] + [self.untyped] * 3
        return list(self.pick(kinds)())

    def tables(self):
        columns = ", ".join(f"c{of} {OF_COLUMNS[of]}" for of in KEPT)
        yield "DROP TABLE IF EXISTS registered"
        yield f"CREATE TABLE registered (id integer PRIMARY KEY, {columns})"
        for id in range(1, 13):
            yield f"INSERT INTO registered VALUES ({id}, {', '.join(self.kept(of) for of in KEPT)})"


@functools.lru_cache
def by_result(of):
    """By the type of the result: texts with places, and the types of what stands there."""
    found = {}

    def add(result, form, arguments):
        if result in VALUES and all(argument in VALUES for argument in arguments):
            found.setdefault(result, []).append((form, arguments))

    for name, arguments, result in of.functions:
        form = f'"{name}"({", ".join("{}" for _ in arguments)})'
        if any(argument in ELEMENT_LIKE | ARRAY_LIKE for argument in arguments):
            for element, array in ARRAYS.items():
                concrete = lambda its: element if its in ELEMENT_LIKE else array if its in ARRAY_LIKE else its
                add(concrete(result), form, [concrete(argument) for argument in arguments])
        else:
            add(result, form, arguments)
    for name, left, right, result in of.operators:
        symbol = name.replace("{", "{{").replace("}", "}}")
        pairs = [(left, right, result)]
        if any(its in ELEMENT_LIKE | ARRAY_LIKE for its in (left, right)):
            pairs = []
            for element, array in ARRAYS.items():
                concrete = lambda its: element if its in ELEMENT_LIKE else array if its in ARRAY_LIKE else its
                pairs.append((concrete(left), concrete(right), concrete(result)))
        for its_left, its_right, its_result in pairs:
            if its_left:
                add(its_result, f"({{}} {symbol} {{}})", [its_left, its_right])
            else:
                add(its_result, f"({symbol} {{}})", [its_right])
    for source, target in of.casts:
        if target in VALUES:
            add(target, f"({{}})::{NAMES[target]}", [source])
    for target in VALUES:
        add(target, f"({{}})::{NAMES[target]}", [25])
        add(25, "({})::text", [target])
    return found


def judged(statement, theirs, their_error, ours, our_error):
    """The kind of an answer, or none if it differs."""
    if our_error and our_error[0] in ("XX000", "57014", ""):
        return None
    if our_error and our_error[0] == "0A000":
        return "refused"
    if their_error and our_error:
        return "both"
    if our_error and our_error[0] == "22008" and "make_interval" in statement:
        # PostgreSQL 15 lets integers wrap around there; later versions have the error.
        return "undecided"
    if " FROM " in statement and any(error and error[0].startswith("22") for error in (their_error, our_error)):
        return "undecided"
    if our_error and our_error[0] == "22003" and ("numeric" in statement or "changed" in statement):
        # PostgreSQL's decimals have more digits, and its columns of them NaN.
        return "undecided"
    return "same" if ours is not None and theirs is not None and are_same(theirs, ours) else None


def compared(request):
    scripts = Scripts(request["seed"], registry(request["postgres"], request["serac"]))
    return compared_scripts(request, list(scripts.tables()), scripts, judged, typed=True)


if __name__ == "__main__":
    answer_requests(compared)

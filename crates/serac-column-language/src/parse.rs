//! From a line to a statement. The grammar has no nesting, so nothing here recurs.

use crate::error::{OperatorError, Result};
use crate::statement::{
    Aggregate, Bounds, ColumnName, Combination, IndexForm, JoinAlgorithm, Operand, Statement, TableName,
};
use crate::token::{Token, tokens};

/// A longer line is an error.
pub const MOST_LINE_BYTES: usize = 1 << 20;
/// A longer name is an error.
pub const MOST_NAME_BYTES: usize = 63;

/// An argument.
#[derive(Clone, Debug)]
enum Argument<'t> {
    /// Words with dots between them.
    Name(Vec<&'t str>),
    /// Words with a hyphen between them.
    Hyphenated(String),
    Number(&'t str),
    Text(&'t str),
}

impl Argument<'_> {
    fn shown(&self) -> String {
        match self {
            Self::Name(parts) => format!("\"{}\"", parts.join(".")),
            Self::Hyphenated(text) => format!("\"{text}\""),
            Self::Number(number) => (*number).to_owned(),
            Self::Text(text) => format!("the text \"{text}\""),
        }
    }
}

/// A line taken apart.
struct Call<'t> {
    names: Vec<&'t str>,
    command: &'t str,
    arguments: Vec<Argument<'t>>,
}

fn syntax<T>(problem: impl Into<String>) -> Result<T> {
    Err(OperatorError::Syntax(problem.into()))
}

fn unexpected<T>(token: Option<&Token<'_>>, expected: &str) -> Result<T> {
    match token {
        Some(token) => syntax(format!("{expected} expected, but {} found", token.shown())),
        None => syntax(format!("{expected} expected at the end of the line")),
    }
}

impl<'t> Call<'t> {
    fn parse(tokens: &[Token<'t>]) -> Result<Self> {
        let mut rest = tokens.iter().peekable();
        let mut words = Vec::new();
        loop {
            match rest.next() {
                Some(Token::Word(word)) => words.push(*word),
                Some(Token::Number(number)) if words.is_empty() => return Err(bad_name(number)),
                token => return unexpected(token, "a name"),
            }
            match rest.peek() {
                Some(Token::Mark(',')) => _ = rest.next(),
                _ => break,
            }
        }
        let (names, command) = if let Some(Token::Mark('=')) = rest.peek() {
            rest.next();
            match rest.next() {
                Some(Token::Word(command)) => (words, *command),
                token => return unexpected(token, "a command"),
            }
        } else if let [command] = words[..] {
            (Vec::new(), command)
        } else {
            return unexpected(rest.next(), "=");
        };
        names.iter().try_for_each(|name| check_name(name))?;
        let mut arguments = Vec::new();
        match rest.next() {
            None if command == "shutdown" => return Ok(Self { names, command, arguments }),
            Some(Token::Mark('(')) => {}
            token => return unexpected(token, "("),
        }
        if let Some(Token::Mark(')')) = rest.peek() {
            rest.next();
        } else {
            loop {
                let mut argument = match rest.next() {
                    Some(Token::Word(word)) => Argument::Name(vec![word]),
                    Some(Token::Number(number)) => Argument::Number(number),
                    Some(Token::Text(text)) => Argument::Text(text),
                    token => return unexpected(token, "an argument"),
                };
                loop {
                    match (rest.next(), &mut argument) {
                        (Some(Token::Mark(',')), _) => break,
                        (Some(Token::Mark(')')), _) => {
                            arguments.push(argument);
                            return match rest.next() {
                                None => Ok(Self { names, command, arguments }),
                                token => unexpected(token, "the end of the line"),
                            };
                        }
                        (Some(Token::Mark('.')), Argument::Name(parts)) => match rest.next() {
                            Some(Token::Word(word)) if parts.len() < 3 => parts.push(word),
                            token => return unexpected(token, "a name of at most three parts"),
                        },
                        (Some(Token::Mark('.')), Argument::Number(number)) => {
                            return Err(OperatorError::BadNumber(format!("{number}.")));
                        }
                        (Some(Token::Mark('-')), Argument::Name(parts)) if parts.len() == 1 => match rest.next() {
                            Some(Token::Word(word)) => {
                                argument = Argument::Hyphenated(format!("{}-{word}", parts[0]));
                            }
                            token => return unexpected(token, "a word"),
                        },
                        (token, _) => return unexpected(token, ", or )"),
                    }
                }
                arguments.push(argument);
            }
        }
        match rest.next() {
            None => Ok(Self { names, command, arguments }),
            token => unexpected(token, "the end of the line"),
        }
    }

    fn count_error<T>(&self, expected: &str) -> Result<T> {
        Err(OperatorError::WrongArgumentCount {
            command: self.command.into(),
            expected: expected.into(),
            found: self.arguments.len(),
        })
    }

    fn arguments<const N: usize>(&self) -> Result<&[Argument<'t>; N]> {
        let expected = || if N == 1 { "1 argument".to_owned() } else { format!("{N} arguments") };
        self.arguments.as_slice().try_into().or_else(|_| self.count_error(&expected()))
    }

    fn result_error<T>(&self, expected: &'static str) -> Result<T> {
        let found = self.names.len();
        Err(OperatorError::WrongResultCount { command: self.command.into(), expected, found })
    }

    fn no_result(&self) -> Result<()> {
        if self.names.is_empty() { Ok(()) } else { self.result_error("no result") }
    }

    fn one_result(&self) -> Result<Option<String>> {
        match self.names[..] {
            [] => Ok(None),
            [name] => Ok(Some(name.into())),
            _ => self.result_error("1 result"),
        }
    }

    fn two_results(&self) -> Result<Option<[String; 2]>> {
        match self.names[..] {
            [] => Ok(None),
            [one, two] => Ok(Some([one.into(), two.into()])),
            _ => self.result_error("2 results"),
        }
    }
}

fn bad_name(name: &str) -> OperatorError {
    OperatorError::BadName(name.into(), "a name is made of letters, digits and _, and begins with no digit".into())
}

/// Checks a name that is made or used.
fn check_name(name: &str) -> Result<()> {
    if name.len() > MOST_NAME_BYTES {
        let problem = format!("a name has at most {MOST_NAME_BYTES} bytes");
        return Err(OperatorError::BadName(name.into(), problem));
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_letter) {
        return Err(bad_name(name));
    }
    Ok(())
}

fn wrong_kind<T>(argument: &Argument<'_>, expected: &str) -> Result<T> {
    let found = match argument {
        Argument::Name(parts) => match parts.len() {
            1 => "a name without a dot",
            2 => "a table",
            _ => "a column",
        },
        Argument::Hyphenated(_) => "a word with a hyphen",
        Argument::Number(_) => "a number",
        Argument::Text(_) => "a text",
    };
    let what = argument.shown();
    Err(OperatorError::WrongKind { what, found: found.into(), expected: expected.into() })
}

fn text<'t>(argument: &Argument<'t>, expected: &str) -> Result<&'t str> {
    match argument {
        Argument::Text(text) => Ok(text),
        other => wrong_kind(other, expected),
    }
}
fn new_name(argument: &Argument<'_>) -> Result<String> {
    let name = text(argument, "a name in quotes")?;
    check_name(name)?;
    Ok(name.into())
}
fn names<const N: usize>(argument: &Argument<'_>, expected: &str) -> Result<[String; N]> {
    if let Argument::Name(parts) = argument {
        parts.iter().try_for_each(|part| check_name(part))?;
        if let Ok(parts) = <[&str; N]>::try_from(parts.as_slice()) {
            return Ok(parts.map(str::to_owned));
        }
    }
    wrong_kind(argument, expected)
}
fn word(argument: &Argument<'_>, expected: &str) -> Result<String> {
    names::<1>(argument, expected).map(|[name]| name)
}
fn variable(argument: &Argument<'_>) -> Result<String> {
    word(argument, "a variable")
}
fn table(argument: &Argument<'_>) -> Result<TableName> {
    names::<2>(argument, "a table").map(|[database, table]| TableName { database, table })
}
fn column(argument: &Argument<'_>) -> Result<ColumnName> {
    let [database, table, column] = names::<3>(argument, "a column")?;
    Ok(ColumnName { table: TableName { database, table }, column })
}
fn operand(argument: &Argument<'_>) -> Result<Operand> {
    match argument {
        Argument::Name(parts) if parts.len() == 1 => variable(argument).map(Operand::Variable),
        Argument::Name(parts) if parts.len() == 3 => column(argument).map(Operand::Column),
        other => wrong_kind(other, "a variable or a column"),
    }
}
fn number(argument: &Argument<'_>) -> Result<i64> {
    let Argument::Number(digits) = argument else { return wrong_kind(argument, "a number") };
    if !digits.strip_prefix('-').unwrap_or(digits).bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(OperatorError::BadNumber((*digits).into()));
    }
    digits.parse().map_err(|_| OperatorError::OutOfRange((*digits).into(), "a number of 64 bits".into()))
}
fn is_null(argument: &Argument<'_>) -> bool {
    matches!(argument, Argument::Name(parts) if parts[..] == ["null"])
}
fn bound(argument: &Argument<'_>) -> Result<Option<i64>> {
    if is_null(argument) { Ok(None) } else { number(argument).map(Some) }
}
fn bounds(lower: &Argument<'_>, upper: &Argument<'_>) -> Result<Bounds> {
    Ok(Bounds { lower: bound(lower)?, upper: bound(upper)? })
}
fn index_form(argument: &Argument<'_>) -> Result<IndexForm> {
    match word(argument, "btree or sorted")?.as_str() {
        "btree" => Ok(IndexForm::Btree),
        "sorted" => Ok(IndexForm::Sorted),
        other => syntax(format!("an index is btree or sorted, but not {other}")),
    }
}

fn create(call: &Call<'_>) -> Result<Statement> {
    call.no_result()?;
    let Some(what) = call.arguments.first() else { return call.count_error("at least 2 arguments") };
    match word(what, "db, tbl, col or idx")?.as_str() {
        "db" => {
            let [_, name] = call.arguments()?;
            Ok(Statement::CreateDatabase { name: new_name(name)? })
        }
        "tbl" => {
            let [_, name, database, columns] = call.arguments()?;
            let name = TableName { database: word(database, "a database")?, table: new_name(name)? };
            let written = number(columns)?;
            let most = serac_storage::block::layout::MAX_COLUMNS;
            match u32::try_from(written) {
                Ok(columns) if (1..=most as u32).contains(&columns) => Ok(Statement::CreateTable { name, columns }),
                _ => {
                    Err(OperatorError::OutOfRange(written.to_string(), format!("the columns of a table (1 to {most})")))
                }
            }
        }
        "col" => {
            let (name, of, sorted) = match call.arguments.as_slice() {
                [_, name, of] => (name, of, false),
                [_, name, of, order] => match word(order, "sorted or unsorted")?.as_str() {
                    "sorted" => (name, of, true),
                    "unsorted" => (name, of, false),
                    other => return syntax(format!("a column is sorted or unsorted, but not {other}")),
                },
                _ => return call.count_error("3 or 4 arguments"),
            };
            let name = ColumnName { table: table(of)?, column: new_name(name)? };
            Ok(Statement::CreateColumn { name, sorted })
        }
        "idx" => {
            let (of, form, clustered) = match call.arguments.as_slice() {
                [_, of, form] => (of, form, false),
                [_, of, form, kind] => match word(kind, "clustered or unclustered")?.as_str() {
                    "clustered" => (of, form, true),
                    "unclustered" => (of, form, false),
                    other => return syntax(format!("an index is clustered or unclustered, but not {other}")),
                },
                _ => return call.count_error("3 or 4 arguments"),
            };
            Ok(Statement::CreateIndex { column: column(of)?, form: index_form(form)?, clustered })
        }
        other => syntax(format!("db, tbl, col or idx can be created, but not {other}")),
    }
}

fn aggregate(call: &Call<'_>, aggregate: Aggregate) -> Result<Statement> {
    match call.arguments.as_slice() {
        [source] => {
            if call.names.len() == 2 && matches!(aggregate, Aggregate::Min | Aggregate::Max) {
                return call.count_error("2 arguments where it gives 2 results");
            }
            Ok(Statement::Aggregate { output: call.one_result()?, aggregate, source: operand(source)? })
        }
        [positions, source] if matches!(aggregate, Aggregate::Min | Aggregate::Max) => Ok(Statement::Extreme {
            outputs: call.two_results()?,
            largest: aggregate == Aggregate::Max,
            positions: if is_null(positions) { None } else { Some(variable(positions)?) },
            source: operand(source)?,
        }),
        _ if matches!(aggregate, Aggregate::Min | Aggregate::Max) => call.count_error("1 or 2 arguments"),
        _ => call.count_error("1 argument"),
    }
}

fn algorithm(argument: &Argument<'_>) -> Result<JoinAlgorithm> {
    let how = match argument {
        Argument::Hyphenated(how) => how.clone(),
        other => word(other, "a way to join")?,
    };
    Ok(match how.as_str() {
        "hash" => JoinAlgorithm::Hash,
        "nested-loop" => JoinAlgorithm::NestedLoop,
        "grace-hash" => JoinAlgorithm::GraceHash,
        "naive-hash" => JoinAlgorithm::NaiveHash,
        other => {
            return syntax(format!("a join is hash, nested-loop, grace-hash or naive-hash, but not {other}"));
        }
    })
}

/// The statement of a line; `None` for a line that is empty or a comment.
///
/// # Errors
/// The errors of the line that show without the catalog and the variables.
pub fn parse(line: &str) -> Result<Option<Statement>> {
    if line.len() > MOST_LINE_BYTES {
        return Err(OperatorError::LineTooLong(MOST_LINE_BYTES));
    }
    let tokens = tokens(line)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let call = Call::parse(&tokens)?;
    let nothing = |statement: Statement| {
        call.no_result()?;
        let [] = call.arguments()?;
        Ok(statement)
    };
    let combine = |operation| {
        let [left, right] = call.arguments()?;
        let (left, right) = (operand(left)?, operand(right)?);
        Ok(Statement::Combine { output: call.one_result()?, operation, left, right })
    };
    let statement = match call.command {
        "create" => create(&call),
        "load" => {
            call.no_result()?;
            let [path] = call.arguments()?;
            Ok(Statement::Load { path: text(path, "a path in quotes")?.into() })
        }
        "relational_insert" => {
            call.no_result()?;
            let [of, values @ ..] = call.arguments.as_slice() else {
                return call.count_error("a table and a value for each column");
            };
            let values = values.iter().map(number).collect::<Result<_>>()?;
            Ok(Statement::Insert { table: table(of)?, values })
        }
        "relational_delete" => {
            call.no_result()?;
            let [of, positions] = call.arguments()?;
            Ok(Statement::Delete { table: table(of)?, positions: variable(positions)? })
        }
        "relational_update" => {
            call.no_result()?;
            let [of, positions, value] = call.arguments()?;
            let (column, positions) = (column(of)?, variable(positions)?);
            Ok(Statement::Update { column, positions, value: number(value)? })
        }
        "select" => {
            let output = call.one_result()?;
            match call.arguments.as_slice() {
                [source, lower, upper] => {
                    Ok(Statement::Select { output, source: operand(source)?, bounds: bounds(lower, upper)? })
                }
                [positions, source, lower, upper] => Ok(Statement::SelectAt {
                    output,
                    positions: variable(positions)?,
                    source: operand(source)?,
                    bounds: bounds(lower, upper)?,
                }),
                _ => call.count_error("3 or 4 arguments"),
            }
        }
        "fetch" => {
            let [source, positions] = call.arguments()?;
            let (source, positions) = (operand(source)?, variable(positions)?);
            Ok(Statement::Fetch { output: call.one_result()?, source, positions })
        }
        "min" => aggregate(&call, Aggregate::Min),
        "max" => aggregate(&call, Aggregate::Max),
        "sum" => aggregate(&call, Aggregate::Sum),
        "avg" => aggregate(&call, Aggregate::Avg),
        "add" => combine(Combination::Add),
        "sub" => combine(Combination::Sub),
        "join" => {
            let [v1, q1, v2, q2, how] = call.arguments()?;
            if call.names.len() != 2 {
                return call.result_error("2 results");
            }
            Ok(Statement::Join {
                outputs: call.two_results()?,
                left: (operand(v1)?, variable(q1)?),
                right: (operand(v2)?, variable(q2)?),
                algorithm: algorithm(how)?,
            })
        }
        "print" => {
            call.no_result()?;
            if call.arguments.is_empty() {
                return call.count_error("at least 1 argument");
            }
            Ok(Statement::Print { arguments: call.arguments.iter().map(operand).collect::<Result<_>>()? })
        }
        "batch_queries" => nothing(Statement::BatchQueries),
        "batch_execute" => nothing(Statement::BatchExecute),
        "single_core" => nothing(Statement::SingleCore),
        "single_core_execute" => nothing(Statement::SingleCoreExecute),
        "time" => {
            let since = match call.arguments.as_slice() {
                [] => None,
                [since] => Some(variable(since)?),
                _ => return call.count_error("at most 1 argument"),
            };
            Ok(Statement::Time { output: call.one_result()?, since })
        }
        "set" => {
            call.no_result()?;
            let [name, value] = call.arguments()?;
            let value = match value {
                Argument::Number(digits) => (*digits).to_owned(),
                other => word(other, "a word or a number")?,
            };
            Ok(Statement::Set { name: word(name, "the name of a setting")?, value })
        }
        "info" => nothing(Statement::Info),
        "shutdown" => nothing(Statement::Shutdown),
        other => return Err(OperatorError::UnknownCommand(other.into())),
    }?;
    Ok(Some(statement))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Statement {
        parse(line).unwrap().unwrap()
    }

    #[test]
    fn blanks_comments_and_line_ends_are_no_part_of_a_statement() {
        for line in ["", "  \t", "-- select(a,1,2)", "\r\n", " -- \"", "\n"] {
            assert_eq!(parse(line).unwrap(), None, "{line:?}");
        }
        let expected = one("s=select(db1.t.c,null,15)");
        for line in [
            " s = select ( db1 . t . c , null, 15 ) -- x\r\n",
            "s=select(db1.t.c,null,15)--\"y",
            "\ts=select(db1.t.c,null\t,15)\n",
        ] {
            assert_eq!(one(line), expected, "{line:?}");
        }
        assert_eq!(one("load(\"a -- b.csv\")"), Statement::Load { path: "a -- b.csv".into() });
        assert_eq!(one("shutdown"), Statement::Shutdown);
        assert_eq!(one("shutdown()"), Statement::Shutdown);
    }

    #[test]
    fn bounds_are_numbers_of_64_bits() {
        let bounds = |line| match one(line) {
            Statement::Select { bounds, .. } => (bounds.lower, bounds.upper),
            other => panic!("{other:?}"),
        };
        assert_eq!(bounds("select(v,-2147483648,2147483648)"), (Some(-2147483648), Some(2147483648)));
        assert_eq!(bounds("select(v,-9223372036854775808,null)"), (Some(i64::MIN), None));
        assert!(matches!(parse("select(v,9223372036854775808,null)"), Err(OperatorError::OutOfRange(..))));
        for bad in ["1x", "1.5", "1e3", "0x10"] {
            let line = format!("select(v,{bad},null)");
            assert!(matches!(parse(&line), Err(OperatorError::BadNumber(_))), "{line}");
        }
    }

    #[test]
    fn names_have_at_most_63_bytes() {
        let name = "n".repeat(63);
        assert_eq!(one(&format!("create(db,\"{name}\")")), Statement::CreateDatabase { name: name.clone() });
        for line in [
            format!("create(db,\"{name}n\")"),
            format!("{name}n=time()"),
            format!("print({name}n)"),
            "create(db,\"1a\")".into(),
            "create(db,\"a-b\")".into(),
            "create(db,\"\")".into(),
            "1a=time()".into(),
        ] {
            assert!(matches!(parse(&line), Err(OperatorError::BadName(..))), "{line}");
        }
        let blanks = " ".repeat(MOST_LINE_BYTES + 1);
        assert!(matches!(parse(&blanks), Err(OperatorError::LineTooLong(_))));
        assert_eq!(parse(&blanks[1..]).unwrap(), None);
    }

    #[test]
    fn every_statement_has_its_form() {
        let column = || ColumnName { table: TableName { database: "d".into(), table: "t".into() }, column: "c".into() };
        let index = |form, clustered| Statement::CreateIndex { column: column(), form, clustered };
        assert_eq!(one("create(tbl,\"t\",d,2)"), Statement::CreateTable { name: column().table, columns: 2 });
        assert_eq!(one("create(idx,d.t.c,btree)"), index(IndexForm::Btree, false));
        assert_eq!(one("create(idx,d.t.c,sorted,clustered)"), index(IndexForm::Sorted, true));
        let created = |sorted| Statement::CreateColumn { name: column(), sorted };
        assert_eq!(one("create(col,\"c\",d.t)"), created(false));
        assert_eq!(one("create(col,\"c\",d.t,sorted)"), created(true));
        assert_eq!(one("create(col,\"c\",d.t,unsorted)"), created(false));
        for (how, algorithm) in [
            ("hash", JoinAlgorithm::Hash),
            ("nested-loop", JoinAlgorithm::NestedLoop),
            ("grace-hash", JoinAlgorithm::GraceHash),
            ("naive-hash", JoinAlgorithm::NaiveHash),
        ] {
            let joined = one(&format!("r1, r2 = join(a,p,d.t.c,q,{how})"));
            let expected = Statement::Join {
                outputs: Some(["r1".into(), "r2".into()]),
                left: (Operand::Variable("a".into()), "p".into()),
                right: (Operand::Column(column()), "q".into()),
                algorithm,
            };
            assert_eq!(joined, expected);
            assert_eq!(joined.inputs(), ["a", "p", "q"]);
            assert_eq!(joined.outputs(), ["r1", "r2"]);
            assert_eq!(joined.columns(), [&column()]);
        }
        assert!(matches!(one("p,s=max(null,v)"), Statement::Extreme { positions: None, largest: true, .. }));
        assert!(matches!(one("min=min(min)"), Statement::Aggregate { aggregate: Aggregate::Min, .. }));
    }

    #[test]
    fn what_is_no_statement_is_told_apart() {
        use OperatorError::{Syntax, UnknownCommand, WrongArgumentCount, WrongKind, WrongResultCount};
        for line in [
            "select",
            "select(",
            "select(a",
            "a=",
            "a,b",
            "select(a,)",
            "x(a) b",
            "a b",
            "\"",
            "(",
            "é",
            "a.b=time()",
            "print(a.b.c.d)",
            "shutdown(",
            "create(thing,\"a\")",
        ] {
            assert!(matches!(parse(line), Err(Syntax(_))), "{line}: {:?}", parse(line));
        }
        assert!(matches!(parse("quit()"), Err(UnknownCommand(_))));
        for line in [
            "select(a,1)",
            "fetch(a)",
            "print()",
            "create(db)",
            "create()",
            "p,s=min(v)",
            "sum(a,b)",
            "shutdown(1)",
            "relational_insert()",
        ] {
            assert!(matches!(parse(line), Err(WrongArgumentCount { .. })), "{line}: {:?}", parse(line));
        }
        for line in ["a=create(db,\"d\")", "a,b=fetch(c,d)", "a=join(a,b,c,d,hash)", "join(a,b,c,d,hash)", "s=min(p,v)"]
        {
            assert!(matches!(parse(line), Err(WrongResultCount { .. })), "{line}: {:?}", parse(line));
        }
        for line in ["create(db,d)", "load(x)", "print(d.t)", "fetch(1,p)", "relational_delete(t,p)", "fetch(v,d.t.c)"]
        {
            assert!(matches!(parse(line), Err(WrongKind { .. })), "{line}: {:?}", parse(line));
        }
    }
}

//! CREATE SEQUENCE with its options in any order, and ALTER SEQUENCE, of which the parser does not know.

use super::builder::{integer, sequence};
use super::done;
use crate::ast_types::sql_type;
use crate::dialect::parser;
use crate::error::{Result, SqlError};
use crate::identifiers::fold;
use crate::maintenance::{arguments_of_call, call};
use crate::session::{Session, StatementResult};
use datafusion::sql::sqlparser::ast::{DataType, Expr, Ident, ObjectName, SequenceOptions, Statement, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use serac_engine::definition::SequenceDefinition;
use serac_storage::ColumnType;

/// What the parser gives ALTER SEQUENCE as: a function that no user has, of the sequence's name and the text of the options.
const ALTER: &str = "serac alter sequence";

type Parsed<T> = std::result::Result<T, ParserError>;

/// The options of CREATE and ALTER SEQUENCE.
#[derive(Default)]
struct Options {
    data_type: Option<DataType>,
    options: Vec<SequenceOptions>,
    owned_by: Option<ObjectName>,
    /// RESTART, perhaps with a value.
    restart: Option<Option<Expr>>,
}

fn options(parser: &mut Parser<'_>) -> Parsed<Options> {
    use Keyword::{AS, BY, CACHE, CYCLE, INCREMENT, MAXVALUE, MINVALUE, NO, NONE, OWNED, RESTART, START, WITH};
    let mut read = Options::default();
    let is_number =
        |parser: &Parser<'_>| parser.peek_token_ref().to_string().starts_with(|c: char| c == '-' || c.is_ascii_digit());
    while let Some(word) =
        parser.parse_one_of_keywords(&[AS, CACHE, CYCLE, INCREMENT, MAXVALUE, MINVALUE, NO, OWNED, RESTART, START])
    {
        let option = match word {
            AS => {
                read.data_type = Some(parser.parse_data_type()?);
                continue;
            }
            OWNED => {
                parser.expect_keyword(BY)?;
                let none = parser.parse_keyword(NONE);
                read.owned_by = Some(match none {
                    true => ObjectName::from(vec![Ident::new("NONE")]),
                    false => parser.parse_object_name(false)?,
                });
                continue;
            }
            RESTART => {
                let with = parser.parse_keyword(WITH) || is_number(parser);
                read.restart = Some(with.then(|| parser.parse_number()).transpose()?);
                continue;
            }
            CACHE => SequenceOptions::Cache(parser.parse_number()?),
            CYCLE => SequenceOptions::Cycle(false),
            INCREMENT => {
                let by = parser.parse_keyword(BY);
                SequenceOptions::IncrementBy(parser.parse_number()?, by)
            }
            START => {
                let with = parser.parse_keyword(WITH);
                SequenceOptions::StartWith(parser.parse_number()?, with)
            }
            MINVALUE => SequenceOptions::MinValue(Some(parser.parse_number()?)),
            MAXVALUE => SequenceOptions::MaxValue(Some(parser.parse_number()?)),
            _ => match parser.expect_one_of_keywords(&[MINVALUE, MAXVALUE, CYCLE])? {
                MINVALUE => SequenceOptions::MinValue(None),
                MAXVALUE => SequenceOptions::MaxValue(None),
                _ => SequenceOptions::Cycle(true),
            },
        };
        read.options.push(option);
    }
    Ok(read)
}

/// A statement about a sequence, if one comes next.
pub(crate) fn statement(parser: &mut Parser<'_>) -> Parsed<Option<Statement>> {
    let temporary = [
        &[Keyword::CREATE, Keyword::TEMPORARY, Keyword::SEQUENCE],
        &[Keyword::CREATE, Keyword::TEMP, Keyword::SEQUENCE],
    ];
    let temporary = temporary.iter().any(|words| parser.parse_keywords(&words[..]));
    if temporary || parser.parse_keywords(&[Keyword::CREATE, Keyword::SEQUENCE]) {
        let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        let Options { data_type, options: sequence_options, owned_by, restart } = options(parser)?;
        if restart.is_some() {
            return Err(ParserError::ParserError("RESTART is an option of ALTER SEQUENCE".into()));
        }
        let create =
            Statement::CreateSequence { temporary, if_not_exists, name, data_type, sequence_options, owned_by };
        return Ok(Some(create));
    }
    if !parser.parse_keywords(&[Keyword::ALTER, Keyword::SEQUENCE]) {
        return Ok(None);
    }
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let start = parser.index();
    options(parser)?;
    let said = (start..parser.index()).map(|at| parser.token_at(at).to_string()).collect::<Vec<_>>().join(" ");
    if said.trim().is_empty() {
        return parser.expected("an option of ALTER SEQUENCE", parser.peek_token());
    }
    call(ALTER, &[&name.to_string(), &said, &if_exists.to_string()]).map(Some)
}

impl Session {
    /// CREATE SEQUENCE.
    pub(super) fn create_sequence(&mut self, create: Statement) -> Result<StatementResult> {
        let Statement::CreateSequence { temporary, name, if_not_exists, data_type, sequence_options, owned_by } =
            create
        else {
            return Err(SqlError::unsupported("another statement"));
        };
        if temporary {
            return Err(SqlError::unsupported("a temporary sequence"));
        }
        let (schema, name) = self.locate_new(&name)?;
        if if_not_exists && self.txn()?.catalog().sequence(&schema, &name).is_ok() {
            self.say_exists("42P07", &format!("relation \"{name}\""));
            return done("CREATE SEQUENCE");
        }
        let column_type = match data_type {
            Some(data_type) => sql_type(&data_type)?.column_type,
            None => ColumnType::Int64,
        };
        let mut definition = sequence(name, &sequence_options, column_type)?;
        definition.owner = self.sequence_owner(owned_by, &schema, None)?;
        self.txn()?.create_sequence(&schema, definition)?;
        done("CREATE SEQUENCE")
    }

    /// The table and column of OWNED BY; where that is not said, those of before.
    fn sequence_owner(
        &self,
        owned_by: Option<ObjectName>,
        schema: &str,
        before: Option<(String, String)>,
    ) -> Result<Option<(String, String)>> {
        let Some(mut name) = owned_by else { return Ok(before) };
        let Some(column) = name.0.pop().filter(|_| !name.0.is_empty()) else { return Ok(None) };
        let column = column.as_ident().map(fold).unwrap_or_default();
        let table = self.table(&name)?;
        if table.definition.schema != schema {
            return Err(SqlError::new("55000", "sequence must be in same schema as table it is linked to"));
        }
        match table.definition.column(&column) {
            Some(_) => Ok(Some((table.name().to_owned(), column))),
            None => Err(SqlError::no_column(&column, table.name())),
        }
    }

    /// Runs ALTER SEQUENCE; none if the statement is another.
    pub(super) fn alter_sequence(&mut self, statement: &Statement) -> Result<Option<StatementResult>> {
        let Some(arguments) = arguments_of_call(statement, ALTER) else { return Ok(None) };
        let [name, said, if_exists] = &arguments[..] else { return Ok(None) };
        let (schema, name) = self.locate(&parser(name)?.parse_object_name(false)?)?;
        let tag = done("ALTER SEQUENCE").map(Some);
        let known = match self.txn()?.catalog().sequence(&schema, &name) {
            Ok(known) => known.definition.clone(),
            Err(_) if if_exists == "true" => {
                self.say_missing(&format!("relation \"{name}\""));
                return tag;
            }
            Err(error) => return Err(error.into()),
        };
        let said = options(&mut parser(said)?)?;
        let owner = self.sequence_owner(said.owned_by, &schema, known.owner.clone())?;
        let definition = changed(known, &said.options, said.data_type)?;
        let restart = match &said.restart {
            None => None,
            Some(None) => Some(definition.start),
            Some(Some(value)) => Some(integer(value)?),
        };
        self.txn()?.alter_sequence(&schema, SequenceDefinition { owner, ..definition }, restart)?;
        tag
    }
}

/// The definition with what is said anew; the rest stays.
fn changed(
    known: SequenceDefinition,
    options: &[SequenceOptions],
    data_type: Option<DataType>,
) -> Result<SequenceDefinition> {
    let column_type = data_type.map(|data_type| sql_type(&data_type)).transpose()?.map(|t| t.column_type);
    // As if it were made with these alone, but in its direction: what they say is taken from there.
    let direction = Expr::value(Value::Number(known.increment.to_string(), false));
    let all: Vec<SequenceOptions> =
        [SequenceOptions::IncrementBy(direction, true)].into_iter().chain(options.iter().cloned()).collect();
    let made = sequence(known.name.clone(), &all, column_type.unwrap_or(ColumnType::Int64))?;
    let says = |of: fn(&SequenceOptions) -> bool| options.iter().any(of);
    let pick = |said: bool, new: i64, old: i64| if said { new } else { old };
    Ok(SequenceDefinition {
        increment: pick(says(|o| matches!(o, SequenceOptions::IncrementBy(..))), made.increment, known.increment),
        start: pick(says(|o| matches!(o, SequenceOptions::StartWith(..))), made.start, known.start),
        min: pick(says(|o| matches!(o, SequenceOptions::MinValue(_))), made.min, known.min),
        max: pick(column_type.is_some() || says(|o| matches!(o, SequenceOptions::MaxValue(_))), made.max, known.max),
        ..known
    })
}

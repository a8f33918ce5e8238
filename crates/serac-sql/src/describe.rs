//! The parameters and columns of a prepared statement, for clients that ask before they run it.

use crate::column_types::of_column;
use crate::deep::Roomy;
use crate::description::Description;
use crate::error::{Result, SqlError};
use crate::explain::{describe_schema, explain_schema};
use crate::parsed::{Arguments, Parsed, Source, is_bound};
use crate::programs::call::is_run;
use crate::query::analyzed;
use crate::session::Session;
use crate::settings::Shown;
use crate::summary::summary_schema;
use crate::transactions::OpenStatement;
use crate::wire::of_oid;
use crate::{binding, generated};
use datafusion::arrow::datatypes::SchemaRef;
use serac_parser::tree::{Call, CopySubject, Expr, StatementKind};
use serac_pg::TypeId;
use std::sync::Arc;

/// The numbers of types that the engine's types do not distinguish: arrays, numbers of objects,
/// places of rows, and texts that are not TEXT; 0 for others.
fn oids_told(types: &[TypeId]) -> Vec<u32> {
    let is_told = |id: &TypeId| {
        id.element().is_some()
            || matches!(
                *id,
                TypeId::CHAR
                    | TypeId::OID
                    | TypeId::TID
                    | TypeId::VOID
                    | TypeId::VARCHAR
                    | TypeId::BPCHAR
                    | TypeId::NAME
            )
    };
    types.iter().map(|id| if is_told(id) { id.0 } else { 0 }).collect()
}

impl Session {
    /// Describes the parameters and the result of an unprepared statement; `named` as in
    /// [`describe`](Self::describe).
    ///
    /// # Errors
    /// The errors of the statement.
    pub async fn describe_statement(&mut self, statement: Parsed, named: &[u32]) -> Result<Description> {
        let is_deep = statement.is_deep();
        let look = self.looking(async |session: &mut Self| session.description_of(statement, named).await);
        Roomy::new(is_deep, look).await
    }

    /// The number of columns in the data of a COPY, before which a COPY from the client is checked:
    /// its data is asked for only if the table takes it.
    ///
    /// # Errors
    /// The errors of the statement.
    pub async fn copied_columns(&mut self, statement: &Parsed) -> Result<usize> {
        let StatementKind::Copy(copy) = statement.statement() else { return Ok(0) };
        self.check_not_failed()?;
        match &copy.subject {
            CopySubject::Table { .. } if copy.from => {
                let source = statement.source();
                let columns = async |session: &mut Self| Ok(session.copy_target(copy, source)?.columns.len());
                self.looking(columns).await
            }
            CopySubject::Table { columns, .. } if !columns.is_empty() => Ok(columns.len()),
            CopySubject::Table { name, .. } => {
                let columns = async |session: &mut Self| Ok(generated::parts(&session.table(name)?.definition).1.len());
                self.looking(columns).await
            }
            CopySubject::Query(_) => {
                let source = statement.source();
                let columns = async |session: &mut Self| Ok(session.bound_columns(source).await?.0.fields().len());
                self.looking(columns).await
            }
        }
    }

    /// Looks at the catalog as the next statement would see it, and changes nothing.
    pub(crate) async fn looking<T>(&mut self, look: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_not_failed()?;
        let idle = self.running.is_none();
        if idle {
            self.begin_statement();
        }
        self.refresh_view();
        let mut limits = self.limits();
        let mut open = OpenStatement::new(self);
        let result = limits.keep(look(&mut *open)).await;
        let session = open.into_session();
        if idle {
            session.end();
        }
        session.failing(result)
    }

    pub(crate) async fn description_of(&mut self, statement: Parsed, named: &[u32]) -> Result<Description> {
        let statement = statement.with_arguments(Arguments { types: named.into(), values: None });
        let source = statement.source();
        let (schema, types) = match source.kind() {
            kind if is_bound(kind) => self.described(source).await?,
            kind => {
                let types = match kind {
                    StatementKind::Call(call) if !is_run(call) => self.parameters_of_call(call, source).await?,
                    // The parameters of a query or a change inside.
                    _ if is_bound(source.statement()) || source.query().is_some() => match source.parameter_count() {
                        0 => Vec::new(),
                        _ => self.described(source).await?.1,
                    },
                    _ => {
                        let mut told = source.types();
                        told.resize(source.parameter_count().min(usize::from(u16::MAX)), TypeId(0));
                        told
                    }
                };
                (self.columns_of(source).await?, types)
            }
        };
        let parameters = types.iter().map(|id| of_oid(id.0)).collect();
        Ok(Description { parameters, oids: oids_told(&types), schema })
    }

    /// The types of the parameters in the CALL at `source`.
    pub(crate) async fn parameters_of_call(&self, call: &Call, source: &Source) -> Result<Vec<TypeId>> {
        let (_, procedure, given) = self.called(call)?;
        let given: Vec<Expr> = given.into_iter().cloned().collect();
        let types: Vec<TypeId> =
            procedure.parameters.iter().map(|parameter| of_column(parameter.column_type.into()).id).collect();
        let (state, source) = (self.state(), source.clone());
        let types = async move {
            let given: Vec<&Expr> = given.iter().collect();
            Ok(binding::bound_arguments(&state, &source, &given, &types)?.1)
        };
        self.planning(types).await
    }

    /// The columns of the rows of a query or a change, `None` without rows, and the types of its
    /// parameters.
    async fn described(&self, source: &Source) -> Result<(Option<SchemaRef>, Vec<TypeId>)> {
        if !source.acts() {
            let (schema, types) = self.bound_columns(source).await?;
            return Ok((Some(schema), types));
        }
        let bound = self.bound_statement(source).await?;
        let Some(plan) = bound.result().cloned() else { return Ok((None, bound.parameters)) };
        let (state, names) = (self.state(), bound.names);
        let schema = self.planning(async move { analyzed(&state, plan, &names) }).await?;
        Ok((Some(schema), bound.parameters))
    }

    /// The columns of the rows of a statement that is neither a query nor a change.
    async fn columns_of(&mut self, source: &Source) -> Result<Option<SchemaRef>> {
        Ok(match source.kind() {
            StatementKind::Execute(execute) => {
                let prepared = self.prepared(&execute.name.name, execute.arguments.len())?;
                let called = prepared.parsed().clone();
                match called.query_or_change() {
                    Some(source) => self.described(source).await?.0,
                    None => Box::pin(self.columns_of(called.source())).await?,
                }
            }
            StatementKind::Explain(explain) => Some(explain_schema(&explain.options)),
            StatementKind::Describe(_) | StatementKind::DescribeQuery(_) => Some(describe_schema()),
            StatementKind::Summarize(_) => Some(summary_schema()),
            StatementKind::Show(show) => match self.shown_by(show).await? {
                Shown::Rows(rows) => Some(rows.schema()),
                Shown::Query(query) => self.described(&query).await?.0,
            },
            StatementKind::Fetch(fetch) => self.fetched_schema(fetch),
            StatementKind::Call(call) if is_run(call) => {
                let message = "the columns that serac_run gives are not known before it has run";
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
                    .explained("A simple query takes them as they come."));
            }
            StatementKind::Call(call) => {
                let (_, procedure, _) = self.called(call)?;
                (!procedure.returns.is_empty()).then(|| Arc::new(procedure.schema()))
            }
            _ => None,
        })
    }
}

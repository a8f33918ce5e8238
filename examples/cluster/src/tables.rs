//! TPC-H's tables as engines see them: of servers in held snapshots, or of Parquet files.

use crate::answer::Answer;
use crate::ballista::{self, ClusterCodec};
use crate::distributed::{self, Workers};
use crate::layout::Layout;
use crate::{Result, ServerArguments};
use datafusion::physical_plan::collect;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use serac_remote::{Remote, Snapshot};
use serac_workload::tpch::TABLES;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Partitions that each worker reads at a time.
pub const PARTITIONS_OF_WORKER: usize = 2;
/// The longest time of an attempt.
const ATTEMPT: Duration = Duration::from_secs(300);
/// The pause before the next one.
const PAUSE: Duration = Duration::from_millis(500);

/// What a query reads.
#[derive(Clone)]
pub enum Source {
    /// The servers, in these snapshots: one of each.
    Servers(Vec<Arc<Snapshot>>),
    /// Parquet files of a folder.
    Parquet(PathBuf),
}

/// Where sessions run their queries.
#[derive(Clone)]
pub enum Sessions {
    Distributed(Workers),
    Ballista {
        scheduler: SocketAddr,
        partitions: usize,
    },
    /// In this process.
    Local,
}

/// When a query is run again.
#[derive(Clone, Copy)]
pub struct Retries {
    pub attempts: usize,
    /// Whether it may read a new snapshot when its own is lost.
    pub new_snapshot: bool,
}

/// What came of a query.
pub struct Outcome {
    pub answer: Answer,
    /// Of all attempts.
    pub duration: Duration,
    /// Of the attempts that failed.
    pub errors: Vec<String>,
    /// What the last attempt read.
    pub source: Source,
    /// Whether that is not what the first one read.
    pub has_new_snapshot: bool,
}

/// The servers' tables.
pub struct Tables {
    pub layout: Layout,
    remotes: Vec<Remote>,
    arguments: ServerArguments,
}

impl Tables {
    pub fn new(layout: Layout, arguments: ServerArguments) -> Result<Self> {
        Ok(Self { layout, remotes: arguments.remotes()?, arguments })
    }

    /// A new snapshot of each server.
    pub async fn snapshots(&self) -> Result<Source> {
        let mut snapshots = Vec::new();
        for remote in &self.remotes {
            snapshots.push(remote.snapshot().await?);
        }
        Ok(Source::Servers(snapshots))
    }

    async fn register(&self, ctx: &SessionContext, source: &Source) -> Result<()> {
        for table in TABLES {
            match source {
                Source::Servers(snapshots) => {
                    ctx.register_table(table.name, Arc::new(self.layout.table(snapshots, &table).await?))?;
                }
                Source::Parquet(folder) => {
                    let path = folder.join(format!("{}.parquet", table.name)).display().to_string();
                    ctx.register_parquet(table.name, path, ParquetReadOptions::default()).await?;
                }
            }
        }
        Ok(())
    }

    async fn session(&self, sessions: &Sessions) -> Result<SessionContext> {
        let codec = self.arguments.codec()?;
        Ok(match sessions {
            Sessions::Distributed(workers) => distributed::session(workers.clone(), PARTITIONS_OF_WORKER, codec),
            Sessions::Ballista { scheduler, partitions } => {
                ballista::session(*scheduler, *partitions, ClusterCodec::new(codec)).await?
            }
            Sessions::Local => {
                // NUMERIC, as SQL has it: 0.06 + 0.01 is 0.07.
                let config = SessionConfig::new().set_bool("datafusion.sql_parser.parse_float_as_decimal", true);
                SessionContext::new_with_config(config)
            }
        })
    }

    /// A session that knows the tables of a source.
    pub async fn prepare(&self, sessions: &Sessions, source: &Source) -> Result<SessionContext> {
        let ctx = self.session(sessions).await?;
        self.register(&ctx, source).await?;
        Ok(ctx)
    }

    async fn attempt(&self, sessions: &Sessions, sql: &str, source: &Source) -> Result<Answer> {
        run(sessions, &self.prepare(sessions, source).await?, sql).await
    }

    /// The answer of plain DataFusion in this process.
    pub async fn local_answer(&self, sql: &str, source: &Source) -> Result<Answer> {
        self.attempt(&Sessions::Local, sql, source).await
    }

    /// Runs a query, also again where that may help.
    ///
    /// # Errors
    /// That of the last attempt.
    pub async fn query(&self, sessions: &Sessions, sql: &str, mut source: Source, retries: Retries) -> Result<Outcome> {
        let (begun, mut errors, mut has_new_snapshot) = (Instant::now(), Vec::new(), false);
        loop {
            let error = match self.attempt(sessions, sql, &source).await {
                Ok(answer) => {
                    return Ok(Outcome { answer, duration: begun.elapsed(), errors, source, has_new_snapshot });
                }
                Err(error) => error,
            };
            let message = error.to_string();
            let is_lost = is_lost(&source) || message.contains("run the query again");
            if errors.len() + 1 >= retries.attempts || (is_lost && !retries.new_snapshot) {
                return Err(error);
            }
            errors.push(message);
            tokio::time::sleep(PAUSE).await;
            if let Sessions::Distributed(workers) = sessions {
                workers.look().await;
            }
            if is_lost {
                match self.snapshots().await {
                    Ok(snapshots) => (source, has_new_snapshot) = (snapshots, true),
                    // The server may be on its way: the next attempt fails as this one did.
                    Err(error) => errors.push(error.to_string()),
                }
            }
        }
    }
}

/// Runs a query of a session, for a bounded time.
pub async fn run(sessions: &Sessions, ctx: &SessionContext, sql: &str) -> Result<Answer> {
    let plan = ctx.sql(sql).await?.create_physical_plan().await?;
    match tokio::time::timeout(ATTEMPT, collect(plan.clone(), ctx.task_ctx())).await {
        Ok(batches) => Answer::of_batches(&batches?),
        Err(_) => {
            if let Sessions::Ballista { scheduler, .. } = sessions {
                ballista::cancel(*scheduler, &plan).await?;
            }
            Err(format!("no answer for {} seconds", ATTEMPT.as_secs()).into())
        }
    }
}

/// Whether a server has said that it does not hold one of the snapshots.
fn is_lost(source: &Source) -> bool {
    matches!(source, Source::Servers(snapshots) if snapshots.iter().any(|snapshot| snapshot.is_lost()))
}

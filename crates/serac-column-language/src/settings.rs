//! The settings that a client can change with `set(name,value)`.

use crate::error::{OperatorError, Result};

/// The method of running a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BatchHeuristic {
    /// In the order written, by one thread.
    Default,
    /// Level by level of the dependency graph.
    Breadth,
    /// Level by level, selects on one column together.
    BreadthMultiselect,
    /// Selects on one column together, each with the algorithm that suits its selectivity.
    #[default]
    Smart,
}

/// The way in which the parts of a shared scan are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Multiselect {
    /// By tasks of their own, one select after the other, once all parts are there.
    Block,
    /// By the task that finishes a select's last part, all selects at a time.
    NoBlock,
    /// With the heuristic `smart` the better of both, otherwise [`NoBlock`](Self::NoBlock).
    #[default]
    Auto,
}

/// Whether to use a method that may pay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Switch {
    /// Always.
    On,
    /// Never.
    Off,
    /// When it pays.
    #[default]
    Auto,
}

/// The access path of selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// By looking at every value.
    Scan,
    /// By an index, if there is one.
    Index,
    /// By an index if it is cheaper.
    #[default]
    Auto,
}

/// The settings of one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `batch_heuristic`.
    pub batch_heuristic: BatchHeuristic,
    /// `multiselect`.
    pub multiselect: Multiselect,
    /// `inverse`: whether selects with nearly all rows keep those that do not qualify.
    pub inverse: Switch,
    /// `access`.
    pub access: Access,
    /// `chunk_kib`: KiB of a column that a task of a shared scan takes.
    pub chunk_kib: u32,
    /// `selects_per_task`.
    pub selects_per_task: u32,
    /// `threads`: the number of threads that may work on a statement.
    pub threads: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_heuristic: BatchHeuristic::default(),
            multiselect: Multiselect::default(),
            inverse: Switch::default(),
            access: Access::default(),
            chunk_kib: 512,
            selects_per_task: serac_operators::multiselect::SELECTS_PER_TASK as u32,
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get() as u32),
        }
    }
}

fn number(name: &str, value: &str, most: u32) -> Result<u32> {
    let written: i64 = value.parse().map_err(|_| OperatorError::BadNumber(value.into()))?;
    match u32::try_from(written) {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(OperatorError::OutOfRange(value.into(), format!("{name} (1 to {most})"))),
    }
}

impl Settings {
    /// Changes one setting.
    ///
    /// # Errors
    /// [`OperatorError::UnknownSetting`] for a name or a word that is not known;
    /// [`OperatorError::BadNumber`] and [`OperatorError::OutOfRange`] for a number that does not
    /// fit.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let unknown = || Err(OperatorError::UnknownSetting(format!("{name} cannot be {value}")));
        match name {
            "batch_heuristic" => {
                self.batch_heuristic = match value {
                    "default" => BatchHeuristic::Default,
                    "breadth" => BatchHeuristic::Breadth,
                    "breadth_multiselect" => BatchHeuristic::BreadthMultiselect,
                    "smart" => BatchHeuristic::Smart,
                    _ => return unknown(),
                }
            }
            "multiselect" => {
                self.multiselect = match value {
                    "block" => Multiselect::Block,
                    "no_block" => Multiselect::NoBlock,
                    "auto" => Multiselect::Auto,
                    _ => return unknown(),
                }
            }
            "inverse" => {
                self.inverse = match value {
                    "on" => Switch::On,
                    "off" => Switch::Off,
                    "auto" => Switch::Auto,
                    _ => return unknown(),
                }
            }
            "access" => {
                self.access = match value {
                    "scan" => Access::Scan,
                    "index" => Access::Index,
                    "auto" => Access::Auto,
                    _ => return unknown(),
                }
            }
            "load" => {
                return match value {
                    "checked" => Ok(()),
                    "unchecked" => Err(OperatorError::UnknownSetting(
                        "load cannot be unchecked, because every load checks every byte".into(),
                    )),
                    _ => unknown(),
                };
            }
            "chunk_kib" => self.chunk_kib = number(name, value, 1 << 20)?,
            "selects_per_task" => self.selects_per_task = number(name, value, 1 << 16)?,
            "threads" => self.threads = number(name, value, 1_024)?,
            _ => return Err(OperatorError::UnknownSetting(format!("there is no {name}"))),
        }
        Ok(())
    }
}

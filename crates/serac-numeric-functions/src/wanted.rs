//! Functions that end when nobody wants their results any more.
//!
//! An operator gives its thread back with a batch of thousands of rows. If each row takes long, as
//! the text of a number with 100,000 digits does, a function keeps the thread for minutes, even if
//! its statement was cancelled at the beginning. So it checks before each row.

use datafusion::common::config::{ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::config::ConfigEntry;
use datafusion::error::{DataFusionError, Result};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody wants the rows of a query. It is an extension of the options with which the
/// query is planned; its functions find it there.
#[derive(Clone, Debug)]
pub struct IsWanted(Arc<AtomicBool>);

impl Default for IsWanted {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl IsWanted {
    /// The state in these options, if they have one.
    pub fn of(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get()
    }

    /// Notes that nobody wants the rows any more.
    pub fn end(&self) {
        // Relaxed: a late read computes some more rows.
        self.0.store(false, Ordering::Relaxed);
    }

    /// Checks that somebody wants the rows.
    ///
    /// # Errors
    /// If nobody does, so that nobody sees the error.
    pub fn check(&self) -> Result<()> {
        // Relaxed: as in `end`.
        match self.0.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(DataFusionError::Execution("nobody wants the rows any more".into())),
        }
    }

    /// Whether both are of one query.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ConfigExtension for IsWanted {
    const PREFIX: &'static str = "serac_wanted";
}

impl ExtensionOptions for IsWanted {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("there is no option {key}")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

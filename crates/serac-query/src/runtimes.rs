//! Contexts of a running plan with another runtime: other memory, or no temporary files.

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnv;
use std::collections::HashMap;
use std::sync::Arc;

/// The context with this runtime. A plan that runs looks no functions up, so it has none.
pub(crate) fn in_runtime(context: &TaskContext, runtime: Arc<RuntimeEnv>) -> Arc<TaskContext> {
    let none = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone(),
        none.0,
        none.1,
        none.2,
        none.3,
        runtime,
    ))
}

/// The context without temporary files: operators fail where they would spill.
///
/// # Errors
/// If there is no manager of files.
pub(crate) fn without_files(context: &TaskContext) -> Result<Arc<TaskContext>> {
    let no_files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled).build()?;
    let runtime = RuntimeEnv { disk_manager: Arc::new(no_files), ..context.runtime_env().as_ref().clone() };
    Ok(in_runtime(context, Arc::new(runtime)))
}

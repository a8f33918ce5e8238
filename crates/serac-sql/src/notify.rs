//! LISTEN, UNLISTEN and NOTIFY, over the [channels](crate::channels) of the database.

use crate::channels::{Letter, Notifications, check_name};
use crate::error::Result;
use crate::result::StatementResult;
use crate::session::Session;
use serac_parser::tree::{Ident, Text};

impl Session {
    /// The notifications of other sessions to this one.
    pub fn notifications(&self) -> Notifications {
        Notifications(self.shared.listener.inbox.clone())
    }

    pub(crate) fn listen(&self, channel: &str) -> Result<StatementResult> {
        check_name(channel)?;
        self.shared.listener.notifications.push(Letter::Listen(channel.into()))?;
        Ok(StatementResult::command("LISTEN"))
    }

    /// UNLISTEN of a channel, or of all.
    pub(crate) fn unlisten(&self, channel: Option<&Ident>) -> Result<StatementResult> {
        let channel = channel.map(|channel| channel.name.as_str().into());
        self.shared.listener.notifications.push(Letter::Unlisten(channel))?;
        Ok(StatementResult::command("UNLISTEN"))
    }

    pub(crate) fn notify(&self, channel: &str, payload: Option<&Text>) -> Result<StatementResult> {
        self.shared.listener.say(channel, payload.map_or("", |payload| payload.text.as_str()))?;
        Ok(StatementResult::command("NOTIFY"))
    }
}

//! Errors and notices on their way to the client.

use super::WireError;
use super::message::{message, put_i32, put_string, report};
use serac_sql::{CHANGED_PLAN, Notice, Notification};

/// Writes an error; its place in `sql` is counted in characters.
pub(super) fn put_error(out: &mut Vec<u8>, error: &WireError, sql: &str) {
    let WireError::Sql { error, fatal } = error else { return };
    let severity = if *fatal { "FATAL" } else { "ERROR" };
    let position = error.position.filter(|_| !sql.is_empty()).map(|place| position_of(sql, place).to_string());
    let mut fields = vec![(b'S', severity), (b'V', severity), (b'C', error.sqlstate), (b'M', &error.message)];
    if error.sqlstate == sqlstate::FEATURE_NOT_SUPPORTED && error.message == CHANGED_PLAN {
        // Drivers know by the function in which PostgreSQL finds this that they may prepare the
        // statement again.
        fields.push((b'R', "RevalidateCachedQuery"));
    }
    fields.extend(error.detail.as_deref().map(|detail| (b'D', detail)));
    fields.extend(error.hint.as_deref().map(|hint| (b'H', hint)));
    fields.extend(position.as_deref().map(|position| (b'P', position)));
    if let Some(table) = &error.table {
        fields.extend([(b's', table.schema.as_str()), (b't', table.name.as_str())]);
        // The violated constraint has a name, or is that of a column.
        let what = if error.sqlstate == sqlstate::NOT_NULL_VIOLATION { b'c' } else { b'n' };
        fields.extend(error.name.as_deref().map(|name| (what, name)));
    }
    report(out, b'E', &fields);
}

/// Writes a notice.
pub(super) fn put_notice(out: &mut Vec<u8>, notice: &Notice) {
    let severity = notice.severity.name();
    report(out, b'N', &[(b'S', severity), (b'V', severity), (b'C', notice.sqlstate), (b'M', &notice.message)]);
}

/// Writes another session's notification.
pub(super) fn put_notification(out: &mut Vec<u8>, notification: &Notification) {
    message(out, b'A', |out| {
        put_i32(out, notification.process);
        put_string(out, &notification.channel);
        put_string(out, &notification.payload);
    });
}

/// The number, from 1, of the character in a line and a column.
fn position_of(sql: &str, (line, column): (u32, u32)) -> usize {
    let before: usize =
        sql.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(|l| l.chars().count()).sum();
    before + column.max(1) as usize
}

//! The numbers of statements by class, for each file and in all.

use super::compare::{Class, Verdict};
use crate::report::Report;
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// Counts of one file, or of all.
#[derive(Clone, Default)]
pub struct Counts {
    statements: usize,
    /// Statements that PostgreSQL carries out.
    ran: usize,
    follow_ups: usize,
    /// Statements by class, without follow-ups.
    classes: HashMap<Class, usize>,
    /// Statements that PostgreSQL carries out, without absent features, unstable rows and
    /// follow-ups.
    comparable: usize,
    /// Statements that PostgreSQL rejects, without absent features and follow-ups.
    rejected: usize,
    names_differ: usize,
    types_differ: usize,
    /// The number of times that the server had to be started again.
    pub restarts: usize,
}

fn percent(part: usize, whole: usize) -> Json {
    if whole == 0 { Json::Null } else { json!(part as f64 * 100.0 / whole as f64) }
}

impl Counts {
    /// Counts a statement. `ran`: PostgreSQL has carried it out.
    pub fn add(&mut self, verdict: &Verdict, ran: bool) {
        self.statements += 1;
        self.ran += usize::from(ran);
        self.names_differ += usize::from(verdict.names_differ);
        self.types_differ += usize::from(verdict.types_differ);
        if verdict.follows.is_some() {
            self.follow_ups += 1;
            return;
        }
        *self.classes.entry(verdict.class).or_default() += 1;
        match verdict.class {
            Class::Absent | Class::Unstable | Class::Undecided => {}
            _ if ran => self.comparable += 1,
            _ => self.rejected += 1,
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.statements += other.statements;
        self.ran += other.ran;
        self.follow_ups += other.follow_ups;
        self.comparable += other.comparable;
        self.rejected += other.rejected;
        self.names_differ += other.names_differ;
        self.types_differ += other.types_differ;
        self.restarts += other.restarts;
        other.classes.iter().for_each(|(class, count)| *self.classes.entry(*class).or_default() += count);
    }

    pub fn report(&self, file: &str, report: &mut Report) {
        let of = |class: Class| self.classes.get(&class).copied().unwrap_or_default();
        report.row(&[
            ("file", json!(file)),
            ("statements", json!(self.statements)),
            ("PostgreSQL runs", json!(self.ran)),
            ("absent", json!(of(Class::Absent))),
            ("follow-ups", json!(self.follow_ups)),
            ("unstable", json!(of(Class::Unstable))),
            ("comparable", json!(self.comparable)),
            ("same", json!(of(Class::Same))),
            ("same %", percent(of(Class::Same), self.comparable)),
            ("other rows", json!(of(Class::DifferentRows))),
            ("other order", json!(of(Class::DifferentOrder))),
            ("failures", json!(of(Class::Failure))),
            ("rejected", json!(self.rejected)),
            ("same code", json!(of(Class::SameError))),
            ("same code %", percent(of(Class::SameError), self.rejected)),
            ("lenient", json!(of(Class::Lenient))),
            ("timeouts", json!(of(Class::TimedOut))),
            ("lost", json!(of(Class::Lost))),
            ("restarts", json!(self.restarts)),
            ("undecided", json!(of(Class::Undecided))),
            ("other names", json!(self.names_differ)),
            ("other types", json!(self.types_differ)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_out_what_is_absent_and_what_follows() {
        let verdict = |class| Verdict { class, follows: None, reason: None, names_differ: false, types_differ: true };
        let mut counts = Counts::default();
        for class in [Class::Same, Class::Failure, Class::Absent, Class::Unstable] {
            counts.add(&verdict(class), true);
        }
        counts.add(&Verdict { follows: Some("t".into()), ..verdict(Class::Failure) }, true);
        counts.add(&verdict(Class::SameError), false);
        counts.add(&verdict(Class::Lenient), false);
        counts.add(&verdict(Class::Absent), false);
        let mut all = counts.clone();
        all.merge(&counts);
        assert_eq!((all.statements, all.ran, all.comparable, all.rejected, all.follow_ups), (16, 10, 4, 4, 2));
        assert_eq!((all.classes[&Class::Absent], all.types_differ), (4, 16));
        assert_eq!(percent(1, 4), json!(25.0));
        assert_eq!(percent(0, 0), Json::Null);
    }
}

//! The casts between types.
//!
//! Beside the table's casts there are those by text: each type is written as a text in an
//! assignment, and read from one by an explicit cast. A constant of unknown type becomes any type.

use crate::types::{Category, TypeId};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The context of a cast. A cast that is allowed in one context is allowed in those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastContext {
    /// Anywhere in an expression.
    Implicit,
    /// The assignment of a value to a column.
    Assignment,
    /// By CAST.
    Explicit,
}

/// The method of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastMethod {
    /// The value stays as it is.
    Relabel,
    /// A function computes the value.
    Function,
    /// The value is written as a text and read from that text.
    Text,
}

/// A cast of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The type whose values the cast takes.
    pub from: TypeId,
    /// The type whose values the cast gives.
    pub to: TypeId,
    /// Its number in `pg_cast`.
    pub number: u32,
    /// The weakest context in which it is implicit.
    pub context: CastContext,
    /// The method.
    pub method: CastMethod,
    /// The number of its function in PostgreSQL; 0 without a function.
    pub function: u32,
}

static CASTS: LazyLock<HashMap<(TypeId, TypeId), Cast>> = LazyLock::new(|| {
    let cast = |row: Vec<&'static str>| {
        let named = |name| TypeId::by_name(name).expect("the tables agree");
        let number = |word: &str| word.parse().expect("the table has numbers");
        let (from, to) = (named(row[0]), named(row[1]));
        let context = match row[3] {
            "implicit" => CastContext::Implicit,
            "assignment" => CastContext::Assignment,
            _ => CastContext::Explicit,
        };
        let method = match row[4] {
            "relabel" => CastMethod::Relabel,
            "function" => CastMethod::Function,
            _ => CastMethod::Text,
        };
        ((from, to), Cast { from, to, number: number(row[2]), context, method, function: number(row[5]) })
    };
    crate::rows(include_str!("facts/casts.txt")).map(cast).collect()
});

/// The casts of the table.
pub fn all() -> impl Iterator<Item = &'static Cast> {
    CASTS.values()
}

/// The casts between types that have values here: the reference has the types.
pub fn callable() -> impl Iterator<Item = &'static Cast> {
    let has_values = |id| crate::reference::of_type(id).is_some();
    all().filter(move |cast| has_values(cast.from) && has_values(cast.to))
}

/// The method by which values of `from` become values of `to` in `context`; `None` if there is no
/// cast.
pub fn cast(from: TypeId, to: TypeId, context: CastContext) -> Option<CastMethod> {
    if from == to {
        return Some(CastMethod::Relabel);
    }
    if from == TypeId::UNKNOWN && (to.category() != Category::Pseudo || to == TypeId::VOID) {
        return Some(CastMethod::Text);
    }
    match CASTS.get(&(from, to)) {
        Some(cast) => (cast.context <= context).then_some(cast.method),
        // An array is cast element by element.
        None if from.element().is_some() && to.element().is_some() => match (from.element(), to.element()) {
            (Some(from), Some(of)) if !to.is_vector() => cast(from, of, context)
                .map(|method| if method == CastMethod::Relabel { method } else { CastMethod::Function }),
            _ => None,
        },
        None => {
            let by_text = match (from.category(), to.category()) {
                // VOID is cast to the empty text.
                (Category::String, _) if to == TypeId::VOID => CastContext::Explicit,
                (_, Category::String) if from == TypeId::VOID => CastContext::Assignment,
                (Category::Pseudo, _) | (_, Category::Pseudo) => return None,
                (_, Category::String) => CastContext::Assignment,
                (Category::String, _) => CastContext::Explicit,
                _ => return None,
            };
            (by_text <= context).then_some(CastMethod::Text)
        }
    }
}

/// Whether a value of `from` becomes one of `to` without CAST.
pub fn is_implicit(from: TypeId, to: TypeId) -> bool {
    cast(from, to, CastContext::Implicit).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_are_functions_that_have_names() {
        for cast in all() {
            let is_function = cast.method == CastMethod::Function;
            assert_eq!(is_function, cast.function > 0, "{cast:?}");
            assert!(!is_function || crate::functions::name_of(cast.function).is_some(), "{cast:?}");
        }
    }

    #[test]
    fn contexts_widen() {
        use CastContext::{Assignment, Explicit, Implicit};
        let allowed = |from, to| [Implicit, Assignment, Explicit].map(|context| cast(from, to, context).is_some());
        assert_eq!(allowed(TypeId::INT4, TypeId::INT8), [true, true, true]);
        assert_eq!(allowed(TypeId::INT8, TypeId::INT4), [false, true, true]);
        assert_eq!(allowed(TypeId::INT4, TypeId::BOOL), [false, false, true]);
        assert_eq!(allowed(TypeId::INT8, TypeId::BOOL), [false, false, false]);
        assert_eq!(allowed(TypeId::DATE, TypeId::TEXT), [false, true, true]);
        assert_eq!(allowed(TypeId::TEXT, TypeId::DATE), [false, false, true]);
        assert_eq!(allowed(TypeId::UNKNOWN, TypeId::DATE), [true, true, true]);
        assert_eq!(allowed(TypeId::VARCHAR, TypeId::TEXT), [true, true, true]);
        assert_eq!(allowed(TypeId::UUID, TypeId::INT4), [false, false, false]);
        assert_eq!(allowed(TypeId::VOID, TypeId::TEXT), [false, true, true]);
        assert_eq!(allowed(TypeId::TEXT, TypeId::VOID), [false, false, true]);
        assert_eq!(allowed(TypeId::VOID, TypeId::INT4), [false, false, false]);
        let array = |id: TypeId| id.array().unwrap();
        assert_eq!(allowed(array(TypeId::INT4), array(TypeId::INT8)), [true, true, true]);
        assert_eq!(allowed(array(TypeId::INT8), array(TypeId::INT4)), [false, true, true]);
        assert_eq!(allowed(array(TypeId::DATE), array(TypeId::INT4)), [false, false, false]);
        assert_eq!(allowed(array(TypeId::DATE), TypeId::TEXT), [false, true, true]);
    }
}

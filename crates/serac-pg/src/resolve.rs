//! The operator or function that a call means, by the types of its arguments; and the common type
//! of several expressions.
//!
//! For a call, candidates are kept step by step until one is left ("Operator Type Resolution",
//! "Function Type Resolution"):
//! 1. a candidate whose types are those of the arguments; for an operator, an unknown operand is
//!    first assumed to have the other's type;
//! 2. those that the arguments can be cast to implicitly;
//! 3. of these, those with the most arguments of the very type;
//! 4. then those with the most arguments that have the very type or the preferred one of its
//!    category;
//! 5. for each unknown argument, candidates of the string category, if there are any, or of the
//!    only category that candidates have there; and among these, those of the preferred type;
//! 6. if all known arguments are of one type, the candidate that takes it everywhere.

use crate::casts::is_implicit;
use crate::types::{Category, TypeId};

/// The types of an operator's or a function's arguments and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The types of its arguments.
    pub arguments: Vec<TypeId>,
    /// The type of its value.
    pub result: TypeId,
}

/// The result of resolving a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<T> {
    /// A single one.
    One(T),
    /// No candidate takes these arguments.
    None,
    /// Several do, without a best one.
    Several,
}

/// The operator of `symbol` for these operands, one or two.
pub fn operator(symbol: &str, operands: &[TypeId]) -> Resolved<&'static Signature> {
    let candidates: Vec<&Signature> = crate::operators::of_symbol(symbol, operands.len()).collect();
    if let [left, right] = *operands
        && (left == TypeId::UNKNOWN) != (right == TypeId::UNKNOWN)
    {
        let known = if left == TypeId::UNKNOWN { right } else { left };
        if let Some(exact) = candidates.iter().find(|candidate| candidate.arguments == [known, known]) {
            return Resolved::One(exact);
        }
    }
    function(candidates, operands)
}

/// The candidate for these arguments. All of `candidates` have as many.
pub fn function<'c>(candidates: Vec<&'c Signature>, arguments: &[TypeId]) -> Resolved<&'c Signature> {
    if let Some(exact) = candidates.iter().find(|candidate| candidate.arguments == arguments) {
        return Resolved::One(exact);
    }
    let takes = |candidate: &&Signature| {
        arguments.iter().zip(&candidate.arguments).all(|(from, to)| takes_argument(*from, *to))
            && polymorphic(candidate, arguments).is_some()
    };
    let left: Vec<&Signature> = candidates.into_iter().filter(takes).collect();
    match left[..] {
        [] => Resolved::None,
        [one] => Resolved::One(one),
        _ => best(left, arguments),
    }
}

fn takes_argument(from: TypeId, to: TypeId) -> bool {
    is_polymorphic(to) || is_implicit(from, to)
}

/// Whether it stands for the type of an argument.
pub fn is_polymorphic(of: TypeId) -> bool {
    of == TypeId::ANY || family(of).is_some()
}

/// Polymorphic types that stand for one type, and for its arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// All arguments have the very type.
    Same,
    /// All arguments are cast to it.
    Compatible,
}

fn family(of: TypeId) -> Option<Family> {
    match of {
        TypeId::ANYELEMENT | TypeId::ANYNONARRAY | TypeId::ANYARRAY => Some(Family::Same),
        TypeId::ANYCOMPATIBLE | TypeId::ANYCOMPATIBLENONARRAY | TypeId::ANYCOMPATIBLEARRAY => Some(Family::Compatible),
        _ => None,
    }
}

fn is_array(of: TypeId) -> bool {
    matches!(of, TypeId::ANYARRAY | TypeId::ANYCOMPATIBLEARRAY)
}

/// The types that replace polymorphic ones of a signature: of its arguments, and of its result.
/// `None` if arguments that must be of one type are not.
pub fn polymorphic(signature: &Signature, arguments: &[TypeId]) -> Option<Signature> {
    // The type that each argument of a family tells, and an array among them.
    let given = |wanted: Family| {
        let (mut elements, mut array) = (Vec::new(), None);
        for (to, from) in signature.arguments.iter().zip(arguments).filter(|(to, _)| family(**to) == Some(wanted)) {
            if *from == TypeId::UNKNOWN {
                continue;
            }
            elements.push(match is_array(*to) {
                true => from.element()?,
                false => *from,
            });
            if is_array(*to) && array.replace(*from).is_some_and(|other| other != *from && wanted == Family::Same) {
                return None;
            }
        }
        Some((elements, array))
    };
    let (elements, array) = given(Family::Same)?;
    let element = elements.first().copied().unwrap_or(TypeId::TEXT);
    if elements.iter().any(|other| *other != element) {
        return None;
    }
    let (compatible, _) = given(Family::Compatible)?;
    let compatible = common(&compatible).ok()?;
    let is_not_array = |declared| matches!(declared, TypeId::ANYNONARRAY | TypeId::ANYCOMPATIBLENONARRAY);
    let real = |declared: TypeId, from: Option<TypeId>| {
        let one = match family(declared) {
            Some(Family::Same) => element,
            Some(Family::Compatible) => compatible,
            None if declared == TypeId::ANY => return Some(from.unwrap_or(declared)),
            None => return Some(declared),
        };
        match declared {
            TypeId::ANYARRAY => array.or_else(|| one.array()),
            TypeId::ANYCOMPATIBLEARRAY => one.array(),
            _ if is_not_array(declared) && one.element().is_some() => None,
            _ => Some(one),
        }
    };
    let arguments = signature.arguments.iter().zip(arguments).map(|(to, from)| real(*to, Some(*from)));
    Some(Signature { arguments: arguments.collect::<Option<_>>()?, result: real(signature.result, None)? })
}

/// The candidates with the highest number from `counted`.
fn with_most(candidates: Vec<&Signature>, counted: impl Fn(&Signature) -> usize) -> Vec<&Signature> {
    let most = candidates.iter().map(|candidate| counted(candidate)).max().unwrap_or(0);
    candidates.into_iter().filter(|candidate| counted(candidate) == most).collect()
}

fn best<'c>(mut candidates: Vec<&'c Signature>, arguments: &[TypeId]) -> Resolved<&'c Signature> {
    let known = || arguments.iter().enumerate().filter(|(_, from)| **from != TypeId::UNKNOWN);
    let exact = |candidate: &Signature| known().filter(|(i, from)| candidate.arguments[*i] == **from).count();
    let preferred = |candidate: &Signature| {
        let fits = |(i, from): &(usize, &TypeId)| {
            let to = candidate.arguments[*i];
            to == **from || to.is_preferred() && to.category() == from.category()
        };
        known().filter(fits).count()
    };
    candidates = with_most(candidates, exact);
    candidates = with_most(candidates, preferred);
    if let [one] = candidates[..] {
        return Resolved::One(one);
    }
    let unknown: Vec<usize> = (0..arguments.len()).filter(|&i| arguments[i] == TypeId::UNKNOWN).collect();
    if unknown.is_empty() {
        return Resolved::Several;
    }
    let slots: Option<Vec<(usize, Slot)>> = unknown.iter().map(|&i| Some((i, Slot::of(&candidates, i)?))).collect();
    if let Some(slots) = slots {
        let fits = |candidate: &&&Signature| slots.iter().all(|(i, slot)| slot.takes(candidate.arguments[*i]));
        let fitting: Vec<&Signature> = candidates.iter().filter(fits).copied().collect();
        match fitting[..] {
            [] => {}
            [one] => return Resolved::One(one),
            _ => candidates = fitting,
        }
    }
    // Whether all that is known is of one type, which then stands for the others.
    let mut types = known().map(|(_, from)| *from);
    if let Some(first) = types.next()
        && types.all(|other| other == first)
    {
        let alike = vec![first; arguments.len()];
        let takes = |candidate: &&&Signature| {
            candidate.arguments.iter().all(|to| takes_argument(first, *to)) && polymorphic(candidate, &alike).is_some()
        };
        let mut taking = candidates.iter().filter(takes);
        if let (Some(one), None) = (taking.next(), taking.next()) {
            return Resolved::One(one);
        }
    }
    Resolved::Several
}

/// The assumed category of an unknown argument.
struct Slot {
    category: Category,
    has_preferred: bool,
}

impl Slot {
    /// `None` if candidates want different categories, and no string.
    fn of(candidates: &[&Signature], argument: usize) -> Option<Self> {
        let types = || candidates.iter().map(|candidate| candidate.arguments[argument]);
        let first = types().next()?.category();
        let category = if types().any(|to| to.category() == Category::String) {
            Category::String
        } else if types().all(|to| to.category() == first) {
            first
        } else {
            return None;
        };
        let has_preferred = types().any(|to| to.category() == category && to.is_preferred());
        Some(Self { category, has_preferred })
    }

    fn takes(&self, to: TypeId) -> bool {
        to.category() == self.category && (to.is_preferred() || !self.has_preferred)
    }
}

/// The common type of CASE, UNION, VALUES, COALESCE and others, whose expressions have these types
/// ("UNION, CASE, and Related Constructs"). For CASE, the type of its ELSE comes first.
///
/// # Errors
/// Two types without a common one: they are of different categories, or the first is not cast to
/// the second.
pub fn common(types: &[TypeId]) -> Result<TypeId, (TypeId, TypeId)> {
    let mut chosen = TypeId::UNKNOWN;
    for &next in types.iter().filter(|next| **next != TypeId::UNKNOWN) {
        if chosen == TypeId::UNKNOWN {
            chosen = next;
        } else if chosen != next {
            if chosen.category() != next.category() {
                return Err((chosen, next));
            }
            if !chosen.is_preferred() && is_implicit(chosen, next) && !is_implicit(next, chosen) {
                chosen = next;
            }
        }
    }
    if chosen == TypeId::UNKNOWN {
        return Ok(TypeId::TEXT);
    }
    // All of them must then be cast to it.
    match types.iter().find(|from| !is_implicit(**from, chosen)) {
        Some(from) => Err((*from, chosen)),
        None => Ok(chosen),
    }
}

#[cfg(test)]
mod tests;

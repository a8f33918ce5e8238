//! Parameters: `$1`, whose type comes from the statement's sender, or from the first place that
//! needs one.
//!
//! A parameter of no type is like a quoted constant: its neighbour, or the function that takes it,
//! decides. Two places that decide differently are an error, and so is a place that decides after
//! another has been left open.

use crate::blanks::without_blanks;
use crate::bound::Bound;
use crate::error::{BindError, NO_PLACE, Result};
use crate::types::{arrow_type, of_dimensions};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Placeholder;
use serac_numeric_functions::FREE;
use serac_parser::tree::Span;
use serac_pg::TypeId;
use serac_pg::types::Category;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The largest number of a parameter. A Bind has values for 65535, but a statement may be prepared
/// that names more.
const MOST: u32 = 1 << 20;

/// How a parameter is stored that is an array of numbers.
fn arrays_of_numbers() -> DataType {
    DataType::new_list(FREE, true)
}

#[derive(Debug, Default)]
struct State {
    /// By number; UNKNOWN where nothing has decided yet.
    types: Vec<TypeId>,
    /// References of no type: the parameter's number, and its place. They are taken out when they
    /// get one.
    open: Vec<Option<(u32, Span)>>,
    /// The number of types that places have decided.
    decisions: usize,
    /// The digits of those that are fixed numbers, by number.
    digits: Vec<Option<(u8, i8)>>,
    /// The dimensions of those that are arrays, by number; one for those that are missing.
    dimensions: Vec<usize>,
}

impl State {
    /// A parameter of a type. CHAR(n) is kept without blanks at its end, and so is compared with
    /// it.
    fn placeholder(&self, number: u32, id: TypeId) -> Result<Expr> {
        let digits = self.digits.get(number as usize - 1).copied().flatten().filter(|_| id == TypeId::NUMERIC);
        let stored = match digits {
            Some((precision, scale)) => DataType::Decimal128(precision, scale),
            None if id.element() == Some(TypeId::NUMERIC) => arrays_of_numbers(),
            None => {
                arrow_type(id).ok_or_else(|| BindError::unsupported(format!("a parameter of type {id}"), NO_PLACE))?
            }
        };
        let dimensions = self.dimensions.get(number as usize - 1).copied().unwrap_or(1);
        let stored = if id.element().is_some() { of_dimensions(stored, dimensions) } else { stored };
        let field = Arc::new(Field::new("", stored, true));
        let parameter = Expr::Placeholder(Placeholder::new_with_field(format!("${number}"), Some(field)));
        Ok(if id == TypeId::BPCHAR { without_blanks(parameter) } else { parameter })
    }
}

/// The parameters of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Rc<RefCell<State>>);

/// A reference to a parameter that had no type where it stands.
#[derive(Clone, Debug)]
pub(crate) struct OpenParameter {
    number: u32,
    /// The position in [`State::open`].
    at: usize,
    all: Parameters,
}

impl Parameters {
    /// Parameters of these types; UNKNOWN or 0 for a type that is to be inferred. `digits` are
    /// those of fixed numbers, `dimensions` those of arrays.
    pub(crate) fn new(known: &[TypeId], digits: Vec<Option<(u8, i8)>>, dimensions: Vec<usize>) -> Self {
        let types = known.iter().map(|id| if id.0 == 0 { TypeId::UNKNOWN } else { *id }).collect();
        Self(Rc::new(RefCell::new(State { types, digits, dimensions, ..State::default() })))
    }

    /// `$number`.
    pub(crate) fn reference(&self, number: u32, span: Span) -> Result<Bound> {
        if number == 0 || number > MOST {
            return Err(BindError::new(
                sqlstate::UNDEFINED_PARAMETER,
                format!("there is no parameter ${number}"),
                span,
            ));
        }
        let mut state = self.0.borrow_mut();
        let index = number as usize - 1;
        if state.types.len() <= index {
            state.types.resize(index + 1, TypeId::UNKNOWN);
        }
        let id = state.types[index];
        if id != TypeId::UNKNOWN {
            return Ok(Bound::new(state.placeholder(number, id)?, id, span));
        }
        state.open.push(Some((number, span)));
        let open = OpenParameter { number, at: state.open.len() - 1, all: self.clone() };
        let untyped = Expr::Placeholder(Placeholder::new_with_field(format!("${number}"), None));
        Ok(Bound { parameter: Some(open), ..Bound::new(untyped, TypeId::UNKNOWN, span) })
    }

    /// The number of types that places have decided so far.
    pub(crate) fn decisions(&self) -> usize {
        self.0.borrow().decisions
    }

    /// The types of all, once the statement is bound.
    pub(crate) fn decided(&self) -> Result<Vec<TypeId>> {
        let state = self.0.borrow();
        let undecided = |number: u32| format!("could not determine data type of parameter ${number}");
        let late = |(number, _): &&(u32, Span)| state.types[*number as usize - 1] != TypeId::UNKNOWN;
        if let Some((number, span)) = state.open.iter().flatten().find(late) {
            return Err(BindError::new(sqlstate::AMBIGUOUS_PARAMETER, undecided(*number), *span));
        }
        match state.types.iter().position(|id| *id == TypeId::UNKNOWN) {
            Some(at) => Err(BindError::without_place(sqlstate::INDETERMINATE_DATATYPE, undecided(at as u32 + 1))),
            None => Ok(state.types.clone()),
        }
    }
}

fn undetermined(number: u32, span: Span) -> BindError {
    let message = format!("could not determine data type of parameter ${number}");
    BindError::new(sqlstate::INDETERMINATE_DATATYPE, message, span)
}

impl OpenParameter {
    /// The type that another place has decided since; UNKNOWN without a decision.
    pub(crate) fn decided(&self) -> TypeId {
        self.all.0.borrow().types[self.number as usize - 1]
    }

    /// The error of a place that tells no type.
    pub(crate) fn undetermined(&self, span: Span) -> BindError {
        undetermined(self.number, span)
    }

    /// The parameter as a value of `to`, which is its type from now on.
    pub(crate) fn into_type(self, to: TypeId, span: Span) -> Result<Bound> {
        let mut state = self.all.0.borrow_mut();
        let number = self.number;
        let id = &mut state.types[number as usize - 1];
        if (to.category() == Category::Pseudo && to != TypeId::VOID) || to.category() == Category::Unknown {
            return Err(undetermined(number, span));
        }
        if *id != TypeId::UNKNOWN && *id != to {
            let message = format!("inconsistent types deduced for parameter ${number}");
            return Err(BindError::new(sqlstate::AMBIGUOUS_PARAMETER, message, span));
        }
        *id = to;
        state.decisions += 1;
        state.open[self.at] = None;
        Ok(Bound::new(state.placeholder(number, to)?, to, span))
    }
}

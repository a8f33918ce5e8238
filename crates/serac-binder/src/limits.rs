//! Limits of a statement's size.

/// Levels of expressions, and of queries, that a statement may have in its tree. A plan is deeper
/// than its tree, and DataFusion drops it level by level on the stack.
pub(crate) const MOST_LEVELS: usize = 400;

/// The cost of a level of queries.
pub(crate) const LEVELS_OF_QUERY: usize = 8;

/// Parts of expressions that a statement may be made of. A part may stand in the plan several
/// times; nested parts of this kind would make the plan grow without bound.
pub(crate) const MOST_PARTS: usize = 300_000;

/// Parts that a copy of a subquery counts as.
pub(crate) const PARTS_OF_SUBQUERY: usize = 1_000;

/// Relations that a statement may read, each query of WITH again where it is named.
pub(crate) const MOST_RELATIONS: usize = 2_000;

/// Stack that is left before more is taken, and how much that is.
pub(crate) const STACK: (usize, usize) = (256 << 10, 4 << 20);

/// Operators one behind the other, up to which a plan is a tower of them.
pub(crate) const MOST_IN_A_ROW: usize = 100;

/// The cost of an operand that stands in the plan more than once: nested operands of this kind
/// would double the plan with each level.
pub(crate) const LEVELS_OF_COPIES: usize = 80;

//! How large a statement may be.

/// Levels of expressions, and of queries, that a statement may have in its tree. A plan is deeper
/// than its tree, and DataFusion drops it level by level on the stack.
pub(crate) const MOST_LEVELS: usize = 400;

/// What a level of queries counts as.
pub(crate) const LEVELS_OF_QUERY: usize = 8;

/// Parts of expressions that a statement may be made of. Some stand in the plan several times, and
/// such ones in each other would make it grow without bound.
pub(crate) const MOST_PARTS: usize = 300_000;

/// Parts that a copy of a subquery counts as.
pub(crate) const PARTS_OF_SUBQUERY: usize = 1_000;

/// Relations that a statement may read, each query of WITH again where it is named.
pub(crate) const MOST_RELATIONS: usize = 2_000;

/// Stack that is left before more is taken, and how much that is.
pub(crate) const STACK: (usize, usize) = (256 << 10, 4 << 20);

/// Operators one behind the other, up to which a plan is a tower of them.
pub(crate) const MOST_IN_A_ROW: usize = 100;

/// What an operand counts as that stands in the plan more than once: such operands in each other
/// would make it grow with each level twofold.
pub(crate) const LEVELS_OF_COPIES: usize = 80;

//! Sums, differences and products of integer and decimal columns, as scaled integers of 64 bits
//! wherever these suffice.
//!
//! Every column comes with a bound on its values. These give bounds on all steps of a [`Program`].
//! A step whose bound fits 64 bits is computed in 64 bits without a test per row, eight rows at a
//! time if the processor has AVX-512. A step whose bound fits 128 bits is computed in 128 bits.
//! Other steps are computed row by row, with tests, for the rows that are asked for.

/// Values of a column for a range of rows.
#[derive(Clone, Copy, Debug)]
pub struct Column<'c> {
    values: &'c [i64],
    bound: u64,
}

impl<'c> Column<'c> {
    /// The column; its bound is found by a pass over the values.
    pub fn new(values: &'c [i64]) -> Self {
        Self { values, bound: bound_of(values) }
    }

    /// The values.
    pub fn values(&self) -> &'c [i64] {
        self.values
    }
}

/// A power of two that no absolute value exceeds; 0 if all are 0.
fn bound_of(values: &[i64]) -> u64 {
    #[inline(always)]
    fn portable(values: &[i64]) -> u64 {
        values.iter().fold(0, |all, v| all | (v ^ (v >> 63)) as u64 | u64::from(*v != 0))
    }

    #[cfg(target_arch = "x86_64")]
    if *crate::simd::AVX512 {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
        fn avx512(values: &[i64]) -> u64 {
            portable(values)
        }
        // SAFETY: the processor has these features.
        return power_above(unsafe { avx512(values) });
    }
    power_above(portable(values))
}

fn power_above(bits: u64) -> u64 {
    if bits == 0 { 0 } else { 1 << (64 - bits.leading_zeros()) }
}

/// One step of a program; operands are the numbers of earlier steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The values of the column with this number.
    Column(usize),
    /// The same number for all rows.
    Constant(i128),
    /// `left × left_factor + right × right_factor`, or the difference. The factors bring decimals
    /// to one scale.
    Sum {
        /// The left operand.
        left: usize,
        /// The right operand.
        right: usize,
        /// At least 1.
        left_factor: i128,
        /// At least 1.
        right_factor: i128,
        /// Whether the right operand is subtracted.
        subtract: bool,
    },
    /// `left × right`.
    Product {
        /// The left operand.
        left: usize,
        /// The right operand.
        right: usize,
    },
}

/// A result that 128 bits cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow;

/// Expressions that share their common parts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    steps: Vec<Step>,
}

/// The results of a step.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// One number for all rows.
    Constant(i128),
    /// A number for each row, all within the bound.
    Narrow(&'a [i64], u128),
    /// As above.
    Wide(&'a [i128], u128),
    /// To be asked for row by row: [`Program::row`].
    Unbounded,
}

/// Memory for the steps of a program, to be used again.
#[derive(Debug, Default)]
pub struct Scratch(Vec<Slot>);

#[derive(Debug, Default)]
struct Slot {
    form: Form,
    bound: u128,
    narrow: Vec<i64>,
    wide: Vec<i128>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Form {
    Column(usize),
    Constant(i128),
    Narrow,
    Wide,
    #[default]
    Unbounded,
}

impl Slot {
    fn numbers<'a>(&'a self, columns: &[Column<'a>]) -> Numbers<'a> {
        match self.form {
            Form::Column(column) => Numbers::Narrow(columns[column].values, self.bound),
            Form::Constant(constant) => Numbers::Constant(constant),
            Form::Narrow => Numbers::Narrow(&self.narrow, self.bound),
            Form::Wide => Numbers::Wide(&self.wide, self.bound),
            Form::Unbounded => Numbers::Unbounded,
        }
    }
}

/// An operand in 64 bits.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Same(i64),
    Each(&'a [i64]),
}

#[inline(always)]
fn zip_portable(out: &mut [i64], left: Operand<'_>, right: Operand<'_>, f: impl Fn(i64, i64) -> i64) {
    match (left, right) {
        (Operand::Each(l), Operand::Each(r)) => {
            for ((out, &l), &r) in out.iter_mut().zip(l).zip(r) {
                *out = f(l, r);
            }
        }
        (Operand::Each(l), Operand::Same(r)) => out.iter_mut().zip(l).for_each(|(out, &l)| *out = f(l, r)),
        (Operand::Same(l), Operand::Each(r)) => out.iter_mut().zip(r).for_each(|(out, &r)| *out = f(l, r)),
        (Operand::Same(l), Operand::Same(r)) => out.fill(f(l, r)),
    }
}

fn zip(out: &mut [i64], left: Operand<'_>, right: Operand<'_>, f: impl Fn(i64, i64) -> i64) {
    #[cfg(target_arch = "x86_64")]
    if *crate::simd::AVX512 {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
        fn avx512(out: &mut [i64], left: Operand<'_>, right: Operand<'_>, f: impl Fn(i64, i64) -> i64) {
            zip_portable(out, left, right, f);
        }
        // SAFETY: the processor has these features.
        return unsafe { avx512(out, left, right, f) };
    }
    zip_portable(out, left, right, f);
}

impl Program {
    /// The number of a step, which is added if the program does not have it yet.
    pub fn step(&mut self, step: Step) -> usize {
        self.steps.iter().position(|known| *known == step).unwrap_or_else(|| {
            self.steps.push(step);
            self.steps.len() - 1
        })
    }

    /// The column whose values a step gives, if it has no arithmetic.
    pub fn column(&self, step: usize) -> Option<usize> {
        match self.steps[step] {
            Step::Column(column) => Some(column),
            _ => None,
        }
    }

    /// The columns that a step depends on, ascending.
    pub fn columns(&self, step: usize) -> Vec<usize> {
        let mut columns = match self.steps[step] {
            Step::Column(column) => vec![column],
            Step::Constant(_) => Vec::new(),
            Step::Sum { left, right, .. } | Step::Product { left, right } => {
                [self.columns(left), self.columns(right)].concat()
            }
        };
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Computes all steps for `rows` rows.
    ///
    /// # Panics
    /// When a column is missing or has fewer rows.
    pub fn run(&self, columns: &[Column<'_>], rows: usize, scratch: &mut Scratch) {
        scratch.0.resize_with(self.steps.len(), Slot::default);
        for (i, step) in self.steps.iter().enumerate() {
            let (done, rest) = scratch.0.split_at_mut(i);
            let slot = &mut rest[0];
            (slot.form, slot.bound) = match *step {
                Step::Column(column) => (Form::Column(column), columns[column].bound.into()),
                Step::Constant(constant) => (Form::Constant(constant), constant.unsigned_abs()),
                Step::Sum { left, right, left_factor, right_factor, .. } => {
                    let scaled = |at: usize, factor: i128| done[at].bound.saturating_mul(factor.unsigned_abs());
                    let bound = scaled(left, left_factor).saturating_add(scaled(right, right_factor));
                    (form_of(bound, [&done[left], &done[right]]), bound)
                }
                Step::Product { left, right } => {
                    let bound = done[left].bound.saturating_mul(done[right].bound);
                    (form_of(bound, [&done[left], &done[right]]), bound)
                }
            };
            match slot.form {
                Form::Narrow => narrow(step, done, columns, rows, &mut slot.narrow),
                Form::Wide => {
                    slot.wide.clear();
                    // Within the bound, nothing overflows.
                    slot.wide
                        .extend((0..rows).map(|row| operate(step, |at| at_row(&done[at], columns, row)).unwrap_or(0)));
                }
                _ => {}
            }
        }
    }

    /// The results of a step in the last [`run`](Self::run), over the same columns.
    pub fn numbers<'a>(&self, step: usize, columns: &[Column<'a>], scratch: &'a Scratch) -> Numbers<'a> {
        scratch.0[step].numbers(columns)
    }

    /// One row of a step.
    ///
    /// # Errors
    /// When the result, or an intermediate one, does not fit 128 bits.
    pub fn row(&self, step: usize, columns: &[Column<'_>], row: usize) -> Result<i128, Overflow> {
        match self.steps[step] {
            Step::Column(column) => Ok(columns[column].values[row].into()),
            Step::Constant(constant) => Ok(constant),
            Step::Sum { left, right, .. } | Step::Product { left, right } => {
                let (l, r) = (self.row(left, columns, row)?, self.row(right, columns, row)?);
                operate(&self.steps[step], |at| if at == left { l } else { r }).ok_or(Overflow)
            }
        }
    }
}

/// The form of a step with this bound. In 64 bits only if the operands are, too.
fn form_of(bound: u128, operands: [&Slot; 2]) -> Form {
    let narrow = |slot: &Slot| match slot.form {
        Form::Column(_) | Form::Narrow => true,
        Form::Constant(constant) => i64::try_from(constant).is_ok(),
        Form::Wide | Form::Unbounded => false,
    };
    let unbounded = |slot: &Slot| matches!(slot.form, Form::Unbounded);
    if operands.iter().any(|slot| unbounded(slot)) || bound > i128::MAX as u128 {
        Form::Unbounded
    } else if bound <= i64::MAX as u128 && operands.iter().all(|slot| narrow(slot)) {
        Form::Narrow
    } else {
        Form::Wide
    }
}

fn narrow(step: &Step, done: &[Slot], columns: &[Column<'_>], rows: usize, out: &mut Vec<i64>) {
    let operand = |at: usize| match done[at].numbers(columns) {
        Numbers::Narrow(values, _) => Operand::Each(&values[..rows]),
        Numbers::Constant(constant) => Operand::Same(constant as i64),
        Numbers::Wide(..) | Numbers::Unbounded => unreachable!("the form was chosen for operands of 64 bits"),
    };
    out.resize(rows, 0);
    match *step {
        // A factor may be wider than 64 bits only where its operand is zero.
        Step::Sum { left, right, left_factor, right_factor, subtract } => {
            let (l, r) =
                (left_factor as i64, if subtract { (right_factor as i64).wrapping_neg() } else { right_factor as i64 });
            match (l, r) {
                (1, 1) => zip(out, operand(left), operand(right), |a, b| a.wrapping_add(b)),
                (1, -1) => zip(out, operand(left), operand(right), |a, b| a.wrapping_sub(b)),
                _ => zip(out, operand(left), operand(right), |a, b| a.wrapping_mul(l).wrapping_add(b.wrapping_mul(r))),
            }
        }
        Step::Product { left, right } => zip(out, operand(left), operand(right), |a, b| a.wrapping_mul(b)),
        Step::Column(_) | Step::Constant(_) => unreachable!("nothing to compute"),
    }
}

fn at_row(slot: &Slot, columns: &[Column<'_>], row: usize) -> i128 {
    match slot.numbers(columns) {
        Numbers::Constant(constant) => constant,
        Numbers::Narrow(values, _) => values[row].into(),
        Numbers::Wide(values, _) => values[row],
        Numbers::Unbounded => unreachable!("the form was chosen for bounded operands"),
    }
}

fn operate(step: &Step, operand: impl Fn(usize) -> i128) -> Option<i128> {
    match *step {
        Step::Sum { left, right, left_factor, right_factor, subtract } => {
            let (l, r) = (operand(left).checked_mul(left_factor)?, operand(right).checked_mul(right_factor)?);
            if subtract { l.checked_sub(r) } else { l.checked_add(r) }
        }
        Step::Product { left, right } => operand(left).checked_mul(operand(right)),
        Step::Column(_) | Step::Constant(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = i64> {
        prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), -1000i64..1000, any::<i64>()]
    }

    proptest! {
        #[test]
        fn programs_compute_what_rows_compute(
            rows in prop::collection::vec((any_value(), any_value(), -9i64..9), 0..200),
            constants in prop::collection::vec(prop_oneof![-200i128..200, any::<i128>()], 2),
            shape in prop::collection::vec((any::<bool>(), any::<bool>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u32..20), 0..7),
        ) {
            let columns: [Vec<i64>; 3] =
                [rows.iter().map(|r| r.0).collect(), rows.iter().map(|r| r.1).collect(), rows.iter().map(|r| r.2).collect()];
            let columns: Vec<Column<'_>> = columns.iter().map(|c| Column::new(c)).collect();
            let mut program = Program::default();
            let mut steps: Vec<usize> = (0..3).map(|c| program.step(Step::Column(c))).collect();
            steps.extend(constants.iter().map(|&c| program.step(Step::Constant(c))));
            for (product, subtract, l, r, scale) in shape {
                let (left, right) = (steps[l.index(steps.len())], steps[r.index(steps.len())]);
                let (left_factor, right_factor) = (1, 10i128.pow(scale));
                steps.push(program.step(match product {
                    true => Step::Product { left, right },
                    false => Step::Sum { left, right, left_factor, right_factor, subtract },
                }));
            }
            let mut scratch = Scratch::default();
            program.run(&columns, rows.len(), &mut scratch);
            for &step in &steps {
                for row in 0..rows.len() {
                    let expected = program.row(step, &columns, row);
                    match program.numbers(step, &columns, &scratch) {
                        Numbers::Constant(v) => prop_assert_eq!(Ok(v), expected),
                        Numbers::Narrow(values, bound) => {
                            prop_assert_eq!(Ok(i128::from(values[row])), expected);
                            prop_assert!(u128::from(values[row].unsigned_abs()) <= bound);
                        }
                        Numbers::Wide(values, bound) => {
                            prop_assert_eq!(Ok(values[row]), expected);
                            prop_assert!(values[row].unsigned_abs() <= bound);
                        }
                        Numbers::Unbounded => {}
                    }
                }
            }
        }
    }

    #[test]
    fn small_decimals_stay_in_64_bits() {
        let (price, discount) = ([10_494_950, 90_100], [0, 10]);
        let columns = [Column::new(&price), Column::new(&discount)];
        let mut program = Program::default();
        let (p, d, one) =
            (program.step(Step::Column(0)), program.step(Step::Column(1)), program.step(Step::Constant(1)));
        let left = program.step(Step::Sum { left: one, right: d, left_factor: 100, right_factor: 1, subtract: true });
        let product = program.step(Step::Product { left: p, right: left });
        let mut scratch = Scratch::default();
        program.run(&columns, 2, &mut scratch);
        assert!(matches!(program.numbers(product, &columns, &scratch), Numbers::Narrow([1_049_495_000, 8_109_000], _)));
        let huge = [i64::MAX, 1];
        let columns = [Column::new(&huge), Column::new(&discount)];
        program.run(&columns, 2, &mut scratch);
        assert!(matches!(program.numbers(product, &columns, &scratch), Numbers::Wide(..)));
    }
}

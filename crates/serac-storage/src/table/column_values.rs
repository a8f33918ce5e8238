//! A column's values in their physical form, on their way into an Arrow array.

use crate::block::layout::bitmap_bytes;
use crate::table::column_form::ColumnForm;
use crate::types::{ColumnType, PhysicalType};
use arrow_array::types::{
    Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, PrimitiveArray, StringViewArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use std::sync::Arc;

fn get_bit(bits: &[u8], i: usize) -> bool {
    bits[i / 8] >> (i % 8) & 1 == 1
}

pub(crate) fn gather_bits(bits: &[u8], positions: &[u32]) -> MutableBuffer {
    let mut out = MutableBuffer::from_len_zeroed(bitmap_bytes(positions.len()));
    for (i, &slot) in positions.iter().enumerate() {
        if get_bit(bits, slot as usize) {
            out[i / 8] |= 1 << (i % 8);
        }
    }
    out
}

/// A column's values in their physical form.
pub(crate) struct ColumnValues {
    pub(crate) physical: PhysicalType,
    pub(crate) len: usize,
    pub(crate) values: Buffer,
    pub(crate) nulls: Option<NullBuffer>,
}

impl ColumnValues {
    /// The first `len`.
    pub(crate) fn truncate(self, len: usize) -> Self {
        Self { len, nulls: self.nulls.map(|nulls| nulls.slice(0, len)), ..self }
    }

    /// The values at `positions`.
    pub(crate) fn select(self, positions: &[u32]) -> Self {
        fn gather<T: arrow_buffer::ArrowNativeType>(values: &Buffer, positions: &[u32]) -> Buffer {
            let values = values.typed_data::<T>();
            positions.iter().map(|&slot| values[slot as usize]).collect::<MutableBuffer>().into()
        }
        let nulls = self.nulls.map(|nulls| {
            NullBuffer::new(positions.iter().map(|&slot| nulls.is_valid(slot as usize)).collect::<BooleanBuffer>())
        });
        let values = match self.physical {
            PhysicalType::Bit => gather_bits(&self.values, positions).into(),
            PhysicalType::Fixed(2) => gather::<i16>(&self.values, positions),
            PhysicalType::Fixed(4) => gather::<i32>(&self.values, positions),
            PhysicalType::Fixed(8) => gather::<i64>(&self.values, positions),
            PhysicalType::Fixed(_) | PhysicalType::View => gather::<i128>(&self.values, positions),
        };
        Self { physical: self.physical, len: positions.len(), values, nulls }
    }

    /// The values as an array of the column's Arrow type, or in the form asked for. `heap` gives
    /// the buffers that views name.
    pub(crate) fn into_array(
        self,
        column_type: ColumnType,
        form: ColumnForm,
        heap: impl FnOnce() -> Vec<Buffer>,
    ) -> ArrayRef {
        let Self { len, values, nulls, .. } = self;
        fn primitive<T: ArrowPrimitiveType>(
            values: Buffer,
            len: usize,
            nulls: Option<NullBuffer>,
        ) -> PrimitiveArray<T> {
            PrimitiveArray::new(ScalarBuffer::new(values, 0, len), nulls)
        }
        match column_type {
            ColumnType::Boolean => Arc::new(BooleanArray::new(BooleanBuffer::new(values, 0, len), nulls)),
            ColumnType::Int16 => Arc::new(primitive::<Int16Type>(values, len, nulls)),
            ColumnType::Int32 => Arc::new(primitive::<Int32Type>(values, len, nulls)),
            ColumnType::Int64 => Arc::new(primitive::<Int64Type>(values, len, nulls)),
            ColumnType::Float32 => Arc::new(primitive::<Float32Type>(values, len, nulls)),
            ColumnType::Float64 => Arc::new(primitive::<Float64Type>(values, len, nulls)),
            ColumnType::Date => Arc::new(primitive::<Date32Type>(values, len, nulls)),
            ColumnType::Time => Arc::new(primitive::<Time64MicrosecondType>(values, len, nulls)),
            ColumnType::Interval => Arc::new(primitive::<IntervalMonthDayNanoType>(values, len, nulls)),
            ColumnType::Timestamp { utc } => Arc::new(
                primitive::<TimestampMicrosecondType>(values, len, nulls).with_timezone_opt(utc.then_some("UTC")),
            ),
            ColumnType::Decimal { precision, scale } => {
                let array = if precision > 18 {
                    primitive::<Decimal128Type>(values, len, nulls)
                } else if form == ColumnForm::Scaled64 {
                    return Arc::new(primitive::<Int64Type>(values, len, nulls));
                } else if form == ColumnForm::Stored {
                    let array = primitive::<Decimal64Type>(values, len, nulls);
                    return Arc::new(
                        array.with_precision_and_scale(precision, scale).expect("the table's types are valid"),
                    );
                } else {
                    let wide: Vec<i128> = values.typed_data::<i64>().iter().map(|&v| v.into()).collect();
                    PrimitiveArray::<Decimal128Type>::new(wide.into(), nulls)
                };
                Arc::new(array.with_precision_and_scale(precision, scale).expect("the table's types are valid"))
            }
            ColumnType::Utf8 | ColumnType::Json | ColumnType::JsonText => {
                let views = ScalarBuffer::new(values, 0, len);
                // SAFETY: the block's heap made the views from UTF-8 that the engine has checked.
                // They name bytes in `heap`, which was fetched after them.
                let texts = unsafe { StringViewArray::new_unchecked(views, heap(), nulls) };
                if column_type == ColumnType::Utf8 || form == ColumnForm::Stored {
                    return Arc::new(texts);
                }
                Arc::new(texts.iter().collect::<LargeStringArray>())
            }
            ColumnType::Binary | ColumnType::Numeric => {
                let views = ScalarBuffer::new(values, 0, len);
                // SAFETY: as above, for bytes.
                let bytes = unsafe { BinaryViewArray::new_unchecked(views, heap(), nulls) };
                if column_type == ColumnType::Binary || form == ColumnForm::Stored {
                    return Arc::new(bytes);
                }
                Arc::new(bytes.iter().collect::<LargeBinaryArray>())
            }
            ColumnType::Uuid => Arc::new(FixedSizeBinaryArray::new(16, values, nulls)),
        }
    }
}

//! Record batches as gRPC messages, each a list of pieces.
//!
//! A FlightData message is a flatbuffers header and a body: the arrays' buffers one behind the
//! other. Encoders commonly copy the buffers into one body, and the body into the message. Here the
//! message is a list of pieces. They are the few bytes that must be made (gRPC and protobuf
//! framing, the header, padding), and between them the buffers themselves, reference-counted. The
//! HTTP/2 layer writes the pieces with vectored writes: the kernel's copy into the socket is the
//! first copy of a frozen block.
//!
//! A message costs its reader tens of microseconds, even if it is short. So batches that are ready
//! together go in one, up to a limit. A dictionary goes once, and again when it has changed.

use crate::body::{Body, Pieces, header, joins_cheaply, with_own_words, words_of};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::{ArrowError, Schema};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;

/// Batches whose columns must be copied to be joined go together up to the message's limit divided
/// by this.
const COPIED_PART: usize = 16;

/// The messages of a stream: batches go in, messages come out.
pub(super) struct Messages {
    /// Bytes of a body, unless a single row is longer.
    limit: usize,
    /// The byte limit of several batches together.
    joined_limit: usize,
    ready: VecDeque<Pieces>,
    /// Batches that wait for more to go with them in one message, each with the body that it has
    /// alone.
    waiting: Vec<(RecordBatch, Body)>,
    /// The dictionaries that the client has, by their numbers.
    sent: Vec<ArrayRef>,
}

impl Messages {
    /// The messages of a stream of batches with this schema: the first one is ready. A limit in
    /// bytes.
    pub(super) fn new(schema: &Schema, limit: usize) -> Self {
        let first = framed(&FlightData::from(SchemaAsIpc::new(schema, &IpcWriteOptions::default())), 0);
        let is_copied = schema.fields().iter().any(|field| !joins_cheaply(field.data_type()));
        let joined_limit = if is_copied { limit / COPIED_PART } else { limit };
        Self { limit, joined_limit, ready: [first.into()].into(), waiting: Vec::new(), sent: Vec::new() }
    }

    /// The next message that is ready.
    pub(super) fn next(&mut self) -> Option<Pieces> {
        self.ready.pop_front()
    }

    pub(super) fn are_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes a batch. Its dictionaries and the batches before are then ready, if need be. Its rows
    /// become ready when no more batches fit with them, or at [`Self::join`]; many rows make
    /// several messages.
    ///
    /// # Errors
    /// An error for types that no table has, and for a row that does not fit into a message.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        let rows = batch.num_rows();
        let words: Vec<ArrayRef> = batch.columns().iter().filter_map(words_of).cloned().collect();
        let mut dictionaries = Vec::new();
        for (id, words) in words.iter().enumerate() {
            if self.sent.get(id).is_some_and(|sent| std::ptr::addr_eq(Arc::as_ptr(sent), Arc::as_ptr(words))) {
                continue;
            }
            let mut body = Body::default();
            body.push_column(slice::from_ref(words))?;
            if body.bytes() > self.limit {
                let own = with_own_words(&batch)?;
                let own_words = own.columns().iter().filter_map(words_of).nth(id);
                if own_words.is_some_and(|own| own.len() < words.len()) {
                    return self.add(own);
                }
                if rows > 1 {
                    self.add(own.slice(0, rows / 2))?;
                    return self.add(own.slice(rows / 2, rows - rows / 2));
                }
            }
            dictionaries.push(message(body, words.len(), Some(id as i64))?);
        }
        if !dictionaries.is_empty() {
            self.join()?;
            self.ready.extend(dictionaries);
            self.sent = words;
        }
        self.add_rows(batch)
    }

    fn add_rows(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        let mut body = Body::default();
        batch.columns().iter().try_for_each(|column| body.push_column(slice::from_ref(column)))?;
        let rows = batch.num_rows();
        if body.bytes() > self.limit && rows > 1 {
            self.add_rows(batch.slice(0, rows / 2))?;
            return self.add_rows(batch.slice(rows / 2, rows - rows / 2));
        }
        let waiting: usize = self.waiting.iter().map(|(_, body)| body.bytes()).sum();
        if waiting + body.bytes() > self.joined_limit {
            self.join()?;
        }
        self.waiting.push((batch, body));
        Ok(())
    }

    /// Makes one message of the batches that wait.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn join(&mut self) -> Result<(), ArrowError> {
        let waiting = std::mem::take(&mut self.waiting);
        let rows = waiting.iter().map(|(batch, _)| batch.num_rows()).sum();
        let (batches, mut bodies): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        let Some(mut body) = bodies.pop() else { return Ok(()) };
        if batches.len() > 1 {
            body = Body::default();
            for at in 0..batches[0].num_columns() {
                let parts: Vec<ArrayRef> = batches.iter().map(|batch| batch.column(at).clone()).collect();
                body.push_column(&parts)?;
            }
        }
        self.ready.push_back(message(body, rows, None)?);
        Ok(())
    }
}

/// The message of `rows` rows: a batch, or the dictionary with this number.
fn message(body: Body, rows: usize, dictionary: Option<i64>) -> Result<Pieces, ArrowError> {
    let bytes = body.bytes();
    if bytes > i32::MAX as usize {
        let message = format!("{rows} values of {bytes} bytes do not fit into a message");
        return Err(ArrowError::InvalidArgumentError(message));
    }
    let header = FlightData {
        data_header: header(&body, &body.places, bytes, rows, dictionary).into(),
        ..FlightData::default()
    };
    let mut pieces = body.into_pieces();
    pieces.push_front(framed(&header, bytes));
    Ok(pieces)
}

/// The gRPC message that carries `data` without a body, of which `body` bytes follow.
fn framed(data: &FlightData, body: usize) -> Bytes {
    // Field 1000 of FlightData, length-delimited.
    const BODY_TAG: u64 = 1000 << 3 | 2;
    let mut message = BytesMut::with_capacity(data.encoded_len() + 32);
    message.put_bytes(0, 5);
    data.encode(&mut message).expect("the buffer grows");
    if body > 0 {
        prost::encoding::encode_varint(BODY_TAG, &mut message);
        prost::encoding::encode_varint(body as u64, &mut message);
    }
    // gRPC: not compressed, and the length. A message that is too long for it has been split
    // before.
    let length = u32::try_from(message.len() - 5 + body).expect("messages are limited");
    message[1..5].copy_from_slice(&length.to_be_bytes());
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::exact;
    use arrow_array::types::UInt16Type;
    use arrow_array::{
        Array, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, NullArray, StringArray,
        StringViewArray, StructArray, UnionArray,
    };
    use arrow_buffer::OffsetBuffer;
    use arrow_cast::cast;
    use arrow_flight::decode::FlightRecordBatchStream;
    use arrow_schema::{DataType, Field};
    use arrow_select::concat::concat_batches;
    use bytes::Buf;
    use futures::TryStreamExt;

    fn batch() -> RecordBatch {
        let text = |i: i64| (i % 3 != 0).then(|| format!("a text that is long: {i}"));
        let words = |word: &dyn Fn(i64) -> Option<String>| -> ArrayRef {
            let texts: Vec<Option<String>> = (0..5_000).map(word).collect();
            Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<UInt16Type>>())
        };
        RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from_iter_values(0..5_000)) as ArrayRef),
            ("view", Arc::new((0..5_000).map(text).collect::<StringViewArray>())),
            ("offsets", Arc::new((0..5_000).map(text).collect::<StringArray>())),
            ("flag", Arc::new((0..5_000).map(|i| (i % 7 != 0).then_some(i % 2 == 0)).collect::<BooleanArray>())),
            ("words", words(&|i| text(i % 2_000))),
            ("few", words(&|i| text(i / 4_000))),
        ])
        .unwrap()
    }

    /// The messages of batches that are there together, that of the schema first.
    fn messages(batches: &[RecordBatch], limit: usize) -> Result<Vec<Pieces>, ArrowError> {
        let mut messages = Messages::new(&batches[0].schema(), limit);
        batches.iter().try_for_each(|batch| messages.add(batch.clone()))?;
        messages.join()?;
        Ok(std::iter::from_fn(|| messages.next()).collect())
    }

    /// The batches that a client makes of the messages.
    fn decode(messages: Vec<Pieces>) -> Vec<RecordBatch> {
        let messages = messages.into_iter().map(|mut pieces| {
            let mut bytes = pieces.copy_to_bytes(pieces.remaining());
            assert_eq!(bytes.get_u8(), 0, "not compressed");
            assert_eq!(bytes.get_u32() as usize, bytes.len());
            Ok(FlightData::decode(bytes).unwrap())
        });
        let stream = FlightRecordBatchStream::new_from_flight_data(futures::stream::iter(messages));
        futures::executor::block_on(stream.try_collect()).unwrap()
    }

    #[test]
    fn the_body_is_the_arrays_own_memory() {
        let batch = batch();
        let columns = batch.columns().iter().map(exact).collect();
        let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
        let messages = messages(slice::from_ref(&batch), usize::MAX).unwrap();
        let sent: Vec<*const u8> =
            messages.iter().flat_map(|message| &message.pieces).map(|piece| piece.as_ptr()).collect();
        let dictionaries =
            batch.columns().iter().filter_map(words_of).flat_map(|words| words.to_data().buffers().to_vec());
        let buffers = batch.columns().iter().flat_map(|c| c.to_data().buffers().to_vec()).chain(dictionaries);
        let nulls = batch.columns().iter().filter_map(|c| Some(c.nulls()?.buffer().clone()));
        for buffer in buffers.chain(nulls) {
            assert!(sent.contains(&buffer.as_ptr()), "a buffer of {} bytes was copied", buffer.len());
        }
        assert_eq!(decode(messages), [batch]);
    }

    /// Types that results of queries have, but tables do not.
    fn nested() -> RecordBatch {
        let texts = |range: std::ops::Range<i64>| -> ArrayRef {
            Arc::new(
                range.map(|i| (i % 5 != 0).then(|| format!("a text within another: {i}"))).collect::<StringViewArray>(),
            )
        };
        let lengths = || (0..1_000).map(|i| i % 4);
        let total = lengths().sum::<usize>() as i64;
        let item = Arc::new(Field::new("item", DataType::Utf8View, true));
        let list = ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths()), texts(0..total), None);
        let pairs = FixedSizeListArray::new(item, 2, texts(0..2_000), None);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..1_000).map(|i| (i % 2 == 0).then_some(i))));
        let structure =
            StructArray::try_from(vec![("n", numbers.clone()), ("list", Arc::new(list.clone()) as ArrayRef)]);
        let large = cast(&texts(0..1_000), &DataType::LargeUtf8).unwrap();
        let fields = [(0, Field::new("n", DataType::Int64, true)), (1, Field::new("t", DataType::Utf8View, true))];
        let kinds: Vec<i8> = (0..1_000).map(|i| i8::from(i % 3 == 0)).collect();
        let union = UnionArray::try_new(
            fields.into_iter().map(|(i, f)| (i, Arc::new(f))).collect(),
            kinds.into(),
            None,
            vec![numbers, texts(0..1_000)],
        );
        RecordBatch::try_from_iter_with_nullable([
            ("list", Arc::new(list) as ArrayRef, true),
            ("pairs", Arc::new(pairs), true),
            ("structure", Arc::new(structure.unwrap()), true),
            ("large", large, true),
            ("nothing", Arc::new(NullArray::new(1_000)), true),
            ("union", Arc::new(union.unwrap()), true),
        ])
        .unwrap()
    }

    #[test]
    fn arrays_within_arrays_arrive() {
        let whole = nested();
        for (offset, rows) in [(0, 1_000), (1, 998), (500, 3), (7, 0)] {
            let batch = whole.slice(offset, rows);
            for limit in [10_000, usize::MAX] {
                let received = decode(messages(slice::from_ref(&batch), limit).unwrap());
                let mut at = 0;
                for piece in &received {
                    assert_eq!(*piece, batch.slice(at, piece.num_rows()));
                    at += piece.num_rows();
                }
                assert_eq!((at, received.len() > 1), (rows, limit == 10_000 && rows > 100));
            }
        }
        let words: ArrayRef = Arc::new(["a", "b"].into_iter().collect::<DictionaryArray<UInt16Type>>());
        let structure = StructArray::try_from(vec![("words", words)]).unwrap();
        let batch = RecordBatch::try_from_iter([("s", Arc::new(structure) as ArrayRef)]).unwrap();
        assert!(messages(&[batch], usize::MAX).is_err());
    }

    #[test]
    fn batches_that_are_there_together_go_in_one_message() {
        let whole = batch();
        let fixed = cast(whole.column(1), &DataType::Binary).unwrap();
        let mut fields = whole.schema().fields().to_vec();
        fields.push(Arc::new(Field::new("bytes", DataType::Binary, true)));
        let columns = whole.columns().iter().cloned().chain([fixed]).collect();
        let whole = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let parts: Vec<RecordBatch> =
            [(0, 1_000), (1_000, 3), (1_003, 0), (1_003, 3_997)].map(|(at, rows)| whole.slice(at, rows)).into();
        let sent = messages(&parts, usize::MAX).unwrap();
        assert_eq!(sent.len(), 1 + 2 + 1, "the schema, each dictionary once, and the rows");
        let values = parts[0].column(0).to_data().buffers()[0].as_ptr();
        assert!(sent[3].pieces.iter().any(|piece| piece.as_ptr() == values), "values of fixed width were copied");
        assert_eq!(decode(sent), slice::from_ref(&whole));

        let nested = nested();
        let parts: Vec<RecordBatch> = (0..4).map(|part| nested.slice(part * 250, 250)).collect();
        assert_eq!(decode(messages(&parts, usize::MAX).unwrap()), [nested]);

        // Up to the limit; a dictionary that is another goes before the rows that have it, and
        // behind the others.
        let received = decode(messages(&vec![whole.slice(0, 100); 10], COPIED_PART * 30_000).unwrap());
        assert!(received.len() > 1 && received.len() < 10, "{} batches", received.len());
        let own = with_own_words(&whole.slice(4_000, 500)).unwrap();
        let mixed = [whole.slice(0, 500), own.clone(), own.slice(0, 100), whole.slice(500, 100)];
        let sent = messages(&mixed, usize::MAX).unwrap();
        assert_eq!(sent.len(), 1 + 3 * (2 + 1));
        assert_eq!(
            concat_batches(&whole.schema(), &decode(sent)).unwrap(),
            concat_batches(&whole.schema(), &mixed).unwrap()
        );
    }

    #[test]
    fn slices_and_long_batches_arrive_whole() {
        let whole = batch();
        for (offset, rows) in [(0, 5_000), (3, 4_001), (64, 1), (1_001, 0)] {
            let batch = whole.slice(offset, rows);
            for limit in [20_000, usize::MAX] {
                let messages = messages(slice::from_ref(&batch), limit).unwrap();
                assert!(messages.iter().all(|message| message.remaining() < limit.saturating_add(2_000)));
                // One of the schema, two of dictionaries, and one of rows.
                assert_eq!(messages.len() > 4, limit == 20_000 && rows > 1, "{rows} rows");
                let received = concat_batches(&batch.schema(), &decode(messages)).unwrap();
                assert_eq!(received, batch);
            }
        }
    }
}

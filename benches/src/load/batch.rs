//! The record batch that a load repeats.

use anyhow::Result;
use bytes::Bytes;
use rand::RngExt;
use thalweg_wire::compression::Compression;
use thalweg_wire::records::RecordBatchBuilder;
use thalweg_world::Clock;

/// One batch of equal records without keys, encoded.
#[derive(Clone, Debug)]
pub struct Batch {
    pub bytes: Bytes,
    pub record_count: u64,
    /// All values together.
    pub value_bytes: u64,
}

impl Batch {
    /// As many records with values of `value_bytes` random bytes as fit into `batch_bytes_max`, at least one.
    pub fn of(value_bytes: usize, batch_bytes_max: usize) -> Result<Batch> {
        let mut value = vec![0; value_bytes];
        rand::rng().fill(value.as_mut_slice());
        Batch::from_values(std::iter::repeat(value), batch_bytes_max, Compression::None)
    }

    /// The same of values that compress to about a third, as text does.
    pub fn compressed(value_bytes: usize, batch_bytes_max: usize, compression: Compression) -> Result<Batch> {
        let mut random = rand::rng();
        // Three bits of each byte are random.
        let values = std::iter::repeat_with(|| (0..value_bytes).map(|_| b'a' + random.random_range(0..8u8)).collect());
        Batch::from_values(values, batch_bytes_max, compression)
    }

    fn from_values(
        values: impl Iterator<Item = Vec<u8>>,
        batch_bytes_max: usize,
        compression: Compression,
    ) -> Result<Batch> {
        let timestamp = Clock::real().wall();
        let mut builder = RecordBatchBuilder::new(compression);
        let mut value_bytes = 0;
        for value in values {
            let next_bytes = builder.size_bytes() + value.len() + RECORD_OVERHEAD_BYTES_MAX;
            if !builder.is_empty() && next_bytes > batch_bytes_max {
                break;
            }
            value_bytes += value.len() as u64;
            builder.append(timestamp, None, Some(&value), &[]);
        }
        let record_count = u64::try_from(builder.record_count())?;
        Ok(Batch { bytes: builder.build()?, record_count, value_bytes })
    }
}

/// Lengths, deltas and attributes of one record, in a batch of any size that fits a request.
const RECORD_OVERHEAD_BYTES_MAX: usize = 24;

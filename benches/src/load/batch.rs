//! The record batch that a load repeats.

use anyhow::Result;
use bytes::Bytes;
use rand::RngExt;
use thalweg_wire::compression::Compression;
use thalweg_wire::records::RecordBatchBuilder;
use thalweg_world::Clock;

/// One uncompressed batch of equally long records without keys, encoded.
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
        let timestamp = Clock::real().wall();
        let mut value = vec![0; value_bytes];
        rand::rng().fill(value.as_mut_slice());
        let mut builder = RecordBatchBuilder::new(Compression::None);
        while builder.is_empty() || builder.size_bytes() + value_bytes + RECORD_OVERHEAD_BYTES_MAX <= batch_bytes_max {
            builder.append(timestamp, None, Some(&value), &[]);
        }
        let record_count = u64::try_from(builder.record_count())?;
        Ok(Batch { bytes: builder.build()?, record_count, value_bytes: record_count * value_bytes as u64 })
    }
}

/// Lengths, deltas and attributes of one record, in a batch of any size that fits a request.
const RECORD_OVERHEAD_BYTES_MAX: usize = 24;

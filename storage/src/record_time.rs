//! Finds a record by its time within one batch.

use bytes::Bytes;
use thalweg_model::{Offset, Timestamp};
use thalweg_wire::records::{ProduceRules, Records};
use thalweg_world::disk::DiskFile;

use crate::batch_walk::FoundBatch;
use crate::error::ReadError;
use crate::log_reader::TimestampOffset;

/// The first record of a batch, from `from` on, whose timestamp is at least `timestamp`.
///
/// # Errors
/// [`ReadError::Corrupt`]: the batch does not decode, or unpacks to more than a client may send.
pub(crate) fn first_at_least(
    file: &dyn DiskFile,
    found: &FoundBatch,
    timestamp: Timestamp,
    from: Offset,
) -> Result<Option<TimestampOffset>, ReadError> {
    let corrupt = || ReadError::Corrupt { offset: found.header.base_offset };
    let mut bytes = vec![0; found.header.size_bytes()];
    if file.read_at(&mut bytes, found.position)? < bytes.len() {
        return Err(corrupt());
    }
    let records = Records::open(&Bytes::from(bytes), ProduceRules::UNPACKED_BYTES_MAX).map_err(|_| corrupt())?;
    for record in records {
        let record = record.map_err(|_| corrupt())?;
        if record.timestamp >= timestamp && record.offset >= from {
            let (offset, leader_epoch) = (record.offset, found.header.leader_epoch);
            return Ok(Some(TimestampOffset { timestamp: record.timestamp, offset, leader_epoch }));
        }
    }
    Ok(None)
}

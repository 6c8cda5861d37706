//! Records as bytes.

use bytes::Bytes;
use thalweg_wire::records::RecordBatchBuilder;

use super::batch::Sequence;
use super::record::BatchRecord;
use crate::config::Compression;
use crate::error::{ClientError, Result};

/// One batch, as a producer sends it.
///
/// # Errors
/// It does not fit the format's length fields.
pub(super) fn encode_batch(
    topic: &str,
    records: &[BatchRecord],
    compression: Compression,
    sequence: Option<Sequence>,
) -> Result<Bytes> {
    let mut builder = RecordBatchBuilder::new(compression);
    if let Some(Sequence { identity, base }) = sequence {
        builder = builder.producer(identity.producer_id, identity.epoch, base);
    }
    for record in records {
        let headers: Vec<(&str, Option<&[u8]>)> =
            record.headers.iter().map(|header| (header.key.as_str(), header.value.as_deref())).collect();
        builder.append(record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers);
    }
    builder.build().map_err(|error| ClientError::InvalidUse {
        what: format!("{topic}: {error}"),
        remedy: "send smaller records".to_owned(),
    })
}

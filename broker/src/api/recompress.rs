//! `compression.type` of a topic: turns a producer's batch into the topic's own codec. Only where a topic asks for it.

use bytes::BytesMut;
use thalweg_model::topic_config::CompressionType;
use thalweg_wire::batch::BatchError;
use thalweg_wire::compression::Compression;
use thalweg_wire::records::{ProduceRules, RecordBatchBuilder, RecordHeader, Records};

/// The codec that a topic insists on; `None` leaves batches as they come.
pub fn wanted_codec(compression: CompressionType) -> Option<Compression> {
    match compression {
        CompressionType::Producer => None,
        CompressionType::Uncompressed => Some(Compression::None),
        CompressionType::Gzip => Some(Compression::Gzip),
        CompressionType::Snappy => Some(Compression::Snappy),
        CompressionType::Lz4 => Some(Compression::Lz4),
        CompressionType::Zstd => Some(Compression::Zstd),
    }
}

/// Packs a checked batch anew. Records, timestamps and the producer's sequence stay; the batch's size changes.
///
/// # Errors
/// The records do not fit a batch of that codec; the producer's fault.
pub fn recompress(batch: BytesMut, codec: Compression) -> Result<BytesMut, BatchError> {
    let batch = batch.freeze();
    let records = Records::open(&batch, ProduceRules::UNPACKED_BYTES_MAX)?;
    let header = *records.header();
    let mut builder = RecordBatchBuilder::new(codec);
    if header.producer_id.is_some() {
        builder = builder.producer(header.producer_id, header.producer_epoch, header.base_sequence);
    }
    for record in records {
        let record = record?;
        let headers: Vec<RecordHeader> = record.headers.iter().collect();
        let names: Vec<_> = headers.iter().map(RecordHeader::key_text).collect();
        let pairs: Vec<(&str, Option<&[u8]>)> =
            names.iter().zip(&headers).map(|(name, header)| (&**name, header.value.as_deref())).collect();
        builder.append(record.timestamp, record.key.as_deref(), record.value.as_deref(), &pairs);
    }
    // What a producer could pack, we can pack; only a size that no length field holds fails.
    let packed = builder.build().map_err(|_| BatchError::TooLarge { size: batch.len(), max: i32::MAX as usize })?;
    Ok(packed.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..])))
}

#[cfg(test)]
mod tests {
    use thalweg_model::{ProducerEpoch, ProducerId, Timestamp};
    use thalweg_wire::batch::BatchHeader;

    use super::*;

    fn batch(codec: Compression) -> BytesMut {
        let mut builder = RecordBatchBuilder::new(codec).producer(ProducerId(7), ProducerEpoch(2), 40);
        builder.append(Timestamp(5), Some(b"k"), Some(b"v"), &[("h", Some(b"1")), ("h", None)]);
        builder.append(Timestamp(4), None, None, &[]);
        BytesMut::from(&builder.build().unwrap()[..])
    }

    #[test]
    fn only_the_packing_changes() {
        for from in Compression::ALL {
            for to in Compression::ALL {
                let packed = recompress(batch(from), to).unwrap().freeze();
                let header = BatchHeader::read(&packed).unwrap();
                assert_eq!(header.compression(), Some(to));
                thalweg_wire::batch::verify_crc(&packed).unwrap();
                let before = Records::open(&batch(from).freeze(), 1 << 20).unwrap();
                let was = *before.header();
                assert_eq!(
                    (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp),
                    (was.producer_id, was.producer_epoch, was.base_sequence, was.max_timestamp)
                );
                let after = Records::open(&packed, 1 << 20).unwrap();
                assert!(before.map(Result::unwrap).eq(after.map(Result::unwrap)), "{from:?} to {to:?}");
            }
        }
    }
}

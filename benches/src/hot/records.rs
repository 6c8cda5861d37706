//! Batches: the broker's check of each, and the client's building and reading.

use std::hint::black_box;

use anyhow::{Context, Result};
use bytes::Bytes;
use thalweg_model::Timestamp;
use thalweg_wire::compression::Compression;
use thalweg_wire::records::{ProduceRules, RecordBatchBuilder, Records, check_produced};

use super::Step;

pub fn check_many() -> Result<Step> {
    check(batch(RECORDS)?)
}

pub fn check_one() -> Result<Step> {
    check(batch(1)?)
}

fn check(batch: Bytes) -> Result<Step> {
    let rules = ProduceRules {
        produce_version: 11,
        size_bytes_max: 1 << 20,
        unpacked_bytes_max: ProduceRules::UNPACKED_BYTES_MAX,
        key_required: false,
        timestamps: None,
    };
    Ok(Box::new(move || {
        black_box(check_produced(black_box(&batch), &rules)?);
        Ok(())
    }))
}

pub fn read() -> Result<Step> {
    let batch = batch(RECORDS)?;
    Ok(Box::new(move || {
        let mut bytes = 0;
        for record in Records::open(black_box(&batch), 1 << 20).context("a batch")? {
            bytes += record?.value.map_or(0, |value| value.len());
        }
        black_box(bytes);
        Ok(())
    }))
}

pub fn build() -> Result<Step> {
    Ok(Box::new(|| {
        black_box(batch(RECORDS)?);
        Ok(())
    }))
}

/// Records of 200 bytes without keys.
pub fn batch(records: usize) -> Result<Bytes> {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for number in 0..records {
        builder.append(Timestamp(number as i64), None, Some(&[b'x'; 200]), &[]);
    }
    Ok(builder.build()?)
}

/// As many as fit into 16 KiB.
const RECORDS: usize = 78;

//! Records on their way out.

use bytes::Bytes;
use thalweg_model::Timestamp;

/// A record to send. Start with [`ProducerRecord::new`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerRecord {
    pub topic: String,
    /// `None`: by the key, or any if there is no key.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    /// `None` is a tombstone in a compacted topic.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
    /// `None`: now.
    pub timestamp: Option<Timestamp>,
}

/// A header of a record. Keys may repeat; the order is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub key: String,
    pub value: Option<Bytes>,
}

impl ProducerRecord {
    pub fn new(topic: impl Into<String>) -> ProducerRecord {
        ProducerRecord { topic: topic.into(), ..ProducerRecord::default() }
    }

    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> ProducerRecord {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> ProducerRecord {
        self.value = Some(value.into());
        self
    }

    #[must_use]
    pub fn partition(mut self, partition: i32) -> ProducerRecord {
        self.partition = Some(partition);
        self
    }

    #[must_use]
    pub fn timestamp(mut self, timestamp: Timestamp) -> ProducerRecord {
        self.timestamp = Some(timestamp);
        self
    }

    #[must_use]
    pub fn header(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> ProducerRecord {
        self.headers.push(Header { key: key.into(), value: Some(value.into()) });
        self
    }
}

/// A record that knows its partition: what a batch is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchRecord {
    pub(crate) timestamp: Timestamp,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<Header>,
}

impl BatchRecord {
    /// At least what the record takes in an uncompressed batch.
    pub(crate) fn bytes_max(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize = self.headers.iter().map(|h| h.key.len() + length(&h.value) + 2 * VARINT_BYTES_MAX).sum();
        RECORD_OVERHEAD_MAX + length(&self.key) + length(&self.value) + headers
    }
}

/// Length, attributes, timestamp and offset deltas, and three counts, each as long as it can be.
const RECORD_OVERHEAD_MAX: usize = VARINT_BYTES_MAX + 1 + 10 + VARINT_BYTES_MAX + 3 * VARINT_BYTES_MAX;
const VARINT_BYTES_MAX: usize = 5;
/// The fixed part of a batch.
pub(crate) const BATCH_HEADER_BYTES: usize = 61;

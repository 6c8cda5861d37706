//! Control records: the ends of transactions, invisible to applications.

use super::Record;

/// What a control record says. Key: version i16, type i16; value: version i16, coordinator epoch i32 (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    Abort {
        coordinator_epoch: i32,
    },
    Commit {
        coordinator_epoch: i32,
    },
    /// Of a kind that transactions do not use, such as those of Kafka's own quorum.
    Other {
        kind: i16,
    },
}

impl ControlRecord {
    /// `None`: not the key of a control record.
    pub fn read(record: &Record) -> Option<ControlRecord> {
        let key = record.key.as_ref()?;
        let kind = i16::from_be_bytes(*key.get(2..)?.first_chunk()?);
        if kind != ABORT && kind != COMMIT {
            return Some(ControlRecord::Other { kind });
        }
        let coordinator_epoch = i32::from_be_bytes(*record.value.as_ref()?.get(2..)?.first_chunk()?);
        Some(match kind {
            ABORT => ControlRecord::Abort { coordinator_epoch },
            _ => ControlRecord::Commit { coordinator_epoch },
        })
    }

    /// Key and value; `None` for kinds that are only read.
    pub(super) fn key_value(self) -> Option<([u8; 4], [u8; 6])> {
        let (kind, coordinator_epoch) = match self {
            ControlRecord::Abort { coordinator_epoch } => (ABORT, coordinator_epoch),
            ControlRecord::Commit { coordinator_epoch } => (COMMIT, coordinator_epoch),
            ControlRecord::Other { .. } => return None,
        };
        let (mut key, mut value) = ([0; 4], [0; 6]);
        key[2..].copy_from_slice(&kind.to_be_bytes());
        value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
        Some((key, value))
    }
}

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

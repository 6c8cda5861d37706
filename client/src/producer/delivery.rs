//! What became of a record.

use std::sync::{Arc, OnceLock};

use thalweg_model::{Offset, Timestamp};
use tokio::sync::Notify;

use crate::error::{ClientError, Result};

/// Where a record was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub partition: i32,
    /// [`Offset::NONE`] with acks=0, and for a record that an earlier try had written already.
    pub offset: Offset,
    /// The broker's time, if the topic stamps records, else [`Timestamp::NONE`].
    pub append_time: Timestamp,
}

/// The fate of one record, to be awaited or dropped. Dropping it takes nothing back.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) index: usize,
}

/// The fate of a batch, shared by its records.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    value: OnceLock<Fate>,
    changed: Notify,
}

#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Written {
        partition: i32,
        base_offset: Offset,
        append_time: Timestamp,
    },
    Failed(ClientError),
    /// The batch was too large and became two; records from `at` on are in the second.
    Split {
        at: usize,
        first: Arc<Outcome>,
        second: Arc<Outcome>,
    },
}

impl Delivery {
    /// Waits until the record is acknowledged as `acks` demands.
    ///
    /// # Errors
    /// The record was not, or may not have been, written: see [`ClientError::is_outcome_unknown`].
    pub async fn wait(mut self) -> Result<Delivered> {
        loop {
            match self.outcome.wait().await {
                Fate::Written { partition, base_offset, append_time } => {
                    let index = i64::try_from(self.index).unwrap_or(i64::MAX);
                    let offset = if base_offset < Offset::ZERO { Offset::NONE } else { base_offset.plus(index) };
                    return Ok(Delivered { partition, offset, append_time });
                }
                Fate::Failed(error) => return Err(error),
                Fate::Split { at, first, second } if self.index >= at => {
                    drop(first);
                    self = Delivery { outcome: second, index: self.index - at };
                }
                Fate::Split { first, .. } => self.outcome = first,
            }
        }
    }
}

impl Outcome {
    /// The first value stays.
    pub(crate) fn set(&self, fate: Fate) {
        let _ = self.value.set(fate);
        self.changed.notify_waiters();
    }

    /// `None` while it is open.
    #[cfg(test)]
    pub(crate) fn get(&self) -> Option<&Fate> {
        self.value.get()
    }

    pub(crate) async fn wait(&self) -> Fate {
        if let Some(fate) = self.value.get() {
            return fate.clone();
        }
        loop {
            // Registered before the look, so that a value set in between wakes us.
            let changed = self.changed.notified();
            if let Some(fate) = self.value.get() {
                return fate.clone();
            }
            changed.await;
        }
    }
}

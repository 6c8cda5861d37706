//! Cutting a log at its end, when a leader has other records than this replica.

use std::io;
use std::sync::Arc;

use thalweg_model::invariant::InvariantId;
use thalweg_model::{Offset, check};
use tracing::info;

use crate::error::LogError;
use crate::leader_epochs::{self, LeaderEpochs};
use crate::partition_log::{PartitionLog, active_of};
use crate::recovery::{self, Recovered, RecoveryPoint};

impl PartitionLog {
    /// Removes every batch that reaches to `offset` or beyond, and all that follows from them, as one step (F2).
    ///
    /// Returns the new log end, which may lie below `offset` if that is inside a batch. Durable on return.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`].
    pub fn truncate_to(&mut self, offset: Offset) -> Result<Offset, LogError> {
        if offset >= self.active.next_offset {
            return Ok(self.active.next_offset);
        }
        let log_start_offset = self.log_start_offset();
        if offset < log_start_offset {
            self.truncate_fully_and_start_at(offset)?;
            return Ok(offset);
        }
        info!(tp = %self.tp, %offset, log_end_offset = %self.active.next_offset, "truncating");
        let holder = self.segments.partition_point(|segment| segment.base_offset <= offset) - 1;
        let segment = Arc::clone(&self.segments[holder]);
        let end = segment.end();
        let (position, new_end) = match self.change(|_| segment.find(offset, end))? {
            Some(found) => (found.position, found.header.base_offset),
            None => (u64::from(end.size), end.next_offset.min(offset)),
        };
        if new_end < log_start_offset {
            // The cut takes the batch that the log's start lies in: nothing readable is left.
            self.truncate_fully_and_start_at(log_start_offset)?;
            return Ok(log_start_offset);
        }
        self.change(|log| {
            log.lower(new_end)?;
            // Derived files first, then the data from its end: each step leaves a log that recovery can read.
            if log.epochs.truncate_from_end(new_end) {
                log.epochs.write(&*log.place.disk, &log.place.dir.join(leader_epochs::FILE_NAME))?;
            }
            for later in log.segments[holder + 1..].iter().rev() {
                recovery::remove_segment(&log.place, later.base_offset)?;
            }
            let file = segment.log()?;
            file.set_len(position)?;
            // Before anything is appended: else a crash could keep the new bytes and the old ones behind them.
            file.sync_data()?;
            log.remove_snapshots(|snapshot| snapshot > new_end)?;
            log.place.sync_dir()?;
            Ok(new_end)
        })
        .and_then(|new_end| self.reload(new_end, log_start_offset).map(|()| new_end))
    }

    /// Empties the log and lets it begin at `offset` (F5). Durable on return.
    ///
    /// # Errors
    /// [`LogError::LogDirOffline`].
    pub fn truncate_fully_and_start_at(&mut self, offset: Offset) -> Result<(), LogError> {
        info!(tp = %self.tp, %offset, log_end_offset = %self.active.next_offset, "emptying the log");
        self.change(|log| {
            log.lower(Offset::ZERO)?;
            log.epochs = LeaderEpochs::default();
            log.place.remove_named(leader_epochs::FILE_NAME)?;
            log.remove_snapshots(|_| true)?;
            for segment in log.segments.iter().rev() {
                recovery::remove_segment(&log.place, segment.base_offset)?;
            }
            Ok(())
        })?;
        self.reload(offset, offset)
    }

    /// Makes sure that no checkpoint promises more than `end`, before the log is cut there.
    fn lower(&mut self, end: Offset) -> io::Result<()> {
        self.generation += 1;
        if self.flushed_offset() > end {
            self.view.publish_flushed(end);
        }
        self.dir.lower_recovery_point(&self.tp, end)
    }

    /// Opens the log anew after a cut: everything derived is derived again.
    fn reload(&mut self, log_end_offset: Offset, log_start_offset: Offset) -> Result<(), LogError> {
        let point = RecoveryPoint::Known(log_end_offset);
        let recovered = recovery::recover(&self.place, &self.dir, &self.config, point, log_start_offset);
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(error) => {
                self.dir.fail("opening a truncated log", &io::Error::other(error.to_string()));
                return Err(LogError::Open(error));
            }
        };
        let Recovered { segments, builder, epochs, producers, snapshots, log_start_offset, .. } = recovered;
        self.change(|log| {
            log.active = active_of(&segments, builder, &log.config)?;
            Ok(())
        })?;
        (self.segments, self.epochs, self.producers, self.snapshots) = (segments, epochs, producers, snapshots);
        self.bytes_at_snapshot = 0;
        self.unsynced.clear();
        check!(InvariantId::Log3, self.active.next_offset == log_end_offset, "the log was cut elsewhere");
        self.view.publish_segments(self.segments.clone());
        self.view.publish_epochs(&self.epochs);
        self.view.publish_log_start(log_start_offset);
        self.view.publish_flushed(log_end_offset);
        self.view.publish_first_unstable(self.producers.first_unstable_offset());
        Ok(())
    }
}

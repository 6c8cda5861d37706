//! Group commit: what has to be synced is handed to another thread, the result comes back (REPLICATION G1).

use std::io;
use std::sync::Arc;

use thalweg_model::Offset;
use thalweg_world::disk::DiskFile;

use crate::dir_state::DirState;
use crate::place::Place;

/// The files of a log that were written since the last flush. One at a time per log.
#[derive(Debug)]
#[must_use = "the log hands out no other ticket before it hears of this one"]
pub struct FlushTicket {
    pub(crate) dir: Arc<DirState>,
    pub(crate) files: Vec<Arc<dyn DiskFile>>,
    /// Set when names were added or removed.
    pub(crate) names: Option<Arc<Place>>,
    pub(crate) up_to: Offset,
    pub(crate) generation: u64,
}

/// How a flush went; goes back to [`crate::PartitionLog::flushed`].
#[derive(Debug)]
#[must_use = "the log does not know that it is flushed until it is told"]
pub struct FlushOutcome {
    pub(crate) up_to: Offset,
    pub(crate) generation: u64,
    pub(crate) is_synced: bool,
}

impl FlushTicket {
    /// Syncs; blocks for as long as the disk takes. An error takes the log dir offline, and nothing is tried again.
    pub fn sync(self) -> FlushOutcome {
        let is_synced = match self.sync_all() {
            // Another log's failure may have lost pages of this one: the disk is not to be believed (G2).
            Ok(()) => !self.dir.is_offline(),
            Err(cause) => {
                self.dir.fail("a sync", &cause);
                false
            }
        };
        FlushOutcome { up_to: self.up_to, generation: self.generation, is_synced }
    }

    fn sync_all(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        match &self.names {
            Some(place) => place.sync_dir(),
            None => Ok(()),
        }
    }
}

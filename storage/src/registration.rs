//! What a log dir remembers of the broker that used it, so that a copy of the dir does not pass for it (REPLICATION B2).

use std::io;
use std::path::Path;

use thalweg_world::disk::Disk;
use tracing::warn;

use crate::checkpoint;
use crate::meta_properties::property;

/// The last registration of the broker, and how far the registries went at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// -1: it cannot be read.
    pub broker_epoch: i64,
    pub metadata_index: u64,
}

impl Registration {
    /// `None` before the first one.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Registration>> {
        let file = dir.join(NAME);
        let Some(bytes) = checkpoint::read_small(disk, &file)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let number = |key| property(&text, key)?.parse().ok();
        let read = number("broker.epoch").zip(number("metadata.index"));
        if read.is_none() {
            warn!(path = %file.display(), "it does not say which registration the directory is of; its records are not counted on");
        }
        let (broker_epoch, index) = read.unwrap_or((-1, 0));
        Ok(Some(Registration { broker_epoch, metadata_index: u64::try_from(index).unwrap_or(0) }))
    }

    /// Durable on return.
    pub(crate) fn write(self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let Registration { broker_epoch, metadata_index } = self;
        let text = format!("version=1\nbroker.epoch={broker_epoch}\nmetadata.index={metadata_index}\n");
        checkpoint::replace(disk, &dir.join(NAME), text.as_bytes())
    }
}

/// Ours; Kafka has none.
const NAME: &str = "thalweg.registration";

//! Makes the producer state and the transaction indexes again from a snapshot and the batches after it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_model::Offset;
use thalweg_wire::batch::BatchHeader;
use thalweg_wire::records::{ControlRecord, Records};
use thalweg_world::disk::DiskFile;
use tracing::warn;

use crate::batch_walk::{BatchWalk, FoundBatch};
use crate::checkpoint;
use crate::config::LogConfig;
use crate::place::{Place, SNAPSHOT};
use crate::producer_snapshot;
use crate::producer_state::{Marker, ProducedBatch, ProducerState};
use crate::segment::Segment;
use crate::txn_index;

/// A state and the offset up to which it knows the log.
pub(crate) struct Loaded {
    pub offset: Offset,
    pub state: ProducerState,
}

pub(crate) struct Replayed {
    pub state: ProducerState,
    pub txn_indexes_changed: u32,
}

/// The newest readable snapshot at or below `limit`. Unreadable ones are removed, from the disk and the set.
pub(crate) fn load_snapshot(
    place: &Place,
    config: &LogConfig,
    snapshots: &mut BTreeSet<Offset>,
    limit: Offset,
) -> io::Result<Option<Loaded>> {
    while let Some(offset) = snapshots.range(..=limit).next_back().copied() {
        let path = place.path(offset, SNAPSHOT);
        let bytes = match checkpoint::read_small(&*place.disk, &path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            other => other?,
        };
        if let Some(state) = bytes.and_then(|bytes| producer_snapshot::decode(&bytes, offset, config)) {
            return Ok(Some(Loaded { offset, state }));
        }
        warn!(path = %path.display(), "removing a producer snapshot that cannot be read; its state comes from the log");
        place.remove(offset, SNAPSHOT)?;
        snapshots.remove(&offset);
    }
    Ok(None)
}

/// Applies every batch from the snapshot's offset on, and makes the transaction indexes agree.
pub(crate) fn replay(segments: &[Arc<Segment>], config: &LogConfig, loaded: Option<Loaded>) -> io::Result<Replayed> {
    let Loaded { offset, state } = loaded.unwrap_or(Loaded { offset: Offset::ZERO, state: ProducerState::default() });
    let mut replayed = Replayed { state, txn_indexes_changed: 0 };
    let begin = segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1);
    for segment in &segments[begin..] {
        let end = segment.end();
        let mut aborted = Vec::new();
        if let Some(first) = segment.find(offset, end)? {
            let file = &**segment.log()?;
            let mut walk = BatchWalk::new(file, first.position, u64::from(end.size));
            while let Some(found) = walk.next_batch()? {
                let batch = produced(&found.header, marker_of(file, &found)?);
                aborted.extend(replayed.state.apply(&batch, config));
            }
        }
        let known = segment.txn_index.entries()?;
        let kept = known.iter().take_while(|entry| entry.last_offset < offset).count();
        let count = segment.txn_index.file().count()? as usize;
        if known[kept..] != aborted || count != known.len() {
            let kept = u32::try_from(kept).unwrap_or(u32::MAX);
            segment.txn_index.file().replace_from(kept, &txn_index::encode(&aborted))?;
            replayed.txn_indexes_changed += 1;
        }
    }
    Ok(replayed)
}

/// What the producer state has to know of a batch.
pub(crate) fn produced(header: &BatchHeader, marker: Option<Marker>) -> ProducedBatch {
    ProducedBatch {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        max_timestamp: header.max_timestamp,
        transactional: header.is_transactional(),
        marker,
    }
}

fn marker_of(file: &dyn DiskFile, found: &FoundBatch) -> io::Result<Option<Marker>> {
    if !found.header.is_control() || found.header.size_bytes() > CONTROL_BATCH_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; found.header.size_bytes()];
    let count = file.read_at(&mut bytes, found.position)?;
    Ok(if count == bytes.len() { parse_marker(&bytes) } else { None })
}

/// The transaction's end that a control batch tells of; `None` for other control batches.
pub(crate) fn parse_marker(bytes: &[u8]) -> Option<Marker> {
    let record = Records::open(&Bytes::copy_from_slice(bytes), CONTROL_BATCH_MAX).ok()?.next()?.ok()?;
    match ControlRecord::read(&record)? {
        ControlRecord::Commit { coordinator_epoch } => Some(Marker { committed: true, coordinator_epoch }),
        ControlRecord::Abort { coordinator_epoch } => Some(Marker { committed: false, coordinator_epoch }),
        ControlRecord::Other { .. } => None,
    }
}

/// Far above what one marker takes, so that no disk can make us read more.
pub(crate) const CONTROL_BATCH_MAX: usize = 4096;

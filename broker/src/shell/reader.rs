//! Reads what a fetch wants from the logs of this broker, as slices of files.

use std::sync::Arc;

use thalweg_model::{ErrorCode, LeaderEpoch, NodeId, Offset};
use thalweg_storage::{AbortedTxn, LogSlice};
use thalweg_world::send::FileSlice;
use tracing::error;

use super::fetch_wait::Parked;
use super::partitions::{LocalTopic, Partition, Visible};
use crate::api::error_map;
use crate::machine::fetch_session::{TopicKey, Wanted};
use crate::machine::follower::EpochEnd;
use crate::services::Services;

/// The partitions of one fetch, found once.
pub struct Reader<'a> {
    services: &'a Services,
    bounds: ReadBounds,
    wanted: &'a [Wanted],
    found: Vec<Result<Arc<Partition>, ErrorCode>>,
}

/// Bounds of a fetch as a whole.
#[derive(Clone, Debug)]
pub struct ReadBounds {
    pub bytes_max: usize,
    /// Up to the last stable offset, with the aborted transactions (read_committed).
    pub committed_only: bool,
    /// Whether a follower may answer.
    pub may_follow: bool,
    /// Where the client stands.
    pub client_rack: Option<String>,
}

/// What one partition gives.
#[derive(Clone, Debug)]
pub struct PartitionRead {
    pub error: ErrorCode,
    pub visible: Visible,
    pub slices: Vec<FileSlice>,
    /// `None` unless only committed records are read.
    pub aborted: Option<Vec<AbortedTxn>>,
    /// Where the epoch of the client's last record ended here, if the client is beyond it (KIP-320); then nothing else.
    pub diverging: Option<EpochEnd>,
    /// Who stands nearer to the client (KIP-392); then nothing else.
    pub preferred: Option<NodeId>,
}

impl PartitionRead {
    pub fn bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.length).sum()
    }

    /// Whether the client must hear something that is neither records nor an error.
    pub fn is_told_more(&self) -> bool {
        self.diverging.is_some() || self.preferred.is_some()
    }

    fn failed(error: ErrorCode, visible: Visible) -> PartitionRead {
        PartitionRead { error, visible, slices: Vec::new(), aborted: None, diverging: None, preferred: None }
    }
}

impl<'a> Reader<'a> {
    pub fn new(services: &'a Services, bounds: ReadBounds, wanted: &'a [Wanted]) -> Reader<'a> {
        let mut topic: Option<(&TopicKey, Option<Arc<LocalTopic>>)> = None;
        let mut found = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let key = &wanted.key.topic;
            // Partitions of one topic mostly stand together.
            if topic.as_ref().is_none_or(|(last, _)| *last != key) {
                topic = Some((key, local_topic(services, key)));
            }
            let local = topic.as_ref().and_then(|(_, local)| local.as_ref());
            found.push(find(services, wanted, local));
        }
        Reader { services, bounds, wanted, found }
    }

    /// Reads every partition within the bounds, in order: what comes first is given first.
    pub fn read_all(&self) -> Vec<PartitionRead> {
        let mut left = self.bounds.bytes_max;
        let mut any = false;
        let mut reads = Vec::with_capacity(self.wanted.len());
        for index in 0..self.wanted.len() {
            let read = self.read(index, left, !any);
            let bytes = usize::try_from(read.bytes()).unwrap_or(usize::MAX);
            any |= bytes > 0;
            left = left.saturating_sub(bytes);
            reads.push(read);
        }
        reads
    }

    /// Takes note of what consumers are given.
    pub fn count_out(&self, reads: &[PartitionRead]) {
        for (found, read) in self.found.iter().zip(reads) {
            let bytes = read.bytes();
            if let (Ok(partition), true) = (found, bytes > 0) {
                partition.count_out(bytes);
            }
        }
    }

    /// Asks to be told, as `index`, when the partition's visible end moves.
    pub fn park(&self, index: usize, parked: &Parked) {
        if let Some(Ok(partition)) = self.found.get(index) {
            partition.waiters.park(index, parked.wait());
        }
    }

    /// How many bytes the partition could give now; `None` if it cannot be read.
    pub fn available(&self, index: usize) -> Option<u64> {
        let read = self.read(index, self.bounds.bytes_max, true);
        (!read.error.is_error()).then(|| read.bytes())
    }

    fn read(&self, index: usize, bytes_left: usize, at_least_one: bool) -> PartitionRead {
        let (Some(found), Some(wanted)) = (self.found.get(index), self.wanted.get(index)) else {
            return PartitionRead::failed(ErrorCode::UnknownServerError, NOTHING_VISIBLE);
        };
        let partition = match found {
            Ok(partition) => partition,
            Err(error) => return PartitionRead::failed(*error, NOTHING_VISIBLE),
        };
        if !self.services.may_lead() {
            return PartitionRead::failed(ErrorCode::NotLeaderOrFollower, NOTHING_VISIBLE);
        }
        let leads = match partition.check_reader(wanted.current_leader_epoch, self.bounds.may_follow) {
            Ok(leads) => leads,
            Err(error) => return PartitionRead::failed(error, NOTHING_VISIBLE),
        };
        // Both bounds in one look (L9).
        let visible = partition.visible();
        if leads {
            if let preferred @ Some(_) = self.nearer(partition) {
                return PartitionRead { preferred, ..PartitionRead::failed(ErrorCode::None, visible) };
            }
            if let diverging @ Some(_) = diverging(partition, wanted) {
                return PartitionRead { diverging, ..PartitionRead::failed(ErrorCode::None, visible) };
            }
        }
        let bound = if self.bounds.committed_only { visible.last_stable_offset } else { visible.high_watermark };
        let bytes_max = usize::try_from(wanted.max_bytes).unwrap_or(0).min(bytes_left);
        match slices(partition, wanted.fetch_offset, bound, bytes_max, at_least_one) {
            Ok(slices) => {
                let aborted = self.bounds.committed_only.then(|| aborted(partition, wanted.fetch_offset, &slices));
                let slices = slices.into_iter().map(file_slice).collect();
                PartitionRead { error: ErrorCode::None, visible, slices, aborted, diverging: None, preferred: None }
            }
            Err(error) => {
                let code = match error_map::read(&error) {
                    // The leader has given it out already.
                    ErrorCode::OffsetOutOfRange if !leads && wanted.fetch_offset > visible.log_start_offset => {
                        ErrorCode::OffsetNotAvailable
                    }
                    code => code,
                };
                if code == ErrorCode::KafkaStorageError {
                    error!(tp = %partition.tp(), offset = %wanted.fetch_offset, %error, "a log cannot be read");
                }
                PartitionRead::failed(code, visible)
            }
        }
    }
}

impl Reader<'_> {
    /// An in-sync replica in the client's rack, if the leader stands elsewhere.
    fn nearer(&self, partition: &Partition) -> Option<NodeId> {
        let rack = self.bounds.client_rack.as_deref()?;
        let image = self.services.image();
        let stands_there = |id: &NodeId| {
            let broker = image.brokers.get(id).filter(|broker| !broker.fenced && !broker.shutting_down);
            broker.is_some_and(|broker| broker.rack.as_deref() == Some(rack))
        };
        if stands_there(&self.services.node_id()) {
            return None;
        }
        let isr = &image.partition(partition.topic.as_str(), partition.index)?.isr;
        isr.iter().copied().find(stands_there)
    }
}

/// Where the epoch of the client's last record ended here, if its position lies beyond that. A log that knows no epochs cannot
/// tell.
fn diverging(partition: &Partition, wanted: &Wanted) -> Option<EpochEnd> {
    let asked = Some(wanted.last_fetched_epoch).filter(|asked| *asked >= LeaderEpoch(0))?;
    let (epoch, end_offset) = partition.view().epoch_end_offset(asked)?;
    let diverges = epoch < asked || end_offset < wanted.fetch_offset;
    diverges.then_some(EpochEnd { epoch, end_offset })
}

/// Whole batches from `from` on, over as many segments as the bounds allow.
pub(crate) fn slices(
    partition: &Partition,
    from: Offset,
    bound: Offset,
    bytes_max: usize,
    at_least_one: bool,
) -> Result<Vec<LogSlice>, thalweg_storage::ReadError> {
    let view = partition.view();
    let first = view.read(from, bound, bytes_max, at_least_one)?;
    let mut slices = Vec::with_capacity(1);
    let mut left = bytes_max.saturating_sub(first.len);
    let (mut next, mut more) = (first.next_offset, first.to_segment_end);
    if first.is_empty() {
        return Ok(slices);
    }
    slices.push(first);
    while more && left > 0 && next < bound && slices.len() < SLICES_MAX {
        // The log may have been cut behind what was read: what is there is answered.
        let Ok(slice) = view.read(next, bound, left, false) else { break };
        if slice.is_empty() {
            break;
        }
        left = left.saturating_sub(slice.len);
        (next, more) = (slice.next_offset, slice.to_segment_end);
        slices.push(slice);
    }
    Ok(slices)
}

fn aborted(partition: &Partition, from: Offset, slices: &[LogSlice]) -> Vec<AbortedTxn> {
    let Some((first, last)) = slices.first().zip(slices.last()) else { return Vec::new() };
    let from = first.first_offset.min(from);
    partition.view().aborted_transactions(from, last.next_offset).unwrap_or_else(|error| {
        error!(tp = %partition.tp(), %error, "the transaction index cannot be read");
        Vec::new()
    })
}

pub(crate) fn file_slice(slice: LogSlice) -> FileSlice {
    FileSlice { file: slice.file, position: slice.position, length: slice.len as u64 }
}

fn local_topic(services: &Services, key: &TopicKey) -> Option<Arc<LocalTopic>> {
    match key {
        TopicKey::Name(name) => services.partitions.topic(name.as_str()),
        TopicKey::Id(id) => services.partitions.topic_by_id(*id),
    }
}

fn find(services: &Services, wanted: &Wanted, local: Option<&Arc<LocalTopic>>) -> Result<Arc<Partition>, ErrorCode> {
    let by_name = matches!(wanted.key.topic, TopicKey::Name(_));
    if let Some(partition) = local.and_then(|local| local.partition(wanted.key.partition)) {
        // A session by name goes on with the life that it began with.
        let other_life = by_name && !wanted.topic_id.is_zero() && wanted.topic_id != partition.topic_id;
        return if other_life { Err(ErrorCode::InconsistentTopicId) } else { Ok(Arc::clone(partition)) };
    }
    let image = services.image();
    let (topic, unknown) = match &wanted.key.topic {
        TopicKey::Name(name) => (image.topic(name.as_str()), ErrorCode::UnknownTopicOrPartition),
        TopicKey::Id(id) => (image.topic_by_id(*id), ErrorCode::UnknownTopicId),
    };
    match topic {
        None => Err(unknown),
        Some(topic) => Err(services.absent(topic.name.as_str(), wanted.key.partition)),
    }
}

/// What an error says of a partition that cannot be looked at.
const NOTHING_VISIBLE: Visible =
    Visible { high_watermark: Offset::NONE, last_stable_offset: Offset::NONE, log_start_offset: Offset::NONE };

/// Files that one partition's share of an answer may span.
const SLICES_MAX: usize = 16;

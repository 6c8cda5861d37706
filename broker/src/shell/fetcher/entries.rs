//! What a fetcher keeps of its partitions: where each stands, and what the leader has not been told yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use thalweg_model::{MonoTime, PartitionIndex, TopicId};
use tokio::time::Instant;

use super::Next;
use crate::machine::follower::{FetchId, FetchPosition};
use crate::machine::move_pace::Progress;
use crate::shell::partitions::Partition;

/// Every partition that is fetched from one leader, by its number.
#[derive(Debug, Default)]
pub struct Entries {
    all: BTreeMap<u64, Entry>,
    by_key: HashMap<(TopicId, PartitionIndex), u64>,
    /// Ready, with a position that the leader does not know.
    news: BTreeSet<u64>,
    /// Whose answers their owners are carrying out.
    in_hand: BTreeSet<u64>,
    /// Whose records a disk is still syncing.
    unflushed: BTreeSet<u64>,
    /// When to ask again.
    later: BTreeSet<(Instant, u64)>,
    /// Left out of requests until their owners ask again.
    waiting: BTreeSet<u64>,
    /// In the leader's session, but not wanted any more.
    forgotten: Vec<(TopicId, PartitionIndex)>,
}

#[derive(Debug)]
struct Entry {
    partition: Arc<Partition>,
    id: FetchId,
    position: FetchPosition,
    is_in_session: bool,
    /// How long it leaves off once its owner is done with the last answer.
    owed: Option<Duration>,
    /// Leaves off for what it owes: until then nothing that its owner has to report matters.
    is_held: bool,
    later: Option<Instant>,
    /// Of a move to here.
    progress: Option<Progress>,
    /// Waits since the last answer that could be used.
    waits: u32,
    /// Which request named which fetch; the last few.
    sent: Vec<(u64, FetchId, FetchPosition)>,
}

impl Entries {
    pub fn ask(&mut self, partition: &Arc<Partition>, id: FetchId, position: FetchPosition) {
        let number = partition.number;
        let entry = self.all.entry(number).or_insert_with(|| Entry {
            partition: Arc::clone(partition),
            id,
            position,
            is_in_session: false,
            owed: None,
            is_held: false,
            later: None,
            progress: None,
            waits: 0,
            sent: Vec::new(),
        });
        (entry.id, entry.position) = (id, position);
        // In sync meanwhile, it is waited for.
        if entry.is_held && partition.is_arriving() {
            return;
        }
        entry.is_held = false;
        self.waiting.remove(&number);
        if let Some(until) = entry.later.take() {
            self.later.remove(&(until, number));
        }
        self.by_key.insert((partition.topic_id, partition.index), number);
        self.news.insert(number);
        if position.counted < position.fetch_offset {
            self.unflushed.insert(number);
        } else {
            self.unflushed.remove(&number);
        }
    }

    pub fn forget(&mut self, number: u64) {
        self.news.remove(&number);
        self.unflushed.remove(&number);
        self.waiting.remove(&number);
        let Some(entry) = self.all.remove(&number) else { return };
        let key = (entry.partition.topic_id, entry.partition.index);
        if self.by_key.get(&key) == Some(&number) {
            self.by_key.remove(&key);
        }
        if let Some(until) = entry.later {
            self.later.remove(&(until, number));
        }
        if entry.is_in_session {
            self.forgotten.push(key);
        }
    }

    /// The owner is given an answer.
    pub fn in_hand(&mut self, number: u64) {
        self.in_hand.insert(number);
    }

    /// The owner is done with it. `wait_max`: the longest that a partition is left alone; the first times it is much shorter,
    /// because a new leader is often only a moment behind us.
    pub fn done(&mut self, number: u64, next: Next, wait_max: Duration) {
        self.in_hand.remove(&number);
        match next {
            Next::Ask(id, position) => {
                let Some(entry) = self.all.get_mut(&number) else { return };
                entry.waits = 0;
                let partition = Arc::clone(&entry.partition);
                self.ask(&partition, id, position);
            }
            Next::Stands => {}
            Next::Later => {
                let Some(entry) = self.all.get_mut(&number) else { return };
                let wait = wait_max.min(WAIT_FIRST * 2u32.pow(entry.waits.min(WAITS_MAX)));
                entry.waits += 1;
                self.put_off(number, wait);
            }
            Next::Gone => self.forget(number),
        }
    }

    /// Leaves a partition out of requests for a while; its owner asks again then.
    fn put_off(&mut self, number: u64, wait: Duration) {
        self.news.remove(&number);
        self.unflushed.remove(&number);
        let Some(entry) = self.all.get_mut(&number) else { return };
        let later = Instant::now() + wait;
        if std::mem::take(&mut entry.is_in_session) {
            self.forgotten.push((entry.partition.topic_id, entry.partition.index));
        }
        if let Some(before) = entry.later.replace(later) {
            self.later.remove(&(before, number));
        }
        self.later.insert((later, number));
        self.waiting.insert(number);
    }

    /// A partition is to leave off for this long when its owner is done.
    pub fn owes(&mut self, number: u64, wait: Duration) {
        if let Some(entry) = self.all.get_mut(&number) {
            entry.owed = Some(wait);
        }
    }

    /// Whether a partition on its way in, which lacks so many records now, comes no nearer to its leader.
    pub fn is_stuck(&mut self, number: u64, now: MonoTime, lag: i64) -> bool {
        let Some(entry) = self.all.get_mut(&number) else { return false };
        entry.progress.get_or_insert_with(|| Progress::new(now, lag)).is_stuck(now, lag)
    }

    /// Its owner is done: it leaves off for as long as it owes.
    pub fn pay(&mut self, number: u64) {
        let Some(entry) = self.all.get_mut(&number).filter(|entry| entry.partition.is_arriving()) else { return };
        if let Some(wait) = entry.owed.take() {
            entry.is_held = true;
            self.put_off(number, wait);
        }
    }

    /// Those whose time to wait is over.
    pub fn awake(&mut self, now: Instant) -> Vec<Arc<Partition>> {
        let mut awake = Vec::new();
        while let Some((until, number)) = self.later.first().copied().filter(|(until, _)| *until <= now) {
            self.later.remove(&(until, number));
            // Until its owner asks, it stays out of requests.
            let Some(entry) = self.all.get_mut(&number) else { continue };
            entry.is_held = false;
            awake.push(Arc::clone(&entry.partition));
        }
        awake
    }

    pub fn next_wakeup(&self) -> Option<Instant> {
        self.later.first().map(|(until, _)| *until)
    }

    pub fn nothing_in_hand(&self) -> bool {
        self.in_hand.is_empty()
    }

    pub fn any_ready(&self) -> bool {
        self.all.len() > self.waiting.len()
    }

    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    pub fn any_unflushed(&self) -> bool {
        !self.unflushed.is_empty()
    }

    /// What request number `request` names: what is new, or everything if it `is_first` in its session.
    pub fn take_asked(&mut self, request: u64, is_first: bool) -> Vec<(Arc<Partition>, FetchPosition)> {
        let mut numbers = std::mem::take(&mut self.news);
        if is_first {
            numbers.extend(self.all.keys().filter(|number| !self.waiting.contains(number)));
        }
        let mut asked = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Some(entry) = self.all.get_mut(&number) else { continue };
            entry.is_in_session = true;
            entry.sent.push((request, entry.id, entry.position));
            if entry.sent.len() > SENT_MAX {
                entry.sent.remove(0);
            }
            asked.push((Arc::clone(&entry.partition), entry.position));
        }
        asked
    }

    pub fn take_forgotten(&mut self) -> Vec<(TopicId, PartitionIndex)> {
        std::mem::take(&mut self.forgotten)
    }

    /// The fetch that an answer to request number `request` is for.
    pub fn answered(
        &self,
        key: (TopicId, PartitionIndex),
        request: u64,
    ) -> Option<(Arc<Partition>, FetchId, FetchPosition)> {
        let entry = self.all.get(self.by_key.get(&key)?)?;
        let (_, id, position) = entry.sent.iter().rev().find(|(sent, _, _)| *sent <= request)?;
        Some((Arc::clone(&entry.partition), *id, *position))
    }

    /// The connection is gone, and its session: everything is news to the next one.
    pub fn start_over(&mut self) {
        self.forgotten.clear();
        for (number, entry) in &mut self.all {
            entry.is_in_session = false;
            entry.sent.clear();
            if !self.waiting.contains(number) {
                self.news.insert(*number);
            }
        }
    }
}

/// More requests than are ever under way.
const SENT_MAX: usize = 4;
const WAIT_FIRST: Duration = Duration::from_millis(5);
/// Doublings; the property is the limit long before.
const WAITS_MAX: u32 = 16;

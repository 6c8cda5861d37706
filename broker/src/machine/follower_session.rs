//! The fetch session of one follower at the leaders that one broker has for it (KIP-227).
//!
//! A session lives as long as its connection. What the follower names stands until it is named again or forgotten. Unlike a
//! consumer's, the session does not look at every partition for each request: only at those that were named and those that
//! have news since.
//!
//! ```text
//! standing --told, named--> to be looked at --nothing new--> standing
//!                              |        +----marks alone--> standing
//!                              +--records, an error, an end of an epoch--> answered --named again--> to be looked at
//! ```
//! An answered partition is not looked at before it is named again: its position is an old one.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{ErrorCode, Offset, PartitionIndex, TopicId};

use super::follower::FetchPosition;
use super::leader::FollowerId;

/// What one follower asks, partition by partition.
#[derive(Debug, Default)]
pub struct FollowerSession {
    /// `None` before the first request.
    follower: Option<FollowerId>,
    /// That the next request must carry; 0 before the first.
    epoch: i32,
    slots: BTreeMap<Slot, Asked>,
    slot_of: BTreeMap<(TopicId, PartitionIndex), Slot>,
    look: BTreeSet<Slot>,
    next_slot: usize,
    /// The slot that comes first in the next answer, so that a hot partition cannot starve the others.
    first: Slot,
}

/// Names a partition within a session; never used again in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub usize);

/// One partition of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub position: FetchPosition,
    pub bytes_max: i32,
    is_answered: bool,
}

/// One request.
#[derive(Clone, Debug)]
pub struct FollowerRequest {
    pub follower: FollowerId,
    /// 0 starts anew.
    pub session_epoch: i32,
    pub asked: Vec<(TopicId, PartitionIndex, FetchPosition, i32)>,
    pub forgotten: Vec<(TopicId, PartitionIndex)>,
}

/// What a request changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// To be checked and noted by their leaders, in the order of the request.
    pub named: Vec<Slot>,
    /// Slots that are no more.
    pub gone: Vec<Slot>,
}

/// What became of a look at a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Nothing to say.
    Quiet,
    /// No records, but the follower hears of a higher watermark or log start.
    Marks { high_watermark: Offset, log_start_offset: Offset },
    /// Anything else.
    Answered,
}

impl FollowerSession {
    /// Takes a request in.
    ///
    /// # Errors
    /// `FETCH_SESSION_ID_NOT_FOUND`: there is none, or it is another follower's or life's. `INVALID_FETCH_SESSION_EPOCH`. The
    /// follower starts anew.
    pub fn begin(&mut self, request: FollowerRequest) -> Result<Begun, ErrorCode> {
        let mut begun = Begun::default();
        if request.session_epoch == 0 {
            begun.gone.extend(std::mem::take(&mut self.slots).into_keys());
            self.slot_of.clear();
            self.look.clear();
            self.follower = Some(request.follower);
        } else if self.follower != Some(request.follower) {
            return Err(ErrorCode::FetchSessionIdNotFound);
        } else if request.session_epoch != self.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        self.epoch = request.session_epoch.checked_add(1).unwrap_or(1);
        for key in request.forgotten {
            if let Some(slot) = self.slot_of.remove(&key) {
                self.slots.remove(&slot);
                self.look.remove(&slot);
                begun.gone.push(slot);
            }
        }
        for (topic_id, partition, position, bytes_max) in request.asked {
            let slot = *self.slot_of.entry((topic_id, partition)).or_insert_with(|| {
                self.next_slot += 1;
                Slot(self.next_slot)
            });
            self.slots.insert(slot, Asked { topic_id, partition, position, bytes_max, is_answered: false });
            self.look.insert(slot);
            begun.named.push(slot);
        }
        Ok(begun)
    }

    /// Whose session it is.
    pub fn follower(&self) -> Option<FollowerId> {
        self.follower
    }

    pub fn asked(&self, slot: Slot) -> Option<&Asked> {
        self.slots.get(&slot)
    }

    /// Something happened at a partition.
    pub fn told(&mut self, slot: Slot) {
        if self.slots.get(&slot).is_some_and(|asked| !asked.is_answered) {
            self.look.insert(slot);
        }
    }

    /// What there is to look at, in the order in which it is answered.
    pub fn to_look_at(&self) -> Vec<Slot> {
        self.look.range(self.first..).chain(self.look.range(..self.first)).copied().collect()
    }

    /// Takes note of a look; whoever is not looked at stays on the list.
    pub fn looked(&mut self, slot: Slot, outcome: Looked) {
        self.look.remove(&slot);
        let Some(asked) = self.slots.get_mut(&slot) else { return };
        match outcome {
            Looked::Quiet => {}
            Looked::Marks { high_watermark, log_start_offset } => {
                asked.position.high_watermark = high_watermark;
                asked.position.log_start_offset = log_start_offset;
            }
            Looked::Answered => {
                asked.is_answered = true;
                self.first = Slot(slot.0 + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_model::{BrokerEpoch, LeaderEpoch, NodeId};

    use super::*;

    const FOLLOWER: FollowerId = FollowerId { id: NodeId(2), broker_epoch: BrokerEpoch(7) };

    fn position(offset: i64) -> FetchPosition {
        FetchPosition {
            leader_epoch: LeaderEpoch(1),
            fetch_offset: Offset(offset),
            last_fetched_epoch: LeaderEpoch(1),
            counted: Offset(offset),
            log_start_offset: Offset::ZERO,
            high_watermark: Offset::ZERO,
        }
    }

    fn key(partition: i32) -> (TopicId, PartitionIndex) {
        (TopicId([1; 16]), PartitionIndex(partition))
    }

    fn request(session_epoch: i32, asked: &[(i32, i64)], forgotten: &[i32]) -> FollowerRequest {
        let asked =
            asked.iter().map(|(partition, offset)| (key(*partition).0, key(*partition).1, position(*offset), 100));
        let forgotten = forgotten.iter().map(|partition| key(*partition)).collect();
        FollowerRequest { follower: FOLLOWER, session_epoch, asked: asked.collect(), forgotten }
    }

    fn partitions(session: &FollowerSession) -> Vec<i32> {
        session.to_look_at().into_iter().map(|slot| session.asked(slot).unwrap().partition.0).collect()
    }

    #[test]
    fn only_what_was_named_or_has_news_is_looked_at() {
        let mut session = FollowerSession::default();
        let begun = session.begin(request(0, &[(0, 5), (1, 5), (2, 5)], &[])).unwrap();
        for slot in &begun.named {
            session.looked(*slot, Looked::Quiet);
        }
        session.begin(request(1, &[(1, 6)], &[])).unwrap();
        assert_eq!(partitions(&session), [1]);
        session.told(begun.named[2]);
        assert_eq!(partitions(&session), [1, 2]);
    }

    #[test]
    fn an_answered_partition_waits_to_be_named_again() {
        let mut session = FollowerSession::default();
        let slot = session.begin(request(0, &[(0, 5)], &[])).unwrap().named[0];
        session.looked(slot, Looked::Answered);
        session.told(slot);
        assert_eq!(partitions(&session), [0; 0]);
        session.begin(request(1, &[(0, 9)], &[])).unwrap();
        assert_eq!(partitions(&session), [0]);
        assert_eq!(session.asked(slot).unwrap().position.fetch_offset, Offset(9));
    }

    #[test]
    fn marks_alone_leave_the_position_standing() {
        let mut session = FollowerSession::default();
        let slot = session.begin(request(0, &[(0, 5)], &[])).unwrap().named[0];
        session.looked(slot, Looked::Marks { high_watermark: Offset(4), log_start_offset: Offset(2) });
        session.told(slot);
        assert_eq!(partitions(&session), [0]);
        let position = session.asked(slot).unwrap().position;
        assert_eq!((position.high_watermark, position.log_start_offset), (Offset(4), Offset(2)));
    }

    #[test]
    fn a_hot_partition_goes_behind_the_others() {
        let mut session = FollowerSession::default();
        let named = session.begin(request(0, &[(0, 5), (1, 5), (2, 5)], &[])).unwrap().named;
        session.looked(named[0], Looked::Answered);
        session.begin(request(1, &[(0, 6)], &[])).unwrap();
        assert_eq!(partitions(&session), [1, 2, 0]);
    }

    #[test]
    fn another_life_or_a_wrong_epoch_starts_over() {
        let mut session = FollowerSession::default();
        assert_eq!(session.begin(request(1, &[(0, 5)], &[])), Err(ErrorCode::FetchSessionIdNotFound));
        let first = session.begin(request(0, &[(0, 5)], &[])).unwrap();
        assert_eq!(session.begin(request(2, &[(0, 6)], &[])), Err(ErrorCode::InvalidFetchSessionEpoch));
        let other = FollowerId { broker_epoch: BrokerEpoch(8), ..FOLLOWER };
        let foreign = FollowerRequest { follower: other, ..request(1, &[(0, 6)], &[]) };
        assert_eq!(session.begin(foreign), Err(ErrorCode::FetchSessionIdNotFound));
        let again = session.begin(request(0, &[(1, 5)], &[])).unwrap();
        assert_eq!((again.gone, partitions(&session)), (first.named, vec![1]));
    }

    #[test]
    fn a_forgotten_partition_is_gone() {
        let mut session = FollowerSession::default();
        let named = session.begin(request(0, &[(0, 5), (1, 5)], &[])).unwrap().named;
        assert_eq!(session.begin(request(1, &[], &[0])).unwrap().gone, [named[0]]);
        session.told(named[0]);
        assert_eq!(partitions(&session), [1]);
    }
}

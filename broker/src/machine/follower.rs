//! A partition's follower within one leader epoch: what it asks for and what it makes of the answers (REPLICATION 3.6).
//!
//! ```text
//! ready --next_fetch--> asked --answered--> appending, truncating or waiting --(the log has changed)--> ready
//!   ^                     |
//!   +-----abandoned-------+
//! ```
//! One fetch stands at a time. An answer to any other one is ignored, however well it seems to fit: a delayed "diverging"
//! would cut off what was copied since (F1).

use thalweg_model::{ErrorCode, LeaderEpoch, NodeId, Offset, mutant};

use super::replica::LogEnds;

/// What a follower knows beyond its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    leader: NodeId,
    epoch: LeaderEpoch,
    asked: Option<(FetchId, FetchPosition)>,
}

/// Names one fetch of one replica; never used again while its broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// Where a follower stands, as it tells its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPosition {
    pub leader_epoch: LeaderEpoch,
    /// Our log end offset.
    pub fetch_offset: Offset,
    /// Of the last record; [`LeaderEpoch::NONE`] if there is none.
    pub last_fetched_epoch: LeaderEpoch,
    /// K: below it the leader may count us (REPLICATION 3.1, F4). Never above `fetch_offset`.
    pub counted: Offset,
    pub log_start_offset: Offset,
    /// As far as we know; a leader that knows more says so soon.
    pub high_watermark: Offset,
}

/// Where an epoch ends in the leader's log: the largest one that it knows and that is not above the asked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    pub epoch: LeaderEpoch,
    /// Exclusive.
    pub end_offset: Offset,
}

/// What the leader answered to one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchAnswer {
    /// Records, perhaps none, that begin where the fetch stood.
    Records {
        high_watermark: Offset,
        log_start_offset: Offset,
    },
    Diverging {
        end: EpochEnd,
        log_start_offset: Offset,
    },
    Error {
        error: ErrorCode,
        log_start_offset: Offset,
    },
}

/// What is to be done with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerAction {
    /// An answer to something that we do not ask any more.
    Ignore,
    /// Append the records as they are, then [`super::replica::Replica::copied`].
    Append { high_watermark: Offset, log_start_offset: Offset },
    /// Remove everything from there on, then [`super::replica::Replica::truncated`] (F2).
    TruncateTo(Offset),
    /// Remove everything and begin there, then [`super::replica::Replica::truncated`] (F5).
    StartAt(Offset),
    /// The leader cannot serve us now: ask again after news of it, or after a while.
    Wait(ErrorCode),
}

impl Follower {
    pub fn new(leader: NodeId, epoch: LeaderEpoch) -> Follower {
        Follower { leader, epoch, asked: None }
    }

    pub fn leader(&self) -> NodeId {
        self.leader
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The fetch that stands.
    pub fn asked(&self) -> Option<(FetchId, FetchPosition)> {
        self.asked
    }

    pub(super) fn ask(&mut self, id: FetchId, position: FetchPosition) {
        self.asked = Some((id, position));
    }

    /// The standing fetch reports more, from the same place; its answer is as good.
    pub(super) fn report(&mut self, counted: Offset, high_watermark: Offset) {
        if let Some((_, position)) = &mut self.asked {
            position.counted = counted.min(position.fetch_offset);
            position.high_watermark = high_watermark;
        }
    }

    /// No answer will come, or none is wanted any more.
    pub fn abandon(&mut self) {
        self.asked = None;
    }

    /// Decides what an answer means for the log.
    ///
    /// A log that lies wholly below the leader's start is given up unless it is known to be committed: there is nothing left to
    /// compare it with, and our own start moves up durably only with a checkpoint. Else: 1. we keep what a deposed leader wrote
    /// below the leader's start; 2. the watermark passes it; 3. a crash brings our old start back; 4. we serve it.
    ///
    /// `end_of_epoch`: the largest epoch of our own log not above the asked one, and its exclusive end.
    pub(super) fn answered(
        &mut self,
        id: FetchId,
        answer: FetchAnswer,
        log: LogEnds,
        high_watermark: Offset,
        end_of_epoch: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
    ) -> FollowerAction {
        let is_asked = |asked: &(FetchId, FetchPosition)| asked.0 == id || mutant!("fetch-matches");
        let Some((_, position)) = self.asked.filter(is_asked) else { return FollowerAction::Ignore };
        self.asked = None;
        if position.fetch_offset != log.log_end_offset {
            return FollowerAction::Ignore;
        }
        let is_unproven = |end: Offset, leader_start: Offset| {
            end <= leader_start && high_watermark < leader_start && !mutant!("unproven-below-start")
        };
        match answer {
            FetchAnswer::Records { log_start_offset, .. } if is_unproven(log.log_end_offset, log_start_offset) => {
                FollowerAction::StartAt(log_start_offset)
            }
            FetchAnswer::Records { high_watermark, log_start_offset } => {
                FollowerAction::Append { high_watermark, log_start_offset }
            }
            FetchAnswer::Diverging { end: EpochEnd { epoch, end_offset }, log_start_offset } => {
                // What we have of that epoch may end earlier than the leader's share of it.
                let own = end_of_epoch(epoch).map_or(end_offset, |(_, end)| end);
                let to = end_offset.min(own);
                // Below our start are records that were committed and deleted: an empty log keeps its place above them, else
                // its next leader could give their offsets away again. Only where the leader lacks some of them, too, is
                // nothing of the leader's to be left out.
                if is_unproven(to, log_start_offset) {
                    FollowerAction::StartAt(log_start_offset)
                } else if to > log.log_start_offset || (to == log.log_start_offset && !mutant!("place-of-deleted")) {
                    FollowerAction::TruncateTo(to)
                } else {
                    FollowerAction::StartAt(log_start_offset.max(Offset::ZERO))
                }
            }
            FetchAnswer::Error { error: ErrorCode::OffsetOutOfRange, log_start_offset }
                if log_start_offset > position.fetch_offset =>
            {
                FollowerAction::StartAt(log_start_offset)
            }
            FetchAnswer::Error { error, .. } => FollowerAction::Wait(error),
        }
    }
}

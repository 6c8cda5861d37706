//! What the owner of a log does while another broker leads: copies its records.

use bytes::BytesMut;
use thalweg_model::{LeaderEpoch, Offset};
use thalweg_storage::{AppendError, AppendOrigin};
use thalweg_wire::batch::BatchHeader;
use tracing::{debug, warn};

use super::Owner;
use crate::machine::follower::{FetchAnswer, FetchId, FollowerAction};
use crate::shell::fetcher::{AnswerDuty, FetchLink, Next};

/// A leader's answer on its way into a log.
#[derive(Debug)]
pub struct Copied {
    pub answer: FetchAnswer,
    /// Whole batches, checked; empty unless the answer brings records.
    pub records: BytesMut,
    /// Said when the answer is carried out.
    pub duty: AnswerDuty,
}

impl Owner {
    /// Follows through `link` from now on.
    pub(super) fn follow(&mut self, link: FetchLink) {
        self.unfollow();
        self.link = Some(link);
        self.ask_again();
    }

    /// Asks from where the log ends now, whatever was asked before.
    pub fn ask_again(&mut self) {
        if let Next::Ask(id, position) = self.next_fetch()
            && let Some(link) = &self.link
        {
            link.ask(&self.partition, id, position);
        }
    }

    pub(super) fn unfollow(&mut self) {
        if let Some(link) = self.link.take() {
            link.forget(&self.partition);
        }
    }

    /// The leader has nothing but a higher watermark or log start; the fetch `id` stands.
    pub fn marks_heard(&mut self, id: FetchId, high_watermark: Offset, leader_start: Offset) {
        let stands =
            self.replica.follower().and_then(|follower| follower.asked()).is_some_and(|(asked, _)| asked == id);
        if stands {
            self.copied_up_to(self.replica.log_end_offset(), high_watermark);
            self.start_as(leader_start);
        }
    }

    /// Carries out a leader's answer, and says what is asked next.
    pub fn fetch_answered(&mut self, copied: Copied) {
        let Copied { answer, records, duty } = copied;
        let view = self.partition.view();
        let log_start_offset = view.log_start_offset();
        let end_of_epoch = |epoch| view.epoch_end_offset(epoch);
        let action = self.replica.fetch_answered(duty.id(), answer, log_start_offset, end_of_epoch);
        let next = match action {
            FollowerAction::Ignore => match self.replica.follower().map(|follower| follower.asked().is_some()) {
                // Its answer will come.
                Some(true) => Next::Stands,
                Some(false) => self.next_fetch(),
                None => Next::Gone,
            },
            FollowerAction::Append { high_watermark, log_start_offset } => {
                self.append_copy(records, high_watermark, log_start_offset)
            }
            FollowerAction::TruncateTo(to) => self.cut(|owner| owner.log.truncate_to(to).map(drop)),
            FollowerAction::StartAt(at) => self.cut(|owner| owner.log.truncate_fully_and_start_at(at)),
            FollowerAction::Wait(error) => {
                debug!(tp = %self.partition.tp(), %error, "the leader does not serve us, waiting");
                Next::Later
            }
        };
        duty.done(next);
    }

    fn append_copy(&mut self, mut records: BytesMut, high_watermark: Offset, leader_start: Offset) -> Next {
        let moment = self.env.clock.wall();
        let had_unflushed = self.unflushed() > 0;
        let mut refused = None;
        if let Some(mut batches) = batches(&mut records) {
            let results = self.log.append_many(&mut batches, moment, LeaderEpoch::NONE, AppendOrigin::Replica);
            refused = results.into_iter().find_map(Result::err);
        }
        let log_end_offset = self.partition.view().log_end_offset();
        self.copied_up_to(log_end_offset, high_watermark);
        if !had_unflushed && self.unflushed() > 0 {
            self.flush_due = self.due_after(self.env.clock.mono());
        }
        match refused {
            None => {}
            Some(AppendError::LogDirOffline) => {
                self.fail();
                return Next::Gone;
            }
            Some(error) => {
                warn!(tp = %self.partition.tp(), %error, "the leader's records cannot be appended, waiting");
                return Next::Later;
            }
        }
        if self.start_as(leader_start) { self.next_fetch() } else { Next::Gone }
    }

    /// Lets go of records that the leader has let go of; never of more than is committed (G9). `false`: the disk failed.
    fn start_as(&mut self, leader_start: Offset) -> bool {
        let start = leader_start.min(self.replica.high_watermark());
        if start > self.partition.view().log_start_offset() {
            if self.log.advance_log_start(start).is_err() {
                self.fail();
                return false;
            }
            self.log_started();
        }
        true
    }

    fn copied_up_to(&mut self, log_end_offset: Offset, leader_high_watermark: Offset) {
        self.is_behind = leader_high_watermark > log_end_offset;
        if let Some(high_watermark) = self.replica.copied(log_end_offset, leader_high_watermark) {
            self.log.advance_high_watermark(high_watermark);
            self.partition.publish_high_watermark(high_watermark);
            self.partition.waiters.tell();
        }
    }

    fn cut(&mut self, cut: impl FnOnce(&mut Owner) -> Result<(), thalweg_storage::LogError>) -> Next {
        if let Err(error) = cut(self) {
            warn!(tp = %self.partition.tp(), %error, "the log cannot be cut");
            self.fail();
            return Next::Gone;
        }
        self.replica.truncated(super::ends_of(&self.partition));
        self.partition.publish_high_watermark(self.replica.high_watermark());
        self.next_fetch()
    }

    fn next_fetch(&mut self) -> Next {
        let view = self.partition.view();
        let (log_start_offset, log_end_offset) = (view.log_start_offset(), view.log_end_offset());
        let has_records = log_end_offset > log_start_offset;
        let last_epoch = if has_records { view.epoch_for(Offset(log_end_offset.0 - 1)) } else { None };
        match self.replica.next_fetch(log_start_offset, last_epoch) {
            Some((id, position)) => Next::Ask(id, position),
            None => Next::Gone,
        }
    }

    /// After a flush: the standing fetch may report more.
    pub(super) fn report_counted(&self, before: Offset) {
        if self.replica.counted() == before {
            return;
        }
        if let (Some(link), Some(follower)) = (&self.link, self.replica.follower())
            && let Some((id, position)) = follower.asked()
        {
            link.ask(&self.partition, id, position);
        }
    }
}

/// Cuts records into batches; `None` if there are none. What is no batch was refused before.
fn batches(records: &mut BytesMut) -> Option<Vec<&mut [u8]>> {
    let mut rest: &mut [u8] = records;
    let mut batches = Vec::new();
    while let Ok(header) = BatchHeader::read(rest) {
        let (batch, behind) = rest.split_at_mut(header.size_bytes());
        batches.push(batch);
        rest = behind;
    }
    (!batches.is_empty()).then_some(batches)
}

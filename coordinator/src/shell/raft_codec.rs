//! Between openraft's calls and their form on the wire. What comes from a peer is checked as a whole before Raft sees it.

use std::io;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use thalweg_proto::v1;
use thalweg_proto::v1::raft_append_response::Outcome;

use super::codec::{
    entry_from, entry_to, invalid, log_id_from, log_id_to, membership_from, membership_to, vote_from, vote_to,
};
use super::types::{LogId, SnapshotMeta, StoredMembership, TypeConfig, Vote};

pub fn append_to(parties: v1::RaftParties, request: &AppendEntriesRequest<TypeConfig>) -> v1::RaftAppendRequest {
    v1::RaftAppendRequest {
        parties: Some(parties),
        vote: Some(vote_to(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id_to),
        entries: request.entries.iter().map(entry_to).collect(),
        leader_commit: request.leader_commit.as_ref().map(log_id_to),
    }
}

/// # Errors
/// The entries are not one piece of a log that this leader can have: no leader sends that.
pub fn append_from(request: v1::RaftAppendRequest) -> io::Result<AppendEntriesRequest<TypeConfig>> {
    let vote = required_vote(request.vote.as_ref())?;
    let prev_log_id = request.previous.as_ref().map(log_id_from);
    let mut entries = Vec::with_capacity(request.entries.len());
    let mut before = prev_log_id;
    within(before.as_ref(), &vote)?;
    for entry in request.entries {
        let entry = entry_from(entry)?;
        let id = entry.log_id;
        let next = before.map_or(Some(0), |before| before.index.checked_add(1));
        if Some(id.index) != next || before.is_some_and(|before| before.leader_id > id.leader_id) {
            return Err(invalid(format!("entry {id} does not follow {before:?}")));
        }
        within(Some(&id), &vote)?;
        before = Some(id);
        entries.push(entry);
    }
    let leader_commit = request.leader_commit.as_ref().map(log_id_from);
    within(leader_commit.as_ref(), &vote)?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

pub fn appended_to(response: &AppendEntriesResponse<TypeConfig>) -> v1::RaftAppendResponse {
    let outcome = match response {
        AppendEntriesResponse::Success => Outcome::Success(true),
        AppendEntriesResponse::PartialSuccess(last) => {
            Outcome::Partial(v1::PartialAppend { last: last.as_ref().map(log_id_to) })
        }
        AppendEntriesResponse::Conflict => Outcome::Conflict(true),
        AppendEntriesResponse::HigherVote(vote) => Outcome::HigherVote(vote_to(vote)),
    };
    v1::RaftAppendResponse { outcome: Some(outcome) }
}

/// The answer to a request that followed `previous`.
///
/// # Errors
/// An answer that cannot be one to this request.
pub fn appended_from(
    response: &v1::RaftAppendResponse,
    previous: Option<&LogId>,
) -> io::Result<AppendEntriesResponse<TypeConfig>> {
    Ok(match &response.outcome {
        Some(Outcome::Success(_)) => AppendEntriesResponse::Success,
        Some(Outcome::Partial(partial)) => {
            AppendEntriesResponse::PartialSuccess(partial.last.as_ref().map(log_id_from))
        }
        // Nothing can be in conflict with the beginning of the log; openraft takes that for granted.
        Some(Outcome::Conflict(_)) if previous.is_none() => {
            return Err(invalid("the peer says that the beginning of the log is in conflict"));
        }
        Some(Outcome::Conflict(_)) => AppendEntriesResponse::Conflict,
        Some(Outcome::HigherVote(vote)) => AppendEntriesResponse::HigherVote(vote_from(vote)),
        None => return Err(invalid("the peer's answer is of a kind that this program does not know")),
    })
}

pub fn vote_request_to(
    parties: v1::RaftParties,
    request: &VoteRequest<TypeConfig>,
    pre_vote: bool,
) -> v1::RaftVoteRequest {
    v1::RaftVoteRequest {
        parties: Some(parties),
        vote: Some(vote_to(&request.vote)),
        last_log_id: request.last_log_id.as_ref().map(log_id_to),
        leadership_transfer: request.leadership_transfer,
        pre_vote,
    }
}

/// # Errors
/// No vote, or one that was won already.
pub fn vote_request_from(request: &v1::RaftVoteRequest) -> io::Result<VoteRequest<TypeConfig>> {
    let vote = required_vote(request.vote.as_ref())?;
    if vote.committed {
        return Err(invalid("a candidate asks with a vote that it says to have won"));
    }
    let last_log_id = request.last_log_id.as_ref().map(log_id_from);
    within(last_log_id.as_ref(), &vote)?;
    Ok(VoteRequest { vote, last_log_id, leadership_transfer: request.leadership_transfer })
}

pub fn voted_to(response: &VoteResponse<TypeConfig>) -> v1::RaftVoteResponse {
    v1::RaftVoteResponse {
        vote: Some(vote_to(&response.vote)),
        granted: response.vote_granted,
        last_log_id: response.last_log_id.as_ref().map(log_id_to),
    }
}

/// # Errors
/// No vote.
pub fn voted_from(response: &v1::RaftVoteResponse) -> io::Result<VoteResponse<TypeConfig>> {
    let vote = required_vote(response.vote.as_ref())?;
    Ok(VoteResponse::new(vote, response.last_log_id.as_ref().map(log_id_from), response.granted))
}

pub fn snapshot_start(
    parties: v1::RaftParties,
    vote: &Vote,
    meta: &SnapshotMeta,
    length: u64,
) -> v1::RaftSnapshotStart {
    v1::RaftSnapshotStart {
        parties: Some(parties),
        vote: Some(vote_to(vote)),
        last_log_id: meta.last_log_id.as_ref().map(log_id_to),
        membership_id: meta.last_membership.log_id().as_ref().map(log_id_to),
        membership: Some(membership_to(meta.last_membership.membership())),
        length,
    }
}

/// # Errors
/// A snapshot that this leader cannot have.
pub fn snapshot_meta(start: &v1::RaftSnapshotStart) -> io::Result<(Vote, SnapshotMeta)> {
    let vote = required_vote(start.vote.as_ref())?;
    let last_log_id = start.last_log_id.as_ref().map(log_id_from);
    within(last_log_id.as_ref(), &vote)?;
    let membership_id = start.membership_id.as_ref().map(log_id_from);
    if membership_id > last_log_id {
        return Err(invalid("the snapshot's membership is younger than the snapshot"));
    }
    let membership = start.membership.as_ref().map(membership_from).transpose()?.unwrap_or_default();
    let last_membership = StoredMembership::new(membership_id, membership);
    Ok((vote, SnapshotMeta { last_log_id, last_membership }))
}

/// # Errors
/// There is none.
pub fn required_vote(vote: Option<&v1::Vote>) -> io::Result<Vote> {
    vote.map(vote_from).ok_or_else(|| invalid("the call carries no vote"))
}

/// No leader has entries of a later leader than itself.
fn within(id: Option<&LogId>, vote: &Vote) -> io::Result<()> {
    match id {
        Some(id) if id.leader_id > vote.leader_id => {
            Err(invalid(format!("log id {id} is of a later leader than the vote {vote}")))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use openraft::EntryPayload;

    use super::*;
    use crate::shell::types::Entry;

    fn id(term: u64, index: u64) -> v1::LogId {
        v1::LogId { term, node_id: 1, index }
    }

    fn entry(term: u64, index: u64) -> v1::LogEntry {
        v1::LogEntry { id: Some(id(term, index)), payload: None }
    }

    fn append(previous: Option<v1::LogId>, entries: Vec<v1::LogEntry>) -> v1::RaftAppendRequest {
        let vote = Some(v1::Vote { term: 5, node_id: 1, committed: true });
        v1::RaftAppendRequest { vote, previous, entries, ..Default::default() }
    }

    /// Goal: whatever a peer sends, Raft sees only what a leader can send; it panics on some of the rest.
    #[test]
    fn entries_that_are_not_one_piece_of_the_leaders_log_are_refused() {
        assert!(append_from(append(Some(id(4, 2)), vec![entry(4, 3), entry(5, 4)])).is_ok());
        assert!(append_from(append(None, vec![entry(0, 0)])).is_ok());
        let bad = [
            append(Some(id(4, 2)), vec![entry(4, 4)]),
            append(Some(id(4, 2)), vec![entry(3, 3)]),
            append(Some(id(4, 2)), vec![entry(6, 3)]),
            append(Some(id(6, 2)), vec![]),
            append(Some(id(4, u64::MAX)), vec![entry(4, 0)]),
            append(None, vec![entry(1, 1)]),
            append(None, vec![v1::LogEntry::default()]),
            v1::RaftAppendRequest { vote: None, ..append(None, vec![]) },
            v1::RaftAppendRequest { leader_commit: Some(id(9, 0)), ..append(None, vec![]) },
        ];
        for request in bad {
            assert!(append_from(request.clone()).is_err(), "{request:?}");
        }
    }

    #[test]
    fn an_impossible_answer_is_refused() {
        let conflict = v1::RaftAppendResponse { outcome: Some(Outcome::Conflict(true)) };
        assert!(appended_from(&conflict, None).is_err());
        assert!(appended_from(&conflict, Some(&log_id_from(&id(1, 1)))).is_ok());
        assert!(appended_from(&v1::RaftAppendResponse::default(), None).is_err());
        let won = v1::Vote { term: 5, node_id: 1, committed: true };
        assert!(vote_request_from(&v1::RaftVoteRequest { vote: Some(won), ..Default::default() }).is_err());
        let young = v1::RaftSnapshotStart { vote: Some(won), last_log_id: Some(id(6, 1)), ..Default::default() };
        assert!(snapshot_meta(&young).is_err());
    }

    #[test]
    fn calls_come_back_as_they_were_sent() {
        let request = append_from(append(Some(id(4, 2)), vec![entry(4, 3)])).unwrap();
        let sent = append_to(v1::RaftParties::default(), &request);
        let entries: Vec<Entry> = append_from(sent).unwrap().entries;
        assert_eq!((entries.len(), &entries[0].payload), (1, &EntryPayload::Blank));
        for response in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(None),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(request.vote),
        ] {
            assert_eq!(appended_from(&appended_to(&response), request.prev_log_id.as_ref()).unwrap(), response);
        }
    }
}

//! Tokens that let new nodes in, and the numbers that those are given.
//!
//! A number is given once, for ever: to a broker, since others may count on its storage; to a coordinator, since others may
//! count on its vote (REPLICATION R5).

use std::collections::BTreeSet;

use thalweg_model::{ErrorCode, Timestamp};
use thalweg_proto::v1::record::Kind;
use thalweg_proto::v1::{AdmitNode, CreateToken, NodeIdsRecord, Record, RevokeToken, TokenRecord, TokenRemoved};

use super::context::Context;
use super::state::State;
use super::{Outcome, error};

/// The numbers of a node that is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// -1 without the role.
    pub broker_id: i32,
    /// 0 without the role.
    pub coordinator_id: u64,
}

/// Takes a token in, and forgets those that expired long ago.
pub fn create(state: &State, context: &Context, command: &CreateToken) -> (Outcome, Vec<Record>) {
    let refuse = |message: String| (Outcome::Refused(error(ErrorCode::InvalidRequest, message)), Vec::new());
    if !(TTL_MS_MIN..=TTL_MS_MAX).contains(&command.ttl_ms) {
        return refuse("a token is good for at least a second and at most 30 days".to_owned());
    }
    if command.secret_hash.len() != HASH_LENGTH || command.id.is_empty() || state.token(&command.id).is_some() {
        return refuse("the token's id or hash cannot be; ask again".to_owned());
    }
    let now = context.time.0;
    let forgotten = |token: &&TokenRecord| token.expires_at_ms.saturating_add(EXPIRED_KEPT_MS) <= now;
    let old: BTreeSet<&str> = state.tokens().filter(forgotten).map(|token| token.id.as_str()).collect();
    if state.tokens().count() - old.len() >= TOKENS_MAX {
        return refuse(format!("there are {TOKENS_MAX} tokens already; revoke some: thalweg cluster token revoke ID"));
    }
    let token = TokenRecord {
        id: command.id.clone(),
        secret_hash: command.secret_hash.clone(),
        created_at_ms: now,
        expires_at_ms: now.saturating_add(command.ttl_ms),
        joined_count: 0,
    };
    let removed = old.into_iter().map(|id| Kind::TokenRemoved(TokenRemoved { id: id.to_owned() }));
    let kinds = removed.chain([Kind::Token(token)]);
    (Outcome::Done, kinds.map(|kind| Record { kind: Some(kind) }).collect())
}

/// Lets nobody in with it any more; whoever is in stays.
pub fn revoke(state: &State, command: &RevokeToken) -> (Outcome, Vec<Record>) {
    if state.token(&command.id).is_none() {
        let message = format!("there is no token {}; thalweg cluster token list shows those there are", command.id);
        return (Outcome::Refused(error(ErrorCode::GroupIdNotFound, message)), Vec::new());
    }
    (Outcome::Done, vec![Record { kind: Some(Kind::TokenRemoved(TokenRemoved { id: command.id.clone() })) }])
}

/// Gives a node that shows a token its numbers.
pub fn admit(state: &State, context: &Context, command: &AdmitNode) -> (Outcome, Vec<Record>) {
    let refuse =
        |message: String| (Outcome::Refused(error(ErrorCode::ClusterAuthorizationFailed, message)), Vec::new());
    if !command.broker && !command.coordinator {
        return refuse("a node is a broker, a coordinator or both".to_owned());
    }
    let token = match state.token(&command.token_id) {
        Some(token) if token.secret_hash == command.secret_hash => token,
        Some(_) => return refuse(format!("the secret of token {} is another one; {MAKE}", command.token_id)),
        None => {
            let id = &command.token_id;
            return refuse(format!("token {id} was revoked, or expired long ago; {MAKE}"));
        }
    };
    if token.expires_at_ms <= context.time.0 {
        let ago = ago(token.expires_at_ms, context.time);
        return refuse(format!("token {} expired {ago}; {MAKE}", token.id));
    }
    let ids = next_ids(state);
    let broker_id = if command.broker { ids.next_broker_id } else { -1 };
    let coordinator_id = if command.coordinator { ids.next_coordinator_id } else { 0 };
    let (Some(after_broker), Some(after_coordinator)) = (
        ids.next_broker_id.checked_add(i32::from(command.broker)),
        ids.next_coordinator_id.checked_add(u64::from(command.coordinator)),
    ) else {
        return refuse("every number of a node is given out".to_owned());
    };
    let used = TokenRecord { joined_count: token.joined_count.saturating_add(1), ..token.clone() };
    let given = NodeIdsRecord { next_broker_id: after_broker, next_coordinator_id: after_coordinator };
    let records = [Kind::Token(used), Kind::NodeIds(given)].map(|kind| Record { kind: Some(kind) });
    (Outcome::Admitted(Admitted { broker_id, coordinator_id }), records.to_vec())
}

/// Numbers that were never given: beyond all that are there, and all that were given by a token.
pub fn next_ids(state: &State) -> NodeIdsRecord {
    let stored = state.node_ids();
    let brokers = state.brokers().map(|(id, _)| id.0.saturating_add(1)).max().unwrap_or(0);
    let coordinators = state.coordinators().map(|node| node.id.saturating_add(1)).max().unwrap_or(0);
    NodeIdsRecord {
        next_broker_id: stored.next_broker_id.max(brokers).max(1),
        next_coordinator_id: stored.next_coordinator_id.max(coordinators).max(1),
    }
}

/// For people.
fn ago(then_ms: i64, now: Timestamp) -> String {
    let seconds = now.0.saturating_sub(then_ms).max(0) / 1_000;
    match seconds {
        0..=119 => format!("{seconds} seconds ago"),
        120..=7_199 => format!("{} minutes ago", seconds / 60),
        7_200..=172_799 => format!("{} hours ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

const MAKE: &str = "make another on a node of the cluster: thalweg cluster token create";
const HASH_LENGTH: usize = 32;
const TOKENS_MAX: usize = 1_000;
const TTL_MS_MIN: i64 = 1_000;
const TTL_MS_MAX: i64 = 30 * 24 * 3_600_000;
/// For so long whoever shows it is told that it expired.
const EXPIRED_KEPT_MS: i64 = 7 * 24 * 3_600_000;

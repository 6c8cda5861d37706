//! Keeps as many coordinators as are wanted, while this node leads: makes spare ones voters, and replaces those that are gone.
//!
//! What to do is the planner's; see [`crate::planner::coordinators`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_proto::v1::config_record::Resource;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::members::{Members, MembersError};
use crate::planner::coordinators::{Situation, Voter};
use crate::registry::configs::COORDINATORS;
use crate::registry::features;

pub struct Staffing {
    me: u64,
    members: Members,
    /// A voter that is silent for so long is gone for good.
    gone_after_ms: u64,
}

impl Staffing {
    pub fn new(me: u64, members: Members, gone_after_ms: u64) -> Staffing {
        Staffing { me, members, gone_after_ms }
    }

    /// Never returns; dropped when the leadership ends.
    pub async fn run(&self) {
        let mut told = String::new();
        // Voters that do not answer, and since when.
        let mut silent: BTreeMap<u64, Instant> = BTreeMap::new();
        // Spare ones that could not be made voters: others are tried first.
        let mut failed: BTreeSet<u64> = BTreeSet::new();
        let mut joint = None;
        loop {
            sleep(LOOK_INTERVAL).await;
            // Whoever began the change may be gone. One that is under way is not the same at the next look.
            let unfinished = self.members.unfinished();
            if unfinished.is_some() {
                if unfinished == joint
                    && let Err(cause) = self.members.finish().await
                {
                    warn!(reason = reason(cause), "could not finish a change of who coordinates, trying again");
                }
                joint = unfinished;
                continue;
            }
            joint = None;
            if self.members.level() < features::LEVEL_OF_CLUSTER_KEYS {
                continue;
            }
            let mut situation = self.situation(&mut silent);
            let mut addresses = BTreeMap::new();
            if situation.needs_spares(self.gone_after_ms) {
                addresses = self.spares().await;
                situation.spares = addresses.keys().copied().filter(|id| !failed.contains(id)).collect();
            }
            let Some(change) = situation.next(self.gone_after_ms) else {
                failed.clear();
                continue;
            };
            let spares = change.add.iter().map(|id| (*id, addresses.remove(id).unwrap_or_default())).collect();
            match self.members.replace(spares, &change.drop).await {
                Ok(()) => info!(?change, voters = situation.voters.len(), "changed who coordinates"),
                // It is looked at again; said once.
                Err((id, cause)) => {
                    failed.extend(id);
                    let reason = reason(cause);
                    if reason != told {
                        warn!(?change, reason, "could not change who coordinates, trying again");
                        told = reason;
                    }
                }
            }
        }
    }

    /// Without spare ones.
    fn situation(&self, silent: &mut BTreeMap<u64, Instant>) -> Situation {
        let wanted = {
            let machine = self.members.shared.machine();
            let set = machine.state().config(Resource::Broker, "");
            set.and_then(|set| set.get(COORDINATORS)).and_then(|text| text.parse().ok())
        };
        let now = Instant::now();
        let mut voters: Vec<Voter> = Vec::new();
        for id in self.members.membership().voter_ids() {
            // Each is called several times a second.
            if id == self.me || !self.members.network.is_unreachable(id) {
                silent.remove(&id);
            } else {
                silent.entry(id).or_insert(now);
            }
            let since = silent.get(&id).map_or(Duration::ZERO, |since| now.duration_since(*since));
            voters.push(Voter { id, silent_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) });
        }
        voters.sort_by_key(|voter| voter.id);
        Situation { wanted, leader: self.me, voters, spares: Vec::new() }
    }

    /// Who offers itself, has no vote, and answers now as who it is.
    async fn spares(&self) -> BTreeMap<u64, String> {
        let (membership, level) = (self.members.membership(), self.members.level());
        let offered: Vec<(u64, bytes::Bytes, String)> = {
            let machine = self.members.shared.machine();
            let known = machine.state().coordinators().filter(|node| !node.removed && !node.address.is_empty());
            let known = known.filter(|node| !membership.voter_ids().any(|id| id == node.id));
            known.map(|node| (node.id, node.identity.clone(), node.address.clone())).collect()
        };
        let asked = offered.into_iter().map(|(id, identity, address)| async move {
            let who = self.members.network.identify(&address).await.ok()?;
            let fits = who.levels.is_some_and(|levels| levels.contains(level));
            (who.id == id && who.identity == identity && fits).then_some((id, address))
        });
        futures_util::future::join_all(asked).await.into_iter().flatten().collect()
    }
}

fn reason(cause: MembersError) -> String {
    match cause {
        MembersError::Refused(refused) => refused.message,
        MembersError::Propose(cause) => cause.to_string(),
    }
}

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

//! How a cluster comes about, and how a node becomes and stays part of one.
//!
//! A cluster is founded once, by the node with the lowest id among the configured peers, and only when every one of them
//! has answered, has the same list, and belongs to no cluster. So nobody founds a second one: not in another order, not with
//! a node missing, not after a disk was lost. A node that any peer knows a cluster for asks that cluster's leader to be
//! added; the leader refuses data under an id that is bound to other data (REPLICATION R5).
//!
//! A node that joined with a token, or was part of a cluster and is not any more, offers itself instead: the leader makes it a
//! voter when there are fewer than are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use thalweg_model::ErrorCode;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::nodes_client::NodesClient;
use thalweg_proto::v1::{AddCoordinatorRequest, IdentifyResponse, KafkaError, OfferRequest};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{info, warn};

use super::batcher::Raft;
use super::identity::Identity;
use super::network::Network;
use super::types::CoordinatorNode;

/// A coordinator as configuration names it: `id@host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoordinatorPeer {
    /// From 1.
    pub id: u64,
    /// host:port of its gRPC service.
    pub address: String,
}

impl fmt::Display for CoordinatorPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.address)
    }
}

impl FromStr for CoordinatorPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<CoordinatorPeer, String> {
        let parsed = text.split_once('@').and_then(|(id, address)| {
            let (host, port) = address.rsplit_once(':')?;
            let (id, port) = (id.parse().ok()?, port.parse::<u16>().ok()?);
            (id > 0 && port > 0 && !host.is_empty()).then(|| CoordinatorPeer { id, address: address.to_owned() })
        });
        parsed.ok_or_else(|| format!("'{text}' is not id@host:port, such as 1@coordinator-1.example:9093"))
    }
}

/// Finds the node's place, then watches that it keeps it.
pub struct Formation {
    pub me: Arc<Identity>,
    /// How the others reach this node.
    pub address: String,
    /// As configured, this node perhaps among them.
    pub peers: Vec<CoordinatorPeer>,
    /// It joined by itself: it does not ask to be a voter, it offers to be one.
    pub stands_by: bool,
    pub raft: Raft,
    pub network: Network,
    pub stop: CancellationToken,
}

/// What a round of asking came to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// There is nothing to do but wait, for this reason.
    Wait(String),
    /// Every configured node is new.
    Found,
    /// A cluster exists; ask its leader, or else whoever knows of it.
    Join(Vec<String>),
    /// This node cannot go on: says why, and the way out.
    Refuse(String),
}

impl Formation {
    /// Runs until the node stops, or fails with what it found out.
    pub async fn run(self) {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            reason = self.attend() => self.me.fail(reason),
        }
    }

    /// Founds a cluster of one, or lets its only voter lead at once; `false` where others have a say.
    ///
    /// # Errors
    /// Raft has stopped, or the store failed.
    pub async fn stand_alone(&self) -> Result<bool, String> {
        let told = |cause: &dyn fmt::Display| cause.to_string();
        if !self.raft.is_initialized().await.map_err(|cause| told(&cause))? {
            // Who joined is part of a cluster, also if it knows nobody of it any more.
            let is_alone = !self.stands_by && self.peers.iter().all(|peer| peer.id == self.me.node_id);
            if is_alone {
                self.found(&BTreeMap::new()).await?;
            }
            return Ok(is_alone);
        }
        // Raft itself knows best: what it shows to others may be older.
        let voters = self.raft.with_raft_state(|state| state.membership_state.effective().voter_ids().collect());
        let voters: Vec<u64> = voters.await.map_err(|cause| told(&cause))?;
        let is_alone = voters == [self.me.node_id];
        if is_alone {
            // Nobody else's vote is needed, so there is nothing to wait for.
            self.raft.trigger().elect(false).await.map_err(|cause| told(&cause))?;
        }
        Ok(is_alone)
    }

    /// Returns why this node cannot go on.
    async fn attend(&self) -> String {
        let mut told = String::new();
        loop {
            if self.is_settled() {
                tokio::time::sleep(WATCH_INTERVAL).await;
                if self.leads() {
                    continue;
                }
            }
            let answers = self.ask_all().await;
            if self.is_settled() {
                // Whoever took it out may only have had no use for it: then it stands by.
                if let Some(addresses) = self.left_out(&answers)
                    && let Err(reason) = self.offer(&addresses, removed(self.me.node_id)).await
                {
                    return reason;
                }
                continue;
            }
            let mut pause = ASK_INTERVAL;
            match self.next_step(&answers) {
                Step::Refuse(reason) => return reason,
                Step::Wait(reason) if reason != told => {
                    info!(reason, "waiting to become part of the coordinators");
                    told = reason;
                }
                Step::Wait(_) => {}
                Step::Found if self.stands_by => {}
                Step::Found => {
                    if let Err(reason) = self.found(&answers).await {
                        return reason;
                    }
                }
                Step::Join(addresses) => {
                    let stands_by = (self.stands_by || self.has_voted()) && !is_member(&answers, self.me.node_id);
                    let asked = match stands_by {
                        true => self.offer_or_join(&addresses).await,
                        false => self.join(&addresses).await.map(|()| false),
                    };
                    match asked {
                        Ok(is_offered) if is_offered => pause = WATCH_INTERVAL,
                        Ok(_) => {}
                        Err(reason) => return reason,
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether this node votes, under its data and at its address.
    fn is_settled(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let now = metrics.borrow_watched();
        let membership = now.membership_config.membership();
        let node = CoordinatorNode { address: self.address.clone(), identity: self.me.identity.clone() };
        membership.voter_ids().any(|id| id == self.me.node_id) && membership.get_node(&self.me.node_id) == Some(&node)
    }

    fn leads(&self) -> bool {
        self.raft.server_metrics().borrow_watched().current_leader == Some(self.me.node_id)
    }

    /// Everybody's answer by the address that was asked: of configured nodes and of those that the membership has.
    async fn ask_all(&self) -> BTreeMap<CoordinatorPeer, Option<IdentifyResponse>> {
        let mut known: BTreeSet<CoordinatorPeer> = self.peers.iter().cloned().collect();
        {
            let metrics = self.raft.server_metrics();
            let now = metrics.borrow_watched();
            let nodes = now.membership_config.membership().nodes();
            known.extend(nodes.map(|(id, node)| CoordinatorPeer { id: *id, address: node.address.clone() }));
        }
        let others = known.into_iter().filter(|peer| peer.id != self.me.node_id);
        let asked = others.map(|peer| async {
            let answer = self.network.identify(&peer.address).await.ok();
            (peer, answer)
        });
        futures_util::future::join_all(asked).await.into_iter().collect()
    }

    fn next_step(&self, answers: &BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>) -> Step {
        let view = View {
            id: self.me.node_id,
            identity: &self.me.identity,
            cluster: self.me.cluster(),
            is_new: self.raft.server_metrics().borrow_watched().membership_config.membership().nodes().next().is_none(),
            peers: &self.peers,
        };
        view.next_step(answers)
    }

    /// Whom to ask why this node is no member any more, if somebody knows better than it.
    fn left_out(&self, answers: &BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>) -> Option<Vec<String>> {
        let ours = {
            let metrics = self.raft.server_metrics();
            let now = metrics.borrow_watched();
            now.membership_config.log_id().map_or(0, |id| id.index)
        };
        let cluster = self.me.cluster();
        let newer = answers.iter().filter_map(|(peer, answer)| Some((peer, answer.as_ref()?))).filter(|(_, answer)| {
            Some(&answer.cluster_id) == cluster.as_ref()
                && answer.membership_id.is_some_and(|id| id.index > ours)
                && answer.leader != 0
        });
        let without = |answer: &IdentifyResponse| {
            answer.membership.as_ref().is_some_and(|known| known.nodes.iter().all(|node| node.id != self.me.node_id))
        };
        let knowing: Vec<_> = newer.filter(|(_, answer)| without(answer)).collect();
        (!knowing.is_empty()).then(|| who_knows(&knowing))
    }

    /// Whether its log says that it was part of a cluster.
    fn has_voted(&self) -> bool {
        self.raft.server_metrics().borrow_watched().membership_config.membership().nodes().next().is_some()
    }

    /// Says where this node can be had; `Err` if the cluster does not want it. `before` is the reason where the cluster knows
    /// no spare ones.
    async fn offer(&self, addresses: &[String], before: String) -> Result<(), String> {
        match self.ask_to_stand_by(addresses).await {
            Ok(Some(offered)) => offered,
            Ok(None) => Ok(()),
            Err(TooOld) => Err(before),
        }
    }

    /// Whether it is offered now.
    async fn offer_or_join(&self, addresses: &[String]) -> Result<bool, String> {
        match self.ask_to_stand_by(addresses).await {
            Ok(Some(offered)) => offered.map(|()| true),
            Ok(None) => Ok(false),
            Err(TooOld) => self.join(addresses).await.map(|()| false),
        }
    }

    /// `None` if nobody answers who leads.
    async fn ask_to_stand_by(&self, addresses: &[String]) -> Result<Option<Result<(), String>>, TooOld> {
        for address in addresses {
            let Ok(channel) = self.network.connection(address) else { continue };
            let mut request = tonic::Request::new(OfferRequest { id: self.me.node_id, address: self.address.clone() });
            request.set_timeout(OFFER_TIMEOUT);
            match NodesClient::new(channel).offer(request).await {
                Ok(answer) => {
                    let refused = answer.into_inner().error.unwrap_or_default();
                    if refused.code == i32::from(ErrorCode::UnsupportedVersion.code()) {
                        return Err(TooOld);
                    }
                    return Ok(Some(self.judged(refused)));
                }
                Err(status) if status.code() == Code::Unimplemented => return Err(TooOld),
                // Not the leader, or gone: the next one may know more.
                Err(status) => tracing::debug!(address, %status, "offered in vain"),
            }
        }
        Ok(None)
    }

    /// `Err` if asking again would not help.
    fn judged(&self, refused: KafkaError) -> Result<(), String> {
        let is_final = [ErrorCode::InvalidVoterKey, ErrorCode::InconsistentClusterId]
            .iter()
            .any(|code| i32::from(code.code()) == refused.code);
        if is_final {
            return Err(refused.message);
        }
        if refused.code != 0 {
            warn!(reason = refused.message, "not a coordinator of the cluster yet");
        }
        Ok(())
    }

    async fn found(&self, answers: &BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>) -> Result<(), String> {
        // Stored first: a founder that dies here founds the same cluster when it comes back.
        let cluster = self.me.cluster().unwrap_or_else(|| Bytes::copy_from_slice(&rand::random::<[u8; 16]>()));
        self.me.bind(&cluster).map_err(|cause| cause.to_string())?;
        let own = CoordinatorNode { address: self.address.clone(), identity: self.me.identity.clone() };
        let mut members = BTreeMap::from([(self.me.node_id, own)]);
        for (peer, answer) in answers {
            if let Some(answer) = answer {
                let node = CoordinatorNode { address: peer.address.clone(), identity: answer.identity.clone() };
                members.insert(peer.id, node);
            }
        }
        info!(voters = ?members.keys().collect::<Vec<_>>(), "founding a cluster");
        self.raft.initialize(members).await.map_err(|cause| format!("the cluster cannot be founded: {cause}"))
    }

    /// `Err` if the cluster does not want this node.
    async fn join(&self, addresses: &[String]) -> Result<(), String> {
        for address in addresses {
            let Ok(channel) = self.network.connection(address) else { continue };
            let mut request =
                tonic::Request::new(AddCoordinatorRequest { id: self.me.node_id, address: self.address.clone() });
            request.set_timeout(JOIN_TIMEOUT);
            match AdminClient::new(channel).add_coordinator(request).await {
                Ok(answer) => {
                    return self.judged(answer.into_inner().error.unwrap_or_default());
                }
                // Not the leader, or gone: the next one may know more.
                Err(status) => tracing::debug!(address, %status, "asked in vain to join"),
            }
        }
        Ok(())
    }
}

/// What a decision is made on.
struct View<'a> {
    id: u64,
    identity: &'a Bytes,
    cluster: Option<Bytes>,
    /// Raft's log is empty.
    is_new: bool,
    peers: &'a [CoordinatorPeer],
}

impl View<'_> {
    fn next_step(&self, answers: &BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>) -> Step {
        let present = || answers.iter().filter_map(|(peer, answer)| answer.as_ref().map(|answer| (peer, answer)));
        if let Some((peer, other)) = present().find(|(peer, answer)| answer.id != peer.id) {
            let (address, configured, id) = (&peer.address, peer.id, other.id);
            return Step::Refuse(format!(
                "coordinator.peers says {configured}@{address}, and coordinator {id} answers there; correct the list, or \
                 give one of two nodes with the same id another one"
            ));
        }
        let members = present().filter(|(_, answer)| !answer.cluster_id.is_empty());
        let members: Vec<_> = members.collect();
        if let Some(reason) = members.iter().find_map(|(peer, answer)| self.stranger(peer, answer)) {
            return Step::Refuse(reason);
        }
        if !members.is_empty() {
            return Step::Join(who_knows(&members));
        }
        if !self.is_new {
            return Step::Wait("no other coordinator answers".to_owned());
        }
        self.founding(answers)
    }

    /// Why this node does not fit to the cluster that a peer is part of.
    fn stranger(&self, peer: &CoordinatorPeer, answer: &IdentifyResponse) -> Option<String> {
        if self.cluster.as_ref().is_some_and(|ours| *ours != answer.cluster_id) {
            return Some(format!(
                "this coordinator's data belongs to another cluster than {peer}; point it at its own cluster, or give it \
                 an empty data directory and an id that is new there"
            ));
        }
        let nodes = answer.membership.iter().flat_map(|membership| &membership.nodes);
        let known = nodes.into_iter().find(|node| node.id == self.id && !node.identity.is_empty())?;
        (known.identity != *self.identity).then(|| {
            let id = self.id;
            format!(
                "the cluster knows coordinator {id} with other data: this data directory was lost or replaced. It has \
                 forgotten how it voted, so it cannot come back under that id: remove coordinator {id} from the cluster, \
                 and start this node with another id"
            )
        })
    }

    fn founding(&self, answers: &BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>) -> Step {
        if !self.peers.iter().any(|peer| peer.id == self.id) {
            return Step::Wait(
                "none of coordinator.peers answers as part of a cluster that could be joined".to_owned(),
            );
        }
        let missing: Vec<String> =
            answers.iter().filter(|(_, answer)| answer.is_none()).map(|(peer, _)| peer.to_string()).collect();
        if !missing.is_empty() {
            return Step::Wait(format!(
                "a cluster is founded when every one of coordinator.peers is there; missing: {}",
                missing.join(", ")
            ));
        }
        let ours = peer_list(self.peers);
        let differs = answers.iter().find(|(_, answer)| answer.as_ref().is_none_or(|answer| answer.peers != ours));
        if let Some((peer, answer)) = differs {
            let theirs = answer.as_ref().map(|answer| answer.peers.join(", ")).unwrap_or_default();
            return Step::Wait(format!(
                "coordinator.peers must be the same everywhere: {} here, {theirs} at {peer}",
                ours.join(", ")
            ));
        }
        match self.peers.iter().map(|peer| peer.id).min() {
            Some(founder) if founder != self.id => Step::Wait(format!("coordinator {founder} founds the cluster")),
            _ => Step::Found,
        }
    }
}

/// Whether the newest membership that somebody tells has the node.
fn is_member(answers: &BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>, id: u64) -> bool {
    let index = |answer: &&IdentifyResponse| answer.membership_id.map_or(0, |id| id.index);
    let newest = answers.values().flatten().max_by_key(index);
    newest
        .and_then(|answer| answer.membership.as_ref())
        .is_some_and(|known| known.nodes.iter().any(|node| node.id == id))
}

/// The cluster knows no spare coordinators.
struct TooOld;

/// Addresses of leaders first, then of everybody else.
fn who_knows(members: &[(&CoordinatorPeer, &IdentifyResponse)]) -> Vec<String> {
    let mut addresses = Vec::new();
    for (_, answer) in members {
        let nodes = answer.membership.iter().flat_map(|membership| &membership.nodes);
        addresses.extend(nodes.filter(|node| node.id == answer.leader).map(|node| node.address.clone()));
    }
    addresses.extend(members.iter().map(|(peer, _)| peer.address.clone()));
    let mut seen = BTreeSet::new();
    addresses.retain(|address| seen.insert(address.clone()));
    addresses
}

/// As nodes compare theirs.
pub fn peer_list(peers: &[CoordinatorPeer]) -> Vec<String> {
    let peers: BTreeSet<&CoordinatorPeer> = peers.iter().collect();
    peers.into_iter().map(ToString::to_string).collect()
}

fn removed(id: u64) -> String {
    format!(
        "coordinator {id} was removed from the cluster, and ids are never used again; to bring this machine back, give it \
         another coordinator.id and an empty data directory"
    )
}

const ASK_INTERVAL: Duration = Duration::from_millis(300);
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
const OFFER_TIMEOUT: Duration = Duration::from_secs(5);
/// A node that is far behind catches up meanwhile.
const JOIN_TIMEOUT: Duration = Duration::from_secs(45);

#[cfg(test)]
mod tests {
    use thalweg_proto::v1::{Membership, RaftNode};

    use super::*;

    type Answers = BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>;

    fn peers(ids: &[u64]) -> Vec<CoordinatorPeer> {
        ids.iter().map(|id| CoordinatorPeer { id: *id, address: format!("h{id}:1") }).collect()
    }

    fn data(byte: u64) -> Bytes {
        vec![byte as u8; 16].into()
    }

    /// A new node's answer.
    fn fresh(id: u64, list: &[u64]) -> IdentifyResponse {
        let peers = peer_list(&peers(list));
        IdentifyResponse { id, identity: data(id), peers, ..IdentifyResponse::default() }
    }

    /// The answer of a member of cluster 9 whose leader is 2.
    fn member(id: u64, nodes: &[(u64, u64)]) -> IdentifyResponse {
        let node = |(id, byte): &(u64, u64)| RaftNode { id: *id, address: format!("h{id}:1"), identity: data(*byte) };
        let membership = Membership { nodes: nodes.iter().map(node).collect(), ..Membership::default() };
        IdentifyResponse { cluster_id: data(9), membership: Some(membership), leader: 2, ..fresh(id, &[1, 2, 3]) }
    }

    fn answers(given: Vec<(u64, Option<IdentifyResponse>)>) -> Answers {
        given.into_iter().map(|(id, answer)| (peers(&[id]).remove(0), answer)).collect()
    }

    fn step(id: u64, cluster: Option<u64>, list: &[u64], given: Vec<(u64, Option<IdentifyResponse>)>) -> Step {
        let (peers, identity) = (peers(list), data(id));
        let view = View { id, identity: &identity, cluster: cluster.map(data), is_new: true, peers: &peers };
        view.next_step(&answers(given))
    }

    #[test]
    fn only_the_lowest_id_founds_and_only_when_everybody_is_new_and_of_one_mind() {
        let list = [1, 2, 3];
        let new = |id| Some(fresh(id, &list));
        assert_eq!(step(1, None, &list, vec![(2, new(2)), (3, new(3))]), Step::Found);
        assert_eq!(step(1, Some(9), &list, vec![(2, new(2)), (3, new(3))]), Step::Found, "it had begun to");
        assert!(matches!(step(2, None, &list, vec![(1, new(1)), (3, new(3))]), Step::Wait(_)));
        let Step::Wait(reason) = step(1, None, &list, vec![(2, new(2)), (3, None)]) else { panic!() };
        assert!(reason.contains("3@h3:1"), "{reason}");
        let other_list = Some(fresh(3, &[1, 3]));
        assert!(matches!(step(1, None, &list, vec![(2, new(2)), (3, other_list)]), Step::Wait(_)));
        let joiner = step(4, None, &list, vec![(1, new(1)), (2, new(2)), (3, new(3))]);
        assert!(matches!(joiner, Step::Wait(_)), "it is not one of those who found");
    }

    #[test]
    fn whoever_hears_of_a_cluster_joins_it_and_founds_none() {
        let nodes = [(2, 2), (3, 3)];
        let given = vec![(2, Some(fresh(2, &[1, 2, 3]))), (3, Some(member(3, &nodes)))];
        assert_eq!(step(1, None, &[1, 2, 3], given.clone()), Step::Join(vec!["h2:1".into(), "h3:1".into()]));
        assert_eq!(step(4, None, &[1, 2, 3], given), Step::Join(vec!["h2:1".into(), "h3:1".into()]));
    }

    #[test]
    fn a_wiped_node_and_one_of_another_cluster_are_told_the_way_out() {
        let wiped = step(1, None, &[1, 2, 3], vec![(2, Some(member(2, &[(1, 77), (2, 2)]))), (3, None)]);
        let Step::Refuse(reason) = wiped else { panic!("{wiped:?}") };
        assert!(reason.contains("remove coordinator 1") && reason.contains("another id"), "{reason}");
        let foreign = step(1, Some(8), &[1, 2], vec![(2, Some(member(2, &[(2, 2)])))]);
        let Step::Refuse(reason) = foreign else { panic!("{foreign:?}") };
        assert!(reason.contains("another cluster"), "{reason}");
        let mixed_up = step(1, None, &[1, 2], vec![(2, Some(fresh(1, &[1, 2])))]);
        let Step::Refuse(reason) = mixed_up else { panic!("{mixed_up:?}") };
        assert!(reason.contains("same id"), "{reason}");
    }

    #[test]
    fn a_peer_is_written_with_its_id() {
        assert_eq!("7@a.example:9093".parse(), Ok(CoordinatorPeer { id: 7, address: "a.example:9093".into() }));
        for wrong in ["", "a:1", "0@a:1", "x@a:1", "1@a", "1@:1", "1@a:0", "1@a:99999"] {
            assert!(wrong.parse::<CoordinatorPeer>().unwrap_err().contains("id@host:port"), "{wrong}");
        }
    }
}

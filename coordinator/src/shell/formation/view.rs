//! What a node does next that is not part of the coordinators: pure, on what the others answered.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use thalweg_proto::v1::IdentifyResponse;

use super::peer::{CoordinatorPeer, peer_list};

/// By whom was asked; `None` did not answer.
pub type Answers = BTreeMap<CoordinatorPeer, Option<IdentifyResponse>>;

/// What a round of asking came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do but wait, for this reason.
    Wait(String),
    /// Every configured node is new.
    Found,
    /// A cluster exists; ask its leader, or else whoever knows of it.
    Join(Vec<String>),
    /// This node cannot go on: says why, and the way out.
    Refuse(String),
}

/// What a decision is made on.
pub struct View<'a> {
    pub id: u64,
    pub identity: &'a Bytes,
    pub cluster: Option<Bytes>,
    /// Raft's log is empty.
    pub is_new: bool,
    pub peers: &'a [CoordinatorPeer],
}

impl View<'_> {
    pub fn next_step(&self, answers: &Answers) -> Step {
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

    fn founding(&self, answers: &Answers) -> Step {
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

/// What the newest membership that somebody tells knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Nothing,
    /// It follows without a vote.
    Learner,
    Voter,
}

pub fn known(answers: &Answers, id: u64) -> Known {
    let index = |answer: &&IdentifyResponse| answer.membership_id.map_or(0, |id| id.index);
    let newest = answers.values().flatten().max_by_key(index);
    let Some(membership) = newest.and_then(|answer| answer.membership.as_ref()) else { return Known::Nothing };
    match membership.nodes.iter().any(|node| node.id == id) {
        true if membership.configs.iter().any(|voters| voters.ids.contains(&id)) => Known::Voter,
        true => Known::Learner,
        false => Known::Nothing,
    }
}

/// Addresses of leaders first, then of everybody else.
pub fn who_knows(members: &[(&CoordinatorPeer, &IdentifyResponse)]) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use thalweg_proto::v1::{LogId, Membership, RaftNode, VoterSet};

    use super::*;

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
    fn what_is_known_of_a_node_is_what_the_newest_membership_says() {
        let told = |index, voters: &[u64]| {
            let mut answer = member(2, &[(2, 2), (3, 3)]);
            answer.membership_id = Some(LogId { index, ..LogId::default() });
            answer.membership.as_mut().unwrap().configs = vec![VoterSet { ids: voters.to_vec() }];
            Some(answer)
        };
        let asked = answers(vec![(2, told(7, &[2])), (3, told(5, &[2, 3])), (4, None)]);
        assert_eq!([2, 3, 4].map(|id| known(&asked, id)), [Known::Voter, Known::Learner, Known::Nothing]);
        assert_eq!(known(&Answers::new(), 2), Known::Nothing);
    }
}

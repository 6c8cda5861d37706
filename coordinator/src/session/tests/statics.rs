//! Static members (KIP-345, 814).

use super::*;

fn static_join(member_id: &str, instance: &str, api_version: i32) -> JoinRequest {
    JoinRequest { instance_id: Some(instance.to_owned()), api_version, ..joining(member_id, "c") }
}

/// Instances `a` (leader) and `b` in a stable group.
fn stable_statics(leader: &mut Leader) -> (JoinResponse, JoinResponse) {
    let a = leader.join(static_join("", "a", 5));
    let a = leader.joined(a);
    assert_eq!(code(&a.error), 0, "no round for an id");
    let sync = leader.sync(&a, &[]);
    leader.synced(sync);
    let b = leader.join(static_join("", "b", 5));
    let again = leader.join(static_join(&a.member_id, "a", 5));
    let (a, b) = (leader.joined(again), leader.joined(b));
    let follower = leader.sync(&b, &[]);
    let sync = leader.sync(&a, &[(&a.member_id, "pa"), (&b.member_id, "pb")]);
    leader.synced(sync);
    leader.synced(follower);
    (a, b)
}

#[test]
fn coming_back_under_a_new_id_moves_nothing_and_fences_the_old_one() {
    let mut leader = Leader::new();
    let (a, b) = stable_statics(&mut leader);
    let back = leader.join(static_join("", "b", 5));
    let back = leader.joined(back);
    assert_eq!((code(&back.error), back.generation_id, back.leader == a.member_id), (0, 2, true));
    assert_ne!(back.member_id, b.member_id);
    assert_eq!(leader.describe().state, "Stable");
    let sync = leader.sync(&back, &[]);
    assert_eq!(leader.synced(sync).assignment, "pb");

    assert_eq!(leader.heartbeat_as(&b.member_id, Some("b"), 2), 82);
    assert_eq!(leader.heartbeat_as(&b.member_id, None, 2), 25);
    assert_eq!(leader.leave(&b.member_id, Some("b")), 82);
    let old = leader.join(static_join(&b.member_id, "b", 5));
    assert_eq!(code(&leader.joined(old).error), 82);
    let stored = leader.machine.state().group(GROUP).unwrap();
    assert!(stored.members.iter().any(|member| member.member_id == back.member_id));

    leader.fail_over();
    assert_eq!(leader.heartbeat_as(&back.member_id, Some("b"), 2), 0);
    assert_eq!(leader.heartbeat_as(&b.member_id, Some("b"), 2), 82);
}

#[test]
fn a_leader_that_comes_back_is_kept_from_assigning_again() {
    let mut leader = Leader::new();
    let (a, _) = stable_statics(&mut leader);
    let back = leader.join(static_join("", "a", 8));
    let back = leader.joined(back);
    assert_eq!((back.leader, back.members.len(), back.skip_assignment), (a.member_id, 0, false));

    let mut leader = Leader::new();
    stable_statics(&mut leader);
    let back = leader.join(static_join("", "a", 9));
    let back = leader.joined(back);
    assert_eq!((&back.leader, back.members.len(), back.skip_assignment), (&back.member_id, 2, true));
    let follower = leader.join(static_join("", "b", 9));
    assert!(!leader.joined(follower).skip_assignment);
}

#[test]
fn coming_back_with_other_metadata_moves_the_group() {
    let mut leader = Leader::new();
    let (a, _) = stable_statics(&mut leader);
    let changed = JoinRequest {
        protocols: vec![JoinProtocol { name: "range".into(), metadata: "other".into() }],
        ..static_join("", "b", 5)
    };
    let back = leader.join(changed);
    assert!(leader.is_waiting(back));
    assert_eq!(leader.heartbeat_as(&a.member_id, Some("a"), 2), 27);
}

#[test]
fn an_absent_static_member_keeps_its_place_until_its_session_ends() {
    let mut leader = Leader::new();
    let (a, b) = stable_statics(&mut leader);
    // b is away when the group moves on; it lives as long as it is heard from.
    let again = leader.join(static_join(&a.member_id, "a", 5));
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(leader.heartbeat_as(&b.member_id, Some("b"), 2), 27);
        leader.pass_ms(5_000);
    }
    let a = leader.joined(again);
    assert_eq!((a.generation_id, a.members.len()), (3, 2));
    leader.pass_ms(SESSION_MS as u64);
    assert_eq!(leader.heartbeat_as(&b.member_id, Some("b"), 3), 25);
}

#[test]
fn a_static_member_leaves_by_its_instance() {
    let mut leader = Leader::new();
    let (_, _) = stable_statics(&mut leader);
    assert_eq!(leader.leave("", Some("nobody")), 25);
    assert_eq!(leader.leave("", Some("b")), 0);
    assert_eq!(leader.describe().members.len(), 1);
}

#[test]
fn a_second_process_with_the_same_instance_fences_the_waiting_first() {
    let mut leader =
        Leader::with(CoordinatorSettings { group_initial_rebalance_delay_ms: 1_000, ..CoordinatorSettings::default() });
    let first = leader.join(static_join("", "a", 5));
    let second = leader.join(static_join("", "a", 5));
    assert_eq!(code(&leader.joined(first).error), 82);
    leader.pass_ms(10_000);
    let joined = leader.joined(second);
    assert_eq!((code(&joined.error), joined.members.len()), (0, 1));
    assert_eq!(joined.leader, joined.member_id);
}

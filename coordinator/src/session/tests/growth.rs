//! Topics gain replicas when brokers join.

use super::*;
use crate::registry::configs::{GROW_REPLICAS, KIND_BROKER};
use crate::registry::min_isr::MIN_ISR;

impl Leader {
    fn broker_joins(&mut self, id: i32) {
        let request = RegisterBrokerRequest {
            broker_id: id,
            incarnation: 1,
            log_dirs: vec![LogDir { dir_id: vec![id as u8; 16].into(), ..LogDir::default() }],
            endpoints: vec![Endpoint { host: "h".into(), port: 9092, ..Endpoint::default() }],
            levels: Some(Levels::ours()),
            ..RegisterBrokerRequest::default()
        };
        let ticket = self.call(Call::RegisterBroker(request));
        let Reply::RegisterBroker(registered) = self.reply(ticket) else { panic!() };
        let beat = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: registered.broker_epoch,
            metadata_index: registered.index,
            levels: Some(Levels::ours()),
            ..BrokerHeartbeatRequest::default()
        };
        let ticket = self.call(Call::BrokerHeartbeat(beat));
        self.reply(ticket);
    }

    /// As auto-creation does with `default_factor`, else as one who says how many.
    fn new_topic(&mut self, name: &str, default_factor: bool) -> KafkaError {
        let replication_factor = if default_factor { 3 } else { 1 };
        let topic =
            NewTopic { name: name.into(), partitions: 2, replication_factor, default_factor, ..NewTopic::default() };
        let create = v1::command::Kind::CreateTopics(CreateTopics { topics: vec![topic], partitions_max: 99 });
        match self.apply(&command(create)) {
            Outcome::CreatedTopics(mut created) => created.remove(0).error.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Replicas of each partition that it has or is to get, by topic.
    fn wanted(&self, topic: &str) -> Vec<usize> {
        let state = self.machine.state();
        let id = state.topic(topic).unwrap().id;
        let step = |index| {
            let steps = state.plan().into_iter().flat_map(|plan| &plan.steps);
            steps.filter(|step| step.topic == topic && step.partition == index).map(|step| step.to.len()).max()
        };
        state.partitions_of(id).map(|(index, partition)| step(index).unwrap_or(partition.replicas.len())).collect()
    }

    fn set(&mut self, key: &str, value: &str) {
        let change = ConfigChange { key: key.into(), op: 0, value: Some(value.into()) };
        let resource = ConfigResource { kind: KIND_BROKER, changes: vec![change], ..ConfigResource::default() };
        self.apply(&command(v1::command::Kind::AlterConfigs(AlterConfigs { resources: vec![resource] })));
    }

    fn growing(default_replication_factor: i32) -> Leader {
        let settings =
            CoordinatorSettings { default_replication_factor, broker_lease_ms: 3_600_000, ..Default::default() };
        Leader::with(settings)
    }
}

#[test]
fn what_left_the_number_of_its_replicas_to_the_cluster_gains_some_when_brokers_join() {
    let mut leader = Leader::growing(3);
    leader.broker_joins(1);
    leader.set(MIN_ISR, "2");
    assert_eq!(leader.new_topic("auto", true), KafkaError::default(), "as many as there are");
    assert_eq!(leader.new_topic("said", false), KafkaError::default());
    let state = leader.machine.state();
    let min_isr = |name: &str| Some(state.config(config_record::Resource::Topic, name)?.get(MIN_ISR)?.clone());
    assert_eq!(min_isr("said").as_deref(), Some("1"), "the default is not meant for it");
    assert_eq!(min_isr("auto"), None, "it will have the replicas that the default is meant for");
    leader.pass_ms(10_000);
    assert!(leader.machine.state().plan().is_none(), "there is nowhere to go");
    leader.broker_joins(2);
    leader.pass_ms(2_500);
    assert_eq!((leader.wanted("auto"), leader.wanted("said")), (vec![2, 2], vec![1, 1]));
    let broker_epoch = leader.machine.state().broker(thalweg_model::NodeId(2)).unwrap().epoch;
    leader.apply(&command(v1::command::Kind::FenceBroker(FenceBroker { broker_id: 2, broker_epoch })));
    leader.new_topic("later", true);
    assert_eq!(leader.wanted("later"), [2, 2], "one that restarts is there all the same");
}

#[test]
fn nothing_grows_while_it_is_switched_off_or_a_plan_runs() {
    let mut leader = Leader::growing(3);
    leader.broker_joins(1);
    leader.new_topic("auto", true);
    leader.set(GROW_REPLICAS, "false");
    assert_eq!(leader.new_topic("strict", true).code, 38, "then as many as the default says, or none");
    leader.broker_joins(2);
    leader.broker_joins(3);
    leader.pass_ms(10_000);
    assert!(leader.machine.state().plan().is_none());
    leader.set(GROW_REPLICAS, "true");
    leader.pass_ms(2_500);
    assert_eq!(leader.wanted("auto"), [3, 3]);

    // Called off by hand: it is not begun again at once, nor for ever given up.
    let end = EndPlan { id: 0, cancel: true };
    leader.apply(&command(v1::command::Kind::EndPlan(end)));
    leader.pass_ms(2_500);
    assert!(leader.machine.state().plan().is_some(), "once more, in case it was another's");
    leader.apply(&command(v1::command::Kind::EndPlan(end)));
    leader.pass_ms(20_000);
    assert!(leader.machine.state().plan().is_none());
    leader.pass_ms(60_000);
    assert!(leader.machine.state().plan().is_some());
}

#[test]
fn below_its_level_a_topic_is_created_as_ever() {
    let mut leader = Leader::growing(3);
    leader.machine = Machine::default();
    leader.apply(&command(features::founding([9; 16], 3)));
    leader.fail_over();
    leader.broker_joins(1);
    assert_eq!(leader.new_topic("auto", true).code, 38);
}

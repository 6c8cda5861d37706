//! What has to be so once faults are over (invariants 4 and 21).

use crate::broker::Broker;
use crate::world::World;

impl World {
    /// 4 and 21: whether everything has become as it should be without faults. The account of disk events keeps within what is
    /// promised, so no partition may be lost, whatever its registration says.
    pub fn is_well(&self) -> Result<(), String> {
        for (broker, this) in self.brokers.iter().enumerate() {
            let stored = self.coordinator.machine.state().broker(this.id);
            let is_let_in = stored.is_some_and(|stored| !stored.fenced && !stored.shutting_down);
            if !this.is_up() || !is_let_in || !self.may_lead(broker) {
                return Err(format!("broker {} is not back", broker + 1));
            }
        }
        if self.parts.live().is_empty() {
            return Err("there is no topic".to_owned());
        }
        (0..self.parts.count()).try_for_each(|partition| self.are_logs_where_they_belong(partition))?;
        self.parts.live().try_for_each(|partition| self.is_partition_well(partition))?;
        self.are_clients_well()?;
        self.are_groups_well()
    }

    /// Nobody keeps a log of a topic that is gone, or of a replica that was moved away.
    fn are_logs_where_they_belong(&self, partition: usize) -> Result<(), String> {
        let replicas = self.partition(partition).map_or(&[][..], |registered| &registered.replicas);
        let stray = |this: &&Broker| this.disk.logs[partition].is_made && !replicas.contains(&this.id);
        match self.brokers.iter().find(stray) {
            Some(broker) => Err(format!("partition {partition}: broker {} keeps a log of it", broker.id)),
            None => Ok(()),
        }
    }

    fn is_partition_well(&self, partition: usize) -> Result<(), String> {
        let fault = |what: String| Err(format!("partition {partition}: {what}"));
        let Some(registered) = self.partition(partition) else { return fault("is gone".to_owned()) };
        if registered.is_moving() {
            return fault(format!("it is still being moved: {registered:?}"));
        }
        if registered.isr.len() != registered.replicas.len() {
            return fault(format!("not everybody is in sync: {registered:?}"));
        }
        let Some(leader) = registered.leader else { return fault("nobody leads".to_owned()) };
        let leader = (leader.0 - 1) as usize;
        let end = self.brokers[leader].disk.logs[partition].end();
        if self.checker.committed(partition) != end {
            return fault(format!("{} of {end} records are committed", self.checker.committed(partition)));
        }
        for id in &registered.replicas {
            let broker = (id.0 - 1) as usize;
            let this = &self.brokers[broker];
            let Some(hosted) = this.process.as_ref().and_then(|process| process.hosted[partition].as_ref()) else {
                return fault(format!("broker {id} does not host it"));
            };
            let (replica, log) = (&hosted.replica, &this.disk.logs[partition]);
            if replica.known_epoch() != Some(registered.leader_epoch) {
                return fault(format!("broker {id} has not heard of epoch {}", registered.leader_epoch));
            }
            let is_settled = replica.leader().is_none_or(|leader| {
                leader.isr().is_settled() && leader.isr().partition_epoch() == registered.partition_epoch
            });
            if !is_settled || replica.leader().is_some() != (broker == leader) || hosted.is_waited_for() {
                return fault(format!("broker {id} has not come to rest"));
            }
            if log.end() != end || replica.high_watermark() != end || log.start() > end {
                let watermark = replica.high_watermark();
                return fault(format!("broker {id} is at {}, watermark {watermark}, of {end}", log.end()));
            }
            let expected = self.checker.committed_chain(partition);
            if log.chain_below(end) != expected && !log.starts_at(end) {
                return fault(format!("broker {id} holds something else"));
            }
        }
        Ok(())
    }
}

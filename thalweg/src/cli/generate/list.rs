//! The one list: what a dashboard shows, and what somebody is woken for.

/// A picture of the dashboard.
pub struct Panel {
    pub title: &'static str,
    /// As Grafana names it.
    pub unit: &'static str,
    pub kind: Kind,
    /// PromQL and how each line is called.
    pub lines: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One number that should be 0, or what it says.
    Number,
    Lines,
}

/// A rule that calls somebody.
pub struct Alert {
    pub name: &'static str,
    pub expression: &'static str,
    /// How long it must hold.
    pub lasting: &'static str,
    pub severity: &'static str,
    pub summary: &'static str,
    /// What to type.
    pub remedy: &'static str,
}

const fn number(title: &'static str, lines: &'static [(&'static str, &'static str)]) -> Panel {
    Panel { title, unit: "none", kind: Kind::Number, lines }
}

const fn lines(title: &'static str, unit: &'static str, lines: &'static [(&'static str, &'static str)]) -> Panel {
    Panel { title, unit, kind: Kind::Lines, lines }
}

pub const PANELS: &[Panel] = &[
    number("Brokers that serve", &[("sum(thalweg_fenced == bool 0)", "")]),
    number("Partitions without a leader", &[("max(thalweg_coordinator_partitions_offline)", "")]),
    number("Partitions under min.insync.replicas", &[("sum(thalweg_partitions_under_min_isr)", "")]),
    number("Under-replicated partitions", &[("sum(thalweg_partitions_under_replicated)", "")]),
    lines("Produced", "Bps", &[("rate(thalweg_produced_bytes_total[1m])", "{{instance}}")]),
    lines("Fetched by consumers", "Bps", &[("rate(thalweg_fetched_bytes_total[1m])", "{{instance}}")]),
    lines(
        "Time to answer a produce request",
        "s",
        &[
            ("histogram_quantile(0.5, sum by (le) (rate(thalweg_produce_seconds_bucket[1m])))", "half"),
            ("histogram_quantile(0.99, sum by (le) (rate(thalweg_produce_seconds_bucket[1m])))", "99 %"),
        ],
    ),
    lines(
        "One flush",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (le, instance) (rate(thalweg_flush_seconds_bucket[1m])))",
            "99 % {{instance}}",
        )],
    ),
    lines("Behind, in time", "s", &[("max by (group, topic) (thalweg_group_lag_seconds)", "{{group}} {{topic}}")]),
    lines(
        "Behind, in records",
        "short",
        &[("sum by (group, topic) (thalweg_group_lag_records)", "{{group}} {{topic}}")],
    ),
    lines(
        "Records written by topic",
        "cps",
        &[("clamp_min(deriv(sum by (topic) (thalweg_topic_high_watermark_sum)[1m:10s]), 0)", "{{topic}}")],
    ),
    lines("Bytes kept by topic", "bytes", &[("sum by (topic) (thalweg_topic_log_bytes)", "{{topic}}")]),
    lines("Room in log directories", "bytes", &[("thalweg_log_dir_free_bytes", "{{instance}} {{dir}}")]),
    lines("Requests by kind", "reqps", &[("sum by (api) (rate(thalweg_requests_total[1m])) > 0", "{{api}}")]),
    lines("Copied to followers", "Bps", &[("rate(thalweg_replica_bytes_sent_total[1m])", "{{instance}}")]),
    lines(
        "Replicas leave and enter the in-sync replicas",
        "cps",
        &[("sum(rate(thalweg_isr_shrinks_total[1m]))", "leave"), ("sum(rate(thalweg_isr_expands_total[1m]))", "enter")],
    ),
    lines("Records that the last replica lacks", "short", &[("thalweg_replica_lag_records", "{{instance}}")]),
    lines("Connections", "none", &[("thalweg_connections", "{{instance}}")]),
    lines(
        "One change of the coordinators",
        "s",
        &[("histogram_quantile(0.99, sum by (le) (rate(thalweg_coordinator_commit_seconds_bucket[1m])))", "99 %")],
    ),
    lines("Rebalances of groups", "cps", &[("sum(rate(thalweg_coordinator_rebalances_total[1m]))", "")]),
    lines("Memory", "bytes", &[("process_resident_memory_bytes{job=\"thalweg\"}", "{{instance}}")]),
    lines("Processors", "none", &[("rate(process_cpu_seconds_total{job=\"thalweg\"}[1m])", "{{instance}}")]),
];

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "ThalwegNodeDown",
        expression: "up{job=\"thalweg\"} == 0",
        lasting: "1m",
        severity: "warning",
        summary: "{{ $labels.instance }} does not answer",
        remedy: "look at the node's log; start it again, its data stays",
    },
    Alert {
        name: "ThalwegPartitionsOffline",
        expression: "max(thalweg_coordinator_partitions_offline) > 0",
        lasting: "30s",
        severity: "critical",
        summary: "{{ $value }} partitions have no leader: nobody can write or read them",
        remedy: "thalweg cluster health names them; bring the brokers back that have their replicas",
    },
    Alert {
        name: "ThalwegUnderMinIsr",
        expression: "thalweg_partitions_under_min_isr > 0",
        lasting: "1m",
        severity: "critical",
        summary: "{{ $value }} partitions led by {{ $labels.instance }} refuse acks=all",
        remedy: "thalweg cluster health names them; bring the brokers back that have their replicas",
    },
    Alert {
        name: "ThalwegUnderReplicated",
        expression: "thalweg_partitions_under_replicated > 0",
        lasting: "5m",
        severity: "warning",
        summary: "{{ $value }} partitions led by {{ $labels.instance }} lack a replica in sync",
        remedy: "thalweg cluster health names them; a broker is down, or its disk or network too slow",
    },
    Alert {
        name: "ThalwegLogOffline",
        expression: "thalweg_partitions_offline > 0",
        lasting: "0m",
        severity: "critical",
        summary: "{{ $value }} logs of {{ $labels.instance }} are offline: their disk failed, or they are damaged",
        remedy: "see the node's log and the kernel's; replace the disk, restart the node",
    },
    Alert {
        name: "ThalwegBrokerFenced",
        expression: "thalweg_fenced == 1",
        lasting: "2m",
        severity: "critical",
        summary: "{{ $labels.instance }} runs and may not lead: it reaches no coordinator",
        remedy: "thalweg coordinator list; the network between the two, the coordinators' logs",
    },
    Alert {
        name: "ThalwegNoCoordinatorLeads",
        expression: "sum(thalweg_coordinator_leader) < 1",
        lasting: "30s",
        severity: "critical",
        summary: "no coordinator leads: nothing can be changed, and no new leaders of partitions are chosen",
        remedy: "start coordinators until more than half of them run",
    },
    Alert {
        name: "ThalwegElectionsDoNotEnd",
        expression: "changes(thalweg_coordinator_raft_term[10m]) > 5",
        lasting: "0m",
        severity: "warning",
        summary: "the coordinators' leader has changed {{ $value }} times in ten minutes",
        remedy: "look for a disk under coordinator/ or a network that stalls for longer than half a second",
    },
    Alert {
        name: "ThalwegDiskHangs",
        expression: "thalweg_oldest_unflushed_seconds > 1",
        lasting: "10s",
        severity: "critical",
        summary: "a flush of {{ $labels.instance }} has been running for {{ $value }} s",
        remedy: "see the kernel's log; stop the broker in order, so that others lead",
    },
    Alert {
        name: "ThalwegDiskFull",
        expression: "thalweg_log_dir_free_bytes < 1e9",
        lasting: "1m",
        severity: "critical",
        summary: "{{ $labels.dir }} of {{ $labels.instance }} has less than 1 GB left; producing is refused at log.dir.reserve.bytes",
        remedy: "thalweg topic why-kept TOPIC; lower retention, delete topics, or add space",
    },
    Alert {
        name: "ThalwegGroupBehind",
        expression: "max by (group, topic) (thalweg_group_lag_seconds) > 300",
        lasting: "10m",
        severity: "warning",
        summary: "{{ $labels.group }} is {{ $value }} s behind in {{ $labels.topic }}",
        remedy: "thalweg group describe GROUP; thalweg group explain GROUP",
    },
    Alert {
        name: "ThalwegConnectionsRefused",
        expression: "rate(thalweg_connections_refused_total[5m]) > 0",
        lasting: "1m",
        severity: "warning",
        summary: "{{ $labels.instance }} turns clients away: max.connections or max.connections.per.ip",
        remedy: "thalweg doctor; raise the limit, or find who connects so often",
    },
];

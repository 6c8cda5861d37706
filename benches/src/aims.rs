//! What the figures should reach, and which of them did.

use std::fmt::Write;

use crate::report::{percent, times};
use crate::stats::number;

/// What a figure should reach.
#[derive(Debug, PartialEq)]
pub struct Aim {
    pub statement: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// A share of a bare loop, 0.6 for 60 %.
    ShareAtLeast(f64),
    /// How many times as much as a peer.
    TimesAtLeast(f64),
    /// How many times as much as something else of ours, or as a peer.
    TimesAtMost(f64),
    AtMost(f64, &'static str),
}

impl Aim {
    pub const PRODUCE_CPU: Aim = Aim {
        statement: "produce, batched: records per broker CPU second at least 3x Kafka's",
        bound: Bound::TimesAtLeast(3.0),
    };
    pub const REQUEST_CPU: Aim = Aim {
        statement: "produce, one record a request: at most 1/5 of Kafka's broker CPU",
        bound: Bound::TimesAtLeast(5.0),
    };
    pub const CONSUME: Aim = Aim {
        statement: "consume from the page cache: at least 80 % of the bare sendfile loop",
        bound: Bound::ShareAtLeast(0.8),
    };
    pub const CONSUME_CPU: Aim = Aim {
        statement: "consume: records per broker CPU second at least 3x Kafka's",
        bound: Bound::TimesAtLeast(3.0),
    };
    pub const PRODUCE: Aim = Aim {
        statement: "produce, batched: at least 60 % of the bare receive + CRC-32C + append loop",
        bound: Bound::ShareAtLeast(0.6),
    };
    pub const LATENCY: Aim = Aim {
        statement: "p99 from produce to consume at a modest rate: at most 1/5 of Kafka's",
        bound: Bound::TimesAtLeast(5.0),
    };
    pub const FLUSHED: Aim =
        Aim { statement: "`replicated` at most 1.3x as fast as `flushed`, batched", bound: Bound::TimesAtMost(1.3) };
    pub const START: Aim =
        Aim { statement: "start to ready: at most 1/30 of Kafka's", bound: Bound::TimesAtLeast(30.0) };
    pub const IDLE_MEMORY: Aim =
        Aim { statement: "idle resident memory: at most 1/10 of Kafka's", bound: Bound::TimesAtLeast(10.0) };
    pub const PARTITION_MEMORY: Aim =
        Aim { statement: "memory of a partition: at most 8 KiB", bound: Bound::AtMost(8.0, "KiB") };
    pub const CONNECTION_MEMORY: Aim =
        Aim { statement: "memory of an idle connection: at most 16 KiB", bound: Bound::AtMost(16.0, "KiB") };
    pub const PAPER_BATCHED_PRODUCE: Aim = Aim {
        statement: "the paper's experiment, batched: producing at least 20x RabbitMQ and ActiveMQ",
        bound: Bound::TimesAtLeast(20.0),
    };
    pub const PAPER_BATCHED_CONSUME: Aim = Aim {
        statement: "the paper's experiment, batched: consuming at least 25x RabbitMQ and ActiveMQ",
        bound: Bound::TimesAtLeast(25.0),
    };
    pub const PAPER_UNBATCHED: Aim = Aim {
        statement: "the paper's experiment, unbatched: at least 2x RabbitMQ and ActiveMQ",
        bound: Bound::TimesAtLeast(2.0),
    };
    pub const PAPER_ABOVE: Aim =
        Aim { statement: "the paper's experiment: above Kafka and NATS JetStream", bound: Bound::TimesAtLeast(1.0) };

    pub fn reached(&self, value: f64) -> bool {
        match self.bound {
            Bound::ShareAtLeast(least) | Bound::TimesAtLeast(least) => value >= least,
            Bound::TimesAtMost(most) | Bound::AtMost(most, _) => value <= most,
        }
    }

    fn show(&self, value: f64) -> String {
        match self.bound {
            Bound::ShareAtLeast(_) => percent(value),
            Bound::TimesAtLeast(_) | Bound::TimesAtMost(_) => times(value),
            Bound::AtMost(_, unit) => format!("{} {unit}", number(value)),
        }
    }

    /// Whether `left` is further from the aim; what was not measured is furthest.
    fn is_worse(&self, left: f64, right: f64) -> bool {
        match self.bound {
            _ if left.is_nan() => true,
            Bound::ShareAtLeast(_) | Bound::TimesAtLeast(_) => left < right,
            Bound::TimesAtMost(_) | Bound::AtMost(..) => left > right,
        }
    }
}

/// Every figure of a section that was held against an aim.
#[derive(Debug, Default)]
pub struct Judged(Vec<(&'static Aim, String, f64)>);

impl Judged {
    pub fn add(&mut self, aim: &'static Aim, what: &str, value: f64) {
        self.0.push((aim, what.to_owned(), value));
    }

    /// One row of Markdown for each aim: the worst figure, and what else missed it.
    pub fn rows(&self) -> String {
        let mut text = String::new();
        let mut seen: Vec<&Aim> = Vec::new();
        for (aim, _, _) in &self.0 {
            if seen.contains(aim) {
                continue;
            }
            seen.push(aim);
            let of_aim: Vec<&(&Aim, String, f64)> = self.0.iter().filter(|(other, _, _)| other == aim).collect();
            let worst = of_aim.iter().fold(
                of_aim[0],
                |worst, figure| {
                    if aim.is_worse(figure.2, worst.2) { figure } else { worst }
                },
            );
            let missed_count = of_aim.iter().filter(|(_, _, value)| !aim.reached(*value)).count();
            let verdict = match (missed_count, of_aim.len()) {
                (0, _) => "met".to_owned(),
                (missed, all) if missed == all => "**missed**".to_owned(),
                (missed, all) => format!("**missed** in {missed} of {all}"),
            };
            let which = if of_aim.len() == 1 { String::new() } else { format!(", worst of {}", of_aim.len()) };
            let _ = writeln!(text, "| {} | {} ({}{which}) | {verdict} |", aim.statement, aim.show(worst.2), worst.1);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_shows_its_worst_figure_and_how_many_missed() {
        let mut judged = Judged::default();
        judged.add(&Aim::PRODUCE, "1 KiB", 0.70);
        judged.add(&Aim::PRODUCE, "200 B", 0.59);
        judged.add(&Aim::FLUSHED, "small", 1.2);
        let rows: Vec<String> = judged.rows().lines().map(str::to_owned).collect();
        assert!(rows[0].ends_with("| 59 % (200 B, worst of 2) | **missed** in 1 of 2 |"), "{}", rows[0]);
        assert!(rows[1].ends_with("| 1.20x (small) | met |"), "{}", rows[1]);
    }

    #[test]
    fn a_figure_that_was_not_measured_is_a_miss() {
        for aim in [&Aim::CONSUME, &Aim::PARTITION_MEMORY, &Aim::FLUSHED] {
            let mut judged = Judged::default();
            judged.add(aim, "measured", 1.0);
            judged.add(aim, "not", f64::NAN);
            assert!(judged.rows().contains("| - (not") || judged.rows().contains("| - KiB (not"), "{}", judged.rows());
            assert!(judged.rows().contains("**missed**"));
        }
    }
}

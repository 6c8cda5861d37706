//! Finds in histories what must never happen.
//!
//! Every rule looks at each event a bounded number of times, so a check takes time linear in the histories (times the
//! logarithm that sorting costs).

mod commits;
mod polls;
mod records;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{ClientHistory, Micros};

/// What is wrong, and with what; the first is the rule's name in reports.
macro_rules! kinds {
    ($($variant:ident $name:literal $rule:literal,)*) => {
        /// A rule that was broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $rule] $variant,)*
        }

        impl Kind {
            pub const ALL: &'static [Kind] = &[$(Kind::$variant,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$variant => $name,)*
                }
            }

            /// What it means, in a sentence.
            pub fn rule(self) -> &'static str {
                match self {
                    $(Kind::$variant => $rule,)*
                }
            }
        }
    };
}

kinds! {
    LostWrite "lost-write" "an acknowledged record is nowhere in the log, which goes on behind its offset",
    Unseen "unseen" "an acknowledged record lies beyond the end of the log",
    Vanished "vanished" "a record that a consumer read is not in the log any more",
    Misplaced "misplaced" "an acknowledged record stands at another offset than its producer was told",
    Inconsistent "inconsistent-offsets" "two values were seen or acknowledged at one offset",
    Duplicate "duplicate" "one value stands at two offsets",
    Phantom "phantom" "a value was read that nobody had sent, or not yet",
    AbortedRead "aborted-read" "a value was read whose sending had certainly failed",
    WrongPartition "wrong-partition" "a value was acknowledged or read in another partition than it was sent to",
    NonmonotonicSend "nonmonotonic-send" "a later record of one producer got a lower offset",
    Unanswered "unanswered" "a record was sent and nothing was ever heard of it",
    TwoAnswers "two-answers" "a record was answered twice",
    NotReadOut "not-read-out" "nobody read the partition to its end after healing: nothing can be said about it",
    PollSkip "poll-skip" "a consumer's position went on without the records between",
    NonmonotonicPoll "nonmonotonic-poll" "a consumer's position went back",
    IntPollSkip "int-poll-skip" "a gap within the answer of one poll",
    IntNonmonotonicPoll "int-nonmonotonic-poll" "a step back within the answer of one poll",
    Reset "reset" "a consumer was told that its position does not exist",
    EndRegress "end-regress" "the end of a partition, as consumers are told it, fell",
    OffsetLost "offset-lost" "a group has no offset although a commit was answered",
    OffsetRegress "offset-regress" "a group's offset is older than a commit that was answered",
    OffsetPhantom "offset-phantom" "a group's offset is one that nobody committed",
    CommitUnread "commit-unread" "a group committed beyond records that none of its members was given",
    ZombieCommit "zombie-commit" "a commit of an older generation was answered after a newer one had begun",
    TwoOwners "two-owners" "two members own one partition in one generation",
    GenerationRegress "generation-regress" "a member was given an older generation than it had",
}

/// One breach of a rule.
#[derive(Clone, Debug)]
pub struct Anomaly {
    pub kind: Kind,
    /// In words, with the client and line of the event that showed it.
    pub story: String,
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    pub anomalies: BTreeMap<Kind, Vec<String>>,
    pub figures: Figures,
}

/// How much was checked.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub sent: usize,
    pub acknowledged: usize,
    /// Sends whose outcome is unknown.
    pub unknown: usize,
    pub failed: usize,
    /// Records given to consumers, of all.
    pub read: usize,
    pub commits: usize,
    /// From the acknowledgement to the first poll that gave the record; sorted.
    pub visible_after: Vec<Micros>,
    /// The longest that nobody heard of an acknowledgement.
    pub longest_gap: Micros,
}

impl Report {
    fn add(&mut self, kind: Kind, story: String) {
        self.anomalies.entry(kind).or_default().push(story);
    }

    /// How often each rule was broken that is not `allowed`.
    pub fn breaches(&self, allowed: &[Kind]) -> usize {
        self.anomalies.iter().filter(|(kind, _)| !allowed.contains(kind)).map(|(_, found)| found.len()).sum()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where an event stands, for stories.
#[derive(Clone, Copy, Debug)]
struct Place {
    client: usize,
    line: u32,
}

/// Reads all histories of one run together.
pub fn check(histories: &[ClientHistory]) -> Report {
    let mut report = Report::default();
    records::check(histories, &mut report);
    polls::check(histories, &mut report);
    commits::check(histories, &mut report);
    report
}

fn at(histories: &[ClientHistory], place: Place) -> String {
    format!("{}:{}", histories[place.client].name, place.line)
}

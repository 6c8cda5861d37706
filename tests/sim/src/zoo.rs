//! The bug zoo: rules that can be switched off, to see whether the simulator notices.

/// One or two deleted rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Switches as the code names them, at the place where the rule stands.
    pub switches: &'static [&'static str],
    /// What is not so any more.
    pub deletes: &'static str,
}

impl Mutant {
    pub fn name(&self) -> String {
        self.switches.join("+")
    }
}

/// Finds a mutant by its name.
pub fn find(name: &str) -> Option<&'static Mutant> {
    ZOO.iter().find(|mutant| mutant.name() == name)
}

const fn one(switches: &'static [&'static str], deletes: &'static str) -> Mutant {
    Mutant { switches, deletes }
}

/// Every listed mutant.
pub const ZOO: &[Mutant] = &[
    one(&["maximal-isr"], "proposed members count for the watermark (L7)"),
    one(&["epoch-start-at-join"], "who joins holds all from before the epoch (L6)"),
    one(&["watermark-at-join"], "who joins holds all that is committed (L6)"),
    one(&["epoch-start-at-join", "watermark-at-join"], "both of the above"),
    one(&["strict-min-isr"], "the watermark stands still below min ISR (L4)"),
    one(&["truncation-by-epoch"], "a follower cuts where its epoch ends (L3, F2)"),
    one(&["partition-epoch-cas"], "a proposal is for the current partition epoch (3.4)"),
    one(&["leader-epoch-in-proposal"], "a proposal is from the current leader epoch (3.4)"),
    one(&["partition-epoch-cas", "leader-epoch-in-proposal"], "both of the above"),
    one(&["broker-epoch-at-join"], "who joins is in the life that fetched (L6, KIP-903)"),
    one(&["fenced-at-join"], "who joins is not fenced (3.4)"),
    one(&["identical-retry"], "a repeated proposal is the same proposal (L7)"),
    one(&["partition-epoch-on-refusal"], "a refusal uses the proposal up (3.4)"),
    one(&["wiped-check"], "an empty disk is noticed (B2)"),
    one(&["lives-per-storage"], "a replaced disk counts lives anew (B2)"),
    one(&["replacement-is-aware"], "who takes a disk's place knows whose it is (B2)"),
    one(&["lossy-check"], "a power cut is noticed (B2)"),
    one(&["doubtful-excluded"], "who may have lost records is not elected (B3)"),
    one(&["incarnation-order"], "lives of a broker register in order (B2)"),
    one(&["elect-the-unfenced"], "a leader is not fenced (3.4)"),
    one(&["elect-the-eligible"], "a leader comes from ISR or ELR (3.4)"),
    one(&["elr-kept"], "who leaves below min ISR stays eligible (3.4)"),
    one(&["flush-gate"], "only what is synced counts (3.1, F4)"),
    one(&["recovery-sync"], "what recovery keeps is synced (G5)"),
    one(&["write-anew"], "after a failed sync the tail is written anew (B2)"),
    one(&["watermark-before-truncation"], "a diverging answer's watermark is ignored (F2)"),
    one(&["leader-epoch-on-fetch"], "a fetch is for the leader's epoch (L3)"),
    one(&["stale-life-fetch"], "a fetch from an earlier life is refused (L3)"),
    one(&["fetch-matches"], "only the standing fetch is answered (F1)"),
    one(&["leader-epoch-on-fetch", "fetch-matches"], "both of the above"),
    one(&["unproven-below-start"], "what nobody can vouch for below the leader's start is given up (F5)"),
    one(&["place-of-deleted"], "an emptied log keeps its place above deleted records (F2)"),
    one(&["epoch-start-record"], "a leader writes down where its epoch begins (L1)"),
    one(&["newer-registrations-only"], "an older registration changes nothing (3.4, 6)"),
    one(&["own-registration-first"], "a broker takes no registration older than its own (3.3)"),
    one(&["move-awaits-all"], "a move ends when everybody who comes is in sync (3.4)"),
    one(&["move-keeps-min-isr"], "a move ends with min ISR of those who stay (3.4)"),
    one(&["cancel-keeps-min-isr"], "a move is called off with min ISR of those who stay (3.4)"),
    one(&["topic-id-on-disk"], "a log belongs to one life of its topic (KIP-516)"),
    one(&["read-index"], "who answers makes sure that it leads (R6)"),
    one(&["generation-follows"], "generations follow each other (Q3)"),
    one(&["commit-generation", "session-generation"], "who commits is in the group's generation (Q1)"),
    one(&["commit-generation"], "the same, in the registries alone"),
    one(&["acks-all-waits"], "acks=all waits for the watermark (L8)"),
];

//! Bytes of requests under way, over all connections: who wants to read more waits until others are answered.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bound on request bytes in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    units: Arc<Semaphore>,
    unit_count: u32,
}

/// Some bytes of the budget; dropping gives them back.
#[derive(Debug)]
pub struct BudgetShare {
    _units: OwnedSemaphorePermit,
}

impl ByteBudget {
    pub fn new(bytes: usize) -> ByteBudget {
        let unit_count = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        ByteBudget { units: Arc::new(Semaphore::new(unit_count as usize)), unit_count }
    }

    /// Waits for room. A request larger than the whole budget gets all of it: it is taken alone rather than never.
    pub async fn take(&self, bytes: usize) -> BudgetShare {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.unit_count);
        let taken = Arc::clone(&self.units).acquire_many_owned(units).await;
        BudgetShare { _units: taken.expect("the budget is never closed") }
    }
}

const UNIT_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_request_waits_until_others_are_answered() {
        let budget = ByteBudget::new(10 << 10);
        let first = budget.take(8 << 10).await;
        assert!(budget.take(3 << 10).now_or_never().is_none());
        drop(first);
        assert!(budget.take(3 << 10).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_request_larger_than_the_budget_is_taken_alone() {
        let budget = ByteBudget::new(10 << 10);
        let all = budget.take(1 << 30).await;
        assert!(budget.take(1).now_or_never().is_none());
        drop(all);
        assert!(budget.take(1).now_or_never().is_some());
    }
}

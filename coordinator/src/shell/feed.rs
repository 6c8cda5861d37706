//! What brokers follow: committed records as one stream, from an index on.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use prost::Message;
use thalweg_proto::v1::{FeedItem, Record};
use tokio::sync::mpsc;

use crate::registry::state::{State, is_fed};

/// Keeps recent items and hands new ones to subscribers.
///
/// A subscriber that does not keep up is cut off; it comes back and goes on from the index that it has.
pub struct Feed {
    inner: Mutex<Inner>,
    limits: FeedLimits,
}

#[derive(Clone, Copy, Debug)]
pub struct FeedLimits {
    /// Items kept for subscribers that come back.
    pub items_max: usize,
    /// Bytes of such items.
    pub bytes_max: usize,
    /// Items that may wait for one subscriber.
    pub queue_max: usize,
}

impl Default for FeedLimits {
    fn default() -> FeedLimits {
        FeedLimits { items_max: 10_000, bytes_max: 16 << 20, queue_max: 4_096 }
    }
}

struct Inner {
    recent: VecDeque<Kept>,
    bytes: usize,
    /// Every item after this index is in `recent`.
    floor: u64,
    subscribers: Vec<mpsc::Sender<FeedItem>>,
    is_closed: bool,
}

struct Kept {
    item: FeedItem,
    bytes: usize,
}

/// What a subscriber gets: first `start`, then what `live` gives, without a gap. `live` ends when it is cut off.
pub struct Subscription {
    pub start: Vec<FeedItem>,
    pub live: mpsc::Receiver<FeedItem>,
}

impl Feed {
    /// A feed that goes on from `index`.
    pub fn new(index: u64, limits: FeedLimits) -> Feed {
        let inner =
            Inner { recent: VecDeque::new(), bytes: 0, floor: index, subscribers: Vec::new(), is_closed: false };
        Feed { inner: Mutex::new(inner), limits }
    }

    /// Passes on the records of one entry. Called in order of entries, while nobody can read the state.
    pub fn publish(&self, index: u64, records: &[Record]) {
        let records: Vec<Record> = records.iter().filter(|record| is_fed(record)).cloned().collect();
        if records.is_empty() {
            return;
        }
        let item = FeedItem { index, records, image_start: false, image_complete: false };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subscribers.retain(|subscriber| subscriber.try_send(item.clone()).is_ok());
        let bytes = item.encoded_len();
        inner.bytes += bytes;
        inner.recent.push_back(Kept { item, bytes });
        while inner.recent.len() > self.limits.items_max || inner.bytes > self.limits.bytes_max {
            let Some(oldest) = inner.recent.pop_front() else { break };
            inner.bytes -= oldest.bytes;
            inner.floor = oldest.item.index;
        }
    }

    /// Subscribes from `from_index` on, or from an image if that is not at hand. The caller keeps the state from changing.
    ///
    /// `index` is that of the last entry applied here. What a subscriber has of another node ends at an entry that this node
    /// need not have fed, so any index up to it will do.
    pub fn subscribe(&self, state: &State, index: u64, from_index: u64) -> Subscription {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let start = if from_index > 0 && (inner.floor..=index).contains(&from_index) {
            let newer = inner.recent.iter().filter(|kept| kept.item.index > from_index);
            let mut items: Vec<FeedItem> = newer.map(|kept| kept.item.clone()).collect();
            // Entries that brokers need nothing of count too: what an earlier leader said to be at some index is known then.
            if items.last().map_or(from_index, |item| item.index) < index {
                items.push(FeedItem { index, ..FeedItem::default() });
            }
            items
        } else {
            image(state, index)
        };
        let (sender, live) = mpsc::channel(self.limits.queue_max);
        inner.subscribers.retain(|subscriber| !subscriber.is_closed());
        if !inner.is_closed {
            inner.subscribers.push(sender);
        }
        Subscription { start, live }
    }

    /// Cuts everyone off: this node leads no more, or its state was replaced up to `index`.
    pub fn cut(&self, index: Option<u64>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subscribers.clear();
        if let Some(index) = index {
            inner.recent.clear();
            inner.bytes = 0;
            inner.floor = index;
        }
    }

    /// Ends every subscription, those to come too: the node stops.
    pub fn close(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subscribers.clear();
        inner.is_closed = true;
    }

    pub fn subscriber_count(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.subscribers.iter().filter(|subscriber| !subscriber.is_closed()).count()
    }
}

/// The whole state in items of bounded size.
fn image(state: &State, index: u64) -> Vec<FeedItem> {
    let mut items = vec![FeedItem { index, image_start: true, ..FeedItem::default() }];
    let mut bytes = 0;
    for record in state.records().filter(is_fed) {
        let length = record.encoded_len();
        if bytes > 0 && bytes + length > IMAGE_ITEM_BYTES {
            items.push(FeedItem { index, ..FeedItem::default() });
            bytes = 0;
        }
        bytes += length;
        if let Some(last) = items.last_mut() {
            last.records.push(record);
        }
    }
    if let Some(last) = items.last_mut() {
        last.image_complete = true;
    }
    items
}

const IMAGE_ITEM_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use thalweg_proto::v1::record::Kind;
    use thalweg_proto::v1::{ClusterRecord, ProducerIdsRecord};

    use super::*;

    fn record() -> Vec<Record> {
        vec![Record { kind: Some(Kind::Cluster(ClusterRecord { cluster_id: "c".into() })) }]
    }

    fn received(live: &mut mpsc::Receiver<FeedItem>) -> Vec<u64> {
        std::iter::from_fn(|| live.try_recv().ok()).map(|item| item.index).collect()
    }

    #[test]
    fn a_subscriber_that_lags_is_cut_and_goes_on_from_its_index() {
        let feed = Feed::new(0, FeedLimits { queue_max: 2, ..FeedLimits::default() });
        let state = State::default();
        let mut slow = feed.subscribe(&state, 0, 0);
        (1..=3).for_each(|index| feed.publish(index, &record()));
        assert_eq!(received(&mut slow.live), [1, 2]);
        assert!(slow.live.is_closed() && feed.subscriber_count() == 0);
        let back = feed.subscribe(&state, 3, 2);
        assert_eq!(back.start.iter().map(|item| (item.index, item.image_start)).collect::<Vec<_>>(), [(3, false)]);
    }

    #[test]
    fn who_comes_from_too_far_back_or_from_the_future_gets_an_image() {
        let feed = Feed::new(0, FeedLimits { items_max: 2, ..FeedLimits::default() });
        (1..=4).for_each(|index| feed.publish(index, &record()));
        let state = State::default();
        for (from, image) in [(1, true), (2, false), (4, false), (5, true), (0, true)] {
            let start = feed.subscribe(&state, 4, from).start;
            assert_eq!(start.first().is_some_and(|item| item.image_start), image, "from {from}");
        }
    }

    #[test]
    fn records_that_brokers_do_not_keep_stay_here() {
        let feed = Feed::new(0, FeedLimits::default());
        let mut all = feed.subscribe(&State::default(), 0, 0);
        feed.publish(1, &[Record { kind: Some(Kind::ProducerIds(ProducerIdsRecord { next_producer_id: 1 })) }]);
        feed.publish(2, &record());
        feed.close();
        assert_eq!(received(&mut all.live), [2]);
        assert!(feed.subscribe(&State::default(), 2, 2).live.is_closed());
    }
}

//! Which version of an API to speak on a connection.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use thalweg_wire::api::ApiKey;
use thalweg_wire::messages::ApiVersionsResponse;

/// What the broker at the other end offers.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfferedVersions {
    ranges: BTreeMap<i16, (i16, i16)>,
}

impl OfferedVersions {
    pub(crate) fn from_answer(answer: &ApiVersionsResponse) -> OfferedVersions {
        let ranges = answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        OfferedVersions { ranges }
    }

    /// The highest version in both ranges; `None` if there is none.
    pub(crate) fn highest_common(&self, api_key: ApiKey, ours: &RangeInclusive<i16>) -> Option<i16> {
        let (min, max) = *self.ranges.get(&api_key.code())?;
        let highest = max.min(*ours.end());
        (highest >= min && highest >= *ours.start()).then_some(highest)
    }

    /// The offered range as text, for errors.
    pub(crate) fn describe(&self, api_key: ApiKey) -> String {
        match self.ranges.get(&api_key.code()) {
            Some((min, max)) => format!("{min} to {max}"),
            None => "none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_that_both_know_is_taken() {
        let offered = OfferedVersions { ranges: [(1, (4, 16)), (2, (5, 3))].into() };
        assert_eq!(offered.highest_common(ApiKey::Fetch, &(0..=12)), Some(12));
        assert_eq!(offered.highest_common(ApiKey::Fetch, &(4..=18)), Some(16));
        assert_eq!(offered.highest_common(ApiKey::Fetch, &(0..=3)), None);
        assert_eq!(offered.highest_common(ApiKey::Fetch, &(17..=18)), None);
        assert_eq!(offered.highest_common(ApiKey::ListOffsets, &(0..=9)), None, "a range that is none");
        assert_eq!(offered.highest_common(ApiKey::Metadata, &(0..=9)), None);
        assert_eq!(offered.describe(ApiKey::Fetch), "4 to 16");
    }
}

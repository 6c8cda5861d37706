//! What the screen shows, as values.

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    pub cluster_id: String,
    pub broker_count: usize,
    /// Empty if all is well.
    pub troubles: Vec<String>,
    pub topics: Vec<TopicRow>,
    pub groups: Vec<GroupRow>,
    /// How long the look took, in milliseconds.
    pub took_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicRow {
    pub name: String,
    pub partition_count: i32,
    pub record_count: i64,
    pub size_bytes: u64,
    /// `None` at the first look.
    pub records_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub is_well: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupRow {
    pub name: String,
    pub state: String,
    pub member_count: usize,
    pub lag: i64,
    pub lag_ms: Option<i64>,
    /// Commits per second; `None` at the first look.
    pub records_per_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    Switch,
    Sort,
    Up,
    Down,
    Redraw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    Topics,
    Groups,
}

/// A picture, and how the user looks at it.
#[derive(Debug)]
pub struct View {
    pub picture: Picture,
    /// Why the last look failed.
    pub failure: Option<String>,
    pub pane: Pane,
    /// Busiest first, instead of by name.
    pub by_rate: bool,
    /// First row shown in each pane.
    pub offsets: [usize; 2],
}

impl View {
    pub fn new(picture: Picture) -> View {
        let mut view =
            View { picture: Picture::default(), failure: None, pane: Pane::Topics, by_rate: true, offsets: [0, 0] };
        view.take(picture);
        view
    }

    pub fn take(&mut self, picture: Picture) {
        self.picture = picture;
        self.failure = None;
        self.order();
    }

    pub fn fail(&mut self, reason: &str) {
        self.failure = Some(reason.to_owned());
    }

    pub fn press(&mut self, key: Key) {
        let pane = self.pane as usize;
        let last = [self.picture.topics.len(), self.picture.groups.len()][pane].saturating_sub(1);
        match key {
            Key::Switch => self.pane = if self.pane == Pane::Topics { Pane::Groups } else { Pane::Topics },
            Key::Sort => {
                self.by_rate = !self.by_rate;
                self.order();
            }
            Key::Up => self.offsets[pane] = self.offsets[pane].saturating_sub(1),
            Key::Down => self.offsets[pane] = (self.offsets[pane] + 1).min(last),
            Key::Quit | Key::Redraw => {}
        }
    }

    fn order(&mut self) {
        let Picture { topics, groups, .. } = &mut self.picture;
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        if self.by_rate {
            // Stable: those that are equally busy stay in the order of their names.
            topics.sort_by(|a, b| b.records_per_s.unwrap_or(0.0).total_cmp(&a.records_per_s.unwrap_or(0.0)));
            groups.sort_by_key(|group| std::cmp::Reverse(group.lag));
        }
        self.offsets[0] = self.offsets[0].min(topics.len().saturating_sub(1));
        self.offsets[1] = self.offsets[1].min(groups.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let topic = |name: &str, rate| TopicRow { name: name.into(), records_per_s: Some(rate), ..TopicRow::default() };
        let group = |name: &str, lag| GroupRow { name: name.into(), lag, ..GroupRow::default() };
        Picture {
            topics: vec![topic("b", 1.0), topic("a", 1.0), topic("c", 9.0)],
            groups: vec![group("x", 1), group("y", 5)],
            ..Picture::default()
        }
    }

    fn topics(view: &View) -> Vec<&str> {
        view.picture.topics.iter().map(|topic| topic.name.as_str()).collect()
    }

    #[test]
    fn the_busiest_come_first_until_asked_otherwise() {
        let mut view = View::new(picture());
        assert_eq!(topics(&view), ["c", "a", "b"]);
        assert_eq!(view.picture.groups[0].name, "y");
        view.press(Key::Sort);
        assert_eq!(topics(&view), ["a", "b", "c"]);
    }

    #[test]
    fn scrolling_stays_within_the_rows_also_when_they_get_fewer() {
        let mut view = View::new(picture());
        view.press(Key::Up);
        assert_eq!(view.offsets, [0, 0]);
        (0..9).for_each(|_| view.press(Key::Down));
        view.press(Key::Switch);
        (0..9).for_each(|_| view.press(Key::Down));
        assert_eq!(view.offsets, [2, 1]);
        view.take(Picture::default());
        assert_eq!(view.offsets, [0, 0]);
    }

    #[test]
    fn a_look_that_failed_leaves_the_last_picture_until_the_next_one_works() {
        let mut view = View::new(picture());
        view.fail("no broker answers");
        assert_eq!((view.picture.topics.len(), view.failure.as_deref()), (3, Some("no broker answers")));
        view.take(picture());
        assert_eq!(view.failure, None);
    }
}

//! Topic names: checked once, then carried as proof.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A valid topic name: 1 to 249 of `[a-zA-Z0-9._-]`, neither `.` nor `..`.
///
/// The rule is Kafka's; it is also what makes a name safe as part of a path (FAILURES row 63).
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// # Errors
    /// Says which rule the name breaks; whoever chose the name is at fault.
    pub fn new(name: &str) -> Result<TopicName, TopicNameError> {
        TopicName::check(name).map(|()| TopicName(Arc::from(name)))
    }

    /// Whether [`TopicName::new`] takes it.
    ///
    /// # Errors
    /// As [`TopicName::new`].
    pub fn check(name: &str) -> Result<(), TopicNameError> {
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if name == "." || name == ".." {
            return Err(TopicNameError::Dots);
        }
        if name.len() > LENGTH_MAX {
            return Err(TopicNameError::TooLong { length: name.len() });
        }
        match name.chars().find(|c| !matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-')) {
            Some(character) => Err(TopicNameError::Character { character }),
            None => Ok(()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Which rule a topic name breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicNameError {
    Empty,
    Dots,
    TooLong { length: usize },
    Character { character: char },
}

impl fmt::Display for TopicNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicNameError::Empty => write!(f, "a topic name cannot be empty"),
            TopicNameError::Dots => write!(f, "a topic name cannot be '.' or '..'"),
            TopicNameError::TooLong { length } => {
                write!(f, "a topic name has at most {LENGTH_MAX} characters, this one has {length}")
            }
            TopicNameError::Character { character } => {
                write!(f, "a topic name holds only a-z, A-Z, 0-9, '.', '_' and '-', this one has {character:?}")
            }
        }
    }
}

impl std::error::Error for TopicNameError {}

const LENGTH_MAX: usize = 249;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_directory_are_refused() {
        assert_eq!(TopicName::new(""), Err(TopicNameError::Empty));
        assert_eq!(TopicName::new("."), Err(TopicNameError::Dots));
        assert_eq!(TopicName::new(".."), Err(TopicNameError::Dots));
        assert_eq!(TopicName::new("../x"), Err(TopicNameError::Character { character: '/' }));
        assert_eq!(TopicName::new("a\0b"), Err(TopicNameError::Character { character: '\0' }));
        assert_eq!(TopicName::new(&"a".repeat(250)), Err(TopicNameError::TooLong { length: 250 }));
    }

    #[test]
    fn ordinary_names_pass() {
        for name in ["a", "a.b_c-D9", "...", "__consumer_offsets", &"a".repeat(249)] {
            assert!(TopicName::new(name).is_ok(), "{name}");
        }
    }
}

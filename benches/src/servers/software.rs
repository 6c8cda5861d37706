//! Where the peers come from: `benches/peers/fetch` installs each from its package manager.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::report::progress;

/// What was fetched, and why what could not be.
#[derive(Debug, Default)]
pub struct Software {
    found: BTreeMap<&'static str, Result<Found, String>>,
}

/// One system's software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// A program, or a Java class path.
    pub place: String,
    pub version: String,
}

impl Software {
    /// Asks for each of `names`; `folder` is `benches/peers` of the clone.
    pub fn fetch(folder: &Path, names: &[&'static str]) -> Software {
        let found = names.iter().map(|name| (*name, fetch(folder, name))).collect();
        Software { found }
    }

    /// # Errors
    /// Why this system cannot be run here, in words for the report.
    pub fn get(&self, name: &str) -> Result<&Found, String> {
        match self.found.get(name) {
            Some(Ok(found)) => Ok(found),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("it was not asked for".to_owned()),
        }
    }

    /// What is there, for the report.
    pub fn versions(&self) -> String {
        let shown = self.found.iter().map(|(name, found)| match found {
            Ok(found) => format!("{name} {}", found.version),
            Err(reason) => format!("{name} not run ({reason})"),
        });
        shown.collect::<Vec<_>>().join("; ")
    }
}

fn fetch(folder: &Path, name: &str) -> Result<Found, String> {
    progress(&format!("fetching {name}, if it is not here yet"));
    let script = folder.join("fetch");
    let output = Command::new(&script).arg(name).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", script.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or("it said nothing");
    if !output.status.success() {
        return Err(last.to_owned());
    }
    let (version, place) = last.split_once('\t').ok_or_else(|| format!("fetch said {last:?}"))?;
    Ok(Found { place: place.to_owned(), version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fetching(script: &str) -> Result<Found, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fetch");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("an executable script");
        Software::fetch(folder.path(), &["it"]).get("it").cloned()
    }

    #[test]
    fn a_system_that_cannot_be_had_is_told_with_its_reason() {
        assert_eq!(fetching("echo working; echo 'no JDK'; exit 77"), Err("no JDK".to_owned()));
        assert!(fetching("exit 77").is_err() && fetching("echo one-word").is_err());
        let found = Found { place: "/a b/c".to_owned(), version: "4.4.0".to_owned() };
        assert_eq!(fetching("echo working; printf '4.4.0\\t/a b/c\\n'"), Ok(found));
    }
}

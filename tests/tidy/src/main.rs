//! Holds the tree to its walls: which crate may use which, and what pure code must not touch.
//!
//! Prints each breach as `path:line: what` and exits 1 if there is any.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

fn main() -> Result<ExitCode> {
    // Of this run: a build cache may come from another clone, whose folder is not the one to look at.
    let here = std::env::var("CARGO_MANIFEST_DIR").context("run it with cargo: cargo run -p thalweg-tidy")?;
    let root = Path::new(&here).join("../..");
    let mut breaches = Vec::new();
    check_arrows(&root, &mut breaches)?;
    let mut files = Vec::new();
    for (krate, _) in ARROWS {
        rust_files(&root.join(krate).join("src"), &mut files)?;
    }
    files.sort();
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        check_file(&name, &text, &mut breaches);
    }
    for breach in &breaches {
        #[expect(clippy::print_stdout, reason = "a command's output")]
        {
            println!("{breach}");
        }
    }
    Ok(if breaches.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Which of our crates each crate may depend on (docs/ARCHITECTURE.md, "Crates"). A new arrow is a decision to record.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("world", &["model"]),
    ("wire", &["model"]),
    ("proto", &["model"]),
    ("storage", &["model", "wire", "world"]),
    ("coordinator", &["model", "proto", "world"]),
    ("coordinator/rocks", &["coordinator"]),
    ("broker", &["model", "wire", "proto", "storage", "world"]),
    ("client", &["model", "wire", "world"]),
    (
        "thalweg",
        &["model", "world", "wire", "proto", "storage", "coordinator", "coordinator-rocks", "broker", "client"],
    ),
];

/// Folders of pure code: input is a value, time is an argument, output is effects.
const PURE: &[&str] = &[
    "model/src/",
    "wire/src/",
    "broker/src/machine/",
    "coordinator/src/registry/",
    "coordinator/src/session/",
    "coordinator/src/assignor/",
];

/// What pure code must not name, and what to use instead.
const BANNED_IN_PURE: &[(&str, &str)] = &[
    ("Instant::now", "take the time as an argument"),
    ("SystemTime", "take the time as an argument"),
    ("thread_rng", "take a seed as an argument"),
    ("rand::rng", "take a seed as an argument"),
    ("HashMap", "BTreeMap: its order is the same everywhere"),
    ("HashSet", "BTreeSet: its order is the same everywhere"),
    ("std::fs", "I/O belongs to a shell"),
    ("std::net", "I/O belongs to a shell"),
    ("async fn", "machines are synchronous"),
    (".await", "machines are synchronous"),
];

/// What only one place may name.
const CONFINED: &[(&str, &str)] = &[
    ("openraft::", "coordinator/"),
    ("rocksdb::", "coordinator/rocks/"),
    // Shells may read the monotonic clock for timeouts; the wall clock is a value that tests must be able to turn.
    ("SystemTime::now", "world/"),
];

const LINES_MAX: usize = 700;

fn check_arrows(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for (krate, allowed) in &allowed {
        let manifest = fs::read_to_string(root.join(krate).join("Cargo.toml")).with_context(|| (*krate).to_owned())?;
        let mut section = "";
        for (number, line) in manifest.lines().enumerate() {
            if line.starts_with('[') {
                section = line.trim();
            }
            // Tests may compose what production code may not.
            if section != "[dependencies]" {
                continue;
            }
            let Some(rest) = line.strip_prefix("thalweg-") else { continue };
            let used = rest.split(['.', ' ', '=']).next().unwrap_or_default();
            if !allowed.contains(&used) {
                breaches.push(format!("{krate}/Cargo.toml:{}: {krate} may not depend on {used}", number + 1));
            }
        }
    }
    Ok(())
}

/// `name` is the path from the root. Looks at the lines before the file's tests.
fn check_file(name: &str, text: &str, breaches: &mut Vec<String>) {
    let is_test = name.ends_with("tests.rs") || name.ends_with("_test.rs") || name.contains("/tests/");
    let mut code_lines = 0;
    for (number, line) in text.lines().enumerate() {
        if line.contains("FIXME") {
            breaches.push(format!("{name}:{}: FIXME does not reach main", number + 1));
        }
        if line.trim() == "#[cfg(test)]" || is_test {
            break;
        }
        let line = line.trim_start();
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        code_lines += 1;
        if PURE.iter().any(|folder| name.starts_with(folder)) {
            for (word, instead) in BANNED_IN_PURE {
                if line.contains(word) {
                    breaches.push(format!("{name}:{}: {word} in pure code: {instead}", number + 1));
                }
            }
        }
        for (word, home) in CONFINED {
            if line.contains(word) && !name.starts_with(home) {
                breaches.push(format!("{name}:{}: {word} is confined to {home}", number + 1));
            }
        }
    }
    if code_lines > LINES_MAX {
        breaches.push(format!("{name}: {code_lines} lines of code; what two things is it?"));
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(name: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        check_file(name, text, &mut found);
        found
    }

    #[test]
    fn pure_code_that_reads_a_clock_is_a_breach() {
        let found = breaches("broker/src/machine/isr.rs", "fn f() {\n    let t = SystemTime::now();\n}\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("broker/src/machine/isr.rs:2: SystemTime in pure code"));
    }

    #[test]
    fn comments_and_tests_may_name_what_is_banned() {
        assert_eq!(breaches("model/src/a.rs", "// HashMap\n#[cfg(test)]\nuse std::collections::HashMap;\n"), [""; 0]);
    }

    #[test]
    fn rocksdb_stays_in_its_leaf() {
        assert_eq!(breaches("coordinator/src/shell/log.rs", "use rocksdb::DB;\n").len(), 1);
        assert_eq!(breaches("coordinator/rocks/src/lib.rs", "use rocksdb::DB;\n"), [""; 0]);
    }

    #[test]
    fn an_arrow_that_is_not_listed_is_a_breach() {
        let root = tempfile::tempdir().unwrap();
        for (krate, _) in ARROWS {
            fs::create_dir_all(root.path().join(krate)).unwrap();
            fs::write(root.path().join(krate).join("Cargo.toml"), "[dependencies]\n").unwrap();
        }
        let manifest = "[dependencies]\nthalweg-storage.workspace = true\n[dev-dependencies]\nthalweg-client = \"1\"\n";
        fs::write(root.path().join("wire/Cargo.toml"), manifest).unwrap();
        let mut found = Vec::new();
        check_arrows(root.path(), &mut found).unwrap();
        assert_eq!(found, ["wire/Cargo.toml:2: wire may not depend on storage"]);
    }
}

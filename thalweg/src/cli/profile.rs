//! `thalweg profile`: clusters by name, in one file of the user's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::failure::Failure;
use super::output::{Output, Table, note, print_value};

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Name a cluster, and use it from now on
    Create(Create),
    /// List profiles; a star marks the one in use
    List(List),
    /// Use a profile where no -b, --profile or THALWEG_BROKERS says otherwise
    Use(Use),
    /// Show one profile
    Show(Show),
    /// Forget a profile
    Delete(Delete),
}

#[derive(Debug, Args)]
pub struct Create {
    /// 1 to 64 of a-z, A-Z, 0-9, '_', '-'
    name: String,
    /// Broker addresses, host:port, comma-separated
    #[arg(short = 'b', long, visible_alias = "bootstrap-server", value_name = "ADDRESSES")]
    brokers: String,
    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Change the profile if there is one of this name
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Use {
    name: String,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Left out: the one in use
    name: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Delete {
    name: String,
}

/// The file's contents.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// One cluster as the user named it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub brokers: String,
    /// In seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

pub fn run(command: ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::Create(verb) => verb.run(),
        ProfileCommand::List(verb) => verb.run(),
        ProfileCommand::Use(verb) => verb.run(),
        ProfileCommand::Show(verb) => verb.run(),
        ProfileCommand::Delete(verb) => verb.run(),
    }
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        let is_name = (1..=64).contains(&self.name.len())
            && self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !is_name {
            return Err(Failure::usage(format!(
                "'{}' is no profile name; use 1 to 64 of a-z, A-Z, 0-9, _, -",
                self.name
            )));
        }
        let mut profiles = Profiles::read()?;
        if profiles.profiles.contains_key(&self.name) && !self.replace {
            let name = &self.name;
            return Err(Failure::failed(format!("profile {name} exists already; --replace changes it")));
        }
        let path = profile_path()?;
        profiles.profiles.insert(self.name.clone(), Profile { brokers: self.brokers, timeout: self.timeout });
        profiles.current = Some(self.name.clone());
        profiles.write(&path)?;
        note(&format!("profile {} is in use now; kept in {}", self.name, path.display()));
        Ok(())
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let profiles = Profiles::read()?;
        if self.output.format.is_data() {
            let entries = profiles.profiles.keys().map(|name| profiles.value(name)).collect();
            return print_value(self.output.format, &entries);
        }
        let mut table = Table::new(&["", "PROFILE", "BROKERS", "TIMEOUT"]);
        for (name, profile) in &profiles.profiles {
            let mark = if profiles.current.as_ref() == Some(name) { "*" } else { "" };
            let timeout = profile.timeout.map_or("-".to_owned(), |timeout| format!("{timeout} s"));
            table.row(vec![mark.to_owned(), name.clone(), profile.brokers.clone(), timeout]);
        }
        table.print()
    }
}

impl Use {
    fn run(self) -> Result<(), Failure> {
        let mut profiles = Profiles::read()?;
        profiles.find(Some(&self.name))?;
        profiles.current = Some(self.name.clone());
        profiles.write(&profile_path()?)?;
        note(&format!("profile {} is in use now", self.name));
        Ok(())
    }
}

impl Show {
    fn run(self) -> Result<(), Failure> {
        let profiles = Profiles::read()?;
        let Some((name, profile)) = profiles.find(self.name.as_deref())? else {
            return Err(Failure::not_found(
                "no profile is in use; make one with `thalweg profile create NAME -b host:port`",
            ));
        };
        if self.output.format.is_data() {
            return print_value(self.output.format, &profiles.value(name));
        }
        let mut table = Table::new(&["PROFILE", name]);
        table.row(vec!["brokers".into(), profile.brokers.clone()]);
        table.row(vec!["timeout".into(), profile.timeout.map_or("-".to_owned(), |timeout| format!("{timeout} s"))]);
        table.row(vec!["in use".into(), if profiles.is_current(name) { "yes" } else { "no" }.into()]);
        table.print()
    }
}

impl Delete {
    fn run(self) -> Result<(), Failure> {
        let mut profiles = Profiles::read()?;
        profiles.find(Some(&self.name))?;
        profiles.profiles.remove(&self.name);
        profiles.current = profiles.current.filter(|name| *name != self.name);
        profiles.write(&profile_path()?)?;
        note(&format!("deleted profile {}", self.name));
        Ok(())
    }
}

impl Profiles {
    /// What the user's file holds; empty if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or understood; names it.
    pub fn read() -> Result<Profiles, Failure> {
        // Without a home there are no profiles; only whoever wants to keep one must know where.
        let Ok(path) = profile_path() else { return Ok(Profiles::default()) };
        match fs::read_to_string(&path) {
            Ok(text) => Profiles::parse(&text).map_err(|failure| failure.at(&path.display().to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Profiles::default()),
            Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
        }
    }

    pub fn parse(text: &str) -> Result<Profiles, Failure> {
        toml::from_str(text).map_err(|error| Failure::usage(error.to_string()))
    }

    /// The profile of this name, or without a name the one in use.
    ///
    /// # Errors
    /// There is none of this name; says which there are.
    pub fn find(&self, name: Option<&str>) -> Result<Option<(&str, &Profile)>, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        match self.profiles.get_key_value(name) {
            Some((name, profile)) => Ok(Some((name, profile))),
            None => {
                let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
                let known = if known.is_empty() {
                    "there are none".to_owned()
                } else {
                    format!("there are {}", known.join(", "))
                };
                Err(Failure::not_found(format!("there is no profile {name}; {known}")))
            }
        }
    }

    fn is_current(&self, name: &str) -> bool {
        self.current.as_deref() == Some(name)
    }

    fn value(&self, name: &str) -> serde_json::Value {
        let profile = self.profiles.get(name);
        json!({
            "profile": name,
            "brokers": profile.map(|profile| profile.brokers.as_str()),
            "timeout_s": profile.and_then(|profile| profile.timeout),
            "current": self.is_current(name),
        })
    }

    /// All or nothing: whoever reads at the same time sees the old file or the new one.
    fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = toml::to_string(self).map_err(|error| Failure::failed(error.to_string()))?;
        let replace = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let beside = path.with_extension(format!("toml.{}", std::process::id()));
            fs::write(&beside, text)?;
            fs::rename(&beside, path)
        };
        replace().map_err(|error: io::Error| Failure::failed(format!("cannot write {}: {error}", path.display())))
    }
}

/// `$XDG_CONFIG_HOME/thalweg/profiles.toml`, else under `~/.config`.
fn profile_path() -> Result<PathBuf, Failure> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")));
    let config =
        config.ok_or_else(|| Failure::failed("there is no folder for profiles: set HOME or XDG_CONFIG_HOME"))?;
    Ok(config.join("thalweg").join("profiles.toml"))
}

//! Several machines on this one: network namespaces with wires between them. Needs root.

use std::process::{Command, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};

/// Machines, each in networks of its own. Dropped: all of it is gone, and the processes in it have lost their network.
pub struct Lab {
    prefix: String,
    names: Vec<String>,
}

impl Lab {
    /// `networks` are named by three bytes of IPv4, such as `10.231.1`: a switch each, joined to nothing else.
    ///
    /// `None`, with a printed line, where the tests may not make any.
    pub fn new(networks: &[&str]) -> Option<Lab> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("tw{}-{}", id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut lab = Lab { prefix, names: Vec::new() };
        let switch = lab.name("switch");
        if !ip(&format!("netns add {switch}")) {
            println!("not run: network namespaces need root and iproute2");
            return None;
        }
        lab.names.push(switch.clone());
        for (number, _) in networks.iter().enumerate() {
            must(&format!("-n {switch} link add br{number} type bridge"));
            must(&format!("-n {switch} link set br{number} up"));
        }
        Some(lab)
    }

    /// A machine with an address in each of these networks, as position among [`Lab::new`]'s and address.
    pub fn machine(&mut self, name: &str, addresses: &[(usize, &str)]) {
        let (machine, switch) = (self.name(name), self.name("switch"));
        must(&format!("netns add {machine}"));
        self.names.push(machine.clone());
        must(&format!("-n {machine} link set lo up"));
        for (network, address) in addresses {
            let wire = format!("{name}-{network}");
            must(&format!("-n {switch} link add {wire} type veth peer name eth{network} netns {machine}"));
            must(&format!("-n {switch} link set {wire} master br{network} up"));
            must(&format!("-n {machine} addr add {address}/24 dev eth{network}"));
            must(&format!("-n {machine} link set eth{network} up"));
        }
    }

    /// A command that runs on a machine.
    pub fn on(&self, machine: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(machine)]).arg(program);
        command
    }

    fn name(&self, machine: &str) -> String {
        format!("{}-{machine}", self.prefix)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns delete {name}"));
        }
    }
}

fn must(words: &str) {
    assert!(ip(words), "ip {words}");
}

fn ip(words: &str) -> bool {
    let run = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

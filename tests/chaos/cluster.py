"""Three nodes as processes, each with a network address and a disk of its own, and what can be done to them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

import sandbox

NODES = (1, 2, 3)
KAFKA, RAFT, HTTP = 9092, 9093, 9644
LEASE_S = 9


def say(text):
    print(f"{time.monotonic() - _started:7.1f} s  {text}", flush=True)


class Network:
    """A namespace for each node, all on one bridge with us: links between nodes can be cut one way or both."""

    def __init__(self):
        run("mkdir -p /run/netns")
        run("mount -t tmpfs tmpfs /run/netns")
        run("ip link set lo up")
        run("ip link add chaos0 type bridge")
        run("ip addr add 10.77.0.254/24 dev chaos0")
        run("ip link set chaos0 up")
        for node in NODES:
            run(f"ip netns add n{node}")
            run(f"ip link add v{node} type veth peer name eth0 netns n{node}")
            run(f"ip link set v{node} master chaos0 up")
            self.inside(node, "ip link set lo up")
            self.inside(node, f"ip addr add {self.host(node)}/24 dev eth0")
            self.inside(node, "ip link set eth0 up")
            for command in ("add table inet chaos", "add chain inet chaos in { type filter hook input priority 0; }",
                            "add chain inet chaos out { type filter hook output priority 0; }"):
                self.inside(node, ["nft", command])

    def host(self, node):
        return f"10.77.0.{node}"

    def inside(self, node, command):
        run(["ip", "netns", "exec", f"n{node}", *(command.split() if isinstance(command, str) else command)])

    def drop_from(self, node, other, also=""):
        """What `other` sends does not reach `node`."""
        self.inside(node, ["nft", f"add rule inet chaos in ip saddr {self.host(other)} {also} drop"])

    def cut(self, node, others):
        """No packet passes between `node` and `others`; clients still reach both."""
        for other in others:
            self.drop_from(node, other)
            self.drop_from(other, node)

    def cut_coordinators(self, node):
        """Of `node` no packet passes to or from any coordinator, its own included; records still travel."""
        for chain in ("in", "out"):
            for port in ("dport", "sport"):
                self.inside(node, ["nft", f"add rule inet chaos {chain} tcp {port} {RAFT} drop"])

    def unplug(self, node):
        """From everything, clients included."""
        run(f"ip link set v{node} down")

    def heal(self):
        for node in NODES:
            run(f"ip link set v{node} up")
            self.inside(node, "nft flush chain inet chaos in")
            self.inside(node, "nft flush chain inet chaos out")


class Node:
    def __init__(self, number, host, ports, home):
        self.number, self.host, self.home = number, host, home
        self.kafka, self.raft, self.http = ports
        self.process = None
        self.boot_id = None


class Cluster:
    """`network` is None where there can be none: then all share the loopback and nothing can be cut.

    `homes` are directories for the nodes that have a disk of their own; the others get one in `directory`.
    """

    def __init__(self, directory, network=None, properties=None, homes=None):
        self.directory, self.network = directory, network
        self.binary = sandbox.thalweg()
        self.properties = {"default.replication.factor": "3", "min.insync.replicas": "2", **(properties or {})}
        self.nodes = {}
        for number in NODES:
            host, ports = ("127.0.0.1", free_ports(3)) if network is None else (network.host(number), (KAFKA, RAFT, HTTP))
            home = (homes or {}).get(number, directory / str(number))
            self.nodes[number] = Node(number, host, ports, home)
        self.brokers = ",".join(f"{node.host}:{node.kafka}" for node in self.nodes.values())
        self.coordinators = ",".join(f"{node.host}:{node.raft}" for node in self.nodes.values())

    def found(self):
        for node in self.nodes.values():
            # The node makes its directory itself, and sees to it that it stays.
            self.config_file(node).write_text(self.config(node))
        self.new_boot(*NODES)
        for number in NODES:
            self.start(number)

    def create_topic(self, topic, partitions, *more):
        """On all three nodes: at first not all of them have joined."""
        self.until(lambda: self.tool("topic", "create", topic, "--partitions", str(partitions), *more, check=False) is not None,
                   f"topic {topic} is not created")
        self.until_in_sync(topic)

    def config_file(self, node):
        return self.directory / f"{node.number}.toml"

    def log_file(self, number):
        return self.directory / f"{number}.log"

    def config(self, node):
        peers = [f"{peer.number}@{peer.host}:{peer.raft}" for peer in self.nodes.values()]
        properties = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in self.properties.items())
        return f"""
data_dir = "{node.home}"
[broker]
id = {node.number}
listen = ["{node.host}:{node.kafka}"]
[coordinator]
id = {node.number}
listen = "{node.host}:{node.raft}"
peers = {json.dumps(peers)}
[http]
listen = "{node.host}:{node.http}"
[properties]
{properties}
"""

    def new_boot(self, *numbers):
        """The machines of these nodes have been switched off and on."""
        for number in numbers:
            self.nodes[number].boot_id = self.directory / f"{number}.boot_id"
            self.nodes[number].boot_id.write_text(f"{uuid.uuid4()}\n")

    # --- processes ------------------------------------------------------------------------------------------------------

    def start(self, number):
        node = self.nodes[number]
        command = [self.binary, "start", "--config", str(self.config_file(node))]
        if self.network is not None:
            # The kernel of the machine tells all nodes one boot id; each node's machine must have its own.
            shell = f"mount --bind {node.boot_id} /proc/sys/kernel/random/boot_id && exec {' '.join(command)}"
            command = ["ip", "netns", "exec", f"n{number}", "sh", "-c", shell]
        log = open(self.log_file(number), "a")
        node.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def is_running(self, number):
        process = self.nodes[number].process
        return process is not None and process.poll() is None

    def signal(self, number, what):
        if self.is_running(number):
            self.nodes[number].process.send_signal(what)

    def kill(self, *numbers):
        """All at once."""
        for number in numbers:
            self.signal(number, signal.SIGKILL)
        for number in numbers:
            self.nodes[number].process.wait()

    def stop(self, *numbers):
        """In order: SIGTERM."""
        for number in numbers:
            self.signal(number, signal.SIGTERM)
        for number in numbers:
            try:
                self.nodes[number].process.wait(60)
            except subprocess.TimeoutExpired:
                say(f"node {number} does not stop")
                self.kill(number)

    def start_dead(self):
        """As whoever watches over processes does."""
        for number in NODES:
            if not self.is_running(number):
                self.start(number)

    # --- what it says ---------------------------------------------------------------------------------------------------

    def tool(self, *words, check=True, timeout=30):
        """A verb of the command line; its output, or None when it fails and need not succeed."""
        where = ["--coordinators", self.coordinators] if words[0] == "coordinator" else ["-b", self.brokers]
        try:
            done = subprocess.run([self.binary, *words, *where], capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            done = None
        if done is not None and done.returncode == 0:
            return done.stdout
        if check:
            sys.exit(f"thalweg {' '.join(words)}: {done.stderr.strip() if done else 'no answer'}")
        return None

    def until(self, holds, otherwise, timeout=90):
        """What `holds` gives once it is not false."""
        deadline = time.monotonic() + timeout
        while not (result := holds()):
            if time.monotonic() > deadline:
                raise Broken(f"{otherwise} within {timeout} s")
            time.sleep(0.1)
        return result

    def partitions(self, topic, number=None):
        """As the cluster describes them, or one node does; empty while nobody answers."""
        words = [self.binary, "topic", "describe", topic, "--format", "json", "-b", self.address(number) if number else self.brokers]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=10)
        except subprocess.TimeoutExpired:
            return []
        return json.loads(done.stdout)[0]["partitions"] if done.returncode == 0 else []

    def leaders(self, topic):
        """How many partitions each node leads; no node while nobody answers."""
        leaders = [partition["leader"] for partition in self.partitions(topic)]
        return {number: leaders.count(number) for number in NODES if number in leaders}

    def busiest_leader(self, topic):
        leaders = self.until(lambda: self.leaders(topic), "nobody leads")
        return max(leaders, key=leaders.get)

    def metric(self, number, name):
        """None while the node does not answer."""
        node = self.nodes[number]
        try:
            with urllib.request.urlopen(f"http://{node.host}:{node.http}/metrics", timeout=0.5) as answer:
                found = re.search(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", answer.read().decode(), re.MULTILINE)
                return float(found.group(1)) if found else None
        except (OSError, urllib.error.URLError):
            return None

    def coordinator_leader(self):
        """None while nobody leads. Of two that think so, the one with the newer term."""
        leading = [(self.metric(number, "thalweg_coordinator_raft_term"), number)
                   for number in NODES if self.metric(number, "thalweg_coordinator_leader")]
        return max(leading, key=lambda found: found[0] or 0)[1] if leading else None

    def address(self, number):
        return f"{self.nodes[number].host}:{self.nodes[number].kafka}"

    def in_sync(self, topic):
        """As every node sees it: one that was cut off may still believe in what was before."""
        return all(is_well(self.partitions(topic, number)) for number in NODES)

    def until_in_sync(self, topic, timeout=90):
        """Whoever ends meanwhile is started again: a node whose disks failed ends only once that is noted somewhere."""
        def holds():
            self.start_dead()
            return self.in_sync(topic)
        self.until(holds, f"not every replica of {topic} is in sync", timeout)

    def heal(self):
        """Undoes whatever was done to the nodes, and starts those that are dead."""
        if self.network is not None:
            self.network.heal()
        for number in NODES:
            self.signal(number, signal.SIGCONT)
        self.start_dead()

    def close(self):
        self.heal()
        self.stop(*NODES)


def is_well(partitions):
    return bool(partitions) and all(
        len(partition["isr"]) == len(NODES) and partition["leader"] in NODES for partition in partitions)


class Broken(Exception):
    """The cluster does not become well."""


def run(command):
    words = command.split() if isinstance(command, str) else command
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


_started = time.monotonic()

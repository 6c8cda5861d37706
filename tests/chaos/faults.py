"""What is done to a cluster while clients use it. Each fault heals what it can; the run heals the rest."""

import os
import shutil
import signal
import subprocess
import time

from cluster import LEASE_S, NODES, run, say

HOLD_S = 15


class Faults:
    def __init__(self, cluster, topic, rng, disk=None):
        """`disk`: the node whose disk is small, and where that is mounted."""
        self.cluster, self.topic, self.rng, self.disk = cluster, topic, rng, disk

    def all(self):
        """By name, in an order that the seed chooses; and why others cannot be."""
        names = {
            "kill the leader": self.kill_leader,
            "kill one": self.kill_one,
            "stop one": self.stop_one,
            "kill all": self.kill_all,
            "kill the coordinator leader every 5 s": self.kill_coordinators,
            "pause the leader for three leases": self.pause_leader,
            "pause one for a moment": self.pause_shortly,
            "restart all, one after the other": self.rolling_restart,
        }
        left_out = {}
        if self.cluster.network is not None:
            names |= {
                "cut the leader from all nodes": self.isolate_leader,
                "unplug the leader": self.unplug_leader,
                "followers do not hear the leader": self.mute_leader,
                "the leader does not hear a follower": self.deafen_leader,
                "cut the leader from all coordinators": self.cut_coordinators,
                "cut two nodes from each other": self.cut_one_link,
            }
        else:
            left_out["cut links"] = "no network of our own"
        if self.disk is not None:
            names["fill a disk"] = self.fill_disk
        else:
            left_out["fill a disk"] = "no loop device"
        if shutil.which("strace"):
            names["fail syncs of a disk"] = self.fail_syncs
        else:
            left_out["fail syncs of a disk"] = "needs strace"
        order = sorted(names)
        self.rng.shuffle(order)
        return {name: names[name] for name in order}, left_out

    def leader(self):
        return self.cluster.busiest_leader(self.topic)

    def hold(self, seconds=HOLD_S):
        time.sleep(seconds)

    def kill_leader(self):
        leader = self.leader()
        self.cluster.kill(leader)
        self.hold(3)
        return f"node {leader}"

    def kill_one(self):
        node = self.rng.choice(NODES)
        self.cluster.kill(node)
        self.hold(self.rng.uniform(0, 12))
        return f"node {node}"

    def stop_one(self):
        node = self.rng.choice(NODES)
        self.cluster.stop(node)
        self.hold(self.rng.uniform(0, 3))
        return f"node {node}"

    def kill_all(self):
        self.cluster.kill(*NODES)
        self.hold(self.rng.uniform(0, 2))

    def kill_coordinators(self):
        killed = []
        for _ in range(4):
            leader = self.cluster.until(self.cluster.coordinator_leader, "no coordinator leads")
            self.cluster.kill(leader)
            killed.append(leader)
            self.hold(1)
            self.cluster.start(leader)
            self.hold(4)
        return f"nodes {killed}"

    def pause_leader(self):
        leader = self.leader()
        self.cluster.signal(leader, signal.SIGSTOP)
        self.hold(3 * LEASE_S)
        self.cluster.signal(leader, signal.SIGCONT)
        return f"node {leader}"

    def pause_shortly(self):
        node, seconds = self.rng.choice(NODES), self.rng.uniform(0.2, LEASE_S)
        self.cluster.signal(node, signal.SIGSTOP)
        self.hold(seconds)
        self.cluster.signal(node, signal.SIGCONT)
        return f"node {node}, {seconds:.1f} s"

    def rolling_restart(self):
        for node in NODES:
            self.cluster.stop(node)
            self.cluster.start(node)
            self.cluster.until_in_sync(self.topic)

    def isolate_leader(self):
        leader = self.leader()
        self.cluster.network.cut(leader, others(leader))
        self.hold()
        return f"node {leader}"

    def unplug_leader(self):
        leader = self.leader()
        self.cluster.network.unplug(leader)
        self.hold()
        return f"node {leader}"

    def mute_leader(self):
        leader = self.leader()
        for other in others(leader):
            self.cluster.network.drop_from(other, leader)
        self.hold()
        return f"node {leader}"

    def deafen_leader(self):
        leader = self.leader()
        follower = self.rng.choice(others(leader))
        self.cluster.network.drop_from(leader, follower)
        self.hold()
        return f"node {leader} does not hear {follower}"

    def cut_coordinators(self):
        leader = self.leader()
        self.cluster.network.cut_coordinators(leader)
        self.hold()
        return f"node {leader}"

    def cut_one_link(self):
        between = self.rng.choice(NODES)
        one, other = others(between)
        self.cluster.network.cut(one, [other])
        self.hold()
        return f"nodes {one} and {other}"

    def fill_disk(self):
        node, mountpoint = self.disk
        filler = mountpoint / "filler"
        with open(filler, "wb") as file:
            block = bytes(1 << 20)
            try:
                while True:
                    file.write(block)
            except OSError:
                pass
        left = shutil.disk_usage(mountpoint).free
        self.hold()
        filler.unlink()
        was_dead = not self.cluster.is_running(node)
        return f"node {node}, {left} bytes left" + ("; it ended" if was_dead else "")

    def fail_syncs(self):
        node = self.rng.choice(NODES)
        # As if from the disk: every sync from now on says EIO. The node must not believe a later one.
        strace = subprocess.Popen(
            ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fsync,fdatasync",
             "-e", "inject=fsync,fdatasync:error=EIO", "-p", str(self.cluster.nodes[node].process.pid)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.hold(5)
        strace.terminate()
        said = strace.communicate()[1].strip()
        was_dead = not self.cluster.is_running(node)
        # Its operator restarts it.
        if not was_dead:
            self.cluster.stop(node)
        return f"node {node}" + ("; it ended" if was_dead else "") + (f" ({said})" if said else "")


def others(node):
    return [other for other in NODES if other != node]


def small_disk(directory, node, mebibytes):
    """A file system of its own for a node, and None where none can be made."""
    image, mountpoint = directory / "small-disk", directory / "disk"
    mountpoint.mkdir()
    try:
        run(["truncate", "-s", f"{mebibytes}M", str(image)])
        run(["mkfs.ext4", "-q", "-m", "0", str(image)])
        run(["mount", "-o", "loop", str(image), str(mountpoint)])
    except OSError as error:
        say(f"no small disk: {error}")
        return None
    return node, mountpoint

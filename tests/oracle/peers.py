"""The two brokers side by side: Apache Kafka out of its Maven artifacts, and Thalweg. Both with node id 1, 127.0.0.1, one node."""

import os
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thalweg"
LIBS = CACHE / "clients/java-4.4.0"
CLIENT_JAR = LIBS / "kafka-clients-4.4.0.jar"
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "2"}


class Unavailable(Exception):
    """A peer cannot be had on this machine."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A broker that runs until its block ends."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ensure_running(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")

    def await_port(self):
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            self.ensure_running()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen:\n{self.log.read_text()[-3000:]}")


class Kafka(Process):
    name = "Kafka"

    def __init__(self, directory):
        setup = subprocess.run([str(ROOT / "tests/clients/java/setup")], capture_output=True, text=True)
        if setup.returncode != 0:
            raise Unavailable(setup.stdout.strip().splitlines()[-1])
        self.port, controller = free_port(), free_port()
        config = Path(directory) / "server.properties"
        self.log = Path(directory) / "kafka.log"
        lines = {
            "process.roles": "broker,controller", "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": f"{directory}/kafka", "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1", **PROPERTIES,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        identity = self.run("kafka.tools.StorageTool", "random-uuid").split()[-1]
        self.run("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config))
        self.process = subprocess.Popen(self.java("-Xmx768m", "kafka.Kafka", str(config)), stdout=self.log.open("w"),
                                        stderr=subprocess.STDOUT)
        self.await_port()

    def java(self, *args):
        return ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{LIBS}/*", *args]

    def run(self, *args):
        return subprocess.run(self.java("-Xmx256m", *args), check=True, capture_output=True, text=True).stdout


class Thalweg(Process):
    name = "Thalweg"

    def __init__(self, directory):
        self.port, self.log = free_port(), Path(directory) / "thalweg.log"
        sets = [part for key, value in PROPERTIES.items() for part in ("--set", f"{key}={value}")]
        self.process = subprocess.Popen(
            [str(binary()), "dev", "--data-dir", f"{directory}/thalweg", "--listen", f"127.0.0.1:{self.port}",
             "--http", f"127.0.0.1:{free_port()}", *sets],
            stdout=subprocess.DEVNULL, stderr=self.log.open("w"),
        )
        self.await_port()


def binary():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = os.environ.get("THALWEG_BIN")
    for path in [Path(named)] if named else [target / "release/thalweg", target / "debug/thalweg"]:
        if path.exists():
            return path
    raise Unavailable("no thalweg binary: `cargo build -p thalweg`, or set THALWEG_BIN")

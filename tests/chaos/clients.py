"""The clients of a run, as processes that each write a history; and the checker that reads all of them."""

import signal
import subprocess
import sys
from pathlib import Path

import sandbox

HERE = Path(__file__).resolve().parent


class Clients:
    """`topic` is written and read by librdkafka and by our own client."""

    def __init__(self, directory, brokers, topic, partitions):
        self.directory, self.brokers, self.topic, self.partitions = directory / "histories", brokers, topic, partitions
        self.directory.mkdir(parents=True, exist_ok=True)
        self.processes, self.tasks = {}, {}

    def librdkafka(self, what, name, **more):
        words = [sys.executable, HERE / "librdkafka.py", what, self.brokers, self.topic, self.partitions]
        self.tasks[name] = what
        self._start(name, [*words, self.directory / name, name, *(f"{key}={value}" for key, value in more.items())])

    def ours(self, what, name, **more):
        words = [sandbox.ours("thalweg-load"), what, "-b", self.brokers, "--topic", self.topic, "--partitions", self.partitions]
        more = [part for key, value in more.items() for part in (f"--{key.replace('_', '-')}", value)]
        self.tasks[name] = what
        self._start(name, [*words, "--history", self.directory / name, "--name", name, *more])

    def seed(self, *groups):
        """Each group has committed the beginning of each partition: no member may need a reset."""
        from confluent_kafka import Consumer, TopicPartition

        for group in groups:
            consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": group, "log_level": 0})
            offsets = [TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)]
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.close()
            lines = [f"client seed-{group} {group}"]
            for partition in range(self.partitions):
                lines += [f"commit 1 {partition} 0", f"committed 2 {partition} 0"]
            (self.directory / f"seed-{group}").write_text("\n".join(lines) + "\n")

    def _start(self, name, words):
        errors = open(self.directory.parent / f"{name}.err", "a")
        self.processes[name] = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def broken(self):
        """Names of clients that ended by themselves."""
        return [name for name, process in self.processes.items() if process.poll() not in (None, 0)]

    def stop(self, *names):
        """In order; what went wrong with them."""
        names = names or tuple(self.processes)
        for name in names:
            if self.processes[name].poll() is None:
                self.processes[name].send_signal(signal.SIGTERM)
        return [failure for name in names if (failure := self.wait(name))]

    def wait(self, name, timeout=300):
        process = self.processes[name]
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "a kill, as it did not end"
        if code == 0:
            return None
        errors = (self.directory.parent / f"{name}.err").read_text().splitlines()
        return f"client {name} ended with {code}: {errors[-1] if errors else 'it said nothing'}"

    def idle(self):
        """Who has done nothing of what it is there for: such a run shows nothing."""
        signs = {"write": "\nok ", "read": "\ngot ", "member": "\ncommitted "}
        return [f"client {name} has nothing to show: no {signs[what].strip()}" for name, what in self.tasks.items()
                if what in signs and signs[what] not in (self.directory / name).read_text()]

    def read_out(self):
        """Everything once more, by both clients' protocol; the failure if there was one."""
        self.librdkafka("last", "last")
        return self.wait("last")

    def check(self, allow=()):
        """Prints what the checker says; True if it found nothing."""
        files = [str(path) for path in sorted(self.directory.iterdir())]
        allowed = [word for rule in allow for word in ("--allow", rule)]
        done = subprocess.run([sandbox.ours("thalweg-history"), *allowed, *files], stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        return done.returncode == 0

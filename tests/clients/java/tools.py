"""Starts classes of Apache Kafka 4.4."""

import os
import subprocess

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp", f"{CACHE}/thalweg/clients/java-4.4.0/*"]
BROKERS = os.environ["BROKERS"]


def command(name, *args):
    return [*JAVA, f"org.apache.kafka.tools.{name}", "--bootstrap-server", BROKERS, *args]


def run(name, *args, stdin=""):
    """(exit code, standard output, standard error)"""
    done = subprocess.run(command(name, *args), input=stdin, text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr

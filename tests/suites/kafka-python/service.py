"""What kafka-python's tests want of the helper that its source distribution leaves out."""


class ExternalService:
    """A broker that runs already."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    """Brokers of the tests' own are not to be had here."""

    def __init__(self, *_, **__):
        raise RuntimeError("only against a broker that runs already")

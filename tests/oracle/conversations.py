"""What both brokers are led through. A conversation is a function of a session and a version of its API; names of topics and groups
carry the version, so that no two meet.

`fixed` fields stay as they are: waits that would take minutes, and counts that would make a broker work for minutes.
"""

from mutate import variants

CONVERSATIONS = []


def conversation(api, *, versions=None):
    """Registers a conversation for the lowest, a middle and the highest version of `api` that both serve, or for `versions`."""
    def register(function):
        CONVERSATIONS.append((api, versions, function))
        return function
    return register


def ask_variants(s, api, version, base, fixed=()):
    for label, body in variants(s.definitions[f"{api}Request"], version, base, fixed):
        s.ask(api, version, body, label)

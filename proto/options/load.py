"""A node's options and a topic's, complete: merged, checked one by one, and against each other.

Each relation has a sentence that says what to change. What cannot work is a problem and stops the
start; what works, but perhaps not as meant, is a warning.

Not here: where values come from and which wins (`sources.py`), and anything that needs the machine,
such as whether a port is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.proto.errors import ConfigError
from ottla.proto.options import node, topic
from ottla.proto.options.endpoints import (
    Address,
    Listener,
    ListenerName,
    is_for_clients,
    listener_name,
)
from ottla.proto.options.option import Option, shown
from ottla.proto.options.sources import (
    ConfigFile,
    Options,
    read_node_options,
    read_topic_options,
)

# A follower that is caught up still hears nothing for a whole fetch wait. It must be able to miss
# a few answers before it is taken for stuck.
LAG_PER_FETCH_WAIT: Final = 3
# One lost heartbeat must not fence a broker.
SESSION_PER_HEARTBEAT: Final = 2
# Where the keys of a node are used.
_BETWEEN_NODES: Final = frozenset({"INTERNAL", "REPLICATION"})


def load(
    *,
    file: ConfigFile | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Options:
    """Return a node's options, ready to be obeyed, or raise `ConfigError` with every problem."""
    options = read_node_options(file=file, environment=environment, flags=flags)
    require_consistent(options)
    return Options(options.settings, (*options.warnings, *_node_warnings(options)))


def load_topic(given: Mapping[str, str], node_options: Options) -> Options:
    """Return a topic's options over the node's, or raise `ConfigError` with every problem."""
    options = read_topic_options(given, node_options)
    if problem := _lags_crossed(options, topic.MIN_COMPACTION_LAG_MS, topic.MAX_COMPACTION_LAG_MS):
        raise ConfigError(problem)
    return options


def require_consistent(options: Options) -> None:
    """Raise `ConfigError` with every pair of a node's options that cannot work together."""
    if problems := tuple(_node_problems(options)):
        raise ConfigError(*problems)


def listeners_of(options: Options) -> dict[ListenerName, Address]:
    """Return where the node listens: what was given, and the defaults for the rest.

    REPLICATION is always among them, also for a node that does not open it (`opened_by`).
    """
    given = {one.name: one.address for one in options.value_of(node.LISTENERS_OPTION)}
    # Who has listeners for clients under other names has no CLIENT as well, unasked.
    has_own = any(map(is_for_clients, given))
    found = given | {
        name: one.address
        for name, one in node.DEFAULT_LISTENERS.items()
        if name not in given and not (has_own and is_for_clients(name))
    }
    # Any port will do: followers are told it by their leader.
    found.setdefault("REPLICATION", Address(found["INTERNAL"].host, 0))
    return found


def opened_by(options: Options) -> dict[ListenerName, Address]:
    """Return the same without REPLICATION where the node is no broker: nobody follows it."""
    is_broker = "broker" in options.value_of(node.PROCESS_ROLES)
    found = listeners_of(options).items()
    return {name: one for name, one in found if is_broker or name != "REPLICATION"}


def client_listeners_of(options: Options) -> dict[ListenerName, Address]:
    """Return where the node listens for clients; the first is the one it is known by."""
    return {name: one for name, one in listeners_of(options).items() if is_for_clients(name)}


def advertised_of(options: Options) -> dict[ListenerName, Address]:
    """Return what the node tells others: its listeners, and what was given in their place.

    A port that was left open is 0 here too, until somebody knows it.
    """
    given = {one.name: one.address for one in options.value_of(node.ADVERTISED_LISTENERS)}
    opened = listeners_of(options)
    told = {name: given.get(name, one) for name, one in opened.items()}
    own = opened["REPLICATION"]
    # Others reach this node by the name that is told of INTERNAL, also here. Only who listens on
    # another host than INTERNAL does so on purpose.
    if "REPLICATION" not in given and (own.is_everywhere or own.host == opened["INTERNAL"].host):
        told["REPLICATION"] = Address(told["INTERNAL"].host, own.port)
    return told


def _node_problems(options: Options) -> Iterator[str]:
    yield from _failover_problems(options)
    yield from _quorum_problems(options)
    yield from _listener_problems(options)
    yield from _size_problems(options)


def _failover_problems(options: Options) -> Iterator[str]:
    lag = options.value_of(node.REPLICA_LAG_MAX_MS)
    wait = options.value_of(node.REPLICA_FETCH_WAIT_MAX_MS)
    if lag <= LAG_PER_FETCH_WAIT * wait:
        yield (
            f"replica.lag.time.max.ms ({lag}) must be more than {LAG_PER_FETCH_WAIT} times "
            f"replica.fetch.wait.max.ms ({wait}), or idle followers leave the in-sync set."
        )
    session = options.value_of(node.BROKER_SESSION_TIMEOUT_MS)
    heartbeat = options.value_of(node.BROKER_HEARTBEAT_INTERVAL_MS)
    if session < SESSION_PER_HEARTBEAT * heartbeat:
        yield (
            f"broker.session.timeout.ms ({session}) must be at least {SESSION_PER_HEARTBEAT} times "
            f"broker.heartbeat.interval.ms ({heartbeat}), or one late heartbeat fences a broker."
        )
    shortest = options.value_of(node.GROUP_MIN_SESSION_TIMEOUT_MS)
    longest = options.value_of(node.GROUP_MAX_SESSION_TIMEOUT_MS)
    if shortest > longest:
        yield (
            f"group.min.session.timeout.ms ({shortest}) must not be more than "
            f"group.max.session.timeout.ms ({longest})."
        )


def _quorum_problems(options: Options) -> Iterator[str]:
    node_id = options.value_of(node.NODE_ID)
    roles = options.value_of(node.PROCESS_ROLES)
    voters = options.value_of(node.CONTROLLER_VOTERS)
    ids = [int(voter.node_id) for voter in voters]
    told = ", ".join(map(str, ids))
    if "controller" not in roles and not voters:
        yield (
            "controller.quorum.voters must name the controllers, "
            "because process.roles makes this node a broker only."
        )
    if "controller" in roles and voters and node_id not in ids:
        yield (
            f"node.id ({node_id}) must be one of controller.quorum.voters ({told}), "
            "because process.roles makes this node a controller."
        )
    if "controller" not in roles and node_id in ids:
        yield (
            f"node.id ({node_id}) must not be one of controller.quorum.voters ({told}), "
            "because process.roles makes this node a broker only."
        )
    if len(voters) > 1 and not options.is_given(node.NODE_ID):
        yield "node.id must be given, because controller.quorum.voters names more than one node."


def _listener_problems(options: Options) -> Iterator[str]:
    seen: dict[Address, str] = {}
    for name, address in opened_by(options).items():
        if address.port and address in seen:
            yield f"listeners must not give {seen[address]} and {name} the same address, {address}."
        seen[address] = name
    for name, address in _told_to_others(options).items():
        if address.is_everywhere:
            yield (
                f"advertised.listeners must say which address others should use for {name}, "
                f"because listeners opens it on every address ({address}): for example "
                f"advertised.listeners={name}://localhost:{address.port}."
            )
    keystore, truststore = node.INTERNAL_KEYSTORE, node.INTERNAL_TRUSTSTORE
    if bool(options.value_of(keystore)) != bool(options.value_of(truststore)):
        yield f"{keystore.name} and {truststore.name} must be given together."
    yield from _advertising_problems(options)
    yield from _protocol_problems(options)


def _told_to_others(options: Options) -> dict[ListenerName, Address]:
    """Return what is advertised, without what is not and what only follows something else."""
    told, opened = advertised_of(options), opened_by(options)
    named = {one.name for one in options.value_of(node.ADVERTISED_LISTENERS)}
    # Where it is open to every address, it is told with INTERNAL's, of which the same is asked.
    follows = {"REPLICATION"} - named
    return {name: told[name] for name in opened if name not in {"HTTP", *follows}}


def _advertising_problems(options: Options) -> Iterator[str]:
    opened, is_followed = listeners_of(options), "REPLICATION" in opened_by(options)
    for one in options.value_of(node.ADVERTISED_LISTENERS):
        if one.name == "HTTP":
            yield "advertised.listeners must not name HTTP, which is not advertised."
        elif one.name not in opened:
            told = ", ".join(name for name in opened if name != "HTTP")
            yield (
                f"advertised.listeners must name what listeners opens ({told}), not {one.name}: "
                f"add {one.name} to listeners, or take it away."
            )
        elif one.name == "REPLICATION" and is_followed and not opened[one.name].port:
            wanted = Listener(one.name, Address(opened[one.name].host, one.address.port))
            yield (
                "advertised.listeners must not name REPLICATION while it listens at any free port: "
                f"write {wanted} into listeners, or take it away."
            )


def _protocol_problems(options: Options) -> Iterator[str]:
    """Yield the listeners that Kafka's map promises a protection which they would not have."""
    opened = listeners_of(options)
    for item in options.value_of(node.LISTENER_PROTOCOLS):
        name, _, protocol = item.partition(":")
        try:
            known = listener_name(name)
        except ValueError:
            # Not a name of ours: Kafka's example files map SSL too, and open no such listener.
            continue
        if known in opened and is_for_clients(known) and protocol.strip().upper() != "PLAINTEXT":
            yield (
                f"listener.security.protocol.map must say PLAINTEXT for {name}, not "
                f"{shown(protocol)}: clients are spoken to in plain text."
            )


def _size_problems(options: Options) -> Iterator[str]:
    batch = options.value_of(_at_node(topic.MAX_MESSAGE_BYTES))
    request = options.value_of(node.SOCKET_REQUEST_MAX_BYTES)
    if batch > request:
        yield (
            f"message.max.bytes ({batch}) must not be more than socket.request.max.bytes "
            f"({request}), or the largest batches could never arrive."
        )
    shortest = _at_node(topic.MIN_COMPACTION_LAG_MS)
    if problem := _lags_crossed(options, shortest, _at_node(topic.MAX_COMPACTION_LAG_MS)):
        yield problem


def _lags_crossed(options: Options, shortest: Option[int], longest: Option[int]) -> str | None:
    low, high = options.value_of(shortest), options.value_of(longest)
    if low <= high:
        return None
    return f"{shortest.name} ({low}) must not be more than {longest.name} ({high})."


def _node_warnings(options: Options) -> Iterator[str]:
    min_insync = options.value_of(_at_node(topic.MIN_INSYNC_REPLICAS))
    factor = options.value_of(node.DEFAULT_REPLICATION_FACTOR)
    # Not for the default: who asks for one replica has not asked for two in sync.
    if min_insync > factor and options.is_given(_at_node(topic.MIN_INSYNC_REPLICAS)):
        effective = topic.effective_min_insync(min_insync, replication_factor=factor)
        yield (
            f"min.insync.replicas ({min_insync}) is more than default.replication.factor "
            f"({factor}): a topic with that many replicas needs {effective} in sync."
        )
    batch = options.value_of(_at_node(topic.MAX_MESSAGE_BYTES))
    segment = options.value_of(_at_node(topic.SEGMENT_BYTES))
    if batch > segment:
        yield (
            f"message.max.bytes ({batch}) is more than log.segment.bytes ({segment}): "
            "a batch that does not fit into a segment is refused."
        )
    has_keys = bool(options.value_of(node.INTERNAL_KEYSTORE))
    for name, address in opened_by(options).items():
        if not address.is_loopback and not (name in _BETWEEN_NODES and has_keys):
            yield (
                f"listeners opens {name} in plain text on {address}: "
                "whoever can reach it can use it."
            )


def _at_node(option: Option[int]) -> Option[int]:
    return node.OF_TOPIC_OPTION[option.name]

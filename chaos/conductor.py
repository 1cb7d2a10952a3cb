"""One run from its first breath to complete evidence: warm-up, steady, faults, recovery, the end.

    warm-up    the cluster forms, topics are made, clients work
    steady     nothing is broken
    fault      the steps of the scenario
    recover    everything is mended; wait until all copies are in sync
    final      writers stop; every partition is read from its leader, every replica is looked into
    offline    all nodes stop properly, their files are verified, and compacted copies are read
    restart    the whole cluster starts again, and everything is read once more

Evidence is written as it comes. What goes wrong with the harness is evidence too: such a run is no
pass, and says nothing about the system.

Not here: judging (`checkers/`), faults (`nemesis/`), clients (`runner/`).

U1  nothing is raised: what failed is in `harness.json`
U2  whatever was started is ended
U3  a run that takes longer than its scenario may is a harness failure, and ends with its phase
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from random import Random
from typing import Any, Final

from ottla.chaos.clock import NeverHappenedError, let_pass, now_ns, now_s, wait_until
from ottla.chaos.evidence import NOT_OFFERED, FaultEvent, RunFacts, Uses
from ottla.chaos.history import Place
from ottla.chaos.load import LoadWatch
from ottla.chaos.machine import machine_facts
from ottla.chaos.nemesis.admin import set_option
from ottla.chaos.nemesis.driver import Driver
from ottla.chaos.nemesis.mix import rounds
from ottla.chaos.nemesis.scene import HEAL, INJECT, NOTE, Scene
from ottla.chaos.payload import wire_name
from ottla.chaos.ports import TELLING, Backend, HarnessError, Means
from ottla.chaos.run_folder import RunFolder
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.runner import Runner
from ottla.chaos.scenarios import Scenario
from ottla.chaos.workload import plan_for

Progress = Callable[[str, Mapping[str, Any]], None]

# Acknowledged before anything is broken.
WARM_OK: Final = 100
_WARM_S: Final = 60.0
_WHOLE_S: Final = 60.0
_JUDGED_S: Final = 1.0
_TICK_S: Final = 0.5
_USES_S: Final = 5.0
_RECOVER: Final = "recover"


def run(
    scenario: Scenario,
    backend: Backend,
    folder: RunFolder,
    seed: int,
    progress: Progress,
) -> None:
    """Do everything up to complete evidence in the folder."""
    failures = list[str]()
    end_s = now_s() + scenario.limit_s
    # Whoever ends a run that hangs finds in its folder why it is no pass.
    watchdog = threading.Timer(scenario.limit_s, folder.write_harness, ([_too_long(scenario)],))
    watchdog.daemon = True
    with ExitStack() as stack:
        stack.callback(watchdog.cancel)
        performance = _Performance(scenario, backend, folder, seed, progress, failures)
        stack.callback(performance.end)
        watchdog.start()
        try:
            performance.begin()
            performance.main()
            performance.final()
        except Exception as error:  # noqa: BLE001  (it is told, and no pass)
            failures.append(_in_words(error))
    if now_s() > end_s:
        failures.append(_too_long(scenario))
    folder.write_harness(failures)


def _too_long(scenario: Scenario) -> str:
    return f"it took longer than the {scenario.limit_s:g} s that {scenario.id} may take"


def _in_words(error: Exception) -> str:
    if isinstance(error, HarnessError | NeverHappenedError):
        return str(error)
    return "".join(traceback.format_exception(error))


class _Performance:
    """The parts of one run, while it goes on."""

    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        folder: RunFolder,
        seed: int,
        progress: Progress,
        failures: list[str],
    ) -> None:
        self._scenario: Final = scenario
        self._backend: Final = backend
        self._folder: Final = folder
        self._seed: Final = seed
        self._progress: Final = progress
        self._failures: Final = failures
        self._plan: Final = plan_for(
            scenario.workload,
            seed,
            backend.nodes,
            pace=scenario.pace,
            can_prepare=Means.PREPARING in backend.means,
        )
        self._history: Final = folder.open_history()
        self._recorder: Final = Recorder(self._history)
        addresses = {node: backend.bootstrap(node) for node in backend.nodes}
        self._runner: Final = Runner(addresses, self._plan, self._recorder)
        topics = [topic.name for topic in self._plan.topics]
        dice, groups = Random(f"{seed}/nemesis"), self._plan.groups()
        ids = tuple(self._plan.transactors())
        self._scene: Final = Scene(backend, topics, dice, self._tell, groups, ids)
        self._driver: Final = Driver(self._scene)
        self._open: Final = list[FaultEvent]()
        self._end_s: Final = now_s() + scenario.limit_s
        self._phase = "warm-up"
        self._is_over: Final = threading.Event()
        # Nodes in containers are not below this process: their work would be taken for others'.
        self._load: Final = LoadWatch(folder.add_load) if backend.name != "docker" else None
        self._ticker: Final = threading.Thread(target=self._tick, name="ticker", daemon=True)

    # -- telling ---------------------------------------------------------------------------------

    def _tell(self, event: FaultEvent) -> None:
        self._folder.add_fault(event)
        if event.step == INJECT:
            self._open.append(event)
        elif event.step == HEAL:
            self._open[:] = [
                one
                for one in self._open
                if (one.fault, one.targets) != (event.fault, event.targets)
            ]
        if event.step == NOTE:
            told = " ".join(f"{key}={value}" for key, value in event.facts.items())
            self._progress("note", {"text": f"{event.fault} {list(event.targets) or ''} {told}"})
        else:
            facts = {"fault": event.fault, "step": event.step, "targets": list(event.targets)}
            self._progress("fault", facts)

    def _enter(self, phase: str, seconds: float = 0.0) -> None:
        if now_s() > self._end_s and phase != _RECOVER:
            # The watchdog has said why; what is broken is mended all the same.
            raise HarnessError(f"it was given up before {phase!r}")
        self._phase = phase
        self._folder.add_fault(
            FaultEvent(t_ns=now_ns(), fault="phase", step=NOTE, facts={"phase": phase})
        )
        self._progress("phase", {"phase": phase, "seconds": seconds})

    def _tick(self) -> None:
        looked_s = now_s()
        while not self._is_over.wait(_TICK_S):
            if now_s() - looked_s >= _USES_S:
                looked_s = now_s()
                self._look_at_uses()
            faults = [f"{one.fault} {list(one.targets)}" for one in tuple(self._open)]
            told = {**self._runner.progress(), "phase": self._phase, "faults": faults}
            self._progress("tick", told)

    def _look_at_uses(self) -> None:
        found = self._backend.resources()
        names = ("rss_bytes", "open_files", "disk_bytes", "rss_peak_bytes")
        self._folder.add_uses(
            Uses(now_ns(), node, *(uses[name] for name in names)) for node, uses in found.items()
        )

    # -- phases ----------------------------------------------------------------------------------

    def begin(self) -> None:
        self._write_facts(self._plan.options())
        self._enter("warm-up")
        if self._plan.left_out:
            who = ", ".join(self._plan.left_out)
            self._scene.tell(NOT_OFFERED, NOTE, what=Means.PREPARING.value, left_out=who)
        self._backend.start()
        # By what it breaks things it may know only now.
        self._write_facts(self._plan.options())
        self._progress("note", {"text": self._backend.system})
        self._runner.start()
        self._ticker.start()
        if self._load is not None:
            self._load.start()
        wait_until(lambda: self._runner.acknowledged() >= WARM_OK, _WARM_S, "clients write")
        if not self._scene.wait_whole(_WHOLE_S):
            raise HarnessError("the cluster was not whole before anything was broken")

    def _write_facts(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        scenario = self._scenario
        self._folder.write_facts(
            RunFacts(
                scenario=scenario.id,
                seed=self._seed,
                backend=self._backend.name,
                system=self._backend.system,
                command=command_of(scenario.id, self._seed, self._backend.name),
                nodes=self._backend.nodes,
                topics=topics,
                recovery_s=scenario.recovery_s,
                ok_min=scenario.ok_min,
                transactors=self._plan.transactors(),
                transactional_groups=self._plan.transactional_groups(),
                is_mix=scenario.mix_s > 0,
                reached_min=scenario.reached_min,
                expected=scenario.expected,
                tolerated=scenario.tolerated,
                allowed_log=scenario.allowed_log,
                is_unclean_allowed=scenario.is_unclean_allowed,
                limits=scenario.limits,
                title=scenario.title,
                machine=machine_facts(),
                tells=tuple(sorted(one.name for one in self._backend.means & TELLING)),
            )
        )

    def main(self) -> None:
        scenario = self._scenario
        self._enter("steady", scenario.steady_s)
        let_pass(scenario.steady_s)
        if scenario.steps or scenario.mix_s:
            self._enter("fault")
            self._scene.tell_term()
            try:
                self._driver.run(scenario.steps)
                end_s = now_s() + scenario.mix_s
                if scenario.mix_s:
                    has_ids = bool(self._plan.transactors())
                    mixed = rounds(self._seed, self._backend.means, has_transactions=has_ids)
                    self._driver.run_rounds(mixed, end_s)
            finally:
                self._enter(_RECOVER)
                self._driver.heal_all()
            # Whether it recovers in time is seen by those who still write when the time is over.
            judged_s = now_s() + scenario.recovery_s + _JUDGED_S
            self._scene.wait_whole(_WHOLE_S)
            self._scene.tell_term()
            let_pass(max(0.0, judged_s - now_s() - scenario.steady_s))
        self._enter("steady", scenario.steady_s)
        let_pass(scenario.steady_s)

    def final(self) -> None:
        """Look at everything that is left, twice: before and after a restart of the cluster."""
        self._enter("final")
        self._runner.stop_writers()
        topics = self._runner.final_topics()
        self._write_facts(topics)
        self._scene.topics = sorted({wire_name(label) for label in topics})
        self._scene.wait_whole(_WHOLE_S)
        if any("retention.ms" in options for options in topics.values()):
            # What is to be read must not go away meanwhile.
            set_option(self._scene, "retention.ms", "-1")
        self._look(1)
        compacted = compacted_of(topics, self._scene.view())
        self._enter("offline")
        everybody = self._scene.everybody
        codes = self._backend.stop(everybody)
        bad = {node: code for node, code in codes.items() if code != 0}
        if bad:
            self._scene.tell("exit", NOTE, tuple(bad), codes=list(bad.values()))
        if Means.OFFLINE in self._backend.means:
            self._folder.write_offline(self._backend.verify_offline())
            self._folder.add_finals(self._backend.offline_reads(compacted))
        self._enter("restart")
        self._scene.begin(everybody)
        self._backend.wait_ready(everybody, _WHOLE_S)
        self._scene.wait_whole(_WHOLE_S)
        self._look(2)

    def _look(self, turn: int) -> None:
        self._folder.add_finals(self._runner.final_reads(None, turn))
        if Means.DIGEST in self._backend.means:
            partitions = {
                topic: sum(1 for place in self._scene.view() if place.topic == topic)
                for topic in self._scene.topics
            }
            self._folder.add_replicas(self._backend.replica_prints(partitions, turn))

    def end(self) -> None:
        """End whatever runs, and keep what nodes have said."""
        for what in (self._end_clients, self._backend.close, self._keep):
            try:
                what()
            except Exception as error:  # noqa: BLE001  (it is told, and no pass)
                self._failures.append(_in_words(error))

    def _end_clients(self) -> None:
        self._is_over.set()
        if self._ticker.is_alive():
            self._ticker.join()
        if self._load is not None:
            self._load.stop()
        self._runner.close()
        self._failures.extend(self._runner.failures())
        self._folder.add_leaders(self._recorder.leaders())
        self._history.close()

    def _keep(self) -> None:
        if Means.TRACE in self._backend.means:
            self._folder.keep_trace(self._backend.trace_files())
        self._folder.keep_logs(self._backend.log_lines())


def compacted_of(topics: Mapping[str, Mapping[str, str]], places: Collection[Place]) -> list[Place]:
    """Return the partitions of which only the records tell what a copy has lost."""
    return sorted(
        Place(label, place.partition)
        for label, options in topics.items()
        if "compact" in options.get("cleanup.policy", "")
        for place in places
        if place.topic == wire_name(label)
    )


def command_of(scenario: str, seed: int, backend: str) -> str:
    return f"ottla chaos run {scenario} --seed {seed} --backend {backend}"

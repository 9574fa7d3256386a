"""Plays the engines of one match tic by tic."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from sample_factory.envs.doom.engine import START_ATTEMPTS, START_ERRORS, DoomEngine
from sample_factory.envs.doom.ports import PortClaim
from sample_factory.runtime.command_failed import CommandFailed

log = logging.getLogger("sample_factory")

LOOK_SECONDS = 1.0  # how often a call that waits asks whether the engines still live
CLOSE_SECONDS = 5.0
# For a start, a step or a new episode; beyond, an engine hangs. All attempts at a start together take less
# than the default of --heartbeat_reporting_interval, after which the whole worker counts as stuck.
ANSWER_SECONDS = 45.0
JOIN_SECONDS = 600.0  # how long a match waits for people
TIC_SECONDS = 1 / 35
MAX_LAG_SECONDS = 0.25  # time for drawing, which is caught up with


class MatchBroken(CommandFailed):
    """The engines of a match do not go on together; close the match and make another one."""


class PlayerThread(threading.Thread):
    """Makes the calls on one engine, one at a time: each waits for those on the other engines of the match.

    Locks instead of a condition or a pool of futures: those take a third of the time of a tic.
    """

    def __init__(self, player: int):
        super().__init__(name=f"doom_player_{player}", daemon=True)
        self._wanted, self._finished = threading.Lock(), threading.Lock()
        self._wanted.acquire()
        self._finished.acquire()
        self._call: Callable[[], object] | None = None
        self.error: Exception | None = None  # of the last call
        self.is_busy = False
        self.start()

    def begin(self, call: Callable[[], object] | None) -> None:
        """None ends the thread."""
        self._call, self.error, self.is_busy = call, None, True
        self._wanted.release()

    def is_free_within(self, seconds: float) -> bool:
        """Waits for the call, if there is one."""
        if self.is_busy and self._finished.acquire(timeout=max(0.0, seconds)):
            self.is_busy = False
        return not self.is_busy

    def finish(self) -> None:
        """Waits for as long as it takes. Raises what the call raised."""
        self._finished.acquire()
        self.is_busy = False
        self.check()

    def check(self) -> None:
        """Raises what the last call raised."""
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._call is None:
                return
            try:
                self._call()
            except Exception as error:  # raised again by check()
                self.error = error
            self._finished.release()


class Lockstep:
    """The engines of one match. Promises:

    1. All of them have played the same number of tics whenever a call returns. ViZDoom's net games need one
       tic of every player at a time: players that run freely stall.
    2. A call that an engine does not answer raises MatchBroken, after ANSWER_SECONDS or when the engine is
       gone, instead of waiting for ever. Then only `close` is left. For people a start waits JOIN_SECONDS.
    """

    def __init__(self, engines: Sequence[DoomEngine], name: str):
        """With people, whose engines are not among these, the match runs in real time."""
        self._engines, self._name = engines, name
        self._num_humans = engines[0].settings.match.num_humans
        self._next_tic = 0.0
        self._threads: list[PlayerThread] = []
        self._port: PortClaim | None = None

    @property
    def is_running(self) -> bool:
        return bool(self._threads)

    def start(self, seed: int) -> None:
        """Starts the processes, which find each other at a port of this machine. Raises MatchBroken."""
        # Nobody should be asked to join anew at another port.
        num_attempts = 1 if self._num_humans else START_ATTEMPTS
        for attempt in range(1, num_attempts + 1):
            self._port = PortClaim()
            self._threads = [PlayerThread(player) for player in range(len(self._engines))]
            try:
                for engine in self._engines:
                    engine.prepare(seed, self._port.number)
                if self._num_humans:
                    self._invite()
                seconds = JOIN_SECONDS if self._num_humans else ANSWER_SECONDS
                self._call_all([engine.start for engine in self._engines], seconds)
                return
            except (MatchBroken, *START_ERRORS) as error:
                said = "; ".join(f"engine {i}: {e.last_words()}" for i, e in enumerate(self._engines))
                self.close()
                log.warning("%s: start %d of the match failed: %s (%s)", self._name, attempt, error, said)
                last_error = error
        what = f"{len(self._engines)} engines did not start a match in {num_attempts} attempts"
        if self._num_humans:
            what = f"the match did not begin: {self._num_humans} people were to join it"
        raise MatchBroken(f"{self._name}: {what}; the last error: {last_error}") from last_error

    def new_episode(self, seed: int) -> None:
        """Begins an episode in all engines. Raises MatchBroken and the engine's errors."""
        self._call_all([lambda e=engine: e.new_episode(seed) for engine in self._engines], ANSWER_SECONDS)

    def play(
        self, buttons: Sequence[list[float]], num_tics: int, after_tic: Callable[[], None] | None
    ) -> bool:
        """Plays tics, fewer where the episode ends; returns whether it has. Raises MatchBroken and the
        engine's errors.

        buttons: by player. after_tic: called after every tic but the last, with new pictures in all states.
        """
        for engine, pressed in zip(self._engines, buttons):
            engine.game.set_action(pressed)
        self._threads[0].begin(lambda: self._play(num_tics, after_tic))
        self._await(self._threads[:1], ANSWER_SECONDS)
        games = [engine.game for engine in self._engines]
        if len({(game.is_episode_finished(), game.get_episode_time()) for game in games}) > 1:
            times = ", ".join(str(game.get_episode_time()) for game in games)
            raise MatchBroken(f"{self._name}: the players are out of step, at the tics {times}")
        return games[0].is_episode_finished()

    def close(self) -> None:
        """Ends the processes, whatever they are doing; `start` may follow."""
        pairs, self._threads = list(zip(self._engines, self._threads)), []
        if any(thread.is_busy for _, thread in pairs):
            for engine, _ in pairs:
                engine.halt()
        closing, deadline = [], time.monotonic() + CLOSE_SECONDS
        for engine, thread in pairs:
            if thread.is_free_within(deadline - time.monotonic()):
                thread.begin(engine.close)
                closing.append(thread)
            else:
                log.warning("%s: an engine does not let go of its caller, which is left behind", self._name)
                engine.abandon()
        deadline = time.monotonic() + CLOSE_SECONDS  # one that hangs has used up the first
        for thread in closing:
            if not thread.is_free_within(deadline - time.monotonic()):
                log.warning("%s: an engine has not closed within %g s", self._name, CLOSE_SECONDS)
                continue
            if thread.error is not None:
                log.warning("%s: an engine could not be closed: %s", self._name, thread.error)
            thread.begin(None)
        if self._port is not None:
            self._port.release()

    def _play(self, num_tics: int, after_tic: Callable[[], None] | None) -> None:
        """In the first player's thread, which spares the main one a switch in each tic."""
        first, others = self._engines[0].game, self._engines[1:]
        for tic in range(num_tics):
            if self._num_humans:
                self._wait_for_tic()
            is_last = tic == num_tics - 1
            draws = is_last or after_tic is not None
            for thread, engine in zip(self._threads[1:], others):
                thread.begin(lambda game=engine.game, draws=draws: game.advance_action(1, draws))
            first.advance_action(1, draws)
            for thread in self._threads[1:]:
                thread.finish()
            if first.is_episode_finished():
                return
            if after_tic is not None and not is_last:
                after_tic()

    def _invite(self) -> None:
        minutes, invitation = JOIN_SECONDS / 60, self._engines[0].settings.invitation(self._port.number)
        log.info("%s: waiting up to %.0f min for %d x %s", self._name, minutes, self._num_humans, invitation)

    def _wait_for_tic(self) -> None:
        """The engines would run ahead of a person's, which falls behind then for the rest of the match."""
        now = time.monotonic()
        time.sleep(max(0.0, self._next_tic - now))
        self._next_tic = max(now - MAX_LAG_SECONDS, self._next_tic) + TIC_SECONDS

    def _call_all(self, calls: Sequence[Callable[[], object]], seconds: float) -> None:
        for thread, call in zip(self._threads, calls):
            thread.begin(call)
        self._await(self._threads, seconds)

    def _await(self, threads: Sequence[PlayerThread], seconds: float) -> None:
        """Until all are free. Raises what the call of one of them raised, or MatchBroken."""
        deadline, busy = time.monotonic() + seconds, list(threads)
        while busy:
            busy[0].is_free_within(LOOK_SECONDS)
            for thread in busy:
                if thread.is_free_within(0.0):
                    thread.check()
            busy = [thread for thread in busy if thread.is_busy]
            if busy:
                self._check_engines(deadline, seconds)

    def _check_engines(self, deadline: float, seconds: float) -> None:
        gone = [player for player, engine in enumerate(self._engines) if engine.is_gone()]
        if gone:
            raise MatchBroken(f"{self._name}: the engine of player {gone[0]} is gone")
        if time.monotonic() > deadline:
            raise MatchBroken(f"{self._name}: an engine has not answered for {seconds:g} s")

"""Plays the engines of one match tic by tic, each engine in a thread."""

import functools
import threading
import time
from collections.abc import Callable, Sequence

from sample_factory.families.doom.engine import START_ATTEMPTS, START_ERRORS, DoomEngine
from sample_factory.families.doom.engine_resources import PortClaim
from sample_factory.families.doom.game_configuration import warn_once
from sample_factory.runtime.failures import CommandFailed
from sample_factory.runtime.log import log

POLL_SECONDS = 1.0  # how often a waiting call checks whether the engines are alive
CLOSE_SECONDS = 5.0
# Limit for a start, a step or a new episode, after which an engine counts as hanging. All attempts of a
# start together take less than the default of --heartbeat_reporting_interval, after which a worker counts as
# stuck.
ANSWER_SECONDS = 45.0
JOIN_SECONDS = 600.0  # how long a match waits for humans
TIC_SECONDS = 1 / 35
MAX_LAG_SECONDS = 0.25  # a delay (by drawing) up to this is caught up with
TICS_BEFORE_MATCH = 70  # with humans; see HumanEngine.begin


class MatchBroken(CommandFailed):
    """Raised if the engines of a match no longer advance together; close the match and make another one."""


class EngineThread:
    """Makes the calls on one engine in a thread, one call at a time: a call may block until the other engines
    of the match have made the same call.

    Locks are used because a condition or a pool of futures would cost a third of the time of a tic.
    """

    def __init__(self, engine_index: int):
        self._wanted = threading.Lock()
        self._finished = threading.Lock()
        self._wanted.acquire()
        self._finished.acquire()
        self._call: Callable[[], object] | None = None
        self.error: Exception | None = None  # of the last call
        self.is_busy = False
        threading.Thread(target=self._run, name=f"doom_engine_{engine_index}", daemon=True).start()

    def begin(self, call: Callable[[], object] | None) -> None:
        """Begins a call in the thread, which must be free. call: None ends the thread."""
        self._call = call
        self.error = None
        self.is_busy = True
        self._wanted.release()

    def is_free_within(self, seconds: float) -> bool:
        """Waits up to `seconds` for the call in progress, if any; returns whether the thread is free."""
        if self.is_busy and self._finished.acquire(timeout=max(0.0, seconds)):
            self.is_busy = False
        return not self.is_busy

    def finish(self) -> None:
        """Waits for the call in progress without a time limit. Raises the exception of the call if it raised
        one."""
        self._finished.acquire()
        self.is_busy = False
        self.check()

    def check(self) -> None:
        """Raises the exception of the last call, if it raised one."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
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
    """Keeps the engines of one match at the same tic. Promises:

    1. Whenever a call returns, all engines have played the same number of tics. ViZDoom's net games need one
       tic of every player at a time: players that run freely stall.
    2. A call that an engine does not answer raises MatchBroken, after ANSWER_SECONDS or when the engine is
       gone, instead of waiting forever; `close` is the only call that may follow. A start with humans waits
       JOIN_SECONDS.

    A match with humans runs in real time; `engines` has the agents' engines only.
    """

    def __init__(self, engines: Sequence[DoomEngine], name: str):
        match = engines[0].settings.match
        assert match is not None
        self._engines = engines
        self._name = name
        self._num_humans = match.num_humans
        self._match_tics = match.tics
        self._can_be_left = not match.rules["sv_noexit"]  # as far as the spec says
        self._next_tic = 0.0
        self._threads: list[EngineThread] = []
        self._port: PortClaim | None = None

    @property
    def is_running(self) -> bool:
        return bool(self._threads)

    def start(self, seed: int) -> None:
        """Starts the engines' processes, which connect through a port of this machine. Raises MatchBroken if
        all attempts fail, or if humans do not join in time."""
        # With humans one attempt: they should not be asked to join again at another port.
        num_attempts = 1 if self._num_humans else START_ATTEMPTS
        for attempt in range(1, num_attempts + 1):
            self._port = PortClaim()
            self._threads = [EngineThread(index) for index in range(len(self._engines))]
            try:
                self._start_once(seed, self._port.number)
                return
            except (MatchBroken, *START_ERRORS) as error:
                stderr = "; ".join(f"engine {i}: {e.last_error()}" for i, e in enumerate(self._engines))
                self.close()
                log.warning("%s: start %d of the match failed: %s (%s)", self._name, attempt, error, stderr)
                last_error = error
        failure = f"{len(self._engines)} engines did not start a match in {num_attempts} attempts"
        if self._num_humans:
            failure = f"the match did not begin: waited for {self._num_humans} human player(s)"
        raise MatchBroken(f"{self._name}: {failure}; the last error: {last_error}") from last_error

    def new_episode(self, seed: int) -> None:
        """Begins an episode in all engines. Raises MatchBroken if an engine does not answer, and exceptions
        of the engines' calls."""
        self._call_all([functools.partial(e.new_episode, seed) for e in self._engines], ANSWER_SECONDS)

    def play(
        self, buttons: Sequence[list[float]], num_tics: int, after_tic: Callable[[], None] | None
    ) -> bool:
        """Plays num_tics tics, or fewer if the episode ends; returns whether the episode has ended.

        buttons: button values by engine.
        after_tic: called after every tic but the last one, when all states have new pictures.
        Raises MatchBroken if an engine does not answer or the engines are at different tics, and exceptions
            of the engines' calls.
        """
        for engine, pressed in zip(self._engines, buttons):
            engine.game.set_action(pressed)
        self._threads[0].begin(lambda: self._play(num_tics, after_tic))
        self._await(self._threads[:1], ANSWER_SECONDS)
        games = [engine.game for engine in self._engines]
        if len({(game.is_episode_finished(), game.get_episode_time()) for game in games}) > 1:
            times = ", ".join(str(game.get_episode_time()) for game in games)
            raise MatchBroken(f"{self._name}: the engines are out of step, at tics {times}")
        return games[0].is_episode_finished()

    def close(self) -> None:
        """Ends the engines' processes, also while they start or do not answer; `start` may follow."""
        pairs = list(zip(self._engines, self._threads))
        self._threads = []
        if any(thread.is_busy for _, thread in pairs):
            for engine, _ in pairs:
                engine.halt()
        closing = []
        deadline = time.monotonic() + CLOSE_SECONDS
        for engine, thread in pairs:
            if thread.is_free_within(deadline - time.monotonic()):
                thread.begin(engine.close)
                closing.append(thread)
            else:
                log.warning("%s: a call on an engine does not return; abandoned it", self._name)
                engine.abandon()
        deadline = time.monotonic() + CLOSE_SECONDS  # a new one: a hanging engine may have used up the first
        for thread in closing:
            if not thread.is_free_within(deadline - time.monotonic()):
                log.warning("%s: an engine did not close within %g s", self._name, CLOSE_SECONDS)
                continue
            if thread.error is not None:
                log.warning("%s: an engine could not be closed: %s", self._name, thread.error)
            thread.begin(None)
        if self._port is not None:
            self._port.release()

    def _start_once(self, seed: int, port: int) -> None:
        for engine in self._engines:
            engine.prepare(seed, port)
        seconds = ANSWER_SECONDS
        if self._num_humans:
            seconds = JOIN_SECONDS
            log.info(
                "%s: waiting up to %.0f min for %d human player(s); to join: %s",
                self._name,
                JOIN_SECONDS / 60,
                self._num_humans,
                self._engines[0].settings.invitation(port),
            )
        self._call_all([engine.start for engine in self._engines], seconds)
        if self._num_humans:
            self._threads[0].begin(lambda: self._play(TICS_BEFORE_MATCH, None))
            self._await(self._threads[:1], ANSWER_SECONDS)

    def _play(self, num_tics: int, after_tic: Callable[[], None] | None) -> None:
        """Plays num_tics tics, or fewer if the episode ends. Runs in the first engine's thread, which saves a
        switch to the main thread in each tic. after_tic: as in `play`."""
        first = self._engines[0].game
        other_games = [engine.game for engine in self._engines[1:]]
        other_threads = self._threads[1:]
        # The engine updates rewards only in tics that it draws, and plays no tics after the limit.
        num_tics = min(num_tics, self._match_tics - first.get_episode_time())
        for tic in range(num_tics):
            if self._num_humans:  # a human's engine that is overtaken lags behind for the rest of the match
                now = time.monotonic()
                time.sleep(max(0.0, self._next_tic - now))
                self._next_tic = max(now - MAX_LAG_SECONDS, self._next_tic) + TIC_SECONDS
            is_last = tic == num_tics - 1
            draws = is_last or self._can_be_left or after_tic is not None
            for thread, game in zip(other_threads, other_games):
                thread.begin(functools.partial(game.advance_action, 1, draws))
            first.advance_action(1, draws)
            for thread in other_threads:
                thread.finish()
            if first.is_episode_finished():
                if not draws:
                    warn_once(
                        f"{self._name}: the level was left in the middle of a step, and the engine forgets "
                        "its rewards of that step; say MatchSpec(settings={'sv_noexit': 0}) if it gives any"
                    )
                return
            if after_tic is not None and not is_last:
                after_tic()

    def _call_all(self, calls: Sequence[Callable[[], object]], seconds: float) -> None:
        for thread, call in zip(self._threads, calls):
            thread.begin(call)
        self._await(self._threads, seconds)

    def _await(self, threads: Sequence[EngineThread], seconds: float) -> None:
        """Waits until all threads are free. Raises the exception of a call that failed, and MatchBroken if an
        engine's process is gone or a thread is still busy after `seconds`."""
        deadline = time.monotonic() + seconds
        busy = list(threads)
        while busy:
            busy[0].is_free_within(POLL_SECONDS)
            for thread in busy:
                if thread.is_free_within(0.0):
                    thread.check()
            busy = [thread for thread in busy if thread.is_busy]
            for index, engine in enumerate(self._engines):
                if busy and engine.is_gone():
                    raise MatchBroken(f"{self._name}: the process of engine {index} is gone")
            if busy and time.monotonic() > deadline:
                raise MatchBroken(f"{self._name}: an engine has not answered for {seconds:g} s")

"""Texts and tables of the results of a benchmark."""

import itertools
from collections.abc import Mapping, Sequence

from sample_factory.benchmarking.flag_sweep import Trial
from sample_factory.benchmarking.run_stage import STAGES
from sample_factory.benchmarking.stage_measurement import OTHERS, Counts, Part, Stage
from sample_factory.monitoring.bottleneck import PARTS
from sample_factory.plotting.plot_command import aligned

ROLES = {
    "main": "main process",
    "rollout_worker": "rollout workers",
    "policy_worker": "policy workers",
    "learner": "learner",
    "sampler": "inline samplers",
    OTHERS: "started by them (simulators)",
}
NOTHING = "-"
SIDES = "<>"  # of the tables: words in the first column, numbers in the others
EXPLANATION = "FPS: env frames per second, frameskip counted; share: of the simulation's speed;"
CORES = "cores: that are busy; "
CORES_UNKNOWN = "cores busy: known of a run of 15 s or more"
SECONDS = "ready, first FPS: seconds from the start of the command"
MAX_LOAD = 1.0  # processes that wait for a core before anything has been started
MAX_TRAINING = 1.05  # of the speed of sampling: learning can only slow a run down
FOREIGN_CORES = 0.25  # less than that is the usual background load of a system


def median_run(runs: Sequence[Stage]) -> Stage:
    """Returns the run of median speed; of an even number, the slower one of the two in the middle."""
    return sorted(runs, key=lambda run: run.fps)[(len(runs) - 1) // 2]


def spreads(runs: Mapping[str, Sequence[Stage]]) -> dict[str, float]:
    """Returns stage -> (highest - lowest speed) / median; empty if the stages ran once."""
    speeds = {name: [run.fps for run in several] for name, several in runs.items() if len(several) > 1}
    return {name: (max(of) - min(of)) / median_run(runs[name]).fps for name, of in speeds.items()}


def stages_table(
    stages: Mapping[str, Stage],
    others: Sequence[tuple[str, float]],
    spreads: Mapping[str, float],
    load: float = 0.0,
) -> list[str]:
    """Returns a table with a row for each stage, and one for each (name, FPS) of others.

    spreads: of repeated stages, see `spreads`. load: the load average before the measurement.
    """
    rows: list[tuple[str, ...]] = [("", "FPS", "spread", "share", "cores", "ready", "first FPS")]
    whole = stages["simulation"].fps
    for name, stage in stages.items():
        rows.append(
            (
                STAGES[name],
                f"{stage.fps:,.0f}",
                _percent(spreads[name]) if name in spreads else NOTHING,
                _percent(stage.fps / whole),
                NOTHING if stage.cores is None else f"{stage.cores.ours:.1f}",
                _seconds(stage.ready_seconds),
                _seconds(stage.first_fps_seconds),
            )
        )
    for name, fps in others:
        rows.append((name, f"{fps:,.0f}", NOTHING, _percent(fps / whole), NOTHING, NOTHING, NOTHING))
    knows_cores = any(stage.cores is not None for stage in stages.values())
    shown = [True, True, bool(spreads), True, knows_cores, True, True]
    rows = [tuple(itertools.compress(row, shown)) for row in rows]
    lines = [*aligned(rows, SIDES), EXPLANATION, f"{CORES if knows_cores else ''}{SECONDS}"]
    if not all(stage.cores is not None for stage in stages.values()):
        lines.append(CORES_UNKNOWN)
    if spreads:
        lines.append("spread: from the slowest to the fastest run, as a share of the median")
    note = disturbance(list(stages.values())) or _signs_of_load(stages, load)
    return [*lines, f"note: {note}: repeat it on an idle machine"] if note else lines


def _signs_of_load(stages: Mapping[str, Stage], load: float) -> str:
    """Returns a text about other programs where their use of the CPU was not measured or not constant."""
    is_measured = all(stage.cores is not None for stage in stages.values())
    too_fast = {"sampling", "training"} <= set(stages) and (
        stages["training"].fps > MAX_TRAINING * stages["sampling"].fps
    )
    if too_fast or (load > MAX_LOAD and not is_measured):
        return "other programs were using the CPU"
    return ""


def disturbance(stages: Sequence[Stage]) -> str:
    """Returns a text about the load of other programs; empty if it was small."""
    foreign = max((stage.cores.of_others for stage in stages if stage.cores is not None), default=0.0)
    return f"other programs kept up to {foreign:.1f} cores busy" if foreign >= FOREIGN_CORES else ""


def parts_table(sampling: Stage, training: Stage, counts: Counts) -> list[str]:
    """Returns a table of where each kind of process spends its time; empty if that is not known."""
    if not training.parts:
        return []
    titles = {
        "rollout_worker": f"rollout workers ({counts.rollout_workers}), ms per agent step",
        "policy_worker": f"policy workers ({counts.policy_workers}), ms per batch",
        "learner": f"learner ({counts.learners}), ms per {counts.samples_per_iteration:,} samples",
    }
    rows: list[tuple[str, ...]] = [("where the time goes", "sampling", "ms", "training", "ms")]
    for component in PARTS:
        with_learner = training.parts.get(component, {})
        without = sampling.parts.get(component, {})
        rows.append((titles[component], "", "", "", ""))
        names = {**with_learner, **without}
        for name in sorted(names, key=lambda name: -names[name].share):
            cells = [cell for parts in (without, with_learner) for cell in _cells(parts.get(name))]
            rows.append((f"    {name}", *cells))
        if component == "policy_worker":
            sizes = [
                NOTHING if stage.rows_per_batch is None else f"{stage.rows_per_batch:.1f}"
                for stage in (sampling, training)
            ]
            rows.append(("    observations in a batch", "", sizes[0], "", sizes[1]))
    return aligned(rows, SIDES)


def _cells(part: Part | None) -> tuple[str, str]:
    if part is None:
        return NOTHING, NOTHING
    return _percent(part.share), NOTHING if part.milliseconds is None else _milliseconds(part.milliseconds)


def memory_table(stage: Stage) -> list[str]:
    """Returns a table of the resident memory of the processes of a stage; empty if it was not sampled."""
    if not stage.memory:
        return []
    rows = [("memory in training", "processes", "MB each", "MB in all")]
    for role, memory in stage.memory.items():
        each = memory.total_mb / memory.processes
        name = ROLES.get(role, role)
        rows.append((name, str(memory.processes), f"{each:,.0f}", f"{memory.total_mb:,.0f}"))
    return [*aligned(rows, SIDES), "(shared memory counts in each process that has touched it)"]


def trial_text(trial: Trial, to_beat: float | None) -> str:
    """Returns one line about a trial. to_beat: FPS of the fastest trial before it; None for the first."""
    changed = trial.values if trial.changed is None else {trial.changed: trial.values[trial.changed]}
    flags = " ".join(f"--{name}={value}" for name, value in changed.items())
    if trial.fps is None:
        return f"{flags}: does not run ({trial.note})"
    if to_beat is None:
        return f"{flags}: {trial.fps:,.0f} FPS"
    verdict = "kept" if trial.is_kept else "not kept"
    return f"{flags}: {trial.fps:,.0f} FPS ({100 * (trial.fps / to_beat - 1):+.0f} %), {verdict}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds:.1f} s"


def _milliseconds(number: float) -> str:
    """Formats milliseconds with at most three decimals, fewer for large numbers."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.3f}"

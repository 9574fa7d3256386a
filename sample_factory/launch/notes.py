"""Lines for the log about the plan of a training: what was chosen, and what may not be as wanted."""

from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_expectation
from sample_factory.config.flags import NEVER, ConfigError, shortened
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.levels import FIXED
from sample_factory.envs.wrappers.team_view import ADDED
from sample_factory.exchange.run_plan import Note
from sample_factory.models.encoder_choice import describe_costs, describe_encoders
from sample_factory.models.network_registry import ACTOR_CRITIC, FOLLOW_PRESETS, named_parts
from sample_factory.runtime.gpu import may_have_gpu
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import without_entries

FAR = 10.0  # numbers of actions above it, or below its inverse, are far from the 1 of a new network


def note_levels(config: Config, info: EnvInfo) -> list[Note]:
    """Returns a line about the number and names of the env's levels; for an env without levels, a warning if
    --level_choice was typed and has no effect."""
    choice = config.env.level_choice
    if info.levels:
        names = shortened(", ".join(info.levels))
        return [Note(f"{len(info.levels)} levels, --level_choice={choice}: {names}")]
    if "level_choice" not in config.typed or choice == FIXED:
        return []
    text = f"--level_choice={choice} has no effect: the env has no levels; it needs --levels"
    return [Note(text, is_warning=True)]


def describe_networks(config: Config, info: EnvInfo) -> list[Note]:
    """Returns lines for the log: the encoder of each observation of each kind of agents, or the user's own
    parts; and warnings of costly networks.

    Raises ConfigError if the encoder that was typed cannot encode the observations.
    """
    names = named_parts(config.model)
    if ACTOR_CRITIC in names:
        notes = [Note(f"Network: {names[ACTOR_CRITIC]}")]
    else:
        own = [(part, name) for part, name in names.items() if name not in FOLLOW_PRESETS]
        notes = [Note(f"{part.capitalize()}: {name}") for part, name in own]
        if config.model.encoder_custom in FOLLOW_PRESETS:
            notes += _describe_encoders(config, info)
    return notes


def _describe_encoders(config: Config, info: EnvInfo) -> list[Note]:
    notes, warnings = [], []
    keys = config.model.critic_only_keys
    for spaces in info.kinds.spaces:
        view = without_entries(spaces.observation, keys)
        try:
            encoders = describe_encoders(config.model, view, config.typed)
            critics = describe_encoders(config.model, spaces.observation, config.typed) if keys else ""
        except ValueError as error:
            raise ConfigError(f"{config.env_name}: {error}") from None
        notes.append(Note(f"Encoder of {encoders}"))
        if keys:
            notes.append(
                Note(f"The critic has weights of its own ({_critic_flags(config)}); encoder of {critics}")
            )
        if config.resumed is None and not may_have_gpu(config.run.device):
            warnings += describe_costs(config.model, spaces.observation)
    return notes + [Note(text, is_warning=True) for text in warnings]


def _critic_flags(config: Config) -> str:
    """Returns the flags that let the critic observe more than the actor, for the log."""
    is_central = config.model.centralized_critic
    own = [key for key in config.model.critic_only_keys if not (is_central and ADDED.match(key))]
    flags = {"--critic_only_keys": own, "--centralized_critic": is_central}
    return ", ".join(flag for flag, is_set in flags.items() if is_set)


def note_bounds(config: Config, kinds: AgentKinds) -> list[Note]:
    """Returns a warning if an action's bounds are far from -1 to 1, where a new policy starts."""
    model = config.model
    is_chosen = model.scale_actions or "scale_actions" in config.typed or config.resumed is not None
    if is_chosen or model.actor_critic_custom is not None:
        return []
    for kind in kinds.spaces:
        layout = action_layout(kind.action, scales=True)
        for center, half_range in zip(layout.centers, layout.half_ranges):
            if max(abs(center), half_range) > FAR or half_range < 1 / FAR:
                low, high = center - half_range, center + half_range
                text = (
                    f"An action has the bounds {low:g} and {high:g}, and a policy starts with numbers of "
                    "about -1 to 1: --scale_actions=True lets it start between the bounds"
                )
                return [Note(text, is_warning=True)]
    return []


def note_limits(config: Config) -> list[Note]:
    """Returns a warning if the learning rate should decay but never will, as the run has no limit."""
    has_end = config.monitoring.train_for_env_steps < NEVER
    if config.learning.lr_schedule != "linear_decay" or has_end:
        return []
    text = (
        "--lr_schedule=linear_decay lowers the learning rate to 0 over --train_for_env_steps, which has no "
        "limit here: the rate stays as it is"
    )
    return [Note(text, is_warning=True)]


def note_expectation(config: Config) -> list[Note]:
    """Returns a line for the log with the reward that the --cfg file says to expect; no line if the file says
    nothing.

    To be called before the run prepares its folder, which may delete an old experiment with the --cfg file.
    """
    if not config.run.cfg or config.is_foreign:
        return []
    expectation = read_expectation(config.run.cfg)
    if expectation is None:
        return []
    return [Note(f"Expect {expectation}")]

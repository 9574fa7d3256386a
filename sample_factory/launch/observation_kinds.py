"""What an env observes, for the defaults that follow the observation."""

from sample_factory.config.config import Config
from sample_factory.config.observation_defaults import follow_observation
from sample_factory.exchange.run_plan import Note
from sample_factory.models.encoder_choice import MIN_SMALL_SIDE
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import image_layout, is_image


def with_defaults_for(config: Config, kinds: AgentKinds) -> tuple[Config, list[Note]]:
    """Returns the configuration with the defaults for the observations of the agents, and lines for the log.

    Boards of a few fields, and tables, count as vectors. Raises ConfigError if a default contradicts a flag.
    """
    if not config.open_flags:
        return config, []
    spaces = [item for kind in kinds.spaces for item in kind.observation.spaces.items()]
    boxes = [box for key, box in spaces if key != ACTION_MASK]
    is_picture = [is_image(box) and min(image_layout(box.shape).size[1:]) >= MIN_SMALL_SIDE for box in boxes]
    observed = "pictures" if any(is_picture) else "vectors"
    is_continuous = any(action_layout(kind.action).box_actions for kind in kinds.spaces)
    config, chosen = follow_observation(config, observed, len(kinds.of_agent), is_continuous)
    if not chosen:
        return config, []
    values = (" ".join(map(str, value)) if isinstance(value, tuple) else value for value in chosen.values())
    listed = ", ".join(f"{flag} {value}" for flag, value in zip(chosen, values))
    memory = "" if config.model.may_remember else "; --use_rnn=True adds a memory"
    keys = ", ".join(key for key, _ in spaces if key != ACTION_MASK)
    actions = " and continuous actions" if "async_rl" in chosen else ""
    text = f"Defaults for {observed}{actions}, since the env observes {keys}: {listed}"
    notes = [Note(text, f"Defaults for {observed}{memory}")]
    if (
        is_continuous
        and "ppo_epochs" in chosen
        and config.sampling.async_rl
        and "async_rl" not in config.typed
    ):
        text = (
            "Continuous actions are learned better if sampling and learning alternate (--async_rl=False), "
            "which other flags, or so many agents, do not allow here by default"
        )
        notes.append(Note(text, is_warning=True))
    return config, notes

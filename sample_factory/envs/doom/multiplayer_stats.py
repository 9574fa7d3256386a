"""How a deathmatch went for one player."""

from collections.abc import Mapping, Sequence

MAX_PLAYERS = 9  # the scenarios report the frags of so many
NEEDED_VARIABLES = (
    "FRAGCOUNT",
    "DEATHCOUNT",
    "HITCOUNT",
    "DAMAGECOUNT",
    "PLAYER_NUMBER",
    "PLAYER_COUNT",
    *(f"PLAYER{number}_FRAGCOUNT" for number in range(1, MAX_PLAYERS + 1)),
)


def final_place(frags: Sequence[float], player: int) -> int:
    """1 for the best; players with the same number of frags share the better place."""
    return 1 + sum(other > frags[player] for other in frags)


def leader_gap(frags: Sequence[float], player: int) -> float:
    """Frags that the player lacks to the leader; when nobody has more: minus the lead over the second."""
    others = [count for index, count in enumerate(frags) if index != player]
    return max(others) - frags[player] if others else 0.0


def frags_of_players(values: Sequence[float], variables: Mapping[str, int]) -> list[float]:
    """Frags of everyone in the match, bots included, in the order of player numbers."""
    # Where a person has left, the numbers of others may be beyond the count.
    numbers = values[variables["PLAYER_COUNT"]], values[variables["PLAYER_NUMBER"]] + 1
    num_players = min(int(max(numbers)), MAX_PLAYERS)
    return [values[variables[f"PLAYER{number}_FRAGCOUNT"]] for number in range(1, num_players + 1)]


def match_stats(
    values: Sequence[float], at_start: Sequence[float], variables: Mapping[str, int]
) -> dict[str, float]:
    """The results of a match from the player's variables at its end and at its start.

    The engine counts deaths, hits and damage on from episode to episode, hence the difference.
    """
    counts = {
        name: values[variables[name]] - at_start[variables[name]]
        for name in ("DEATHCOUNT", "HITCOUNT", "DAMAGECOUNT")
    }
    frags = values[variables["FRAGCOUNT"]]
    of_players = frags_of_players(values, variables)
    player = int(values[variables["PLAYER_NUMBER"]])
    return {
        "frags": frags,
        "deaths": counts["DEATHCOUNT"],
        "kdr": frags / (counts["DEATHCOUNT"] + 1),
        "hits": counts["HITCOUNT"],
        "damage": counts["DAMAGECOUNT"],
        "num_players": float(len(of_players)),
        "final_place": float(final_place(of_players, player)),
        "leader_gap": leader_gap(of_players, player),
    }


def is_match_won(stats: Mapping[str, float]) -> bool:
    """A tie at the top is not won."""
    return stats["final_place"] == 1 and stats["leader_gap"] < 0

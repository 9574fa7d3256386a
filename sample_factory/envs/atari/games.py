"""Names of the `atari_` envs, and the games that they are."""

from collections.abc import Mapping

PREFIX = "atari_"
# The 57 games that are usually compared, by the names of their ROMs.
_COMPARED = """
    alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk bowling
    boxing breakout centipede chopper_command crazy_climber defender demon_attack double_dunk enduro
    fishing_derby freeway frostbite gopher gravitar hero ice_hockey jamesbond kangaroo krull
    kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix pitfall pong private_eye qbert
    riverraid road_runner robotank seaquest skiing solaris space_invaders star_gunner surround tennis
    time_pilot tutankham up_n_down venture video_pinball wizard_of_wor yars_revenge zaxxon
"""
_OTHERS = """
    adventure air_raid atlantis2 backgammon basic_math blackjack carnival casino crossbow darkchambers
    donkey_kong earthworld elevator_action entombed et flag_capture frogger galaxian hangman
    haunted_house human_cannonball journey_escape kaboom keystone_kapers king_kong klax koolaid
    laser_gates lost_luggage mario_bros miniature_golf mr_do othello pacman pitfall2 pooyan sir_lancelot
    space_war superman tetris tic_tac_toe_3d trondead turmoil video_checkers video_chess video_cube
    word_zapper
"""
COMPARED = tuple(_COMPARED.split())
# Spellings of versions 1 and 2 that are not the game's name without underscores.
OLD_SPELLINGS = {
    "asteroid": "asteroids",
    "kongfumaster": "kung_fu_master",
    "montezuma": "montezuma_revenge",
    "privateye": "private_eye",
}
GAME_OF_ENV: Mapping[str, str] = {
    **{f"{PREFIX}{game.replace('_', '')}": game for game in (*COMPARED, *_OTHERS.split())},
    **{f"{PREFIX}{spelling}": game for spelling, game in OLD_SPELLINGS.items()},
}
"""The name of the ROM, e.g. ms_pacman, by the full name of the env, e.g. atari_mspacman."""

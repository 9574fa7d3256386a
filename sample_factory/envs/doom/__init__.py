"""The `doom_` family: ViZDoom scenarios. Only `make_doom_env` and what it needs load the engine."""

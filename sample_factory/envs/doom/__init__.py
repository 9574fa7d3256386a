"""The `doom_` family: ViZDoom scenarios. `doom_flags` is light; `make_doom_env` and what it needs load the engine."""

"""Knowledge of the outside world, as JSON rows with sources."""

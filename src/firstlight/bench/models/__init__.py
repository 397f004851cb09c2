"""Models as a user would write them, with random weights: what the model cases run."""

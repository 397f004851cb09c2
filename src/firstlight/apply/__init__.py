"""ACT: the only room that changes the machine. What it does can be run twice, killed and undone."""

"""SHIP: a plan as files for machines that are not here yet. Plan, facts and tables become text; nothing is touched."""

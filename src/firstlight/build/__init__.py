"""BUILD. From source without losing a day: read the tree, check all of it, compile so that it can be stopped, prove."""

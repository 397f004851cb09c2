"""CAN DO. What can be done to a machine, as data: commands, root, bytes, seconds, undo, done-when, effect on facts."""

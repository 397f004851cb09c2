"""Machines rebuilt from reports: a folder tree made to match what a report says, looked at and recorded."""

"""What `--json` prints, as types: documents are made by their keys (`making.py`), and so are the schemas.

Only what makes a document imports these.
"""

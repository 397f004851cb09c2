"""Which backend computes a call: one way for products and attention.

cases.py says what is asked, terms.py what it costs in work, bytes and waves, fit.py fits a backend's time to measured
rows (rows.py), answer.py takes the shortest; drawn.py and measuring.py make rows on the GPU at hand.
"""

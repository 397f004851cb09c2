"""Questions for benchmarks/regret.py that nothing was fitted to, drawn by a rule of their own."""

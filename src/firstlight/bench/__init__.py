"""MEASURE: cases, the one stopwatch, limits, statistics, comparison."""

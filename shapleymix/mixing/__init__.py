"""From a fitted law and a budget to a certified mixture."""

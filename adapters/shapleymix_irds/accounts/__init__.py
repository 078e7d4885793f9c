"""Accounts of a run: `step` sums one step, `ledger` all steps, `log` keeps them on disk, `matrix` reports them."""

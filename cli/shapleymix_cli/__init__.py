"""The command line of shapleymix."""

"""The `shapleymix` command line: parse, call the core, show. The only place that rounds numbers."""

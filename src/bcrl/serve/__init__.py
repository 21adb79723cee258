"""Episodes of one policy over HTTP, for programs that are not in Python (docs/deploy.md)."""

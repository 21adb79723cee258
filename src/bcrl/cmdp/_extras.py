"""The packages of the extra `cmdp`, asked for in one place."""

from importlib.util import find_spec

from bcrl.errors import BCRLError


def need(*packages: str, extra: str = "cmdp") -> None:
    """Stops with the pip command when one of `packages` is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise BCRLError(f"this needs {' and '.join(missing)}: pip install 'bcrl[{extra}]'")

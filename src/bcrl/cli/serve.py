"""`bcrl serve policy.bcrl`: episodes over HTTP."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Command:
    """Serve a policy: programs in any language begin episodes, act and observe over HTTP (docs/deploy.md).

    A step is on the disk before it is acknowledged, so a restart goes on with all episodes. Their costs are
    in OUT/episodes.csv, which bcrl certify reads. The requests are described at /openapi.json.

    Only this machine is served unless there is a token, in the environment variable BCRL_TOKEN or in a file.
    """

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A policy file."""
    out: Path = Path("served")
    """Folder of the journal and of episodes.csv; episodes that are running there go on."""
    host: str = "127.0.0.1"
    """Address to listen at; other than loopback needs a token."""
    port: int = 8000
    """Port to listen at; 0 takes a free one."""
    token_file: Path | None = None
    """File with the token that every request must carry."""
    candidates: tuple[int, ...] = ()
    """Numbers of candidates that episodes may ask for, such as 8,32; many take long."""

    # ---- limits ----
    max_episodes: int = 1_000
    """Episodes that may run at once."""
    max_age: float = 86_400.0
    """Seconds without a step after which an episode is ended."""
    max_body: int = 65_536
    """Bytes of a request."""
    rate: float = 5_000.0
    """Requests a second, from all clients together."""
    new_rate: float = 500.0
    """New episodes a second."""

    def run(self) -> None:
        from bcrl.serve.server import read_token, serve
        from bcrl.serve.store import Limits

        serve(
            self.policy,
            self.out,
            host=self.host,
            port=self.port,
            candidates=self.candidates,
            token=read_token(self.token_file),
            limits=Limits(self.max_episodes, self.max_age, self.max_body, self.rate, self.new_rate),
        )

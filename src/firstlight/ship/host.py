"""The conversations with a host: each one connection, bounded in time and size; what comes back is data."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from firstlight.errors import CouldNotLook
from firstlight.fleet.refused import why_not
from firstlight.fleet.reply import LOOK_S, between_marks
from firstlight.fleet.ssh import converse, ssh_argv
from firstlight.fleet.target import Target
from firstlight.frozen import dataclass
from firstlight.machine.evidence import marks
from firstlight.ship import answers, questions
from firstlight.ship.answers import Loaded, Ran
from firstlight.ship.deciding import Engine, Gpus, HostState
from firstlight.ship.image import Blob, Image
from firstlight.ship.questions import Place

_SLOWEST_SUM = 20_000_000  # bytes a second that a host's sha256sum is given at least
_SLOWEST_LOAD = 5_000_000
VERIFY_S = 1800.0


@dataclass(frozen=True, slots=True)
class Host:
    """One host and where on it images of ours go."""

    target: Target
    place: Place
    config: str = ""

    def state(self, image: Image) -> HostState:
        """What it has."""
        return answers.read_state(self._said(lambda token: questions.ask(self.place, image, token)), image)

    def prepare(self, bad: tuple[Blob, ...] = ()) -> None:
        """Make the folder, without these blobs."""
        if not answers.is_ready(self._said(lambda token: questions.prepare(self.place, bad, token))):
            raise CouldNotLook(f"the folder {self.place.folder} cannot be made there; give another with --folder")

    def damaged(self, blobs: tuple[Blob, ...]) -> tuple[Blob, ...]:
        """Of these blobs those whose sha256 there is not their name."""
        limit_s = LOOK_S + sum(blob.size_bytes for blob in blobs) / _SLOWEST_SUM
        sums = answers.read_sums(self._said(lambda token: questions.check(self.place, blobs, token), limit_s))
        return tuple(blob for blob in blobs if sums.get(blob.digest) != blob.digest)

    def load(self, image: Image, engine: Engine, unpacked_bytes: int) -> Loaded:
        """Have the engine take the image."""
        limit_s = LOOK_S + unpacked_bytes / _SLOWEST_LOAD
        said = self._said(lambda token: questions.load(self.place, image, engine, token), limit_s)
        return answers.read_loaded(said)

    def verify(self, image: Image, program: str | Blob, how: tuple[Engine, Gpus]) -> Ran:
        """Run `firstlight verify` in it: a program of the image, or an archive of ours that lies beside its blobs."""
        said = self._said(lambda token: questions.verify(self.place, image, program, how, token), VERIFY_S)
        return answers.read_ran(said)

    def _said(self, script: Callable[[str], bytes], limit_s: float = LOOK_S) -> bytes:
        token = secrets.token_hex(8)
        argv = (*ssh_argv(self.target, config=self.config), questions.COMMAND)
        said = converse(argv, script(token), ends_with=f"\n{marks(token)[1]}\n".encode(), limit_s=limit_s)
        answer = between_marks(said.printed, token)
        if answer is None:
            raise why_not(said, self.target, config=self.config)
        return answer

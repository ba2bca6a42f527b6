"""A screen that remembers, and a clock that stands until it is moved."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from svc_notebook.display.front_end import Output

Act = tuple[str, Mapping[str, str] | str | None, str | None]


@dataclass
class Recorder:
    """What was shown, in order, and what a reader sees of it."""

    acts: list[Act] = field(default_factory=list)
    now_s: float = 0.0

    def clock(self) -> float:
        """Read the time, which only tests move."""
        return self.now_s

    def note(self, act: Act) -> None:
        """Show something."""
        self.acts.append(act)

    def output(self) -> Output:
        """Make the screen that is recorded."""
        return Output(
            publish=lambda bundle, name: self.note(("publish", bundle, name)),
            update=lambda bundle, name: self.note(("update", bundle, name)),
            clear=lambda: self.note(("clear", None, None)),
            erase=lambda: self.note(("erase", None, None)),
            write=lambda text: self.note(("write", text, None)),
        )

    def kinds(self) -> list[str]:
        """List what was done, without what was shown."""
        return [kind for kind, _, _ in self.acts]

    def printed(self) -> str:
        """Join what was written."""
        return "".join(str(shown) for kind, shown, _ in self.acts if kind == "write")

    def cell(self) -> list[Mapping[str, str]]:
        """Give the outputs of the cell as a notebook would hold them."""
        outputs: list[Mapping[str, str]] = []
        names: dict[str | None, int] = {}
        is_clearing = False
        for kind, shown, name in self.acts:
            if kind == "erase":
                outputs.clear()
            elif kind == "clear":
                is_clearing = True
            elif kind == "publish" and isinstance(shown, Mapping):
                if is_clearing:
                    outputs.clear()
                is_clearing = False
                names[name] = len(outputs)
                outputs.append(shown)
            elif kind == "update" and isinstance(shown, Mapping):
                outputs[names[name]] = shown
        return outputs


@pytest.fixture
def recorder() -> Recorder:
    """Give a screen with nothing on it, at 0 s."""
    return Recorder()

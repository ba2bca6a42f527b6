"""The conversations of a kernel, by name.

Rules: one name is one conversation, whoever asks for it; nothing is read from the
ledger unless `restore` is called, and a conversation with turns is never replaced.
"""

from collections.abc import Callable, Iterable, Iterator
from threading import RLock

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange

from .conversation import Ask, Conversation, Run


class Conversations:
    """Makes and finds conversations.

    Args:
        ask: Sends a request and returns the reply.
        model: Gives the model where an ask names none.
        run: Sends a request and runs the tools that the reply calls, in rounds.
    """

    def __init__(
        self, ask: Ask, model: Callable[[], str], run: Run | None = None
    ) -> None:
        self._ask = ask
        self._run = run
        self._model = model
        self._lock = RLock()
        self._by_name: dict[str, Conversation] = {}

    def named(self, name: str) -> Conversation:
        """Return the conversation of this name, made at the first call.

        Raises:
            ParameterError: The name is empty or has blanks.
        """
        is_text = isinstance(name, str)
        if not is_text or not name or any(letter.isspace() for letter in name):
            raise ParameterError(
                f"{name!r} is not a conversation's name; use a word without blanks, "
                "such as plan.",
                param="conversation",
            )
        with self._lock:
            if name not in self._by_name:
                self._by_name[name] = Conversation(
                    name, ask=self._ask, run=self._run, model=self._model
                )
            return self._by_name[name]

    def known(self, name: str) -> Conversation:
        """Return a conversation that was begun here.

        Raises:
            ParameterError: There is none of this name; the known ones are named.
        """
        found = self._by_name.get(name)
        if found is not None:
            return found
        known = ", ".join(self._by_name) or "none yet"
        raise ParameterError(
            f"There is no conversation {name!r} in this kernel; there are: {known}. "
            f"`%svc restore {name}` looks for it in the ledger.",
            param="conversation",
        )

    def restore(self, exchanges: Iterable[Exchange]) -> list[Conversation]:
        """Rebuild conversations that have no turns here.

        Args:
            exchanges: From the ledger, oldest first; others than those of
                conversations are passed over.
        """
        found: dict[str, list[Exchange]] = {}
        for exchange in exchanges:
            if exchange.origin.conversation:
                found.setdefault(exchange.origin.conversation, []).append(exchange)
        empty = {name: each for name, each in found.items() if not self._turns(name)}
        restored = [self.named(name).restore(each) for name, each in empty.items()]
        return [conversation for conversation in restored if conversation.turns]

    def _turns(self, name: str) -> int:
        return len(self._by_name[name].turns) if name in self._by_name else 0

    def __iter__(self) -> Iterator[Conversation]:
        return iter(tuple(self._by_name.values()))

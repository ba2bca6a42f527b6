"""Whether a request can fit the tokens that prompt and reply share (doc: Limits).

What it is not: it trims nothing (see `chat.budget`). Rules: pure; estimates err on the
safe side, so only what is certain not to fit is refused here.
"""

from svc_notebook.errors import OverBudgetError
from svc_notebook.service.catalogue import BUDGET_TOKENS
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_prompt_tokens

_SURE = 0.5  # estimates err high, but not by more than half


def within_budget(request: CompletionRequest) -> int:
    """Return the estimated tokens of the prompt, if it may fit one request.

    Raises:
        OverBudgetError: It is certain not to fit.
    """
    prompt_tokens = estimate_prompt_tokens(request.messages, request.tools)
    max_tokens = int(request.params.get("max_tokens", 0))
    if prompt_tokens * _SURE + max_tokens <= BUDGET_TOKENS:
        return prompt_tokens
    is_prompt_over = prompt_tokens * _SURE > BUDGET_TOKENS
    remedy = (
        "Shorten the prompt, or split it over several requests"
        if is_prompt_over
        else f"max_tokens={max_tokens} leaves it no room; ask for at most "
        f"{BUDGET_TOKENS - prompt_tokens}"
    )
    raise OverBudgetError(
        f"The prompt has about {prompt_tokens} tokens (estimated); prompt and reply "
        f"together may have {BUDGET_TOKENS}. It was not sent. {remedy} (doc: Limits).",
        prompt_tokens=prompt_tokens,
        budget_tokens=BUDGET_TOKENS,
    )

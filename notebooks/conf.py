"""The documentation site: its source is this folder, its notebooks included.

`sphinx-build -W notebooks OUT` writes it, with the extra `docs`. No notebook is run,
and neither the build nor a page needs the network.
"""

import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(FOLDER.parent))  # the package beside this folder

from svc_notebook import __version__ as release  # noqa: E402 - found on the path above

project = "svc-notebook"
PROJECT = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text("utf-8"))
# Write `[project.urls] Repository = "https://…"` there, and each page links to it.
REPOSITORY = PROJECT["project"].get("urls", {}).get("Repository")

extensions = ["myst_nb", "reference"]  # the second is beside this file
suppress_warnings = ["mystnb.unknown_mime_type"]  # a plot's data; its picture is shown
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
nitpicky = True
smartquotes = False  # `--service` is not a dash


def heading_anchor(title: str) -> str:
    """Return the anchor of a heading as JupyterLab makes it."""
    return title.replace(" ", "-")


myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_heading_slug_func = "conf.heading_anchor"

nb_execution_mode = "off"  # the outputs are those that nbval compares
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # they come from a CDN

html_theme = "pydata_sphinx_theme"
html_title = f"svc-notebook {release}"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_show_sourcelink = False
html_copy_source = False
WITHOUT_SIDEBAR = (
    "index start cookbook faq coming-from how-it-works contributing changelog"
)
html_sidebars: dict[str, list[str]] = {name: [] for name in WITHOUT_SIDEBAR.split()}
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "icon_links": [
        {"name": "Repository", "url": REPOSITORY, "icon": "fa-solid fa-code-branch"}
    ]
    * bool(REPOSITORY),
}


def colour_no_prose(_app: Sphinx, document: nodes.document) -> None:
    """Leave cells that ask in words, and boxes of errors, without Python's colours."""
    for block in document.findall(nodes.literal_block):
        is_asked = block.astext().startswith(("%%svc", "%svc"))
        if is_asked or block.get("language") == "ipythontb":
            block["language"] = "text"


class DarkPictures(SphinxTransform):
    """Show NAME-dark.png in place of NAME.png on dark pages, where there is one."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Give each picture that has a dark one a copy, and both their theme."""
        for picture in list(self.document.findall(nodes.image)):
            dark = FOLDER / picture["uri"].replace(".png", "-dark.png")
            if not picture["uri"].endswith(".png") or not dark.is_file():
                continue
            other = picture.copy()
            other["uri"] = str(dark.relative_to(FOLDER))
            picture["classes"] = [*picture["classes"], "only-light"]
            other["classes"] = [*other["classes"], "only-dark"]
            picture.parent.insert(picture.parent.index(picture) + 1, other)


def setup(app: Sphinx) -> None:
    """Tell Sphinx of what is done here."""
    app.add_transform(DarkPictures)
    app.connect("doctree-read", colour_no_prose)

"""The settings of Sphinx for the documentation site. `tools/docs_site.py` writes its sources."""

from __future__ import annotations

project = "Antiphon"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # as forges make them, so that a link is right in both places
suppress_warnings = ["misc.highlighting_failure"]  # shortened JSON in examples
html_theme = "furo"
html_title = "Antiphon"
html_static_path = ["static"]
html_favicon = "static/favicon.svg"
html_css_files = ["site.css"]
html_extra_path = ["../../.docs/source/llms.txt"]
html_sourcelink_suffix = ""
html_show_sphinx = False
html_show_copyright = False
pygments_style = "default"
pygments_dark_style = "github-dark"
html_theme_options = {"navigation_with_keys": True}

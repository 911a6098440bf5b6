"""What was found, written for the terminal, as HTML, JSON and Markdown."""

from ._check_cells import Case as Case
from ._check_cells import cases as cases
from ._check_cells import cell as cell
from ._check_cells import overview as overview
from ._html import curve_html as curve_html
from ._html import to_html as to_html
from ._json import SCHEMA as SCHEMA
from ._markdown import layers_to_markdown as layers_to_markdown
from ._numbers import brief as brief
from ._page_file import writable as writable
from ._suite_texts import layers_ok as layers_ok
from ._suite_texts import notes as notes
from ._terminal_suites import print_layers as print_layers

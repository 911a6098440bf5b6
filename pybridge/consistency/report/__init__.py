"""What was found, written for the terminal, as HTML, JSON and Markdown."""

from .._wording import join as join
from ._check_grid import Case as Case
from ._check_grid import cases as cases
from ._check_grid import cell as cell
from ._check_grid import overview as overview
from ._html_check import check_to_html as check_to_html
from ._html_kinks import curve_html as curve_html
from ._html_page import writable as writable
from ._html_page import write as write
from ._html_suites import to_html as to_html
from ._json import check_to_json as check_to_json
from ._json import to_json as to_json
from ._layer_answers import layers_ok as layers_ok
from ._markdown import check_to_markdown as check_to_markdown
from ._markdown import layers_to_markdown as layers_to_markdown
from ._markdown import to_markdown as to_markdown
from ._numbers import brief as brief
from ._scenario_answers import notes as notes
from ._terminal_check import print_check as print_check
from ._terminal_suites import print_layers as print_layers
from ._terminal_suites import print_report as print_report

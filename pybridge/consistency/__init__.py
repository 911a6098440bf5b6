"""Where AD systems disagree, and why."""

from ._export import to_json as to_json
from ._export import to_markdown as to_markdown
from ._html import to_html as to_html
from ._report import print_report as print_report
from ._runner import Answer as Answer
from ._runner import ModeAnswer as ModeAnswer
from ._runner import Run as Run
from ._runner import ask as ask
from ._runner import judge as judge
from ._runner import prepare as prepare
from ._runner import run_scenarios as run_scenarios
from ._scenarios import Known as Known
from ._scenarios import Scenario as Scenario
from ._scenarios import load_scenarios as load_scenarios
from ._scenarios import parse_scenarios as parse_scenarios
from ._scenarios import select_scenarios as select_scenarios

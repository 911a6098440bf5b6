"""`assert_consistent`, and what the pytest plugin calls."""

from ..subject import why_absent as why_absent
from ._assert import ConsistencyError as ConsistencyError
from ._assert import assert_consistent as assert_consistent
from ._assert import assert_in_test as assert_in_test
from ._known_gaps import Allow as Allow
from ._known_gaps import describe_failure as describe_failure
from ._known_gaps import read_gaps as read_gaps

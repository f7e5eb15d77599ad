"""Raw draft slots as one Arrow batch: nothing is imported while steps wait."""

import json
import subprocess
import sys

from places import ROOT

CODE = """
import json, sys
import numpy as np
from avlab.wire import draft_rows
draft_rows.prepare()
before = set(sys.modules)
rows = {name: np.ones((5, 2) if name == "features" else 5) for name in draft_rows.COLUMNS}
packed = draft_rows.pack(rows)
print(json.dumps([len(packed) > 0, sorted(set(sys.modules) - before)]))
"""


def test_all_that_packing_needs_is_imported_before_the_first_step():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == [True, []]

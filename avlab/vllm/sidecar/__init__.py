"""Telemetry files of a vLLM server as Prometheus metrics: `avlab sidecar`.

metrics.py      every metric: name, kind, labels, what it says. The table of docs/sidecar.md is made of it
exporter.py     a file's state as samples of them
recent.py       calibration of the last minutes
dashboard.json  for Grafana; alerts.yaml: rules for Prometheus. A test asks both for the exporter's names and labels
"""

from pathlib import Path

FOLDER = Path(__file__).parent
FILES = ("dashboard.json", "alerts.yaml")

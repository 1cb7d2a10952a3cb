"""The dashboards: every panel a row, written for Grafana by `ottla docs`."""

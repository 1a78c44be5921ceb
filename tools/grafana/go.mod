// Grafana's own model of a dashboard, by which the board in deploy/grafana is checked (Apache-2.0).
module temper/tools/grafana

go 1.27

require github.com/grafana/grafana-foundation-sdk/go v0.0.22

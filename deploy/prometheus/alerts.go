// Package prometheus holds the alerts over the series that every role exports. It has no
// code: the job metrics of a cluster embeds the file, and other servers can read it unchanged.
package prometheus

import _ "embed"

// Alerts is a file of rules of Prometheus.
//
//go:embed alerts.yaml
var Alerts string

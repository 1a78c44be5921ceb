// Package prometheus holds the alerts over the series that every role exports. It has no
// code: the job metrics of a cluster takes the file along, and other servers may read it as it is.
package prometheus

import _ "embed"

// Alerts is a file of rules of Prometheus.
//
//go:embed alerts.yaml
var Alerts string

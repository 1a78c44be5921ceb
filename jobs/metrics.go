package jobs

import (
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/deploy/prometheus"
)

// Metrics is a Prometheus that scrapes every role, found as a service of Nomad. Its targets
// change with the services, and it reads them again by itself.
func (b Build) Metrics() *api.Job {
	p := process{
		name: "metrics", role: b.Roles.Metrics, command: "prometheus",
		args: []string{
			"--config.file=${NOMAD_SECRETS_DIR}/prometheus.yaml", "--storage.tsdb.path=" + Folder(b, "metrics"),
			"--web.listen-address=" + loopback + ":${NOMAD_PORT_" + portAPI + "}",
		},
		ports: []api.Port{{Label: portAPI, Value: b.Ports.Prometheus}},
		serve: portAPI,
		check: open(),
		files: map[string]string{"sandbox_token": ItemSandboxToken, "node_token": ItemNodeToken},
	}
	if b.TLS {
		maps.Copy(p.files, wire{b}.certificates())
	}
	j := form{b}.job(p)
	task := j.TaskGroups[0].Tasks[0]
	task.Templates = append(task.Templates, &api.Template{
		EmbeddedTmpl: new(literal(prometheus.Alerts)), DestPath: new("secrets/" + fileAlerts), ChangeMode: new("noop"),
	})
	task.Templates = append(task.Templates, &api.Template{
		EmbeddedTmpl: new(scraper{b}.scrape()), DestPath: new("secrets/prometheus.yaml"), ChangeMode: new("signal"), ChangeSignal: new("SIGHUP"), Perms: new("0600"),
	})
	return j
}

// fileAlerts lies beside Prometheus' configuration.
const fileAlerts = "alerts.yaml"

// scraper writes what Prometheus is told.
type scraper struct{ Build }

// scraped are the services with series: that of a role, and the file with the token it asks for.
func (b scraper) scraped() []struct{ role, service, token string } {
	return []struct{ role, service, token string }{
		{"control", b.ID("control") + "-health", ""},
		{"trainer", b.ID("trainer") + "-health", ""},
		{"rollout", b.ID("rollout") + "-health", ""},
		{"gateway", b.ID("gateway"), "sandbox_token"},
		{"sandbox", b.ID("sandbox"), "node_token"},
	}
}

// scrape is Prometheus' configuration, as a template of Nomad.
func (b scraper) scrape() string {
	var text strings.Builder
	text.WriteString("global:\n  scrape_interval: 15s\nrule_files: [" + fileAlerts + "]\nscrape_configs:\n")
	for _, s := range b.scraped() {
		fmt.Fprintf(&text, "  - job_name: %s\n", s.role)
		if b.TLS && s.token != "" {
			fmt.Fprintf(&text, "    scheme: https\n    tls_config: {ca_file: ca.pem, cert_file: cert.pem, key_file: key.pem}\n")
		}
		if s.token != "" {
			fmt.Fprintf(&text, "    authorization: {credentials_file: %s}\n", s.token)
		}
		fmt.Fprintf(&text, "    static_configs:\n{{ range nomadService %q }}      - targets: ['{{ .Address }}:{{ .Port }}']\n        labels: {role: %s, alloc: '{{ .AllocID }}'}\n{{ end }}", s.service, s.role)
	}
	return text.String()
}

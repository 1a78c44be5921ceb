package jobs

import (
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/deploy/prometheus"
	"temper/internal/role"
)

// metrics is a Prometheus that scrapes every role. It finds its targets as services of
// Nomad and reads them again when they change.
func metrics(b Build) process {
	p := newProcess(b, role.Of(role.Metrics))
	p.args = []string{
		"--config.file=${NOMAD_SECRETS_DIR}/prometheus.yaml", "--storage.tsdb.path=" + p.folder, "--web.listen-address=" + local(role.PortAPI),
	}
	p.files = map[string]string{ItemSandboxToken: ItemSandboxToken, ItemNodeToken: ItemNodeToken}
	maps.Copy(p.files, networkOf(b).certificates())
	p.adjust = func(g *api.TaskGroup) {
		task := g.Tasks[0]
		task.Templates = append(task.Templates,
			&api.Template{EmbeddedTmpl: new(literal(prometheus.Alerts)), DestPath: new("secrets/" + fileAlerts), ChangeMode: new("noop")},
			&api.Template{EmbeddedTmpl: new(scrapeConfig(b)), DestPath: new("secrets/prometheus.yaml"), ChangeMode: new("signal"), ChangeSignal: new("SIGHUP"), Perms: new("0600")})
	}
	return p
}

// fileAlerts is the name of the alerts beside Prometheus' configuration.
const fileAlerts = "alerts.yaml"

// scrapeConfig returns Prometheus' configuration as a template of Nomad.
func scrapeConfig(b Build) string {
	var text strings.Builder
	text.WriteString("global:\n  scrape_interval: 15s\nrule_files: [" + fileAlerts + "]\nscrape_configs:\n")
	for _, r := range role.Jobs() {
		if !r.Job.Scraped {
			continue
		}
		service := b.ID(r.Name)
		if r.Job.CheckPort != r.Job.Serves {
			service += healthSuffix
		}
		fmt.Fprintf(&text, "  - job_name: %s\n", r.Name)
		if token := r.Job.ScrapeToken; token != "" {
			if b.TLS {
				fmt.Fprintf(&text, "    scheme: https\n    tls_config: {ca_file: ca.pem, cert_file: cert.pem, key_file: key.pem}\n")
			}
			fmt.Fprintf(&text, "    authorization: {credentials_file: %s}\n", token)
		}
		fmt.Fprintf(&text, "    static_configs:\n{{ range nomadService %q }}      - targets: ['{{ .Address }}:{{ .Port }}']\n        labels: {role: %s, alloc: '{{ .AllocID }}'}\n{{ end }}", service, r.Name)
	}
	return text.String()
}

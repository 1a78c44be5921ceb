package jobs

import (
	"maps"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/spec"
)

// Items of the variables of jobs.
const (
	ItemSandboxToken = "sandbox_token"
	ItemNodeToken    = "node_token"
	ItemAccessKey    = "access_key"
	ItemSecretKey    = "secret_key"
	ItemCert         = "tls_cert"
	ItemKey          = "tls_key"
	ItemCA           = "tls_ca"
)

// Files of certificates below the secrets folder of a task.
const (
	fileCert = "cert.pem"
	fileKey  = "key.pem"
	fileCA   = "ca.pem"
)

// secret is the path of such a file for the process.
func secret(file string) string { return "${NOMAD_SECRETS_DIR}/" + file }

// certificates are the files that a role needs for TLS.
func (b Build) certificates() map[string]string {
	if !b.TLS {
		return nil
	}
	return map[string]string{fileCert: ItemCert, fileKey: ItemKey, fileCA: ItemCA}
}

// serveTLS are the flags of a server.
func (b Build) serveTLS() []string {
	if !b.TLS {
		return nil
	}
	return []string{"--tls-cert", secret(fileCert), "--tls-key", secret(fileKey), "--tls-client-ca", secret(fileCA)}
}

// Gateway spreads calls over the sandbox nodes.
func (b Build) Gateway() *api.Job {
	p := process{
		name: "gateway", role: b.Roles.Gateway, command: "temper",
		args:  append([]string{"gateway", "--listen", b.address(portAPI), "--drain", b.Roles.Gateway.Drain.String()}, b.serveTLS()...),
		ports: []api.Port{{Label: portAPI, Value: b.Ports.Gateway}},
		serve: portAPI, check: alive(portAPI),
		secrets: map[string]string{"TEMPER_SANDBOX_TOKEN": ItemSandboxToken, "TEMPER_SANDBOX_NODE_TOKEN": ItemNodeToken},
		files:   b.certificates(),
	}
	if b.TLS {
		p.args = append(p.args, "--node-ca", secret(fileCA), "--node-cert", secret(fileCert), "--node-key", secret(fileKey))
		p.check = open(portAPI) // Nomad's check has no certificate to show
	}
	return b.job(p)
}

// Sandbox runs programs. It gets the token of nodes and no other secret.
func (b Build) Sandbox() *api.Job {
	role := b.Roles.Sandbox
	p := process{
		name: "sandbox", role: role, command: "temper",
		args: append([]string{
			"sandbox", "--listen", b.address(portAPI), "--python", b.Programs.Python, "--drain", role.Drain.String(), "--join", "${GATEWAY_URL}",
		}, b.serveTLS()...),
		ports: []api.Port{{Label: portAPI}}, serve: portAPI, check: alive(portAPI),
		secrets: map[string]string{"TEMPER_SANDBOX_NODE_TOKEN": ItemNodeToken},
		files:   b.certificates(),
		needs:   map[string]string{"gateway": b.found("GATEWAY_URL", "gateway", b.scheme()+"://{{ .Address }}:{{ .Port }}")},
	}
	if b.TLS {
		p.check = open(portAPI)
	}
	j := b.job(p)
	group := j.TaskGroups[0]
	group.ShutdownDelay = new(time.Second)
	group.Update.MaxParallel = new(max(1, role.Count/10))
	return j
}

func (b Build) scheme() string {
	if b.TLS {
		return "https"
	}
	return "http"
}

// Control serves workflows.
func (b Build) Control() *api.Job {
	role := b.Roles.Control
	return b.job(b.polls("control", role, []string{"worker", "--rollout-shards", strconv.Itoa(max(1, b.Roles.Rollout.Count))}))
}

// Trainer is the pool of trainers that any run may use.
func (b Build) Trainer() *api.Job {
	p := b.trains("trainer", []string{"trainer"})
	j := b.job(p)
	b.devices(j.TaskGroups[0])
	return j
}

// trains is a process that trains, and samples where no other does.
func (b Build) trains(name string, args []string) process {
	if b.Roles.Rollout.Count == 0 {
		args = append(args, "--with-rollouts")
	}
	p := b.polls(name, b.Roles.Trainer, args)
	b.sampling(&p)
	return p
}

// Rollout are processes that sample, and do nothing else.
func (b Build) Rollout() *api.Job {
	p := b.polls("rollout", b.Roles.Rollout, []string{"rollout"})
	b.sampling(&p)
	return b.job(p)
}

// polls is a role of temper that polls a queue.
func (b Build) polls(name string, role spec.Role, args []string) process {
	p := process{
		name: name, role: role, command: "temper",
		// Health has no token, so that it stays on the machine.
		args:  append(args, "--listen", loopback+":${NOMAD_PORT_"+portHealth+"}", "--home", "${NOMAD_TASK_DIR}/home", "--ui", ""),
		ports: []api.Port{{Label: portHealth}}, check: alive(portHealth),
		env:     map[string]string{},
		secrets: map[string]string{}, needs: map[string]string{}, files: map[string]string{},
	}
	if b.Cluster.Temporal != "" {
		p.env["TEMPORAL_ADDRESS"] = b.Cluster.Temporal
	} else {
		p.needs["temporal"] = b.found("TEMPORAL_ADDRESS", "temporal", "{{ .Address }}:{{ .Port }}")
	}
	if b.Store != "" {
		p.env["TEMPER_STORE"] = b.Store
	} else {
		p.needs["store"] = b.found("TEMPER_STORE", "objectstore", b.storeURL("{{ .Address }}:{{ .Port }}"))
		p.secrets["AWS_ACCESS_KEY_ID"], p.secrets["AWS_SECRET_ACCESS_KEY"] = ItemAccessKey, ItemSecretKey
	}
	return p
}

// sampling adds what a role needs that calls the sandbox.
func (b Build) sampling(p *process) {
	p.secrets["TEMPER_SANDBOX_TOKEN"] = ItemSandboxToken
	p.needs["gateway"] = b.found("TEMPER_SANDBOX_ADDRESS", "gateway", b.prefix()+"{{ .Address }}:{{ .Port }}")
	if b.TLS {
		maps.Copy(p.files, b.certificates())
		p.env["TEMPER_SANDBOX_TLS_CA"], p.env["TEMPER_SANDBOX_TLS_CERT"], p.env["TEMPER_SANDBOX_TLS_KEY"] = secret(fileCA), secret(fileCert), secret(fileKey)
	}
}

// prefix says in an address of the sandbox that it speaks TLS.
func (b Build) prefix() string {
	if b.TLS {
		return "https://"
	}
	return ""
}

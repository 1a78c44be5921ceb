package jobs

import (
	"maps"
	"path/filepath"
	"slices"
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
	ItemNomadToken   = "nomad_token"
	// ItemUIToken is that of commands that the dashboard gives.
	ItemUIToken = "ui_token"
	// ItemPostgresPassword is that of Temporal's account.
	ItemPostgresPassword = "postgres_password"
	ItemCert             = "tls_cert"
	ItemKey              = "tls_key"
	ItemCA               = "tls_ca"
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
func (b wire) certificates() map[string]string {
	if !b.TLS {
		return nil
	}
	return map[string]string{fileCert: ItemCert, fileKey: ItemKey, fileCA: ItemCA}
}

// serveTLS are the flags of a server.
func (b wire) serveTLS() []string {
	if !b.TLS {
		return nil
	}
	return []string{"--tls-cert", secret(fileCert), "--tls-key", secret(fileKey), "--tls-client-ca", secret(fileCA)}
}

// Gateway spreads calls over the sandbox nodes.
func (b Build) Gateway() *api.Job {
	p := process{
		name: "gateway", role: b.Roles.Gateway, command: "temper",
		args:  append([]string{"gateway", "--listen", wire{b}.address(portAPI), "--drain", b.Roles.Gateway.Drain.String()}, wire{b}.serveTLS()...),
		ports: []api.Port{{Label: portAPI, Value: b.Ports.Gateway}},
		serve: portAPI, check: alive(portAPI),
		secrets: map[string]string{"TEMPER_SANDBOX_TOKEN": ItemSandboxToken, "TEMPER_SANDBOX_NODE_TOKEN": ItemNodeToken},
		files:   wire{b}.certificates(),
	}
	if b.TLS {
		p.args = append(p.args, "--node-ca", secret(fileCA), "--node-cert", secret(fileCert), "--node-key", secret(fileKey))
		p.check = open() // Nomad's check has no certificate to show
	}
	return form{b}.job(p)
}

// Sandbox runs programs. It gets the token of nodes and no other secret.
func (b Build) Sandbox() *api.Job {
	role := b.Roles.Sandbox
	p := process{
		name: "sandbox", role: role, command: "temper",
		args: append([]string{
			"sandbox", "--listen", wire{b}.address(portAPI), "--python", b.Programs.Python, "--drain", role.Drain.String(), "--join", "${GATEWAY_URL}",
		}, wire{b}.serveTLS()...),
		ports: []api.Port{{Label: portAPI}}, serve: portAPI, check: alive(portAPI),
		secrets: map[string]string{"TEMPER_SANDBOX_NODE_TOKEN": ItemNodeToken},
		files:   wire{b}.certificates(),
		needs:   map[string]string{"gateway": wire{b}.found("GATEWAY_URL", "gateway", wire{b}.scheme()+"://{{ .Address }}:{{ .Port }}")},
	}
	if b.TLS {
		p.check = open()
		p.env = clientTLS()
	}
	j := form{b}.job(p)
	group := j.TaskGroups[0]
	group.ShutdownDelay = new(time.Second)
	group.Update.MaxParallel = new(max(1, role.Count/10))
	return j
}

func (b wire) scheme() string {
	if b.TLS {
		return "https"
	}
	return "http"
}

// Control serves workflows.
func (b Build) Control() *api.Job {
	p := poller{b}.polls("control", b.Roles.Control, []string{"worker", "--rollout-shards", strconv.Itoa(max(1, b.Roles.Rollout.Count))})
	if b.Placement.On() {
		poller{b}.places(&p)
	}
	return form{b}.job(p)
}

// fileCluster is the cluster's file below the local folder of a control worker.
const fileCluster = "cluster.yaml"

// places adds what a control worker needs that gives runs workers of their own: the cluster's
// file, which is part of its job so that a change rolls it over, and the way to Nomad.
func (b poller) places(p *process) {
	for _, r := range b.Named() { // b is a copy. Control reads no job file, and their folder is that of whoever applies
		if r.File != "" {
			r.File = filepath.Base(r.File)
		}
	}
	text, err := b.YAML()
	if err != nil {
		panic(err) // it consists of texts and numbers
	}
	p.texts = map[string]string{fileCluster: string(text)}
	p.args = append(p.args, "--cluster", "${NOMAD_TASK_DIR}/"+fileCluster)
	b.asks(p)
	if slices.Contains(b.Placement.Scale, "sandbox") { // its load is the gateway's to say
		b.sampling(p)
	}
}

// asks adds how a process reaches Nomad.
func (b poller) asks(p *process) {
	if !b.Placement.On() {
		return
	}
	p.env["NOMAD_ADDR"] = b.Placement.Nomad
	if b.Placement.Token {
		p.secrets["NOMAD_TOKEN"] = ItemNomadToken
	}
}

// Trainer is the pool of trainers that any run may use.
func (b Build) Trainer() *api.Job {
	p := poller{b}.trains("trainer", []string{"trainer"})
	j := form{b}.job(p)
	poller{b}.devices(j.TaskGroups[0])
	return j
}

// poller describes processes that poll a queue.
type poller struct{ Build }

// trains is a process that trains, and samples where no other does.
func (b poller) trains(name string, args []string) process {
	if b.Roles.Rollout.Count == 0 {
		args = append(args, "--with-rollouts")
	}
	p := b.polls(name, b.Roles.Trainer, args)
	b.sampling(&p)
	return p
}

// Rollout are processes that sample, and do nothing else.
func (b Build) Rollout() *api.Job {
	p := poller{b}.polls("rollout", b.Roles.Rollout, []string{"rollout"})
	poller{b}.sampling(&p)
	return form{b}.job(p)
}

// polls is a role of temper that polls a queue.
func (b poller) polls(name string, role spec.Role, args []string) process {
	// Health has no token, so that it stays on the machine.
	p := b.knows(name, role, append(args, "--listen", loopback+":${NOMAD_PORT_"+portHealth+"}", "--ui", ""))
	p.ports = []api.Port{{Label: portHealth}}
	return p
}

// knows is a role of temper that reaches Temporal and the store.
func (b poller) knows(name string, role spec.Role, args []string) process {
	p := process{
		name: name, role: role, command: "temper",
		args:    append(args, "--home", "${NOMAD_TASK_DIR}/home"),
		check:   alive(portHealth),
		env:     map[string]string{},
		secrets: map[string]string{}, needs: map[string]string{}, files: map[string]string{},
	}
	if b.Cluster.Temporal != "" {
		p.env["TEMPORAL_ADDRESS"] = b.Cluster.Temporal
	} else {
		p.needs["temporal"] = wire(b).found("TEMPORAL_ADDRESS", "temporal", "{{ .Address }}:{{ .Port }}")
	}
	if b.Store != "" {
		p.env["TEMPER_STORE"] = b.Store
		b.identify(&p)
	} else {
		p.needs["store"] = wire(b).found("TEMPER_STORE", "objectstore", wire(b).storeURL("{{ .Address }}:{{ .Port }}", `{{ env "NOMAD_SECRETS_DIR" }}/`+fileCA))
		p.secrets["AWS_ACCESS_KEY_ID"], p.secrets["AWS_SECRET_ACCESS_KEY"] = ItemAccessKey, ItemSecretKey
		if b.TLS {
			p.files[fileCA] = ItemCA
		}
	}
	return p
}

// storeIdentity names the identity for the store; Nomad keeps it in nomad_NAME.jwt below the
// secrets folder and makes a new one in time.
const storeIdentity = "store"

// identify adds the identity with which a process takes its role at the store.
func (b poller) identify(p *process) {
	if b.StoreRole == "" {
		return
	}
	p.identities = []*api.WorkloadIdentity{{Name: storeIdentity, Audience: []string{b.StoreAudience}, File: true, TTL: time.Hour}}
	p.env["AWS_ROLE_ARN"] = b.StoreRole
	p.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = secret("nomad_" + storeIdentity + ".jwt")
}

// sampling adds what a role needs that calls the sandbox.
func (b poller) sampling(p *process) {
	p.secrets["TEMPER_SANDBOX_TOKEN"] = ItemSandboxToken
	p.needs["gateway"] = wire(b).found("TEMPER_SANDBOX_ADDRESS", "gateway", "{{ .Address }}:{{ .Port }}") // with the files of clientTLS it is called by TLS
	if b.TLS {
		maps.Copy(p.files, wire(b).certificates())
		maps.Copy(p.env, clientTLS())
	}
}

// clientTLS is how a process calls a gateway with TLS.
func clientTLS() map[string]string {
	return map[string]string{"TEMPER_SANDBOX_TLS_CA": secret(fileCA), "TEMPER_SANDBOX_TLS_CERT": secret(fileCert), "TEMPER_SANDBOX_TLS_KEY": secret(fileKey)}
}

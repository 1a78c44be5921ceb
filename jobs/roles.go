package jobs

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
)

// Items of the variables of jobs.
const (
	ItemSandboxToken = "sandbox_token"
	ItemNodeToken    = "node_token"
	ItemAccessKey    = "access_key"
	ItemSecretKey    = "secret_key"
	ItemNomadToken   = "nomad_token"
	// ItemUIToken is the token of commands that the dashboard gives.
	ItemUIToken = "ui_token"
	// ItemPostgresPassword is the password of Temporal's account.
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

// secret returns the path of such a file in the process.
func secret(file string) string { return "${NOMAD_SECRETS_DIR}/" + file }

// describe returns the process of a role. A role that polls a queue needs only its row in
// the table of roles.
func describe(b Build, name string) process {
	switch name {
	case role.Postgres:
		return postgres(b)
	case role.Temporal:
		return temporal(b)
	case role.ObjectStore:
		return objectStore(b)
	case role.Gateway:
		return gateway(b)
	case role.Sandbox:
		return sandbox(b)
	case role.Control:
		return control(b)
	case role.Trainer:
		return trainer(b)
	case role.UI:
		return dashboard(b)
	case role.Metrics:
		return metrics(b)
	default:
		return poller(b, role.Of(name))
	}
}

// gateway spreads calls over the sandbox nodes.
func gateway(b Build) process {
	n, drain := networkOf(b), b.Roles.Gateway.Drain.String()
	p := newProcess(b, role.Of(role.Gateway), append([]string{"--listen", n.address(role.PortAPI), "--drain", drain}, n.serveTLS()...)...)
	p.secrets = map[string]string{"TEMPER_SANDBOX_TOKEN": ItemSandboxToken, "TEMPER_SANDBOX_NODE_TOKEN": ItemNodeToken}
	p.files = n.certificates()
	if b.TLS {
		p.args = append(p.args, "--node-ca", secret(fileCA), "--node-cert", secret(fileCert), "--node-key", secret(fileKey))
		p.check = connectCheck(role.PortAPI) // Nomad's check has no certificate
	}
	return p
}

// sandbox runs programs. Its only secret is the token of nodes.
func sandbox(b Build) process {
	n, settings := networkOf(b), b.Roles.Sandbox
	p := newProcess(b, role.Of(role.Sandbox), append([]string{
		"--listen", n.address(role.PortAPI), "--python", b.Programs.Python, "--drain", settings.Drain.String(), "--join", "${GATEWAY_URL}",
	}, n.serveTLS()...)...)
	p.secrets = map[string]string{"TEMPER_SANDBOX_NODE_TOKEN": ItemNodeToken}
	p.files, p.env = n.certificates(), n.clientTLS()
	p.needs = map[string]string{role.Gateway: n.lookup("GATEWAY_URL", role.Gateway, n.scheme()+"://{{ .Address }}:{{ .Port }}")}
	if b.TLS {
		p.check = connectCheck(role.PortAPI)
	}
	p.adjust = func(g *api.TaskGroup) {
		g.ShutdownDelay = new(time.Second)
		g.Update.MaxParallel = new(max(1, settings.Count/10))
	}
	return p
}

// control serves workflows.
func control(b Build) process {
	p := poller(b, role.Of(role.Control), "--rollout-shards", strconv.Itoa(max(1, b.Roles.Rollout.Count)))
	if b.Placement.On() {
		addPlacement(b, &p)
	}
	return p
}

// fileCluster is the path of the cluster's file below the local folder of a control worker.
const fileCluster = "cluster.yaml"

// addPlacement adds the parts of a control worker that gives runs dedicated workers: the
// cluster's file, which is part of its job so that a change restarts it, and access to
// Nomad.
func addPlacement(b Build, p *process) {
	for _, r := range b.Named() { // b is a copy. Control reads no job files: they are on the machine that applies
		if r.File != "" {
			r.File = filepath.Base(r.File)
		}
	}
	text, err := b.YAML()
	if err != nil {
		panic(err) // it holds only strings and numbers
	}
	p.texts = map[string]string{fileCluster: string(text)}
	p.args = append(p.args, "--cluster", "${NOMAD_TASK_DIR}/"+fileCluster)
	reachNomad(b, p)
	if slices.Contains(b.Placement.Scale, role.Sandbox) { // the load comes from the gateway
		reachSandbox(b, p)
	}
}

// trainer is the pool of trainers that any run may use.
func trainer(b Build) process {
	var flags []string
	if b.Roles.Rollout.Count == 0 { // no other process samples
		flags = []string{"--with-rollouts"}
	}
	p := poller(b, role.Of(role.Trainer), flags...)
	reachSandbox(b, &p)
	p.adjust = func(g *api.TaskGroup) { addDevices(b, g) }
	return p
}

// poller returns the process of a role that polls a queue and reaches the servers that its
// row needs.
func poller(b Build, row role.Row, flags ...string) process {
	// The health port requires no token, so it listens on the loopback address.
	return reach(b, newProcess(b, row, append(flags, "--listen", local(role.PortHealth), "--ui", "")...), row.Needs)
}

// reach adds the access of a process to the servers that it needs.
func reach(b Build, p process, needs []role.Need) process {
	p.args = append(p.args, "--home", "${NOMAD_TASK_DIR}/home")
	for _, need := range needs {
		switch need {
		case role.NeedTemporal:
			reachTemporal(b, &p)
		case role.NeedStore:
			reachStore(b, &p)
		case role.NeedSandbox:
			reachSandbox(b, &p)
		case role.NeedDevice, role.NeedTrainer: // the flags of the process select them
		}
	}
	return p
}

func reachTemporal(b Build, p *process) {
	if b.Cluster.Temporal != "" {
		p.env["TEMPORAL_ADDRESS"] = b.Cluster.Temporal
		return
	}
	p.needs[role.Temporal] = networkOf(b).lookup("TEMPORAL_ADDRESS", role.Temporal, "{{ .Address }}:{{ .Port }}")
}

func reachStore(b Build, p *process) {
	if b.Store != "" {
		p.env["TEMPER_STORE"] = b.Store
		addIdentity(b, p)
		return
	}
	p.needs["store"] = networkOf(b).lookup("TEMPER_STORE", role.ObjectStore, b.StoreAt("{{ .Address }}:{{ .Port }}", `{{ env "NOMAD_SECRETS_DIR" }}/`+fileCA))
	p.secrets["AWS_ACCESS_KEY_ID"], p.secrets["AWS_SECRET_ACCESS_KEY"] = ItemAccessKey, ItemSecretKey
	if b.TLS {
		p.files[fileCA] = ItemCA
	}
}

// reachSandbox adds the settings with which a process calls the sandbox.
func reachSandbox(b Build, p *process) {
	n := networkOf(b)
	p.secrets["TEMPER_SANDBOX_TOKEN"] = ItemSandboxToken
	p.needs[role.Gateway] = n.lookup("TEMPER_SANDBOX_ADDRESS", role.Gateway, "{{ .Address }}:{{ .Port }}") // with the files of clientTLS it uses TLS
	maps.Copy(p.files, n.certificates())
	maps.Copy(p.env, n.clientTLS())
}

// reachNomad adds the settings with which a process calls its agent.
func reachNomad(b Build, p *process) {
	if !b.Placement.On() {
		return
	}
	p.env["NOMAD_ADDR"] = b.Placement.Nomad
	if b.Placement.Token {
		p.secrets["NOMAD_TOKEN"] = ItemNomadToken
	}
}

// storeIdentity is the name of the identity for the store. Nomad keeps it in nomad_NAME.jwt
// below the secrets folder and renews it in time.
const storeIdentity = "store"

// addIdentity adds the identity with which a process assumes its role at the store.
func addIdentity(b Build, p *process) {
	if b.StoreRole == "" {
		return
	}
	p.identities = []*api.WorkloadIdentity{{Name: storeIdentity, Audience: []string{b.StoreAudience}, File: true, TTL: time.Hour}}
	p.env["AWS_ROLE_ARN"] = b.StoreRole
	p.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = secret("nomad_" + storeIdentity + ".jwt")
}
